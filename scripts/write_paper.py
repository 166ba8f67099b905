"""Write docs/evidence/paper.md from the results of ``python -m experiments all --out FOLDER``.

    python scripts/write_paper.py FOLDER    copy the numbers and figures of a run, and write the page
    python scripts/write_paper.py           write the page from the numbers copied before

The template is docs/evidence/paper/page.md.in. A number is given in braces by its path in the JSON of an experiment and
its format: ``{optimality/errata/grid/nearest_1:.2f}``. A quantity over several seeds is replaced by its mean. A star
matches every name at its level, and several numbers are written as a range. Three forms replace a whole line:
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

PAGE = ROOT / "docs" / "evidence" / "paper.md"
KEPT = ROOT / "docs" / "evidence" / "paper"
TEMPLATE = KEPT / "page.md.in"
COLOURS = 64  # enough for the docs, at a third of the file size
LARGEST = 150_000  # bytes of a figure

_VALUE = re.compile(r"\{([a-z]+/[^{}:]+)(?::([^{}]+))?\}")
_LINE = re.compile(r"^\{\{(\w+) ([^{}]+)\}\}$", re.MULTILINE)
_PICTURE = re.compile(r"\]\(paper/([\w-]+\.png)\)")

Facts = Mapping[str, Mapping[str, Any]]  # the JSON of each experiment, by its name


def render(template: str, facts: Facts) -> str:
    """Return the template with every placeholder replaced by its value in the facts."""
    whole_lines = {"table": _table, "findings": _findings, "made": _made}
    text = _LINE.sub(lambda found: whole_lines[found[1]](found[2], facts), template)
    return _VALUE.sub(lambda found: value(found[1], found[2] or "", facts), text)


def value(path: str, style: str, facts: Facts) -> str:
    """Return the number at a path, or the range of the numbers that it matches."""
    experiment, *names = path.split("/")
    kind = names.pop(0) if names[0] in ("times", "settings") else "numbers"
    try:
        found = [_mean(one) for one in _reached(facts[experiment][kind], names)]
    except KeyError as error:
        raise SystemExit(f"{path}: there is no {error} in {experiment}.json. Correct {TEMPLATE.name}.") from error
    if isinstance(found[0], str):
        return found[0]
    ends = list(dict.fromkeys(_formatted(one, style) for one in (min(found), max(found))))
    return " to ".join(ends)


def _reached(facts: Any, names: Sequence[str]) -> Iterator[Any]:
    if not names:
        yield facts
        return
    for name in facts if names[0] == "*" else [names[0]]:
        key = int(name) if isinstance(facts, list) else name
        yield from _reached(facts[key], names[1:])


def _mean(found: Any) -> Any:
    return found["mean"] if isinstance(found, Mapping) and "mean" in found else found


def _formatted(number: float, style: str) -> str:
    text = format(number, style)
    if not re.search("[1-9]", text):  # avoid a negative zero
        text = text.lstrip("-")
    return f"−{text[1:]}" if text.startswith("-") else text


def _table(path: str, facts: Facts) -> str:
    experiment, name = path.split("/")
    tables = facts[experiment]["tables"]
    if name not in tables:
        raise SystemExit(f"{experiment}.json has {', '.join(tables)}, but not {name}. Correct {TEMPLATE.name}.")
    table = table_from(name, tables[name])
    return f"**{table.title}**\n\n{as_markdown(table)}"


def _findings(experiment: str, facts: Facts) -> str:
    return "\n".join(f"- {_escaped(finding)}" for finding in facts[experiment]["findings"])


def _escaped(text: str) -> str:
    """Escape stars and underscores for Markdown."""
    return re.sub(r"([*_])", r"\\\1", text)


def _made(experiment: str, facts: Facts) -> str:
    """Return the seeds and versions of an experiment."""
    seeds = ", ".join(map(str, facts[experiment]["settings"]["seeds"]))
    versions = ", ".join(f"{name} {number}" for name, number in sorted(facts[experiment]["versions"].items()))
    return f"Seeds {seeds}; {versions}."


def read(folder: Path) -> Facts:
    """Read the results of a full run."""
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
    """Copy the JSON files of a run and the figures of the page."""
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
    page = render(template, read(folder))  # fail before anything is replaced
    if folder != KEPT:
        take_over(folder, _PICTURE.findall(template))
    PAGE.write_text(page, encoding="utf-8", newline="\n")
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main(sys.argv[1:])
