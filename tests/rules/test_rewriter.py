"""Legality, interfaces, errors of a rule's function, the gate on cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from surgeon_passes import Pipeline, Rewrite, Verify, optimize
from surgeon_passes.errors import RuleError
from surgeon_passes.rules.match import Match
from surgeon_passes.rules.registry import Registry
from surgeon_passes.rules.rule import Decline, Replacement, Rule
from tests.models import floats, model, operators, run, same
from tests.rules.ground import Ground, make

PAIR = make("y = Neg(Neg(x))", "y = x", name="drop_pair")
FUSED = make("y = Relu(Neg(x))", "y = Clip(Neg(x), 0)", name="fused")
IDENTITY = make("y = Identity(x)", "y = x", name="drop_identity")


def declined(rule: Rule, text: str, reason: str, output: str = "y", path: str = "", **constants: Any) -> None:
    ground = Ground(model(text, **constants))
    before = ground.bytes()
    with pytest.raises(Decline) as caught:
        ground.apply(rule, output, path)
    assert str(caught.value) == reason
    assert ground.bytes() == before


def applied(rule: Rule, text: str, output: str = "y", **constants: Any) -> onnx.ModelProto:
    """The rewritten model, which gives what the original gives."""
    proto = model(text, **constants)
    ground = Ground(proto)
    ground.apply(rule, output)
    found = ground.export()
    x = floats(2)
    same(run(proto, x=x), run(found, x=x))
    return found


# --- what lies inside a match --------------------------------------------------------------------------------------------


def test_a_reader_outside_the_match() -> None:
    text = "g (float[2] x) => (float[2] y, float[2] z) { a = Neg(x) y = Relu(a) [other] z = Abs(a) }"
    declined(FUSED, text, "'a' is also used by Abs 'other'")


@pytest.mark.parametrize(("opset", "ops"), [(7, ["SpaceToDepth"]), (9, ["Reshape", "Transpose", "Reshape"])])
def test_a_function_takes_no_integer_constants_below_opset_9(opset: int, ops: list[str]) -> None:
    """Its constants are Constant nodes, and those hold floats alone there."""
    proto = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : {opset}, "pkg" : 1]>
        g (float[1,1,4,6] x) => (float[1,4,2,3] y) {{ y = pkg.Blocks(x) }}
        <domain: "pkg", opset_import: ["" : {opset}]>
        Blocks (x) => (y) {{ y = SpaceToDepth<blocksize = 2>(x) }}""")
    result = optimize(proto, sets=["npu"], verify="off")
    (function,) = result.proto.functions
    assert [n.op_type for n in function.node if n.op_type != "Constant"] == ops
    x = np.arange(24, dtype=np.float32).reshape(1, 1, 4, 6)
    np.testing.assert_array_equal(run(result.proto, x=x)["y"], run(proto, x=x)["y"])


def test_a_reader_in_a_body() -> None:
    text = """g (bool c, float[2] x) => (float[2] y, float[2] z) {
        a = Neg(x) y = Relu(a)
        z = If(c)<then_branch = t () => (float[2] p) { p = Abs(a) }, else_branch = f () => (float[2] q) { q = Exp(x) }>
    }"""
    declined(FUSED, text, "'a' is also used by Abs -> 'p'")


def test_an_output_inside_a_match() -> None:
    declined(FUSED, "g (float[2] x) => (float[2] y, float[2] a) { a = Neg(x) y = Relu(a) }", "'a' is a graph output")


# --- y = x ---------------------------------------------------------------------------------------------------------------


def test_consumers_read_the_other_tensor() -> None:
    found = applied(IDENTITY, "g (float[2] x) => (float[2] y) { a = Identity(x) b = Neg(a) y = Add(a, b) }", "a")
    assert operators(found) == ["Neg", "Add"] and list(found.graph.node[1].input) == ["x", "b"]


def test_an_output_takes_over_the_producer_of_the_other_tensor() -> None:
    text = "g (float[2] x) => (float[2] y, float[2] z) { a = Abs(x) y = Identity(a) z = Neg(a) }"
    found = applied(IDENTITY, text)
    assert [(n.op_type, *n.input, *n.output) for n in found.graph.node] == [("Abs", "x", "y"), ("Neg", "y", "z")]


