"""What can be known before the model runs becomes a constant."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from surgeon_passes.decisions import DECLINED, UNVERIFIED, VERIFIED, Decision
from surgeon_passes.index import node_label
from surgeon_passes.memory import parse_bytes
from surgeon_passes.model import numpy_dtype
from surgeon_passes.ops.schema import domain_of
from surgeon_passes.passes.base import Pass
from surgeon_passes.passes.edits import make_edit, read_by
from surgeon_passes.passes.inline import RULE as INLINE
from surgeon_passes.passes.inline import inline_known_ifs
from surgeon_passes.passes.loops import read_loop_invariants
from surgeon_passes.passes.settle import settle
from surgeon_passes.passes.state import State, remove_dead
from surgeon_passes.rules.journal import Edit

SCRATCH = 64
"""Intermediate values may be this many times the budget: they are not kept."""
FREE = 256
"""Growth in bytes that is no more than what the node itself takes in the file."""
LOOK_BACK = 256
"""Nodes that are searched for the constants behind a value."""
HANDLERS, RUNTIME, LIFT = "fold_shape_arithmetic", "fold_constants", "lift_constant_nodes"


@dataclass(frozen=True)
class Fold(Pass):
    """Constant nodes become initializers, shape arithmetic and constant expressions their values, known Ifs a branch.

    ``max_bytes`` bounds a folded tensor that is larger than what it is made from ("1MiB", or bytes), and their sum beyond
    a quarter of the model's weights; what would exceed it is left, and the report says so.
    """

    name: ClassVar[str] = "fold"
    makes: ClassVar[tuple[str, ...]] = (LIFT, RUNTIME, HANDLERS, INLINE)
    max_bytes: int | str = "1MiB"

    def run(self, state: State) -> bool:
        if not state.may_edit():
            return False
        folder = _Folder(state, parse_bytes(self.max_bytes, "max_bytes"))
        changed = folder.lift()
        changed = folder.by_runtime() or changed
        if changed:
            remove_dead(state)
        if folder.by_handlers():
            remove_dead(state)
            changed = True
        changed = inline_known_ifs(state) or changed
        return read_loop_invariants(state) or changed


class _Folder:
    def __init__(self, state: State, limit: int) -> None:
        self.state = state
        self.index = state.index
        self.evaluator = state.evaluator
        self.limit = limit
        self.pure: set[int] = set()
        """nodes (by id) that ONNX Runtime could compute: left by it, they are left"""

    # --- Constant nodes ----------------------------------------------------------------------------------------------

    def lift(self) -> bool:
        """Constant nodes to initializers; the bytes stay the same. Functions have none: theirs stay."""
        changed = False
        for node in self.index.nodes():
            if node.op != "Constant" or domain_of(node.domain):
                continue
            result = node.outputs[0]
            if self.index.scope(node).is_function or self.index.is_output(result) or self.index.is_dead(node):
                continue
            constant = self.lifted(node, result)
            if constant is not None:
                changed = self.apply(LIFT, node, result, constant) is not None or changed
        self.state.rewriter.journal.forget()
        return changed

    def lifted(self, node: gs.Node, result: gs.Tensor) -> gs.Constant | None:
        value = node.attrs.get("value")
        if isinstance(value, gs.Constant):
            return gs.Constant(result.name, value._values)
        known = self.evaluator.value(result)
        return gs.Constant(result.name, known) if isinstance(known, np.ndarray) else None

    # --- handlers ----------------------------------------------------------------------------------------------------

    def by_handlers(self) -> bool:
        """Tensors that the evaluator knows in full, where somebody who is not known reads them."""
        candidates = []
        for node in self.index.nodes():
            result = next((t for t in node.outputs if t.name), None)
            if result is not None and id(node) not in self.pure and self.is_candidate(node):
                value = self.evaluator.value(result)
                if isinstance(value, np.ndarray) and self.needed(result):
                    candidates.append((result, value))
        edits = [self.known(result, value) for result, value in self.affordable(candidates)]
        return bool(settle(self.state, [e for e in edits if e is not None]))

    def is_candidate(self, node: gs.Node) -> bool:
        return node.op != "Constant" and sum(bool(t.name) for t in node.outputs) == 1

    def known(self, result: gs.Tensor, value: np.ndarray[Any, Any]) -> Edit | None:
        node = self.index.producer(result)
        if node is None or not self.state.may_edit() or (HANDLERS, frozenset({id(node)})) in self.state.refuted:
            return None
        constant = gs.Constant(self.name(result), value)
        return self.apply(HANDLERS, node, result, constant, reads=read_by(self.index, node))

    def needed(self, tensor: gs.Tensor) -> bool:
        """Whether a graph's output, or a node that is not known itself, reads ``tensor``."""
        if self.index.is_output(tensor):
            return True
        for user in self.index.consumers(tensor):
            outputs = [t for t in user.outputs if t.name]
            if not all(isinstance(self.evaluator.value(t), np.ndarray) for t in outputs) or not outputs:
                return True
        return False

    # --- ONNX Runtime ------------------------------------------------------------------------------------------------

    def by_runtime(self) -> bool:
        """The foldable rest, computed by ONNX Runtime in one go."""
        chosen: dict[int, gs.Node] = {}
        for node in self.index.nodes():
            if node.op != "Constant" and self.is_pure(node) and self.evaluator.is_foldable(node):
                self.pure.add(id(node))
                if self.fits(node, chosen):
                    chosen[id(node)] = node
        wanted = [t for n in chosen.values() for t in n.outputs if t.name and self.leaves(t, chosen)]
        if not wanted:
            return False
        from surgeon_passes.verify.folding import compute

        values = compute(self.index, list(chosen.values()), wanted)
        known = self.affordable([(t, values[id(t)]) for t in wanted if self.is_of_type(t, values.get(id(t)))])
        done = [self.replace(t, value) for t, value in known]
        self.state.rewriter.journal.forget()
        return any(done)

    def is_of_type(self, tensor: gs.Tensor, value: np.ndarray[Any, Any] | None) -> bool:
        """Whether ONNX Runtime handed out the tensor itself: float8 and its kin come as other types, and stay as they are."""
        dtype = self.state.types.type_of(tensor).dtype
        return value is not None and (not dtype or value.dtype == numpy_dtype(dtype) or value.dtype == object)

    def is_pure(self, node: gs.Node) -> bool:
        """Whether ``node`` is computed from constants alone, no input's type among them."""
        makers = [self.index.producer(t) for t in node.inputs if not isinstance(t, gs.Constant) and t.name]
        return all(m is not None and (m.op == "Constant" or id(m) in self.pure) for m in makers)

    def fits(self, node: gs.Node, chosen: dict[int, gs.Node]) -> bool:
        for tensor in node.inputs:
            producer = self.index.producer(tensor)
            if producer is not None and producer.op != "Constant" and id(producer) not in chosen:
                return False
        size = self.evaluator.output_bytes(node)
        if size is None or size <= SCRATCH * self.limit:
            return True
        self.too_large(node.outputs[0], size)
        return False

    def leaves(self, tensor: gs.Tensor, chosen: dict[int, gs.Node]) -> bool:
        users = self.index.consumers(tensor)
        return self.index.is_output(tensor) or any(id(u) not in chosen for u in users)

    def replace(self, tensor: gs.Tensor, value: np.ndarray[Any, Any]) -> bool:
        node = self.index.producer(tensor)
        if node is None or not self.state.may_edit():
            return False
        if sum(bool(t.name) for t in node.outputs) > 1:
            return self.forward(node, tensor, value)
        return self.apply(RUNTIME, node, tensor, gs.Constant(self.name(tensor), value)) is not None

    def forward(self, node: gs.Node, tensor: gs.Tensor, value: np.ndarray[Any, Any]) -> bool:
        """One result of several: its readers turn to the constant, the node stays until nobody reads it."""
        if self.index.is_output(tensor):
            return False
        edit = self.apply(RUNTIME, node, tensor, gs.Constant(self.name(tensor), value), removed=[])
        return edit is not None

    # --- both --------------------------------------------------------------------------------------------------------

    def name(self, tensor: gs.Tensor) -> str:
        if self.index.is_output(tensor):
            return self.index.unique_tensor_name(f"{tensor.name}.value")
        return str(tensor.name)

    def bytes_behind(self, node: gs.Node) -> int:
        """Bytes of the constants that ``node`` is computed from: they may go when its value is known."""
        constants: dict[int, int] = {}
        seen: set[int] = set()
        todo = [node]
        while todo and len(seen) < LOOK_BACK:
            current = todo.pop()
            if id(current) in seen:
                continue
            seen.add(id(current))
            for tensor in current.inputs:
                producer = self.index.producer(tensor)
                if isinstance(tensor, gs.Constant):
                    constants[id(tensor)] = int(tensor._values.nbytes)
                elif producer is not None:
                    todo.append(producer)
        return sum(constants.values())

    def affordable(
        self, known: list[tuple[gs.Tensor, np.ndarray[Any, Any]]]
    ) -> list[tuple[gs.Tensor, np.ndarray[Any, Any]]]:
        """Those that may become constants: each within the limit, and all of them, or none, within the sum.

        Taking some until the sum is used up would make the result depend on how often the pass has run.
        """
        growth = [self.growth(tensor, value) for tensor, value in known]
        total = sum(g for g in growth if FREE < g <= self.limit)
        most = self.limit if total <= self.limit + _weight_bytes(self.state) // 4 else FREE
        for (tensor, value), more in zip(known, growth, strict=True):
            if more > most:
                self.too_large(tensor, value.nbytes)
        return [pair for pair, more in zip(known, growth, strict=True) if more <= most]

    def growth(self, tensor: gs.Tensor, value: np.ndarray[Any, Any]) -> int:
        node = self.index.producer(tensor)
        return value.nbytes if node is None else value.nbytes - self.bytes_behind(node)

    def too_large(self, tensor: gs.Tensor, size: int) -> None:
        node = self.index.producer(tensor)
        if node is None:
            return
        reason = f"folding would make a constant of {size} bytes, over the budget (max_bytes {self.limit}); left"
        decision = Decision(RUNTIME, self.index.scope(node).path, node_label(node), DECLINED, reason=reason)
        self.state.decide(decision, node)

    def apply(
        self,
        rule: str,
        node: gs.Node,
        old: gs.Tensor,
        new: gs.Constant,
        reads: Iterable[gs.Tensor] = (),
        removed: list[gs.Node] | None = None,
    ) -> Edit | None:
        removed = [node] if removed is None else removed
        edit = make_edit(self.state, rule, node, [(old, new)], removed=removed, reads=reads)
        if edit is None:
            return None
        decision = edit.decision
        decision.verdict = VERIFIED if self.state.check is not None else UNVERIFIED
        scope = self.index.scope(node)
        if scope.parent is not None:  # other bodies may use the name, too
            self.state.model.extras.of(scope.graph).constants.append(new)
        if rule == RUNTIME:
            decision.reason = "computed by ONNX Runtime"
            self.state.decide(decision)
            self.state.applied.append(decision)
        return edit


def _weight_bytes(state: State) -> int:
    constants = {id(t): t for t in state.index.tensors() if isinstance(t, gs.Constant) and state.index.edge_count(t)}
    return sum(int(t._values.nbytes) for t in constants.values())
