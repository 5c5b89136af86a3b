"""Rules tried on graphs made from their own patterns."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import surgeon_passes as sp
from surgeon_passes.authoring.exercising import Exercise, exercise
from surgeon_passes.report.exercises import render
from surgeon_passes.rules.match import Match
from surgeon_passes.rules.rule import Decline, Replacement, Rule


def try_rule(pattern: str, rewrite: Any, function: Any = None, graphs: int = 16, **options: Any) -> Exercise:
    return exercise(Rule.from_text("tried", pattern, rewrite, function, **options), graphs)


def one_number(m: Match) -> Replacement:
    if m.k.value.size != 1:
        raise Decline("k is not one number")
    return Replacement(K=m.k)


def test_a_right_rule_passes_and_every_choice_is_met() -> None:
    found = try_rule("a = Relu|Abs(x)\ny = Max(a, x) | Abs(a)", "y = @a(x)<@a>", graphs=60, exactness="rounding")
    assert found.valid == 60 and found.matched == 60 and not found.by_example
    # max(|x|, x), |relu(x)| and ||x|| are what a is; max(relu(x), x) is relu(x) as well
    assert found.passed and not found.faults and found.never == []
    assert found.rewritten + sum(found.declined.values()) >= 60
    assert found.verdict == "verified"


def test_a_wrong_rule_is_caught_with_the_smallest_graph() -> None:
    found = try_rule("y = Sub(Mul(x, k: const), x)", "y = Mul(x, K)", one_number)
    assert not found.passed and found.faults["different"] + found.faults["refuted"] == found.rewritten > 0
    assert found.worst is not None and found.worst.kind == "different"
    assert [n.op_type for n in found.worst.model.graph.node][:2] == ["Mul", "Sub"]
    onnx.checker.check_model(found.worst.model)


def test_a_wrong_rule_that_is_used_anyway_is_refuted() -> None:
    wrong = Rule.from_text("wrong", "y = Sub(Mul(x, k: const), x)", "y = Mul(x, K)", one_number)
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
        g (float[2,3] x) => (float[2,3] y) <float k = {3.0}> { m = Mul(x, k) y = Sub(m, x) }""")
    result = sp.optimize(model, rules=[wrong])
    assert [d.rule for d in result.undone] == ["wrong"] and result.exit_code == 7
    assert [n.op_type for n in result.proto.graph.node] == ["Mul", "Sub"]


def test_what_holds_for_one_operator_alone_is_told_apart() -> None:
    """Wrong for Div only."""
    found = try_rule("y = Mul|Div(x, 2)", "y = Mul(x, 2)", graphs=20)
    assert 0 < found.faults["different"] < found.rewritten
    assert found.worst is not None and found.worst.model.graph.node[0].op_type == "Div"


def test_what_is_wrong_only_where_elements_are_equal_is_caught() -> None:
    """Of equal elements the last is another one than the first."""
    found = try_rule("y = ArgMax(x)<axis=@a, keepdims=@k>", "y = ArgMax(x)<axis=@a, keepdims=@k>", graphs=40)
    assert 0 < found.faults["different"] < found.rewritten
    assert found.worst is not None and found.worst.model.graph.node[0].attribute[-1].name == "select_last_index"


def test_what_is_wrong_only_with_an_optional_operand_is_caught() -> None:
    found = try_rule("y = Conv(Relu(Relu(x)), w: const, b?: const)", "y = Conv(Relu(x), w)<@y>", graphs=12)
    assert found.worst is not None and found.worst.kind == "different"
    (conv,) = [n for n in found.worst.model.graph.node if n.op_type == "Conv"]
    assert len(conv.input) == 3
    assert found.rewritten > found.faults["different"]


def test_a_rule_that_never_fires_fails() -> None:
    def never(m: Match) -> Replacement:
        raise Decline(f"'{m.x.name}' is not to one's liking")

    found = try_rule("y = Relu(Relu(x))", "y = Relu(x)", never)
    assert not found.fired and not found.passed and found.rewritten == 0
    assert found.declined == {"'x' is not to one's liking": 16}


def test_alternatives_and_outcomes_that_never_match_are_named() -> None:
    def pick(m: Match) -> Replacement:
        if m.a.op == "Neg":
            raise Decline("a Neg")
        return Replacement("keep")

    found = try_rule("a = Abs|Neg(x)\ny = Abs(a)", {"keep": "y = Abs(x)", "drop": "y = x"}, pick)
    assert found.never == ["line 1: operator Neg", "outcome 'drop'"]
    assert found.passed


def test_a_function_that_fails_is_a_fault() -> None:
    found = try_rule("y = Relu(Relu(x))", "y = Relu(x)", lambda m: Replacement(**{"a": 1 // 0}))
    assert found.faults == {"failed": 16} and found.worst is not None
    assert "ZeroDivisionError" in found.worst.reason


def test_sums_have_one_to_four_leaves_of_the_template() -> None:
    sizes = set()

    def merge(m: Match) -> Replacement:
        sizes.add(len(m.branches))
        if any(b.is_bare for b in m.branches) or any(b.k.value.size != 1 for b in m.branches):
            raise Decline("a factor is not one number")
        return Replacement(K=sum(np.asarray(b.k.value).reshape(()) for b in m.branches))

    found = try_rule("branch(x) = Mul(x, k: const)\ny = sum(branch(x)...)", "y = Mul(x, K)", merge, graphs=40)
    assert sizes >= {2, 3, 4} and found.rewritten > 3 and found.passed, found.worst


def test_the_same_seed_makes_the_same_graphs() -> None:
    rule = sp.Registry.installed().get("fold_batch_norm_into_conv")
    assert rule is not None

    def numbers(seed: int) -> Any:
        found = exercise(rule, 6, seed=seed)
        return found.tried, found.rewritten, found.declined, found.never

    assert numbers(1) == numbers(1)
    assert len({repr(numbers(seed)) for seed in range(3)}) > 1


def test_a_pattern_of_operators_that_nobody_knows_cannot_be_run() -> None:
    found = try_rule("y = my.domain.Twice(x)", "y = Add(x, x)")
    assert found.unknown == "my.domain.Twice" and found.passed and found.tried == 0


def test_a_custom_operator_with_a_body_is_run() -> None:
    body = '<domain: "my.domain", opset_import: ["" : 18]> Swish (x) => (y) { s = Sigmoid(x) y = Mul(x, s) }'
    right = try_rule("y = Mul(x, Sigmoid(x))", "y = my.domain.Swish(x)", reference=body)
    assert right.passed and right.rewritten > 8 and right.verdict == "verified"
    wrong = try_rule("y = Mul(x, Sigmoid(x))", "y = my.domain.Swish(x)", reference=body.replace("Mul", "Add"))
    assert wrong.faults["different"] == wrong.rewritten > 8


def test_a_custom_operator_without_a_body_is_not_compared() -> None:
    found = try_rule("y = Mul(x, Sigmoid(x))", "y = my.domain.Swish(x)")
    assert found.uncompared == "my.domain.Swish" and found.passed and found.rewritten > 8
    assert "not compared: ONNX Runtime does not know my.domain.Swish; give reference= to the rule" in render([found])


@pytest.mark.parametrize(
    "name", ["fold_batch_norm_into_conv", "merge_parallel_branches", "fuse_gelu", "drop_split_concat"]
)
def test_built_in_rules_fire_on_what_is_made_for_them(name: str) -> None:
    rule = sp.Registry.installed().get(name)
    assert rule is not None
    found = exercise(rule, 30)
    assert found.passed and found.by_example and found.rewritten >= 2, found.declined
