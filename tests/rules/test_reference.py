"""Custom operators that rules emit, checked through their bodies; function bodies, checked at their callers' types."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import surgeon_passes as sp
from surgeon_passes.rules.rule import Rule
from tests.models import model, operators

BODY = '<opset_import: ["" : 17], domain: "my.domain"> Act (a) => (b) {{ c = Relu(a) b = {}(c) }}'
TEXT = "g (float[N,4] x) => (float[N,4] y) { r = Relu(x) y = Neg(r) }"


def rule_with(reference: str | None) -> Rule:
    return Rule.from_text("to_act", "y = Neg(Relu(x))", "y = my.domain.Act(x)", reference=reference, exactness="exact")


def test_an_emitted_custom_operator_is_checked_through_its_body() -> None:
    result = sp.Pipeline(sp.Rewrite(rule_with(BODY.format("Neg")))).run(model(TEXT))
    assert operators(result.proto) == ["Act"] and not result.proto.functions
    assert [d.verdict for d in result.applied] == ["verified"]
    assert result.check.status == "equal" and result.exit_code == 0
    assert {o.domain: o.version for o in result.proto.opset_import} == {"": 17, "my.domain": 1}


def test_a_wrong_body_is_refuted() -> None:
    result = sp.Pipeline(sp.Rewrite(rule_with(BODY.format("Abs")))).run(model(TEXT))
    assert operators(result.proto) == ["Relu", "Neg"]
    assert result.exit_code == 7


def test_without_a_body_it_is_not_applied() -> None:
    result = sp.Pipeline(sp.Rewrite(rule_with(None))).run(model(TEXT))
    assert operators(result.proto) == ["Relu", "Neg"] and result.exit_code == 0
    (decision,) = [d for d in result.decided if d.rule == "to_act"]
    assert (decision.status, decision.verdict) == ("undone", "unverified")
    assert decision.reason == (
        "ONNX Runtime does not know my.domain.Act: give reference= to the rule, or tell it by an Operator"
    )


def test_a_reference_that_is_no_function_is_refused() -> None:
    with pytest.raises(sp.RuleError, match="to_act: reference is no ONNX function in text form"):
        rule_with("y = Relu(x")


def function_model(weight_type: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """Identity, Conv, Mul by a constant and Relu in a local function that is called twice."""
    weight = helper.make_tensor("w", weight_type, [2, 2, 1, 1], np.arange(1, 5).astype(np.float32))
    factor = helper.make_tensor("k", weight_type, [1], [2.0])
    nodes = [
        helper.make_node("Constant", [], ["w"], value=weight),
        helper.make_node("Constant", [], ["k"], value=factor),
        helper.make_node("Identity", ["d"], ["e"]),
        helper.make_node("Conv", ["e", "w"], ["c"]),
        helper.make_node("Mul", ["c", "k"], ["m"]),
        helper.make_node("Relu", ["m"], ["o"]),
    ]
    function = helper.make_function("my", "F", ["d"], ["o"], nodes, [helper.make_opsetid("", 17)])
    calls = [helper.make_node("F", ["x"], ["h"], domain="my"), helper.make_node("F", ["h"], ["y"], domain="my")]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 2, 4, 4]) for n in "xy"]
    graph = helper.make_graph(calls, "g", values[:1], values[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=8)


def test_rules_reach_into_functions_and_are_verified_there() -> None:
    result = sp.optimize(function_model())
    assert [n.op_type for n in result.proto.functions[0].node if n.op_type != "Constant"] == ["Conv", "Relu"]
    assert {(d.rule, d.verdict) for d in result.applied} == {
        ("drop_identity", "verified"),
        ("fold_constant_into_conv", "verified"),
    }
    assert result.check.status == "equal" and result.exit_code == 0
