"""Operators whose size is data, and nodes that compute with sizes."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from surgeon_passes.dynamics.spread import Source, Spread, is_origin
from surgeon_passes.index import GraphIndex, node_label, subgraphs
from surgeon_passes.ops.schema import domain_of
from surgeon_passes.ops.traits import DATA_SIZED, SHAPE_READERS, SIZE_ARGUMENTS, is_random
from surgeon_passes.ops.view import CallerAttribute, NodeView
from surgeon_passes.region import ANONYMOUS
from surgeon_passes.report.dynamic import DataDependent, Dynamic, Names, ShapeDependent
from surgeon_passes.values import Evaluator, Partial, Poly, TypeMap
from surgeon_passes.values.lattice import dims_of
from surgeon_passes.values.solver import FAILURES

FOLLOWED = 10_000
"""Nodes behind one argument that are looked at."""
BODY_ARGUMENTS = {"If": "its condition", "Loop": "its number of turns"}
"""What decides the sizes that a node with bodies gives, where they are not known: its first operand."""


def find_dynamic(index: GraphIndex, types: TypeMap, evaluator: Evaluator) -> Dynamic:
    """What is not static in the graph as it stands, and why. Node lists must be in order (:meth:`GraphIndex.sync`)."""
    if _is_static(index, types):
        return Dynamic()
    return Finder(index, types, evaluator).find()


def _is_static(index: GraphIndex, types: TypeMap) -> bool:
    nodes = index.nodes()
    if any(n.op in SHAPE_READERS for n in nodes):
        return False
    made = [t for n in nodes for t in n.outputs if t.name]
    return all(types.type_of(t).is_static for t in (*index.graph.inputs, *made))


class Finder:
    def __init__(self, index: GraphIndex, types: TypeMap, evaluator: Evaluator) -> None:
        self.index = index
        self.types = types
        self.evaluator = evaluator
        self.sources: dict[int, Source] = {}
        """by id(node)"""
        self.inputs: dict[str, str] = {}
        for name, text in self.named_inputs():
            self.inputs.setdefault(name, text)
        self.origins: dict[int, str] = {}
        """by id(tensor): what :meth:`data_behind` found"""
        self.meaning: dict[str, frozenset[str]] = {}
        """by name of a size: what it depends on, in words"""
        self.pending: set[str] = set()
        self.behind_names: dict[str, list[str]] = {}

    def find(self) -> Dynamic:
        for node in self.index.nodes():
            reason = self.data_reason(node)
            if reason:
                self.sources[id(node)] = Source(node, reason)
        left = [(node, entry) for node in self.index.nodes() if (entry := self.shape_dependent(node)) is not None]
        spread = Spread(self.index, self.types, self.sources, {id(node) for node, _ in left})
        unknown, affected = spread.run(), spread.affected
        return Dynamic(
            tuple(
                DataDependent(
                    node_label(s.node), s.node.op, self.path(s.node), s.reason, Names(partial(affected.by, s.bit))
                )
                for s in self.sources.values()
                if s.bit & affected.all
            ),
            tuple(entry for _, entry in left),
            tuple(unknown),
        )

    def path(self, node: gs.Node) -> str:
        return self.index.scope(node).path

    def named_inputs(self) -> Iterator[tuple[str, str]]:
        """(name, what it is in words) of each open dim of the inputs, in their order."""
        for tensor in self.index.graph.inputs:
            for place, dim in enumerate(self.types.type_of(tensor).shape or ()):
                for name in sorted(dim.symbols()) if isinstance(dim, Poly) else ():
                    of = f"of input '{tensor.name}'"
                    yield name, f"{name} {of}" if self.types.names.origin(name) is None else f"dim {place} {of}"

    # --- data --------------------------------------------------------------------------------------------------------

    def data_reason(self, node: gs.Node) -> str:
        """Why the size of ``node``'s output is data; "" where it is not."""
        view = self.view(node)
        if view is None or view.domain != "" or not any(map(self.is_open, node.outputs)):
            return ""
        if view.op in DATA_SIZED:
            return DATA_SIZED[view.op]
        if view.op == "If":
            origin = self.data_behind(node.inputs[:1])
            return f"its branches give different shapes, and the condition is computed from {origin}" if origin else ""
        if view.op == "Loop":
            return self.loop_reason(node, view)
        for place, name in SIZE_ARGUMENTS.get(view.op, {}).items():
            tensor = view.input(place)
            if tensor is not None and self.is_unknown(tensor):
                origin = self.data_behind([tensor])
                if origin:
                    return f"{name} is computed from {origin}"
        return ""

    def loop_reason(self, node: gs.Node, view: NodeView) -> str:
        body = next((b for _, b in subgraphs(node)), None)
        if body is None:
            return ""
        trips = view.input(0)
        if trips is not None and self.is_unknown(trips):
            origin = self.data_behind([trips])
            if origin:
                return f"the number of its turns is computed from {origin}"
        if body.outputs and not isinstance(self.evaluator.value(body.outputs[0]), np.ndarray):
            origin = self.data_behind([body.outputs[0]])
            return f"its body decides, from {origin}, when it ends" if origin else ""
        return ""

    def is_open(self, tensor: gs.Tensor) -> bool:
        """Whether a dim, or the rank, of a tensor does not follow from the sizes of others."""
        return bool(tensor.name) and is_origin(self.types, tensor)

    def is_unknown(self, tensor: gs.Tensor) -> bool:
        """Whether some element is not known, not even as an expression."""
        found = self.evaluator.value(tensor)
        return found is None or (isinstance(found, Partial) and None in found.dims())

    def data_behind(self, tensors: Iterable[gs.Tensor]) -> str:
        """Where values come from that are no shapes and no constants, in words; "" where there is no such thing."""
        given = list(tensors)
        found = next(filter(None, map(self.data_in, self.behind(given, self.origins))), "")
        self.origins.update((id(t), found) for t in given)
        return found

    def data_in(self, tensor: gs.Tensor) -> str:
        if id(tensor) in self.origins:
            return self.origins[id(tensor)]
        if self.index.is_graph_input(tensor):
            home = self.index.home(tensor)
            is_main = home is not None and home.parent is None and not home.is_function
            return f"data (input '{tensor.name}')" if is_main else f"'{tensor.name}', which a body is given"
        node = self.index.producer(tensor)
        return f"what {node_label(node)} gives" if node is not None and _is_opaque(node) else ""

    def behind(self, tensors: Iterable[gs.Tensor], known: Container[int] = ()) -> Iterator[gs.Tensor]:
        """Tensors that values are computed from, backwards; it ends at Shape and Size, where the value is known, and at
        tensors whose ids are ``known``."""
        todo = list(tensors)
        seen: set[int] = set()
        while todo and len(seen) < FOLLOWED:
            tensor = todo.pop()
            if id(tensor) in seen or not tensor.name:
                continue
            seen.add(id(tensor))
            yield tensor
            node = self.index.producer(tensor)
            ends = id(tensor) in known or node is None or node.op in SHAPE_READERS
            if node is not None and not ends and self.is_unknown(tensor):
                todo.extend(node.inputs)

    def view(self, node: gs.Node) -> NodeView | None:
        try:
            return NodeView(node, self.index.opset(node))
        except (*FAILURES, CallerAttribute):
            return None

    # --- shapes ------------------------------------------------------------------------------------------------------

    def shape_dependent(self, node: gs.Node) -> ShapeDependent | None:
        """What ``node`` computes with sizes; None where it does not, or where data decide."""
        view = self.view(node)
        if view is None or view.domain != "" or id(node) in self.sources:
            return None
        if view.op in SHAPE_READERS:
            return self.left(node, "reads sizes", self.needs_of_value(node.outputs[0]))
        computed = [(name, tensor) for name, tensor in self.arguments(view) if self.is_computed(tensor)]
        if not computed:
            return None
        needs = [need for _, tensor in computed for need in self.needs_of_value(tensor)]
        names = " and ".join(dict.fromkeys(name for name, _ in computed))
        return self.left(node, f"computes {names} from sizes", needs)

    def arguments(self, view: NodeView) -> list[tuple[str, gs.Tensor]]:
        """The operands that decide the size of what a node gives, with their names."""
        named = dict(SIZE_ARGUMENTS.get(view.op, {}))
        if view.op in BODY_ARGUMENTS and any(map(self.is_open, view.node.outputs)):
            named = {0: BODY_ARGUMENTS[view.op]}
        return [(name, t) for place, name in named.items() if (t := view.input(place)) is not None]

    def left(self, node: gs.Node, what: str, needs: Iterable[str]) -> ShapeDependent:
        unique = tuple(dict.fromkeys(needs))
        more = f" and {len(unique) - 1} more" if len(unique) > 1 else ""
        reason = f"{what}: needs {unique[0]}{more}" if unique else f"{what} that are known: it was left"
        return ShapeDependent(node_label(node), node.op, self.path(node), reason, unique)

    def is_computed(self, tensor: gs.Tensor) -> bool:
        node = self.index.producer(tensor)
        return not isinstance(tensor, gs.Constant) and (node is None or node.op != "Constant")

    def dims_behind(self, tensor: gs.Tensor) -> list[Any]:
        """Dims of the nearest tensors, backwards, whose shape is known, and sizes that the nodes between them are given."""
        found: list[Any] = []
        todo = [tensor]
        seen: set[int] = set()
        while todo and len(seen) < FOLLOWED:
            node = self.index.producer(todo.pop())
            if node is None or id(node) in seen:
                continue
            seen.add(id(node))
            for operand in (t for t in node.inputs if t.name and not isinstance(t, gs.Constant)):
                shape = self.types.type_of(operand).shape
                found += shape or ()
                if shape is None or None in shape:
                    todo.append(operand)
            view = self.view(node)
            for _, argument in self.arguments(view) if view is not None else ():
                found += self.dims_in(argument)
        return found

    def dims_in(self, tensor: gs.Tensor) -> list[Any]:
        """What the value of a size argument is made of: its elements, or the shapes that it is computed from."""
        found: list[Any] = []
        for source in self.behind([tensor]):
            found += dims_of(self.evaluator.value(source)) or ()
            node = self.index.producer(source)
            if node is not None and node.op in SHAPE_READERS and self.is_unknown(source):
                found += self.types.type_of(node.inputs[0]).shape or ()
        return found

    def needs_of_value(self, tensor: gs.Tensor) -> list[str]:
        """What the value depends on: the symbols in it; where it is not known, the sizes that it is computed from."""
        if isinstance(self.evaluator.value(tensor), np.ndarray):
            return []
        needs = self.words(self.dims_in(tensor))
        return needs or [f"the value of '{tensor.name}'"]

    def words(self, dims: Iterable[Any]) -> list[str]:
        """What the dims depend on, in words: inputs' dims in their order, then sizes that data make, then what is left."""
        names = {name for dim in dims if isinstance(dim, Poly) for name in dim.symbols()}
        found = {text for name in names for text in self.depends_on(name)}
        known = [text for text in self.inputs.values() if text in found]
        return known + sorted(found.difference(known))

    def depends_on(self, name: str) -> frozenset[str]:
        """What a name stands for in the end, in words; kept, so that chains of sizes cost no more than their length."""
        stack = [name]
        while name not in self.meaning:
            current = stack[-1]
            texts, behind = self.size_of(current)
            self.pending.add(current)
            missing = [n for n in behind if n not in self.meaning and n not in self.pending]
            if missing:
                stack += missing
                continue
            held = texts.union(*(self.meaning.get(n, frozenset()) for n in behind))
            self.meaning[current] = held or frozenset({f"the size {current.lstrip(ANONYMOUS)}"})
            self.pending.discard(current)
            stack.pop()
        return self.meaning[name]

    def size_of(self, name: str) -> tuple[frozenset[str], list[str]]:
        """What a name stands for: in words, or the names that it was computed from."""
        origin = self.types.names.origin(name)
        if name in self.inputs or origin is None:
            return frozenset({self.inputs.get(name, name)}), []
        if name not in self.behind_names:
            tensor = origin[0]
            node = self.index.producer(tensor)
            if node is not None and id(node) in self.sources:
                text = f"the size of '{tensor.name}', which {node_label(node)} makes from data"
                return frozenset({text}), []
            dims = (d for d in self.dims_behind(tensor) if isinstance(d, Poly))
            self.behind_names[name] = sorted({n for d in dims for n in d.symbols()} - {name})
        return frozenset(), self.behind_names[name]


def _is_opaque(node: gs.Node) -> bool:
    """Whether what a node gives does not follow from shapes and constants alone, whatever its operands are."""
    return is_random(node.op) or domain_of(node.domain) != "" or any(True for _ in subgraphs(node))
