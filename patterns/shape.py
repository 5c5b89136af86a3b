"""Reshape, Transpose, Squeeze, Unsqueeze and Slice: chains become one, what does nothing goes.

All bit-exact: elements move, or stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from surgeon_passes import Decline, Match, Operand, Replacement, rule
from surgeon_passes.values import static_target

Dims = Sequence[Any]
INT64_MAX = 2**63 - 1


def _same(a: Any, b: Any) -> bool:
    """Whether two dims (ints, symbols or None) are certainly equal."""
    return a is not None and b is not None and bool(a == b)


def _same_shape(a: Dims | None, b: Dims | None) -> bool:
    """Whether two tensors of equally many elements certainly have the same shape.

    One dim that is not known is equal where all others are, and none of them is 0.
    """
    if a is None or b is None or len(a) != len(b):
        return False
    open_ = [k for k, (p, q) in enumerate(zip(a, b, strict=True)) if not _same(p, q)]
    if len(open_) > 1:
        return False
    return not open_ or all(isinstance(d, int) and d > 0 for k, d in enumerate(a) if k != open_[0])


def _ints(operand: Operand) -> list[int]:
    return [int(v) for v in np.asarray(operand.value).ravel()]


def _axes(axes: Iterable[int], rank: int | None) -> set[int] | None:
    """Non-negative axes of a tensor of ``rank``; as written where the rank is unknown and none is negative, else None."""
    found = list(axes)
    if rank is None:
        return set(found) if all(a >= 0 for a in found) else None
    return {a % rank for a in found}


# --- Reshape -------------------------------------------------------------------------------------------------------------


@rule(
    pattern="y = Reshape(x, t: partial)",
    rewrite="y = Reshape(x, T)<@y>",
    exactness="exact",
    sets=("shape",),
    tag="static",
)
def make_reshape_static(m: Match) -> Replacement:
    """A Reshape whose computed target is known in part gets a constant target.

    Algebra
        known dims are written out, a dim that the input has at the same place is 0 (copy), one other dim may be -1:
        the elements are as many as before, so it is what it was

    Declines when
        more than one dim can be said neither way;
        -1 would stand beside a dim that may be 0.

    Example
        before:
            g (float[N,2,3] x) => (float[N,6] y) {
                zero = Constant<value = int64[1] {0}>()
                rest = Constant<value = int64[1] {-1}>()
                shape = Shape(x)
                batch = Gather(shape, zero)
                target = Concat<axis = 0>(batch, rest)
                y = Reshape(x, target)
            }
        after:
            g (float[N,2,3] x) => (float[N,6] y) {
                target = Constant<value = int64[2] {0, 6}>()
                y = Reshape(x, target)
            }
    """
    value = m.t.value
    if isinstance(value, np.ndarray):
        raise Decline
    target = static_target(m.x.shape, value, bool(m.y.attr("allowzero")), m.y.shape)
    if target is None:
        raise Decline(f"the target {value} has no constant form")
    return Replacement(T=np.array(target, np.int64))


@rule(
    pattern="y = Reshape(x, t) | Flatten(x) | Squeeze(x, t?) | Unsqueeze(x, t)",
    rewrite="y = x",
    exactness="exact",
    sets=("shape",),
)
def drop_reshape(m: Match) -> Replacement:
    """A Reshape, Flatten, Squeeze or Unsqueeze to the shape that its input has goes.

    Algebra
        the same elements in the same shape; with all dims but one equal and not 0, the last is equal, too

    Declines when
        the shapes are not certainly equal.

    Example
        before:
            g (float[N,2,3] x) => (float[N,2,3] y) {
                target = Constant<value = int64[3] {-1, 2, 3}>()
                a = Reshape(x, target)
                y = Relu(a)
            }
        after:
            g (float[N,2,3] x) => (float[N,2,3] y) {
                y = Relu(x)
            }
    """
    if not _same_shape(m.x.shape, m.y.shape):
        raise Decline
    return Replacement()


@rule(
    pattern="""
        a = Reshape(x, inner) | Flatten(x) | Squeeze(x, inner?) | Unsqueeze(x, inner)
        y = Reshape(a, t: const)
    """,
    rewrite="y = Reshape(x, T)<@y>",
    exactness="exact",
    sets=("shape",),
    tag="merged",
)
def merge_reshapes(m: Match) -> Replacement:
    """A Reshape of what was reshaped before is one Reshape.

    Algebra
        only the last shape counts; a 0 in its target copies a dim of the intermediate, so it is written out

    Declines when
        a 0 copies a dim that is neither known nor the input's at the same place, and no -1 can stand for it;
        the intermediate is used elsewhere.

    Example
        before:
            g (float[4,6] x) => (float[8,3] y) {
                first = Constant<value = int64[3] {8, 1, 3}>()
                second = Constant<value = int64[2] {0, -1}>()
                a = Reshape(x, first)
                y = Reshape(a, second)
            }
        after:
            g (float[4,6] x) => (float[8,3] y) {
                target = Constant<value = int64[2] {8, -1}>()
                y = Reshape(x, target)
            }
    """
    target = _ints(m.t)
    if m.y.attr("allowzero") or 0 not in target:
        return Replacement(T=m.t)
    middle, outer = m.a.shape or (), m.x.shape or ()
    for place, dim in enumerate(target):
        if dim == 0:
            target[place] = _copied(middle, outer, place)
    if target.count(-1) > 1:
        raise Decline(f"a 0 in the target {_ints(m.t)} copies a dim of '{m.a.name}' that is not known")
    if -1 in target and -1 not in _ints(m.t) and 0 in target:
        raise Decline(f"-1 would stand beside a dim of '{m.x.name}' that may be 0")
    return Replacement(T=np.array(target, np.int64))


def _copied(middle: Dims, outer: Dims, place: int) -> int:
    """What says the dim of the intermediate at ``place``: its size, 0 where the input has it there too, or -1."""
    dim = middle[place] if place < len(middle) else None
    if isinstance(dim, int) and dim > 0:
        return dim
    return 0 if place < len(outer) and _same(dim, outer[place]) else -1


# --- Transpose -----------------------------------------------------------------------------------------------------------


@rule(
    pattern="y = Transpose(x)<perm=@perm>",
    rewrite="y = x",
    exactness="exact",
    sets=("shape",),
)
def drop_transpose(m: Match) -> Replacement:
    """A Transpose that leaves every axis in its place goes.

    Algebra
        perm = 0, 1, 2, … moves nothing; nor does the default in rank 1

    Declines when
        perm moves an axis, or is left out and the rank is unknown.

    Example
        before:
            g (float[N,2] x) => (float[N,2] y) {
                a = Transpose<perm = [0, 1]>(x)
                y = Relu(a)
            }
        after:
            g (float[N,2] x) => (float[N,2] y) {
                y = Relu(x)
            }
    """
    perm = m.attr("perm")
    if perm is None or list(perm) != list(range(len(perm))):
        raise Decline
    return Replacement()


@rule(
    pattern="""
        a = Transpose(x)<perm=@first>
        y = Transpose(a)<perm=@second>
    """,
    rewrite={"drop": "y = x", "merge": "y = Transpose(x)<perm=@perm>"},
    exactness="exact",
    sets=("shape",),
)
def merge_transposes(m: Match) -> Replacement:
    """A Transpose of a Transpose is one Transpose, or none.

    Algebra
        perm[i] = first[second[i]]; where that is 0, 1, 2, … both go

    Declines when
        one perm is left out and the rank is unknown;
        the intermediate is used elsewhere.

    Example
        before:
            g (float[N,2,3] x) => (float[2,3,N] y) {
                a = Transpose<perm = [0, 2, 1]>(x)
                y = Transpose<perm = [2, 1, 0]>(a)
            }
        after:
            g (float[N,2,3] x) => (float[2,3,N] y) {
                y = Transpose<perm = [1, 2, 0]>(x)
            }
    """
    first, second = m.attr("first"), m.attr("second")
    if first is None and second is None:
        return Replacement("drop")  # reversed twice
    rank = len(first or second)
    reverse = list(reversed(range(rank)))
    first, second = first or reverse, second or reverse
    if len(first) != len(second):
        raise Decline(f"perms {list(first)} and {list(second)} are of different ranks")
    perm = [first[axis] for axis in second]
    return Replacement("drop") if perm == list(range(rank)) else Replacement("merge", perm=perm)


# --- Squeeze and Unsqueeze -----------------------------------------------------------------------------------------------


@rule(
    pattern="""
        a = Squeeze(x, gone: const)
        y = Unsqueeze(a, back: const)
    """,
    rewrite={"drop": "y = x", "reshape": "y = Reshape(x, Target)"},
    exactness="exact",
    sets=("shape",),
    opset=(5, None),
    tag="merged",
)
def merge_squeeze_unsqueeze(m: Match) -> Replacement:
    """An Unsqueeze of a Squeeze is nothing where the same axes come back, else one Reshape.

    Algebra
        both move no element; the result has the rank of x where as many axes come back as went

    Declines when
        other axes come back and more than one dim of the result is not known.

    Example
        before:
            g (float[1,N,2] x) => (float[N,1,2] y) {
                first = Constant<value = int64[1] {0}>()
                second = Constant<value = int64[1] {1}>()
                a = Squeeze(x, first)
                y = Unsqueeze(a, second)
            }
        after:
            g (float[1,N,2] x) => (float[N,1,2] y) {
                target = Constant<value = int64[3] {-1, 1, 2}>()
                y = Reshape(x, target)
            }
    """
    gone, back = _ints(m.gone), _ints(m.back)
    if _axes_agree(gone, back, m.x.rank):
        return Replacement("drop")
    return Replacement("reshape", Target=_target(m.y))


@rule(
    pattern="""
        a = Unsqueeze(x, added: const)
        y = Squeeze(a, gone: const)
    """,
    rewrite={"drop": "y = x", "reshape": "y = Reshape(x, Target)"},
    exactness="exact",
    sets=("shape",),
    opset=(5, None),
    tag="merged",
)
def merge_unsqueeze_squeeze(m: Match) -> Replacement:
    """A Squeeze of an Unsqueeze is nothing where the same axes go, else one Reshape.

    Algebra
        both move no element; where the axes that were added go again, x is left

    Declines when
        other axes go and more than one dim of the result is not known.

    Example
        before:
            g (float[N,2] x) => (float[N,2] y) {
                axis = Constant<value = int64[1] {1}>()
                a = Unsqueeze(x, axis)
                b = Squeeze(a, axis)
                y = Relu(b)
            }
        after:
            g (float[N,2] x) => (float[N,2] y) {
                y = Relu(x)
            }
    """
    added, gone = _ints(m.added), _ints(m.gone)
    rank = None if m.x.rank is None else m.x.rank + len(added)
    if _axes_agree(added, gone, rank):
        return Replacement("drop")
    return Replacement("reshape", Target=_target(m.y))


def _axes_agree(first: list[int], second: list[int], rank: int | None) -> bool:
    """Whether two lists name the same axes of tensors of one rank."""
    if len(first) != len(second):
        return False
    if sorted(first) == sorted(second):
        return True
    a, b = _axes(first, rank), _axes(second, rank)
    return a is not None and a == b


def _target(y: Operand) -> Any:
    """A constant Reshape target for the shape of ``y``. Raises Decline where more than one dim is not known."""
    shape = y.shape
    if shape is None:
        raise Decline(f"the rank of '{y.name}' is unknown")
    target = [d if isinstance(d, int) else -1 for d in shape]
    if target.count(-1) > 1 or (-1 in target and 0 in target):
        raise Decline(f"more than one dim of '{y.name}' is not known")
    if 0 in target:
        raise Decline(f"'{y.name}' is empty")
    return np.array(target, np.int64)


# --- Slice ---------------------------------------------------------------------------------------------------------------


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
    first, last = _ints(starts), _ints(ends)
    along = _ints(axes) if axes is not None else list(range(len(first)))
    by = _ints(steps) if steps is not None else [1] * len(first)
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
