"""Flattened trees of an associative, commutative operator: Add and Sum, or Mul."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_graphsurgeon as gs

from surgeon_passes.index import GraphIndex
from surgeon_passes.ops.schema import domain_of

OPERATORS = {"sum": frozenset({"Add", "Sum"}), "prod": frozenset({"Mul"})}
JOIN = {"sum": "Add", "prod": "Mul"}


@dataclass(frozen=True)
class Tree:
    """``leaves`` in reading order, with repeats; ``nodes`` root first."""

    leaves: tuple[gs.Tensor, ...]
    nodes: tuple[gs.Node, ...]


def joins(node: gs.Node | None, kind: str, index: GraphIndex) -> bool:
    """Whether ``node`` is of the tree's operator, in its newest meaning."""
    if node is None or node.op not in OPERATORS[kind] or domain_of(node.domain):
        return False
    return index.view(node).regular


def flatten(root: gs.Node, kind: str, index: GraphIndex, limit: int | None = None) -> Tree | None:
    """The tree under ``root``; None where it is not of this kind.

    An inner node is absorbed only where its result has exactly one use and lies in the same graph: it is no output and no
    body captures it. Linear in the leaves, without recursion. Beyond ``limit`` leaves the rest is left as it stands.
    """
    if not joins(root, kind, index):
        return None
    scope = index.scope(root)
    leaves: list[gs.Tensor] = []
    nodes = [root]
    todo = list(reversed(root.inputs))
    while todo and (limit is None or len(leaves) + len(todo) <= limit):
        tensor = todo.pop()
        inner = index.producer(tensor)
        single = inner is not None and index.edge_count(tensor) == 1 and index.scope(inner) is scope
        if single and joins(inner, kind, index):
            assert inner is not None
            nodes.append(inner)
            todo.extend(reversed(inner.inputs))
        else:
            leaves.append(tensor)
    leaves += reversed(todo)
    return Tree(tuple(leaves), tuple(nodes)) if len(leaves) > 1 else None


def is_inner(root: gs.Node, kind: str, index: GraphIndex) -> bool:
    """Whether a larger tree absorbs ``root``: the rule is tried at that tree's own root."""
    result = root.outputs[0]
    if index.edge_count(result) != 1 or index.is_output(result):
        return False
    user = index.consumers(result)[0]
    return joins(user, kind, index) and index.scope(user) is index.scope(root)
