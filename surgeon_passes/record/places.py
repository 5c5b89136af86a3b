"""Where in the original a rewrite stood, by structure: what leads there, and what follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx_graphsurgeon as gs

from surgeon_passes.decisions import Decision
from surgeon_passes.index import GraphIndex, Scope, node_label
from surgeon_passes.model import Model
from surgeon_passes.model.elements import onnx_dtype
from surgeon_passes.ops.traits import is_commutative
from surgeon_passes.record.structure import digest, node_key


@dataclass(frozen=True, slots=True)
class Place:
    """``above``: key of all that leads to a node, itself included; ``below``: of all that depends on it. ``depth``: from 0 to
    1, how far behind the inputs it stands."""

    above: str
    below: str
    depth: float


class Places:
    """Places of a model's nodes, by (path of the graph, label)."""

    def __init__(self, model: Model) -> None:
        self._index = GraphIndex(model.graph)
        self._outputs: dict[int, str] = {}
        self._above: dict[int, str] = {}
        self._below: dict[int, str] = {}
        self._depth: dict[int, int] = {}
        self._found: dict[tuple[str, str], Place] = {}
        ordered = list(self._index.ordered())
        for scope, nodes in ordered:
            self._take(scope, nodes)
        most = max(self._depth.values(), default=1)
        for scope, nodes in ordered:
            for node in nodes:
                key = id(node)
                place = Place(self._above[key], self._below[key], round(self._depth[key] / most, 4))
                self._found.setdefault((scope.path, node_label(node)), place)

    def _take(self, scope: Scope, nodes: Sequence[gs.Node]) -> None:
        inputs = {id(t): f"input {place}" for place, t in enumerate(scope.graph.inputs)}
        for node in nodes:
            view = self._index.view(node)
            self._above[id(node)] = node_key(view, [self._source(t, inputs) for t in node.inputs])
            makers = [self._index.producer(t) for t in node.inputs]
            self._depth[id(node)] = 1 + max((self._depth.get(id(m), 0) for m in makers if m is not None), default=0)
        for place, tensor in enumerate(scope.graph.outputs):
            held = self._outputs.get(id(tensor), "")
            self._outputs[id(tensor)] = f"{held} output {place}"
        for node in reversed(nodes):
            users = [self._users(t, slot) for slot, t in enumerate(node.outputs) if t.name]
            self._below[id(node)] = digest(node_key(self._index.view(node), ()), *users)

    def _source(self, tensor: gs.Tensor, inputs: dict[int, str]) -> str:
        if not tensor.name:
            return "-"
        if isinstance(tensor, gs.Constant):
            return f"constant {onnx_dtype(tensor.dtype)} {tuple(tensor.shape)}"
        producer = self._index.producer(tensor)
        if producer is None:
            return inputs.get(id(tensor), "outside")
        return f"{self._above.get(id(producer), 'outside')}:{list(map(id, producer.outputs)).index(id(tensor))}"

    def _users(self, tensor: gs.Tensor, slot: int) -> str:
        found = []
        for reader in self._index.readers(tensor):
            anywhere = is_commutative(reader.domain or "", str(reader.op))
            places = "" if anywhere else [i for i, t in enumerate(reader.inputs) if t is tensor]
            found.append(f"{self._below.get(id(reader), 'inside')}@{places}")
        return f"{slot}: {' '.join(sorted(found))}{self._outputs.get(id(tensor), '')}"

    def of(self, decisions: Sequence[Decision]) -> list[Place | None]:
        """Of each decision, in the order in which they were made; of nodes that rewrites brought in, the place of those."""
        known = dict(self._found)
        found: list[Place | None] = []
        for decision in decisions:
            labels: list[Any] = [decision.root, *decision.nodes]
            place = next((p for label in labels if (p := known.get((decision.graph, label))) is not None), None)
            found.append(place)
            if place is not None and decision.trace is not None and decision.status == "applied":
                for node in decision.trace.after:
                    known.setdefault((decision.graph, node.label), place)
        return found
