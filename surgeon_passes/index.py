"""Who makes and who uses each tensor, over a graph, its subgraphs and its functions.

graphsurgeon keeps these links in lists that compare by name and unlink by deep equality; both are wrong across scopes and
quadratic in wide graphs. Here everything is keyed by ``id()``, changes are O(edges touched), and :meth:`GraphIndex.sync`
writes node lists and tensor links back once.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import onnx
import onnx_graphsurgeon as gs

from surgeon_passes.errors import ModelError
from surgeon_passes.ops.view import NodeView

Position = tuple[int, ...]


@dataclass(eq=False, slots=True)
class Scope:
    """One graph: the main graph, a body of If/Loop/Scan, or a function's body.

    ``path`` is "" for the main graph, ``if_3/then_branch`` for a body, ``function my.domain.F`` for a function.
    """

    graph: gs.Graph
    path: str
    parent: Scope | None = None
    owner: gs.Node | None = None
    opsets: Mapping[str, int] = field(default_factory=dict)
    is_function: bool = False

    def opset(self, domain: str = "") -> int:
        """Version of ``domain`` that this scope's nodes use; 0 where it is not imported."""
        return self.opsets.get("" if domain == "ai.onnx" else domain, 0)


@dataclass(eq=False, slots=True)
class _Record:
    node: gs.Node
    scope: Scope
    position: Position
    live: bool = True


def subgraphs(node: gs.Node) -> Iterator[tuple[str, gs.Graph]]:
    """(attribute name, graph) of every body that ``node`` holds."""
    for name, value in node.attrs.items():
        if isinstance(value, gs.Graph):
            yield name, value
        elif isinstance(value, (list, tuple)):
            for number, item in enumerate(value):
                if isinstance(item, gs.Graph):
                    yield f"{name}[{number}]", item


def node_label(node: gs.Node) -> str:
    """How messages name a node: its name, or its operator and first output."""
    if node.name:
        return f"{node.op} '{node.name}'"
    outputs = [t.name for t in node.outputs if t.name]
    return f"{node.op} -> '{outputs[0]}'" if outputs else node.op


def _opsets(graph: gs.Graph) -> dict[str, int]:
    found = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in graph.import_domains or ()}
    if "" not in found and graph.opset:
        found[""] = graph.opset
    return found


