"""Equal nodes are computed once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import onnx
import pytest

import surgeon_passes as sp


def merged(body: str, signature: str = "(float[N,4] x) => (float[N,4] y)", **options: Any) -> sp.Result:
    text = f'<ir_version: 8, opset_import: ["" : 17]> g {signature} {body}'
    model = onnx.parser.parse_model(text)
    onnx.checker.check_model(model)
    return sp.Pipeline(sp.Duplicates(), sp.Cleanup(), **options).run(model)


def operators(result: sp.Result) -> Counter[str]:
    return Counter(n.op_type for n in result.proto.graph.node)


def test_equal_chains_become_one() -> None:
    result = merged("{ a = Exp(x) b = Neg(a) c = Exp(x) d = Neg(c) y = Add(b, d) }")
    assert operators(result) == {"Exp": 1, "Neg": 1, "Add": 1}
    assert [d.verdict for d in result.applied] == ["verified", "verified"]
    assert result.exit_code == 0
    assert len(set(result.proto.graph.node[-1].input)) == 1


def test_equal_small_constants_are_one_operand() -> None:
    body = """<float[1] p = {2.0}, float[1] q = {2.0}, float[1] r = {3.0}>
        { a = Mul(x, p) b = Mul(x, q) c = Mul(x, r) y = Sum(a, b, c) }"""
    assert operators(merged(body)) == {"Mul": 2, "Sum": 1}


def test_constants_of_other_bits_or_types_are_others() -> None:
    body = "<float[1] p = {0.0}, float[1] q = {-0.0}> { a = Div(x, p) b = Div(x, q) y = Add(a, b) }"
    assert operators(merged(body)) == {"Div": 2, "Add": 1}


def test_attributes_tell_nodes_apart() -> None:
    body = "{ a = Softmax<axis = 0>(x) b = Softmax<axis = 1>(x) c = Softmax<axis = 1>(x) y = Sum(a, b, c) }"
    assert operators(merged(body)) == {"Softmax": 2, "Sum": 1}


def test_a_graph_output_keeps_its_name() -> None:
    result = merged("{ a = Exp(x) y = Exp(x) z = Neg(a) }", "(float[N,4] x) => (float[N,4] y, float[N,4] z)")
    assert operators(result) == {"Exp": 1, "Neg": 1}
    assert [v.name for v in result.proto.graph.output] == ["y", "z"]
    assert result.exit_code == 0


def test_two_equal_graph_outputs_both_stay() -> None:
    result = merged("{ y = Exp(x) z = Exp(x) }", "(float[N,4] x) => (float[N,4] y, float[N,4] z)")
    assert operators(result) == {"Exp": 2}


@pytest.mark.parametrize("op", ["RandomNormalLike", "Bernoulli", "RandomUniformLike"])
def test_two_draws_stay_two(op: str) -> None:
    result = merged(f"{{ a = {op}(x) b = {op}(x) y = Sub(a, b) }}")
    assert operators(result) == {op: 2, "Sub": 1}


def test_dropout_that_trains_stays_two_draws() -> None:
    body = "<float r = {0.5}, bool t = {1}> { a = Dropout(x, r, t) b = Dropout(x, r, t) y = Sub(a, b) }"
    assert operators(merged(body)) == {"Dropout": 2, "Sub": 1}


def test_quantisation_pairs_stay_at_their_operators() -> None:
    body = (
        "<float s = {0.1}, uint8 z = {128}> "
        "{ q = QuantizeLinear(x, s, z) a = DequantizeLinear(q, s, z) b = DequantizeLinear(q, s, z) y = Add(a, b) }"
    )
    assert operators(merged(body))["DequantizeLinear"] == 2


def test_custom_operators_are_left_alone() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "mine" : 1]>
        g (float[N,4] x) => (float[N,4] y) { a = mine.Draw(x) b = mine.Draw(x) y = Sub(a, b) }"""
    result = sp.Pipeline(sp.Duplicates()).run(onnx.parser.parse_model(text))
    assert operators(result)["Draw"] == 2


def test_bodies_are_searched_and_branches_kept_apart() -> None:
    body = """{
        s = ReduceSum<keepdims = 0>(x)
        zero = Constant<value = float {0.0}>()
        c = Greater(s, zero)
        y = If(c) <
            then_branch = t () => (float[N,4] p) { a = Exp(x) b = Exp(x) p = Add(a, b) },
            else_branch = e () => (float[N,4] q) { a2 = Exp(x) q = Neg(a2) }
        >
    }"""
    result = merged(body)
    branches = next(n for n in result.proto.graph.node if n.op_type == "If").attribute
    counts = {a.name: Counter(n.op_type for n in a.g.node) for a in branches}
    assert counts == {"then_branch": {"Exp": 1, "Add": 1}, "else_branch": {"Exp": 1, "Neg": 1}}
    assert result.exit_code == 0


def test_nodes_of_several_results() -> None:
    text = "<int64[1] k = {2}> { v, i = TopK(x, k) w, j = TopK(x, k) c = Cast<to = 1>(i) s = Add(v, w) y = Add(s, c) }"
    result = merged(text, "(float[N,4] x) => (float[N,2] y)")
    assert operators(result)["TopK"] == 1
