"""The set "compact": fewer nodes, but slower, so off by default."""

from __future__ import annotations

import surgeon_passes as sp
from surgeon_passes import patterns
from surgeon_passes.passes.rewrite import DEFAULT_SETS
from surgeon_passes.rules.registry import rules_of

from .harness import Builder, operators

COMPACT = [rule for rule in rules_of(patterns) if "compact" in rule.sets]


def test_compact_rules_are_in_no_default_set() -> None:
    assert len(COMPACT) >= 11
    assert all(rule.sets == ("compact",) for rule in COMPACT) and "compact" not in DEFAULT_SETS


def test_compact_is_applied_where_it_is_asked_for() -> None:
    b = Builder(opset=24)
    x = b.input("x", ["N", 4, 8, 8])
    swish = b.node("Mul", x, b.node("Sigmoid", x))
    model = b.model(b.node("ReduceMean", swish, b.constant([2, 3])))
    assert operators(sp.optimize(model).proto) == {"Sigmoid": 1, "Mul": 1, "ReduceMean": 1}
    result = sp.optimize(model, sets=["compact"])
    assert operators(result.proto) == {"Swish": 1, "GlobalAveragePool": 1}
    assert {d.verdict for d in result.applied} == {"verified"}


def test_a_normalization_stays_one_beside_the_pools() -> None:
    """Its means are over the last of three axes, as a pool's: both sets give the same."""
    b = Builder(opset=23)
    x = b.input("x", ["N", 5, 8])
    d = b.node("Sub", x, b.node("ReduceMean", x, b.constant([-1])))
    v = b.node("ReduceMean", b.node("Mul", d, d), b.constant([-1]))
    n = b.node("Div", d, b.node("Sqrt", b.node("Add", v, b.constant(1e-5))))
    m = b.node("ReduceMean", b.node("Pow", n, b.constant(2.0)), b.constant([-1]))
    model = b.model(b.node("Div", n, b.node("Sqrt", b.node("Add", m, b.constant(1e-5)))))
    for sets in ([], ["compact"]):
        assert operators(sp.optimize(model, sets=sets).proto) == {"LayerNormalization": 1, "RMSNormalization": 1}
