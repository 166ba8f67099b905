"""Configuration of the documentation site. Build it with ``make docs``."""

from __future__ import annotations

import os
import re
import sys
import warnings
from pathlib import Path

from docutils.nodes import SkipNode
from latex2mathml.converter import convert
from sphinx_gallery.sorting import ExplicitOrder, FileNameSortKey

import standout

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

project = "standout"
author = "The standout developers"
copyright = f"2026, {author}"
version = release = standout.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "sphinxext.opengraph",
]
exclude_patterns = ["_build", "_templates", "evidence/paper/page.md.in", "**/README.rst", "**/GALLERY_HEADER.rst"]
templates_path = ["_templates"]
default_role = "code"
nitpicky = True
# References to other projects are not resolved: the build makes no network requests.
nitpick_ignore_regex = [(r"py:.*", r"(?!standout).*")]

# Pages are Markdown. Headings get the anchors that GitHub gives them.
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
suppress_warnings = ["config.cache"]

autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_attributes_as_param_list = True

# Sections of the gallery, and the examples of each in order.
GALLERY = {
    "basics": ("digits", "patterns", "photographs", "wine"),
    "pitfalls": ("noise", "replicates", "shift", "standardise", "missing", "tumours"),
    "inference": ("held_out", "null", "stability", "n_components"),
    "options": ("shrinkage", "signal", "denoise", "swap", "minimax", "batch"),
    "variants": ("cpca", "path", "kernel", "graph", "robust", "eeg"),
}
EXAMPLES = [name for names in GALLERY.values() for name in names]


class GalleryOrder(FileNameSortKey):
    """Sort key of examples and tutorials."""

    def __call__(self, filename):
        """Return the place in GALLERY, then the name; tutorials are sorted by name."""
        name = Path(filename).stem.removeprefix("plot_")
        return (EXAMPLES.index(name) if name in EXAMPLES else len(EXAMPLES), str(filename))


def short_warnings(gallery_conf, name):  # noqa: ARG001
    """Show warnings of an example without the path of its file on this machine."""
    warnings.formatwarning = lambda message, category, *_, **__: f"{category.__name__}: {message}\n"


# Tutorials and gallery are scripts that run during the build.
sphinx_gallery_conf = {
    "examples_dirs": ["../tutorials", "../examples"],
    "gallery_dirs": ["tutorials", "gallery"],
    "filename_pattern": r"/plot_",
    "subsection_order": ExplicitOrder([f"../examples/{section}" for section in GALLERY]),
    "within_subsection_order": GalleryOrder,
    "abort_on_example_error": True,
    "reset_modules": ("matplotlib", short_warnings),
    "parallel": 2,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 10_000,
    "download_all_examples": False,
    # These pages would load scripts from another host.
    "write_computation_times": False,
    "backreferences_dir": "reference/generated/backreferences",
    "doc_module": ("standout",),
    "nested_sections": False,
    "copyfile_regex": r".*\.csv",
}

# GitHub names its own repository when it builds the site.
repository = os.environ.get("GITHUB_REPOSITORY", "standout-dev/standout")
owner, name = repository.split("/")
html_theme = "pydata_sphinx_theme"
# The table of contents of a class lists `fit()`, not `DPCA.fit()`, which would not fit.
toc_object_entries_show_parents = "hide"
html_title = f"standout {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_baseurl = f"https://{owner}.github.io/{name}/"
html_context = {
    "github_user": owner,
    "github_repo": name,
    "github_version": "main",
    "default_mode": "auto",
    # Pages of the gallery and of the API are generated; their sources are scripts and docstrings.
    "edit_page_provider_name": "GitHub",
    "edit_page_url_template": f"https://github.com/{repository}/"
    "{% if '/generated/' in file_name %}tree/main/src/standout"
    "{% elif file_name in ('gallery/index.rst', 'tutorials/index.rst') %}tree/main"
    "{% elif file_name.startswith('gallery/') %}edit/main/examples/{{ file_name[8:-4] }}.py"
    "{% elif file_name.startswith('tutorials/') %}edit/main/tutorials/{{ file_name[10:-4] }}.py"
    "{% else %}edit/main/docs/{{ file_name }}{% endif %}",
}
html_theme_options = {
    "logo": {"text": html_title},
    "use_edit_page_button": True,
    "show_toc_level": 2,
    "header_links_before_dropdown": 8,
    # A field for the search would not fit next to eight sections on a screen of 1400 px.
    "navbar_persistent": ["search-button"],
    "navbar_end": ["theme-switcher", "navbar-icon-links"],
    "icon_links": [{"name": "GitHub", "url": f"https://github.com/{repository}", "icon": "fa-brands fa-github"}],
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "show_prev_next": True,
}
html_show_sourcelink = False
ogp_site_url = html_baseurl
ogp_site_name = "standout"
ogp_image = "_static/demo.png"
ogp_social_cards = {"enable": False}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"

# Examples show the warnings that matter; those of plotting libraries do not.
warnings.filterwarnings("ignore", category=UserWarning, message=".*non-interactive.*")


def link_to_repository(app, docname, source):  # noqa: ARG001
    """Turn relative links to files outside of docs/ into links to the repository."""
    depth = docname.count("/") + 1
    outside = re.compile(rf"\]\((?:\.\./){{{depth}}}(?!docs/)([\w.][^)\s]*)\)")
    source[0] = outside.sub(rf"](https://github.com/{repository}/blob/main/\1)", source[0])


def write_formula(self, node):
    """Write an inline formula as MathML, which browsers draw without a script."""
    self.body.append(convert(node.astext(), display="inline"))
    raise SkipNode


def write_equation(self, node):
    """Write a displayed formula as MathML."""
    self.body.append(f'<div class="equation">{convert(node.astext(), display="block")}</div>')
    raise SkipNode


def setup(app):
    """Register the math renderer and the links to the repository."""
    app.add_html_math_renderer("mathml", (write_formula, None), (write_equation, None))
    app.connect("source-read", link_to_repository)


html_math_renderer = "mathml"
