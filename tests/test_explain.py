"""Why a rule was not applied: the pattern line and the reason, for each kind of thing that the matcher stops at."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest

import surgeon_passes as sp
from surgeon_passes.explain import Attempt, explain
from surgeon_passes.rules.registry import Registry
from surgeon_passes.rules.rule import Rule
from tests.cli.conftest import Call, assert_refused
from tests.cli.conftest import call as call  # noqa: PLC0414
from tests.models import floats, model

FOLD = "c = Conv(x, w: const, b?: const)\ny = BatchNormalization(c, g: const, h: const, m: const, v: const)"
ONES = {"s": np.float32([1, 2]), "w": floats(2, 2, 1, 1)}


def made(pattern: str, rewrite: str = "y = Identity(x)", name: str = "planted", **options: Any) -> Rule:
    return Rule.from_text(name, pattern, rewrite, **options)


def attempts(pattern: str, text: str, **weights: Any) -> list[Attempt]:
    rule = made(pattern, may_grow=True)
    found = explain(
        model(f"g {text}", **weights),
        rule="planted",
        pipeline=sp.Pipeline(sp.Cleanup()),
        registry=Registry([rule]),
        verify="off",
    )
    return list(found.attempts)


PLANTED = {
    "another operator": (
        FOLD, "(float[N,2,4,4] x) => (float[N,2,4,4] y) { [r] r = Relu(x) [n] y = BatchNormalization(r, s, s, s, s) }",
        1, "c = Conv(x, w: const, b?: const)", "Conv", "Relu stands where Conv is wanted",
    ),
    "not constant": (
        FOLD, "(float[N,2,4,4] x, float[2,2,1,1] k) => (float[N,2,4,4] y) "
        "{ [c] c = Conv(x, k) [n] y = BatchNormalization(c, s, s, s, s) }",
        1, "c = Conv(x, w: const, b?: const)", "w", "'k' is not constant",
    ),
    "nothing makes the operand": (
        FOLD, "(float[N,2,4,4] x) => (float[N,2,4,4] y) { [n] y = BatchNormalization(x, s, s, s, s) }",
        2, "y = BatchNormalization(c, g: const, h: const, m: const, v: const)", "c", "'x' is made by no node",
    ),
    "a second reader": (
        "y = Abs(x: unshared)",
        "(float[N] x) => (float[N] y, float[N] z) { [a] a = Neg(x) [b] y = Abs(a) [c] z = Exp(a) }",
        1, "y = Abs(x: unshared)", "x", "'a' is used elsewhere too",
    ),
    "a second result that is used": (
        "y = Dropout(x)", "(float[N] x) => (float[N] y, bool[N] m) { [d] y, k = Dropout(x) [n] m = Not(k) }",
        1, "y = Dropout(x)", "y", "result 'k' of Dropout is used",
    ),
    "an attribute": (
        "a = Neg(x)\ny = Softmax(a)<axis=1>", "(float[N,4] x) => (float[N,4] y) "
        "{ [a] a = Neg(x) [m] y = Softmax<axis = 0>(a) }",
        2, "y = Softmax(a)<axis=1>", "axis", "attribute axis is 0, not 1",
    ),
    "an attribute that stands twice": (
        "a = Softmax(x)<axis=@d>\ny = Softmax(a)<axis=@d>",
        "(float[N,4] x) => (float[N,4] y) { [z] a = Softmax<axis = 0>(x) [m] y = Softmax<axis = 1>(a) }",
        1, "a = Softmax(x)<axis=@d>", "axis", "@d stands for two different values",
    ),
    "a name that stands twice": (
        "a = Sigmoid(x)\ny = Mul(x, a)", "(float[N] x, float[N] z) => (float[N] y) "
        "{ [a] a = Sigmoid(z) [m] y = Mul(x, a) }",
        1, "a = Sigmoid(x)", "x", "'x' stands for two different tensors",
    ),
    "a literal": (
        "a = Neg(x)\ny = Pow(a, 2)", "(float[N] x) => (float[N] y) { [a] a = Neg(x) [p] y = Pow(a, three) }",
        2, "y = Pow(a, 2)", "2", "'three' is not the constant 2",
    ),
    "a missing operand": (
        "a = Neg(x)\ny = Clip(a, lo: const, hi: const)", "(float[N] x) => (float[N] y) "
        "{ [a] a = Neg(x) [p] y = Clip(a, three) }",
        2, "y = Clip(a, lo: const, hi: const)", "hi", "operand 'hi' is missing",
    ),
    "too many operands": (
        "y = Clip(x, lo: const)", "(float[N] x) => (float[N] y) { [p] y = Clip(x, three, three) }",
        1, "y = Clip(x, lo: const)", "Clip", "Clip has 3 operands where 2 are wanted",
    ),
    "another result of a node": (
        "a, b = Split(x)<axis=0>\ny = Neg(a)", "(float[4] x) => (float[2] y) "
        "{ [s] p, q = Split<axis = 0>(x) [m] y = Neg(q) }",
        2, "y = Neg(a)", "a", "'q' is not result 1 of Split",
    ),
    "nothing known of a value": (
        "a = Neg(x)\ny = Reshape(a, t: partial)", "(float[N] x, int64[2] t) => (float[k,l] y) "
        "{ [a] a = Neg(x) [m] y = Reshape(a, t) }",
        2, "y = Reshape(a, t: partial)", "t", "nothing is known of the value of 't'",
    ),
    "a sum without branches": (
        "branch(x) = Conv(x, w: const) | x\ny = sum(branch(x)...)",
        "(float[N,2,4,4] x, float[N,2,4,4] z) => (float[N,2,4,4] y) { [c] c = Conv(x, w) [m] y = Add(c, z) }",
        2, "y = sum(branch(x)...)", "sum", "no two operands of the sum are branches of one tensor",
    ),
    "a sum of one bare tensor": (
        "branch(x) = Conv(x, w: const) | x\ny = sum(branch(x)...)", "(float[N] x) => (float[N] y) { [m] y = Add(x, x) }",
        2, "y = sum(branch(x)...)", "sum", "operands of the sum are one tensor, but none is made by a branch of it",
    ),
    "an operand that should be missing": (
        'y = Clip(x, "", hi: const)', "(float[N] x) => (float[N] y) { [p] y = Clip(x, three, three) }",
        1, 'y = Clip(x, "", hi: const)', '""', "'three' should be missing",
    ),
    "a result that is not there": (
        "d, m = Dropout(x)\ny = Neg(d)", "(float[N] x) => (float[N] y) { [z] d = Dropout(x) [m] y = Neg(d) }",
        1, "d, m = Dropout(x)", "m", "Dropout has no result for 'm'",
    ),
    "results in another order": (
        "parts... = Split(x)<axis=0>\ny = Concat(parts...)<axis=0>",
        "(float[4] x) => (float[4] y) { [z] p, q = Split<axis = 0>(x) [m] y = Concat<axis = 0>(q, p) }",
        2, "y = Concat(parts...)<axis=0>", "parts", "'parts...' are not the results of one Split, in order",
    ),
    "a sum of one": (
        "y = sum(x, w)", "(float[N] x) => (float[N] y) { [m] y = Sum(x) }",
        1, "y = sum(x, w)", "sum", "Sum is no sum of two or more",
    ),
    "a sum without such an operand": (
        "y = sum(Neg(x), w)", "(float[N] x, float[N] w) => (float[N] y) { [z] a = Abs(x) [m] y = Add(a, w) }",
        1, "y = sum(Neg(x), w)", "Neg", "no operand of the sum fits",
    ),
    "an outer graph": (
        "a = Neg(x)\ny = Abs(a)",
        "(float[N] x, bool c) => (float[N] y) "
        "{ [a] a = Neg(x) [i] y = If(c) <then_branch = t () => (float[N] p) { [b] p = Abs(a) }, "
        "else_branch = e () => (float[N] r) { [r] r = Exp(a) }> }",
        2, "y = Abs(a)", "a", "'a' comes from an outer graph",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", PLANTED)
def test_a_near_miss_is_explained_by_line_and_reason(kind: str) -> None:
    pattern, text, line, shown, token, reason = PLANTED[kind]
    found = attempts(pattern, text, three=np.float32(3), **ONES)
    best = next(a for a in found if not a.root.endswith("'z'"))
    assert (best.outcome, best.line, best.reason) == ("stopped", line, reason)
    assert best.text.strip() == shown
    assert best.text[best.start : best.end].startswith(token), best.text[best.start : best.end]
    assert best.reach <= best.wanted


def test_what_the_function_declines_comes_with_its_words() -> None:
    @sp.rule(pattern="y = Neg(Neg(x))", rewrite="y = x")
    def planted(m: sp.Match) -> sp.Replacement:
        raise sp.Decline(f"'{m.x.name}' is not for me")

    text = "g (float[N] x) => (float[N] y) { [a] a = Neg(x) [b] y = Neg(a) }"
    found = explain(
        model(text), rule="planted", pipeline=sp.Pipeline(sp.Rewrite(planted)), registry=Registry([planted])
    )
    attempt = found.attempts[0]
    assert (attempt.outcome, attempt.reason, attempt.reach) == ("declined", "'x' is not for me", 2)
    assert attempt.nodes == ("Neg 'b'", "Neg 'a'") and not found.decisions


def test_the_best_attempt_comes_first() -> None:
    text = """(float[N,2,4,4] x) => (float[N,2,4,4] y, float[N,2,4,4] z) {
        [far] y = BatchNormalization(x, s, s, s, s)
        [c] c = Conv(x, w) [near] z = BatchNormalization(c, s, s, s, x0)
    }"""
    found = attempts(FOLD, text.replace("x0", "w"), **ONES)  # a matrix for the variance: still constant, so it matches
    assert [a.root for a in found] == ["BatchNormalization 'near'", "BatchNormalization 'far'"]
    assert found[0].outcome in ("applies", "declined") and found[1].outcome == "stopped"


def test_why_a_node_was_not_fused() -> None:
    text = """g (float[N,2,4,4] x) => (float[N,2,4,4] y, float[N,2,4,4] z) {
        [c] c = Conv(x, w) [n] y = BatchNormalization(c, s, s, s, s) [r] z = Relu(c)
    }"""
    found = explain(model(text, **ONES), node="n")
    fold = next(a for a in found.attempts if a.rule == "fold_batch_norm_into_conv")
    assert found.attempts[0] is fold
    assert (fold.outcome, fold.reason) == ("declined", "'c' is also used by Relu 'r'")
    of_conv = explain(model(text, **ONES), node="c").attempts
    assert any(a.rule == "fold_batch_norm_into_conv" and a.root == "BatchNormalization 'n'" for a in of_conv)


def test_a_question_changes_no_graph() -> None:
    graph = gs.import_onnx(model("g (float[N] x) => (float[N] y) { [i] a = Identity(x) [r] y = Relu(a) }"))
    explain(graph, rule="drop_identity")
    assert [n.op for n in graph.nodes] == ["Identity", "Relu"]


def test_roots_are_found_far_behind_a_node() -> None:
    lines = [f"[n{k}] t{k} = Neg(t{k - 1})" for k in range(1, 12)]
    text = "g (float[N] t0) => (float[N] y) { " + " ".join(lines) + " y = Abs(t11) }"
    pattern = "\n".join(["a1 = Neg(x)", *(f"a{k} = Neg(a{k - 1})" for k in range(2, 12)), "y = Abs(a11)"])

    @sp.rule(pattern=pattern, rewrite="y = Abs(x)")
    def planted(m: sp.Match) -> sp.Replacement:
        raise sp.Decline("not today")

    found = explain(
        model(text), node="n1", rule="planted", pipeline=sp.Pipeline(sp.Cleanup()), registry=Registry([planted])
    )
    assert [a.reason for a in found.attempts] == ["not today"]


def test_nodes_of_branches_that_went_are_known() -> None:
    text = """g (float[N] x) => (float[N] y) <bool c = {1}> { y = If(c) <
        then_branch = t () => (float[N] p) { [taken] p = Neg(x) },
        else_branch = e () => (float[N] q) { [other] q = Abs(x) }> }"""
    assert explain(model(text), node="other").remarks == ("the result has no node 'other' any more",)


def test_a_node_that_was_rewritten_says_by_what() -> None:
    text = "g (float[N,2,4,4] x) => (float[N,2,4,4] y) { [c] c = Conv(x, w) [n] y = BatchNormalization(c, s, s, s, s) }"
    found = explain(model(text, **ONES), node="n")
    assert [(d.rule, d.status, d.verdict) for d in found.decisions] == [
        ("fold_batch_norm_into_conv", "applied", "verified")
    ]
    assert found.remarks == ("the result has no node 'n' any more",) and not found.attempts


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("fuse_attention", "fuse_attention is for opset 23 and newer, the model has 17"),
        ("fuse_conv_relu", None),
        ("drop_dropout", "drop_dropout begins at Dropout: the result has no such node"),
    ],
)
def test_why_there_was_nothing_to_try(rule: str, says: str | None) -> None:
    text = "g (float[N] x) => (float[N] y) { y = Relu(x) }"
    if says is None:
        with pytest.raises(sp.UsageError, match="no rule is called 'fuse_conv_relu'"):
            explain(model(text), rule=rule)
        return
    assert says in explain(model(text), rule=rule).remarks


def test_neither_node_nor_rule_is_a_usage_error() -> None:
    with pytest.raises(sp.UsageError, match="name what to explain"):
        explain(model("g (float[N] x) => (float[N] y) { y = Relu(x) }"))


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def path(call: Call) -> str:
    text = """g (float[N,2,4,4] x, float[2,2,1,1] k) => (float[N,2,4,4] y) {
        [c] c = Conv(x, k) [n] y = BatchNormalization(c, s, s, s, s)
    }"""
    onnx.save(model(text, **ONES), "m.onnx")
    return "m.onnx"


def test_it_is_shown_in_one_screen(call: Call, path: str) -> None:
    outcome = call("explain", path, "--node", "n", "--rule", "fold_batch_norm_into_conv")
    assert outcome.code == 0
    assert outcome.out.splitlines() == [
        "m.onnx",
        "",
        "fold_batch_norm_into_conv at BatchNormalization 'n': 2 of 2 nodes matched, then stopped at pattern line 1",
        "    c = Conv(x, w: const, b?: const)",
        "                ^",
        "    'k' is not constant",
        "    matched: BatchNormalization 'n', Conv 'c'",
    ]
    assert len(call("explain", path, "--node", "n").out.splitlines()) < 45


def test_what_is_not_there_is_refused(call: Call, path: str) -> None:
    assert_refused(call, 2, "explain", path, says="name what to explain: a node, a rule, or both")
    assert_refused(call, 2, "explain", path, "--node", "nn", says="m.onnx has no node 'nn' (did you mean 'n'?)")
    assert_refused(call, 2, "explain", path, "--rule", "fold", says="no rule is called 'fold'")
    assert_refused(call, 6, "explain", "none.onnx", "--node", "n", says="none.onnx")
