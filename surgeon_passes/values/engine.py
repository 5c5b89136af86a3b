"""The face of the shape evaluator: what is known of a tensor, and which nodes say so."""

from __future__ import annotations

import math

import numpy as np
import onnx_graphsurgeon as gs

from surgeon_passes.index import GraphIndex, subgraphs
from surgeon_passes.model import numpy_dtype
from surgeon_passes.model.graphs import check_depth
from surgeon_passes.ops.schema import domain_of, schema
from surgeon_passes.ops.traits import CONTROL_FLOW, SHAPE_READERS, is_random
from surgeon_passes.values.bodies import captures
from surgeon_passes.values.dims import static, type_shape
from surgeon_passes.values.lattice import Value
from surgeon_passes.values.ramps import Ramp, Ramps
from surgeon_passes.values.types import TypeMap

_NEVER_FOLDED = frozenset({"DequantizeLinear"})


class ReadLog:
    """Tensors whose value was asked for and came from evaluating nodes, in order, each once."""

    def __init__(self, logs: list[ReadLog]) -> None:
        self.tensors: list[gs.Tensor] = []
        self._seen: set[int] = set()
        self._logs = logs

    def __enter__(self) -> ReadLog:
        self._logs.append(self)
        return self

    def __exit__(self, *failure: object) -> None:
        self._logs.remove(self)

    def note(self, tensor: gs.Tensor) -> None:
        if id(tensor) not in self._seen:
            self._seen.add(id(tensor))
            self.tensors.append(tensor)


