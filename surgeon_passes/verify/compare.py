"""How far two values are apart.

Floats are measured per output channel (axis 1 from rank 2 on unless told otherwise, else the whole tensor): the largest
|a - b| of a channel over that channel's scale. The scale is max |a| of the channel in this run, but

* at most ten times its spread (max - min): a huge bias must not hide an error in a tiny signal;
* in channels of fewer than 16 elements at least a tenth of the median channel's: one element that happens to be near
  zero says nothing about its channel.

The last bits of max |a| count as no difference. What exceeds a bound there may still be rounding (a sum that cancels):
:func:`beyond_noise` decides, with what the original does when its inputs and constants move by one ulp.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surgeon_passes.region import Exactness
from surgeon_passes.runtime import Array, Value

_FEW = 16
_SPREADS = 10.0
_NEAR_ZERO = 0.1
_TINY = np.float32(1e-30)
_SMALL = 1 << 14
"""Elements up to which arrays are compared together with others of their shape."""
MANY = 8
"""Arrays of a shape from which that pays."""


@dataclass(frozen=True, slots=True)
class Difference:
    """``error`` is relative to the channel's scale; ``reason`` is "" where the values agree.

    ``rounding``: the reason is the size of the error alone, so that noise may explain it.
    """

    error: float = 0.0
    reason: str = ""
    rounding: bool = False


def is_float(array: Array) -> bool:
    """Whether elements are floating point, the types of ml_dtypes (bfloat16, float8) included."""
    return array.dtype.kind in "fc" or (array.dtype.kind == "V" and "float" in array.dtype.name)


def compare(a: Value, b: Value, exactness: Exactness, bound: float, absolute: float, axis: int = 1) -> Difference:
    """``b`` against ``a``, the original. ``bound`` is relative to a channel's scale; unused where ``exactness`` is EXACT.

    ``axis`` is where channels lie from rank 2 on.
    """
    if isinstance(a, (list, tuple)) or isinstance(b, (list, tuple)):
        return _compare_sequences(a, b, exactness, bound, absolute, axis)
    if a is None or b is None:
        return Difference() if a is b else Difference(np.inf, "one side is an empty optional")
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype:
        return Difference(np.inf, f"dtype {b.dtype} instead of {a.dtype}")
    if a.shape != b.shape:
        return Difference(np.inf, f"shape {list(b.shape)} instead of {list(a.shape)}")
    if a.size == 0:
        return Difference()
    if not is_float(a):
        return _compare_discrete(a, b)
    if exactness is Exactness.EXACT:
        return _compare_bits(a, b)
    return _compare_floats(a, b, bound, absolute, axis)


def _compare_sequences(
    a: Value, b: Value, exactness: Exactness, bound: float, absolute: float, axis: int
) -> Difference:
    if not (isinstance(a, (list, tuple)) and isinstance(b, (list, tuple))):
        return Difference(np.inf, "a sequence on one side, a tensor on the other")
    if len(a) != len(b):
        return Difference(np.inf, f"{len(b)} elements instead of {len(a)} in a sequence")
    worst = Difference()
    for x, y in zip(a, b, strict=True):
        if isinstance(x, dict):
            found = Difference() if x == y else Difference(np.inf, "maps differ")
        else:
            found = compare(x, y, exactness, bound, absolute, axis)
        if (found.reason and (not found.rounding or not worst.reason)) or (
            not worst.reason and found.error > worst.error
        ):
            worst = found
        if worst.reason and not worst.rounding:
            return worst
    return worst


def _compare_discrete(a: Array, b: Array) -> Difference:
    wrong = a != b
    count = int(np.count_nonzero(wrong))
    if not count:
        return Difference()
    where = np.unravel_index(int(np.argmax(wrong)), a.shape)
    return Difference(np.inf, f"{count} of {a.size} elements differ: {b[where]} instead of {a[where]} at {_at(where)}")


def _at(where: Sequence[Any]) -> str:
    return str([int(i) for i in where])


def _compare_bits(a: Array, b: Array) -> Difference:
    kind = np.dtype(f"u{a.dtype.itemsize}") if a.dtype.itemsize <= 8 else np.dtype(np.uint8)
    x, y = np.ascontiguousarray(a), np.ascontiguousarray(b)
    if np.array_equal(x.reshape(-1).view(kind), y.reshape(-1).view(kind)):
        return Difference()
    wide_a, wide_b = _wide(a), _wide(b)
    same = (wide_a == wide_b) & (np.signbit(wide_a.real) == np.signbit(wide_b.real))
    wrong = ~(same | (np.isnan(wide_a) & np.isnan(wide_b)))
    count = int(np.count_nonzero(wrong))
    if not count:
        return Difference()
    where = np.unravel_index(int(np.argmax(wrong)), a.shape)
    text = f"{count} of {a.size} elements are not bit-equal: {b[where]} instead of {a[where]} at {_at(where)}"
    gap, scale, _ = channel_gaps(*((a, b) if a.dtype in (np.float32, np.float64) else (_plain(a), _plain(b))))
    return Difference(_worst(gap, scale, 0.0)[0], text)


def _wide(array: Array) -> Array:
    """float64, or complex128: exact for every smaller float type."""
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    return array if array.dtype == np.float64 else array.astype(np.float64)


def _nonfinite(a: Array, b: Array) -> str:
    """ "" where NaN and Inf (with its sign) stand at the same places."""
    nan_a, nan_b = np.isnan(a), np.isnan(b)
    if not np.array_equal(nan_a, nan_b):
        where = np.unravel_index(int(np.argmax(nan_a != nan_b)), a.shape)
        return f"NaN on one side only: {b[where]} instead of {a[where]} at {_at(where)}"
    inf = np.isinf(a) | np.isinf(b)
    wrong = inf & (a != b)
    if wrong.any():
        where = np.unravel_index(int(np.argmax(wrong)), a.shape)
        return f"Inf on one side only: {b[where]} instead of {a[where]} at {_at(where)}"
    return ""


def _finite(a: Array, b: Array) -> tuple[Array, Array]:
    """Float views of ``a`` and ``b`` in which places where either is not finite are 0."""
    good = np.isfinite(a) & np.isfinite(b)
    return (a, b) if good.all() else (np.where(good, a, 0), np.where(good, b, 0))


def _axes(rank: int, axis: int) -> tuple[int, ...]:
    """All axes but the one of the channels."""
    return tuple(k for k in range(rank) if rank < 2 or k != axis % rank)


def channel_gaps(a: Array, b: Array, axis: int = 1) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """(largest |a - b|, scale, largest |a|) of every channel of two arrays of one shape, as 1-D float arrays.

    Places where either is not finite count as equal.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        found = _gaps(a[np.newaxis], b[np.newaxis], axis)
        if not np.isfinite(found[0]).all():
            a, b = _finite(a, b)
            found = _gaps(a[np.newaxis], b[np.newaxis], axis)
    return found[0][0], found[1][0], found[2][0]


