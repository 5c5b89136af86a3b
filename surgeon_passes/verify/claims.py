"""Sizes that regions take for given, held against a run of the original.

A region's inputs have the sizes that the types say: what follows from a wrong one is wrong on both sides, and looks equal.
Where a Shape or Size reads an input, its size is what the region is about.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import onnx
import onnx_graphsurgeon as gs

from surgeon_passes.ops.traits import SHAPE_READERS, SIZE_ARGUMENTS
from surgeon_passes.region import TensorType, Types
from surgeon_passes.verify.sides import Sides

Sizes = Mapping[str, int]
"""dims by their name"""
Observed = tuple[Sizes, Mapping[str, tuple[int, ...]]]
"""of one run: what the named dims of the inputs were, and shapes by tensor"""


def claimed(sides: Sides) -> list[gs.Tensor]:
    """Boundary tensors of the main graph whose size a Shape or Size reads. Names of functions and bodies are their own."""
    if sides.region.scope.parent is not None or sides.region.scope.is_function:
        return []
    made = {id(t) for image in sides.images() for t in image.outputs}
    read = (image.inputs[0] for image in sides.images() if image.node.op in SHAPE_READERS and not image.node.domain)
    found = {id(t): t for t in read if t.name and not isinstance(t, gs.Constant) and id(t) not in made}
    return list(found.values())


def contradiction(tensors: Iterable[gs.Tensor], types: Types, observed: Sequence[Observed]) -> tuple[str, str]:
    """(tensor, reason) of the first that has another size in a run than its type says; ("", "") where there is none."""
    for tensor in tensors:
        for sizes, shapes in observed:
            actual = shapes.get(str(tensor.name))
            if actual is not None and not _agrees(types.type_of(tensor), actual, sizes):
                known = [str(d) if d is not None else "?" for d in types.type_of(tensor).shape or ()]
                return str(tensor.name), f"'{tensor.name}' is taken for [{', '.join(known)}], and has {list(actual)}"
    return "", ""


def _agrees(entry: TensorType, actual: tuple[int, ...], sizes: Sizes) -> bool:
    if entry.shape is None:
        return True
    if len(entry.shape) != len(actual):
        return False
    return all(_dim(d, sizes, have) == have for d, have in zip(entry.shape, actual, strict=True))


def _dim(dim: object, sizes: Sizes, default: int) -> int:
    """The dim at these sizes; ``default`` where they do not tell it."""
    if dim is None or isinstance(dim, int):
        return default if dim is None else dim
    symbols = dim.symbols()  # type: ignore[attr-defined]
    return int(dim.evaluate(sizes)) if symbols <= sizes.keys() else default  # type: ignore[attr-defined]


# --- seeing shapes -------------------------------------------------------------------------------------------------------

_SUFFIX = "~shape"


def may_be_asked(model: onnx.ModelProto) -> list[str]:
    """Tensors of the main graph, made by nodes, whose size a region may read: what a Shape or Size reads, and what an
    operator of a computed size works on, since a rule may read the size there; each once."""
    made = {name: node.op_type for node in model.graph.node for name in node.output if name}
    own = [node for node in model.graph.node if not node.domain]
    read = [node.input[0] for node in own if node.op_type in SHAPE_READERS]
    if not read:
        return []
    for node in own:
        places = SIZE_ARGUMENTS.get(node.op_type, {})
        if any(made.get(name, "Constant") != "Constant" for k, name in enumerate(node.input) if k in places):
            read.append(node.input[0])
    return list(dict.fromkeys(name for name in read if name in made))


def with_shapes(model: onnx.ModelProto, names: Sequence[str]) -> tuple[onnx.ModelProto, list[str]]:
    """A copy whose outputs are, besides its own, the shapes of these tensors; and the names that they come by.

    Each Shape stands right behind what makes its tensor. Run with ``shapes_first``, no tensor lives longer for it.
    """
    seen = onnx.ModelProto()
    seen.CopyFrom(model)
    del seen.graph.node[:]
    suffix = _unused_suffix(model, names)
    wanted = dict.fromkeys(names)
    for node in model.graph.node:
        seen.graph.node.append(node)
        seen.graph.node.extend(_shape_of(name, suffix) for name in node.output if name in wanted)
    outputs = [f"{name}{suffix}" for name in names]
    seen.graph.output.extend(onnx.ValueInfoProto(name=output) for output in outputs)
    return seen, outputs


def _shape_of(name: str, suffix: str) -> onnx.NodeProto:
    return onnx.helper.make_node("Shape", [name], [f"{name}{suffix}"])


def _unused_suffix(model: onnx.ModelProto, names: Sequence[str]) -> str:
    taken = {name for node in model.graph.node for name in node.output}
    suffix = _SUFFIX
    while any(f"{name}{suffix}" in taken for name in names):
        suffix += "~"
    return suffix


def as_shape(value: Any) -> tuple[int, ...]:
    """What a Shape gave."""
    return tuple(map(int, value))


def sizes_of(model: onnx.ModelProto, feeds: Mapping[str, object]) -> dict[str, int]:
    """The named dims of the inputs on these feeds."""
    return {name: size for value in model.graph.input for name, size in _named(value, feeds.get(value.name))}


def _named(value: onnx.ValueInfoProto, fed: object) -> Iterator[tuple[str, int]]:
    shape: Sequence[int] = getattr(fed, "shape", ())
    for dim, size in zip(value.type.tensor_type.shape.dim, shape, strict=False):
        if dim.dim_param:
            yield dim.dim_param, int(size)
