"""A result into the graph that a user handed over: what survives stays the same object."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_graphsurgeon as gs

from surgeon_passes.index import subgraphs


def put_back(result: gs.Graph, graph: gs.Graph) -> None:
    """Make ``graph`` what ``result`` is, of the Graph, Node and Tensor objects that it already holds.

    A tensor survives where the result has one of its name in the same graph or body, a node where its operator and the
    names of its results are there. Nodes that do not survive read and make nothing any more.
    """
    held = {(f.domain, f.name): f for f in graph.functions}
    functions = [(made, held.get((made.domain, made.name), made)) for made in result.functions]
    _Merger().merge(result, graph, frozenset())
    for made, function in functions:
        if function is not made:
            _Merger().merge(made, function, frozenset())
    graph.functions = [function for _, function in functions]


class _Merger:
    def __init__(self) -> None:
        self.tensors: dict[int, gs.Tensor] = {}
        """by id of a tensor of the result: what stands for it"""
        self.cleared: dict[int, gs.Tensor] = {}
        """by id: tensors, of either side, whose edges are built anew"""
        self.used: set[int] = set()
        """ids of the user's bodies that were filled"""

    def merge(self, result: gs.Graph, graph: gs.Graph, outer: frozenset[str]) -> None:
        """``outer`` are the names of tensors in the graphs around this one."""
        held = {t.name: t for t in _tensors(graph) if t.name and t.name not in outer}
        nodes = {_key(node): node for node in graph.nodes if any(_key(node)[2])}
        pairs = [(made, nodes.pop(_key(made), made)) for made in result.nodes]
        for tensor in _tensors(result):
            if id(tensor) not in self.cleared:
                self.keep(tensor, held)
        for tensor in (*held.values(), *_tensors(result)):
            self.clear(tensor)
        for node in graph.nodes:
            _detach(node)
        list.clear(graph.nodes)
        inside = outer | held.keys()
        for made, node in pairs:
            self.take(made, node, inside)
            list.append(graph.nodes, node)
        graph.inputs, graph.outputs = self.now(result.inputs), self.now(result.outputs)
        graph.opset, graph.import_domains, graph.ir_version = result.opset, result.import_domains, result.ir_version

    def keep(self, tensor: gs.Tensor, held: dict[str, gs.Tensor]) -> None:
        """Let the user's tensor of the same name and kind stand for one of the result."""
        old = held.get(tensor.name)
        if old is None or type(old) is not type(tensor):
            return
        self.tensors[id(tensor)] = old
        if isinstance(tensor, gs.Variable):
            old.dtype, old.shape, old.type = tensor.dtype, tensor.shape, tensor.type
        elif not _same_values(tensor, old):
            old._values = tensor._values

    def clear(self, tensor: gs.Tensor) -> None:
        if id(tensor) not in self.cleared:
            self.cleared[id(tensor)] = tensor
            list.clear(tensor.inputs)
            list.clear(tensor.outputs)

    def now(self, tensors: Iterable[gs.Tensor]) -> list[gs.Tensor]:
        return [self.tensors.get(id(t), t) for t in tensors]

    def take(self, made: gs.Node, node: gs.Node, outer: frozenset[str]) -> None:
        """``node`` becomes what ``made`` is."""
        inputs, outputs = self.now(made.inputs), self.now(made.outputs)
        _detach(made)
        bodies = dict(subgraphs(node)) if node is not made else {}
        for name, body in list(subgraphs(made)):
            if name in bodies and id(bodies[name]) not in self.used:  # one graph may have been both branches
                self.used.add(id(bodies[name]))
                self.merge(body, bodies[name], outer)
                made.attrs[name] = bodies[name]
            else:
                self.redirect(body)
        node.name, node.op, node.domain, node.attrs = made.name, made.op, made.domain, made.attrs
        for tensor in inputs:
            list.append(node.inputs, tensor)
            list.append(tensor.outputs, node)
        for tensor in outputs:
            list.append(node.outputs, tensor)
            list.append(tensor.inputs, node)

    def redirect(self, body: gs.Graph) -> None:
        """A body that is new reads what stands for the tensors of the graphs around it."""
        body.outputs = self.now(body.outputs)
        for node in body.nodes:
            for place, tensor in enumerate(node.inputs):
                if id(tensor) in self.cleared:
                    now = self.tensors.get(id(tensor), tensor)
                    list.__setitem__(node.inputs, place, now)
                    list.append(now.outputs, node)
            for _, inner in subgraphs(node):
                self.redirect(inner)


def _tensors(graph: gs.Graph) -> Iterable[gs.Tensor]:
    """Tensors that a graph takes, gives, reads or makes, each once; captured ones too."""
    found: dict[int, gs.Tensor] = {}
    for tensors in (graph.inputs, graph.outputs, *(side for n in graph.nodes for side in (n.inputs, n.outputs))):
        found.update((id(t), t) for t in tensors)
    return found.values()


def _key(node: gs.Node) -> tuple[str, str, tuple[str, ...]]:
    return node.domain or "", node.op, tuple(t.name for t in node.outputs)


def _detach(node: gs.Node) -> None:
    """The node's side of its edges only: those of tensors are cleared as a whole."""
    list.clear(node.inputs)
    list.clear(node.outputs)


def _same_values(first: gs.Constant, second: gs.Constant) -> bool:
    if first._values is second._values:
        return True
    a, b = first.values, second.values
    return a.dtype == b.dtype and a.shape == b.shape and bool(a.tobytes() == b.tobytes())
