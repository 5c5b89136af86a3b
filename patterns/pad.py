"""Pad: what pads by nothing goes; what pads with what the next operator pads with goes into its pads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from surgeon_passes import Decline, Match, Operand, Replacement, rule

from ._conditions import require_nonnegative
from ._dims import ints


@rule(
    pattern="y = Pad(x, amounts: const, fill?, axes?)",
    rewrite="y = x",
    exactness="exact",
    sets=("cleanup",),
)
def drop_zero_pad(m: Match) -> Replacement:
    """A Pad by nothing goes.

    Algebra
        no side gets or loses an element, in any mode

    Declines when
        some amount is not 0 (a negative one crops).

    Example
        before:
            g (float[N,2] x) => (float[N,2] y) {
                none = Constant<value = int64[4] {0, 0, 0, 0}>()
                a = Pad(x, none)
                y = Relu(a)
            }
        after:
            g (float[N,2] x) => (float[N,2] y) {
                y = Relu(x)
            }
    """
    if m.amounts.value.any():
        raise Decline
    return Replacement()


@rule(
    pattern="""
        a = Pad(x, amounts1: const, fill1?: const, axes1?: const)<mode=@mode>
        y = Pad(a, amounts2: const, fill2?: const, axes2?: const)<mode=@mode>
    """,
    rewrite="y = Pad(x, Amounts, fill1)<mode=@mode>",
    exactness="exact",
    sets=("shape",),
    recursive=True,
    tag="merged",
)
def merge_pads(m: Match) -> Replacement:
    """A Pad of a Pad in the same mode, with the same number, is one Pad.

    Algebra
        amounts add up side by side: each place outside gets the number, or the nearest element

    Declines when
        the mode is neither constant nor edge (a reflection of a reflection turns at other places);
        the numbers differ, a side is cropped, or axes are named and the rank is unknown;
        the inner result is used elsewhere.

    Example
        before:
            g (float[N,2] x) => (float[M,K] y) {
                rows = Constant<value = int64[4] {1, 0, 0, 0}>()
                columns = Constant<value = int64[4] {0, 0, 0, 2}>()
                a = Pad(x, rows)
                y = Pad(a, columns)
            }
        after:
            g (float[N,2] x) => (float[M,K] y) {
                both = Constant<value = int64[4] {1, 0, 0, 2}>()
                y = Pad<mode = "constant">(x, both)
            }
    """
    if m.attr("mode") not in ("constant", "edge"):
        raise Decline(f"the mode is {m.attr('mode')}")
    if m.attr("mode") == "constant" and _bits(m.fill1) != _bits(m.fill2):
        raise Decline("they pad with different numbers")
    first = _sides(m.amounts1, m.axes1, m.x.rank)
    second = _sides(m.amounts2, m.axes2, m.x.rank)
    if len(first) != len(second):
        raise Decline(f"the rank of '{m.x.name}' is unknown")
    return Replacement(Amounts=np.array(first) + np.array(second))


def _bits(fill: Operand | None) -> bytes:
    """The number that is padded, as bytes; a missing one is +0."""
    if fill is None or not np.asarray(fill.value).tobytes().strip(b"\0"):
        return b""
    return np.asarray(fill.value).tobytes()


def _sides(amounts: Operand, axes: Operand | None, rank: int | None) -> list[int]:
    """Amounts before each axis, then after each. Raises Decline where something is cropped or the rank is unknown."""
    given = ints(amounts)
    if min(given, default=0) < 0:
        raise Decline("it crops")
    if axes is None:
        return given
    if rank is None:
        raise Decline("axes are named, and the rank is unknown")
    half, sides = len(given) // 2, [0] * (2 * rank)
    for place, axis in enumerate(ints(axes)):
        sides[axis % rank], sides[rank + axis % rank] = given[place], given[half + place]
    return sides


# --- into the operator behind --------------------------------------------------------------------------------------------


@rule(
    pattern="""
        p = Pad(x, amounts: const, fill?: const, axes?: const)<mode=@mode>
        y = Conv(p, w, b?)
    """,
    rewrite="y = Conv(x, w, b)<@y, pads=@pads, auto_pad=@auto_pad>",
    exactness="rounding",
    sets=("fusion",),
    recursive=True,
)
def fold_pad_into_conv(m: Match) -> Replacement:
    """Zeros that are padded in front of a Conv become its pads.

    Algebra
        a convolution reads zeros beyond its input: the pads add up

    Declines when
        the mode is another one, the value is not 0, batch or channels are padded, an amount is negative;
        the Conv's auto_pad is SAME (its pads depend on the padded size);
        nothing is there but pads; the padded tensor is used elsewhere.

    Example
        before:
            g (float[1,1,H] x) => (float[1,1,H2] y) {
                w = Constant<value = float[1,1,3] {1.0, 2.0, 3.0}>()
                amounts = Constant<value = int64[6] {0, 0, 2, 0, 0, 1}>()
                p = Pad(x, amounts)
                y = Conv<pads = [1, 0]>(p, w)
            }
        after:
            g (float[1,1,H] x) => (float[1,1,H2] y) {
                w = Constant<value = float[1,1,3] {1.0, 2.0, 3.0}>()
                y = Conv<pads = [3, 1]>(x, w)
            }
    """
    _require_zeros(m)
    return Replacement(pads=_joined_pads(m, m.w.rank), auto_pad=None)


@rule(
    pattern="""
        p = Pad(x, amounts: const, fill?: const, axes?: const)<mode=@mode>
        y = AveragePool(p)
    """,
    rewrite="y = AveragePool(x)<@y, pads=@pads, auto_pad=@auto_pad, count_include_pad=1>",
    exactness="rounding",
    sets=("fusion",),
    opset=(7, None),
    recursive=True,
)
def fold_pad_into_average_pool(m: Match) -> Replacement:
    """Zeros that are padded in front of an AveragePool become its pads, which then count.

    Algebra
        with count_include_pad = 1 a pad is a zero that counts, as a padded zero does; without pads it says nothing

    Declines when
        the mode is another one, the value is not 0, batch or channels are padded, an amount is negative;
        the AveragePool has pads of its own that do not count, its auto_pad is SAME, the output size is rounded up, or the
        pads would reach the kernel's size;
        nothing is there but pads; the padded tensor is used elsewhere.

    Example
        before:
            g (float[1,1,H] x) => (float[1,1,H2] y) {
                amounts = Constant<value = int64[6] {0, 0, 1, 0, 0, 1}>()
                p = Pad(x, amounts)
                y = AveragePool<kernel_shape = [3]>(p)
            }
        after:
            g (float[1,1,H] x) => (float[1,1,H2] y) {
                y = AveragePool<kernel_shape = [3], count_include_pad = 1, pads = [1, 1]>(x)
            }
    """
    _require_zeros(m)
    if not m.y.attr("count_include_pad") and m.y.attr("auto_pad") == "NOTSET" and any(m.y.attr("pads")):
        raise Decline("the AveragePool's own pads do not count")
    return Replacement(pads=_pool_pads(m), auto_pad=None)


@rule(
    pattern="""
        p = Pad(x, amounts: const, fill: const, axes?: const)<mode=@mode>
        y = MaxPool(p)
    """,
    rewrite="y = MaxPool(x)<@y, pads=@pads, auto_pad=@auto_pad>",
    exactness="exact",
    sets=("fusion",),
    recursive=True,
)
def fold_pad_into_max_pool(m: Match) -> Replacement:
    """The lowest number, padded in front of a MaxPool, becomes its pads.

    Algebra
        a pad of a MaxPool is below every element: -infinity, or the lowest integer, changes no maximum

    Declines when
        the mode is another one, the number is not the lowest, batch or channels are padded, an amount is negative;
        auto_pad is SAME, the output size is rounded up, the kernel is dilated, or the pads would reach its size: a window
        might hold nothing but pads, or all of them would;
        the indices of the maxima, or the padded tensor, are used elsewhere.

    Example
        before:
            g (float[1,1,H] x) => (float[1,1,H2] y) {
                amounts = Constant<value = int64[6] {0, 0, 1, 0, 0, 1}>()
                low = Constant<value = float {-inf}>()
                p = Pad(x, amounts, low)
                y = MaxPool<kernel_shape = [3]>(p)
            }
        after:
            g (float[1,1,H] x) => (float[1,1,H2] y) {
                y = MaxPool<kernel_shape = [3], pads = [1, 1]>(x)
            }
    """
    _require_constant_mode(m)
    fill = np.asarray(m.fill.value)
    lowest = np.iinfo(fill.dtype).min if fill.dtype.kind in "iu" else -np.inf
    if not (fill == lowest).all():
        raise Decline(f"it pads with {fill}, which may be the largest number of a window")
    return Replacement(pads=_pool_pads(m), auto_pad=None)


@rule(
    pattern="""
        r = Relu|Sigmoid|HardSigmoid|Softmax|Abs(z)
        p = Pad(r, amounts: const, fill?: const, axes?: const)<mode=@mode>
        y = MaxPool(p)
    """,
    rewrite={
        "alone": "y = MaxPool(@r(z)<@r>)<@y, pads=@pads, auto_pad=@auto_pad>",
        "shared": """
            r = @r(z)<@r>
            y = MaxPool(r)<@y, pads=@pads, auto_pad=@auto_pad>
        """,
    },
    exactness="rounding",
    sets=("fusion",),
    recursive=True,
)
def fold_pad_into_max_pool_after_relu(m: Match) -> Replacement:
    """Zeros that are padded between an operator that is never negative and a MaxPool become the MaxPool's pads.

    Algebra
        no window's maximum is below 0, so that a zero changes none of them (a ResNet's stem, as TensorFlow writes it);
        where every element of a window is NaN, ONNX leaves the maximum open: ONNX Runtime passes over NaN, and gives the
        lowest number there instead of the padded zero

    Declines when
        the operator is Abs, and not known to be of floats or unsigned integers (the lowest integer has no absolute value);
        the mode is another one, the value is above 0, batch or channels are padded, an amount is negative;
        auto_pad is SAME, the output size is rounded up, the kernel is dilated, or the pads would reach its size;
        nothing is there but pads; the indices of the maxima, or the padded tensor, are used elsewhere.

    Example
        before:
            g (float[1,1,H] x) => (float[1,1,H2] y) {
                amounts = Constant<value = int64[6] {0, 0, 1, 0, 0, 1}>()
                r = Relu(x)
                p = Pad(r, amounts)
                y = MaxPool<kernel_shape = [3]>(p)
            }
        after:
            g (float[1,1,H] x) => (float[1,1,H2] y) {
                r = Relu(x)
                y = MaxPool<kernel_shape = [3], pads = [1, 1]>(r)
            }
    """
    require_nonnegative(m.r)
    _require_constant_mode(m)
    if m.fill is not None and not (np.asarray(m.fill.value) <= 0).all():
        raise Decline(f"it pads with {m.fill.value}, which may be the largest number of a window")
    return Replacement("shared" if m.r.is_shared else "alone", pads=_pool_pads(m), auto_pad=None)


def _require_constant_mode(m: Match) -> None:
    if m.attr("mode") != "constant":
        raise Decline(f"it pads by {m.attr('mode')}: the operator behind it cannot")


def _require_zeros(m: Match) -> None:
    _require_constant_mode(m)
    if m.fill is not None and np.asarray(m.fill.value).any():
        raise Decline(f"it pads with {m.fill.value}")


def _pool_pads(m: Match) -> list[int]:
    """The pads of a pool with those of the Pad in front of it. Raises Decline where a window might hold pads alone."""
    kernel: Sequence[int] = m.y.attr("kernel_shape")
    pads = _joined_pads(m, len(kernel) + 2)
    if m.y.attr("ceil_mode"):
        raise Decline("the output size is rounded up: windows that begin in the pads would be dropped")
    if any(step != 1 for step in m.y.attr("dilations") or ()):
        raise Decline("the kernel is dilated: a window may hold pads alone")
    if any(pad >= size for pad, size in zip(pads, (*kernel, *kernel), strict=True)):
        raise Decline(f"pads {pads} reach the size of the kernel {list(kernel)}")
    return pads


def _joined_pads(m: Match, rank: int | None) -> list[int]:
    """The pads of ``y``, of operands of ``rank``, with those of the Pad in front of it. Raises Decline."""
    if rank is None:
        raise Decline("the rank is unknown")
    auto: Any = m.y.attr("auto_pad")
    if auto not in ("NOTSET", "VALID"):
        raise Decline(f"auto_pad is {auto}")
    sides = _sides(m.amounts, m.axes, rank)
    before, after = sides[:rank], sides[rank:]
    if any(before[:2]) or any(after[:2]):
        raise Decline("it pads batch or channels")
    added = (*before[2:], *after[2:])
    padded = m.p.shape or ()
    if any(size == b + a for size, b, a in zip(padded[2:], before[2:], after[2:], strict=False)):
        raise Decline("there is nothing but pads: ONNX Runtime takes no window over no elements")
    held = (0,) * len(added) if auto == "VALID" else m.y.attr("pads")
    return [int(a + b) for a, b in zip(held, added, strict=True)]
