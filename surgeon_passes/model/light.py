"""Copies of a ModelProto without its large weights, for tools of onnx that serialise what they are given."""

from __future__ import annotations

import math
import re

import onnx

from surgeon_passes.model.export import SMALL, fill_type
from surgeon_passes.region import TensorType

_SOURCE = re.compile(r"\S+\.(?:h|cc|cpp):\d+:\s*")


def without_weights(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy whose large, external or sparse initializers of the main graph are typed inputs, without functions."""
    light = onnx.ModelProto(ir_version=max(proto.ir_version, 4))
    light.opset_import.extend(proto.opset_import)
    graph, held = proto.graph, light.graph
    held.name = graph.name or "graph"
    held.node.extend(graph.node)
    held.input.extend(graph.input)
    held.output.extend(graph.output)
    held.value_info.extend(graph.value_info)
    listed = {value.name for value in graph.input}
    for tensor in graph.initializer:
        if math.prod(tensor.dims) <= SMALL and tensor.data_location != onnx.TensorProto.EXTERNAL:
            held.initializer.append(tensor)
        elif tensor.name not in listed:
            _declare(held, tensor.name, tensor.data_type, tensor.dims)
    for sparse in graph.sparse_initializer:
        if sparse.values.name not in listed:
            _declare(held, sparse.values.name, sparse.values.data_type, sparse.dims)
    return light


def _declare(graph: onnx.GraphProto, name: str, elem_type: int, dims: object) -> None:
    value = graph.input.add()
    value.name = name
    fill_type(value.type, TensorType(elem_type, tuple(dims)))  # type: ignore[arg-type]


def one_line(error: Exception) -> str:
    """What a tool of onnx says, without the places in its own source."""
    return " ".join(_SOURCE.sub("", str(error)).split())[:300] or type(error).__name__
