"""If with a known condition: the branch that is taken moves into the graph around it."""

from __future__ import annotations

from collections import Counter

import onnx_graphsurgeon as gs

from surgeon_passes.decisions import DECLINED, Decision
from surgeon_passes.index import GraphIndex, Scope, node_label, subgraphs
from surgeon_passes.model.constants import array_of
from surgeon_passes.ops.schema import domain_of
from surgeon_passes.passes.edits import make_edit
from surgeon_passes.passes.settle import settle
from surgeon_passes.passes.state import State, remove_dead
from surgeon_passes.rules.journal import Edit

RULE = "inline_known_if"
_IDENTITY = {"tensor": 1, "sequence": 14, "optional": 16}
"""the opset from which Identity takes a kind of value"""


class Names:
    """Names as they stand: of tensors how often each is used, of nodes those of each graph, in which no two may be equal."""

    def __init__(self, index: GraphIndex) -> None:
        self.index = index
        self.tensors = Counter(t.name for t in index.tensors())
        self.nodes: dict[int, set[str]] = {}
        """by id(scope)"""

    def in_scope(self, name: str, scope: Scope) -> str:
        """What a node of this name is called that comes into ``scope``: sibling bodies use the same names."""
        held = self.nodes.get(id(scope))
        if held is None:
            held = self.nodes[id(scope)] = {str(n.name) for n in self.index.scope_nodes(scope)}
        found = self.index.unique_node_name(name) if name and name in held else name
        held.add(found)
        return found


def inline_known_ifs(state: State) -> bool:
    """Inline every If whose condition is a constant; outer ones first, those inside them in the next round.

    The branch's nodes move as they are. Where ONNX Runtime cannot run such an If by itself (a branch that is not taken may
    not even load at known shapes), that they are the same nodes is the proof; the condition was checked when it was folded.
    """
    changed = False
    while True:
        edits = []
        state.index.sync_bodies()
        names = Names(state.index)
        for node in state.index.nodes():
            if node.op == "If" and not domain_of(node.domain) and state.index.is_live(node):
                edit = _inline(state, node, names)
                if edit is not None:
                    edits.append(edit)
        if not edits or not settle(state, edits):
            return changed
        changed = True
        remove_dead(state)


def _inline(state: State, node: gs.Node, names: Names) -> Edit | None:
    index = state.index
    if not isinstance(node.inputs[0], gs.Constant) or not state.may_edit():
        return None  # a condition that is computed is folded, and checked, first
    taken = "then_branch" if array_of(node.inputs[0]).reshape(()) else "else_branch"
    if not _fits_identity(state, node):
        return None
    body: gs.Graph = dict(subgraphs(node))[taken]
    inner = index.scope_nodes(index.scope_of_graph(body))
    scope = index.scope(node)
    added = [_moved(n, names.in_scope(n.name, scope)) for n in inner]
    replaced = []
    for result, value in zip(node.outputs, body.outputs, strict=False):
        if not result.name:
            continue
        if index.is_output(result):
            identity = gs.Node("Identity")
            list.append(identity.inputs, value)
            list.append(identity.outputs, result)
            added.append(identity)
            replaced.append((result, result))
        else:
            replaced.append((result, value))
    renamed = (
        (t, t.name, index.unique_tensor_name(t.name)) for t in _own_tensors(inner, body) if names.tensors[t.name] > 1
    )
    return make_edit(state, RULE, node, replaced, removed=[node], added=added, renamed=renamed, moved_whole=True)


def _fits_identity(state: State, node: gs.Node) -> bool:
    """Whether an Identity may make those results that are outputs: old ones take tensors only."""
    kinds = {state.types.type_of(t).kind for t in node.outputs if t.name and state.index.is_output(t)}
    least = max((_IDENTITY.get(kind, 1) for kind in kinds), default=0)
    opset = state.index.opset(node)
    if opset >= least:
        return True
    reason = f"an output is no tensor, and the Identity of opset {opset} takes nothing else"
    scope = state.index.scope(node)
    state.decide(Decision(RULE, scope.path, node_label(node), DECLINED, reason=reason), node)
    return False


def _moved(node: gs.Node, name: str) -> gs.Node:
    """The same node for another graph: its tensors, attributes and bodies are shared with the original."""
    copy = gs.Node(node.op, name, node.attrs, domain=node.domain)
    list.extend(copy.inputs, node.inputs)
    list.extend(copy.outputs, node.outputs)
    return copy


def _own_tensors(nodes: list[gs.Node], body: gs.Graph) -> list[gs.Tensor]:
    """Tensors that the branch itself makes; constants too, since a sibling's may have the same name."""
    found = {id(t): t for n in nodes for t in n.outputs if t.name}
    reads = [t for n in nodes for t in n.inputs] + list(body.outputs)
    found.update({id(t): t for t in reads if isinstance(t, gs.Constant)})
    return list(found.values())