def test_captures_follow_an_output_that_takes_over() -> None:
    ground = Ground(
        model("""g (bool c, float[2] x) => (float[2] y, float[2] z) {
        a = Abs(x) y = Identity(a)
        z = If(c)<then_branch = t () => (float[2] p) { p = Neg(a) }, else_branch = f () => (float[2] q) { q = Exp(a) }>
    }""")
    )
    ground.apply(IDENTITY)
    found = ground.export()
    bodies = [a.g for a in found.graph.node[1].attribute]
    assert [list(b.node[0].input) for b in bodies] == [["y"], ["y"]]


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("g (float[2] x) => (float[2] y) { y = Identity(x) }", "x"),
        ("g (float[2] x) => (float[2] y, float[2] a) { a = Neg(x) y = Identity(a) }", "a"),
        ("g (float[2] x) => (float[2] y, float[2] y, float[2] a) { a = Neg(x) y = Identity(a) }", "a"),
    ],
)
def test_an_identity_between_interfaces_stays(text: str, other: str) -> None:
    declined(IDENTITY, text, f"'y' is a graph output and '{other}' is interface too: an Identity stays")


def test_an_output_that_is_listed_twice_keeps_both_places() -> None:
    found = applied(PAIR, "g (float[2] x) => (float[2] y, float[2] y) { a = Abs(x) b = Neg(a) y = Neg(b) }")
    assert operators(found) == ["Abs"] and [o.name for o in found.graph.output] == ["y", "y"]


def test_an_output_that_is_a_constant_is_made_by_a_constant_node() -> None:
    found = applied(IDENTITY, "g (float[2] x) => (float[2] y, float[2] z) { y = Identity(k) z = Neg(x) }", k=floats(2))
    assert [n.op_type for n in found.graph.node] == ["Constant", "Neg"]
    assert not found.graph.initializer


LOOP = """g (int64 n, bool k, float[2] x) => (float[2] z, float[S,2] zs) {{
    t = Abs(x)
    z, zs = Loop(n, k, x)<body = b (int64 i, bool go, float[2] h) => (bool go2, float[2] h2, float[2] e) {{
        go2 = Identity(go) {}
    }}>
}}"""


@pytest.mark.parametrize(
    ("lines", "output", "expected"),
    [
        ("a = Neg(h) h2 = Identity(a) e = Abs(h)", "h2", {"Neg": "h2", "Abs": "e", "Identity": "go2"}),
        ("h2 = Identity(h) e = Abs(h)", "h2", "'h2' is a graph output and 'h' is interface too: an Identity stays"),
        ("h2 = Identity(t) e = Abs(h)", "h2", "'h2' is a graph output and 't' is interface too: an Identity stays"),
        ("a = Identity(t) h2 = Add(a, h) e = Abs(a)", "a", {"Add": "h2", "Abs": "e", "Identity": "go2"}),
        ("a = Neg(h) h2 = Identity(a) e = Identity(a)", "h2", {"Neg": "h2", "Identity": "e"}),
    ],
)
def test_inside_a_loop(lines: str, output: str, expected: Any) -> None:
    text = LOOP.format(lines)
    if isinstance(expected, str):
        declined(IDENTITY, text, expected, output, "z/body")
        return
    proto = model(text)
    ground = Ground(proto)
    ground.apply(IDENTITY, output, "z/body")
    found = ground.export()
    body = next(n for n in found.graph.node if n.op_type == "Loop").attribute[0].g
    assert {n.op_type: n.output[0] for n in body.node} == expected
    feeds = {"n": np.int64(3), "k": np.bool_(True), "x": floats(2)}
    same(run(proto, **feeds), run(found, **feeds))


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("y", [("Abs", "x", "y"), ("Identity", "y", "z"), ("Neg", "y", "v")]),
        ("v", [("Abs", "x", "z"), ("Neg", "z", "v")]),
    ],
)
def test_two_results_of_one_tensor(output: str, expected: list[tuple[str, ...]]) -> None:
    rule = make("y, z = Split(x, s)", "y = x\nz = x")
    text = f"g (float[2] x) => (float[2] {output}, float[2] z) {{ a = Abs(x) y, z = Split(a, s) v = Neg(y) }}"
    ground = Ground(model(text, s=np.int64([1, 1])))
    ground.apply(rule, "z")
    nodes = ground.export(clean=False).graph.node
    assert [(n.op_type, *n.input, *n.output) for n in nodes] == expected


