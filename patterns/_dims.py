"""What the rules that move data ask of shapes and of constant integer operands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from surgeon_passes import Decline, Operand
from surgeon_passes.values import Partial, dims, static_target

Dims = Sequence[Any]
INT64_MAX = 2**63 - 1
FAR = 2**31 - 1
"""From here on an end of a Slice means "to the end": no tensor is longer, and ONNX itself advises it."""

POINTWISE = "|".join(
    (
        "Abs|Ceil|Elu|Erf|Exp|Floor|Gelu|HardSigmoid|HardSwish|LeakyRelu|Log|Mish|Neg|Not|Reciprocal|Relu|Round|Selu",
        "Sigmoid|Sign|Softplus|Softsign|Sqrt|Tanh|ThresholdedRelu|Cast",
    )
)
"""Operators of one operand that work on each element by itself, wherever it lies."""


def same(a: Any, b: Any) -> bool:
    """Whether two dims (ints, symbols or None) are certainly equal."""
    return a is not None and b is not None and bool(a == b)


def same_shape(a: Dims | None, b: Dims | None) -> bool:
    """Whether two shapes are certainly the same."""
    return a is not None and b is not None and len(a) == len(b) and all(map(same, a, b))


def require_legal(x: Operand, a: Operand) -> None:
    """That the Reshape, Flatten, Squeeze or Unsqueeze from ``x`` to ``a`` is legal at every size. Raises Decline.

    Where it is not, the original fails at some size; merged into another it would not.
    """
    if a.op in ("Flatten", "Unsqueeze"):
        return
    before, after = (None if t.shape is None else dims.product(t.shape) for t in (x, a))
    if not dims.same(before, after):
        raise Decline(f"'{a.name}' may have other elements than '{x.name}' at some size: there the original fails")


def broadcasts_into(a: Dims | None, b: Dims | None) -> bool:
    """Whether broadcasting a shape with ``b`` certainly gives ``b`` and cannot fail."""
    if a is None or b is None or len(a) > len(b):
        return False
    return all(p == 1 or same(p, q) for p, q in zip(reversed(a), reversed(b), strict=False))


def ints(operand: Operand) -> list[int]:
    """The elements of a constant integer operand."""
    return [int(v) for v in np.asarray(operand.value).ravel()]


def entries(operand: Operand) -> list[Any]:
    """The elements of an integer operand that is known at least in part: ints, symbols and Nones."""
    value = operand.value
    return value.dims() if isinstance(value, Partial) else ints(operand)


def is_open(operand: Operand | None) -> bool:
    """Whether an integer operand is known in part, and not in full."""
    return operand is not None and isinstance(operand.value, Partial)


def places(axes: Iterable[int], rank: int | None) -> set[int] | None:
    """Non-negative axes of a tensor of ``rank``; as written where the rank is unknown and none is negative, else None."""
    found = list(axes)
    if rank is None:
        return set(found) if all(a >= 0 for a in found) else None
    return {a % rank for a in found}


def reshape_target(x: Operand, y: Operand) -> Any:
    """A constant Reshape target that makes y's shape of x, int64 [rank]. Raises Decline where none says it.

    Known dims are written out, one that x has at the same place is 0, one other may be -1, but not both: beside a dim
    that turns out to be 0, -1 is an error that the original would not have.
    """
    shape = y.shape
    if shape is None:
        raise Decline(f"the rank of '{y.name}' is unknown")
    if any(isinstance(d, int) and d == 0 for d in shape):
        raise Decline(f"'{y.name}' is empty")
    wanted = np.empty(len(shape), object)
    wanted[:] = shape
    target = static_target(x.shape, Partial(wanted, np.dtype(np.int64)), allowzero=False)
    if target is None or (-1 in target and 0 in target):
        raise Decline(f"more than one dim of '{y.name}' is not known")
    return np.array(target, np.int64)


def require_absorbed(e: Operand, x: Dims | None, expanded: Dims | None, others: Iterable[Dims | None]) -> None:
    """That broadcasting ``x`` with ``others`` gives the shape that broadcasting ``expanded`` with them gives.

    ``e`` is the Expand or Tile between the two: as it is legal, each dim of x is 1 or the expanded one. Raises Decline.
    """
    shapes = [x, expanded, *others]
    if any(shape is None for shape in shapes):
        raise Decline(f"the rank of '{e.name}', or of what it meets, is unknown")
    own, wide, *rest = ([*shape] for shape in shapes if shape is not None)
    if max(len(own), *map(len, rest)) < len(wide):
        raise Decline(f"'{e.name}' raises the rank of the result")
    for place in range(1, len(wide) + 1):
        small, big = _dim(own, place), wide[-place]
        if same(small, big) or big == 1:
            continue
        if e.op == "Tile" and small != 1:
            raise Decline(f"'{e.name}' repeats an axis that is not known to be of size 1")
        if not any(_fills(_dim(shape, place), big) for shape in rest):
            raise Decline(f"no other operand certainly has dim {big if big is not None else '?'} of '{e.name}'")


def _dim(shape: Dims, place: int) -> Any:
    """A dim counted from the back, 1 where there is none."""
    return shape[-place] if place <= len(shape) else 1


def _fills(dim: Any, wide: Any) -> bool:
    """Whether broadcasting with ``dim`` certainly gives what broadcasting with ``wide`` gives, as the latter is legal."""
    return same(dim, wide)
