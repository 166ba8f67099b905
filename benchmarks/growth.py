"""How the cost of a fit grows, and a cost model for larger data and clusters.

``python -m benchmarks.growth`` measures, and writes ``growth.json``, ``growth.png`` and the tables of ``scale.md`` in
docs/explanation. With ``--draw`` it uses the stored numbers.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from scipy.linalg import blas
from threadpoolctl import threadpool_limits

from benchmarks.cases import _normal, _spiked
from benchmarks.dask_cluster import seconds_by_workers
from benchmarks.measure import Result
from standout._dpca import DPCA

DOCS = Path(__file__).parents[1] / "docs" / "explanation"
# Ten gigabits per second, typical of a cluster network. The only constant that is not measured.
_WIRE = 1.25e9
# Number of partial sums merged in one step of the tree.
_FAN = 8
# The solve takes as long as products of this many times D³ flops: Cholesky, D³/3, and the memory-bound top eigenpairs
# (between 0.8 and 1.6 in the benchmark case "solve").
_SOLVE = 4 / 3


@dataclass(frozen=True)
class Machine:
    """Speed of one worker, per second."""

    flops: float  # of dsyrk, by one core
    reading: float  # bytes from disk
    wire: float = _WIRE  # bytes to another worker
    cores: int = 2


@dataclass(frozen=True)
class Cost:
    """Cost of a fit for each worker (products, reading, sending) and of the solve, which runs once."""

    flops: float
    bytes_read: float
    bytes_sent: float
    products: float
    reading: float
    sending: float
    solve: float

    @property
    def total(self) -> float:
        """Total seconds: reading overlaps with the products, the rest follows."""
        return max(self.products, self.reading) + self.sending + self.solve


def predict(rows: float, features: float, workers: int, machine: Machine) -> Cost:
    """Return the cost per worker of a fit with ``rows`` rows, target and background together."""
    flops, size, square = rows * features**2 / workers, 8 * rows * features / workers, 8 * features**2
    speed = machine.flops * machine.cores
    steps = np.ceil(np.log(workers) / np.log(_FAN)) if workers > 1 else 0
    sent = 2 * square if workers > 1 else 0  # the sums of both datasets, once
    return Cost(
        flops, size, sent, flops / speed, size / machine.reading, steps * _FAN * sent / machine.wire,
        _SOLVE * features**3 / speed,
    )  # fmt: skip


def _fit(rows: int = 20_000, features: int = 400, components: int = 2) -> Callable[[], object]:
    target, background = _spiked(_normal(rows, features, 0)), _normal(rows, features, 1)
    return lambda: DPCA(components).fit(target, background=background)


# Quantity that grows → (sizes, a fit of that size, expected exponent).
GROWTH = {
    "rows": ([10_000, 20_000, 40_000, 80_000, 160_000], lambda n: _fit(rows=n, features=200), 1.0),
    "features": ([100, 200, 400, 800, 1600], lambda d: _fit(rows=10_000, features=d), 2.0),
    "components": ([1, 2, 4, 8, 16, 32], lambda k: _fit(rows=4_000, features=600, components=k), 0.0),
}


def _cpu_seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """Return the least CPU time of a few runs on one thread, which other processes hardly affect."""
    taken = []
    for _ in range(repeats + 1):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return min(taken[1:])


def measured() -> dict[str, dict[str, list[float]]]:
    """Return the seconds for every size."""
    found = {}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, (sizes, make, _) in GROWTH.items():
            found[name] = {"size": list(sizes), "seconds": [_cpu_seconds(make(size)) for size in sizes]}
    return found


def machine() -> Machine:
    """Measure the speed of this machine."""
    rows, total = _normal(2048, 1000, 0), np.zeros((1000, 1000), order="F")
    with threadpool_limits(1):
        flops = (
            2048 * 1000**2 / _cpu_seconds(lambda: blas.dsyrk(1.0, rows.T, beta=1.0, c=total, lower=1, overwrite_c=1))
        )
    return Machine(flops, _reading(), cores=os.cpu_count() or 1)


def _reading(size: int = 2 * 10**9, block: int = 8 * 2**20) -> float:
    """Return the best of three read speeds, in bytes per second, of a file that is not in the page cache."""
    buffer, speeds = bytearray(os.urandom(block)), []
    with tempfile.NamedTemporaryFile() as file:
        for _ in range(size // block):
            file.write(buffer)
        file.flush()
        os.fsync(file.fileno())
        for _ in range(3):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            with open(file.name, "rb", buffering=0) as again:
                start = time.perf_counter()
                while again.readinto(buffer):
                    pass
                speeds.append(size // block * block / (time.perf_counter() - start))
    return max(speeds)


def slope(curve: dict[str, list[float]]) -> float:
    """Return the exponent of growth over the larger half of the sizes, by least squares on log scales."""
    size, seconds = (np.log(values)[len(values) // 2 - 1 :] for values in (curve["size"], curve["seconds"]))
    return float(np.polyfit(size, seconds, 1)[0])


def curves(kept: dict) -> list[tuple[str, dict[str, list[float]], float]]:
    """Return for each quantity its name, its measured curve and its expected exponent."""
    grown = [(name, kept["growth"][name], expected) for name, (_, _, expected) in GROWTH.items()]
    return [*grown, ("workers", kept["workers"], -1.0)]


def growth_table(kept: dict) -> str:
    """Return the table of exponents."""
    lines = ["| doubling the | multiplies time by | expected for large sizes | seconds |", "|---|---|---|---|"]
    for name, curve, expected in curves(kept):
        first, last = ((curve["size"][place], curve["seconds"][place]) for place in (0, -1))
        seconds = f"{first[1]:.3g} at {first[0]:,} to {last[1]:.3g} at {last[0]:,}"
        lines.append(f"| {name} | × {2 ** slope(curve):.2f} | × {2**expected:g} | {seconds} |")
    return "\n".join(lines)


_CASES = ((1e6, 1e3, 1), (1e8, 1e3, 10), (1e9, 1e3, 100), (1e9, 1e4, 100))


def prediction_table(kept: dict) -> str:
    """Return the predictions of the cost model with the constants of this machine."""
    worker = Machine(**kept["machine"])
    lines = [
        f"Constants: {worker.flops / 1e9:.0f} Gflop/s of dsyrk per core ({worker.cores} cores per worker) and "
        f"{worker.reading / 1e9:.2f} GB/s read speed, both measured; {worker.wire / 1e9:.2f} GB/s network, assumed. "
        f"Above {8 * worker.flops * worker.cores / worker.reading:.0f} features the products take longer than reading.",
        "",
        "| rows × features, workers | products | read | sent | time: products | reading | sending | solve | total |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for rows, features, workers in _CASES:
        cost = predict(rows, features, workers, worker)
        times = (cost.products, cost.reading, cost.sending, cost.solve, cost.total)
        size = f"10{_power(rows)} × 10{_power(features)}, {workers}"
        amounts = f"{_amount(cost.flops)}flop | {_amount(cost.bytes_read)}B | {_amount(cost.bytes_sent)}B"
        lines.append(f"| {size} | {amounts} | {' | '.join(map(_duration, times))} |")
    return "\n".join(lines)


def _power(value: float) -> str:
    return "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(round(np.log10(value))))


def _amount(value: float) -> str:
    for unit, name in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value:.3g} "


def _duration(seconds: float) -> str:
    for unit, name in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.2g} s" if seconds else "–"


def draw(kept: dict, path: Path) -> None:
    """Draw time against size on log scales, with the expected slope."""
    from standout.plot._style import GREYS, pyplot, style

    every = curves(kept)
    figure, axes = pyplot().subplots(1, len(every), figsize=(12, 3.4), sharey=True, layout="constrained")
    for number, (panel, (name, curve, expected)) in enumerate(zip(axes, every, strict=True)):
        size, seconds = (np.array(curve[part]) for part in ("size", "seconds"))
        look = style(number)
        panel.loglog(size, seconds, color=look.color, marker=look.marker, label="measured")
        anchor = -1 if expected > 0 else 0  # fixed costs dominate at small sizes
        line = seconds[anchor] * (size / size[anchor]) ** expected
        expected_label = {0: "constant", 1: "∝ size"}.get(expected, f"∝ size$^{{{expected:.0f}}}$")
        panel.loglog(size, line, color=GREYS[1], linestyle="--", label=expected_label)
        panel.set(xlabel=name, title=f"{name} × 2: time × {2 ** slope(curve):.2f}")
        panel.set_xticks(size, [f"{value:,.0f}" for value in size], rotation=30)
        panel.minorticks_off()
        panel.grid(color="#e5e7eb")
        panel.legend(frameon=False, loc="upper left" if expected >= 0 else "lower left")
    axes[0].set_ylabel("processor seconds, one thread")
    axes[-1].set_xlabel("Dask workers (seconds by the clock)")
    figure.savefig(path, dpi=150)


def put(page: Path, name: str, text: str) -> None:
    """Replace the text between the marks of ``name`` on a page."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    old = page.read_text(encoding="utf-8")
    assert pattern.search(old), f"{page}: no marks for {name}"
    page.write_text(pattern.sub(lambda found: f"{found[1]}{text}\n{found[2]}", old), encoding="utf-8")


def growth() -> list[Result]:
    """Return the exponents as rows of the benchmark table."""
    found = measured()
    results = []
    for name, (sizes, _, expected) in GROWTH.items():
        factor, limit = 2 ** slope(found[name]), 1.25 * 2**expected
        note = f"{sizes[0]:,} to {sizes[-1]:,}"
        results.append(Result(f"twice the {name}, one thread", factor, "×", f"≤ {limit:g} ×", factor <= limit, note))
    return results


CASES = {"growth": growth}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--draw", action="store_true", help="use the stored numbers instead of measuring")
    if not parser.parse_args().draw:
        kept = {"machine": asdict(machine()), "growth": measured(), "workers": seconds_by_workers()}
        (DOCS / "growth.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    kept = json.loads((DOCS / "growth.json").read_text(encoding="utf-8"))
    draw(kept, DOCS / "growth.png")
    put(DOCS / "scale.md", "growth", growth_table(kept))
    put(DOCS / "scale.md", "prediction", prediction_table(kept))


if __name__ == "__main__":
    main()
