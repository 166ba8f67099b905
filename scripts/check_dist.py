"""Check the contents of the built wheel and sdist.

The wheel must hold every file of ``src/standout`` and nothing else but its metadata. The sdist must also hold what is
needed to run the tests and build the documentation. Usage, after ``python -m build``::

    python scripts/check_dist.py [DIRECTORY]
"""

import re
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SDIST_FILES = (
    "PKG-INFO", "pyproject.toml", "LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "Makefile", "conftest.py",
)  # fmt: skip
SDIST_DIRECTORIES = ("tests", "docs", "examples")
NEVER = re.compile(r"(^|/)(__pycache__|\.git|\.venv|\.DS_Store)(/|$)|\.py[co]$")


def main(arguments):
    directory = Path(arguments[0]) if arguments else ROOT / "dist"
    wheel, sdist = only(directory, "*.whl"), only(directory, "*.tar.gz")
    package = package_files()
    problems = [*wheel_problems(wheel, package), *sdist_problems(sdist, package)]
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        print(f"{wheel.name} and {sdist.name}: {len(package)} package files, contents as expected")
    return 1 if problems else 0


def only(directory, pattern):
    """Return the only file in the directory that matches the pattern."""
    found = sorted(directory.glob(pattern))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        sys.exit(f"{directory}: expected exactly one {pattern}, found {names}. Empty the directory and build again.")
    return found[0]


def package_files():
    """Return the files of the package in the source tree, as paths relative to ``src``."""
    source = ROOT / "src"
    files = (path.relative_to(source).as_posix() for path in (source / "standout").rglob("*") if path.is_file())
    return {name for name in files if not NEVER.search(name)}


def wheel_problems(path, package):
    """Yield what is wrong with the wheel."""
    with zipfile.ZipFile(path) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        metadata = "standout-{}.dist-info/".format(path.name.split("-")[1])
        if f"{metadata}METADATA" not in names:
            yield f"{path.name}: {metadata}METADATA is missing"
            return
        header = Parser().parsestr(archive.read(f"{metadata}METADATA").decode())
    yield from missing(path, package, names)
    for name in sorted(names - package):
        if not name.startswith(metadata):
            yield f"{path.name}: unexpected file {name}"
    if f"{metadata}licenses/LICENSE" not in names:
        yield f"{path.name}: the licence file is missing"
    if "Typing :: Typed" in header.get_all("Classifier", []) and "standout/py.typed" not in names:
        yield f"{path.name}: classified as typed, but standout/py.typed is missing"


def sdist_problems(path, package):
    """Yield what is wrong with the sdist."""
    top = path.name.removesuffix(".tar.gz")
    with tarfile.open(path) as archive:
        members = {member.name for member in archive.getmembers() if member.isfile()}
        names = {name.removeprefix(f"{top}/") for name in members if name.startswith(f"{top}/")}
        for name in sorted(members):
            if not name.startswith(f"{top}/") or NEVER.search(name):
                yield f"{path.name}: unexpected file {name}"
        yield from missing(path, {*SDIST_FILES, *(f"src/{name}" for name in package)}, names)
        for directory in SDIST_DIRECTORIES:
            if not any(name.startswith(f"{directory}/") for name in names):
                yield f"{path.name}: {directory}/ is missing"
        if "CITATION.cff" in names:
            citation = archive.extractfile(f"{top}/CITATION.cff").read().decode()
            cited = re.search(r"^version: *[\"']?([^\s\"']+)", citation, re.MULTILINE)
            if cited is None or top != f"standout-{cited[1]}":
                yield f"{path.name}: the version in CITATION.cff differs from that of the package"


def missing(path, expected, names):
    """Yield the expected files that an archive does not contain."""
    for name in sorted(expected - names):
        yield f"{path.name}: {name} is missing"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