class Evaluator:
    """Values of tensors before the model runs, on demand; every answer, unknown included, is kept.

    ``types`` are made here where they are not given. ``strict`` lets a handler's own failure through (for tests).
    """

    def __init__(
        self,
        graph: gs.Graph,
        index: GraphIndex | None = None,
        types: TypeMap | None = None,
        strict: bool = False,
    ) -> None:
        if types is None:
            check_depth(graph, graph.name or "the graph")
            types = TypeMap(graph, index, strict=strict)
        self.types = types
        self.index = types.index
        self._solver = types.solver
        self._logs: list[ReadLog] = []
        self._names: dict[str, gs.Tensor] | None = None
        self._foldable: dict[int, tuple[gs.Node, bool]] = {}
        self._ramps = Ramps(self.index, types, self._solver.value)

    # --- values ------------------------------------------------------------------------------------------------------

    def value(self, tensor: gs.Tensor | str) -> Value:
        """An ndarray (fully known), a :class:`Partial` (some integer elements known or symbolic), or None (unknown).

        A name is looked up in the main graph first. Raises KeyError for a name that no tensor has.
        """
        if isinstance(tensor, str):
            tensor = self.tensor(tensor)
        found = self._solver.value(tensor)
        if found is not None:
            self._note(tensor)
        return found

    def ramp(self, tensor: gs.Tensor) -> Ramp | None:
        """The formula of a tensor that steps evenly, or is one number everywhere, whatever its size; None where unknown."""
        found = self._ramps.ramp(tensor)
        if found is not None:
            self._note(tensor)
        return found

    def _note(self, tensor: gs.Tensor) -> None:
        if self._logs and self._is_evaluated(tensor):
            for log in self._logs:
                log.note(tensor)

    def refresh(self) -> None:
        """Forget unknown answers: after folding or rewriting, more may be known. (What is known stays true.)"""
        self._solver.forget_unknown()
        self._ramps.forget()
        self._foldable.clear()

    def forget(self) -> None:
        """Forget every value: some may come from edits that have been undone."""
        self._solver.forget_values()
        self._ramps.forget(known=True)
        self._foldable.clear()

    def tensor(self, name: str) -> gs.Tensor:
        """The tensor of that name, the main graph's where bodies use the name too."""
        if self._names is None or name not in self._names:
            self._names = {}
            for scope in reversed(self.index.scopes):
                for node in self.index.scope_nodes(scope):
                    self._names.update((t.name, t) for t in (*node.inputs, *node.outputs) if t.name)
                self._names.update((t.name, t) for t in (*scope.graph.inputs, *scope.graph.outputs))
        return self._names[name]

    def _is_evaluated(self, tensor: gs.Tensor) -> bool:
        node = self.index.producer(tensor)
        return node is not None and node.op != "Constant"

    def recording(self) -> ReadLog:
        """Collect what is read: ``with evaluator.recording() as log: …``; then ``evaluator.cone(*log.tensors)``."""
        return ReadLog(self._logs)

    def cone(self, *tensors: gs.Tensor) -> list[gs.Node]:
        """The nodes that the values come from, in graph order as they stand now; Shape and Size are included and end it.

        What the bodies of a node read from around it counts as read by the node.
        """
        found: dict[int, gs.Node] = {}
        todo = list(tensors)
        while todo:
            tensor = todo.pop()
            node = self.index.producer(tensor)
            if node is None or id(node) in found or not self._is_known(tensor):
                continue
            found[id(node)] = node
            if node.op not in SHAPE_READERS:
                todo.extend(t for t in node.inputs if t.name)
                todo.extend(captures(self.index, node))
        order = {id(scope): number for number, scope in enumerate(self.index.scopes)}
        return sorted(found.values(), key=lambda n: (order[id(self.index.scope(n))], self.index.position(n)))

    def _is_known(self, tensor: gs.Tensor) -> bool:
        return self._solver.value(tensor) is not None or self._ramps.ramp(tensor) is not None

    # --- folding -----------------------------------------------------------------------------------------------------

    def is_foldable(self, node: gs.Node) -> bool:
        """Whether a runtime could compute the node's outputs now, once and for all.

        Deterministic, of a standard domain, without bodies, on inputs that are known or foldable themselves; never
        DequantizeLinear (it keeps weights small) and nothing whose outputs are not tensors.
        """
        stack = [node]
        entered: set[int] = set()
        while stack:
            current = stack[-1]
            if id(current) in self._foldable:
                stack.pop()
                continue
            verdict = self._judge(current)
            if isinstance(verdict, bool) or any(id(p) in entered for p in verdict):
                self._foldable[id(current)] = (current, verdict is True)
            else:
                entered.add(id(current))
                stack.extend(verdict)
        return self._foldable[id(node)][1]

    def _judge(self, node: gs.Node) -> bool | list[gs.Node]:
        """The answer, or the producers that have to be judged first."""
        if not self._may_fold(node):
            return False
        waiting: list[gs.Node] = []
        for tensor in node.inputs:
            if not tensor.name or isinstance(self._solver.value(tensor), np.ndarray):
                continue
            producer = self.index.producer(tensor)
            held = None if producer is None else self._foldable.get(id(producer))
            if producer is None or (held is not None and not held[1]):
                return False
            if held is None:
                waiting.append(producer)
        return waiting or True

    def _may_fold(self, node: gs.Node) -> bool:
        domain = domain_of(node.domain)
        scope = self.index.scope(node)
        if domain not in ("", "ai.onnx.ml") or schema(node.op, scope.opset(domain), domain) is None:
            return False
        if node.op in CONTROL_FLOW or node.op in _NEVER_FOLDED:
            return False
        if any(True for _ in subgraphs(node)) or any(isinstance(v, gs.Node.AttributeRef) for v in node.attrs.values()):
            return False
        if self.draws(node):
            return False
        return all(self.types.type_of(t).kind == "tensor" for t in (*node.inputs, *node.outputs) if t.name)

    def draws(self, node: gs.Node) -> bool:
        """Whether it gives something else each time: random operators, Dropout and BatchNormalization while they train."""
        if is_random(node.op):
            return True
        if node.op == "BatchNormalization":
            return bool(node.attrs.get("training_mode", 0)) or len(node.outputs) > 1
        if node.op != "Dropout":
            return False
        opset = self.index.opset(node)
        if opset < 7:
            return not node.attrs.get("is_test", 0)
        if len(node.inputs) < 3 or not node.inputs[2].name:
            return False
        training = self._solver.value(node.inputs[2])
        return not isinstance(training, np.ndarray) or bool(training)

    def output_bytes(self, node: gs.Node) -> int | None:
        """Bytes of the node's outputs; None where a shape is not static."""
        total = 0
        for tensor in node.outputs:
            if not tensor.name:
                continue
            entry = self.types.type_of(tensor)
            shape = static(type_shape(entry))
            if shape is None or not entry.dtype:
                return None
            total += math.prod(shape) * numpy_dtype(entry.dtype).itemsize
        return total
