"""What computes sizes, written anew from the shapes of tensors that are there, where that takes fewer nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from surgeon_passes.connect import connected_by
from surgeon_passes.index import Scope
from surgeon_passes.ops.schema import domain_of
from surgeon_passes.ops.traits import SHAPE_READERS
from surgeon_passes.passes.base import Pass
from surgeon_passes.passes.duplicates import merge_duplicates
from surgeon_passes.passes.edits import make_edit, read_by
from surgeon_passes.passes.settle import settle
from surgeon_passes.passes.size_nodes import SizeEmitter
from surgeon_passes.passes.state import State, remove_dead
from surgeon_passes.rules.journal import Edit
from surgeon_passes.values import Partial
from surgeon_passes.values.dims import type_shape
from surgeon_passes.values.expressions import (
    MAX_LENGTH,
    Apply,
    Const,
    Expression,
    Join,
    Pick,
    Scalar,
    ShapeOf,
    Vector,
    complete,
)
from surgeon_passes.values.planner import Planner, Source

RULE = "share_sizes"
_IMPOSSIBLE = 1 << 40
"""Nodes that a group costs in which something cannot be expressed."""


@dataclass(frozen=True)
class Sizes(Pass):
    """Size vectors that stay symbolic are computed from as few nodes as can be found, each once.

    A vector such as ``[N, 8, H // 2]`` comes straight from the Shape of a tensor that has it, from slices of Shapes joined
    with constants, or from one elementwise operator on a Shape. Written anew only where fewer nodes result.
    """

    name: ClassVar[str] = "sizes"
    requires: ClassVar[tuple[str, ...]] = ("fold",)
    makes: ClassVar[tuple[str, ...]] = (RULE,)

    def run(self, state: State) -> bool:
        kept: list[Edit] = []
        for scope, nodes in list(state.index.ordered()):
            edits = _Scope(state, scope, nodes).edits()
            if edits:
                kept += settle(state, edits)
        if kept:
            remove_dead(state)
            # Each edit stands, and is checked, by itself: what several of them bring in is made one afterwards.
            merge_duplicates(state, {id(image.node) for edit in kept for image, _ in edit.added})
        return bool(kept)


@dataclass(eq=False)
class _Demand:
    """A size tensor that something reads for its value: a Reshape, a Range, the model's user."""

    tensor: gs.Tensor
    vector: Vector
    scalar: bool
    rank: int
    """of the first node that reads it, another size included: a source that comes before cannot depend on it"""
    behind: set[int] = field(default_factory=set)
    """ids of the nodes that compute it"""
    expression: Expression | None = None


class _Scope:
    def __init__(self, state: State, scope: Scope, order: list[gs.Node]) -> None:
        self.state = state
        self.index = state.index
        self.scope = scope
        self.order = order
        self.ranks = {id(n): k for k, n in enumerate(self.order)}
        self.sizes: dict[int, bool] = {}
        self.said: dict[int, Expression | None] = {}
        self.tensors: list[gs.Tensor] = []
        self.numbers: dict[int, int] = {}
        """by id(tensor)"""
        self.sources: list[tuple[int, Source]] = []

    def edits(self) -> list[Edit]:
        """Edits of the groups that gain by being written anew; what stays as it is may be shared with them."""
        # Those nodes that demands share go only when all of them are written anew.
        groups = connected_by(list(self.demands()), lambda demand: demand.behind)
        if groups:
            self.sources = list(self.all_sources())
        stays: list[_Demand] = []
        while groups:
            gains = self.plan(groups, stays)
            good = [group for group, gain in zip(groups, gains, strict=True) if gain > 0]
            if len(good) == len(groups):
                break
            stays += [d for group, gain in zip(groups, gains, strict=True) if gain <= 0 for d in group]
            groups = good
        made = [self.edit(d) for group in groups for d in group if not self.says_already(d)]
        return [e for e in made if e is not None]

    def says_already(self, demand: _Demand) -> bool:
        """Whether the node that makes it is the very one that would be written."""
        root = self.index.producer(demand.tensor)
        return root is not None and self.expression(id(root)) == demand.expression

    # --- what is there -----------------------------------------------------------------------------------------------

    def demands(self) -> Iterator[_Demand]:
        for node in self.order:
            if not self.is_size(node):
                continue
            named = [t for t in node.outputs if t.name]
            if len(named) != 1:
                continue
            demand = self.demand(named[0])
            if demand is not None:
                yield demand

    def demand(self, tensor: gs.Tensor) -> _Demand | None:
        consumers = self.index.consumers(tensor)
        readers = [n for n in consumers if not self.is_size(n)]
        value = self.state.evaluator.value(tensor)
        if not isinstance(value, Partial) or value.dtype != np.int64 or len(value.shape) > 1:
            return None
        if not readers and not self.index.is_output(tensor):
            return None
        vector = complete(value.dims())
        if vector is None or len(vector) > MAX_LENGTH:
            return None
        if any(id(n) not in self.ranks for n in consumers):
            return None  # read in a body: left as it is
        rank = min((self.ranks[id(n)] for n in consumers), default=len(self.order))
        return _Demand(tensor, vector, not value.shape, rank, self.behind(tensor))

    def is_size(self, node: gs.Node) -> bool:
        """Whether every result is a small integer vector or scalar whose elements are all known or symbolic."""
        held = self.sizes.get(id(node))
        if held is None:
            held = self.sizes[id(node)] = self._is_size(node)
        return held

    def _is_size(self, node: gs.Node) -> bool:
        if domain_of(node.domain) or not any(t.name for t in node.outputs):
            return False
        for tensor in node.outputs:
            value = self.state.evaluator.value(tensor) if tensor.name else None
            if tensor.name and not (isinstance(value, Partial) and complete(value.dims()) is not None):
                return False
        return True

    def going(self, group: list[_Demand]) -> int:
        """How many nodes behind the demands nobody reads once those are written anew."""
        gone: set[int] = set().union(*(d.behind for d in group))
        moved = {id(d.tensor) for d in group}
        for key in sorted(gone, key=lambda k: -self.ranks[k]):
            for tensor in self.order[self.ranks[key]].outputs:
                is_read = self.index.is_output(tensor) or any(id(n) not in gone for n in self.index.consumers(tensor))
                if is_read and id(tensor) not in moved:
                    gone.discard(key)
        return len(gone)

    def behind(self, tensor: gs.Tensor) -> set[int]:
        found: set[int] = set()
        todo = [tensor]
        while todo:
            node = self.index.producer(todo.pop())
            if node is None or id(node) in found or id(node) not in self.ranks or not self.is_size(node):
                continue
            found.add(id(node))
            if node.op not in SHAPE_READERS:
                todo.extend(t for t in node.inputs if t.name)
        return found

    # --- what could be -----------------------------------------------------------------------------------------------

    def plan(self, groups: list[list[_Demand]], stays: list[_Demand]) -> list[int]:
        """Give each demand its cheapest expression, those before it taken as made; how many nodes each group saves."""
        planner = Planner(self.scope.opset(""))
        planner.have.update(e for d in stays for key in d.behind if (e := self.expression(key)) is not None)
        sources = iter(self.sources)
        waiting = next(sources, None)
        new = dict.fromkeys(range(len(groups)), 0)
        numbered = [(k, demand) for k, group in enumerate(groups) for demand in group]
        for number, demand in sorted(numbered, key=_ease):
            while waiting is not None and waiting[0] < demand.rank:
                planner.add(waiting[1])
                waiting = next(sources, None)
            demand.expression = planner.plan(demand.vector, demand.scalar)
            if demand.expression is None:
                new[number] = _IMPOSSIBLE
            else:
                # A node gives one output of the model its name: equal outputs are made by a node each.
                again = demand.expression in planner.have and self.index.is_output(demand.tensor)
                new[number] += planner.cost(demand.expression) + again
                planner.take(demand.vector, demand.scalar, demand.expression)
        return [self.going(group) - new[k] for k, group in enumerate(groups)]

    def expression(self, key: int) -> Expression | None:
        """What the size node of that id says, as the planner would say it; None for another form."""
        if key not in self.said:
            self.said[key] = None
            self.said[key] = self.read(self.order[self.ranks[key]])
        return self.said[key]

    def read(self, node: gs.Node) -> Expression | None:
        if node.op == "Shape":
            return self.read_shape(node)
        parts = [self.read_operand(t) for t in node.inputs]
        known = [p for p in parts if p is not None]
        if len(known) != len(parts) or not known:
            return None
        match node.op, known:
            case "Gather", [vector, Const(values=places, scalar=scalar)] if not isinstance(vector, Const):
                return Pick(vector, places, scalar)
            case "Squeeze", [vector, *_]:
                return Scalar(vector)
            case "Concat", _:
                return Join(tuple(known))
            case (("Add" | "Sub" | "Mul" | "Div" | "Mod" | "Min" | "Max"), [first, second]) if not node.attrs.get(
                "fmod"
            ):
                return Apply(node.op, first, second)
        return None

    def read_shape(self, node: gs.Node) -> Expression | None:
        number = self.numbers.get(id(node.inputs[0]))
        if number is None:
            return None
        rank = len(self.sources[number][1].shape)
        start, end, _ = slice(node.attrs.get("start", 0), node.attrs.get("end")).indices(rank)
        return ShapeOf(number, start, end, (start, end) == (0, rank))

    def read_operand(self, tensor: gs.Tensor) -> Expression | None:
        value = self.state.evaluator.value(tensor)
        if isinstance(value, np.ndarray):
            small = value.dtype == np.int64 and value.ndim <= 1 and value.size <= MAX_LENGTH
            return Const(tuple(map(int, value.ravel())), not value.ndim) if small else None
        node = self.index.producer(tensor)
        return None if node is None or id(node) not in self.ranks else self.expression(id(node))

    def all_sources(self) -> Iterator[tuple[int, Source]]:
        """(rank of its maker, source) in graph order, inputs first; :attr:`tensors` has them by number."""
        for tensor in self.scope.graph.inputs:
            yield from self.source(-1, tensor, 0, True)
        for rank, node in enumerate(self.order):
            if self.is_size(node):
                continue
            for tensor in node.outputs:
                if tensor.name:
                    readers = self.index.consumers(tensor)
                    asked = any(r.op == "Shape" for r in readers)
                    shared = self.index.is_output(tensor) or sum(r.op != "Shape" for r in readers) > 1
                    yield from self.source(rank, tensor, 1 if shared else 2 if asked else 3, asked)

    def source(self, rank: int, tensor: gs.Tensor, preference: int, is_anchor: bool) -> Iterator[tuple[int, Source]]:
        """The source that ``tensor`` is: any of its dims may be unknown, then it is found by the others only."""
        entry = self.state.types.type_of(tensor)
        shape = type_shape(entry)
        if entry.kind == "tensor" and shape is not None and not all(isinstance(d, int) for d in shape):
            self.numbers[id(tensor)] = len(self.tensors)
            self.tensors.append(tensor)
            yield rank, Source(self.numbers[id(tensor)], shape, preference, is_anchor)

    # --- writing it down ---------------------------------------------------------------------------------------------

    def edit(self, demand: _Demand) -> Edit | None:
        root = self.index.producer(demand.tensor)
        assert root is not None and demand.expression is not None
        emitter = SizeEmitter(self.index, self.scope.opset(""), self.tensors, str(demand.tensor.name))
        result = emitter.emit(demand.expression)
        if self.index.is_output(demand.tensor):
            result = emitter.as_output(demand.tensor)
        return make_edit(
            self.state,
            RULE,
            root,
            [(demand.tensor, result)],
            removed=[root],
            added=emitter.nodes,
            reads=read_by(self.index, root),
        )


def _ease(numbered: tuple[int, _Demand]) -> tuple[int, int, int]:
    """Demands that are read first come first, of those the simpler ones: others may build on them."""
    number, demand = numbered
    return demand.rank, sum(len(str(element)) for element in demand.vector), number