def test_new_nodes_read_what_took_over() -> None:
    rule = make("y, m = Dropout(x)", "y = x\nm = Not(IsNaN(x))")
    found = applied(rule, "g (float[2] x) => (float[2] y, bool[2] m) { a = Abs(x) y, m = Dropout(a) }")
    assert operators(found) == ["Abs", "IsNaN", "Not"] and found.graph.node[1].input[0] == "y"


@pytest.mark.parametrize("tail", ["y = Identity(a)", "b = Identity(a) y = Identity(b)", "y = Identity(a) z = Neg(a)"])
def test_an_output_that_takes_over_a_new_node_is_verified_with_it(tail: str) -> None:
    """Both edits are one region: what the first made is the output in the end."""
    outputs = "float[2] y, float[2] z" if "z =" in tail else "float[2] y"
    proto = model(f"g (float[2] x) => ({outputs}) {{ a = Abs(x) {tail} }}")
    rules = (make("y = Abs(x)", "y = Max(x, Neg(x))", name="sound"), IDENTITY)
    result = Pipeline(Rewrite(*rules)).run(proto, registry=Registry())
    assert {(d.status, d.verdict) for d in result.decisions} == {("applied", "verified")}
    assert "Identity" not in operators(result.proto)
    wrong = (make("y = Abs(x)", "y = Neg(x)", name="wrong"), IDENTITY)
    result = Pipeline(Rewrite(*wrong)).run(proto, verify=Verify(end_check=False), registry=Registry())
    assert [d.rule for d in result.undone] == ["wrong"]
    assert "Abs" in operators(result.proto) and "Identity" not in operators(result.proto)


# --- leftovers and leaves -------------------------------------------------------------------------------------------------


def test_leftovers_are_joined_to_the_result() -> None:
    rule = make("y = sum(Exp(a), Neg(b))", "y = Sub(Exp(a), b)")
    text = "g (float[2] x) => (float[2] y) { e = Exp(x) n = Neg(x) s = Add(e, x) t = Add(s, n) y = Add(t, k) }"
    proto = model(text, k=floats(2))
    ground = Ground(proto)
    ground.apply(rule)
    found = ground.export()
    assert operators(found) == ["Exp", "Sub", "Add", "Add"]
    x = floats(2)
    np.testing.assert_allclose(run(proto, x=x)["y"], run(found, x=x)["y"], rtol=1e-6)


def test_a_leaf_that_is_left_keeps_its_nodes() -> None:
    rule = make(
        "br(x) = Relu(x) | Neg(x) | Abs(Exp(x))\ny = sum(br(x)...)",
        "y = Sub(Relu(x), x)",
        lambda m: Replacement(leave=[leaf for leaf in m.brs if leaf.op == "Abs"]),
    )
    text = "g (float[2] x) => (float[2] y) { a = Relu(x) b = Neg(x) e = Exp(x) c = Abs(e) s = Add(a, b) y = Add(s, c) }"
    found = applied(rule, text)
    assert sorted(operators(found)) == ["Abs", "Add", "Exp", "Relu", "Sub"]


GROUPS = "br(x) = Relu(x) | Neg(x)\ny = sum(br(x)...)"
OF_THREE = """g (float[2] x) => (float[2] y) {
    z = Sin(x) v = Cos(x) e = Exp(x) a0 = Relu(x) b0 = Neg(z) a1 = Neg(v) b1 = Neg(x) a2 = Relu(z) b2 = Relu(v)
    s0 = Add(a0, b0) s1 = Add(s0, a1) s2 = Add(e, s1) s3 = Add(s2, b1) s4 = Add(a2, b2) y = Add(s3, s4) }"""


def difference(match: Match) -> Replacement:
    if match.x.name == "z":
        raise Decline("not this one")
    return Replacement()


@pytest.mark.parametrize(("function", "left"), [(None, []), (difference, ["Neg", "Relu"])])
def test_all_groups_of_a_sum_are_one_edit(function: Any, left: list[str]) -> None:
    proto = model(OF_THREE)
    ground = Ground(proto)
    edit = ground.apply(make(GROUPS, "y = Sub(Relu(x), x)", function))
    found, merged = ground.export(), 3 - len(left) // 2
    assert sorted(operators(found)) == sorted(
        ["Sin", "Cos", "Exp", *["Relu", "Sub"] * merged, *left, *["Add"] * (merged + len(left))]
    )
    assert len(edit.identity) == len(edit.decision.nodes) == 6 + 6 - len(left)
    for seed in range(3):
        x = floats(2, seed=seed)
        np.testing.assert_allclose(run(proto, x=x)["y"], run(found, x=x)["y"], rtol=1e-5, atol=1e-6)


