"""Edits that passes make themselves, without a rule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx_graphsurgeon as gs

from surgeon_passes.decisions import APPLIED, DECLINED, Decision
from surgeon_passes.index import GraphIndex, node_label
from surgeon_passes.passes.state import State
from surgeon_passes.region import Exactness
from surgeon_passes.rules.journal import Edit
from surgeon_passes.rules.rule import Decline
from surgeon_passes.values.bodies import captures

Renaming = tuple[gs.Tensor, str, str]
"""tensor, the name that it had, the name that it gets"""


def read_by(index: GraphIndex, node: gs.Node) -> list[gs.Tensor]:
    """What a value of ``node`` is computed from: its operands, and what its bodies read from around it."""
    return [*(t for t in node.inputs if t.name), *captures(index, node)]


def make_edit(
    state: State,
    rule: str,
    root: gs.Node,
    replaced: Iterable[tuple[gs.Tensor, gs.Tensor]],
    *,
    removed: Sequence[gs.Node],
    added: Sequence[gs.Node] = (),
    reads: Iterable[gs.Tensor] = (),
    beside: Iterable[gs.Node] = (),
    renamed: Iterable[Renaming] = (),
    moved_whole: bool = False,
    exactness: Exactness = Exactness.EXACT,
) -> Edit | None:
    """Apply one edit, to be settled; None where it is banned, was refuted before, or is declined (and recorded).

    ``replaced`` are (result before, tensor that stands for it now), ``removed`` and ``added`` nodes, ``reads`` the tensors of
    whose values it makes use. ``renamed`` and ``moved_whole`` as :class:`Edit` has them; the former is asked for only where
    the edit is made.
    """
    decision = Decision(rule, state.index.scope(root).path, node_label(root), APPLIED, nodes=(node_label(root),))
    if not state.may_edit() or (rule, decision.graph, decision.root) in state.banned:
        return None
    if (rule, frozenset(id(n) for n in removed)) in state.refuted:
        return None
    try:
        edit = state.rewriter.edit(
            rule=rule,
            root=root,
            decision=decision,
            removed=removed,
            added=added,
            replaced=replaced,
            exactness=exactness,
            reads=reads,
            beside=beside,
        )
    except Decline as error:
        decision.status, decision.reason = DECLINED, str(error)
        state.decide(decision, root)
        return None
    edit.moved_whole = moved_whole
    edit.renamed = tuple(renamed)
    state.rewriter.journal.apply(edit)
    state.take(edit)
    return edit
