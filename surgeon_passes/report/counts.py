"""Nodes, operators and bytes of a graph. A node is one of the graph, its bodies and functions; Constants do not count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import onnx_graphsurgeon as gs

from surgeon_passes.index import subgraphs


@dataclass(frozen=True)
class Counts:
    """``bytes`` are those of all constants."""

    nodes: int
    constants: int
    bytes: int
    operators: Counter[str]


def count(graph: gs.Graph) -> Counts:
    operators: Counter[str] = Counter()
    constants: dict[int, int] = {}
    for body in _graphs(graph):
        for node in body.nodes:
            if node.op == "Constant":
                value = node.attrs.get("value")
                constants[id(node)] = int(value._values.nbytes) if isinstance(value, gs.Constant) else 8
            else:
                operators[f"{node.domain}.{node.op}" if node.domain else node.op] += 1
            for tensor in node.inputs:
                if isinstance(tensor, gs.Constant):
                    constants[id(tensor)] = int(tensor._values.nbytes)
    return Counts(operators.total(), len(constants), sum(constants.values()), operators)


def _graphs(graph: gs.Graph) -> Iterator[gs.Graph]:
    todo = [graph, *graph.functions]
    while todo:
        body = todo.pop()
        yield body
        todo.extend(inner for node in body.nodes for _, inner in subgraphs(node))
