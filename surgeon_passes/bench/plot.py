"""Measurements as one PNG: for each tool a point a model, and the median."""

from __future__ import annotations

import importlib
import importlib.util
import io
import math
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
EDGE = 2.0
"""Where a linear axis ends: what lies beyond is shown there."""
COLORS = 64
"""Of the file: it stays small however many points there are."""
PANELS: tuple[tuple[str, bool, Callable[[Measured, Row], float | None]], ...] = (
    ("seconds of the call", True, lambda m, r: r.best),
    ("peak memory, MB", True, lambda m, r: None if r.peak is None else max(r.peak / 1e6, 0.01)),
    ("nodes left (2: or more)", False, lambda m, r: None if r.nodes is None or not m.nodes else r.nodes / m.nodes),
    ("latency / original's (2: or more)", False, lambda m, r: None if r.ratio is None else r.ratio.median),
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
        _panel(axis, models, tools, value, None if is_log else EDGE)
        axis.set_title(title, fontsize=9)
        axis.tick_params(labelsize=8)
        axis.grid(axis="x", alpha=0.3)
        if is_log:
            _whole_decades(axis)
        else:
            axis.set_xlim(0, 1.05 * EDGE)
    axes[0].set_yticks(range(len(tools)), [_label(models, tool) for tool in tools], fontsize=8)
    axes[0].invert_yaxis()
    figure.tight_layout()
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=90)
    pyplot.close(figure)
    path = folder / NAME
    write_bytes(path, _small(stream))
    return path


def _small(stream: io.BytesIO) -> bytes:
    """The same picture in few colors."""
    image: Any = importlib.import_module("PIL.Image")  # matplotlib needs it, too
    small = io.BytesIO()
    image.open(stream).convert("RGB").quantize(COLORS).save(small, format="png", optimize=True)
    return small.getvalue()


def _panel(
    axis: Any,
    models: Sequence[Measured],
    tools: Sequence[str],
    value: Callable[[Measured, Row], float | None],
    edge: float | None,
) -> None:
    random = np.random.default_rng(0)
    for place, tool in enumerate(tools):
        values = [value(m, r) for m, r in every_row(models, tool) if r.counts]
        known = [x for x in values if x is not None]
        if not known:
            continue
        color = f"C{0 if tool.startswith('surgeon') else 7}"
        heights = place + random.uniform(-0.25, 0.25, len(known)) * (len(known) > 1)
        axis.plot(np.clip(known, None, edge), heights, ".", color=color, alpha=0.5, markersize=4)
        axis.plot([min(median(known), edge or np.inf)] * 2, [place - 0.38, place + 0.38], "-", color=color, linewidth=2)


def _whole_decades(axis: Any) -> None:
    """A logarithmic axis from power of ten to power of ten, since only those have labels: the others would overlap."""
    axis.set_xscale("log")
    axis.xaxis.set_minor_formatter("")
    if axis.has_data():
        low, high = (math.log10(x) for x in axis.dataLim.intervalx)
        axis.set_xlim(10 ** math.floor(low), 10 ** max(math.ceil(high), math.floor(low) + 1))


def _label(models: Sequence[Measured], tool: str) -> str:
    rows = [row for _, row in every_row(models, tool)]
    return f"{tool} {rows[0].version}\n{sum(r.counts for r in rows)} of {len(rows)} count"
