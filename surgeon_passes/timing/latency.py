"""How long the original and the result take in ONNX Runtime, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from surgeon_passes.errors import UsageError
from surgeon_passes.timing.interleaved import Blocks, Ratio, interleaved, ratio
from surgeon_passes.verify.segments import SEGMENTED_FROM, Model, node_count

if TYPE_CHECKING:
    from surgeon_passes.result import Result
    from surgeon_passes.verify.feeds import Feeds

SECONDS = 2.0
"""Time that a measurement may take once both models are warm."""
SESSIONS = 3
"""Times that both sessions are made anew: two of one model may differ by some per cent."""
SLOWER = 1.02
"""A ratio whose 95 % interval lies above is a model that became slower."""


@dataclass(frozen=True, slots=True)
class Times:
    """Of one run, in milliseconds: median, 99th percentile, and the distance of the quartiles (the spread)."""

    median: float
    p99: float
    spread: float

    @classmethod
    def of(cls, blocks: Blocks) -> Times:
        """From seconds."""
        low, median, high, p99 = np.quantile(
            np.concatenate([np.asarray(b) for b in blocks]) * 1e3, (0.25, 0.5, 0.75, 0.99)
        )
        return cls(float(median), float(p99), float(high - low))


@dataclass(frozen=True, slots=True)
class Latency:
    """Median milliseconds of one run at ``shapes``; where nothing was measured, the reason why.

    ``rounds`` are runs of either side. ``ratio`` is the time of the result over that of the original, round by round, with
    its 95 % interval. ``more`` are further batch sizes.
    """

    before: float = 0.0
    after: float = 0.0
    rounds: int = 0
    shapes: Mapping[str, tuple[int, ...]] | None = None
    reason: str = ""
    batch: int | None = None
    """what the open first dims were set to, if anybody said so"""
    threads: int = 1
    sides: tuple[Times, Times] | None = None
    """of original and result"""
    ratio: Ratio | None = None
    more: tuple[Latency, ...] = ()

    @property
    def factor(self) -> float:
        """How many times faster the result is."""
        return self.before / self.after

    @property
    def is_slower(self) -> bool:
        """Whether the result is certainly slower than the original."""
        return self.ratio is not None and self.ratio.low > SLOWER

    @property
    def all(self) -> tuple[Latency, ...]:
        """This and the further batch sizes."""
        return (replace(self, more=()), *self.more)

    def __str__(self) -> str:
        if self.reason:
            return f"not measured: {self.reason}"
        ratio = self.factor
        change = f"{ratio:.2f}x faster" if ratio >= 1 else f"{1 / ratio:.2f}x slower"
        sizes = " ".join(f"{name}={','.join(map(str, shape))}" for name, shape in (self.shapes or {}).items())
        return f"{self.before:.3g} ms -> {self.after:.3g} ms ({change}) at {sizes}"

    @property
    def details(self) -> str:
        """Spread, 99th percentile, interval, threads; "" where nothing was measured."""
        if self.sides is None or self.ratio is None:
            return ""
        p99 = " -> ".join(f"{side.p99:.3g}" for side in self.sides)
        spread = " -> ".join(f"{side.spread:.2g}" for side in self.sides)
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        return f"time after / before {self.ratio}; p99 {p99} ms, spread {spread} ms; {self.rounds} rounds, {threads}"


def measure(result: Result, batches: Sequence[int] = (), threads: int = 1, seconds: float = SECONDS) -> Latency:
    """Original and result at ONNX Runtime's default optimisations, in turn, on ``threads`` threads.

    The inputs are the first set of ``Verify(data=...)``, or made up where there is none. For each of ``batches`` open first
    dims of the inputs are set to it, and inputs are made up. Raises UsageError for batches where no first dim is open.
    """
    from surgeon_passes.runtime import RuntimeFailure

    reason = unmeasurable(result)
    if reason:
        return Latency(reason=reason)
    found = []
    for batch in batches or (None,):
        try:
            feeds = feeds_of(result, batch)
            found.append(_measured(result, feeds, batch, threads, seconds))
        except RuntimeFailure as failure:
            found.append(Latency(reason=str(failure), batch=batch))
    return replace(found[0], more=tuple(found[1:]))


def unmeasurable(result: Result) -> str:
    """Why a result cannot be timed here; "" where it can."""
    if result.original is None:
        return "the original is not at hand"
    if result.isolated:
        return "ONNX Runtime was kept out of this process; surgeon-passes bench measures in others"
    if node_count(result.original.graph) >= SEGMENTED_FROM:
        return f"the model has {SEGMENTED_FROM} nodes or more"
    return ""


def _original(result: Result) -> Model:
    """What :func:`surgeon_passes.verify.open_model` takes."""
    assert result.original is not None  # see unmeasurable
    return result.original, result.weights


def feeds_of(result: Result, batch: int | None = None) -> Feeds:
    """What original and result are run on: the first set of the data that was given, or made up. Raises RuntimeFailure,
    and UsageError for a batch where no first dim is open."""
    from surgeon_passes.verify import generate_feeds, load_data

    optimized: Model = (result.light, result.weights)
    if batch is not None:
        return generate_feeds(optimized, with_batch(result, batch))[0]
    data = result.verify.data
    return (generate_feeds(optimized) if data is None else load_data(data, _original(result)))[0]


def with_batch(result: Result, batch: int) -> dict[str, list[Any]]:
    """Dims of the inputs, open first dims set to ``batch``. Raises UsageError where none is open."""
    shapes = {str(t.name): list(t.shape) for t in result.graph.inputs if t.shape}
    open_ones = {name: dims for name, dims in shapes.items() if not isinstance(dims[0], int)}
    if not open_ones:
        raise UsageError(f"batch {batch}: no input of the result has an open first dim")
    return {
        name: [batch, *(d if isinstance(d, (int, str)) else None for d in dims[1:])] for name, dims in open_ones.items()
    }


def _measured(result: Result, feeds: Feeds, batch: int | None, threads: int, seconds: float) -> Latency:
    from surgeon_passes.verify import open_model

    models = {"before": _original(result), "after": (result.light, result.weights)}

    def make() -> dict[str, partial[Any]]:
        opened = {side: open_model(model, level="all", threads=threads) for side, model in models.items()}
        return {side: partial(runner.run, feeds) for side, runner in opened.items()}

    times = interleaved(make, seconds, blocks=SESSIONS)
    before, after = (Times.of(times[side]) for side in ("before", "after"))
    rounds = sum(map(len, times["after"]))
    shapes = {name: np.shape(value) for name, value in feeds.items()}
    compared = ratio(times["after"], times["before"])
    return Latency(
        before.median, after.median, rounds, shapes, batch=batch, threads=threads, sides=(before, after), ratio=compared
    )
