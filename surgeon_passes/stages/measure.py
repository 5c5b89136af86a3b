"""What is measured of each shot: size, cost, drift, latency, metric."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from functools import partial
from numbers import Real
from statistics import median
from typing import Any

import numpy as np
import onnx

from surgeon_passes.costs import model_cost
from surgeon_passes.errors import SurgeonError, UsageError
from surgeon_passes.model import import_model
from surgeon_passes.model.files import with_weights
from surgeon_passes.report.counts import count
from surgeon_passes.runtime import RuntimeFailure
from surgeon_passes.stages.recorder import Shot
from surgeon_passes.stages.stage import Metric, Stage
from surgeon_passes.timing.interleaved import interleaved
from surgeon_passes.verify.compare import is_float
from surgeon_passes.verify.endcheck import output_gap
from surgeon_passes.verify.feeds import Feeds
from surgeon_passes.verify.segments import SEGMENTED_FROM, node_count, open_model

SECONDS = 0.4
"""Time that the latency of a stage may take once its model is warm."""
CHUNK = 64
"""Tensors that one run of both models gives when drift is looked for."""


class Metrics:
    """What ``evaluate`` says of models, each asked once."""

    def __init__(self, evaluate: Metric) -> None:
        self._evaluate = evaluate
        self._found: dict[bytes, float] = {}

    def of(self, shot: Shot) -> float:
        """Raises UsageError where it fails or gives no number."""
        proto = onnx.ModelProto()
        proto.CopyFrom(shot.proto)  # who is asked may change it
        proto = with_weights(proto, shot.weights, in_place=True)
        key = hashlib.sha256(proto.SerializeToString(deterministic=True)).digest()
        if key not in self._found:
            self._found[key] = self._asked(proto)
        return self._found[key]

    def _asked(self, proto: Any) -> float:
        try:
            value = self._evaluate(proto)
        except SurgeonError:
            raise
        except Exception as error:
            raise UsageError(f"evaluate failed: {type(error).__name__}: {error}") from error
        if not isinstance(value, (Real, np.ndarray)) or np.size(value) != 1 or not math.isfinite(float(value)):
            raise UsageError(f"evaluate gave {value!r}; it must give one finite number, higher for a better model")
        return float(value)


def sized(shot: Shot, metric: float | None = None, feeds: Feeds | None = None) -> Stage:
    """Nodes, bytes, parameters, multiply-accumulates: symbolic ones at the sizes of ``feeds``, too."""
    model = import_model(shot.proto, shot.name, shot.weights)
    counts = count(model.graph)
    cost = model_cost(model, {name: np.shape(value) for name, value in (feeds or {}).items()})
    sizes = (counts.nodes, counts.bytes, cost.parameters, cost.macs)
    return Stage(shot.name, shot.round, *sizes, macs_at=cost.at, metric=metric)


def drift(original: Shot, shot: Shot, feeds: Feeds) -> tuple[float, str]:
    """The largest difference of a float tensor that both have, relative to its largest element, and its name.

    (0.0, "") where there is none in common. Raises RuntimeFailure.
    """
    made = {n for node in shot.proto.graph.node for n in node.output if n}
    common = [n for node in original.proto.graph.node for n in node.output if n in made]
    worst = (0.0, "")
    for start in range(0, len(common), CHUNK):
        names = common[start : start + CHUNK]
        a, b = (_values(one, names, feeds) for one in (original, shot))
        for name in names:
            worst = max(worst, (_gap(a[name], b[name]), name), key=lambda found: found[0])
    return worst


def _values(shot: Shot, names: Sequence[str], feeds: Feeds) -> dict[str, Any]:
    outputs = {o.name for o in shot.proto.graph.output}
    runner = open_model(shot.model, extra_outputs=[n for n in names if n not in outputs])
    return runner.run(feeds, list(names))


def _gap(a: Any, b: Any) -> float:
    if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and is_float(a)):
        return 0.0
    return output_gap(a, b).error


def latencies(shots: Sequence[Shot], feeds: Feeds, threads: int) -> list[float | None]:
    """Median milliseconds of each at ONNX Runtime's default optimisations, all run in turn; None where one does not run."""
    if any(node_count(shot.proto.graph) >= SEGMENTED_FROM for shot in shots):
        return [None] * len(shots)
    runs = {}
    for number, shot in enumerate(shots):
        try:
            runner = open_model(shot.model, level="all", threads=threads)
            runner.run(feeds)
        except RuntimeFailure:
            continue
        runs[str(number)] = partial(runner.run, feeds)
    times = interleaved(lambda: runs, SECONDS * len(runs), blocks=1) if runs else {}
    return [median(times[str(number)][0]) * 1e3 if str(number) in times else None for number in range(len(shots))]
