"""Slice: chains become one, what takes everything goes. All bit-exact."""

from __future__ import annotations

import numpy as np

from surgeon_passes import Decline, Match, Operand, Replacement, rule

from ._dims import FAR, INT64_MAX, ints


@rule(
    pattern="y = Slice(x, starts: const, ends: const, axes?: const, steps?: const)",
    rewrite="y = x",
    exactness="exact",
    sets=("cleanup",),
)
def drop_full_slice(m: Match) -> Replacement:
    """A Slice that takes everything goes.

    Algebra
        start 0, step 1 and an end at or behind the dim take the whole axis

    Declines when
        a step is not 1, a start is not the first element, or an end is not known to be at or behind the last.

    Example
        before:
            g (float[N,2] x) => (float[N,2] y) {
                starts = Constant<value = int64[2] {0, 0}>()
                ends = Constant<value = int64[2] {9223372036854775807, 2}>()
                a = Slice(x, starts, ends)
                y = Relu(a)
            }
        after:
            g (float[N,2] x) => (float[N,2] y) {
                y = Relu(x)
            }
    """
    starts, ends = ints(m.starts), ints(m.ends)
    axes = ints(m.axes) if m.axes is not None else list(range(len(starts)))
    steps = ints(m.steps) if m.steps is not None else [1] * len(starts)
    if any(step != 1 for step in steps):
        raise Decline
    for axis, start, end in zip(axes, starts, ends, strict=True):
        size = _size(m.x, axis)
        if not (start == 0 or start <= -FAR or (size is not None and start <= -size)):
            raise Decline
        if not (end >= FAR or (size is not None and end >= size)):
            raise Decline
    return Replacement()


def _size(x: Operand, axis: int) -> int | None:
    shape = x.shape
    if shape is None or not -len(shape) <= axis < len(shape):
        return None
    return shape[axis] if isinstance(shape[axis], int) else None


@rule(
    pattern="""
        a = Slice(x, starts1: const, ends1: const, axes1?: const, steps1?: const)
        y = Slice(a, starts2: const, ends2: const, axes2?: const, steps2?: const)
    """,
    rewrite="y = Slice(x, Starts, Ends, Axes, Steps)",
    exactness="exact",
    sets=("shape",),
    tag="merged",
)
def merge_slices(m: Match) -> Replacement:
    """A Slice of a Slice is one Slice.

    Algebra
        different axes do not meet; on one axis, with starts and ends counted from the front and positive steps p and q,
        start = s1 + p·s2, end = min(e1, s1 + p·e2), step = p·q

    Declines when
        on one axis a step is negative, or a start or end counts from the back of a dim that is not known;
        an axis counts from the back and the rank is unknown;
        the intermediate is used elsewhere.

    Example
        before:
            g (float[N,9] x) => (float[N2,M] y) {
                one = Constant<value = int64[1] {1}>()
                two = Constant<value = int64[1] {2}>()
                three = Constant<value = int64[1] {3}>()
                eight = Constant<value = int64[1] {8}>()
                a = Slice(x, one, eight, one, two)
                y = Slice(a, one, three, one)
            }
        after:
            g (float[N,9] x) => (float[N2,M] y) {
                starts = Constant<value = int64[1] {3}>()
                ends = Constant<value = int64[1] {7}>()
                axes = Constant<value = int64[1] {1}>()
                steps = Constant<value = int64[1] {2}>()
                y = Slice(x, starts, ends, axes, steps)
            }
    """
    first = _cuts(m.starts1, m.ends1, m.axes1, m.steps1, m.x.rank)
    second = _cuts(m.starts2, m.ends2, m.axes2, m.steps2, m.x.rank)
    merged = dict(first)
    for axis, cut in second.items():
        merged[axis] = (
            _after(_from_front(first[axis], m.x, axis), _from_front(cut, m.a, axis)) if axis in first else cut
        )
    axes = sorted(merged)
    starts, ends, steps = np.array([merged[a] for a in axes], np.int64).T
    return Replacement(Starts=starts, Ends=ends, Axes=np.array(axes, np.int64), Steps=steps)


Cut = tuple[int, int, int]
"""start, end, step"""


def _cuts(
    starts: Operand, ends: Operand, axes: Operand | None, steps: Operand | None, rank: int | None
) -> dict[int, Cut]:
    """What a Slice does, by non-negative axis."""
    first, last = ints(starts), ints(ends)
    along = ints(axes) if axes is not None else list(range(len(first)))
    by = ints(steps) if steps is not None else [1] * len(first)
    if rank is None and any(a < 0 for a in along):
        raise Decline("an axis counts from the back and the rank is unknown")
    places = [a % rank if rank is not None else a for a in along]
    return dict(zip(places, zip(first, last, by, strict=True), strict=True))


def _from_front(cut: Cut, x: Operand, axis: int) -> Cut:
    """The same cut with start and end counted from the front. Raises Decline where that takes an unknown dim."""
    start, end, step = cut
    if step < 1:
        raise Decline(f"a step on axis {axis} is {step}")
    shape = x.shape
    size = shape[axis] if shape is not None else None
    if (start < 0 or end < 0) and not isinstance(size, int):
        raise Decline(f"it counts from the back of axis {axis}, whose size is not known")
    if isinstance(size, int):
        start = max(start + size, 0) if start < 0 else start
        end = max(end + size, 0) if end < 0 else end
    return start, end, step


def _after(first: Cut, second: Cut) -> Cut:
    """One cut for ``second`` of what ``first`` leaves."""
    start = first[0] + first[2] * second[0]
    end = min(first[1], first[0] + first[2] * second[1])
    return min(start, INT64_MAX), min(end, INT64_MAX), min(first[2] * second[2], INT64_MAX)
