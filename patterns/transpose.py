"""Transpose: chains become one, what moves nothing, or only axes of size 1, goes. All bit-exact."""

from __future__ import annotations

from collections.abc import Sequence

from surgeon_passes import Decline, Match, Operand, Replacement, rule

from ._dims import reshape_target


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
    recursive=True,
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


# --- axes of size 1 ------------------------------------------------------------------------------------------------------


def _require_same_order(x: Operand, perm: Sequence[int] | None) -> None:
    """That a Transpose of ``x`` leaves the axes in their order that are not certainly of size 1."""
    shape = x.shape
    if shape is None or perm is None or len(perm) != len(shape):
        raise Decline(f"the rank of '{x.name}' is unknown")
    moved = [axis for axis in perm if shape[axis] != 1]
    if moved != sorted(moved):
        raise Decline


@rule(
    pattern="""
        a = Transpose(x)<perm=@perm>
        y = Reshape(a, t) | Flatten(a) | Squeeze(a, t?) | Unsqueeze(a, t)
    """,
    rewrite="y = Reshape(x, Target)",
    exactness="exact",
    sets=("shape",),
    recursive=True,
    opset=(5, None),
    tag="merged",
)
def merge_transpose_into_reshape(m: Match) -> Replacement:
    """A Transpose that moves only axes of size 1 goes into the Reshape, Flatten, Squeeze or Unsqueeze behind it.

    Algebra
        the axes that hold more than one element keep their order, so the elements keep theirs

    Declines when
        axes that may be longer change their order;
        more than one dim of the result can be said neither by a number nor by 0 or -1;
        the intermediate is used elsewhere.

    Example
        before:
            g (float[N,2,1,3] x) => (float[N,6] y) {
                target = Constant<value = int64[2] {0, -1}>()
                a = Transpose<perm = [0, 2, 1, 3]>(x)
                y = Reshape(a, target)
            }
        after:
            g (float[N,2,1,3] x) => (float[N,6] y) {
                target = Constant<value = int64[2] {0, 6}>()
                y = Reshape(x, target)
            }
    """
    _require_same_order(m.x, m.attr("perm"))
    m.value("t")  # where it is computed, the verification covers how
    return Replacement(Target=reshape_target(m.x, m.y))


@rule(
    pattern="""
        a = Reshape(x, t) | Flatten(x) | Squeeze(x, t?) | Unsqueeze(x, t)
        y = Transpose(a)<perm=@perm>
    """,
    rewrite="y = Reshape(x, Target)",
    exactness="exact",
    sets=("shape",),
    recursive=True,
    opset=(5, None),
    tag="merged",
)
def merge_reshape_into_transpose(m: Match) -> Replacement:
    """A Transpose that moves only axes of size 1 becomes one with the Reshape, Flatten, Squeeze or Unsqueeze before it.

    Algebra
        the axes that hold more than one element keep their order, so the elements keep theirs

    Declines when
        axes that may be longer change their order;
        more than one dim of the result can be said neither by a number nor by 0 or -1;
        the intermediate is used elsewhere.

    Example
        before:
            g (float[N,3] x) => (float[N,3,1] y) {
                axis = Constant<value = int64[1] {1}>()
                a = Unsqueeze(x, axis)
                y = Transpose<perm = [0, 2, 1]>(a)
            }
        after:
            g (float[N,3] x) => (float[N,3,1] y) {
                target = Constant<value = int64[3] {0, 3, 1}>()
                y = Reshape(x, target)
            }
    """
    _require_same_order(m.a, m.attr("perm"))
    m.value("t")
    return Replacement(Target=reshape_target(m.x, m.y))
