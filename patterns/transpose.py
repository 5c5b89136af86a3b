"""Transpose: chains become one, what moves nothing goes. All bit-exact."""

from __future__ import annotations

from surgeon_passes import Decline, Match, Replacement, rule


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
