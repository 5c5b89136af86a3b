"""Pads in front of what reads zeros beyond its input: they become its own pads."""

from __future__ import annotations

import numpy as np

from surgeon_passes import Decline, Match, Replacement, rule


@rule(
    pattern="""
        p = Pad(x, amounts: const, fill?: const, axes?: const)<mode="constant">
        y = Conv(p, w, b?)
    """,
    rewrite="y = Conv(x, w, b)<@y, pads=@pads, auto_pad=@auto_pad>",
    exactness="rounding",
    sets=("fusion",),
)
def fold_pad_into_conv(m: Match) -> Replacement:
    """Zeros that are padded in front of a Conv become its pads.

    Algebra
        a convolution reads zeros beyond its input: the pads add up

    Declines when
        the mode is another one, the value is not 0, batch or channels are padded, an amount is negative;
        the Conv's auto_pad is SAME (its pads depend on the padded size);
        the padded tensor is used elsewhere.

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
    return _absorb(m, m.w.rank)


@rule(
    pattern="""
        p = Pad(x, amounts: const, fill?: const, axes?: const)<mode="constant">
        y = AveragePool(p)<count_include_pad=1, ceil_mode=0>
    """,
    rewrite="y = AveragePool(x)<@y, pads=@pads, auto_pad=@auto_pad>",
    exactness="rounding",
    sets=("fusion",),
)
def fold_pad_into_average_pool(m: Match) -> Replacement:
    """Zeros that are padded in front of an AveragePool that counts its pads become its pads.

    Algebra
        with count_include_pad = 1 a pad is a zero that counts, as a padded zero does

    Declines when
        the mode is another one, the value is not 0, batch or channels are padded, an amount is negative;
        auto_pad is SAME, the output size is rounded up, or the pads would reach the kernel's size;
        the padded tensor is used elsewhere.

    Example
        before:
            g (float[1,1,H] x) => (float[1,1,H2] y) {
                amounts = Constant<value = int64[6] {0, 0, 1, 0, 0, 1}>()
                p = Pad(x, amounts)
                y = AveragePool<kernel_shape = [3], count_include_pad = 1>(p)
            }
        after:
            g (float[1,1,H] x) => (float[1,1,H2] y) {
                y = AveragePool<kernel_shape = [3], count_include_pad = 1, pads = [1, 1]>(x)
            }
    """
    kernel = m.y.attr("kernel_shape")
    found = _absorb(m, len(kernel) + 2)
    if any(pad >= size for pad, size in zip(found.values["pads"], (*kernel, *kernel), strict=True)):
        raise Decline(f"pads {found.values['pads']} reach the size of the kernel {list(kernel)}")
    return found


def _absorb(m: Match, rank: int | None) -> Replacement:
    """The pads of ``y`` with those of the Pad in front of it."""
    if rank is None:
        raise Decline("the rank is unknown")
    if m.y.attr("auto_pad") not in ("NOTSET", "VALID"):
        raise Decline(f"auto_pad is {m.y.attr('auto_pad')}")
    if m.fill is not None and np.asarray(m.fill.value).any():
        raise Decline(f"it pads with {m.fill.value}")
    before, after = _amounts(m, rank)
    spatial = rank - 2
    held = (0,) * (2 * spatial) if m.y.attr("auto_pad") == "VALID" else m.y.attr("pads")
    added = (*before[2:], *after[2:])
    return Replacement(pads=[int(a + b) for a, b in zip(held, added, strict=True)], auto_pad=None)


def _amounts(m: Match, rank: int) -> tuple[list[int], list[int]]:
    """(before, after) by axis. Raises Decline where batch or channels are padded, or something is cropped."""
    amounts = [int(v) for v in m.amounts.value.ravel()]
    half = len(amounts) // 2
    axes = [int(a) % rank for a in m.axes.value.ravel()] if m.axes is not None else list(range(half))
    before, after = [0] * rank, [0] * rank
    for place, axis in enumerate(axes):
        before[axis], after[axis] = amounts[place], amounts[half + place]
    if any(before[:2]) or any(after[:2]):
        raise Decline("it pads batch or channels")
    if min(amounts, default=0) < 0:
        raise Decline("it crops")
    return before, after
