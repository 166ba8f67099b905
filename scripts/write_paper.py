"""Write docs/paper.md from what ``python -m experiments all --out FOLDER`` wrote.

    python scripts/write_paper.py FOLDER    take over the numbers and pictures of a run, and write the page
    python scripts/write_paper.py           write the page again from the numbers taken over before

The text stands in docs/paper/page.md.in. Between braces it names numbers by their way through the JSON of an
experiment, with a format: ``{optimality/errata/grid/nearest_1:.2f}``. What several seeds gave is its mean; a star takes
every name at its place, and several numbers are written as their range. Lines of their own are
``{{table digits/digits_ari}}``, ``{{findings mice}}`` and ``{{made runtime}}``.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # the experiments are not installed

from experiments import EXPERIMENTS  # noqa: E402
from experiments.record import as_markdown, table_from  # noqa: E402

PAGE = ROOT / "docs" / "paper.md"
KEPT = ROOT / "docs" / "paper"
TEMPLATE = KEPT / "page.md.in"
COLOURS = 64  # a picture for the docs needs no more, and is a third of the size
LARGEST = 150_000  # bytes of a picture

_VALUE = re.compile(r"\{([a-z]+/[^{}:]+)(?::([^{}]+))?\}")
_LINE = re.compile(r"^\{\{(\w+) ([^{}]+)\}\}$", re.MULTILINE)
_PICTURE = re.compile(r"\]\(paper/([\w-]+\.png)\)")

Facts = Mapping[str, Mapping[str, Any]]  # the JSON of each experiment, by its name


def render(template: str, facts: Facts) -> str:
    """Return the page: the template with every name replaced by what stands in the facts."""
    whole_lines = {"table": _table, "findings": _findings, "made": _made}
    text = _LINE.sub(lambda found: whole_lines[found[1]](found[2], facts), template)
    return _VALUE.sub(lambda found: value(found[1], found[2] or "", facts), text)


def value(way: str, style: str, facts: Facts) -> str:
    """Return the number a way leads to, or the range of those it leads to."""
    experiment, *names = way.split("/")
    kind = names.pop(0) if names[0] in ("times", "settings") else "numbers"
    try:
        found = [_mean(one) for one in _reached(facts[experiment][kind], names)]
    except KeyError as error:
        raise SystemExit(f"{way}: there is no {error} in {experiment}.json. Correct {TEMPLATE.name}.") from error
    if isinstance(found[0], str):
        return found[0]
    told = list(dict.fromkeys(_formatted(one, style) for one in (min(found), max(found))))
    return " to ".join(told)


def _reached(facts: Any, names: Sequence[str]) -> Iterator[Any]:
    if not names:
        yield facts
        return
    for name in facts if names[0] == "*" else [names[0]]:
        place = int(name) if isinstance(facts, list) else name
        yield from _reached(facts[place], names[1:])


def _mean(found: Any) -> Any:
    return found["mean"] if isinstance(found, Mapping) and "mean" in found else found


def _formatted(number: float, style: str) -> str:
    text = format(number, style)
    if not re.search("[1-9]", text):  # a zero has no sign
        text = text.lstrip("-")
    return f"−{text[1:]}" if text.startswith("-") else text


def _table(way: str, facts: Facts) -> str:
    experiment, name = way.split("/")
    tables = facts[experiment]["tables"]
    if name not in tables:
        raise SystemExit(f"{experiment}.json has no table {name}, but {', '.join(tables)}. Correct {TEMPLATE.name}.")
    table = table_from(name, tables[name])
    return f"**{table.title}**\n\n{as_markdown(table)}"


def _findings(experiment: str, facts: Facts) -> str:
    return "\n".join(f"- {_escaped(finding)}" for finding in facts[experiment]["findings"])


def _escaped(text: str) -> str:
    """Keep Markdown from reading stars and underscores in a sentence."""
    return re.sub(r"([*_])", r"\\\1", text)


def _made(experiment: str, facts: Facts) -> str:
    """Say what an experiment was run with."""
    seeds = ", ".join(map(str, facts[experiment]["settings"]["seeds"]))
    versions = ", ".join(f"{name} {number}" for name, number in sorted(facts[experiment]["versions"].items()))
    return f"Seeds {seeds}; {versions}."


def read(folder: Path) -> Facts:
    """Return the facts of a run."""
    missing = [name for name in EXPERIMENTS if not (folder / f"{name}.json").is_file()]
    if missing:
        raise SystemExit(f"{folder}: no {missing[0]}.json. Run: python -m experiments all --out {folder}")
    facts = {name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in EXPERIMENTS}
    for name, found in facts.items():
        less = [what for what in ("reduced", "embedded") if found["settings"].get(what)]
        if less:
            raise SystemExit(f"{folder}: {name}.json is of a {less[0]} run. Run it without --quick and --embedded.")
    return facts


def take_over(folder: Path, pictures: Sequence[str]) -> None:
    """Copy the JSON of a run, and the pictures that the page shows."""
    for old in set(KEPT.glob("*.png")) - {KEPT / name for name in pictures}:
        old.unlink()
    for name in EXPERIMENTS:
        shutil.copyfile(folder / f"{name}.json", KEPT / f"{name}.json")
    for name in pictures:
        _copy_picture(folder / name, KEPT / name)


def _copy_picture(source: Path, goal: Path) -> None:
    from PIL import Image

    with Image.open(source) as picture:
        picture.convert("RGB").quantize(COLOURS).save(goal, optimize=True)
    if goal.stat().st_size > LARGEST:
        raise SystemExit(f"{goal.name}: more than {LARGEST:,} bytes. Leave it out of {TEMPLATE.name}.")


def main(arguments: Sequence[str]) -> None:
    template = TEMPLATE.read_text(encoding="utf-8")
    folder = Path(arguments[0]) if arguments else KEPT
    page = render(template, read(folder))  # before anything is replaced
    if folder != KEPT:
        take_over(folder, _PICTURE.findall(template))
    PAGE.write_text(page, encoding="utf-8", newline="\n")
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main(sys.argv[1:])
