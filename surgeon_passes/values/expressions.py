"""A vector of sizes as an expression over the shapes of tensors that are there.

An expression is a nested tuple, so that equal ones are one: :class:`Const`, :class:`ShapeOf`, :class:`Pick`,
:class:`Join` and :class:`Apply`. Its cost is the number of its distinct parts that are nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from surgeon_passes.values.dims import Dim
from surgeon_passes.values.symbols import Poly

Vector = tuple["int | Poly", ...]
MAX_LENGTH = 12


@dataclass(frozen=True, slots=True)
class Const:
    """int64 numbers; ``scalar``: of rank 0."""

    values: tuple[int, ...]
    scalar: bool = False


@dataclass(frozen=True, slots=True)
class ShapeOf:
    """Dims ``start`` to ``end`` of source number ``source``; ``whole`` where those are all."""

    source: int
    start: int
    end: int
    whole: bool


@dataclass(frozen=True, slots=True)
class Pick:
    """Elements of a vector, in any order; a scalar where ``scalar`` (then there is one)."""

    vector: Expression
    places: tuple[int, ...]
    scalar: bool = False


@dataclass(frozen=True, slots=True)
class Join:
    """Vectors, one after the other."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Apply:
    """An elementwise operator of ONNX: Add, Sub, Mul, Div, Mod, Min or Max."""

    op: str
    first: Expression
    second: Expression


@dataclass(frozen=True, slots=True)
class Scalar:
    """The one element of a vector, as a scalar."""

    vector: Expression


Expression = Const | ShapeOf | Pick | Join | Apply | Scalar


def operands(expression: Expression) -> tuple[Expression, ...]:
    """The expressions that one is made of."""
    match expression:
        case Pick(vector=inner) | Scalar(vector=inner):
            return (inner,)
        case Join(parts=parts):
            return parts
        case Apply(first=first, second=second):
            return (first, second)
    return ()


@lru_cache(maxsize=1 << 14)
def nodes_of(expression: Expression) -> frozenset[Expression]:
    """The distinct parts that are nodes: all but constants."""
    found: set[Expression] = set()
    todo = [expression]
    while todo:
        part = todo.pop()
        if part not in found and not isinstance(part, Const):
            found.add(part)
            todo.extend(operands(part))
    return frozenset(found)


def complete(elements: Sequence[Dim]) -> Vector | None:
    """The elements, where each is known or symbolic."""
    found = tuple(d for d in elements if d is not None)
    return found if len(found) == len(elements) else None
