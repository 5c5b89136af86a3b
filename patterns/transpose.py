"""Transpose: chains become one, what moves nothing, or only axes of size 1, goes. Bit-exact, unless a function moves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from surgeon_passes import Decline, Match, Operand, Replacement, rule

from ._dims import POINTWISE, Dims, reshape_target


def _stays(y: Operand) -> bool:
    perm = y.attr("perm")
    return perm is not None and list(perm) == list(range(len(perm)))


@rule(
    pattern="y = Transpose(x)<perm=@perm>",
    rewrite="y = x",
    exactness="exact",
    sets=("shape",),
    guard=_stays,
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
    if not _stays(m.y):
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
    moved = _longer(shape, perm)
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


def _may_keep_order(y: Operand) -> bool:
    """Whether a Transpose does not certainly move axes past each other that may be longer than 1."""
    x, perm = y.operand(0), y.attr("perm")
    if x is None or x.shape is None or perm is None or len(perm) != len(x.shape):
        return True
    moved = _longer(x.shape, perm)
    return moved == sorted(moved)


def _longer(shape: Dims, perm: Sequence[int]) -> list[int]:
    """The axes, as they come, that are not certainly of size 1."""
    return [axis for axis in perm if shape[axis] != 1]


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
    guard=_may_keep_order,
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


# --- around what works on each element -----------------------------------------------------------------------------------


def _joined(first: Sequence[int] | None, second: Sequence[int] | None) -> list[int]:
    """What two Transposes do, one after the other. Raises Decline where a perm is left out or the ranks differ."""
    if first is None or second is None:
        raise Decline("a perm is left out")
    if len(first) != len(second):
        raise Decline(f"perms {list(first)} and {list(second)} are of different ranks")
    return [first[axis] for axis in second]


@rule(
    pattern=f"""
        a = Transpose(x)<perm=@first>
        u = {POINTWISE}(a)
        y = Transpose(u)<perm=@second>
    """,
    rewrite={"drop": "y = @u(x)<@u>", "merge": "y = Transpose(@u(x)<@u>)<perm=@perm>"},
    exactness="rounding",  # vectorised functions may round otherwise in the rest of a vector
    sets=("shape",),
    recursive=True,
)
def merge_transposes_around(m: Match) -> Replacement:
    """Transposes before and after an operator that works on each element are one Transpose behind it, or none.

    Algebra
        f(transpose(x)) = transpose(f(x)); the two Transposes then meet

    Declines when
        a perm is left out; an inner result is used elsewhere.

    Example
        before:
            g (float[N,2,3] x) => (float[N,2,3] y) {
                a = Transpose<perm = [0, 2, 1]>(x)
                u = Relu(a)
                y = Transpose<perm = [0, 2, 1]>(u)
            }
        after:
            g (float[N,2,3] x) => (float[N,2,3] y) {
                y = Relu(x)
            }
    """
    perm = _joined(m.attr("first"), m.attr("second"))
    return Replacement("drop") if perm == list(range(len(perm))) else Replacement("merge", perm=perm)


@rule(
    pattern="""
        a = Transpose(x)<perm=@first>
        u = Add|Sub|Mul|Div(a, k: const) | Sub|Div(k: const, a)
        y = Transpose(u)<perm=@second>
    """,
    rewrite={
        "drop": "y = @u(x, K)<@u>",
        "drop_from": "y = @u(K, x)<@u>",
        "merge": "y = Transpose(@u(x, K)<@u>)<perm=@perm>",
        "merge_from": "y = Transpose(@u(K, x)<@u>)<perm=@perm>",
    },
    exactness="exact",
    sets=("shape",),
    opset=(7, None),
    may_grow=True,  # the constant is as large as before; a vector gets dims of 1, and counts as a weight then
    recursive=True,
    tag="transposed",
)
def merge_transposes_around_constant(m: Match) -> Replacement:
    """Transposes before and after an operation with a constant are one Transpose behind it, or none.

    Algebra
        transpose(x) ∘ k = transpose(x ∘ transpose⁻¹(k)), the constant aligned from the right first

    Declines when
        a perm is left out, or the constant has more dims than x; an inner result is used elsewhere.

    Example
        before:
            g (float[N,2,3] x) => (float[N,2,3] y) {
                k = Constant<value = float[2] {1.0, 2.0}>()
                a = Transpose<perm = [0, 2, 1]>(x)
                u = Add(a, k)
                y = Transpose<perm = [0, 2, 1]>(u)
            }
        after:
            g (float[N,2,3] x) => (float[N,2,3] y) {
                k = Constant<value = float[1,2,1] {1.0, 2.0}>()
                y = Add(x, k)
            }
    """
    first = m.attr("first")
    perm = _joined(first, m.attr("second"))
    value = np.asarray(m.k.value)
    if value.ndim > len(perm):
        raise Decline(f"'{m.k.name}' has more dims than '{m.x.name}'")
    aligned = value.reshape((1,) * (len(perm) - value.ndim) + value.shape)
    constant = m.k if value.size == 1 and value.ndim < 2 else np.transpose(aligned, np.argsort(first))
    choice = "drop" if perm == list(range(len(perm))) else "merge"
    turned = m.u.node.input(0) is m.k.tensor
    values = {"K": constant} if choice == "drop" else {"K": constant, "perm": perm}
    return Replacement(f"{choice}_from" if turned else choice, **values)


@rule(
    pattern="""
        a = Transpose(x)<perm=@perm>
        b = Transpose(z)<perm=@perm>
        y = Add|Sub|Mul|Div|Max|Min|And|Or|Xor|Equal|Less|Greater|LessOrEqual|GreaterOrEqual(a, b)
    """,
    rewrite="y = Transpose(@y(x, z)<@y>)<perm=@perm>",
    exactness="exact",
    sets=("shape",),
    opset=(7, None),
)
def merge_transposed_operands(m: Match) -> Replacement:
    """An operation of two tensors that are transposed alike is one Transpose behind it.

    Algebra
        transpose(x) ∘ transpose(z) = transpose(x ∘ z): broadcasting aligns equal ranks axis by axis

    Declines when
        the perm is left out and the ranks are not known to be equal; a transposed tensor is used elsewhere.

    Example
        before:
            g (float[N,2,3] x, float[N,2,3] z) => (float[N,3,2] y) {
                a = Transpose<perm = [0, 2, 1]>(x)
                b = Transpose<perm = [0, 2, 1]>(z)
                y = Add(a, b)
            }
        after:
            g (float[N,2,3] x, float[N,2,3] z) => (float[N,3,2] y) {
                u = Add(x, z)
                y = Transpose<perm = [0, 2, 1]>(u)
            }
    """
    if m.attr("perm") is None and (m.x.rank is None or m.x.rank != m.z.rank):
        raise Decline(f"the ranks of '{m.x.name}' and '{m.z.name}' are not known to be equal")
    if m.a.tensor is m.b.tensor:
        raise Decline
    return Replacement()
