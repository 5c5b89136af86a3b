"""Rules by what stands at a root: which of many are worth a try there."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_graphsurgeon as gs

from surgeon_passes.index import GraphIndex
from surgeon_passes.ops.schema import domain_of, forgotten_by
from surgeon_passes.rules.pattern import OpId
from surgeon_passes.rules.roots import operand_kinds
from surgeon_passes.rules.rule import Rule

MAX_TABLES = 64
MAX_LOOKS = 10_000


class RuleTable:
    """Rules in their order, looked up by the root's operator, its opset, and what its operands are.

    Places that look alike are asked once.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self._by_root: dict[OpId, list[Rule]] = {}
        self._by_look: dict[tuple[str, str, int, tuple[str, ...]], tuple[Rule, ...]] = {}
        for rule in rules:
            for op in rule.pattern.facts.roots:
                self._by_root.setdefault(op, []).append(rule)

    def at(self, node: gs.Node, index: GraphIndex) -> list[Rule]:
        """The rules whose root may be the operator of ``node``, at its opset."""
        opset = index.scope(node).opset("")
        rules = self._by_root.get(OpId(domain_of(node.domain), node.op), ())
        return [rule for rule in rules if rule.is_for(opset)]

    def candidates(self, node: gs.Node, index: GraphIndex) -> tuple[Rule, ...]:
        """Those of them that may match with such operands."""
        view = index.view(node)
        if OpId(view.domain, view.op) not in self._by_root:
            return ()
        kinds = operand_kinds(view, index)
        look = (view.op, view.domain, index.scope(node).opset(""), kinds)
        found = self._by_look.get(look)
        if found is None:
            found = tuple([r for r in self.at(node, index) if r.pattern.facts.root_operands.fit(view, kinds)])
            if len(self._by_look) >= MAX_LOOKS:
                self._by_look.clear()
            self._by_look[look] = found
        return found


_TABLES: dict[tuple[int, ...], RuleTable] = {}
forgotten_by(_TABLES.clear)


def table_of(rules: Sequence[Rule]) -> RuleTable:
    """The table of these very rules; one of the last ones is given again."""
    key = tuple(map(id, rules))  # a table keeps its rules, so that no other object takes their ids
    found = _TABLES.pop(key, None) or RuleTable(rules)
    _TABLES[key] = found
    while len(_TABLES) > MAX_TABLES:
        del _TABLES[next(iter(_TABLES))]
    return found
