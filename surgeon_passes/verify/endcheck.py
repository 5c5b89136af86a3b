"""Original and result, once on the same inputs: the last word on a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from surgeon_passes.region import Tolerances
from surgeon_passes.runtime import Array, RuntimeFailure, Value
from surgeon_passes.verify.compare import is_float
from surgeon_passes.verify.feeds import Sample, generate_samples
from surgeon_passes.verify.inputs import one_ulp
from surgeon_passes.verify.segments import Model, Runner, open_model


@dataclass(frozen=True, slots=True)
class EndCheck:
    """``status``: "equal", "different", "inconclusive" or "not run". ``error`` and ``noise`` are relative to the scale of
    output ``output`` (max |a|); ``noise`` is None where it was not measured."""

    status: str
    error: float | None = None
    output: str = ""
    reason: str = ""
    noise: float | None = None


@dataclass(frozen=True, slots=True)
class _Gap:
    """``flipped`` marks the elements of a discrete output that differ."""

    error: float
    reason: str = ""
    flipped: Array | None = None


def end_check(
    original: Model,
    result: Model,
    feeds: Sequence[Mapping[str, Value]],
    tolerances: Tolerances | None = None,
    expected: Sequence[Mapping[str, Value]] | None = None,
) -> EndCheck:
    """Run both on every set of ``feeds``; equal within ``tolerances.end`` of each output's scale.

    ``expected`` is what the original gives on ``feeds``, where that is known; else it is run. One model is in memory at a
    time. Where the outputs differ, the original's noise is measured (float inputs moved by one ulp, ONNX Runtime's
    optimisations on): up to ``noise_factor`` times it is allowed, at most ``noise_limit`` tolerances; an error that noise
    explains only beyond that is inconclusive.
    """
    limits = tolerances or Tolerances()
    if not feeds:
        return EndCheck("not run", reason="no inputs; give --data")
    try:
        expected = _outputs(open_model(original), feeds) if expected is None else expected
    except RuntimeFailure as failure:
        return EndCheck("not run", reason=f"the original does not run: {failure}")
    try:
        got = _outputs(open_model(result), feeds)
    except RuntimeFailure as failure:
        return EndCheck("different", reason=f"the result does not run: {failure}")
    checks = [_check_one(a, b, None, limits) for a, b in zip(expected, got, strict=True)]
    if any(check.status != "equal" for check in checks):
        checks = _checks_with_noise(original, got, feeds, limits)
    return max(checks, key=lambda c: (_GRAVITY[c.status], c.error or 0.0))


def compare_models(
    original: Model,
    result: Model,
    feeds: Sequence[Mapping[str, Value]] | None = None,
    shapes: Mapping[str, list[Any]] | None = None,
    seed: int = 0,
) -> EndCheck:
    """The end check by itself: on ``feeds``, or on made-up ones that fit ``shapes`` of the inputs, too."""
    if feeds is not None:
        return end_check(original, result, feeds)
    try:
        samples = generate_samples(original, dict(shapes or {}), seed)
    except RuntimeFailure as failure:
        return without_inputs(failure)
    return check_samples(original, result, samples)


def check_samples(
    original: Model, result: Model, samples: Sequence[Sample], tolerances: Tolerances | None = None
) -> EndCheck:
    """:func:`end_check` on the feeds of ``samples``, against what the original has given on them where it has run."""
    expected = [sample.outputs for sample in samples if sample.outputs is not None]
    known = expected if len(expected) == len(samples) else None
    return end_check(original, result, [sample.feeds for sample in samples], tolerances, known)


def without_inputs(failure: RuntimeFailure) -> EndCheck:
    """What is said where no feeds could be made up, since the original failed on all of them."""
    if failure.is_fatal:
        return EndCheck("not run", reason=f"the original does not run: {failure}")
    return EndCheck("not run", reason=f"no inputs could be made up: {failure}; give --data")


def _outputs(runner: Runner, feeds: Sequence[Mapping[str, Value]]) -> list[dict[str, Value]]:
    return [runner.run(f) for f in feeds]


def _checks_with_noise(
    original: Model, got: Sequence[Mapping[str, Value]], feeds: Sequence[Mapping[str, Value]], limits: Tolerances
) -> list[EndCheck]:
    """The original is loaded anew: seeded random operators draw in both models what they draw first."""
    try:
        runner = open_model(original)
        expected = _outputs(runner, feeds)
    except RuntimeFailure as failure:
        return [EndCheck("not run", reason=f"the original does not run: {failure}")]
    return [
        _check_one(a, b, _Noise(original, runner, f, a), limits) for a, b, f in zip(expected, got, feeds, strict=True)
    ]


_FLOOR = Tolerances().absolute
_GRAVITY = {"equal": 0, "not run": 1, "inconclusive": 2, "different": 3}


def _check_one(a: Mapping[str, Value], b: Mapping[str, Value], noise: _Noise | None, limits: Tolerances) -> EndCheck:
    """The worst output; what exceeds its bound is different where ``noise`` may not excuse it."""
    if list(a) != list(b):
        return EndCheck("different", reason=f"outputs {list(b)} instead of {list(a)}")
    worst = EndCheck("equal", 0.0)
    for name in a:
        gap = output_gap(a[name], b[name])
        check = EndCheck("equal", gap.error, name)
        bound = _bound(a[name], limits)
        if gap.reason or gap.error > bound:
            check = _with_noise(name, gap, noise, limits, bound) if noise else EndCheck("different", gap.error, name)
        if (_GRAVITY[check.status], check.error or 0.0) > (
            _GRAVITY[worst.status],
            worst.error or 0.0,
        ) or not worst.output:
            worst = check
    return worst


def _bound(value: Value, limits: Tolerances) -> float:
    """Half-precision outputs cannot be told as finely as float32."""
    return (limits.step_of(value.dtype.name) if isinstance(value, np.ndarray) else 0.0) or limits.end


class _Noise:
    """What rounding alone does to the original; measured when it is asked for."""

    def __init__(self, model: Model, runner: Runner, feeds: Mapping[str, Value], values: Mapping[str, Value]) -> None:
        self._model, self._runner, self._feeds, self._values = model, runner, feeds, values
        self._runs: list[Mapping[str, Value]] | None = None
        self.is_random = False

    def gaps(self, name: str) -> list[_Gap]:
        """Gaps of output ``name`` between the original and its noise runs."""
        if self._runs is None:
            self._runs = list(self._measure())
        return [output_gap(self._values[name], run[name]) for run in self._runs]

    def _measure(self) -> Iterator[Mapping[str, Value]]:
        again = self._runner.run(self._feeds)
        self.is_random = any(g.reason or g.error for g in (output_gap(self._values[n], again[n]) for n in again))
        runs: list[Callable[[], Mapping[str, Value]]] = [
            lambda: self._runner.run(self._moved(0)),
            lambda: self._runner.run(self._moved(1)),
            lambda: open_model(self._model, level="all").run(self._feeds),
        ]
        for run in runs:
            try:
                yield run()
            except RuntimeFailure:
                continue

    def _moved(self, seed: int) -> dict[str, Value]:
        return {
            n: one_ulp(x, 17 * seed + k) if isinstance(x, np.ndarray) else x
            for k, (n, x) in enumerate(self._feeds.items())
        }


def _with_noise(name: str, gap: _Gap, noise: _Noise, limits: Tolerances, bound: float) -> EndCheck:
    gaps = noise.gaps(name)
    if noise.is_random:
        return EndCheck("inconclusive", gap.error, name, "the original gives other values when it is run again")
    level = max((g.error for g in gaps if not g.reason), default=0.0)
    if gap.reason:
        return _discrete_with_noise(name, gap, gaps, level)
    explained = limits.noise_factor * level
    if gap.error <= min(explained, limits.noise_limit * bound):
        return EndCheck("equal", gap.error, name, f"rounding alone moves this output by {level:.1e}", level)
    if gap.error <= explained:
        return EndCheck("inconclusive", gap.error, name, f"rounding alone moves this output by {level:.1e}", level)
    text = f"error {gap.error:.1e} of the output's scale; the bound is {bound:.1e}, noise {level:.1e}"
    return EndCheck("different", gap.error, name, text, level)


def _discrete_with_noise(name: str, gap: _Gap, gaps: Sequence[_Gap], level: float) -> EndCheck:
    """Elements that flip are excused by noise runs that flip the same ones, another shape by runs that change it, too."""
    if gap.flipped is not None:
        excused = np.zeros_like(gap.flipped)
        for other in gaps:
            if other.flipped is not None and other.flipped.shape == excused.shape:
                excused |= other.flipped
        if not (gap.flipped & ~excused).any():
            return EndCheck("equal", 0.0, name, f"{gap.reason}; rounding alone flips the same elements", level)
        return EndCheck("different", gap.error, name, gap.reason, level)
    if any(g.reason for g in gaps):
        return EndCheck(
            "inconclusive", gap.error, name, f"{gap.reason}; rounding alone changes this output, too", level
        )
    return EndCheck("different", gap.error, name, gap.reason, level)


# --- one output ----------------------------------------------------------------------------------------------------------


def output_gap(a: Value, b: Value) -> _Gap:
    """How far output ``b`` is from ``a``: max |a - b| over max |a| for floats; equality for all else."""
    if isinstance(a, (list, tuple)) or isinstance(b, (list, tuple)):
        return _sequence_gap(a, b)
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return _Gap(0.0) if a is b or a == b else _Gap(np.inf, "values differ")
    if a.dtype != b.dtype or a.shape != b.shape:
        return _Gap(np.inf, f"{b.dtype}{list(b.shape)} instead of {a.dtype}{list(a.shape)}")
    if a.size == 0:
        return _Gap(0.0)
    if not is_float(a):
        wrong = a != b
        count = int(np.count_nonzero(wrong))
        return _Gap(np.inf, f"{count} of {a.size} elements differ", np.asarray(wrong)) if count else _Gap(0.0)
    return _float_gap(a, b)


def _sequence_gap(a: Value, b: Value) -> _Gap:
    if not (isinstance(a, (list, tuple)) and isinstance(b, (list, tuple))) or len(a) != len(b):
        return _Gap(np.inf, "sequences of different lengths")
    gaps = [output_gap(x, y) for x, y in zip(a, b, strict=True)]
    if not gaps:
        return _Gap(0.0)
    worst = max(gaps, key=lambda g: (bool(g.reason), g.error))
    return _Gap(worst.error, worst.reason)


def _float_gap(a: Array, b: Array) -> _Gap:
    if a.dtype.kind == "V" or a.dtype == np.float16:
        a, b = a.astype(np.float32), b.astype(np.float32)
    odd = ~(np.isfinite(a) & np.isfinite(b))
    if odd.any():
        wrong = odd & ~((a == b) | (np.isnan(a) & np.isnan(b)))
        if wrong.any():
            return _Gap(np.inf, f"NaN or Inf differ in {int(np.count_nonzero(wrong))} of {a.size} elements", wrong)
        a, b = np.where(odd, 0, a), np.where(odd, 0, b)
    with np.errstate(over="ignore"):
        gap, scale = float(np.abs(a - b).max()), float(np.abs(a).max())
    if gap == 0.0:
        return _Gap(0.0)
    if not scale:  # an output that is zero everywhere has no scale: the floor of zero channels counts
        return _Gap(0.0 if gap <= _FLOOR else np.inf)
    return _Gap(gap / scale)
