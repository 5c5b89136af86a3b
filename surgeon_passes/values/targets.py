"""The constant target that says what a partly known Reshape target says."""

from __future__ import annotations

from surgeon_passes.values import dims
from surgeon_passes.values.dims import Dim, Shape
from surgeon_passes.values.lattice import Value, dims_of
from surgeon_passes.values.operands import Unknown
from surgeon_passes.values.shapes.reshape import resolve_target


def static_target(
    input_shape: Shape | None, target: Value, allowzero: bool, output_shape: Shape | None = None
) -> list[int] | None:
    """A constant target, read without allowzero, equal to ``target`` for every legal size; None where there is none.

    ``allowzero`` is how ``target`` itself reads a 0: as an empty dim, which no constant target says, or as a copy.
    ``output_shape`` is what else is known of the result. Known dims are written out; a dim that the input has at the same
    place is 0 (also right for an empty batch); one other dim may be -1, where the others are certainly not empty (beside
    an empty one -1 is an error that the original would not have) and the elements are certainly as many as the input's
    (else the original fails, and -1 would take whatever is left).
    """
    elements = dims_of(target)
    if elements is None:
        return None
    constant = [t for t in elements if isinstance(t, int)]
    if len(constant) == len(elements):
        return None if allowzero and 0 in constant else constant
    try:
        resolved = resolve_target(input_shape, elements, allowzero)
    except Unknown:
        return None
    if output_shape is not None and len(output_shape) == len(resolved):
        resolved = tuple(
            a if isinstance(a, int) or b is None else b for a, b in zip(resolved, output_shape, strict=True)
        )
    found = [_said(k, dim, elements[k], input_shape, allowzero) for k, dim in enumerate(resolved)]
    return _with_one_open(found, resolved, elements, input_shape)


def _said(place: int, dim: Dim, element: Dim, shape: Shape | None, allowzero: bool) -> int | None:
    """A dim as a literal, as 0 where it copies the input's, or None."""
    at = shape[place] if shape is not None and place < len(shape) else None
    if isinstance(dim, int) and dim > 0:
        return dim
    copies = element == 0 and not allowzero
    return 0 if copies or dims.same(dim, at) else None


def _with_one_open(
    found: list[int | None], resolved: Shape, elements: list[Dim], input_shape: Shape | None
) -> list[int] | None:
    open_ = [k for k, t in enumerate(found) if t is None]
    if len(open_) > 1:
        return None
    if open_ and resolved[open_[0]] == 0:
        return None
    if open_ and elements[open_[0]] != -1:
        others = (d for k, d in enumerate(resolved) if k != open_[0])
        if not all(dims.at_least(d, 1) for d in others):
            return None
        if input_shape is None or not dims.same(dims.product(resolved), dims.product(input_shape)):
            return None
    return [-1 if t is None else t for t in found]
