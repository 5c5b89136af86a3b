"""Which operators make which tensors dynamic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import onnx_graphsurgeon as gs

from surgeon_passes.index import GraphIndex, Scope, node_label, subgraphs
from surgeon_passes.region import TensorType
from surgeon_passes.report.dynamic import UnknownSize
from surgeon_passes.values import Poly, TypeMap


@dataclass(eq=False)
class Affected:
    """Which tensors are dynamic because of which sources, a bit a source: pairs are quadratic in a chain of sources."""

    rows: list[tuple[str, int]] = field(default_factory=list)
    all: int = 0

    def add(self, tensor: str, bits: int) -> None:
        self.rows.append((tensor, bits))
        self.all |= bits

    def by(self, bit: int) -> tuple[str, ...]:
        """The tensors of one source, in the order of execution."""
        return tuple(name for name, bits in self.rows if bits & bit)


@dataclass(eq=False)
class Source:
    """A node whose output size is data. ``bit`` is its own in :class:`Affected`."""

    node: gs.Node
    reason: str
    bit: int = 0


def _origins(types: TypeMap, tensor: gs.Tensor) -> list[gs.Tensor]:
    """The tensors whose own, unnamed sizes the shape of ``tensor`` is said with."""
    dims = types.type_of(tensor).shape or ()
    names = sorted({name for d in dims if isinstance(d, Poly) for name in d.symbols()})
    return [origin[0] for name in names if (origin := types.names.origin(name)) is not None]


def is_origin(types: TypeMap, tensor: gs.Tensor) -> bool:
    """Whether a size of ``tensor`` follows from no other: it has a name of its own, or none at all."""
    entry = types.type_of(tensor)
    is_unnamed = entry.shape is None or None in entry.shape
    return is_unnamed or any(origin is tensor for origin in _origins(types, tensor))


class Spread:
    """Which sources make which tensors dynamic: one walk in the order of execution.

    A shape is dynamic because of what made the tensors dynamic that its sizes are named after. Where a size has a name of
    its own, or none, what made an operand of the node dynamic did it; where nothing did, the node is one that nobody here
    understands.
    """

    def __init__(
        self,
        index: GraphIndex,
        types: TypeMap,
        sources: Mapping[int, Source],
        explained: set[int],
    ) -> None:
        self.index = index
        self.types = types
        self.sources = sources
        """by id(node)"""
        self.explained = explained
        """ids of nodes that are known to compute with sizes"""
        self.affected = Affected()
        for number, source in enumerate(sources.values()):
            source.bit = 1 << number
        self.causes: dict[int, int] = {}
        """by id(tensor), the bits of its sources"""
        self.vague: set[int] = set()
        """ids of tensors whose shape is not known"""
        self.culprits: dict[int, UnknownSize] = {}

    def run(self) -> list[UnknownSize]:
        for scope in self.index.scopes:
            if scope.parent is None:
                self.scope(scope, 0)
        return list(self.culprits.values())

    def scope(self, scope: Scope, given: int) -> None:
        """``given``: what made the operands of the node dynamic that the scope is a body of."""
        for tensor in scope.graph.inputs:
            entry = self.types.type_of(tensor)
            if given:
                self.causes[id(tensor)] = given
            if entry.shape is None or None in entry.shape:
                self.vague.add(id(tensor))
        for node in scope.graph.nodes:
            self.node(node)

    def node(self, node: gs.Node) -> None:
        reads = [t for t in node.inputs if t.name]
        given = self.gathered(reads)
        for _, body in subgraphs(node):
            inner = self.index.scope_of_graph(body)
            self.scope(inner, given)
            reads += [t for t in body.outputs if t.name]
        given = self.gathered(reads)
        own = self.sources.get(id(node))
        is_clear = not any(id(t) in self.vague for t in reads)
        for tensor in node.outputs:
            if tensor.name:
                self.tensor(tensor, node, own, given, is_clear)

    def tensor(self, tensor: gs.Tensor, node: gs.Node, own: Source | None, given: int, is_clear: bool) -> None:
        found = 0
        for origin in _origins(self.types, tensor):
            if origin is not tensor:
                found |= self.causes.get(id(origin), 0)
                self.vague |= {id(tensor)} if id(origin) in self.vague else set()
        if is_origin(self.types, tensor):
            self.vague.add(id(tensor))
            if own is not None:
                found |= own.bit
            else:
                found |= given
                if is_clear and not found and id(node) not in self.explained:
                    self.blame(node, tensor, self.types.type_of(tensor))
        if found:
            self.affected.add(str(tensor.name), found)
            self.causes[id(tensor)] = found

    def gathered(self, tensors: Iterable[gs.Tensor]) -> int:
        found = 0
        for tensor in tensors:
            found |= self.causes.get(id(tensor), 0)
        return found

    def blame(self, node: gs.Node, tensor: gs.Tensor, entry: TensorType) -> None:
        held = self.culprits.get(id(node))
        names = (*(held.tensors if held else ()), tensor.name)
        reason = "shape inference does not know the size of what it gives"
        if entry.kind != "tensor":
            reason = f"it gives a {entry.kind}, which has no shape"
        self.culprits[id(node)] = UnknownSize(node_label(node), node.op, self.index.scope(node).path, reason, names)
