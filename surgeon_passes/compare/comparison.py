"""What a comparison found: plain data, the worst first, and its exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from surgeon_passes.compare.statistics import Distance, Summary

VERSION = 1
EQUAL, NOISE, DRIFT = "equal", "noise", "drift"


@dataclass(frozen=True, slots=True)
class Compared:
    """Two tensors that should be the same.

    ``a``, ``b``: their names; ``by``: how they were paired. ``operators``, ``layers``: the nodes that make them, of B the
    one in the layer that holds weights, if there is one. ``error``: the largest |a - b| of a channel over its scale;
    ``own``: the same where B's layer is fed A's activations, None where that could not be run. ``verdict``: equal, noise
    (beyond the tolerance, but rounding explains it) or drift; ``begins``: whether the layer drifts by itself. ``rules``: what
    rewrote it, as a decision record tells.
    """

    a: str
    b: str
    by: str
    operators: tuple[str, str]
    layers: tuple[str, str]
    summaries: tuple[Summary | None, Summary | None]
    distance: Distance | None
    error: float
    own: float | None
    verdict: str
    begins: bool
    reason: str = ""
    rules: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain data; Inf as text."""
        found = {k: getattr(self, k) for k in ("a", "b", "by", "error", "own", "verdict", "begins", "reason")}
        found["operators"], found["layers"] = list(self.operators), list(self.layers)
        found["statistics"] = [None if s is None else s.as_dict() for s in self.summaries]
        found["rules"] = list(self.rules)
        distance = self.distance
        found["distance"] = None if distance is None else {k: getattr(distance, k) for k in Distance.__slots__}
        return dict(_plain(found))


@dataclass(frozen=True, slots=True)
class OperatorDrift:
    """All pairs that one operator makes in B: how many, and the mean and largest drift, at most 1 a pair. Drift is that of
    the layers by themselves; where it is known of none of them, it is the error."""

    operator: str
    count: int
    mean: float
    largest: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """``pairs`` in A's topological order; ``unpaired``: tensors of A, and of B, without a partner; ``lost``: outputs of A
    among them."""

    sources: tuple[str, str]
    runtimes: tuple[str, str]
    tolerance: float
    runs: int
    pairs: Sequence[Compared]
    unpaired: tuple[Sequence[str], Sequence[str]] = ((), ())
    lost: Sequence[str] = ()

    @property
    def first(self) -> Compared | None:
        """The first pair that drifts by itself, in topological order; where none does, the first that drifts."""
        begin = next((p for p in self.pairs if p.begins), None)
        return begin or next((p for p in self.pairs if p.verdict == DRIFT), None)

    @property
    def drifting(self) -> list[Compared]:
        return [p for p in self.pairs if p.verdict == DRIFT]

    @property
    def operators(self) -> list[OperatorDrift]:
        """By operator, the largest mean drift first."""
        measured = [pair for pair in self.pairs if pair.own is not None] or self.pairs
        held: dict[str, list[float]] = {}
        for pair in measured:
            drift = pair.error if pair.own is None else pair.own
            held.setdefault(pair.operators[1] or "input", []).append(min(drift, 1.0))
        found = [OperatorDrift(op, len(d), float(np.mean(d)), max(d)) for op, d in held.items()]
        return sorted(found, key=lambda o: (-o.mean, o.operator))

    @property
    def exit_code(self) -> int:
        """5 where something drifts or an output has no partner, else 0."""
        return 5 if self.lost or self.drifting or any(p.begins for p in self.pairs) else 0

    def as_dict(self) -> dict[str, Any]:
        """Plain data of ``version`` 1: everything, Inf and NaN as text."""
        first = self.first
        return {
            "version": VERSION,
            "a": {"source": self.sources[0], "runtime": self.runtimes[0], "unpaired": list(self.unpaired[0])},
            "b": {"source": self.sources[1], "runtime": self.runtimes[1], "unpaired": list(self.unpaired[1])},
            "tolerance": self.tolerance,
            "runs": self.runs,
            "exit_code": self.exit_code,
            "first": None if first is None else {"a": first.a, "b": first.b},
            "operators": [{k: _plain(getattr(o, k)) for k in OperatorDrift.__slots__} for o in self.operators],
            "lost_outputs": list(self.lost),
            "pairs": [pair.as_dict() for pair in self.pairs],
        }

    def report(self, limit: int | None = 20) -> str:
        """The text report; ``limit`` rows at most, None for all."""
        from surgeon_passes.report.comparison import render

        return render(self, limit)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value
