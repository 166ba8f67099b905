"""Messages of the library name arguments in backticks; the command line shows these as options."""

import ast
import re
from pathlib import Path

import numpy as np
import pytest

import standout
from standout._dpca import DPCA
from standout.cli import options
from standout.cli.app import app
from standout.cli.options import in_options
from standout.errors import InputError, spell_arguments

SOURCE = Path(standout.__file__).parent
ARGUMENTS = re.compile(rf"(?<![\w.])({'|'.join(options.ARGUMENTS)})=")


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("Use `missing='auto'`, or name the column in `drop`.", "Use --missing auto, or name the column in --drop."),
        ("`n_components=None` gives all, `shrinkage=None` is exact.", "-k all gives all, --shrinkage none is exact."),
        ("`shrinkage=7` is wrong.", "--shrinkage 7 is wrong."),
        ("`groups_match='^a b'` has a space.", "--groups-match '^a b' has a space."),
        ("`standout.read(..., groups='a', groups_match='^[^_]+')`", "--groups a --groups-match '^[^_]+'"),
        ("Give `groups=`.", "Give --groups."),
        ("Use `features='common'`.", "Use --common."),
        ("Use `standout.read(X, label=..., ids=..., drop=...)`.", "Use --label, --ids or --drop."),
        ("`graph` has no option, nor has `features='all'`.", "`graph` has no option, nor has `features='all'`."),
        ("`mix=array([1.0])` is not a literal.", "`mix=array([1.0])` is not a literal."),
        ("a column named a`b, and `drop`.", "a column named a`b, and `drop`."),
        ("plain text", "plain text"),
    ],
)
def test_arguments_in_backticks_become_options(message, shown):
    assert in_options(message) == shown


def test_every_argument_has_an_option():
    names = {name for command in app.commands.values() for param in command.params for name in param.opts}
    assert set(options.ARGUMENTS.values()) | {"--common"} <= names
    assert set(options.PARAMETERS) <= {name.removeprefix("--") for name in names}


def test_an_error_names_its_argument():
    named = {}
    with pytest.raises(InputError) as caught:
        DPCA(shrinkage=7).fit(np.eye(3), background=np.eye(3))
    spell_arguments(str(caught.value), lambda name, value: named.update({name: value}))
    assert named == {"shrinkage": 7}


def test_messages_name_arguments_in_backticks():
    """Arguments outside backticks would appear in Python's spelling on the command line."""
    bare = []
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        skipped = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                skipped.update(node.values)
                text = "".join(str(v.value) if isinstance(v, ast.Constant) else "0" for v in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in skipped:
                text = node.value
            else:
                continue
            if " " in text and any(ARGUMENTS.search(part) for part in text.split("`")[::2]):
                bare.append(f"{path.name}:{node.lineno}: {text}")
    assert bare == []
