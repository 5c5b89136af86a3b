"""Expand and Tile: computed targets become constant, chains become one, what enlarges nothing goes. All bit-exact."""

from __future__ import annotations

import numpy as np

from surgeon_passes import Decline, Match, Replacement, rule

from ._dims import entries, ints, is_open, require_absorbed, same


@rule(
    pattern="y = Expand(x, target: partial)",
    rewrite="y = x",
    exactness="exact",
    sets=("cleanup",),
)
def drop_expand(m: Match) -> Replacement:
    """An Expand to the shape that its input has goes.

    Algebra
        a target dim of 1, or equal to the input's, leaves that axis as it is

    Declines when
        the target has more dims, or one that is not known to be 1 or the input's.

    Example
        before:
            g (float[N,2] x) => (float[N,2] y) {
                target = Constant<value = int64[2] {1, 2}>()
                a = Expand(x, target)
                y = Relu(a)
            }
        after:
            g (float[N,2] x) => (float[N,2] y) {
                y = Relu(x)
            }
    """
    dims = entries(m.target)
    held = m.x.shape
    if held is None:
        raise Decline(f"the rank of '{m.x.name}' is unknown")
    if len(dims) > len(held):
        raise Decline
    for dim, own in zip(reversed(dims), reversed(held), strict=False):
        if dim is None or (dim != 1 and (own is None or dim != own)):
            raise Decline
    return Replacement()


@rule(
    pattern="y = Tile(x, repeats: const)",
    rewrite="y = x",
    exactness="exact",
    sets=("cleanup",),
    opset=(6, None),
)
def drop_tile(m: Match) -> Replacement:
    """A Tile that repeats every axis once goes.

    Algebra
        once is as it was

    Declines when
        an axis is repeated, or taken out (0).

    Example
        before:
            g (float[N,2] x) => (float[N,2] y) {
                once = Constant<value = int64[2] {1, 1}>()
                a = Tile(x, once)
                y = Relu(a)
            }
        after:
            g (float[N,2] x) => (float[N,2] y) {
                y = Relu(x)
            }
    """
    if any(count != 1 for count in ints(m.repeats)):
        raise Decline
    return Replacement()


@rule(
    pattern="y = Expand(x, target: partial)",
    rewrite="y = Expand(x, Target)",
    exactness="exact",
    sets=("shape",),
    opset=(8, None),
    guard=lambda y: is_open(y.operand(1)),
    tag="static",
)
def make_expand_static(m: Match) -> Replacement:
    """An Expand whose computed target is known in part gets a constant target.

    Algebra
        a dim that is the input's own is said by 1, and so is any where the input's is known and not 1

    Declines when
        a target dim is not known, and may be larger than the input's.

    Example
        before:
            g (float[1,N,3] x) => (float[2,N,3] y) {
                one = Constant<value = int64[1] {1}>()
                two = Constant<value = int64[1] {2}>()
                three = Constant<value = int64[1] {3}>()
                shape = Shape(x)
                n = Gather(shape, one)
                target = Concat<axis = 0>(two, n, three)
                y = Expand(x, target)
            }
        after:
            g (float[1,N,3] x) => (float[2,N,3] y) {
                target = Constant<value = int64[3] {2, 1, 3}>()
                y = Expand(x, target)
            }
    """
    if not is_open(m.target):
        raise Decline
    if m.x.shape is None:
        raise Decline(f"the rank of '{m.x.name}' is unknown")
    dims = entries(m.target)
    own = (*[1] * max(len(dims) - m.x.rank, 0), *m.x.shape)[-len(dims) :]
    target = []
    for dim, held in zip(dims, own, strict=True):
        if not isinstance(dim, int) and not same(dim, held):
            raise Decline(f"the target {m.target.value} has no constant form")
        target.append(dim if isinstance(dim, int) else 1)
    return Replacement(Target=np.array(target, np.int64))


@rule(
    pattern="""
        e = Expand(x, inner: partial)
        y = Expand(e, outer: partial)
    """,
    rewrite={"outer": "y = Expand(x, outer)", "both": "y = Expand(x, Target)"},
    exactness="exact",
    sets=("shape",),
    opset=(8, None),
    recursive=True,
    tag="merged",
)
def merge_expands(m: Match) -> Replacement:
    """An Expand of an Expand is one Expand.

    Algebra
        broadcasting is associative: where the outer target has every dim that the inner one adds, it is enough; two
        constant targets are one, with the dims besides 1 of both

    Declines when
        a dim that the inner one adds is not certainly in the outer target, and they are not both constant;
        the intermediate is used elsewhere.

    Example
        before:
            g (float[N,1,1] x) => (float[N,2,3] y) {
                first = Constant<value = int64[2] {2, 1}>()
                second = Constant<value = int64[3] {1, 1, 3}>()
                e = Expand(x, first)
                y = Expand(e, second)
            }
        after:
            g (float[N,1,1] x) => (float[N,2,3] y) {
                target = Constant<value = int64[3] {1, 2, 3}>()
                y = Expand(x, target)
            }
    """
    try:
        require_absorbed(m.e, m.x.shape, m.e.shape, [entries(m.outer)])
    except Decline:
        first, second = m.inner.value, m.outer.value
        if not (isinstance(first, np.ndarray) and isinstance(second, np.ndarray)):
            raise
        return Replacement("both", Target=_joined(first.tolist(), second.tolist()))
    return Replacement("outer")


def _joined(first: list[int], second: list[int]) -> object:
    """The target that says what two say: their dims besides 1."""
    rank = max(len(first), len(second))
    a, b = ([1] * (rank - len(t)) + t for t in (first, second))
    return np.array([q if p == 1 else p for p, q in zip(a, b, strict=True)], np.int64)
