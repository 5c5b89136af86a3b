"""Products of matrices."""

from __future__ import annotations

from collections.abc import Sequence

from surgeon_passes.values import dims
from surgeon_passes.values.dims import Dim, Shape
from surgeon_passes.values.operands import Operands, Unknown
from surgeon_passes.values.registry import shape_of
from surgeon_passes.values.shapes.broadcast import broadcast


@shape_of("MatMul", "MatMulInteger")
def matmul(n: Operands) -> Sequence[Shape | None]:
    return [product(n.known_shape(0), n.known_shape(1))]


@shape_of("QLinearMatMul")
def qlinear_matmul(n: Operands) -> Sequence[Shape | None]:
    return [product(n.known_shape(0), n.known_shape(3))]


def product(a: Shape, b: Shape) -> Shape:
    """numpy.matmul: vectors get a 1 that the result loses again; leading dims broadcast."""
    if not a or not b:
        raise Unknown
    rows = a[-2:-1]
    columns = b[-1:] if len(b) > 1 else ()
    return broadcast(a[:-2], b[:-2]) + rows + columns


@shape_of("Gemm")
def gemm(n: Operands) -> Sequence[Shape | None]:
    """Of matrices; what a runtime makes of a vector is its own affair."""
    a, b = n.known_shape(0), n.known_shape(1)
    if len(a) != 2 or len(b) != 2:
        raise Unknown
    return [(a[1] if n.attr("transA", 0) else a[0], b[0] if n.attr("transB", 0) else b[1])]


@shape_of("Einsum")
def einsum(n: Operands) -> Sequence[Shape | None]:
    """Equations without an ellipsis."""
    equation = str(n.attr("equation")).replace(" ", "")
    if "." in equation:
        raise Unknown
    inputs, arrow, output = equation.partition("->")
    terms = inputs.split(",")
    sizes: dict[str, Dim] = {}
    for term, entry in zip(terms, n.types(), strict=True):
        shape = dims.type_shape(entry)
        for letter, dim in zip(term, shape if shape is not None else (None,) * len(term), strict=True):
            sizes[letter] = better(sizes.get(letter), dim)
    letters = "".join(terms)
    chosen = output if arrow else "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    return [tuple(sizes[letter] for letter in chosen)]


def better(a: Dim, b: Dim) -> Dim:
    """Of two statements about one dim the one that says more. (Einsum may broadcast a 1.)"""
    if a is None or a == 1:
        return b if b is not None else a
    return b if isinstance(b, int) and b != 1 else a
