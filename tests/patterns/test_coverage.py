"""Rules have a test of what they decline and a property test; `covering` checks that the tests do what they say."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from surgeon_passes import patterns
from surgeon_passes.rules.registry import rules_of


def named(decorator: str) -> set[str]:
    """Rules that tests of this folder name in ``@decorator("rule", …)``."""
    found: set[str] = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            for call in getattr(node, "decorator_list", ()):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == decorator:
                    found |= {str(a.value) for a in call.args if isinstance(a, ast.Constant)}
    return found


SILENT = {
    # one condition: other Pads, Slices, Tiles and Transposes are not near-matches, and have no reason in the report
    *("drop_zero_pad", "drop_full_slice", "drop_tile", "drop_transpose"),
    # hold wherever they match: other operators, or a second operand, do not match
    *("drop_single_operand", "merge_idempotent_pair", "drop_inverse_pair"),
    # total: an operator without attributes, of any shape and type
    "decompose_mish",
}
"""Rules that decline nothing for a reason; their tests show what they leave alone."""


@pytest.mark.parametrize("decorator", ["declines", "property_of"])
def test_every_rule_is_named(decorator: str) -> None:
    rules = {r.name for r in rules_of(patterns)}
    assert rules - SILENT - named(decorator) == set()


@pytest.mark.parametrize("decorator", ["declines", "property_of"])
def test_what_is_named_exists(decorator: str) -> None:
    assert named(decorator) - {r.name for r in rules_of(patterns)} == set()
