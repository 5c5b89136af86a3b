"""Equal constants are held once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import onnx_graphsurgeon as gs

from surgeon_passes.decisions import APPLIED, DECLINED, VERIFIED, Decision
from surgeon_passes.index import Scope, node_label
from surgeon_passes.model.constants import SparseTensorValues
from surgeon_passes.model.elements import onnx_dtype
from surgeon_passes.model.keys import Key, Keys
from surgeon_passes.ops.traits import QUANTIZATION
from surgeon_passes.passes.base import Pass
from surgeon_passes.passes.state import State
from surgeon_passes.region import Exactness, NodeImage
from surgeon_passes.rules.journal import Edit, Slot
from surgeon_passes.rules.rule import Decline

RULE = "merge_duplicate_constants"
SMALL = 1 << 10
"""Bytes up to which a body keeps its own: shape inference does not look out of a body for axes and targets."""


@dataclass(frozen=True)
class Constants(Pass):
    """Initializers of the same element type, shape and bytes become one; bodies of control flow read it, too.

    After all others, since rules leave a weight alone that others read. A body keeps small constants of its own. Never
    initializers that a caller may override or that are outputs, nor scales and zero points of quantisation, nor constants
    of functions, which hold their own.
    """

    name: ClassVar[str] = "constants"
    last: ClassVar[bool] = True
    makes: ClassVar[tuple[str, ...]] = (RULE,)

    def run(self, state: State) -> bool:
        merged = [_merge(state, kept, twin) for kept, twin in list(_twins(state))]
        state.rewriter.journal.forget()
        return any(merged)


def _twins(state: State) -> Iterator[tuple[gs.Constant, gs.Constant]]:
    """(constant that stays, equal one that goes), in the order in which nodes read them."""
    by_form: dict[Key, list[gs.Constant]] = {}
    for constant in _candidates(state):
        by_form.setdefault((onnx_dtype(constant.dtype), tuple(constant.shape)), []).append(constant)
    keys, local = Keys(), _held_by_bodies(state)
    for alike in by_form.values():
        if len(alike) == 1:
            continue  # what has no like is not read
        first: dict[Key, gs.Constant] = {}
        for constant in sorted(
            alike, key=lambda c: id(c) in local
        ):  # a body reads the graph around it, not the reverse
            kept = first.setdefault(keys.constant(constant), constant)
            if kept is constant or id(kept) in local:
                continue
            if id(constant) not in local or constant._values.nbytes > SMALL:
                yield kept, constant


def _candidates(state: State) -> Iterator[gs.Constant]:
    index = state.index
    found: dict[int, gs.Constant] = {}
    for scope, nodes in index.ordered():
        if not scope.is_function:
            found.update((id(t), t) for n in nodes for t in n.inputs if isinstance(t, gs.Constant) and t.name)
    for constant in found.values():
        readers = index.consumers(constant)
        if index.is_output(constant) or index.is_graph_input(constant):
            continue
        if isinstance(constant._values, SparseTensorValues) or any(r.op in QUANTIZATION for r in readers):
            continue
        if not any(index.scope(r).is_function for r in readers):
            yield constant


def _held_by_bodies(state: State) -> set[int]:
    """Ids of the constants that a body defines by itself. What one that was inlined held, the whole graph holds now."""
    bodies = [scope.graph for scope in state.index.scopes if scope.parent is not None and _is_live(state, scope)]
    return {id(c) for body in bodies for c in state.model.extras.of(body).constants}


def _is_live(state: State, scope: Scope) -> bool:
    """Whether the nodes that hold a body, one in another, are in the graph."""
    while scope.parent is not None:
        if scope.owner is None or not state.index.is_live(scope.owner):
            return False
        scope = scope.parent
    return True


def _merge(state: State, kept: gs.Constant, twin: gs.Constant) -> bool:
    """Let the readers of ``twin`` read ``kept``. Equal bytes need no other check."""
    index, readers = state.index, state.index.consumers(twin)
    scope, root = index.scope(readers[0]), readers[0]
    decision = Decision(RULE, scope.path, str(twin.name), APPLIED, nodes=tuple(map(node_label, readers)))
    decision.verdict, decision.reason = VERIFIED, "the same bytes"
    if not state.may_edit() or (RULE, scope.path, decision.root) in state.banned:
        return False
    moved: list[Slot] = [(n, i, twin, kept) for n in readers for i, t in enumerate(n.inputs) if t is twin]
    edit = Edit(
        rule=RULE,
        scope=scope,
        root=root,
        decision=decision,
        inputs=tuple(moved),
        touched=tuple(map(NodeImage.of, readers)),
        exactness=Exactness.EXACT,
    )
    try:
        state.guard.check(edit, index)
    except Decline as reason:
        decision.status, decision.verdict, decision.reason = DECLINED, "", str(reason)
        state.decide(decision)
        return False
    state.rewriter.journal.apply(edit)
    state.made.append(decision)
    decision.metrics = {"bytes": int(twin._values.nbytes)}
    state.decide(decision)
    state.applied.append(decision)
    return True
