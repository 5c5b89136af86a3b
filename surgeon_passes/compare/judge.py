"""Whether a tensor drifts: its error per channel, beyond a tolerance that its type allows, and beyond what rounding does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from surgeon_passes.region import Exactness, Tolerances
from surgeon_passes.runtime import Array, Value
from surgeon_passes.verify.compare import Difference, beyond_noise, compare, is_float

_LIMITS = Tolerances()
TOLERANCE = _LIMITS.end


@dataclass(frozen=True, slots=True)
class Gap:
    """``error``: the largest |a - b| of a channel over that channel's scale in A, as in :mod:`surgeon_passes.verify.compare`;
    Inf where shape, kind, NaN, or an element that is no float differs. ``reason``: "" within the tolerance."""

    error: float = 0.0
    reason: str = ""


def bound_of(a: Value, b: Value, tolerance: float) -> float:
    """``tolerance``, or what the coarser type of the two can tell."""
    return max([tolerance, *(_LIMITS.step_of(x.dtype.name) for x in (a, b) if isinstance(x, np.ndarray))])


def gap_of(a: Sequence[Value], b: Sequence[Value], tolerance: float) -> Gap:
    """The worst of all runs. Floats of two types are compared in float64."""
    worst = Gap()
    for x, y in zip(a, b, strict=True):
        found = _difference(x, y, bound_of(x, y, tolerance))
        if (bool(found.reason), found.error) > (bool(worst.reason), worst.error):
            worst = Gap(found.error, found.reason)
    return worst


def _difference(a: Value, b: Value, bound: float) -> Difference:
    a, b = _alike(a, b)
    return compare(a, b, Exactness.ROUNDING, bound, _LIMITS.absolute)


def _alike(a: Value, b: Value) -> tuple[Value, Value]:
    both = isinstance(a, np.ndarray) and isinstance(b, np.ndarray)
    if both and a.dtype != b.dtype and is_float(a) and is_float(b) and "c" not in (a.dtype.kind, b.dtype.kind):
        return a.astype(np.float64), b.astype(np.float64)
    return a, b


def in_shape_of(a: Value, b: Value) -> Value:
    """``b`` in the shape of ``a`` where both are arrays of as many elements."""
    both = isinstance(a, np.ndarray) and isinstance(b, np.ndarray)
    return b.reshape(a.shape) if both and a.shape != b.shape and a.size == b.size else b


def explained(a: Value, b: Value, perturbed: Sequence[Value], tolerance: float) -> bool:
    """Whether ``b`` is off from ``a`` by no more than rounding does to it: floats within four times what the perturbed
    runs do; a shape where one of these changes it, too; anything else as :func:`_is_flipped` says."""
    bound = bound_of(a, b, tolerance)
    a, b = _alike(a, b)
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return False
    others = [p for p in perturbed if isinstance(p, np.ndarray)]
    if a.shape != b.shape:
        return any(p.shape != a.shape for p in others)
    if a.dtype != b.dtype:
        return False
    if not is_float(a):
        return _is_flipped(a, b, [p for p in others if p.shape == a.shape])
    if not _same_places(a, b):
        return any(p.shape == a.shape and not _same_places(a, p) for p in others)
    found, _ = beyond_noise(a, b, others, bound, _LIMITS.absolute, _LIMITS.noise_factor)
    return not found.reason


def _is_flipped(a: Array, b: Array, perturbed: Sequence[Array]) -> bool:
    """Whether rounding flips the elements that differ; quantised ones, whichever, by four times as much at most."""
    if a.dtype.itemsize == 1 and a.dtype.kind in "iu":
        noise = [np.abs(p.astype(np.int32) - a).max(initial=0) for p in perturbed]
        gap = np.abs(b.astype(np.int32) - a).max(initial=0)
        return bool(gap <= _LIMITS.noise_factor * max(noise, default=0))
    flipped = np.zeros(a.shape, bool)
    for p in perturbed:
        flipped |= np.asarray(p != a)
    return not bool(((b != a) & ~flipped).any())


def _same_places(a: Array, b: Array) -> bool:
    """Whether NaN and Inf stand at the same places of two arrays of one shape."""
    wide = [x.astype(np.float64) if x.dtype.kind != "c" else x for x in (a, b)]
    return bool(np.array_equal(np.isfinite(wide[0]), np.isfinite(wide[1])))
