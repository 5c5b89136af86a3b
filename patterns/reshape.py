"""Reshape and Flatten: computed targets become constant, chains become one, what does nothing goes. All bit-exact."""

from __future__ import annotations

from typing import Any

import numpy as np

from surgeon_passes import Decline, Match, Operand, Replacement, rule
from surgeon_passes.values import Partial, dims, static_target

from ._dims import POINTWISE, Dims, entries, ints, is_open, require_legal, reshape_target, same, same_shape


def _keeps_shape(y: Operand) -> bool:
    x = y.operand(0)
    return x is not None and same_shape(x.shape, y.shape)


@rule(
    pattern="y = Reshape(x, t: partial)",
    rewrite="y = Reshape(x, T)",
    exactness="exact",
    sets=("shape",),
    guard=lambda y: is_open(y.operand(1)),
    tag="static",
)
def make_reshape_static(m: Match) -> Replacement:
    """A Reshape whose computed target is known in part gets a constant target.

    Algebra
        known dims are written out, a dim that the input has at the same place is 0 (copy), one other dim may be -1:
        the elements are as many as before, so it is what it was; allowzero goes, since a 0 copies

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
    if not is_open(m.t):
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
    guard=_keeps_shape,
)
def drop_reshape(m: Match) -> Replacement:
    """A Reshape, Flatten, Squeeze or Unsqueeze to the shape that its input has goes.

    Algebra
        the same elements in the same shape

    Declines when
        the shapes are not certainly equal;
        it is a Squeeze with an empty list of axes, which is read in two ways.

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
    if not _keeps_shape(m.y):
        raise Decline
    if m.y.op == "Squeeze" and m.t is not None and not np.size(m.t.value):
        raise Decline("axes are given and empty: ONNX says none, ONNX Runtime all that are 1")
    return Replacement()


