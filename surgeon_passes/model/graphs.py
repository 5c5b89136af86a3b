"""A graph that the user imported with graphsurgeon, as a :class:`Model`."""

from __future__ import annotations

import onnx
import onnx_graphsurgeon as gs

from surgeon_passes.errors import ModelError
from surgeon_passes.index import subgraphs
from surgeon_passes.model.extras import Extras, GraphExtras, Model
from surgeon_passes.model.nested import MAX_DEPTH, too_deep


def model_of_graph(graph: gs.Graph) -> Model:
    """Wrap ``graph``; each body's own constants are told from those it captures.

    graphsurgeon does not say which graph owns a constant: one whose name stands for several tensors belongs to the body
    that reads it, any other to the main graph.
    """
    extras = Extras()
    named: dict[str, set[int]] = {}
    bodies = [graph, *_all_bodies(graph)]
    for body in bodies:
        for constant in _constants(body):
            named.setdefault(constant.name, set()).add(id(constant))
    for body in bodies:
        own = [] if body is graph else [c for c in _constants(body) if len(named[c.name]) > 1]
        extras.graphs[id(body)] = GraphExtras(onnx.GraphProto(), constants=own)
    return Model(graph, extras, graph.name or "the graph")


def check_depth(graph: gs.Graph, name: str) -> None:
    """Raise ModelError where bodies are nested deeper than a file can hold them."""
    depth = 0
    level = [graph]
    while level:
        if depth > MAX_DEPTH:
            raise ModelError(too_deep(name))
        level = [body for outer in level for node in outer.nodes for _, body in subgraphs(node)]
        depth += 1


def _all_bodies(graph: gs.Graph) -> list[gs.Graph]:
    found: list[gs.Graph] = []
    todo = [graph]
    while todo:
        for node in todo.pop().nodes:
            for _, body in subgraphs(node):
                found.append(body)
                todo.append(body)
    return found


def _constants(graph: gs.Graph) -> list[gs.Constant]:
    found = {id(t): t for n in graph.nodes for t in n.inputs if isinstance(t, gs.Constant)}
    found.update({id(t): t for t in graph.outputs if isinstance(t, gs.Constant)})
    return list(found.values())