def test_a_group_that_costs_too_much_is_left_out_of_the_edit() -> None:
    def factors(match: Match) -> Replacement:
        inner = 64 if match.x.name == "z" else 1
        return Replacement(P=floats(4, inner), Q=floats(inner, 4))

    rule = make("br(x) = MatMul(x, w: const)\ny = sum(br(x)...)", "y = MatMul(MatMul(x, P), Q)", factors)
    ground = Ground(
        model(
            """g (float[3,4] x, float[3,4] z) => (float[3,4] y) {
            a = MatMul(x, k) b = MatMul(z, k) c = MatMul(x, h) d = MatMul(z, h) y = Sum(a, b, c, d) }""",
            k=floats(4, 4),
            h=floats(4, 4),
        )
    )
    edit = ground.apply(rule)
    assert sorted(operators(ground.export())) == ["Add"] * 2 + ["MatMul"] * 4
    assert edit.decision.metrics["weights_before"] == 32 and edit.decision.metrics["weights_after"] == 8


def test_a_leaf_that_two_groups_want_goes_to_one() -> None:
    rule = make("br(x) = Relu(x) | Neg(Relu(x)) | Neg(x)\ny = sum(br(x)...)", "y = Sum(x)")
    text = (
        "g (float[2] x) => (float[2] y) { a = Relu(x) b = Relu(x) n = Neg(a) m = Neg(x) s = Add(n, b) y = Add(s, m) }"
    )
    ground = Ground(model(text))
    assert {leaf.out.name for m in (ground.match(GROUPS),) if m for leaf in m.brs} == {"b", "m"}
    ground.apply(rule)
    assert operators(ground.export()) == ["Sum"]


def test_the_groups_of_a_sum_take_as_many_calls_as_there_are() -> None:
    calls: list[str] = []

    def count(match: Match) -> Replacement:
        calls.append(match.x.name)
        return Replacement()

    many = 40
    lines = [f"x{i} = Sin(x{i - 1 if i else ''}) a{i} = Relu(x{i}) b{i} = Neg(x{i})" for i in range(many)]
    leaves = [f"{name}{i}" for name in "ab" for i in range(many)]
    text = f"g (float[2] x) => (float[2] y) {{ {' '.join(lines)} y = Sum({', '.join(leaves)}) }}"
    rule = make(GROUPS, "y = Sub(Relu(x), x)", count, exactness="rounding")
    result = Pipeline(Rewrite(rule)).run(model(text), verify="off", registry=Registry())
    assert len(calls) == many and len(result.applied) == 1
    assert result.after.operators["Sub"] == many


# --- outcomes ------------------------------------------------------------------------------------------------------------

TRANSPOSES = {"drop": "y = x", "merge": "y = Transpose(x)<perm=@perm>"}


def compose(match: Match) -> Replacement:
    first, second = match.attr("first"), match.attr("second")
    perm = [first[i] for i in second]
    return Replacement("drop") if perm == sorted(perm) else Replacement("merge", perm=perm)


@pytest.mark.parametrize(("second", "expected"), [("[1, 2, 0]", ["Relu"]), ("[2, 0, 1]", ["Transpose", "Relu"])])
def test_the_function_picks_an_outcome(second: str, expected: list[str]) -> None:
    rule = make("y = Transpose(Transpose(x)<perm=@first>)<perm=@second>", TRANSPOSES, compose)
    text = f"""g (float[2,3,4] x) => (float[A,B,C] y) {{
        a = Transpose<perm = [2, 0, 1]>(x) b = Transpose<perm = {second}>(a) y = Relu(b)
    }}"""
    proto = model(text)
    ground = Ground(proto)
    ground.apply(rule, "b")
    found = ground.export()
    assert operators(found) == expected
    x = floats(2, 3, 4)
    same(run(proto, x=x), run(found, x=x))


# --- errors of a rule ----------------------------------------------------------------------------------------------------

ONE = "g (float[2] x) => (float[2] y) { [one] y = Neg(x) }"