class GraphIndex:
    """The links of a whole model. Tensors and nodes are keyed by identity; removed ones stay alive, so ids stay unique."""

    def __init__(self, graph: gs.Graph) -> None:
        self.graph = graph
        self.scopes: list[Scope] = []
        self._records: dict[int, _Record] = {}
        self._members: dict[int, list[_Record]] = {}
        self._changed: dict[int, Scope] = {}
        self._producer: dict[int, gs.Node] = {}
        self._consumers: dict[int, dict[int, int]] = {}
        self._edges: dict[int, int] = {}
        """by id(tensor): the sum over its consumers, so that readers of a wide tensor need not count each other"""
        self._outputs: dict[int, int] = {}
        self._tensors: dict[int, gs.Tensor] = {}
        self._names: dict[str, int] = {}
        self._node_names: dict[str, int] = {}
        self._scope_of_graph: dict[int, Scope] = {}
        self._input_of: dict[int, Scope] = {}
        self._removed_with: dict[int, list[gs.Node]] = {}
        self._views: dict[int, NodeView] = {}
        self._holders: dict[int, _Record] = {}
        self._touched: dict[int, gs.Node] = {}
        self.version = 0
        """a number that changes whenever the graph does"""
        main = Scope(graph, "", opsets=_opsets(graph))
        self._add_scopes([main, *self._function_scopes(graph)])

    @staticmethod
    def _function_scopes(graph: gs.Graph) -> list[Scope]:
        return [Scope(f, f"function {f.domain}.{f.name}", opsets=_opsets(f), is_function=True) for f in graph.functions]

    # --- building ----------------------------------------------------------------------------------------------------

    def _add_scopes(self, scopes: list[Scope]) -> None:
        todo = list(reversed(scopes))
        while todo:
            scope = todo.pop()
            self.scopes.append(scope)
            self._scope_of_graph[id(scope.graph)] = scope
            self._add_interface(scope)
            inner: list[Scope] = []
            for number, node in enumerate(scope.graph.nodes):
                inner += self._register(node, scope, (number,))
            todo.extend(reversed(inner))

    def _add_interface(self, scope: Scope) -> None:
        for tensor in scope.graph.inputs:
            self._know(tensor)
            self._input_of[id(tensor)] = scope
        for tensor in scope.graph.outputs:
            self._know(tensor)
            self._outputs[id(tensor)] = self._outputs.get(id(tensor), 0) + 1

    def _register(self, node: gs.Node, scope: Scope, position: Position) -> list[Scope]:
        self.version += 1
        record = _Record(node, scope, position)
        self._changed[id(scope)] = scope
        self._records[id(node)] = record
        self._touched[id(node)] = node
        self._members.setdefault(id(scope), []).append(record)
        if node.name:
            self._node_names.setdefault(node.name, 0)
        for tensor in node.inputs:
            self._add_edge(tensor, node)
        for tensor in node.outputs:
            self._set_producer(tensor, node)
        label = node.name or (node.outputs[0].name if node.outputs else node.op)
        prefix = f"{scope.path}/" if scope.path else ""
        inner = [
            Scope(body, f"{prefix}{label}/{attr}", scope, node, scope.opsets, scope.is_function)
            for attr, body in subgraphs(node)
        ]
        if inner:
            self._holders[id(node)] = record
        return inner

    def _know(self, tensor: gs.Tensor) -> None:
        self._tensors[id(tensor)] = tensor
        if tensor.name:
            self._names.setdefault(tensor.name, 0)

    def _add_edge(self, tensor: gs.Tensor, node: gs.Node) -> None:
        if tensor.name:
            self._know(tensor)
            uses = self._consumers.setdefault(id(tensor), {})
            uses[id(node)] = uses.get(id(node), 0) + 1
            self._edges[id(tensor)] = self._edges.get(id(tensor), 0) + 1

    def _drop_edge(self, tensor: gs.Tensor, node: gs.Node) -> None:
        if tensor.name:
            uses = self._consumers[id(tensor)]
            self._edges[id(tensor)] -= 1
            if uses[id(node)] == 1:
                del uses[id(node)]
            else:
                uses[id(node)] -= 1

    def _set_producer(self, tensor: gs.Tensor, node: gs.Node) -> None:
        if tensor.name:
            self._know(tensor)
            self._producer[id(tensor)] = node

    # --- reading -----------------------------------------------------------------------------------------------------

    def nodes(self) -> list[gs.Node]:
        """Every live node, scope by scope, in graph order."""
        return [r.node for scope in self.scopes for r in self._sorted_members(scope)]

    def count(self) -> int:
        """Live nodes of all scopes, Constant nodes left out."""
        return sum(record.live and record.node.op != "Constant" for record in self._records.values())

    def _sorted_members(self, scope: Scope) -> list[_Record]:
        return sorted((r for r in self._members.get(id(scope), ()) if r.live), key=lambda r: r.position)

    def scope_nodes(self, scope: Scope) -> list[gs.Node]:
        """Live nodes of one scope in graph order."""
        return [r.node for r in self._sorted_members(scope)]

    def ordered(self) -> Iterator[tuple[Scope, list[gs.Node]]]:
        """Each scope with its live nodes, each node after what it reads; in graph order where that is legal."""
        captured = self._captures({id(scope) for scope in self.scopes})
        for scope in self.scopes:
            yield scope, self._sorted(self._sorted_members(scope), captured)

    def is_live(self, node: gs.Node) -> bool:
        record = self._records.get(id(node))
        return record is not None and record.live

    def scope(self, node: gs.Node) -> Scope:
        return self._records[id(node)].scope

    def scope_of_graph(self, graph: gs.Graph) -> Scope:
        return self._scope_of_graph[id(graph)]

    def position(self, node: gs.Node) -> Position:
        return self._records[id(node)].position

    def opset(self, node: gs.Node) -> int:
        """Opset of the node's domain in its scope."""
        return self.scope(node).opset(node.domain or "")

    def view(self, node: gs.Node) -> NodeView:
        """The node in its newest form, as it stands. Attributes never change in place; edges change here alone."""
        found = self._views.get(id(node))
        if found is None:
            found = self._views[id(node)] = NodeView(node, self.opset(node))
        return found

    def forget_views(self) -> None:
        """For whoever has stored other shapes in tensors: some old forms are read by rank."""
        self._views = {key: view for key, view in self._views.items() if not view.is_translated}

    def holder(self, node: gs.Node) -> gs.Node:
        """The node of the main graph, or of a function, in whose bodies ``node`` lies; itself where it lies in none."""
        owner = self.scope(node).owner
        while owner is not None:
            node = owner
            owner = self.scope(node).owner
        return node

    def producer(self, tensor: gs.Tensor) -> gs.Node | None:
        return self._producer.get(id(tensor))

    def home(self, tensor: gs.Tensor) -> Scope | None:
        """The scope that defines ``tensor`` as a node's output or an input; None for constants."""
        node = self._producer.get(id(tensor))
        return self.scope(node) if node is not None else self._input_of.get(id(tensor))

    def is_graph_input(self, tensor: gs.Tensor) -> bool:
        return id(tensor) in self._input_of

    def consumers(self, tensor: gs.Tensor) -> list[gs.Node]:
        """Nodes that read ``tensor``, in subgraphs too; each once."""
        return list(self.readers(tensor))

    def readers(self, tensor: gs.Tensor) -> Iterator[gs.Node]:
        """:meth:`consumers` one by one, for whoever needs the first few; the graph must not change meanwhile."""
        return (self._records[key].node for key in self._consumers.get(id(tensor), ()))

    def reader_count(self, tensor: gs.Tensor) -> int:
        """How many nodes :meth:`consumers` gives."""
        return len(self._consumers.get(id(tensor), ()))

    def edge_count(self, tensor: gs.Tensor) -> int:
        """Uses of ``tensor``: edges (``Add(t, t)`` is two) and places in a graph's outputs."""
        return self._edges.get(id(tensor), 0) + self._outputs.get(id(tensor), 0)

    def is_output(self, tensor: gs.Tensor) -> bool:
        """Whether ``tensor`` is an output of any graph, body or function."""
        return bool(self._outputs.get(id(tensor)))

    def is_dead(self, node: gs.Node) -> bool:
        """Whether no output of ``node`` is used."""
        return not any(t.name and self.edge_count(t) for t in node.outputs)

    def tensors(self) -> Iterable[gs.Tensor]:
        return self._tensors.values()

    def holds_bodies(self, node: gs.Node) -> bool:
        """Whether ``node`` is one that holds bodies."""
        return id(node) in self._holders

    def has_bodies(self) -> bool:
        """Whether the model has functions, or a live node with bodies."""
        return any(s.is_function for s in self.scopes) or any(r.live for r in self._holders.values())

    def has_only_branches(self) -> bool:
        """Whether no node has bodies but Ifs, and there are no functions."""
        ifs = (r.node.op == "If" and not r.node.domain for r in self._holders.values() if r.live)
        return not any(s.is_function for s in self.scopes) and all(ifs)

    def take_touched(self) -> list[gs.Node]:
        """Live nodes that came in, came back, or whose edges moved, since this was asked last."""
        touched, self._touched = self._touched, {}
        return [node for node in touched.values() if self.is_live(node)]

    # --- names -------------------------------------------------------------------------------------------------------

    def unique_tensor_name(self, base: str) -> str:
        """``base``, or ``base_1`` and so on: unique over the graph and all its subgraphs; linear over many calls."""
        return _unique(base, self._names)

    def reserve(self, names: Iterable[str]) -> None:
        """Names that new tensors must not have."""
        for name in names:
            self._names.setdefault(name, 0)

    def unique_node_name(self, base: str) -> str:
        return _unique(base, self._node_names)

    def import_domain(self, scope: Scope, domain: str, version: int = 1) -> None:
        """Import a domain that a new node needs, where its graph or function does not."""
        if scope.opset(domain):
            return
        outer = _outermost(scope)
        outer.graph.import_domains = [*(outer.graph.import_domains or ()), onnx.helper.make_opsetid(domain, version)]
        for member in self.scopes:
            if _outermost(member) is outer or (not outer.is_function and not member.is_function):
                member.opsets = {**member.opsets, domain: version}
                self._views.clear()

    # --- changing (for the rewriter) ---------------------------------------------------------------------------------

    def add_node(self, node: gs.Node, scope: Scope, position: Position) -> None:
        """Bring in a node whose ``inputs`` and ``outputs`` are filled; it takes over its outputs."""
        inner = self._register(node, scope, position)
        self._add_scopes(inner)

    def remove_node(self, node: gs.Node) -> None:
        """Take a node out, with the bodies it holds. Its own lists keep what they held, so it can come back."""
        self.version += 1
        self._changed[id(self.scope(node))] = self.scope(node)
        members = self.with_bodies(node)
        self._write_changed(members)  # its edges are as they are now: a list from before would not fit them
        self._removed_with[id(node)] = members
        for member in members:
            self._records[id(member)].live = False
            for tensor in member.inputs:
                self._drop_edge(tensor, member)
            for tensor in member.outputs:
                if self._producer.get(id(tensor)) is member:
                    del self._producer[id(tensor)]
        self._count_outputs(members, -1)

    def restore_node(self, node: gs.Node) -> None:
        """Undo :meth:`remove_node`; what had gone from its bodies before stays out."""
        self.version += 1
        self._changed[id(self.scope(node))] = self.scope(node)
        members = self._removed_with.pop(id(node))
        for member in members:
            self._records[id(member)].live = True
            self._touched[id(member)] = member
            for tensor in member.inputs:
                self._add_edge(tensor, member)
            for tensor in member.outputs:
                self._set_producer(tensor, member)
        self._count_outputs(members, 1)

    def set_input(self, node: gs.Node, position: int, tensor: gs.Tensor) -> None:
        """``node.inputs[position] = tensor``."""
        self.version += 1
        self._changed[id(self.scope(node))] = self.scope(node)
        self._drop_edge(node.inputs[position], node)
        self._touched[id(node)] = node
        list.__setitem__(node.inputs, position, tensor)
        self._views.pop(id(node), None)
        self._add_edge(tensor, node)

    def set_output(self, node: gs.Node, position: int, tensor: gs.Tensor) -> None:
        """``node.outputs[position] = tensor``; the old tensor loses its producer."""
        self.version += 1
        old = node.outputs[position]
        if self._producer.get(id(old)) is node:
            del self._producer[id(old)]
        self._touched[id(node)] = node
        list.__setitem__(node.outputs, position, tensor)
        self._views.pop(id(node), None)
        self._set_producer(tensor, node)

    def set_graph_output(self, scope: Scope, position: int, tensor: gs.Tensor) -> None:
        """``scope.graph.outputs[position] = tensor``."""
        self.version += 1
        old = scope.graph.outputs[position]
        self._outputs[id(old)] -= 1
        scope.graph.outputs[position] = tensor
        self._know(tensor)
        self._outputs[id(tensor)] = self._outputs.get(id(tensor), 0) + 1

    def drop_functions(self, kept: set[int]) -> None:
        """Forget the scopes of functions whose ids are not in ``kept``."""
        gone = {id(s) for s in self.scopes if s.is_function and id(_outermost(s).graph) not in kept}
        self.scopes = [s for s in self.scopes if id(s) not in gone]
        for key in gone:
            for record in self._members.pop(key, ()):
                record.live = False

    def with_bodies(self, node: gs.Node) -> list[gs.Node]:
        """``node`` and every live node inside the bodies it holds."""
        members = [node]
        for member in members:
            for _, body in subgraphs(member):
                scope = self._scope_of_graph[id(body)]
                members += [r.node for r in self._members.get(id(scope), ()) if r.live]
        return members

    def _count_outputs(self, nodes: Iterable[gs.Node], by: int) -> None:
        """Add ``by`` to the uses that the outputs of the nodes' bodies are."""
        for node in nodes:
            for _, body in subgraphs(node):
                for tensor in body.outputs:
                    self._outputs[id(tensor)] = self._outputs.get(id(tensor), 0) + by

    # --- writing back ------------------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Write node lists (sorted, keeping the given order where it is legal) and tensor links back to graphsurgeon."""
        self._write_lists(self.scopes)
        for tensor in self._tensors.values():
            list.clear(tensor.inputs)
            list.clear(tensor.outputs)
        for scope in self.scopes:
            for node in scope.graph.nodes:
                for tensor in node.inputs:
                    list.append(tensor.outputs, node)
                for tensor in node.outputs:
                    list.append(tensor.inputs, node)

    def sync_bodies(self) -> None:
        """Write the node lists of bodies and functions that have changed, for whoever exports a node that holds one.

        The body of a node that was taken out keeps the list it had.
        """
        changed = [
            s for s in self._changed.values() if s.is_function or (s.owner is not None and self.is_live(s.owner))
        ]
        self._changed.clear()
        if changed:
            self._write_lists(changed)

    def _write_changed(self, holders: Iterable[gs.Node]) -> None:
        """Write the node lists that have changed of the bodies that ``holders`` hold."""
        held = {id(self._scope_of_graph[id(body)]) for node in holders for _, body in subgraphs(node)}
        changed = [self._changed.pop(key) for key in held if key in self._changed]
        if changed:
            self._write_lists(changed)

    def _write_lists(self, scopes: Sequence[Scope]) -> None:
        captured = self._captures({id(scope) for scope in scopes})
        for scope in scopes:
            scope.graph.nodes[:] = self._sorted(self._sorted_members(scope), captured)

    def _captures(self, scopes: Container[int]) -> dict[int, list[gs.Tensor]]:
        """Per node of ``scopes`` (ids) that holds bodies, by its id: every tensor that something inside reads."""
        found: dict[int, list[gs.Tensor]] = {}
        for record in self._holders.values():
            if record.live and id(record.scope) in scopes:
                members = self.with_bodies(record.node)
                inside = [t for member in members[1:] for t in member.inputs]
                bodies = [body for member in members for _, body in subgraphs(member)]
                found[id(record.node)] = inside + [t for body in bodies for t in body.outputs]
        return found

    def _sorted(self, records: list[_Record], captured: dict[int, list[gs.Tensor]]) -> list[gs.Node]:
        rank = {id(r.node): number for number, r in enumerate(records)}
        waiting = [0] * len(records)
        users: list[list[int]] = [[] for _ in records]
        in_order = True
        for number, record in enumerate(records):
            for tensor in (*record.node.inputs, *captured.get(id(record.node), ())):
                source = self._producer.get(id(tensor))
                before = rank.get(id(source)) if source is not None else None
                if before is not None and before != number:
                    waiting[number] += 1
                    users[before].append(number)
                    in_order = in_order and before < number
                elif before == number:
                    raise ModelError(f"the graph has a cycle through {node_label(record.node)}")
        if in_order:
            return [r.node for r in records]
        return _kahn(records, waiting, users)


def _outermost(scope: Scope) -> Scope:
    while scope.parent is not None:
        scope = scope.parent
    return scope


def _kahn(records: list[_Record], waiting: list[int], users: list[list[int]]) -> list[gs.Node]:
    ready = [number for number, count in enumerate(waiting) if count == 0]
    heapq.heapify(ready)
    order: list[gs.Node] = []
    while ready:
        number = heapq.heappop(ready)
        order.append(records[number].node)
        for user in users[number]:
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, user)
    if len(order) < len(records):
        stuck = next(number for number, count in enumerate(waiting) if count)
        raise ModelError(f"the graph has a cycle through {node_label(records[stuck].node)}")
    return order


def _unique(base: str, taken: dict[str, int]) -> str:
    if base and base not in taken:
        taken[base] = 0
        return base
    base = base or "t"
    number = taken.setdefault(base, 0) + 1
    while f"{base}_{number}" in taken:
        number += 1
    taken[base] = number
    name = f"{base}_{number}"
    taken[name] = 0
    return name
