"""Graphs inside nodes of a ModelProto: bodies of If, Loop and Scan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx
from onnx import AttributeProto

MAX_DEPTH = 31
"""Bodies in one another that protobuf can read again."""


def too_deep(name: str) -> str:
    """What is said of a model with deeper ones."""
    return f"{name}: bodies are nested more than {MAX_DEPTH} deep, which no file can hold; make functions of the inner ones"


def graphs_in(attribute: AttributeProto) -> list[onnx.GraphProto]:
    """The graphs that an attribute holds."""
    kind = attribute.type
    if kind == AttributeProto.GRAPH:
        return [attribute.g]
    return list(attribute.graphs) if kind in (AttributeProto.GRAPHS, AttributeProto.UNDEFINED) else []


def bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs that a node holds, in the order of its attributes."""
    for attribute in node.attribute:
        yield from graphs_in(attribute)


def every_node(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Nodes and, at any depth, those of their bodies; in no order."""
    todo = list(nodes)
    while todo:
        node = todo.pop()
        yield node
        todo.extend(inner for body in bodies(node) for inner in body.node)


def count_nodes(proto: onnx.ModelProto) -> int:
    """Nodes of graph, bodies and functions, Constants not counted."""
    nodes = (*every_node(proto.graph.node), *(n for f in proto.functions for n in every_node(f.node)))
    return sum(n.op_type != "Constant" for n in nodes)
