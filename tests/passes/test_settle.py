"""What is refuted is undone, alone; what builds on it is tried again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from surgeon_passes import Decision, Pipeline, Rewrite, Verify
from surgeon_passes.result import Result
from surgeon_passes.rules.match import Match
from surgeon_passes.rules.registry import Registry
from surgeon_passes.rules.rule import Replacement, Rule
from tests.models import floats, model, operators, run, same
from tests.rules.ground import make

WRONG = make("y = Abs(x)", "y = Neg(x)", name="wrong", exactness="exact")
SOUND = make("y = Relu(x)", "y = Max(x, 0)", name="sound", exactness="exact")
DROP = make("y = Identity(x)", "y = x", name="drop", exactness="exact")


def run_rules(text: str, *rules: Rule, **verify: Any) -> Result:
    return Pipeline(Rewrite(*rules)).run(
        model(text), verify=Verify(**{"end_check": False, **verify}), registry=Registry()
    )


def story(result: Result) -> list[tuple[str, str, str]]:
    return [(d.rule, d.status, d.verdict) for d in result.decisions]


def test_the_guilty_rewrite_alone_is_undone() -> None:
    lines = " ".join(f"t{i + 1} = {'Abs' if i == 7 else 'Relu'}(t{i})" for i in range(20))
    result = run_rules(f"g (float[3] t0) => (float[3] y) {{ {lines} y = Sigmoid(t20) }}", WRONG, SOUND)
    assert [d.root for d in result.undone] == ["Abs -> 't8'"]
    assert operators(result.proto) == ["Max"] * 7 + ["Abs"] + ["Max"] * 12 + ["Sigmoid"]
    assert sum(d.rule == "sound" for d in result.applied) == 19
    assert result.exit_code == 7


def test_an_undone_rewrite_says_how_far_it_was_off() -> None:
    (found,) = run_rules("g (float[3] x) => (float[3] y) { y = Abs(x) }", WRONG).undone
    assert found.verdict == "refuted" and found.metrics["tensor"] == "y"
    assert found.metrics["max_error"] == pytest.approx(2, rel=0.1)
    assert "2 of 3 elements are not bit-equal" in found.reason


def test_the_guilty_group_of_a_sum_alone_is_undone() -> None:
    def difference(match: Match) -> Replacement:
        return Replacement(K=np.float32([3 if match.x.name == "x1" else 1]))

    rule = make(
        "br(x) = Relu(x) | Neg(x)\ny = sum(br(x)...)", "y = Sub(Relu(x), Mul(x, K))", difference, recursive=True
    )
    lines = [f"x{i} = {op}(x) a{i} = Relu(x{i}) b{i} = Neg(x{i})" for i, op in enumerate(("Sin", "Cos", "Tanh"))]
    result = run_rules(f"g (float[3] x) => (float[3] y) {{ {' '.join(lines)} y = Sum(a0, a1, a2, b0, b1, b2) }}", rule)
    assert len(result.undone[0].nodes) == 7  # all three in one edit; then group by group
    assert all("Relu -> 'a1'" in d.nodes for d in result.undone)
    assert ["Relu -> 'a0'" in d.nodes for d in result.applied] == [True, False]
    found = result.after.operators
    assert (found["Sub"], found["Neg"], found["Relu"]) == (2, 1, 3)


def test_what_builds_on_a_refuted_rewrite_is_tried_again() -> None:
    """Identity between Abs and the output: dropping it hands y to the node that is refuted."""
    result = run_rules("g (float[3] x) => (float[3] y) { a = Abs(x) y = Identity(a) }", WRONG, DROP)
    assert story(result) == [
        ("wrong", "undone", "refuted"),
        ("drop", "conflict", ""),
        ("drop", "applied", "verified"),
    ]
    assert operators(result.proto) == ["Abs"]


def test_a_value_that_a_refuted_rewrite_made_is_not_built_on() -> None:
    """The pair of products is merged where k is read as a constant, nodes away from what made it one."""

    def constant(match: Match) -> Replacement:
        return Replacement(V=np.array([6], np.int64))

    def product(match: Match) -> Replacement:
        return Replacement(K=match.k * 2)

    wrong = make("y = Neg(n)", "y = Identity(V)", constant, name="wrong", exactness="exact")
    scale = make("y = Mul(Add(x, x), k: const)", "y = Mul(x, K)", product, name="scale")
    text = "g (float[1] x, int64[1] n) => (float[1] y) { a = Neg(n) k = Cast<to=1>(a) s = Add(x, x) y = Mul(s, k) }"
    result = run_rules(text, wrong, scale)
    assert [d.rule for d in result.undone] == ["wrong"] and not result.applied
    assert operators(result.proto) == ["Neg", "Cast", "Add", "Mul"]


def test_innocents_of_a_group_are_done_again() -> None:
    text = "g (float[3] x) => (float[3] y) { a = Abs(x) b = Relu(a) c = Identity(b) y = Sigmoid(c) }"
    result = run_rules(text, WRONG, SOUND, DROP)
    assert [d.rule for d in result.undone] == ["wrong"]
    assert operators(result.proto) == ["Abs", "Max", "Sigmoid"]
    x = floats(3)
    same(run(model(text), x=x), run(result.proto, x=x))


def test_undoing_brings_readers_back_only_where_their_tensor_is() -> None:
    """One rule takes the reader of a tensor out, wrongly; another, soundly, drops the tensor."""
    wrong = make("y = Sub(a, a)", "y = Identity(Ones)", lambda m: _ones(), name="wrong_zero", exactness="exact")
    text = "g (float[3] x) => (float[3] y, float[3] z) { t = Identity(x) y = Sub(t, t) z = Relu(t) }"
    result = run_rules(text, wrong, DROP)
    assert [d.rule for d in result.undone] == ["wrong_zero"]
    assert operators(result.proto) == ["Sub", "Relu"]
    x = floats(3)
    same(run(model(text), x=x), run(result.proto, x=x))


def _ones() -> Any:
    from surgeon_passes.rules.rule import Replacement

    return Replacement(Ones=np.ones(3, np.float32))


def test_a_refuted_rewrite_is_not_tried_for_ever() -> None:
    result = run_rules("g (float[3] x) => (float[3] y) { y = Abs(x) }", WRONG)
    assert story(result) == [("wrong", "undone", "refuted")] and result.converged


# --- modes ---------------------------------------------------------------------------------------------------------------

UNVERIFIABLE = make("y = com.nowhere.Twice(x)", "y = Add(x, x)", name="unverifiable", exactness="exact")
"""ONNX Runtime does not have the operator."""


@pytest.mark.parametrize(
    ("mode", "status", "verdict"),
    [("strict", "undone", "unverified"), ("available", "applied", "unverified"), ("off", "applied", "unverified")],
)
def test_what_cannot_be_checked(mode: str, status: str, verdict: str) -> None:
    proto = model("g (float[3] x) => (float[3] y) { y = com.nowhere.Twice(x) }")
    proto.opset_import.add(domain="com.nowhere", version=1)
    pipeline = Pipeline(Rewrite(UNVERIFIABLE))
    result = pipeline.run(proto, verify=Verify(mode=mode, end_check=False), registry=Registry())
    (found,) = result.decisions
    assert (found.status, found.verdict) == (status, verdict)
    assert found.reason
    assert operators(result.proto) == ["Twice" if mode == "strict" else "Add"]


def test_off_checks_nothing_and_says_so() -> None:
    result = run_rules("g (float[3] x) => (float[3] y) { y = Abs(x) }", WRONG, mode="off")
    (found,) = result.decisions
    assert (found.status, found.verdict, found.reason) == ("applied", "unverified", "verification is off")


def test_an_unknown_mode() -> None:
    from surgeon_passes.errors import UsageError

    with pytest.raises(UsageError, match="verify is 'strickt', not one of strict, available, off"):
        Pipeline(Rewrite(DROP)).run(model("g (float[3] x) => (float[3] y) { y = Abs(x) }"), verify="strickt")


def test_one_that_cannot_be_checked_does_not_cost_the_others_their_verdict() -> None:
    proto = model("g (float[3] x) => (float[3] y) { a = Relu(x) b = Identity(a) y = com.nowhere.Twice(b) }")
    proto.opset_import.add(domain="com.nowhere", version=1)
    pipeline = Pipeline(Rewrite(UNVERIFIABLE, SOUND, DROP))
    result = pipeline.run(proto, verify=Verify(end_check=False), registry=Registry())
    assert operators(result.proto) == ["Max", "Twice"]
    applied: list[Decision] = result.applied
    assert {(d.rule, d.verdict) for d in applied} == {("sound", "verified"), ("drop", "verified")}
