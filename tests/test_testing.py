"""What authors of rules test with: it must tell right from wrong."""

from __future__ import annotations

import numpy as np
import pytest

import surgeon_passes as sp
from surgeon_passes.testing import assert_declined, assert_equal_models, assert_rule, model


@sp.rule(pattern="y = Mul(Mul(x, a: const), b: const)", rewrite="y = Mul(x, K)")
def merge(m: sp.Match) -> sp.Replacement:
    if m.a.shape != m.b.shape:
        raise sp.Decline(f"'{m.a.name}' and '{m.b.name}' differ in shape")
    return sp.Replacement(K=m.a * m.b)


@sp.rule(pattern="y = Mul(Mul(x, a: const), b: const)", rewrite="y = Mul(x, K)", name="wrong")
def wrong(m: sp.Match) -> sp.Replacement:
    return sp.Replacement(K=m.a + m.b)


BEFORE = "g (float[N,2] x) => (float[N,2] y) <float[2] a = {2, 3}, float[2] b = {5, 7}> { t = Mul(x, a) y = Mul(t, b) }"
AFTER = "g (float[N,2] x) => (float[N,2] y) <float[2] k = {10, 21}> { y = Mul(x, k) }"


def test_a_rule_is_held_against_what_it_should_give() -> None:
    assert_rule(merge, BEFORE, AFTER)
    assert_rule(merge, f'<ir_version: 8, opset_import: ["" : 13]>\n{BEFORE}', AFTER)


@pytest.mark.parametrize(
    ("after", "says"),
    [
        (AFTER.replace("21", "22"), "merge: constant 'b.merge' is [10.0, 21.0], 'k' is [10.0, 22.0]"),
        (AFTER.replace("Mul(x, k)", "Add(x, k)"), "merge: Mul stands where Add is expected"),
        (AFTER.replace("Mul(x, k)", "Mul(k, x)"), "merge: 'x' is no constant, unlike 'k'"),
        (AFTER.replace("{ y", "{ z = Neg(x) y"), "merge: it has 1 nodes, not 2"),
        (AFTER.replace("y) <", "z) <").replace("{ y =", "{ z ="), "outputs are ['y'], not ['z']"),
        (AFTER.replace("float[2] k = {10, 21}", "float[1,2] k = {10, 21}"), "float32[2], 'k' is float32[1, 2]"),
    ],
)
def test_another_graph_is_told(after: str, says: str) -> None:
    with pytest.raises(AssertionError) as error:
        assert_rule(merge, BEFORE, after)
    assert says in str(error.value)


def test_a_wrong_rule_is_refuted() -> None:
    with pytest.raises(AssertionError, match="wrong was refuted at Mul -> 'y': "):
        assert_rule(wrong, BEFORE, AFTER)


def test_a_rule_that_does_not_fire_says_how_far_it_went() -> None:
    text = "g (float[N,2] x, float[2] a) => (float[N,2] y) <float[2] b = {5, 7}> { t = Mul(x, a) y = Mul(t, b) }"
    with pytest.raises(AssertionError) as error:
        assert_rule(merge, text, AFTER)
    assert str(error.value).startswith("merge was not applied:\n")
    assert "2 of 2 nodes matched, then stopped at pattern line 1" in str(error.value)


def test_what_a_rule_declines() -> None:
    text = BEFORE.replace("float[2] b = {5, 7}", "float[1] b = {5}")
    assert_declined(merge, text, "'a' and 'b' differ in shape")
    assert_declined(merge, "g (float[N,2] x) => (float[N,2] y) { t = Neg(x) y = Mul(t, x) }", "'x' is made by no node")
    with pytest.raises(AssertionError, match="merge was applied at Mul -> 'y', where it should say: shape"):
        assert_declined(merge, BEFORE, "shape")
    with pytest.raises(AssertionError, match="merge does not say 'dtype':"):
        assert_declined(merge, text, "dtype")


def test_a_refuted_rewrite_is_not_declined() -> None:
    with pytest.raises(AssertionError, match="wrong was refuted at Mul -> 'y', where it should say: error"):
        assert_declined(wrong, BEFORE, "error")
    with pytest.raises(ValueError, match="say which reason"):
        assert_declined(merge, BEFORE, "")


def test_results_of_one_node_are_told_apart() -> None:
    drop = sp.Rule.from_text("drop", "y = Relu(Relu(x))", "y = Relu(x)", exactness="exact")
    text = "g (float[4] x) => (float[2] y) {{ p, q = Split<axis = 0>(x) r = Relu(p) {} }}"
    before, after = text.format("y = Relu(r)"), text.replace("r = Relu(p) {}", "y = Relu({})")
    assert_rule(drop, before, after.format("p"))
    with pytest.raises(AssertionError, match="'p' is result 1 of Split, 'q' is result 2"):
        assert_rule(drop, before, after.format("q"))


def test_models_are_compared_by_what_they_give() -> None:
    assert_equal_models(BEFORE, AFTER)
    assert_equal_models(BEFORE, AFTER, {"x": np.ones((3, 2), np.float32)})
    other = AFTER.replace("21", "21.1")
    with pytest.raises(AssertionError, match="the models are different at 'y': error"):
        assert_equal_models(BEFORE, other)
    with pytest.raises(AssertionError, match="different"):
        assert_equal_models(BEFORE, other, [{"x": np.ones((3, 2), np.float32)}])
    assert_equal_models(BEFORE, other, {"x": np.float32([[1, 0]])})


def test_bodies_and_attributes_are_compared() -> None:
    drop = sp.Rule.from_text("drop", "y = Identity(x)", "y = x", exactness="exact")
    text = """g (float[N,2] x, bool c) => (float[N,2] y) {{
        s = Softmax(x) i = Identity(s)
        y = If (c) <then_branch = t () => (float[N,2] p) {{ p = {} }}, else_branch = e () => (float[N,2] q) {{ q = Neg(i) }}>
    }}"""
    after = (
        text.replace("i = Identity(s)", "").replace("Neg(i)", "Neg(s)").replace("Softmax(x)", "Softmax<axis = -1>(x)")
    )
    assert_rule(drop, text.format("Abs(x)"), after.format("Abs(x)"))
    with pytest.raises(AssertionError, match="Abs stands where Exp is expected"):
        assert_rule(drop, text.format("Abs(x)"), after.format("Exp(x)"))
    with pytest.raises(AssertionError, match="attribute axis of Softmax is -1, not 0"):
        assert_rule(drop, text.format("Abs(x)"), after.replace("axis = -1", "axis = 0").format("Abs(x)"))


def test_text_is_a_model_of_its_domains() -> None:
    proto = model("g (float[N] x) => (float[N] y) { y = my.domain.Thing(x) }", opset=20)
    assert {o.domain: o.version for o in proto.opset_import} == {"": 20, "my.domain": 1} and proto.ir_version == 9
    with pytest.raises(sp.ModelError, match="this is no model in ONNX text: "):
        model("g (float[N] x) => { }")
