"""Groups of nodes that a model shows by itself: modules, by the names of nodes; regions, between single-tensor cuts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_graphsurgeon as gs

from surgeon_passes.index import GraphIndex, subgraphs

SEPARATORS = "/."
SMALLEST = 2
"""Nodes of a group that is worth a name."""


@dataclass(frozen=True, slots=True)
class Group:
    """``inputs``: what the group reads from outside, constants left out; ``outputs``: what is read outside, or given out.

    ``kind``: "module" (its name is the prefix of its nodes' names) or "region" (between single-tensor cuts). ``depth``: how
    deep a module is nested in others. ``nodes``: how many of the main graph, Constants not counted.
    """

    name: str
    kind: str
    depth: int
    nodes: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def groups(source: Any) -> list[Group]:
    """The groups of a path, ModelProto or gs.Graph: modules by name, then regions in order. Raises ModelError."""
    from surgeon_passes.pipeline import load

    index = GraphIndex(load(source).graph)
    return [group for group, _ in find_groups(index)]


def find_groups(index: GraphIndex) -> list[tuple[Group, list[gs.Node]]]:
    """Every group with its nodes, Constants among them."""
    _, order = next(index.ordered())  # the main graph is the first scope
    reads = {id(n): list(_reads(index, n)) for n in order}
    found = []
    members = _modules(order)
    for name in sorted(members):
        depth = sum(letter in SEPARATORS and name[:place] in members for place, letter in enumerate(name))
        found.append((_group(index, reads, name, "module", depth, members[name]), members[name]))
    for number, nodes in enumerate(_regions(index, order, reads), 1):
        found.append((_group(index, reads, f"region{number}", "region", 0, nodes), nodes))
    return found


def _group(
    index: GraphIndex, reads: dict[int, list[gs.Tensor]], name: str, kind: str, depth: int, nodes: list[gs.Node]
) -> Group:
    inside = {id(n) for n in nodes}
    outer = {id(t): t.name for n in nodes for t in reads[id(n)] if _comes_from_outside(index, t, inside)}
    given = [t.name for n in nodes if n.op != "Constant" for t in n.outputs if t.name and _leaves(index, t, inside)]
    return Group(name, kind, depth, _size(nodes), tuple(outer.values()), tuple(given))


def _size(nodes: Iterable[gs.Node]) -> int:
    """Nodes without the Constants."""
    return len([n for n in nodes if n.op != "Constant"])


def _comes_from_outside(index: GraphIndex, tensor: gs.Tensor, inside: set[int]) -> bool:
    maker = index.producer(tensor)
    if maker is None:
        return index.is_graph_input(tensor)
    return bool(maker.op != "Constant") and id(maker) not in inside


def _leaves(index: GraphIndex, tensor: gs.Tensor, inside: set[int]) -> bool:
    return index.is_output(tensor) or any(id(index.holder(user)) not in inside for user in index.consumers(tensor))


def _reads(index: GraphIndex, node: gs.Node) -> Iterator[gs.Tensor]:
    """Variables of the main graph that a node reads, from inside its bodies too."""
    main = index.scopes[0]
    members = index.with_bodies(node)
    tensors = [t for m in members for t in m.inputs] + [t for m in members for _, b in subgraphs(m) for t in b.outputs]
    for tensor in {id(t): t for t in tensors if t.name and not isinstance(t, gs.Constant)}.values():
        if index.home(tensor) is main:
            yield tensor


# --- modules -------------------------------------------------------------------------------------------------------------


def _modules(nodes: Iterable[gs.Node]) -> dict[str, list[gs.Node]]:
    """By prefix; of nested prefixes over the same nodes the longest stands for all."""
    found: dict[str, list[gs.Node]] = {}
    for node in nodes:
        for place, letter in enumerate(node.name or ""):
            if letter in SEPARATORS and place:
                found.setdefault(node.name[:place], []).append(node)
    longer = {(len(found[name]), _parent(name)) for name in found}
    large = {name: held for name, held in found.items() if (len(held), name) not in longer and _size(held) >= SMALLEST}
    return large


def _parent(name: str) -> str:
    place = max(name.rfind(separator) for separator in SEPARATORS)
    return name[:place] if place > 0 else ""


# --- regions -------------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Region:
    """Nodes between the cut ``start`` and ``cuts``: one, or several that share nodes."""

    start: int
    cuts: list[int]
    nodes: list[gs.Node]

    def is_small(self) -> bool:
        return _size(self.nodes) < SMALLEST


def _regions(index: GraphIndex, order: Sequence[gs.Node], reads: dict[int, list[gs.Tensor]]) -> list[list[gs.Node]]:
    """Nodes between a cut and the next, in order; a node alone goes with what follows it."""
    regions = _between_cuts(_Flow(index, order, reads))
    followers: dict[int, list[_Region]] = {}
    for region in regions:
        followers.setdefault(region.start, []).append(region)
    for region in regions:
        after = followers.get(region.cuts[0], [])
        if region.is_small() and len(region.cuts) == len(after) == 1:
            after[0].nodes = [*region.nodes, *after[0].nodes]
            region.nodes = []
    rank = {id(n): k for k, n in enumerate(order)}
    return [sorted(r.nodes, key=lambda n: rank[id(n)]) for r in regions if not r.is_small()]


def _between_cuts(flow: _Flow) -> list[_Region]:
    """Each node is in one region: regions from one cut that share nodes are joined."""
    owner: dict[int, _Region] = {}
    found: list[_Region] = []
    for cut in flow.cuts:
        region = _Region(flow.cut_before(cut), [cut], [])
        nodes, met = flow.between(region.start, cut, owner)
        for other in met:
            if other.start == region.start and other in found:
                region.cuts = other.cuts + region.cuts
                region.nodes = other.nodes + region.nodes
                found.remove(other)
                owner.update((id(n), region) for n in other.nodes)
        region.nodes += nodes
        owner.update((id(n), region) for n in nodes)
        found.append(region)
    return found


class _Flow:
    """Nodes and tensors that depend on the inputs, as one graph: 0 is the source, the others are numbered in order.

    A tensor is a cut where whatever depends on it depends on nothing else: where it dominates all that follows it. An
    edge into a vertex that is dominated from further up tells of every dominator below that one that it is none.
    """

    def __init__(self, index: GraphIndex, order: Sequence[gs.Node], reads: dict[int, list[gs.Tensor]]) -> None:
        self.index = index
        self.order = order
        self.reads = reads
        self.number: dict[int, int] = {}
        self.dominator = [0]
        self.depth = [0]
        self.made_by: list[gs.Node | None] = [None]
        self.excess = [0]
        for tensor in index.graph.inputs:
            self.add(tensor, [0], None)
        for node in order:
            before = [self.number[id(t)] for t in reads[id(node)] if id(t) in self.number]
            if before:
                own = self.add(node, before, None)
                for tensor in node.outputs:
                    if tensor.name:
                        self.add(tensor, [own], node)
        for vertex in range(len(self.dominator) - 1, 0, -1):
            self.excess[self.dominator[vertex]] += self.excess[vertex]
        self.is_cut = {v for v in range(1, len(self.dominator)) if self.made_by[v] is not None and not self.excess[v]}
        useful = self.leading_to_outputs()
        self.cuts = [v for v in sorted(self.is_cut) if v in useful]

    def add(self, item: Any, before: list[int], maker: gs.Node | None) -> int:
        own = self.number[id(item)] = len(self.dominator)
        above = before[0]
        for vertex in before[1:]:
            above = self.meet(above, vertex)
        self.dominator.append(above)
        self.depth.append(self.depth[above] + 1)
        self.made_by.append(maker)
        self.excess.append(0)
        for vertex in before:
            self.excess[vertex] += 1
            self.excess[above] -= 1
        return own

    def leading_to_outputs(self) -> set[int]:
        found: set[int] = set()
        todo = [self.index.producer(t) for t in self.index.graph.outputs]
        seen: set[int] = set()
        found.update(self.number[id(t)] for t in self.index.graph.outputs if id(t) in self.number)
        while todo:
            node = todo.pop()
            if node is not None and id(node) not in seen:
                seen.add(id(node))
                found.update(self.number[id(t)] for t in self.reads[id(node)] if id(t) in self.number)
                todo += [self.index.producer(t) for t in self.reads[id(node)]]
        return found

    def meet(self, a: int, b: int) -> int:
        if not a or not b:
            return 0
        while a != b:
            if self.depth[a] < self.depth[b]:
                a, b = b, a
            a = self.dominator[a]
        return a

    def cut_before(self, vertex: int) -> int:
        """The nearest cut above, or the model's only input there, or the source."""
        vertex = self.dominator[vertex]
        while vertex and vertex not in self.is_cut:
            vertex = self.dominator[vertex]
        return vertex

    def between(self, start: int, cut: int, owner: dict[int, _Region]) -> tuple[list[gs.Node], list[_Region]]:
        """Nodes from ``start`` to ``cut`` that no region has, what only depends on constants among them; regions met."""
        found: dict[int, gs.Node] = {}
        met: dict[int, _Region] = {}
        maker = self.made_by[cut]
        todo = [maker] if maker is not None else []
        while todo:
            node = todo.pop()
            if id(node) in owner:
                met[id(owner[id(node)])] = owner[id(node)]
            elif id(node) not in found:
                found[id(node)] = node
                tensors = (t for t in self.reads[id(node)] if self.number.get(id(t), -1) != start)
                todo += [source for t in tensors if (source := self.index.producer(t)) is not None]
        return list(found.values()), list(met.values())
