"""Multiply-accumulates and parameters of a whole model, node by node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from surgeon_passes.index import Scope, node_label
from surgeon_passes.model import Model
from surgeon_passes.model.elements import onnx_dtype
from surgeon_passes.ops.macs import BODIES, macs, parameters
from surgeon_passes.passes.state import State, Verify
from surgeon_passes.region import TensorType
from surgeon_passes.rules.registry import Registry
from surgeon_passes.values.dims import maximum
from surgeon_passes.values.symbols import Poly


@dataclass(frozen=True, slots=True)
class NodeCost:
    """``macs``: an int, a polynomial of symbolic dims, or None where not known; bodies are nodes of their own.

    ``parameters``: those of the node's own constants, as :func:`surgeon_passes.ops.macs.parameters` has them.
    """

    label: str
    op: str
    graph: str
    macs: Any
    parameters: int


@dataclass(frozen=True, slots=True)
class ModelCost:
    """``macs`` of one run, as far as they are known: ``unknown`` names the nodes of which they are not. None where they are
    too long a formula of symbolic dims; ``at`` is their number at these ``sizes`` of those, None where sizes are missing.

    Of an If the dearer branch counts, of a Loop each turn (one where their number is not known), a function at each call.
    ``parameters`` of a constant that several nodes read count once.
    """

    nodes: tuple[NodeCost, ...]
    macs: Any
    parameters: int
    unknown: tuple[str, ...]
    sizes: Mapping[str, int]
    at: int | None


def model_cost(model: Model, shapes: Mapping[str, Sequence[int]] | None = None) -> ModelCost:
    """What a run of ``model`` costs; ``shapes`` of its inputs, where they are known, tell symbolic dims. Constants that nodes
    read count, in Constant nodes too."""
    return _Counter(State(model, Registry(), Verify("off"))).cost(shapes or {})


class _Counter:
    def __init__(self, state: State) -> None:
        self.state = state
        self.index = state.index
        self.by_scope: dict[int, list[gs.Node]] = {id(s): self.index.scope_nodes(s) for s in self.index.scopes}
        self.unknown: list[str] = []
        self.sizes: Mapping[str, int] | None = None
        """of symbolic dims, where numbers are wanted"""

    def cost(self, shapes: Mapping[str, Sequence[int]]) -> ModelCost:
        nodes = tuple(self._node(scope, node) for scope in self.index.scopes for node in self._nodes(scope))
        held = {key: size for node in self.index.nodes() for key, size in self._parameters(node)}
        whole, sizes = self._total(), self._sizes(shapes)
        self.sizes = sizes
        return ModelCost(nodes, whole, sum(held.values()), tuple(dict.fromkeys(self.unknown)), sizes, self._total())

    def _total(self) -> Any:
        """Of the model; None where a size is missing, or the formula is too long."""
        try:
            return self._scope(self.index.scopes[0])
        except (ArithmeticError, KeyError):
            return None

    def _sizes(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
        """Sizes of the symbolic dims that inputs have, by inputs of these shapes."""
        found: dict[str, int] = {}
        for tensor in self.state.graph.inputs:
            stated = self.state.types.type_of(tensor).shape
            given = shapes.get(str(tensor.name))
            if stated is not None and given is not None and len(stated) == len(given):
                found |= {str(dim): size for dim, size in zip(stated, given, strict=True) if isinstance(dim, Poly)}
        return found

    def _nodes(self, scope: Scope) -> list[gs.Node]:
        return [node for node in self.by_scope[id(scope)] if node.op != "Constant"]

    def _node(self, scope: Scope, node: gs.Node) -> NodeCost:
        name = f"{node.domain}.{node.op}" if node.domain else str(node.op)
        own = sum(dict(self._parameters(node)).values())
        return NodeCost(node_label(node), name, scope.path, self._own(node), own)

    def _own(self, node: gs.Node) -> Any:
        if self._function(node) is not None or node.op in BODIES:
            return 0
        return macs(self.index.view(node), self.state.types.type_of)

    def _parameters(self, node: gs.Node) -> Iterator[tuple[int, int]]:
        """(key, elements) of the constants that a node reads."""
        for tensor in node.inputs:
            if isinstance(tensor, gs.Constant):
                yield id(tensor), parameters(TensorType(onnx_dtype(tensor.dtype), tuple(tensor.shape)))
            elif tensor.name and (producer := self.index.producer(tensor)) is not None and producer.op == "Constant":
                yield id(producer), parameters(self.state.types.type_of(tensor))

    # --- one run -----------------------------------------------------------------------------------------------------

    @cached_property
    def _bodies(self) -> dict[int, list[Scope]]:
        found: dict[int, list[Scope]] = {}
        for scope in self.index.scopes:
            if scope.owner is not None:
                found.setdefault(id(scope.owner), []).append(scope)
        return found

    @cached_property
    def _functions(self) -> dict[tuple[str, str], Scope]:
        outer = (s for s in self.index.scopes if s.is_function and s.parent is None)
        return {(scope.graph.domain or "", scope.graph.name): scope for scope in outer}

    def _function(self, node: gs.Node) -> Scope | None:
        return self._functions.get((node.domain or "", node.op))

    def _scope(self, scope: Scope) -> Any:
        total: Any = 0
        for node in self._nodes(scope):
            total = total + self._run(node)
        return total

    def _run(self, node: gs.Node) -> Any:
        """Of one run of a node; 0 where it is not known, which is noted."""
        function = self._function(node)
        if function is not None:
            return self._scope(function)
        if node.op in BODIES:
            return self._with_bodies(node)
        own = self._own(node)
        if own is None:
            self.unknown.append(node_label(node))
        return 0 if own is None else self._number(own)

    def _number(self, size: Any) -> Any:
        """Raises KeyError where a size is missing."""
        return size.evaluate(self.sizes) if self.sizes is not None and isinstance(size, Poly) else size

    def _with_bodies(self, node: gs.Node) -> Any:
        inner = [self._scope(body) for body in self._bodies.get(id(node), ())]
        if all(isinstance(size, int) and size == 0 for size in inner):
            return 0
        if node.op == "If":
            return reduce(maximum, inner)
        turns = self._turns(node)
        if turns is None:
            self.unknown.append(node_label(node))
        return inner[0] if turns is None else self._number(turns) * inner[0]

    def _turns(self, node: gs.Node) -> Any:
        """How often a body runs; None where a condition may end it, or the data tells."""
        view = self.index.view(node)
        if node.op == "Scan":
            first = view.input(len(view.inputs) - int(view.attr("num_scan_inputs")))
            shape = None if first is None else self.state.types.type_of(first).shape
            axes = view.attr("scan_input_axes")
            return None if not shape else shape[axes[0] if axes else 0]
        count, condition = view.input(0), view.input(1)
        value = None if count is None else self.state.evaluator.value(count)
        body = self._bodies[id(node)][0].graph
        is_constant = condition is None or self._is_true(condition)
        if not isinstance(value, np.ndarray) or value.size != 1 or not is_constant or not self._goes_on(body):
            return None
        return int(value.reshape(-1)[0])

    def _is_true(self, tensor: gs.Tensor) -> bool:
        value = self.state.evaluator.value(tensor)
        return isinstance(value, np.ndarray) and bool(value.all())

    def _goes_on(self, body: gs.Graph) -> bool:
        """Whether a body hands on the condition that it was given, or True."""
        out = body.outputs[0]
        while (producer := self.index.producer(out)) is not None and producer.op == "Identity":
            out = producer.inputs[0]
        return out is body.inputs[1] or self._is_true(out)
