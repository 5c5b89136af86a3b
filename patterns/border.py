"""A border that is written around a convolution: what its own padding would give there."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from surgeon_passes import Decline, Match, Operand, Replacement, rule

from ._arrays import Floats, finite
from ._dims import ints

MAX_ELEMENTS = 1 << 26
"""Elements of a padded tensor up to which its border is looked at."""
STEPS = 12
"""Nodes after the Pad that the pattern has lines for: in 3-D two writes on each axis, between two Transposes."""
ULPS = 4
"""Roundings, in ulp of a channel's magnitude, by which a written border may differ from the bias it was computed as."""


def _is_last(y: Operand) -> bool:
    """Whether the chain ends here: a longer one is tried at its own last node."""
    readers = y.consumers
    return y.is_shared or len(readers) != 1 or readers[0].op not in ("ScatterND", "Transpose")


@rule(
    pattern="""
        c = Conv(x, w: const, b: const)
        p = Pad(c, amounts: const, fill?, axes?)
        s1 = ScatterND(p, i1: const, u1: const) | Transpose(p) | p
        s2 = ScatterND(s1, i2: const, u2: const) | Transpose(s1) | s1
        s3 = ScatterND(s2, i3: const, u3: const) | Transpose(s2) | s2
        s4 = ScatterND(s3, i4: const, u4: const) | Transpose(s3) | s3
        s5 = ScatterND(s4, i5: const, u5: const) | Transpose(s4) | s4
        s6 = ScatterND(s5, i6: const, u6: const) | Transpose(s5) | s5
        s7 = ScatterND(s6, i7: const, u7: const) | Transpose(s6) | s6
        s8 = ScatterND(s7, i8: const, u8: const) | Transpose(s7) | s7
        s9 = ScatterND(s8, i9: const, u9: const) | Transpose(s8) | s8
        s10 = ScatterND(s9, i10: const, u10: const) | Transpose(s9) | s9
        s11 = ScatterND(s10, i11: const, u11: const) | Transpose(s10) | s10
        y = ScatterND(s11, i12: const, u12: const) | Transpose(s11)
    """,
    rewrite="y = Conv(x, w, b)<@c, pads=@Pads, auto_pad=@Mode>",
    exactness="rounding",
    sets=("reparam",),
    may_grow=True,
    guard=_is_last,
)
def pad_conv_instead_of_border(m: Match) -> Replacement:
    """A 1x1 Conv whose result gets a border that holds the bias (as DBB, ECB pad) is the Conv with padding.

    Algebra
        outside the input a padded Conv reads zeros, so that a kernel of one tap gives exactly its bias there, at any stride
        s, where the input is padded by s times the border (a few more places to compute, and no data to move). What is
        written is found by doing it to element numbers: every place of the border must get the bias of its channel, to
        rounding, and every inner element must stay in its place.

    Declines when
        the kernel has more than one tap on some axis, or auto_pad is used;
        the padding is not constant, crops, or pads batch or channels;
        a size is not known, an index is written twice or added to, or names no axis;
        an inner element is written or moved, or some place of the border is not the bias of its channel.

    Example
        before:
            g (float[1,1,2] x) => (float[1,1,4] y) {
                w = Constant<value = float[1,1,1] {2.0}>()
                b = Constant<value = float[1] {5.0}>()
                c = Conv(x, w, b)
                amounts = Constant<value = int64[6] {0, 0, 1, 0, 0, 1}>()
                p = Pad(c, amounts)
                left = Constant<value = int64[1,3] {0, 0, 0}>()
                right = Constant<value = int64[1,3] {0, 0, 3}>()
                v = Constant<value = float[1] {5.0}>()
                s = ScatterND(p, left, v)
                y = ScatterND(s, right, v)
            }
        after:
            g (float[1,1,2] x) => (float[1,1,4] y) {
                w = Constant<value = float[1,1,1] {2.0}>()
                b = Constant<value = float[1] {5.0}>()
                y = Conv<pads = [1, 1]>(x, w, b)
            }
    """
    if not _is_last(m.y):
        raise Decline(final=True)
    try:
        return _padded(m, _steps(m))
    except Decline as reason:  # every reading is of the same chain
        raise Decline(str(reason), final=True) from None


def _padded(m: Match, steps: list[Operand]) -> Replacement:
    """The Conv's new pads. Raises Decline."""
    weight, bias = finite(m.w), finite(m.b)
    if prod(weight.shape[2:]) != 1:
        raise Decline(
            f"the kernel {list(weight.shape[2:])} of '{m.c.name}' reads the input beside the border's edge, too"
        )
    if m.c.attr("auto_pad") not in ("NOTSET", "VALID"):
        raise Decline("its pads are automatic")
    begins, ends = _amounts(m)
    values, inner = _replay(m, steps, begins, ends)
    _require_bias(values, inner, weight, bias, m)
    return Replacement(Pads=_pads(m, begins[2:], ends[2:]), Mode=None)


