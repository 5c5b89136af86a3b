"""Names must be text: protobuf reads what is not UTF-8 as bytes, and would not write it again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import onnx

from surgeon_passes.errors import ModelError
from surgeon_passes.model.nested import MAX_DEPTH, bodies, too_deep


def check_text(proto: onnx.ModelProto, name: str) -> None:
    """Raise ModelError, showing it, where a name of the graph, its bodies or a function is not UTF-8.

    Also where bodies are nested deeper than a file can hold them.
    """
    for text in chain(_graph(proto.graph, name, 0), *(_function(f, name) for f in proto.functions)):
        if type(text) is not str:
            raise ModelError(f"{name}: not a valid model: a name in it is not UTF-8 text: {text!r}")


def _function(function: onnx.FunctionProto, name: str) -> Iterator[Any]:
    yield from (function.name, function.domain, *function.input, *function.output, *function.attribute)
    yield from _nodes(function.node, name, 0)


def _graph(graph: onnx.GraphProto, name: str, depth: int) -> Iterator[Any]:
    if depth > MAX_DEPTH:
        raise ModelError(too_deep(name))
    yield graph.name
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield value.name
        for dim in value.type.tensor_type.shape.dim:
            yield dim.dim_param
    for tensor in graph.initializer:
        yield tensor.name
    yield from _nodes(graph.node, name, depth)


def _nodes(nodes: Iterable[onnx.NodeProto], name: str, depth: int) -> Iterator[Any]:
    for node in nodes:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        for attribute in node.attribute:
            yield attribute.name
        for body in bodies(node):
            yield from _graph(body, name, depth + 1)
