"""Which rules run where."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from surgeon_passes import Pipeline, Rewrite
from surgeon_passes.errors import RuleError, UsageError
from surgeon_passes.rules.match import Match
from surgeon_passes.rules.registry import Registry
from surgeon_passes.rules.rule import Decline, Replacement, Rule
from tests.models import model, operators
from tests.rules.ground import make

ABS = make("y = Abs(x)", "y = Max(x, Neg(x))", name="spell_abs", sets=("one",), exactness="exact")
NEG = make("y = Neg(x)", "y = Mul(x, -1)", name="spell_neg", sets=("one", "two"), exactness="exact")
RELU = make("y = Relu(x)", "y = Max(x, 0)", name="spell_relu", sets=("two",), exactness="approximate")
TEXT = "g (float[2] x) => (float[2] y) { a = Abs(x) b = Neg(a) y = Relu(b) }"


def changed(*sets: Any, rules: Iterable[Rule] = (ABS, NEG, RELU), opset: int = 17, **options: Any) -> set[str]:
    result = Pipeline(Rewrite(*sets, **options)).run(model(TEXT, opset), registry=Registry(rules))
    assert result.check.status == "equal"
    return {d.rule for d in result.applied}


@pytest.mark.parametrize(
    ("sets", "options", "expected"),
    [
        (("one",), {}, {"spell_abs", "spell_neg"}),
        (("two",), {}, {"spell_neg"}),
        (("two",), {"approximate": True}, {"spell_neg", "spell_relu"}),
        (("one", "two"), {"skip": ["spell_abs"]}, {"spell_neg"}),
        (("one",), {"skip": ["two"]}, {"spell_abs"}),
        (("spell_abs",), {}, {"spell_abs"}),
    ],
)
def test_sets_and_names(sets: tuple[str, ...], options: Any, expected: set[str]) -> None:
    assert changed(*sets, **options) == expected


def test_rules_of_ones_own_run_beside_those_of_the_sets() -> None:
    assert changed("two", rules=(NEG,)) == {"spell_neg"}
    result = Pipeline(Rewrite("two", rules=[ABS])).run(model(TEXT), registry=Registry([NEG]))
    assert {d.rule for d in result.applied} == {"spell_abs", "spell_neg"}
    alone = Pipeline(Rewrite(ABS)).run(model(TEXT), registry=Registry([NEG]))
    assert {d.rule for d in alone.applied} == {"spell_abs"}


def test_an_unknown_set_or_name() -> None:
    for options in ({"sets": ("fussion",)}, {"sets": ("one",), "skip": ["nothing"]}):
        name = options.get("skip", options["sets"])[0]  # type: ignore[index]
        with pytest.raises(UsageError, match=f"no rule or set of rules is called '{name}'"):
            changed(*options["sets"], skip=options.get("skip", ()))


@pytest.mark.parametrize(("opset", "expected"), [(12, set()), (13, {"r"}), (15, {"r"}), (16, set())])
def test_opset_ranges(opset: int, expected: set[str]) -> None:
    rule = make("y = Abs(x)", "y = Max(x, Neg(x))", name="r", opset=(13, 15))
    assert changed(rules=(rule,), opset=opset) == expected


def test_two_rules_of_one_name() -> None:
    with pytest.raises(RuleError, match="two rules are called 'spell_abs'"):
        Registry([ABS, make("y = Neg(x)", "y = x", name="spell_abs")])


def test_every_binding_is_tried_until_one_is_taken() -> None:
    def only_z(match: Match) -> Replacement:
        if match.a.name != "z":
            raise Decline(f"{match.a.name} is not z")
        return Replacement()

    rule = make("y = Add(a, b)", "y = Sub(a, Neg(b))", only_z, name="r")
    text = "g (float[2] x, float[2] z) => (float[2] y) { y = Add(x, z) }"
    result = Pipeline(Rewrite(rule)).run(model(text), registry=Registry())
    assert [(d.status, d.rule) for d in result.decisions] == [("applied", "r")]
    assert result.proto.graph.node[-1].input[0] == "z"


def test_a_decline_is_recorded_once_with_its_nodes() -> None:
    def never(match: Match) -> Replacement:
        raise Decline("not today")

    rule = make("y = Neg(Abs(x))", "y = Neg(Abs(x))", never, name="r")
    result = Pipeline(Rewrite(rule)).run(model(TEXT), registry=Registry())
    (found,) = result.decisions
    assert (found.status, found.reason, found.nodes) == ("declined", "not today", ("Neg -> 'b'", "Abs -> 'a'"))


@pytest.mark.parametrize(("final", "tried"), [(False, [("b", "x"), ("x", "b")]), (True, [("b", "x")])])
def test_a_final_decline_ends_the_search_at_a_root(final: bool, tried: list[tuple[str, str]]) -> None:
    seen: list[tuple[str, str]] = []

    def never(match: Match) -> Replacement:
        seen.append((match.p.name, match.q.name))
        raise Decline("not today", final=final)

    rule = make("y = Add(p, q)", "y = p", never, name="r")
    proto = model("g (float[2] x, float[2] b) => (float[2] y) { y = Add(b, x) }")
    (found,) = Pipeline(Rewrite(rule), max_iterations=1).run(proto, registry=Registry()).decisions
    assert (found.reason, seen) == ("not today", tried)


def test_a_near_match_is_recorded_with_its_line() -> None:
    rule = make("a = Exp(x)\nb = Neg(a)\ny = Relu(b)", "y = x", name="r")
    (found,) = Pipeline(Rewrite(rule)).run(model(TEXT), registry=Registry()).decisions
    assert (found.status, found.pattern_line, found.reason) == ("declined", 1, "Abs stands where Exp is wanted")


def test_bodies_and_functions_are_entered() -> None:
    proto = model("""g (bool c, float[2] x) => (float[2] y) {
        y = If(c)<then_branch = t () => (float[2] p) { p = Abs(x) }, else_branch = f () => (float[2] q) { q = Exp(x) }>
    }""")
    result = Pipeline(Rewrite(ABS)).run(proto, registry=Registry())
    assert [(d.status, d.graph) for d in result.decisions] == [("applied", "y/then_branch")]
    assert [n.op_type for n in result.proto.graph.node[0].attribute[0].g.node] == ["Neg", "Max"]


def test_what_a_rewrite_touches_is_visited_again() -> None:
    rule = make("y = Neg(Neg(x))", "y = x", name="r", exactness="exact")
    lines = " ".join(f"t{i + 1} = Neg(t{i})" for i in range(40))
    proto = model(f"g (float[2] t0) => (float[2] y) {{ {lines} y = Relu(t40) }}")
    result = Pipeline(Rewrite(rule), max_iterations=1).run(proto, registry=Registry())
    assert operators(result.proto) == ["Relu"]
    assert len(result.applied) == 20


def test_a_rule_reads_what_the_user_allows() -> None:
    def only_if_allowed(m: Match) -> Replacement:
        if not m.options.allow_lossy_casts:
            raise Decline("it loses values; --allow-lossy-casts permits it")
        return Replacement()

    rule = make("y = Abs(x)", "y = Max(x, Neg(x))", only_if_allowed, name="asks", sets=("one",), exactness="exact")
    assert changed("one", rules=[rule]) == set()
    assert changed("one", rules=[rule], allow_lossy_casts=True) == {"asks"}


def test_what_a_function_reads_is_verified_with_what_computes_it() -> None:
    def read(match: Match) -> Replacement:
        if match.value("t") is None:
            raise Decline("unknown")
        return Replacement()

    rule = make("y = Reshape(x, t)", "y = Flatten(x)", read, name="r", exactness="exact")
    proto = model("""g (float[N,2,3] x) => (float[N,6] y) {
        zero = Constant<value = int64[1] {0}>()
        six = Constant<value = int64[1] {6}>()
        shape = Shape(x)
        batch = Gather(shape, zero)
        t = Concat<axis = 0>(batch, six)
        y = Reshape(x, t)
    }""")
    result = Pipeline(Rewrite(rule)).run(proto, registry=Registry())
    assert [(d.status, d.verdict) for d in result.decisions] == [("applied", "verified")]


def test_a_late_rule_waits_for_the_others() -> None:
    """By itself the late rule takes the Relu at once; the other one sees it first, though its root comes later."""
    late = Rule.from_text("late_relu", "y = Relu(x)", "y = Abs(Abs(x))", exactness="exact", late=True)
    other = Rule.from_text("other", "y = Neg(Relu(x))", "y = Neg(x)", exactness="exact")
    text = "g (float[4] x) => (float[4] y) { a = Relu(x)  y = Neg(a) }"
    result = Pipeline(Rewrite(late, other)).run(model(text), verify="off")
    assert operators(result.proto) == ["Neg"]
    assert operators(Pipeline(Rewrite(late)).run(model(text), verify="off").proto) == ["Abs", "Abs", "Neg"]


def test_a_rule_stands_back_for_one_that_opposes_it() -> None:
    apart = Rule.from_text("apart", "y = Relu(x)", "y = Max(x, 0)", exactness="exact", opposes=("together",))
    together = Rule.from_text("together", "y = Max(x, 0)", "y = Relu(x)", exactness="exact")
    proto = model("g (float[4] x) => (float[4] y) { y = Relu(x) }")
    result = Pipeline(Rewrite(apart, together)).run(proto, verify="off")
    assert result.converged and operators(result.proto) == ["Max"]
    assert result.settings == ["left out as others do the opposite: together"]


def test_a_guard_is_asked_before_the_pattern() -> None:
    called: list[str] = []

    def seen(match: Match) -> Replacement:
        called.append(match.y.name)
        return Replacement()

    lines = "a = Abs(x) b = Neg(a) y = Neg(b)"
    proto = model(f"g (float[2] x) => (float[2] y) {{ {lines} }}")
    rule = Rule.from_text("r", "y = Neg(x)", "y = Sub(0.0, x)", seen, guard=lambda y: y.operand(0).op == "Abs")
    result = Pipeline(Rewrite(rule), max_iterations=1).run(proto, registry=Registry(), verify="off")
    assert called == ["b"] and operators(result.proto) == ["Abs", "Sub", "Neg"]


def test_a_guard_that_fails_is_named() -> None:
    rule = Rule.from_text("r", "y = Abs(x)", "y = x", guard=lambda y: y.nothing)
    with pytest.raises(RuleError, match="r: its guard failed at Abs -> 'a': AttributeError"):
        Pipeline(Rewrite(rule)).run(model(TEXT), registry=Registry())