def _gaps(a: Array, b: Array, axis: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """As :func:`channel_gaps` of many pairs of one shape, stacked: three arrays [pairs, channels], NaN where either is
    not finite."""
    axes = tuple(k + 1 for k in _axes(a.ndim - 1, axis))
    gap = np.maximum.reduce(np.abs(a - b), axis=axes)
    high, low = np.maximum.reduce(a, axis=axes), np.minimum.reduce(a, axis=axes)
    if gap.ndim == 1:
        gap, high, low = gap[:, np.newaxis], high[:, np.newaxis], low[:, np.newaxis]
    top = np.maximum(high, -low)
    if a.size < _FEW * gap.size:
        # of a part, not part of it: the median adds two channels, and two at the end of the range are infinite
        least = np.median(_NEAR_ZERO * top, axis=1, keepdims=True) if gap.shape[1] >= 4 else 0
        scale = np.maximum(top, least)
    else:
        spread = high - low
        scale = np.where(spread > 0, np.minimum(top, _SPREADS * spread), top)
    return gap, scale, top


def mean_gap(a: Value, b: Value) -> float | None:
    """Mean |a - b| over max |a|, of float tensors of one shape; None for anything else, and where max |a| is 0.

    Places where either is not finite count as equal.
    """
    if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)) or a.shape != b.shape or not a.size:
        return None
    if not is_float(a) or a.dtype != b.dtype:
        return None
    if a.dtype.kind != "f" or a.dtype == np.float16:
        a, b = _plain(a), _plain(b)
    with np.errstate(over="ignore", invalid="ignore"):
        a, b = _finite(a, b)
        top, mean = float(np.max(np.abs(a))), float(np.mean(np.abs(a - b), dtype=np.float64))
    return mean / top if top else None