def _amounts(m: Match) -> tuple[list[int], list[int]]:
    """What the Pad adds before and after each axis. Raises Decline where it is no border of spatial axes."""
    rank = m.w.rank
    if m.p.attr("mode") != "constant":
        raise Decline(f"'{m.p.name}' pads in mode {m.p.attr('mode')}")
    axes = list(range(rank)) if m.axes is None else [a % rank for a in _known(m.axes)]
    given = ints(m.amounts)
    begins, ends = [0] * rank, [0] * rank
    for place, axis in enumerate(axes):
        begins[axis], ends[axis] = given[place], given[len(axes) + place]
    if any(begins[:2] + ends[:2]) or min(begins + ends) < 0:
        raise Decline(f"'{m.p.name}' pads batch or channels, or crops")
    return begins, ends


def _known(operand: Operand) -> list[int]:
    if not isinstance(operand.value, np.ndarray):
        raise Decline(f"'{operand.name}' is not constant")
    return ints(operand)


def _replay(m: Match, steps: list[Operand], begins: list[int], ends: list[int]) -> tuple[Floats, Any]:
    """The chain done to numbers: what is written, NaN where the Conv's elements stand, and the slices where they stand."""
    shape = m.c.shape
    if shape is None or not all(isinstance(d, int) for d in shape):
        raise Decline(f"the size of '{m.c.name}' is not known")
    padded = tuple(b + n + e for b, n, e in zip(begins, shape, ends, strict=True))
    if prod(padded) > MAX_ELEMENTS:
        raise Decline(f"'{m.p.name}' is too large to look at its border")
    inside = tuple(slice(b, b + n) for b, n in zip(begins, shape, strict=True))
    values, places = np.full(padded, _fill(m)), np.full(padded, -1)
    values[inside] = np.nan
    places[inside] = np.arange(prod(shape)).reshape(shape)
    for step in steps:
        if step.op == "Transpose":
            perm = step.attr("perm")
            values, places = values.transpose(perm), places.transpose(perm)
        else:
            values, places = _write(step, values, places)
    if places.shape != padded or not np.array_equal(places[inside].ravel(), np.arange(prod(shape))):
        raise Decline(f"elements of '{m.c.name}' are overwritten or moved")
    return values, inside


def _fill(m: Match) -> float:
    if m.fill is None:
        return 0.0
    if not isinstance(m.fill.value, np.ndarray):
        raise Decline(f"'{m.fill.name}' is not constant")
    return float(m.fill.value.ravel()[0])


def _steps(m: Match) -> list[Operand]:
    """What is made after the Pad, in the order in which they run. Raises Decline for a reading that leaves gaps.

    The pattern can spread a short chain over its lines in many ways; one, which it finds first, is enough.
    """
    chain = [getattr(m, name) for name in ("p", *(f"s{i}" for i in range(1, STEPS)), "y")]
    moves = [after.tensor is not before.tensor for before, after in pairwise(chain)]
    if moves != sorted(moves):
        raise Decline
    return [after for after, moved in zip(chain[1:], moves, strict=True) if moved]


def _write(step: Operand, values: Floats, places: Any) -> tuple[Floats, Any]:
    """A ScatterND done to both arrays."""
    if step.attr("reduction") not in (None, "none"):
        raise Decline(f"'{step.name}' adds to what it writes over")
    indices, updates = (np.asarray(t.value) for t in step.operands[1:3] if t is not None)
    depth = indices.shape[-1]
    if not depth:
        raise Decline(f"'{step.name}' writes over all of its data")
    bounds = np.array(values.shape[:depth])
    if (indices < -bounds).any() or (indices >= bounds).any():
        raise Decline(f"'{step.name}' writes outside its data")
    rows = (indices % bounds).reshape(-1, depth)
    if len(np.unique(rows, axis=0)) != len(rows):
        raise Decline(f"'{step.name}' writes a place twice")
    where = tuple(rows.T)
    values, places = values.copy(), places.copy()
    values[where] = np.asarray(updates, np.float64).reshape(len(rows), *values.shape[depth:])
    places[where] = -1
    return values, places


def _require_bias(values: Floats, inside: Any, weight: Floats, bias: Floats, m: Match) -> None:
    """That every written value is the bias of its channel, to rounding."""
    border = np.ones(values.shape, bool)
    border[inside] = False
    dtype = m.b.value.dtype
    epsilon = float(np.finfo(dtype).eps) if dtype.kind == "f" else 2.0**-7
    magnitude = np.abs(bias) + np.sqrt((weight.reshape(len(bias), -1) ** 2).sum(1))
    along = (1, -1, *[1] * (values.ndim - 2))
    wrong = border & ~(np.abs(values - bias.reshape(along)) <= ULPS * epsilon * magnitude.reshape(along))
    if wrong.any():
        place = np.argwhere(wrong)[0]
        held = bias[place[1]]
        raise Decline(
            f"the border of '{m.y.name}' holds {values[tuple(place)]:.6g} where padding '{m.c.name}' would give "
            f"{held:.6g} (channel {place[1]})"
        )


def _pads(m: Match, begins: list[int], ends: list[int]) -> list[int]:
    strides = m.c.attr("strides")
    border = [n * s for n, s in zip((*begins, *ends), (*strides, *strides), strict=True)]
    return [p + b for p, b in zip(m.c.attr("pads"), border, strict=True)]
