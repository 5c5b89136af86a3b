"""Roots that are ruled out at once, and that no match or near-match is lost by it."""

from __future__ import annotations

import pytest

from surgeon_passes.rules.matcher import Matcher
from surgeon_passes.rules.syntax import parse_pattern
from tests.models import model
from tests.rules.ground import Ground

BODY = """
g (float[2,3] x, float[2,3] z) => (float[2,3] y)
{{
    a = Tanh (x)
    b = Relu (z)
    y = {root}
}}"""


def passes(pattern: str, root: str) -> bool:
    ground = Ground(model(BODY.format(root=root)))
    context, node = ground.state.context, ground.node("y")
    parsed = parse_pattern(pattern, "p")
    quick, slow = Matcher(parsed, context, quick=True), Matcher(parsed, context)
    found = [ground.names(m) for m in quick.matches(node)]
    assert found == [ground.names(m) for m in slow.matches(node)]
    passed = parsed.facts.may_match(context.view(node), context.index)
    if not passed:
        assert len(slow.miss.nodes) < 2  # what a report would hold
    else:
        assert quick.miss == slow.miss
    return passed


@pytest.mark.parametrize(
    ("pattern", "root", "expected"),
    [
        ("y = Sub(Tanh(p), q)", "Sub (a, z)", True),
        ("y = Sub(Tanh(p), q)", "Sub (z, a)", False),  # in the wrong place
        ("y = Sub(Tanh(p), q)", "Sub (x, z)", False),  # made by no node
        ("y = Add(Tanh(p), q)", "Add (z, a)", True),  # in either order
        ("y = Add(Tanh(p), Neg(q))", "Add (a, b)", True),  # a near-match
        ("y = Add(Exp(p), Neg(q))", "Add (a, b)", False),
        ("t = Tanh(p)\ny = Sub(q, t)", "Sub (x, a)", True),
        ("t = Tanh(p)\ny = Sub(q, t)", "Sub (a, x)", False),
        ("t = Tanh(p) | Exp(p)\ny = Neg(t)", "Neg (a)", True),
        ("t = Tanh(p) | Exp(p)\ny = Neg(t)", "Neg (b)", False),
        ("t = Tanh(p) | p\ny = Neg(t)", "Neg (b)", True),  # a bare name is anything
        ("y = Neg(sum(p, q))", "Neg (a)", False),
        ("y = Sub(p, q)", "Sub (x, z)", True),
        ("y = Concat(Tanh(p), rest...)<axis=0>", "Concat <axis = 0> (b, a)", True),  # left to the matcher
    ],
)
def test_roots_that_are_worth_a_match(pattern: str, root: str, expected: bool) -> None:
    assert passes(pattern, root) is expected
