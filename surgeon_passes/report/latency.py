"""How long the original and the result take in ONNX Runtime, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from surgeon_passes.bench.latency import interleaved
from surgeon_passes.verify.segments import SEGMENTED_FROM, Model, node_count

if TYPE_CHECKING:
    from surgeon_passes.result import Result

SECONDS = 2.0
"""Time that a measurement may take once both models are warm."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Median milliseconds of one run at ``shapes``; where nothing was measured, the reason why."""

    before: float = 0.0
    after: float = 0.0
    rounds: int = 0
    shapes: Mapping[str, tuple[int, ...]] | None = None
    reason: str = ""

    @property
    def factor(self) -> float:
        """How many times faster the result is."""
        return self.before / self.after

    def __str__(self) -> str:
        if self.reason:
            return f"not measured: {self.reason}"
        ratio = self.factor
        change = f"{ratio:.2f}x faster" if ratio >= 1 else f"{1 / ratio:.2f}x slower"
        sizes = " ".join(f"{name}={','.join(map(str, shape))}" for name, shape in (self.shapes or {}).items())
        return f"{self.before:.3g} ms -> {self.after:.3g} ms ({change}) at {sizes}"


def measure(result: Result) -> Latency:
    """Original and result at ONNX Runtime's default optimisations, on one thread, in turn; medians.

    The inputs are the first set of ``Verify(data=...)``, or made up where there is none.
    """
    from surgeon_passes.runtime import RuntimeFailure
    from surgeon_passes.verify import generate_feeds, load_data, open_model

    if result.original is None:
        return Latency(reason="the original is not at hand")
    if result.isolated:
        return Latency(reason="ONNX Runtime was kept out of this process; surgeon-passes bench measures in others")
    if node_count(result.original.graph) >= SEGMENTED_FROM:
        return Latency(reason=f"the model has {SEGMENTED_FROM} nodes or more")
    original: Model = (result.original, result.weights)
    optimized: Model = (result.light, result.weights)
    try:
        data = result.verify.data
        feeds = (generate_feeds(optimized) if data is None else load_data(data, original))[0]
        runners = {"before": open_model(original, level="all"), "after": open_model(optimized, level="all")}
        runs = {side: partial(runner.run, feeds) for side, runner in runners.items()}
        times = {side: found for side, (found,) in interleaved(lambda: runs, SECONDS, blocks=1).items()}
    except RuntimeFailure as failure:
        return Latency(reason=str(failure))
    before, after = (median(times[side]) * 1e3 for side in ("before", "after"))
    return Latency(before, after, len(times["after"]), {name: np.shape(value) for name, value in feeds.items()})
