"""Draw the figures of the documentation that are not part of the gallery. Run by ``make docs-write``."""

from __future__ import annotations

import contextlib
import functools
import http.server
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image
from scipy.stats import gaussian_kde

import standout
from standout import DPCA
from standout.datasets import digits_over_tiles
from standout.plot._style import COLORS, GREYS

DOCS = Path(__file__).parent.parent / "docs"
TARGET, BACKGROUND, PCA_COLOR = COLORS[0], GREYS[0], COLORS[1]
# The committed screenshot of the report may have this many bytes.
MAX_SCREENSHOT = 150_000


def direction_figure(path: Path) -> None:
    """Draw two classes in two features, and their scores along the first axis of PCA and of dPCA."""
    rng = np.random.default_rng(0)
    shape = np.array([[3.0, 0.0], [1.6, 0.45]])
    background = rng.normal(size=(700, 2)) @ shape.T
    target = rng.normal(size=(350, 2)) @ shape.T
    target[:, 1] += rng.choice([-1.6, 1.6], size=350)
    dpca = DPCA(1).fit(target, background=background)
    pca = DPCA(1).fit(target)
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.9), layout="constrained", width_ratios=(1.15, 1, 1))
    axes[0].plot(*background.T, "o", color=BACKGROUND, alpha=0.45, markersize=3, label="background")
    axes[0].plot(*target.T, "o", color=TARGET, alpha=0.65, markersize=3, label="target")
    for model, name, color in ((pca, "PCA", PCA_COLOR), (dpca, "dPCA", "black")):
        line = np.outer([-1, 1], model.components_[0]) * (9 if name == "PCA" else 5)
        axes[0].plot(*line.T, color=color, linewidth=2.5, label=f"{name} (filter)")
    axes[0].set(xlabel="feature 1", ylabel="feature 2", aspect="equal", xlim=(-9, 9), ylim=(-7.5, 7.5))
    axes[0].set_title("Two classes, hidden by shared variation")
    axes[0].legend(fontsize=8, loc="upper left")
    for ax, model, title in zip(axes[1:], (pca, dpca), ("Scores along PCA", "Scores along dPCA"), strict=True):
        scores = [model.transform(target)[:, 0], (background - background.mean(axis=0)) @ model.components_[0]]
        ratio = scores[0].var() / scores[1].var()
        end = 1.25 * max(abs(values).max() for values in scores)
        grid = np.linspace(-end, end, 300)
        for values, color, name in zip(scores, (TARGET, BACKGROUND), ("target", "background"), strict=True):
            density = gaussian_kde(values, 0.4 * scores[1].std() / values.std())(grid)
            ax.fill_between(grid, density, color=color, alpha=0.35)
            ax.plot(grid, density, color=color, label=name)
        ax.set(title=f"{title}: ratio {ratio:.1f}", xlabel="score", yticks=[])
        ax.legend(fontsize=8)
    save(figure, path)


def filter_and_pattern_figure(path: Path) -> None:
    """Draw a signal in one feature and shared noise in two, and the filter and the pattern that result."""
    rng = np.random.default_rng(0)
    names = ["A", "B", "C"]

    def rows(count: int, strength: float) -> Any:
        shared = 3 * rng.normal(size=count)
        signal = strength * rng.normal(size=count)
        return np.c_[shared + signal, shared, np.zeros(count)] + 0.5 * rng.normal(size=(count, 3))

    background, target = rows(4000, 0.0), rows(2000, 2.0)
    model = DPCA(1).fit(target, background=background)
    figure, axes = plt.subplots(1, 3, figsize=(12.6, 4), layout="constrained", width_ratios=(1.25, 1, 1))
    axes[0].plot(*target[:400, :2].T, "o", color=TARGET, alpha=0.35, markersize=3, label="target")
    axes[0].plot(*background[:400, :2].T, "o", color=GREYS[1], alpha=0.5, markersize=3, label="background")
    filter_, pattern = model.components_[0], model.patterns_[0]
    if filter_[0] < 0:
        filter_, pattern = -filter_, -pattern
    for vector, name, color in ((filter_, "filter", "black"), (pattern, "pattern", PCA_COLOR)):
        end = 6 * vector[:2] / np.linalg.norm(vector[:2])
        axes[0].annotate("", end, (0, 0), arrowprops={"arrowstyle": "-|>", "linewidth": 2.5, "color": color})
        axes[0].text(end[0], end[1] - 0.9, name, color=color, fontweight="bold", ha="left", va="center")
    axes[0].set(xlabel="feature A", ylabel="feature B", aspect="equal", xlim=(-9.5, 9.5), ylim=(-7.5, 7.5))
    axes[0].set_title("A: signal and shared noise; B: shared noise")
    axes[0].legend(fontsize=8, loc="upper left")
    texts = (
        (filter_, "Filter: computes the score", "B cancels the shared noise"),
        (pattern / np.abs(pattern).max(), "Pattern: shows the component", "the signal is in A"),
    )
    for ax, (values, title, note), color in zip(axes[1:], texts, ("black", PCA_COLOR), strict=True):
        ax.bar(names, values, color=color, width=0.6)
        ax.axhline(0, color="black", linewidth=0.8)
        ax.set(title=title, ylim=(-1.15, 1.15), xlabel=f"feature\n{note}", ylabel="weight")
    save(figure, path)


def report_screenshot(path: Path, chromium: str | None = None) -> bool:
    """Write a screenshot of the first screens of a real report; return whether a browser was found.

    The report is that of the digits over tiles, with the tests of :func:`standout.assess`.
    """
    chromium = chromium or shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        return False
    example = digits_over_tiles()
    model = DPCA(2).fit(example.target, background=example.background)
    trust = standout.assess(
        example.target, example.background, estimator=DPCA(2), n_permutations=199, n_bootstrap=50, random_state=0
    )
    with tempfile.TemporaryDirectory() as folder:
        standout.report(
            model,
            example.target,
            example.background,
            labels=example.digit,
            trust=trust,
            path=Path(folder) / "report.html",
            title="Digits hidden in tiles of a photograph",
        )
        shot = Path(folder) / "report.png"
        with serve(folder) as address:
            options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1200,1500"]
            waited = ["--virtual-time-budget=5000", f"--screenshot={shot}", f"{address}/report.html"]
            subprocess.run([chromium, *options, *waited], check=True, capture_output=True)
        picture = (
            Image.open(shot).convert("RGB").quantize(64, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        )
        picture.save(path, optimize=True)
    assert path.stat().st_size < MAX_SCREENSHOT, f"{path}: {path.stat().st_size} bytes"
    return True


@contextlib.contextmanager
def serve(folder: str) -> Any:
    """Serve a directory on a loopback port."""
    handler = functools.partial(_Quiet, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


def save(figure: Any, path: Path) -> None:
    """Write a figure in few colours, without the date, so that the same figure gives the same file."""
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)
    compress(path, path, colors=128)


def compress(source: Path, path: Path, colors: int) -> None:
    """Write a PNG with a palette of few colours."""
    Image.open(source).convert("RGB").quantize(colors, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> None:
    direction_figure(DOCS / "explanation" / "direction.png")
    filter_and_pattern_figure(DOCS / "explanation" / "filter-and-pattern.png")
    if not report_screenshot(DOCS / "reference" / "report.png"):
        print("chromium not found, screenshot of the report not updated.")


if __name__ == "__main__":
    main()
