"""Finds the blocks of parallel linear branches that a run has left, and what was said of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx_graphsurgeon as gs

from surgeon_passes.decisions import APPLIED, Decision
from surgeon_passes.index import GraphIndex, node_label
from surgeon_passes.ops.schema import domain_of
from surgeon_passes.report.blocks import Block
from surgeon_passes.rules import flat
from surgeon_passes.rules.match import Context
from surgeon_passes.rules.misses import near_misses
from surgeon_passes.rules.pattern import Flat
from surgeon_passes.rules.rule import Rule

LINEAR = frozenset({"AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "Gemm"})
"""Operators that are linear in their first operand."""
SCALING = frozenset({"Div", "MatMul", "Mul"})
"""Operators that are linear in one operand where the other is constant; Div in its first."""
MAX_STEPS = 8
"""Operators of one branch that are looked at."""

Way: TypeAlias = tuple[gs.Node, ...]
"""The nodes between a tensor and a leaf, in the order in which they run."""
ValueOf: TypeAlias = Callable[[gs.Tensor], Any]


def find_blocks(context: Context, decisions: Sequence[Decision], rules: Iterable[Rule]) -> tuple[Block, ...]:
    """Sums that are left with two branches or more on one tensor, one of them more than a scale of it.

    The reason is what a rule for sums among ``rules`` last said of the sum.
    """
    for_sums = [r for r in rules if isinstance(r.pattern.root.value, Flat)]
    said = _said(decisions, {r.name for r in for_sums})
    index, value = context.index, context.value
    found = []
    for node in index.nodes():
        tree = None if flat.is_inner(node, "sum", index) else flat.flatten(node, "sum", index)
        shared = None if tree is None else _shared([_ways(leaf, index, value) for leaf in tree.leaves], index)
        if shared is None:
            continue
        tensor, ways = shared
        graph, label = index.scope(node).path, node_label(node)
        reason = said.get((graph, label)) or _last_miss(for_sums, node, context) or _structural(ways, index)
        operators = tuple(", ".join(n.op for n in way) for way in ways)
        found.append(Block(label, graph, str(tensor.name), operators, reason))
    return tuple(found)


def _said(decisions: Sequence[Decision], rules: set[str]) -> dict[tuple[str, str], str]:
    """The last reason that a rule's function gave for each sum."""
    return {
        (d.graph, d.root): d.reason for d in decisions if d.rule in rules and d.status != APPLIED and d.reason
    }  # fmt: skip


def _last_miss(rules: Iterable[Rule], node: gs.Node, context: Context) -> str:
    """How far the last pattern went at ``node``; "" where none matched more than the sum."""
    return "".join([d.reason for d in near_misses(rules, [node], context)][-1:])


def _ways(leaf: gs.Tensor, index: GraphIndex, value: ValueOf) -> list[tuple[gs.Tensor, Way]]:
    """Each tensor that the leaf depends on linearly, nearest first, with the way from it to the leaf."""
    found: list[tuple[gs.Tensor, Way]] = [(leaf, ())]
    tensor, way = leaf, ()  # type: tuple[gs.Tensor, Way]
    while len(way) < MAX_STEPS:
        node = index.producer(tensor)
        data = None if node is None else _data(node, value)
        if node is None or data is None:
            break
        tensor, way = data, (node, *way)
        found.append((tensor, way))
    return found


def _data(node: gs.Node, value: ValueOf) -> gs.Tensor | None:
    """The operand in which ``node`` is linear, all others being weights; None where there is none."""
    if domain_of(node.domain) or not node.inputs:
        return None
    first = node.inputs[0]
    if node.op in LINEAR:
        return first
    if node.op in SCALING and len(node.inputs) == 2:
        second = node.inputs[1]
        if isinstance(value(second), np.ndarray):
            return first
        if node.op != "Div" and isinstance(value(first), np.ndarray):
            return second
    return None


def _shared(leaves: list[list[tuple[gs.Tensor, Way]]], index: GraphIndex) -> tuple[gs.Tensor, list[Way]] | None:
    """The tensor on which most leaves are branches, the nearest of such, and the branches; None where there is none."""
    by_tensor: dict[int, tuple[gs.Tensor, list[Way]]] = {}
    for ways in leaves:
        for tensor, way in ways:
            by_tensor.setdefault(id(tensor), (tensor, []))[1].append(way)
    blocks = [(t, ways) for t, ways in by_tensor.values() if len(ways) > 1 and any(map(_is_branch, ways))]
    return max(blocks, key=lambda block: (len(block[1]), -sum(map(len, block[1]))), default=None)


def _is_branch(way: Way) -> bool:
    return any(node.op not in ("Mul", "Div") for node in way)


def _structural(ways: list[Way], index: GraphIndex) -> str:
    """Why no rule said anything of a sum."""
    for node in _inner(ways):
        for tensor in node.outputs:
            if tensor.name and index.is_output(tensor):
                return f"'{tensor.name}' is a graph output"
            if tensor.name and index.edge_count(tensor) > 1:
                return f"'{tensor.name}' is used elsewhere, too"
    return "no rule that was applied merges such branches"


def _inner(ways: list[Way]) -> Iterator[gs.Node]:
    for way in ways:
        yield from way
