"""What is still dynamic: plain facts about a result, and counts that are read off model files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import onnx

from surgeon_passes.model.nested import bodies
from surgeon_passes.ops.traits import SHAPE_READERS, SIZE_ARGUMENTS

COUNTED = ("Reshape", "Slice", "Expand", "Resize")
"""Operators whose computed size arguments the report counts before and after."""


class Names(Sequence[str]):
    """A tuple of names that is made when it is read: of a chain of sources, all together are quadratic in its length."""

    def __init__(self, make: Callable[[], tuple[str, ...]]) -> None:
        self._make = make

    @cached_property
    def names(self) -> tuple[str, ...]:
        return self._make()

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[str, ...]: ...
    def __getitem__(self, place: int | slice) -> str | tuple[str, ...]:
        return self.names[place]

    def __len__(self) -> int:
        return len(self.names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (Names, tuple)) and self.names == tuple(other)

    def __hash__(self) -> int:
        return hash(self.names)

    def __repr__(self) -> str:
        return repr(self.names)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, as ``dataclasses.asdict`` and pickle make them, is the tuple itself."""
        return tuple, (self.names,)


@dataclass(frozen=True, slots=True)
class DataDependent:
    """An operator whose output size depends on data. ``tensors``: what has no known size because of it, itself first."""

    node: str
    op: str
    graph: str
    """path of the scope; "" is the main graph"""
    reason: str
    tensors: Sequence[str]


@dataclass(frozen=True, slots=True)
class ShapeDependent:
    """A node that computes with sizes when the model runs. ``needs``: what would have to be fixed, inputs' dims first."""

    node: str
    op: str
    graph: str
    reason: str
    needs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnknownSize:
    """An operator whose sizes nobody here can tell: custom ones, sequences, some bodies."""

    node: str
    op: str
    graph: str
    reason: str
    tensors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Dynamic:
    """What of a result is not static, and why."""

    data_dependent: tuple[DataDependent, ...] = ()
    shape_dependent: tuple[ShapeDependent, ...] = ()
    unknown: tuple[UnknownSize, ...] = ()


@dataclass(frozen=True, slots=True)
class FileCounts:
    """Of a model file. "Dynamic" is a tensor that has a dim without a fixed size, or no shape.

    ``computed``: by operator, nodes whose size argument is neither an initializer nor a Constant.
    """

    initializers: int
    inputs: int
    outputs: int
    value_info: int
    stated: int
    """all entries of value_info"""
    shape_nodes: int
    computed: Counter[str]


def count_file(proto: onnx.ModelProto) -> FileCounts:
    """Count over the graph, its bodies and functions; overridable initializers are no inputs."""
    held = {t.name for t in proto.graph.initializer}
    computed: Counter[str] = Counter()
    initializers = readers = dynamic = stated = 0
    for graph, constants in _graphs(proto):
        infos = list(getattr(graph, "value_info", ()))
        initializers += len(getattr(graph, "initializer", ())) + len(getattr(graph, "sparse_initializer", ()))
        stated += len(infos)
        dynamic += sum(not is_static(v) for v in infos)
        for node in graph.node:
            readers += node.op_type in SHAPE_READERS and node.domain in ("", "ai.onnx")
            if node.op_type in COUNTED and _computes_size(node, constants):
                computed[node.op_type] += 1
    return FileCounts(
        initializers=initializers,
        inputs=sum(not is_static(v) for v in proto.graph.input if v.name not in held),
        outputs=sum(not is_static(v) for v in proto.graph.output),
        value_info=dynamic,
        stated=stated,
        shape_nodes=readers,
        computed=computed,
    )


def is_static(value: onnx.ValueInfoProto | None) -> bool:
    """Whether all dims of a tensor are fixed numbers."""
    if value is None or value.type.WhichOneof("value") != "tensor_type":
        return False
    shape = value.type.tensor_type
    return shape.HasField("shape") and all(d.HasField("dim_value") for d in shape.shape.dim)


def _computes_size(node: onnx.NodeProto, constants: frozenset[str]) -> bool:
    places = [p for p in SIZE_ARGUMENTS[node.op_type] if p < len(node.input)]
    return node.domain in ("", "ai.onnx") and any(node.input[p] and node.input[p] not in constants for p in places)


def _graphs(proto: onnx.ModelProto) -> Iterator[tuple[Any, frozenset[str]]]:
    """Every graph, body and function with the names of the constants that it can see."""
    todo: list[tuple[Any, frozenset[str]]] = [(g, frozenset()) for g in (proto.graph, *proto.functions)]
    given = {v.name for v in proto.graph.input} if proto.ir_version >= 4 else set()
    while todo:
        graph, seen = todo.pop()
        own = {t.name for t in getattr(graph, "initializer", ())} - (given if graph is proto.graph else set())
        seen = seen | own | {n.output[0] for n in graph.node if n.op_type == "Constant" and n.output}
        yield graph, seen
        for node in graph.node:
            todo += [(body, seen) for body in bodies(node)]
