"""Set "npu": any Einsum of one operand, of two, or of more, as Transpose, MatMul, Mul, ReduceSum and Reshape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surgeon_passes import Decline, Match, Operand, Replacement, rule

from ._dims import same

SETS = ("npu",)


@dataclass(frozen=True)
class Equation:
    """Letters of the operands and of the result: ``("bij", "bjk")``, ``"bik"``."""

    terms: tuple[str, ...]
    result: str

    @classmethod
    def of(cls, m: Match) -> Equation:
        """Raises Decline for an ellipsis and for a letter that stands twice in one operand."""
        text = str(m.y.attr("equation")).replace(" ", "")
        if "." in text:
            raise Decline(f"'{text}' has an ellipsis")
        left, arrow, result = text.partition("->")
        terms = tuple(left.split(","))
        if not arrow:
            result = "".join(sorted(c for c in set(left) - {","} if left.count(c) == 1))
        twice = next((c for term in terms for c in term if term.count(c) > 1), None)
        if twice is not None:
            raise Decline(f"'{text}' takes a diagonal ('{twice}' stands twice in one operand)")
        return cls(terms, result)

    def __str__(self) -> str:
        return f"{','.join(self.terms)}->{self.result}"

    def used_besides(self, *places: int) -> set[str]:
        """Letters of the result and of the operands at other places."""
        return set(self.result).union(*(set(t) for i, t in enumerate(self.terms) if i not in places))


def _permutation(order: str, wanted: str) -> list[int] | None:
    """What Transpose needs to bring axes in ``order`` to ``wanted``; None where they are."""
    return None if order == wanted else [order.index(c) for c in wanted]


def _without(term: str, letters: str) -> str:
    return "".join(c for c in term if c not in letters)


@rule(
    pattern="y = Einsum(x)",
    rewrite={
        "move": "y = Transpose(x)<perm=@perm>",
        "sum": "y = ReduceSum(x, Axes)<keepdims=0>",
        "both": "y = Transpose(ReduceSum(x, Axes)<keepdims=0>)<perm=@perm>",
        "drop": "y = x",
    },
    exactness="rounding",
    sets=SETS,
    opset=(12, None),
    may_grow=True,
)
def decompose_einsum_of_one(m: Match) -> Replacement:
    """An Einsum of one operand sums over some axes and reorders the others.

    Algebra
        letters that the result lacks are summed over; the others are permuted

    Declines when
        the equation has an ellipsis or takes a diagonal.

    Example
        before:
            g (float[N,M,4] x) => (float[4,N] y) {
                y = Einsum<equation = "nmk->kn">(x)
            }
        after:
            g (float[N,M,4] x) => (float[4,N] y) {
                axes = Constant<value = int64[1] {1}>()
                s = ReduceSum<keepdims = 0>(x, axes)
                y = Transpose<perm = [1, 0]>(s)
            }
    """
    equation = Equation.of(m)
    (term,) = equation.terms
    summed = [i for i, c in enumerate(term) if c not in equation.result]
    perm = _permutation("".join(c for c in term if c in equation.result), equation.result)
    outcome = {(False, False): "drop", (False, True): "move", (True, False): "sum", (True, True): "both"}
    return Replacement(outcome[bool(summed), perm is not None], Axes=summed, perm=perm)


@rule(
    pattern="y = Einsum(a, b, c, rest...)",
    rewrite="y = Einsum(Einsum(a, b)<equation=@first>, c, rest...)<equation=@second>",
    exactness="rounding",
    sets=SETS,
    opset=(12, None),
    may_grow=True,
    recursive=True,
)
def split_einsum(m: Match) -> Replacement:
    """An Einsum of three operands or more is one of the first two, and one of that and the others.

    Algebra
        sums and products associate: letters that only the first two have and the result lacks are summed first

    Declines when
        the equation has an ellipsis or takes a diagonal.

    Example
        before:
            g (float[2,3] a, float[3,4] b, float[4,5] c) => (float[2,5] y) {
                y = Einsum<equation = "ij,jk,kl->il">(a, b, c)
            }
        after:
            g (float[2,3] a, float[3,4] b, float[4,5] c) => (float[2,5] y) {
                p = Einsum<equation = "ij,jk->ik">(a, b)
                y = Einsum<equation = "ik,kl->il">(p, c)
            }
    """
    equation = Equation.of(m)
    kept = equation.used_besides(0, 1)
    joined = "".join(dict.fromkeys(c for c in "".join(equation.terms[:2]) if c in kept))
    first = Equation(equation.terms[:2], joined)
    return Replacement(first=str(first), second=str(Equation((joined, *equation.terms[2:]), equation.result)))


@rule(
    pattern="y = Einsum(a, b)",
    rewrite={
        "first": "y = Einsum(ReduceSum(a, Axes)<keepdims=0>, b)<equation=@equation>",
        "second": "y = Einsum(a, ReduceSum(b, Axes)<keepdims=0>)<equation=@equation>",
    },
    exactness="rounding",
    sets=SETS,
    opset=(12, None),
    may_grow=True,
    recursive=True,
)
def sum_einsum_operand(m: Match) -> Replacement:
    """A letter that one operand alone has, and not the result, is summed before.

    Algebra
        sum_j a[i, j]·b[k] = (sum_j a[i, j])·b[k]

    Declines when
        the equation has an ellipsis or takes a diagonal.

    Example
        before:
            g (float[2,3] a, float[2,4] b) => (float[2,4] y) {
                y = Einsum<equation = "ij,ik->ik">(a, b)
            }
        after:
            g (float[2,3] a, float[2,4] b) => (float[2,4] y) {
                axes = Constant<value = int64[1] {1}>()
                s = ReduceSum<keepdims = 0>(a, axes)
                y = Einsum<equation = "i,ik->ik">(s, b)
            }
    """
    equation = Equation.of(m)
    for place, outcome in enumerate(("first", "second")):
        used = equation.used_besides(place)
        term = equation.terms[place]
        axes = [i for i, c in enumerate(term) if c not in used]
        if axes:
            terms = list(equation.terms)
            terms[place] = "".join(c for c in term if c in used)
            return Replacement(outcome, Axes=axes, equation=str(Equation(tuple(terms), equation.result)))
    raise Decline


# --- two operands --------------------------------------------------------------------------------------------------------


def _texts() -> Mapping[str, str]:
    """Rewrites by name: what is done (mul, matmul, shaped), and whether a, b and the result are permuted."""
    found = {}
    either = (False, True)
    for kind, a, b, y in product(("mul", "matmul", "shaped"), either, either, either):
        left = "Transpose(a)<perm=@to_a>" if a else "a"
        right = "Transpose(b)<perm=@to_b>" if b else "b"
        if kind == "mul":
            if y:
                continue
            text = f"Mul(Reshape({left}, ShapeA), Reshape({right}, ShapeB))"
        elif kind == "matmul":
            text = f"MatMul({left}, {right})"
        else:
            text = f"Reshape(MatMul(Reshape({left}, ShapeA), Reshape({right}, ShapeB)), Shape)"
        found[_name(kind, a, b, y)] = f"y = Transpose({text})<perm=@back>" if y else f"y = {text}"
    return found


def _name(kind: str, a: bool, b: bool, y: bool) -> str:
    return kind + "_a" * a + "_b" * b + "_y" * y


@rule(
    pattern="y = Einsum(a, b)",
    rewrite=_texts(),
    exactness="rounding",
    sets=SETS,
    opset=(12, None),
    may_grow=True,
)
def decompose_einsum(m: Match) -> Replacement:
    """An Einsum of two operands is a MatMul between permutations and reshapes; without a common sum it is a Mul.

    Algebra
        letters of both operands and the result are batch; of both alone are summed; of one and the result are rows or
        columns: y[batch, rows, columns] = sum a[batch, rows, summed]·b[batch, summed, columns]

    Declines when
        the equation has an ellipsis or takes a diagonal, or a letter that one operand alone has is summed (another rule
        does that first);
        a summed size may be 1 in one operand and broadcast;
        two sizes that a Reshape would have to say are unknown.

    Example
        before:
            g (float[B,Q,2,4] a, float[B,K,2,4] b) => (float[B,2,Q,K] y) {
                y = Einsum<equation = "bqhd,bkhd->bhqk">(a, b)
            }
        after:
            g (float[B,Q,2,4] a, float[B,K,2,4] b) => (float[B,2,Q,K] y) {
                p = Transpose<perm = [0, 2, 1, 3]>(a)
                q = Transpose<perm = [0, 2, 3, 1]>(b)
                y = MatMul(p, q)
            }
    """
    equation = Equation.of(m)
    left, right = equation.terms
    if set(left) - equation.used_besides(0) or set(right) - equation.used_besides(1):
        raise Decline
    batch = "".join(c for c in equation.result if c in left and c in right)
    summed = "".join(c for c in left if c in right and c not in equation.result)
    sizes = _sizes(m, equation, summed)
    if not summed:
        return _product(m, equation)
    rows, columns = _without(left, batch + summed), _without(right, batch + summed)
    rows, columns = ("".join(c for c in equation.result if c in part) for part in (rows, columns))
    found: dict[str, Any] = {
        "to_a": _permutation(left, batch + rows + summed),
        "to_b": _permutation(right, batch + summed + columns),
        "back": _permutation(batch + rows + columns, equation.result),
    }
    kind = "matmul" if len(rows) == len(columns) == len(summed) == 1 else "shaped"
    if kind == "shaped":
        copied = [0] * len(batch)
        found["ShapeA"] = _target([*copied, _size(sizes, rows), _size(sizes, summed)], equation)
        found["ShapeB"] = _target([*copied, _size(sizes, summed), _size(sizes, columns)], equation)
        found["Shape"] = _target([*copied, *(sizes[c] for c in rows + columns)], equation)
    a, b, y = (found[key] is not None for key in ("to_a", "to_b", "back"))
    return Replacement(_name(kind, a, b, y), **found)


def _product(m: Match, equation: Equation) -> Replacement:
    """Nothing is summed: both operands in the order of the result, with ones for what they lack.

    The sizes are each operand's own: what is 1 in one of them is broadcast by Mul.
    """
    found: dict[str, Any] = {}
    moved = []
    for side, operand, term in zip("AB", (m.a, m.b), equation.terms, strict=True):
        own = dict(zip(term, _shape(operand, term), strict=True))
        wanted = "".join(c for c in equation.result if c in term)
        found[f"to_{side.lower()}"] = perm = _permutation(term, wanted)
        moved.append(perm is not None)
        dims: list[Any] = []
        for place, letter in enumerate(equation.result):
            if letter not in term:
                dims.append(1)
            else:
                dims.append(0 if wanted.index(letter) == place else own[letter])
        found[f"Shape{side}"] = _target(dims, equation)
    a, b = moved
    return Replacement(_name("mul", a, b, False), **found)


def _sizes(m: Match, equation: Equation, summed: str) -> dict[str, Any]:
    """Dims by letter (ints, symbols, None). Raises Decline where a rank is unknown or a sum may broadcast."""
    found: dict[str, Any] = {}
    for operand, term in zip((m.a, m.b), equation.terms, strict=True):
        shape = _shape(operand, term)
        for letter, dim in zip(term, shape, strict=True):
            held = found.setdefault(letter, dim)
            if letter in summed and letter in equation.terms[0] and not same(held, dim):
                raise Decline(f"'{letter}' of {equation} may be broadcast: its two sizes are not known to be equal")
            if not isinstance(held, int) or held == 1:
                found[letter] = dim if isinstance(dim, int) and dim != 1 else held
    return found


def _shape(operand: Operand, term: str) -> Sequence[Any]:
    shape = operand.shape
    if shape is None or len(shape) != len(term):
        raise Decline(f"the rank of '{operand.name}' is unknown")
    return shape


def _size(sizes: Mapping[str, Any], letters: str) -> Any:
    """The product of some sizes; None where one is unknown."""
    found = [sizes[c] for c in letters]
    return prod(found) if all(isinstance(d, int) for d in found) else None


def _target(dims: Sequence[Any], equation: Equation) -> NDArray[np.int64]:
    """Dims for Reshape (0 copies), one of which may be unknown. Raises Decline for more, and for an empty tensor."""
    found = [d if isinstance(d, int) else -1 for d in dims]
    if found.count(-1) > 1:
        raise Decline(f"two sizes that a Reshape would have to say are unknown in {equation}")
    return np.array(found, np.int64)
