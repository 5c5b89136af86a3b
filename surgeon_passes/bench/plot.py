"""Measurements as one PNG: for each tool a point a model, and the median."""

from __future__ import annotations

import importlib
import importlib.util
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from surgeon_passes.bench.records import Measured, Row, every_row
from surgeon_passes.bench.tools import TOOLS
from surgeon_passes.errors import UsageError
from surgeon_passes.model.files import write_bytes

NAME = "bench.png"
PANELS: tuple[tuple[str, bool, Callable[[Measured, Row], float | None]], ...] = (
    ("seconds of the call", True, lambda m, r: r.best),
    ("peak memory, MB", True, lambda m, r: None if r.peak is None else max(r.peak / 1e6, 0.01)),
    ("nodes left", False, lambda m, r: None if r.nodes is None or not m.nodes else r.nodes / m.nodes),
    ("latency / original's", False, lambda m, r: None if r.ratio is None else r.ratio.median),
)
"""Title, whether the axis is logarithmic, and what a point shows."""


def check_available() -> None:
    """Raise UsageError where matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError("plots need matplotlib: pip install 'surgeon-passes[bench]'")


def write(models: Sequence[Measured], folder: Path) -> Path:
    """Write ``bench.png``; only results that count are shown, and how many they are.

    Raises UsageError without matplotlib, ModelError where the folder cannot be written.
    """
    check_available()
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    tools = [tool.name for tool in TOOLS if any(True for _ in every_row(models, tool.name))]
    figure, axes = pyplot.subplots(1, len(PANELS), figsize=(11, 0.9 + 0.36 * len(tools)), sharey=True)
    for axis, (title, is_log, value) in zip(axes, PANELS, strict=True):
        _panel(axis, models, tools, value)
        axis.set_title(title, fontsize=9)
        axis.tick_params(labelsize=8)
        axis.grid(axis="x", alpha=0.3)
        if is_log:
            axis.set_xscale("log")
        else:
            axis.set_xlim(left=0)
    axes[0].set_yticks(range(len(tools)), [_label(models, tool) for tool in tools], fontsize=8)
    axes[0].invert_yaxis()
    figure.tight_layout()
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=90, metadata={"Software": None})
    pyplot.close(figure)
    path = folder / NAME
    write_bytes(path, stream.getvalue())
    return path


def _panel(
    axis: Any, models: Sequence[Measured], tools: Sequence[str], value: Callable[[Measured, Row], float | None]
) -> None:
    random = np.random.default_rng(0)
    for place, tool in enumerate(tools):
        values = [value(m, r) for m, r in every_row(models, tool) if r.counts]
        known = [x for x in values if x is not None]
        if not known:
            continue
        color = f"C{0 if tool.startswith('surgeon') else 7}"
        heights = place + random.uniform(-0.25, 0.25, len(known)) * (len(known) > 1)
        axis.plot(known, heights, ".", color=color, alpha=0.5, markersize=4)
        axis.plot([median(known)] * 2, [place - 0.38, place + 0.38], "-", color=color, linewidth=2)


def _label(models: Sequence[Measured], tool: str) -> str:
    rows = [row for _, row in every_row(models, tool)]
    return f"{tool} {rows[0].version}\n{sum(r.counts for r in rows)} of {len(rows)} count"
