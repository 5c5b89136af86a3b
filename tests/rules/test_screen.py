"""Roots that are ruled out before a match is tried, and that no match is lost by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from surgeon_passes import demo
from surgeon_passes.ops.schema import domain_of
from surgeon_passes.rules.matcher import Matcher
from surgeon_passes.rules.pattern import OpId
from tests.models import model
from tests.patterns.test_examples import RULES, example
from tests.rules.ground import Ground

BODY = """
g (float[2,3] x, float[2,3] z) => (float[2,3] y)
{{
    a = Tanh (x)
    b = Relu (z)
    c = Exp (a)
    y = {root}
}}"""


def passes(pattern: str, root: str, opset: int = 17, **constants: Any) -> bool:
    ground = Ground(model(BODY.format(root=root), opset, **constants))
    ground.matches(pattern)  # no match is ruled out
    return ground.may_match(ground.matcher(pattern), ground.node("y"))


@pytest.mark.parametrize(
    ("pattern", "root", "expected"),
    [
        ("y = Sub(Tanh(p), q)", "Sub (a, z)", True),
        ("y = Sub(Tanh(p), q)", "Sub (z, a)", False),  # in the wrong place
        ("y = Sub(Tanh(p), q)", "Sub (x, z)", False),  # made by no node
        ("y = Sub(Tanh(p), q)", "Add (a, z)", False),
        ("y = Add(Tanh(p), q)", "Add (z, a)", True),  # in either order
        ("y = Add(Tanh(p), Neg(q))", "Add (a, b)", False),
        ("y = Add(Tanh(p), Relu(q))", "Add (b, a)", True),
        ("y = Neg(Exp(Tanh(p)))", "Neg (c)", True),
        ("y = Neg(Exp(Relu(p)))", "Neg (c)", False),  # two nodes up
        ("t = Tanh(p)\ny = Sub(q, t)", "Sub (x, a)", True),
        ("t = Tanh(p)\ny = Sub(q, t)", "Sub (a, x)", False),
        ("t = Tanh(p) | Exp(p)\ny = Neg(t)", "Neg (a)", True),
        ("t = Tanh(p) | Exp(p)\ny = Neg(t)", "Neg (b)", False),
        ("t = Tanh(p) | p\ny = Neg(t)", "Neg (b)", True),  # a bare name is anything
        ("y = Neg(sum(p, q))", "Neg (a)", False),
        ("y = Sub(p, q)", "Sub (x, z)", True),
        ("y = Concat(Tanh(p), rest...)<axis=0>", "Concat <axis = 0> (a, b)", True),
        ("y = Concat(Tanh(p), rest...)<axis=0>", "Concat <axis = 0> (b, a)", False),
        ("y = Concat(p, q, r)", "Concat <axis = 0> (b, a)", False),  # too few
        ("y = LeakyRelu(p)<alpha=0.5>", "LeakyRelu <alpha = 0.25> (a)", False),
        ("y = LeakyRelu(p)<alpha=0.5>", "LeakyRelu <alpha = 0.5> (a)", True),
        ("y = Softmax(p)<axis=-1>", "Softmax <axis = 1> (a)", True),  # left to the matcher, which knows the rank
        ("y = Clip(p, q?, r?)", "Clip (a)", True),
        ("y = Clip(p, q, r?)", "Clip (a)", False),
        ("y = sum(Tanh(p), Relu(q), r)", "Sum (x, b, a)", True),
        ("y = sum(Tanh(p), Relu(q))", "Sum (x, z, a)", False),
        ("y = sum(branch(p)...)\nbranch(p) = Relu(p) | p", "Add (z, b)", True),
        ("y = sum(branch(p)...)\nbranch(p) = Tanh(p) | p", "Add (x, a)", False),  # used elsewhere too
        ("y = sum(branch(p)...)\nbranch(p) = Neg(p) | p", "Add (x, a)", False),
    ],
)
def test_by_what_makes_the_operands(pattern: str, root: str, expected: bool) -> None:
    assert passes(pattern, root) is expected


@pytest.mark.parametrize(
    ("pattern", "root", "expected"),
    [
        ("y = Add(p, w: const)", "Add (x, k)", True),
        ("y = Sub(p, w: const)", "Sub (k, x)", False),
        ("y = Add(p, w: const)", "Add (x, z)", False),
        ("y = Add(p, 2)", "Add (x, k)", True),
        ("y = Add(p, 3)", "Add (x, k)", False),
        ("y = Add(p, 2)", "Add (x, row)", False),
        ("y = Add(p, [1, 2, 3])", "Add (x, row)", True),
        ("y = Add(p, [1, 2, 4])", "Add (x, row)", False),
    ],
)
def test_by_constants(pattern: str, root: str, expected: bool) -> None:
    assert passes(pattern, root, k=np.float32(2), row=np.float32([1, 2, 3])) is expected


def test_old_forms_are_read_as_new_ones() -> None:
    assert passes("y = Clip(p, 0, 6)", "Clip <min = 0.0, max = 6.0> (a)", opset=9)
    assert not passes("y = Clip(p, 0, 6)", "Clip <min = 0.0, max = 5.0> (a)", opset=9)


@pytest.mark.parametrize("name", RULES)
def test_no_rule_loses_a_match_on_its_example(name: str) -> None:
    assert_none_is_lost(example(RULES[name])[0])


def test_no_rule_loses_a_match_on_the_embedded_model() -> None:
    assert assert_none_is_lost(demo.build()) > 20


def assert_none_is_lost(proto: onnx.ModelProto) -> int:
    """Every built-in rule, tried in full at each node: what matches is let through. Gives how many do."""
    ground = Ground(proto)
    matched = 0
    for node in ground.index.nodes():
        op = OpId(domain_of(node.domain), node.op)
        for rule in (r for r in RULES.values() if op in r.pattern.facts.roots):
            matcher = Matcher(rule.pattern, ground.state.context)
            if next(matcher.matches(node), None) is not None:
                matched += 1
                assert ground.may_match(matcher, node), rule.name
    return matched