@rule(
    pattern="""
        a = Reshape(x, inner) | Flatten(x) | Squeeze(x, inner?) | Unsqueeze(x, inner)
        y = Reshape(a, t: partial)
    """,
    rewrite="y = Reshape(x, T)<@y>",
    exactness="exact",
    sets=("shape",),
    recursive=True,
    tag="merged",
)
def merge_reshapes(m: Match) -> Replacement:
    """A Reshape of what was reshaped before is one Reshape.

    Algebra
        only the last shape counts; a 0 in its target copies a dim of the intermediate, so it is written out

    Declines when
        the last target is computed and a dim of it may be 0 (which would copy);
        the first may be illegal at some size: there the original fails;
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
    if isinstance(m.t.value, Partial):
        if not m.y.attr("allowzero") and not all(_is_size(d) for d in m.t.value.dims()):
            raise Decline(f"a dim of the computed target {m.t.value} may be 0, which would copy")
        require_legal(m.x, m.a)
        return Replacement(T=m.t)
    require_legal(m.x, m.a)
    target = ints(m.t)
    if m.y.attr("allowzero") or 0 not in target:
        return Replacement(T=m.t)
    middle, outer = m.a.shape or (), m.x.shape or ()
    for place, dim in enumerate(target):
        if dim == 0:
            target[place] = _copied(middle, outer, place)
    if target.count(-1) > 1:
        raise Decline(f"a 0 in the target {ints(m.t)} copies a dim of '{m.a.name}' that is not known")
    if -1 in target and -1 not in ints(m.t) and 0 in target:
        raise Decline(f"-1 would stand beside a dim of '{m.x.name}' that may be 0")
    return Replacement(T=np.array(target, np.int64))


def _is_size(dim: Any) -> bool:
    """Whether it is -1 or certainly at least 1."""
    return dim == -1 or dims.at_least(dim, 1)


def _copied(middle: Dims, outer: Dims, place: int) -> int:
    """What says the dim of the intermediate at ``place``: its size, 0 where the input has it there too, or -1."""
    dim = middle[place] if place < len(middle) else None
    if isinstance(dim, int) and dim > 0:
        return dim
    return 0 if place < len(outer) and same(dim, outer[place]) else -1


@rule(
    pattern="""
        a = Reshape(x, inner) | Flatten(x) | Squeeze(x, inner?) | Unsqueeze(x, inner)
        y = Flatten(a) | Squeeze(a, t?) | Unsqueeze(a, t)
    """,
    rewrite="y = Reshape(x, Target)",
    exactness="exact",
    sets=("shape",),
    recursive=True,
    opset=(5, None),
    tag="merged",
)
def merge_into_reshape(m: Match) -> Replacement:
    """A Flatten, Squeeze or Unsqueeze of what was reshaped before is one Reshape.

    Algebra
        only the last shape counts

    Declines when
        more than one dim of the result can be said neither by a number nor by 0 or -1;
        the first may be illegal at some size: there the original fails;
        both are Squeeze, or both Unsqueeze (they are one of their kind);
        the intermediate is used elsewhere.

    Example
        before:
            g (float[N,6] x) => (float[N,1,2,3] y) {
                target = Constant<value = int64[3] {0, 2, 3}>()
                axis = Constant<value = int64[1] {1}>()
                a = Reshape(x, target)
                y = Unsqueeze(a, axis)
            }
        after:
            g (float[N,6] x) => (float[N,1,2,3] y) {
                target = Constant<value = int64[4] {0, 1, 2, 3}>()
                y = Reshape(x, target)
            }
    """
    if m.a.op == m.y.op != "Flatten":
        raise Decline
    m.value("inner")  # where it is computed, the verification covers how
    require_legal(m.x, m.a)
    return Replacement(Target=reshape_target(m.x, m.y))


@rule(
    pattern="""
        a = Reshape(x, t: partial)
        b = Transpose(a)<perm=@perm>
        y = Reshape(b, u: partial)
    """,
    rewrite="y = Reshape(Transpose(Reshape(x, T))<perm=@P>, u)<@y>",
    exactness="exact",
    sets=("shape",),
    tag="joined",
)
def join_transposed_axes(m: Match) -> Replacement:
    """Axes that a Transpose moves together are one axis: the Reshape before it then needs no computed target.

    A channel shuffle between Reshapes is written with height and width apart; as one axis their size is what is left, -1.

    Algebra
        axes that are neighbours in one order before and after the Transpose may be one axis of their elements

    Declines when
        the first target is constant already, or has no constant form even so;
        the last target copies a dim (0), or one of its dims may be 0;
        a tensor between them is used elsewhere.

    Example
        before:
            g (float[N,4,H,W] x) => (float[N,4,H,W] y) {
                at = Constant<value = int64[1] {0}>()
                two = Constant<value = int64[1] {2}>()
                one = Constant<value = int64[1] {1}>()
                end = Constant<value = int64[1] {4}>()
                pair = Constant<value = int64[2] {2, 2}>()
                shape = Shape(x)
                n = Slice(shape, at, one)
                hw = Slice(shape, two, end)
                t = Concat<axis = 0>(n, pair, hw)
                a = Reshape(x, t)
                b = Transpose<perm = [0, 2, 1, 3, 4]>(a)
                y = Reshape(b, shape)
            }
        after:
            g (float[N,4,H,W] x) => (float[N,4,H,W] y) {
                t = Constant<value = int64[4] {0, 2, 2, -1}>()
                shape = Shape(x)
                a = Reshape(x, t)
                b = Transpose<perm = [0, 2, 1, 3]>(a)
                y = Reshape(b, shape)
            }
    """
    perm, shape = m.attr("perm"), m.a.shape
    if isinstance(m.t.value, np.ndarray) or perm is None or shape is None:
        raise Decline
    if not m.y.attr("allowzero") and not all(_is_size(d) for d in entries(m.u)):
        raise Decline("a dim of the last target may be 0, which would copy")
    runs = _runs(list(perm))
    if len(runs) == len(perm):
        raise Decline
    joined = sorted(runs)
    wanted = np.empty(len(joined), object)
    wanted[:] = [dims.product(shape[axis] for axis in run) for run in joined]
    target = static_target(m.x.shape, Partial(wanted, np.dtype(np.int64)), False)
    if target is None:
        raise Decline(f"the target {m.t.value} has no constant form, even with its axes joined")
    return Replacement(T=np.array(target, np.int64), P=[joined.index(run) for run in runs])


def _runs(perm: list[int]) -> list[tuple[int, ...]]:
    """The permutation cut into runs of axes that follow one another."""
    runs: list[list[int]] = []
    for axis in perm:
        if runs and runs[-1][-1] == axis - 1:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    return [tuple(run) for run in runs]


# --- around what works on each element -----------------------------------------------------------------------------------


@rule(
    pattern=f"""
        a = Reshape(x, inner) | Flatten(x) | Squeeze(x, inner?) | Unsqueeze(x, inner)
        u = {POINTWISE}(a)
        y = Reshape(u, t: partial) | Flatten(u) | Squeeze(u, t?) | Unsqueeze(u, t)
    """,
    rewrite={
        "drop": "y = @u(x)<@u>",
        "merge": "y = Reshape(@u(x)<@u>, Target)",
    },
    exactness="exact",
    sets=("shape",),
    opset=(5, None),
    recursive=True,
    tag="merged",
)
def merge_reshapes_around(m: Match) -> Replacement:
    """A Reshape, Flatten, Squeeze or Unsqueeze before and after an operator that works on each element is one, or none.

    Algebra
        such an operator does not see the shape: f(reshape(x)) = reshape(f(x)), and the two then meet

    Declines when
        the last shape has more than one dim that is not known, or the first may be illegal at some size;
        an inner result is used elsewhere.

    Example
        before:
            g (float[N,6] x) => (float[N,6] y) {
                to = Constant<value = int64[3] {0, 2, 3}>()
                back = Constant<value = int64[2] {0, 6}>()
                a = Reshape(x, to)
                u = Relu(a)
                y = Reshape(u, back)
            }
        after:
            g (float[N,6] x) => (float[N,6] y) {
                y = Relu(x)
            }
    """
    require_legal(m.x, m.a)
    require_legal(m.u, m.y)
    if same_shape(m.x.shape, m.y.shape):
        return Replacement("drop")
    return Replacement("merge", Target=reshape_target(m.x, m.y))