def failing(match: Match) -> Replacement:
    raise ValueError("no such thing")


@pytest.mark.parametrize(
    ("rewrite", "function", "message"),
    [
        ("y = Mul(x, W)", failing, "r: its function failed at Neg 'one': ValueError: no such thing"),
        ("y = Mul(x, W)", lambda m: Replacement(), "r: the rewrite needs 'W', which the function did not return"),
        ("y = Mul(x, W)", lambda m: None, "r: the rewrite needs 'W', which the function did not return"),
        (
            "y = Elu(x)<alpha=@slope>",
            lambda m: Replacement(),
            "r: the rewrite needs @slope, which the function did not return",
        ),
        ({"a": "y = x", "b": "y = Abs(x)"}, lambda m: Replacement("c"), "r: the function chose 'c', not one of a, b"),
        (
            "y = Mul(x, W)",
            lambda m: Replacement(W=m.z),
            "r: its function failed at Neg 'one': AttributeError: the pattern binds no 'z' (it binds x, y)",
        ),
    ],
)
def test_a_rule_that_is_wrong_says_where(rewrite: Any, function: Any, message: str) -> None:
    ground = Ground(model(ONE))
    before = ground.bytes()
    with pytest.raises(RuleError) as caught:
        ground.apply(make("y = Neg(x)", rewrite, function, name="r"))
    assert str(caught.value) == message
    assert ground.bytes() == before


def test_a_rule_that_matches_its_own_output_for_ever_is_stopped() -> None:
    rule = make("y = Neg(x)", "y = Neg(Neg(Neg(x)))", name="grows", recursive=True)
    with pytest.raises(RuleError, match=r"grows: rewrote more than \d+ places"):
        Pipeline(Rewrite(rule)).run(model(ONE), verify="off", registry=Registry())


def test_a_rule_does_not_match_its_own_output_unless_it_says_so() -> None:
    rule = make("y = Neg(x)", "y = Neg(Neg(Neg(x)))", name="grows")
    result = Pipeline(Rewrite(rule), max_iterations=1).run(model(ONE), verify="off", registry=Registry())
    assert operators(result.proto) == ["Neg"] * 3


# --- the gate on cost ----------------------------------------------------------------------------------------------------

MATMULS = "g (float[5,256] x) => (float[5,256] y) { a = MatMul(x, p) y = MatMul(a, q) }"


def product(match: Match) -> Replacement:
    return Replacement(W=np.matmul(match.p, match.q))


@pytest.mark.parametrize(("inner", "grows"), [(16, True), (256, False)])
def test_a_rewrite_that_costs_more_is_declined(inner: int, grows: bool) -> None:
    constants = {"p": floats(256, inner), "q": floats(inner, 256)}
    pattern = "y = MatMul(MatMul(x, p: const), q: const)"
    rule = make(pattern, "y = MatMul(x, W)", product)
    ground = Ground(model(MATMULS, **constants))
    if not grows:
        ground.apply(rule)
        assert operators(ground.export()) == ["MatMul"]
        return
    with pytest.raises(Decline, match="it would cost 8x the multiply-accumulates"):
        ground.apply(rule)
    ground.apply(make(pattern, "y = MatMul(x, W)", product, may_grow=True))
    assert operators(ground.export()) == ["MatMul"]


def test_a_name_that_the_match_itself_uses_is_refused() -> None:
    with pytest.raises(RuleError, match=r"a pattern cannot call a tensor 'value': m\.value is something else"):
        Rule.from_text("r", "y = Add(x, value: const)", "y = Add(x, K)", lambda m: Replacement(K=m.value))


@pytest.mark.parametrize("root", ["Gemm (t, w, t)", "Gemm (w, t, t)"])
def test_what_goes_is_no_operand_of_what_comes(root: str) -> None:
    ground = Ground(
        model(f"g (float[3,3] x, float[3,3] w) => (float[3,3] y) {{ t = Transpose <perm = [1, 0]> (x) y = {root} }}")
    )
    rule = Rule.from_text("into_gemm", "y = Gemm(Transpose(x), p, q) | Gemm(p, Transpose(x), q)", "y = Gemm(x, p, q)")
    with pytest.raises(Decline, match="'t' goes with the match, and is an operand besides"):
        ground.apply(rule)
    assert [n.op for n in ground.index.nodes()] == ["Transpose", "Gemm"]