def _worst(gap: NDArray[Any], scale: NDArray[Any], allowed: NDArray[Any] | float) -> tuple[float, int]:
    """(largest relative error, its channel); a gap up to ``allowed`` counts as none."""
    counted = np.where(gap > allowed, gap.astype(np.float64), 0.0)
    ratio = np.divide(counted, scale, out=np.where(counted > 0, np.inf, 0.0), where=scale > 0)
    channel = int(np.argmax(ratio))
    return float(ratio[channel]), channel


def _compare_floats(a: Array, b: Array, bound: float, absolute: float, axis: int) -> Difference:
    if a.dtype.kind != "f" or a.dtype == np.float16:
        a, b = _plain(a), _plain(b)
    with np.errstate(over="ignore", invalid="ignore"):
        gap, scale, top = (part[0] for part in _gaps(a[np.newaxis], b[np.newaxis], axis))
        if not np.isfinite(gap).all():
            reason = _nonfinite(a, b)
            if reason:
                return Difference(np.inf, reason)
            gap, scale, top = channel_gaps(a, b, axis)
        (found,) = _within(gap[np.newaxis], scale[np.newaxis], [bound])
    return found or _judged(gap, scale, top, bound, absolute, a)


def _within(gap: NDArray[Any], scale: NDArray[Any], bounds: Sequence[float]) -> list[Difference | None]:
    """Of each pair, the error where that is within the pair's bound in every channel; None where it is not."""
    finite = np.isfinite(gap)
    within = (finite & (gap <= np.asarray(bounds, np.float64)[:, np.newaxis] * scale)).all(axis=1)
    errors = (np.where(finite, gap, 0) / np.maximum(scale, _TINY)).max(axis=1)
    return [Difference(e) if fits else None for e, fits in zip(errors.tolist(), within.tolist(), strict=True)]


class Pair(NamedTuple):
    """What :func:`compare` is asked, less the absolute tolerance."""

    a: Value
    b: Value
    exactness: Exactness
    bound: float
    axis: int


def agreements(pairs: Sequence[Pair]) -> list[Difference | None]:
    """What :func:`compare` says of each pair, where it is one of many of one shape and agrees within its bound; None of
    all others. Many small arrays are compared much faster together than one by one."""
    found: list[Difference | None] = [None] * len(pairs)
    groups: dict[Hashable, list[int]] = {}
    for number, pair in enumerate(pairs):
        a, b = pair.a, pair.b
        if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)) or a.shape != b.shape or a.dtype != b.dtype:
            continue
        if a.dtype.kind in "biuf" and 0 < a.size <= _SMALL:
            key = (a.shape, a.dtype, pair.exactness is Exactness.EXACT, pair.axis)
            groups.setdefault(key, []).append(number)
    for numbers in groups.values():
        if len(numbers) >= MANY:
            together = _compare_many([pairs[k] for k in numbers])
            for number, difference in zip(numbers, together, strict=True):
                found[number] = difference
    return found


