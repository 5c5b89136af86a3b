"""Regions from ONNX text: before and after share the tensors of equal name that neither makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from onnx import TensorProto, helper

from surgeon_passes.index import Scope
from surgeon_passes.region import Exactness, NodeImage, Region, TensorType

FLOAT = TensorProto.FLOAT


class Sym:
    """``factor * name + offset``."""

    def __init__(self, name: str, factor: int = 1, offset: int = 0) -> None:
        self.name, self.factor, self.offset = name, factor, offset

    def symbols(self) -> frozenset[str]:
        return frozenset({self.name})

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        return self.factor * sizes[self.name] + self.offset

    def __str__(self) -> str:
        return f"{self.factor}*{self.name}+{self.offset}"


class Known:
    """Types by tensor name."""

    def __init__(self, types: Mapping[str, TensorType]) -> None:
        self.types = types

    def type_of(self, tensor: gs.Tensor) -> TensorType:
        return self.types.get(tensor.name, TensorType())


def typed(**types: tuple[int, Sequence[object] | None]) -> Known:
    return Known({n: TensorType(d, None if s is None else tuple(s)) for n, (d, s) in types.items()})  # type: ignore[arg-type]


def graph_of(opset: int = 17, functions: Sequence[gs.Function] = ()) -> gs.Graph:
    graph = gs.Graph(opset=opset)
    graph.ir_version = 8
    graph.functions = list(functions)
    return graph


def nodes_of(text: str, tensors: dict[str, gs.Tensor]) -> list[NodeImage]:
    """One node a line, ``y = Op<a: int = 1>(x)`` as onnx.parser reads them."""
    images = []
    for line in filter(None, (part.strip() for part in text.splitlines())):
        proto = onnx.parser.parse_node(line)
        for name in (*proto.input, *proto.output):
            if name and name not in tensors:
                tensors[name] = gs.Variable(name)
        attrs = {a.name: _attribute(a) for a in proto.attribute}
        empty = gs.Variable.empty()
        inputs = tuple(tensors[n] if n else empty for n in proto.input)
        outputs = tuple(tensors[n] if n else empty for n in proto.output)
        node = gs.Node(
            proto.op_type, proto.output[0] + "_node", attrs, list(inputs), list(outputs), proto.domain or None
        )
        images.append(NodeImage(node, inputs, outputs))
    return images


def _attribute(attribute: onnx.AttributeProto) -> object:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, TensorProto):
        return gs.Constant(attribute.name, onnx.numpy_helper.to_array(value))
    return value.decode() if isinstance(value, bytes) else value


def region(
    before: str,
    after: str,
    outputs: Sequence[tuple[str, str]] = (("y", "y2"),),
    constants: Mapping[str, np.ndarray] | None = None,
    exactness: Exactness = Exactness.ROUNDING,
    opset: int = 17,
    cone: str = "",
    tensors: dict[str, gs.Tensor] | None = None,
    domains: Mapping[str, int] | None = None,
) -> Region:
    """Tensors of one name are one tensor; write ``y2`` for what replaces ``y``."""
    tensors = {} if tensors is None else tensors
    for name, value in (constants or {}).items():
        tensors[name] = gs.Constant(name, np.asarray(value))
    scope = Scope(graph_of(opset), "", opsets={"": opset, **(domains or {})})
    first, second, third = (nodes_of(t, tensors) for t in (before, after, cone))
    for pair in outputs:
        for name in pair:
            tensors.setdefault(name, gs.Variable(name))
    pairs = tuple((tensors[a], tensors[b]) for a, b in outputs)
    return Region(scope, tuple(first), tuple(second), pairs, exactness, tuple(third))
