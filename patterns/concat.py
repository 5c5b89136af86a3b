"""Split and Concat: chains become one, what they undo of one another goes. All bit-exact."""

from __future__ import annotations

import numpy as np

from surgeon_passes import Decline, Match, Replacement, rule

from ._dims import same


@rule(
    pattern="y = Split(x, sizes?)",
    rewrite="y = x",
    exactness="exact",
    sets=("cleanup",),
)
def drop_single_split(m: Match) -> Replacement:
    """A Split into one part goes.

    Algebra
        the only part is the whole

    Declines when
        there are more parts, used or not;
        the size of the part is not certainly the whole.

    Example
        before:
            g (float[N] x) => (float[N] y) {
                a = Split<axis = 0>(x)
                y = Relu(a)
            }
        after:
            g (float[N] x) => (float[N] y) {
                y = Relu(x)
            }
    """
    parts = len(m.y.node.node.outputs)
    if parts != 1:
        raise Decline
    _require_whole(m)
    return Replacement()


@rule(
    pattern="""
        parts... = Split(x, sizes?)<axis=@axis>
        y = Concat(parts...)<axis=@axis>
    """,
    rewrite="y = x",
    exactness="exact",
    sets=("cleanup",),
)
def drop_split_concat(m: Match) -> Replacement:
    """A Concat that puts the parts of a Split together again goes, with the Split.

    Algebra
        all parts, in order, along the axis that they were cut along

    Declines when
        a part is used elsewhere, or the sizes do not certainly add up.
        Parts in another order, or along another axis, do not match.

    Example
        before:
            g (float[N,4] x) => (float[N,4] y) {
                sizes = Constant<value = int64[2] {1, 3}>()
                p, q = Split<axis = 1>(x, sizes)
                a = Concat<axis = 1>(p, q)
                y = Relu(a)
            }
        after:
            g (float[N,4] x) => (float[N,4] y) {
                y = Relu(x)
            }
    """
    _require_whole(m, int(m.attr("axis")))
    return Replacement()


def _require_whole(m: Match, axis: int | None = None) -> None:
    """That the sizes of a Split are those of its operand: where they are not, the original fails. Raises Decline."""
    if m.sizes is None:
        return
    shape = m.x.shape
    along = int(m.y.attr("axis")) if axis is None else axis
    held = shape[along] if shape is not None and -len(shape) <= along < len(shape) else None
    if not isinstance(m.sizes.value, np.ndarray) or not same(held, int(m.sizes.value.sum())):
        raise Decline(f"the sizes do not certainly add up to dim {along} of '{m.x.name}'")


@rule(
    pattern="""
        i = Concat(inner...)
        y = Concat(i, rest...) | Concat(p, i, rest...) | Concat(p, q, i, rest...) | Concat(p, q, r, i, rest...)
    """,
    rewrite="y = Concat(All...)<@y>",
    exactness="exact",
    sets=("shape",),
    opset=(4, None),
    recursive=True,
)
def merge_concats(m: Match) -> Replacement:
    """A Concat among the first four parts of a Concat along the same axis is one with it.

    Algebra
        joining is associative

    Declines when
        the axes differ, or may: one counts from the back and the rank is unknown;
        the inner result is used elsewhere, or twice.

    Example
        before:
            g (float[N,1] a, float[N,2] b, float[N,3] c) => (float[N,6] y) {
                i = Concat<axis = 1>(b, c)
                y = Concat<axis = -1>(a, i)
            }
        after:
            g (float[N,1] a, float[N,2] b, float[N,3] c) => (float[N,6] y) {
                y = Concat<axis = -1>(a, b, c)
            }
    """
    if m.i.attr("axis") != m.y.attr("axis") and m.axis("i") != m.axis("y"):
        raise Decline
    if m.i.is_shared:
        raise Decline(f"'{m.i.name}' is used elsewhere, too")
    before = tuple(part for part in (m.p, m.q, m.r) if part is not None)
    return Replacement(All=(*before, *m.inner, *m.rest))
