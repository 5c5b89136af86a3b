"""Where a rule came close: places that more than its root fits, and why the rest does not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import onnx_graphsurgeon as gs

from surgeon_passes.decisions import DECLINED, Decision
from surgeon_passes.index import GraphIndex, node_label
from surgeon_passes.ops.schema import domain_of
from surgeon_passes.rules.match import Context
from surgeon_passes.rules.matcher import Matcher
from surgeon_passes.rules.pattern import OpId
from surgeon_passes.rules.rule import Rule


def near_misses(rules: Iterable[Rule], nodes: Iterable[gs.Node], context: Context) -> Iterator[Decision]:
    """A decision for each rule and root at which the pattern matched two nodes or more, and not all of them.

    Rewriting asks far less of most places: this tries every rule in full, and is for whoever reads the decisions.
    """
    by_root: dict[OpId, list[tuple[Rule, Matcher]]] = {}
    for rule in rules:
        for op in rule.pattern.facts.roots:
            by_root.setdefault(op, []).append((rule, Matcher(rule.pattern, context)))
    for node in nodes:
        opset = context.index.scope(node).opset("")
        for rule, matcher in by_root.get(OpId(domain_of(node.domain), node.op), ()):
            if not rule.is_for(opset) or next(matcher.matches(node), None) is not None:
                continue
            miss = matcher.miss
            if len(miss.nodes) > 1:
                yield declined(rule.name, node, context.index, miss.reason, miss.nodes, miss.span.line or None)


def declined(
    rule: str, node: gs.Node, index: GraphIndex, reason: str, nodes: Sequence[gs.Node], line: int | None = None
) -> Decision:
    """What is recorded of a root that was not rewritten. ``line``: of the pattern, where it is the pattern that stopped."""
    labels = tuple(map(node_label, nodes))
    return Decision(rule, index.scope(node).path, node_label(node), DECLINED, "", reason, labels, line)
