"""Dynamic dims of the inputs to fixed sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import onnx_graphsurgeon as gs

from surgeon_passes.errors import UsageError
from surgeon_passes.passes.base import Pass
from surgeon_passes.passes.state import State

LARGEST = 1 << 31
Sizes = Mapping[str, int]
Shape = Sequence[int] | Sizes


@dataclass(frozen=True)
class Specialize(Pass):
    """Give inputs fixed sizes: a full shape, or sizes for some of its dim names.

    Dims that share a name must agree. Raises UsageError, naming both sides, for an unknown input or dim name, a wrong
    rank, or a size that contradicts the model's own or another input's.
    """

    name: ClassVar[str] = "specialize"
    once: ClassVar[bool] = True
    shapes: Mapping[str, Shape] = field(default_factory=dict)

    def __post_init__(self) -> None:
        plain = {name: dict(s) if isinstance(s, Mapping) else _tuple(s) for name, s in self.shapes.items()}
        object.__setattr__(self, "shapes", plain)

    def run(self, state: State) -> bool:
        if not self.shapes:
            return False
        inputs = {t.name: t for t in state.graph.inputs}
        sizes: dict[str, tuple[int, str]] = {}
        fixed: dict[str, list[Any]] = {}
        for name, wanted in self.shapes.items():
            if name not in inputs:
                raise UsageError(f"the model has no input '{name}' (its inputs: {', '.join(inputs) or 'none'})")
            fixed[name] = _resolve(inputs[name], _whole(name, wanted), sizes)
        for tensor in state.graph.inputs:
            if isinstance(tensor.shape, (list, tuple)):
                shape = fixed.get(tensor.name, list(tensor.shape))
                now = [sizes[d][0] if isinstance(d, str) and d in sizes else d for d in shape]
                state.model.extras.resized |= now != list(tensor.shape)
                tensor.shape = now
        for tensor in state.graph.outputs:
            if isinstance(tensor, gs.Variable) and isinstance(tensor.shape, (list, tuple)):
                tensor.shape = [sizes[d][0] if isinstance(d, str) and d in sizes else d for d in tensor.shape]
        state.rebuild()
        _settle_outputs(state)
        return True


def _tuple(sizes: Any) -> Any:
    """Sizes as a tuple, so that equal passes are equal; what is none is left for :func:`_resolve` to tell."""
    return tuple(sizes) if isinstance(sizes, Sequence) and not isinstance(sizes, str) else sizes


def _resolve(tensor: gs.Variable, wanted: Shape, sizes: dict[str, tuple[int, str]]) -> list[Any]:
    if tensor.shape is None:
        if isinstance(wanted, Mapping):
            raise UsageError(f"input '{tensor.name}' has no rank in the model: give its whole shape, not dim names")
        return [_size(tensor.name, s) for s in wanted]
    shape = list(tensor.shape)
    by_position = _by_name(tensor, wanted, shape) if isinstance(wanted, Mapping) else _by_place(tensor, wanted, shape)
    for place, size in by_position.items():
        dim = shape[place]
        if isinstance(dim, int) and dim != size:
            raise UsageError(f"input '{tensor.name}': dim {place} is {dim} in the model, {size} was asked for")
        if isinstance(dim, str):
            known, source = sizes.setdefault(dim, (size, tensor.name))
            if known != size:
                raise UsageError(
                    f"dim '{dim}' is {known} by input '{source}' and {size} by input '{tensor.name}': they must agree"
                )
        shape[place] = size
    return shape


def _whole(name: str, wanted: Any) -> Shape:
    """Raises UsageError for what is neither sizes nor sizes by name."""
    if isinstance(wanted, str) or not isinstance(wanted, (Mapping, Sequence)):
        raise UsageError(
            f"input '{name}': {wanted!r} is no shape; give sizes, as [1, 3, 64], or some by name, as {{N: 1}}"
        )
    return wanted


def _by_place(tensor: gs.Variable, wanted: Sequence[int], shape: list[Any]) -> dict[int, int]:
    if len(wanted) != len(shape):
        given = ",".join(map(str, wanted))
        raise UsageError(
            f"input '{tensor.name}' has rank {len(shape)} {_show(shape)} in the model; "
            f"{len(wanted)} sizes were given ({given})"
        )
    return {place: _size(tensor.name, size) for place, size in enumerate(wanted)}


def _by_name(tensor: gs.Variable, wanted: Sizes, shape: list[Any]) -> dict[int, int]:
    found: dict[int, int] = {}
    for name, size in wanted.items():
        places = [i for i, d in enumerate(shape) if d == name]
        if not places:
            raise UsageError(f"input '{tensor.name}' has no dim '{name}' (its dims: {_show(shape)})")
        found.update(dict.fromkeys(places, _size(tensor.name, size)))
    return found


def _size(name: str, size: Any) -> int:
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < LARGEST:
        raise UsageError(f"input '{name}': {size!r} is not a size; give whole numbers from 0 to {LARGEST - 1}")
    return size


def _show(shape: list[Any]) -> str:
    return "[" + ", ".join("?" if d is None else str(d) for d in shape) + "]"


def _settle_outputs(state: State) -> None:
    """Dims of the outputs that are fixed by now are written out; a declared dim that cannot hold is replaced."""
    for tensor in state.graph.outputs:
        if not isinstance(tensor, gs.Variable):
            continue
        shape = state.types.type_of(tensor).shape
        if shape is None or tensor.shape is None or len(shape) != len(tensor.shape):
            continue
        tensor.shape = [d if isinstance(d, int) else old for d, old in zip(shape, tensor.shape, strict=True)]
