"""Where a rule came close: places that more than its root fits, and why the rest does not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import onnx_graphsurgeon as gs

from surgeon_passes.decisions import DECLINED, Decision
from surgeon_passes.index import GraphIndex, node_label
from surgeon_passes.rules.match import Context
from surgeon_passes.rules.matcher import Matcher
from surgeon_passes.rules.rule import Rule
from surgeon_passes.rules.table import RuleTable


def near_misses(rules: Iterable[Rule], nodes: Iterable[gs.Node], context: Context) -> Iterator[Decision]:
    """A decision for each rule and root at which the pattern matched two nodes or more, and not all of them.

    Rewriting asks far less of most places: this tries every rule in full, and is for whoever reads the decisions.
    """
    table = RuleTable(list(rules))
    for node in nodes:
        for rule in table.at(node, context.index):
            matcher = Matcher(rule.pattern, context)
            matches = next(matcher.matches(node), None) is not None
            miss = matcher.miss
            if not matches and len(miss.nodes) > 1:
                yield declined(rule.name, node, context.index, miss.reason, miss.nodes, miss.span.line or None)


def declined(
    rule: str, node: gs.Node, index: GraphIndex, reason: str, nodes: Sequence[gs.Node], line: int | None = None
) -> Decision:
    """What is recorded of a root that was not rewritten. ``line``: of the pattern, where it is the pattern that stopped."""
    labels = tuple(map(node_label, nodes))
    return Decision(rule, index.scope(node).path, node_label(node), DECLINED, "", reason, labels, line)
