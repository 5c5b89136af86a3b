"""A rule's own example, on tensors of the graph where they fit."""

from __future__ import annotations

from ..examples import Dims, Example, dtype_of, examples
from ..fragment import Fragment, Pair, Tensor
from ..grow import Grower


def example(grower: Grower, names: tuple[str, ...]) -> tuple[Fragment, Example]:
    """One of the examples of the rules called so."""
    name = grower.choices.pick(names)
    found = examples()[name]
    bound: dict[str, Pair] = {}
    inputs = {n: _operand(grower, kind, dims, bound) for n, kind, dims in found.inputs}
    constants = dict(found.constants)
    return Fragment(list(found.nodes), inputs, list(found.outputs), constants, source=name), found


def _operand(grower: Grower, kind: int, dims: Dims, bound: dict[str, Pair]) -> Tensor:
    def fresh() -> tuple[Pair, ...]:
        for d in dims:
            if isinstance(d, str) and d not in bound:
                bound[d] = grower.some_dim()
        return tuple(grower.whole(d) if isinstance(d, int) else bound[d] for d in dims)

    def fits(tensor: Tensor) -> bool:
        return _unified(grower, tensor, dims, bound) is not None

    tensor = grower.tensor(fits, fresh, dtype_of(kind))
    bound.update(_unified(grower, tensor, dims, bound) or {})
    return tensor


def _unified(grower: Grower, tensor: Tensor, dims: Dims, bound: dict[str, Pair]) -> dict[str, Pair] | None:
    """What the dims' names stand for where ``tensor`` is read; None where it does not fit."""
    if tensor.rank != len(dims):
        return None
    found = dict(bound)
    for want, have in zip(dims, tensor.dims, strict=True):
        expected = grower.whole(want) if isinstance(want, int) else found.setdefault(want, have)
        if expected != have:
            return None
    return found
