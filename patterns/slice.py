"""Slice: computed places become constant, chains become one, what takes everything goes. All bit-exact."""

from __future__ import annotations

from typing import Any

import numpy as np

from surgeon_passes import Decline, Match, Operand, Replacement, rule
from surgeon_passes.values import dims

from ._dims import FAR, INT64_MAX, entries, ints, is_open


def _may_begin_at_first(y: Operand) -> bool:
    """Whether no start is certainly behind the first element."""
    starts = y.operand(1)
    return starts is None or not (isinstance(starts.value, np.ndarray) and (starts.value > 0).any())


@rule(
    pattern="y = Slice(x, starts: const, ends: partial, axes?: const, steps?: const)",
    rewrite="y = x",
    exactness="exact",
    sets=("cleanup",),
    guard=_may_begin_at_first,
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
    starts, ends = ints(m.starts), entries(m.ends)
    axes = ints(m.axes) if m.axes is not None else list(range(len(starts)))
    steps = ints(m.steps) if m.steps is not None else [1] * len(starts)
    if any(step != 1 for step in steps):
        raise Decline
    for axis, start, end in zip(axes, starts, ends, strict=True):
        size = _size(m.x, axis)
        if not (start == 0 or start <= -FAR or dims.less_equal(dims.add(start, size), 0)):
            raise Decline
        if not _reaches(end, size):
            raise Decline
    return Replacement()


def _reaches(end: Any, size: Any) -> bool:
    """Whether an end certainly lies at or behind the last element of an axis."""
    return (isinstance(end, int) and end >= FAR) or dims.less_equal(size, end) is True


def _size(x: Operand, axis: int) -> Any:
    shape = x.shape
    return shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None


@rule(
    pattern="y = Slice(x, starts: partial, ends: partial, axes?: const, steps?: const)",
    rewrite="y = Slice(x, Starts, Ends, axes, steps)",
    exactness="exact",
    sets=("shape",),
    guard=lambda y: is_open(y.operand(1)) or is_open(y.operand(2)),
    tag="static",
)
def make_slice_static(m: Match) -> Replacement:
    """A Slice whose computed starts and ends are known in part gets constant ones.

    Algebra
        an end at or behind the last element is the largest integer; a place that is the size less a number, and not
        before the first element, is that number counted from the back

    Declines when
        a start or end is neither a number nor one of these;
        its axis is cut by a negative step.

    Example
        before:
            g (float[N,4] x) => (float[M,4] y) {
                zero = Constant<value = int64[1] {0}>()
                one = Constant<value = int64[1] {1}>()
                shape = Shape(x)
                n = Gather(shape, zero)
                last = Sub(n, one)
                y = Slice(x, zero, last, zero)
            }
        after:
            g (float[N,4] x) => (float[M,4] y) {
                zero = Constant<value = int64[1] {0}>()
                end = Constant<value = int64[1] {-1}>()
                y = Slice(x, zero, end, zero)
            }
    """
    if not (is_open(m.starts) or is_open(m.ends)):
        raise Decline
    starts, ends = entries(m.starts), entries(m.ends)
    axes = ints(m.axes) if m.axes is not None else list(range(len(starts)))
    steps = ints(m.steps) if m.steps is not None else [1] * len(starts)
    for place, axis in enumerate(axes):
        size = _size(m.x, axis)
        if steps[place] < 1 and not (isinstance(starts[place], int) and isinstance(ends[place], int)):
            raise Decline(f"axis {axis} is cut by a negative step between places that are not known")
        starts[place] = _constant_place(starts[place], size, "start", axis)
        ends[place] = INT64_MAX if _reaches(ends[place], size) else _constant_place(ends[place], size, "end", axis)
    kind = m.starts.value.dtype
    last = min(INT64_MAX, np.iinfo(kind).max)
    return Replacement(Starts=np.array(starts, kind), Ends=np.array([min(end, last) for end in ends], kind))


def _constant_place(place: Any, size: Any, what: str, axis: int) -> int:
    """A start or end as a number, counted from the back where it is the size less a number."""
    if isinstance(place, int):
        return place
    back = dims.sub(size, place)
    if not isinstance(back, int) or back < 1 or not dims.at_least(place, 0):
        raise Decline(f"the {what} {place if place is not None else '?'} on axis {axis} has no constant form")
    return -back


@rule(
    pattern="""
        a = Slice(x, starts1: const, ends1: const, axes1?: const, steps1?: const)
        y = Slice(a, starts2: const, ends2: const, axes2?: const, steps2?: const)
    """,
    rewrite="y = Slice(x, Starts, Ends, Axes, Steps)",
    exactness="exact",
    sets=("shape",),
    recursive=True,
    tag="merged",
)
def merge_slices(m: Match) -> Replacement:
    """A Slice of a Slice is one Slice.

    Algebra
        different axes do not meet; on one axis, with starts and ends counted from the front and positive steps p and q,
        start = s1 + p·s2, end = min(e1, s1 + p·e2), step = p·q

    Declines when
        on one axis a step is negative, or a start or end counts from the back of a dim that is not known (ends that both
        do so, or are open, add up: x[1:-1][2:-3] is x[3:-4]);
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
        merged[axis] = _joined(first[axis], cut, m, axis) if axis in first else cut
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


def _joined(first: Cut, second: Cut, m: Match, axis: int) -> Cut:
    return _open(first, second) or _after(_from_front(first, m.x, axis), _from_front(second, m.a, axis))


def _open(first: Cut, second: Cut) -> Cut | None:
    """Cuts from the front by step 1 that end at the back, or before it by a number, need no size: both numbers add up."""
    ends = (first[1], second[1])
    if first[2] != 1 or second[2] != 1 or min(first[0], second[0]) < 0:
        return None
    if any(end < -FAR or 0 <= end < FAR for end in ends):
        return None
    back = sum(end for end in ends if end < 0)
    return min(first[0] + second[0], INT64_MAX), back or INT64_MAX, 1


def _after(first: Cut, second: Cut) -> Cut:
    """One cut for ``second`` of what ``first`` leaves."""
    start = first[0] + first[2] * second[0]
    end = min(first[1], first[0] + first[2] * second[1])
    return min(start, INT64_MAX), min(end, INT64_MAX), min(first[2] * second[2], INT64_MAX)
