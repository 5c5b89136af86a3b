"""Equal nodes on equal operands are computed once (common subexpressions)."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import ClassVar

import onnx_graphsurgeon as gs

from surgeon_passes.model.keys import Key, Keys
from surgeon_passes.ops.custom import find
from surgeon_passes.ops.schema import domain_of
from surgeon_passes.ops.traits import CONTROL_FLOW, QUANTIZATION
from surgeon_passes.passes.base import Pass
from surgeon_passes.passes.edits import make_edit
from surgeon_passes.passes.settle import settle
from surgeon_passes.passes.state import State, remove_dead
from surgeon_passes.rules.journal import Edit

RULE = "merge_duplicate_nodes"
SMALL = 1 << 12
"""Bytes up to which two constants are compared by what they hold; beyond, they must be the same tensor."""


@dataclass(frozen=True)
class Duplicates(Pass):
    """Nodes of one graph with the same operator, attributes and operands become one.

    Never random operators, nodes that hold bodies, calls of functions, or operators of custom domains that nobody calls
    deterministic: whether two of those give the same is not known. Nor QuantizeLinear and DequantizeLinear: runtimes look for
    one pair at each operator.
    Nor what constants alone decide: that is folded, or left for its size.
    """

    name: ClassVar[str] = "duplicates"
    requires: ClassVar[tuple[str, ...]] = ("fold",)
    makes: ClassVar[tuple[str, ...]] = (RULE,)

    def run(self, state: State) -> bool:
        return merge_duplicates(state)


def merge_duplicates(state: State, among: Container[int] | None = None) -> bool:
    """Merge equal nodes of each graph; with ``among`` only those of these ids go. Whether any did."""
    edits: list[Edit] = []
    for _, nodes in list(state.index.ordered()):
        edits += _merge(state, nodes, among)
    if not edits or not settle(state, edits):
        return False
    remove_dead(state)
    return True


def _merge(state: State, nodes: list[gs.Node], among: Container[int] | None) -> list[Edit]:
    edits = []
    for group in _groups(state, nodes):
        kept = next((n for n in group if any(state.index.is_output(t) for t in n.outputs)), group[0])
        for node in group:
            if node is kept or any(state.index.is_output(t) for t in node.outputs):
                continue
            if among is not None and id(node) not in among:
                continue
            pairs = [(old, now) for old, now in zip(node.outputs, kept.outputs, strict=True) if old.name]
            edit = make_edit(state, RULE, node, pairs, removed=[node], beside=[kept])
            if edit is not None:
                edits.append(edit)
    return edits


def _groups(state: State, nodes: list[gs.Node]) -> list[list[gs.Node]]:
    """Nodes that compute the same, in order: operands are compared by number, so that equal chains meet whole.

    What could be folded was left for its size, and stays by itself: as one node it might be folded, then written out by
    each of its readers. That is asked only of nodes that have an equal one.
    """
    keys = Keys()
    numbers: dict[Key, list[gs.Node]] = {}
    same_as: dict[int, gs.Tensor] = {}
    functions = {(domain_of(f.domain), f.name) for f in state.graph.functions}

    def operand(tensor: gs.Tensor) -> Key:
        if not tensor.name:
            return ()
        if (
            isinstance(tensor, gs.Constant)
            and not state.index.is_graph_input(tensor)
            and tensor._values.nbytes <= SMALL
        ):
            return ("constant", *keys.constant(tensor))
        return (id(same_as.get(id(tensor), tensor)),)

    for node in nodes:
        if not _may_merge(state, node, functions):
            continue
        key = (
            domain_of(node.domain),
            node.op,
            keys.attributes(node),
            tuple(map(operand, node.inputs)),
            tuple(bool(t.name) for t in node.outputs),
        )
        group = numbers.setdefault(key, [])
        if group and state.evaluator.is_foldable(node):
            continue
        if len(group) == 1 and state.evaluator.is_foldable(group[0]):
            group.clear()
        group.append(node)
        same_as.update((id(t), first) for t, first in zip(node.outputs, group[0].outputs, strict=True))
    return [group for group in numbers.values() if len(group) > 1]


def _may_merge(state: State, node: gs.Node, functions: set[tuple[str, str]]) -> bool:
    if not node.outputs or node.op == "Constant":
        return False
    if domain_of(node.domain) not in ("", "ai.onnx.ml"):
        known = find(node.domain, node.op)
        return known is not None and known.deterministic and not state.index.holds_bodies(node)
    if (domain_of(node.domain), node.op) in functions:
        return False
    if node.op in CONTROL_FLOW or node.op in QUANTIZATION or state.index.holds_bodies(node):
        return False
    return not state.evaluator.draws(node)
