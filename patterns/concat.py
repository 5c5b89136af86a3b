"""Split and Concat: what they undo of one another goes. All bit-exact."""

from __future__ import annotations

from surgeon_passes import Decline, Match, Replacement, rule


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
        there are more parts, used or not.

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
        a part is used elsewhere. Parts in another order, or along another axis, do not match.

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
    return Replacement()
