"""What is broadcast only where a dim is 1 is seen, though distinct sizes do not run."""

from __future__ import annotations

import pytest

import surgeon_passes as sp
from surgeon_passes.region import TensorType
from surgeon_passes.testing import model
from surgeon_passes.verify.shapes import _assignments, _rivals

from .regions import Sym

WHERE = sp.Rule.from_text("wrong", "y = Where(c, x, x)", "y = x", exactness="exact")
CLAMP = sp.Rule.from_text("wrong", "y = Min(x, Max(x, z))", "y = x", exactness="exact")


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (WHERE, "g (bool[N] c, float[M] x) => (float[K] z) { y = Where(c, x, x) z = Relu(y) }"),
        (CLAMP, "g (float[N] x, float[M] w) => (float[K] z) { a = Max(x, w) y = Min(x, a) z = Relu(y) }"),
        (CLAMP, "g (float[B,N] x, float[B,M] w) => (float[B,K] z) { a = Max(x, w) y = Min(x, a) z = Relu(y) }"),
        (CLAMP, "g (float[N] x, float[B,M] w) => (float[B,K] z) { a = Max(x, w) y = Min(x, a) z = Relu(y) }"),
    ],
)
def test_a_rule_that_forgets_broadcasting_is_refuted(rule: sp.Rule, text: str) -> None:
    result = sp.Pipeline(sp.Rewrite(rule)).run(model(text), verify=sp.Verify(end_check=False))
    assert [(d.rule, d.verdict) for d in result.undone] == [("wrong", "refuted")]
    assert "instead of" in result.undone[0].reason


def test_where_no_dim_is_broadcast_nothing_changes() -> None:
    text = "g (float[B,N] x, float[B,N] w) => (float[B,N] z) { a = Max(x, w) y = Min(x, a) z = Relu(y) }"
    result = sp.Pipeline(sp.Rewrite(CLAMP)).run(model(text))
    assert [(d.rule, d.verdict) for d in result.applied] == [("wrong", "verified")]  # of equal shapes it is right


def test_rivals_stand_on_the_same_axis_from_the_end() -> None:
    b, n, m = map(Sym, ("B", "N", "M"))
    assert _rivals([TensorType(1, (b, n)), TensorType(1, (m,)), TensorType(1, (b, 1))]) == ["M", "N"]
    assert _rivals([TensorType(1, (b, n)), TensorType(1, (n,))]) == []
    tries = list(_assignments(["B", "M", "N"], 0, ["M", "N"]))
    assert tries[2:4] == [{"B": 3, "M": 1, "N": 5}, {"B": 3, "M": 5, "N": 1}]