def _compare_many(pairs: Sequence[Pair]) -> list[Difference | None]:
    """:func:`agreements` of pairs of one shape and type."""
    a, b = np.stack([pair.a for pair in pairs]), np.stack([pair.b for pair in pairs])
    if not is_float(a) or pairs[0].exactness is Exactness.EXACT:
        bits = np.dtype(f"u{a.dtype.itemsize}")
        flat = [x.reshape(len(pairs), -1).view(bits) for x in (a, b)]
        return [Difference() if same else None for same in (flat[0] == flat[1]).all(axis=1)]
    if a.dtype == np.float16:
        a, b = _plain(a), _plain(b)
    with np.errstate(over="ignore", invalid="ignore"):
        gap, scale, _ = _gaps(a, b, pairs[0].axis)
        return _within(gap, scale, [pair.bound for pair in pairs])


def _judged(
    gap: NDArray[Any], scale: NDArray[Any], top: NDArray[Any], bound: float, absolute: float, a: Array
) -> Difference:
    unseen = np.maximum(_last_bits(a, top), absolute)
    error, channel = _worst(gap, scale, unseen)
    if error <= bound:
        return Difference(max(error, min(bound, _worst(gap, top, absolute)[0])))
    place = f" in channel {channel}" if a.ndim >= 2 else ""
    return Difference(error, f"error {error:.1e} of the scale{place}; the bound is {bound:.1e}", True)


def _plain(array: Array) -> Array:
    """float32 in place of the smaller types, parts in place of complex numbers (a view)."""
    return array.view(array.real.dtype) if array.dtype.kind == "c" else array.astype(np.float32)


def _last_bits(a: Array, top: NDArray[Any]) -> NDArray[Any]:
    """What the last bits of a channel's largest value amount to: no difference can be seen below."""
    return np.asarray(top * (2 * np.finfo(a.real.dtype).eps))


def beyond_noise(
    a: Array,
    b: Array,
    perturbed: Sequence[Array],
    bound: float,
    absolute: float,
    factor: float,
    axis: int = 1,
    usual: Array | None = None,
    resolution: float = 0.0,
) -> tuple[Difference, float]:
    """``b`` against ``a`` where a channel may be off by ``factor`` times what moving inputs by one ulp does to it.

    ``usual`` is this output on ordinary inputs: a channel's scale is at least what it is there, so that a channel that
    nearly cancels on zeros is not measured against what is left of it. ``resolution`` is the relative step of the type
    that the output is stored in, where that is coarser than the arrays'.

    Returns what remains and the noise relative to max |a| of a channel. An error that noise explains is given as the
    share of the bound that it uses up.
    """
    if a.dtype.kind != "f" or a.dtype == np.float16:
        a, b = _plain(a), _plain(b)
    gap, scale, top = channel_gaps(a, b, axis)
    if usual is not None:
        usual = usual if usual.dtype in (np.float32, np.float64) else _plain(usual)
        least = channel_gaps(usual, usual, axis)[1]
        scale = np.maximum(scale, least) if least.shape == scale.shape else scale
    shaped = [p.astype(a.dtype) for p in perturbed if p.shape == a.shape]
    noise = np.max([channel_gaps(a, p, axis)[0] for p in shaped], axis=0) if shaped else np.zeros_like(gap)
    if a.size < _FEW * gap.size:
        noise = np.maximum(noise, 2 * np.median(noise / 2))  # two halves: the sum of two stays within the range
    unseen = np.maximum(_last_bits(a, top), resolution * top)
    allowed = np.maximum.reduce([bound * scale, factor * noise, unseen, np.full_like(gap, absolute)])
    over, channel = _worst(gap, scale, allowed)
    if over == 0.0:
        used = np.divide(gap, allowed, out=np.zeros_like(gap), where=allowed > 0)
        return Difference(bound * float(used.max())), _worst(noise, top, absolute)[0]
    place = f" in channel {channel}" if a.ndim >= 2 else ""
    level = factor * float(noise[channel] / scale[channel]) if scale[channel] > 0 else 0.0
    text = f"error {over:.1e} of the scale{place}; the bound is {bound:.1e}, rounding explains {level:.1e}"
    return Difference(over, text, True), level
