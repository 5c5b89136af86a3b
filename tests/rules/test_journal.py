"""Edits are taken back exactly, and what depends on each other is one group."""

from __future__ import annotations

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st

from surgeon_passes.rules.journal import connected, region_of
from surgeon_passes.rules.match import Match
from surgeon_passes.rules.matcher import Matcher
from surgeon_passes.rules.rule import Decline, Replacement, Rule
from tests.models import floats, model, operators, run, same
from tests.rules.ground import Ground, make


def zeros(match: Match) -> Replacement:
    return Replacement(Z=np.zeros(2, np.float32))


DROP_IDENTITY = make("y = Identity(x)", "y = x", name="drop_identity")
ZERO = make("y = Sub(a, a)", "y = Identity(Z)", zeros, name="zero")
TWICE = make("y = Neg(Neg(x))", "y = x", name="twice")
ABS = make("y = Abs(x)", "y = Max(x, Neg(x))", name="spell_abs")
ADD_ALIKE = make("y = Add(a, a)", "y = Mul(a, 2)", name="add_alike")
RULES = (DROP_IDENTITY, ZERO, TWICE, ABS, ADD_ALIKE)


def test_undo_brings_the_same_bytes_back() -> None:
    ground = Ground(model("g (float[2] x) => (float[2] y) { a = Neg(x) b = Neg(a) y = Relu(b) }"))
    before = ground.bytes()
    edit = ground.apply(TWICE, "b")
    assert operators(ground.export()) == ["Relu"]
    ground.rewriter.journal.undo(edit)
    assert ground.bytes() == before


def test_redo_brings_the_same_result() -> None:
    ground = Ground(model("g (float[2] x) => (float[2] y) { a = Abs(x) y = Relu(a) }"))
    edit = ground.apply(ABS, "a")
    after = ground.bytes()
    ground.rewriter.journal.undo(edit)
    assert ground.rewriter.journal.can_redo(edit)
    ground.rewriter.journal.apply(edit)
    assert ground.bytes() == after


def test_cannot_redo_what_builds_on_an_undone_edit() -> None:
    ground = Ground(model("g (float[2] x) => (float[2] y) { a = Abs(x) y = Relu(a) }"))
    first = ground.apply(ABS, "a")
    second = ground.apply(make("y = Max(a, b)", "y = Sub(a, Neg(b))"), "a")
    assert connected([first, second]) == [[first, second]]
    ground.rewriter.journal.undo(second)
    ground.rewriter.journal.undo(first)
    assert not ground.rewriter.journal.can_redo(second)
    assert ground.rewriter.journal.can_redo(first)


def test_an_edit_that_moves_readers_is_one_group_with_one_that_took_a_reader_out() -> None:
    ground = Ground(model("g (float[2] x) => (float[2] y, float[2] z) { t = Identity(x) y = Sub(t, t) z = Relu(t) }"))
    reader, mover = ground.apply(ZERO), ground.apply(DROP_IDENTITY, "t")
    assert len(connected([reader, mover])) == 1
    for edit in (mover, reader):
        ground.rewriter.journal.undo(edit)
    assert not ground.rewriter.journal.can_redo(mover)  # y reads t again, which it would not move
    assert operators(ground.export()) == ["Identity", "Sub", "Relu"]


def test_edits_that_share_only_an_operand_are_groups_of_their_own() -> None:
    ground = Ground(model("g (float[2] x) => (float[2] y, float[2] z) { y = Abs(x) z = Abs(x) }"))
    edits = [ground.apply(ABS, "y"), ground.apply(ABS, "z")]
    assert connected(edits) == [[edits[0]], [edits[1]]]


def test_region_of_a_chain_of_edits_spans_from_the_first_to_the_last_state() -> None:
    ground = Ground(model("g (float[2] x) => (float[2] y) { a = Abs(x) b = Identity(a) y = Relu(b) }"))
    edits = [ground.apply(ABS, "a"), ground.apply(DROP_IDENTITY, "b")]
    region = region_of(edits)
    assert sorted(i.node.op for i in region.before) == ["Abs", "Identity"]
    assert sorted(i.node.op for i in region.after) == ["Max", "Neg"]
    assert [(b.name, a.name) for b, a in region.outputs] == [("a", "a"), ("b", "a")]
    assert region.rules == ("spell_abs", "drop_identity")


def test_what_comes_from_outside_has_one_name_on_both_sides_of_a_region() -> None:
    """y takes the place of a, then a new node reads y: in the region both are a, which comes from outside."""
    ground = Ground(model("g (float[2] x) => (float[2] y, float[2] z) { a = Relu(x) y = Identity(a) z = Abs(a) }"))
    edits = [ground.apply(DROP_IDENTITY, "y"), ground.apply(ABS, "z")]
    region = region_of(edits)
    assert {t.name for i in region.before for t in i.inputs} == {"a"}
    assert {t.name for i in region.after for t in i.inputs} - {t.name for i in region.after for t in i.outputs} == {"a"}
    assert [(b.name, a.name) for b, a in region.outputs] == [("y", "a"), ("z", "z")]


# --- random sequences ----------------------------------------------------------------------------------------------------

OPS = ("Identity", "Neg", "Abs", "Relu")


@st.composite
def graphs(draw: st.DrawFn) -> onnx.ModelProto:
    names = ["x"]
    lines = []
    for number in range(draw(st.integers(2, 10))):
        name = f"t{number}"
        first = draw(st.sampled_from(names[-3:]))
        if draw(st.booleans()):
            lines.append(f"{name} = {draw(st.sampled_from(OPS))}({first})")
        else:
            lines.append(
                f"{name} = {draw(st.sampled_from(('Add', 'Sub')))}({first}, {draw(st.sampled_from(names[-2:]))})"
            )
        names.append(name)
    outputs = draw(st.lists(st.sampled_from(names[1:]), min_size=1, max_size=3, unique=True))
    declared = ", ".join(f"float[2] {name}" for name in (*outputs, *([names[-1]] if names[-1] not in outputs else [])))
    return model(f"g (float[2] x) => ({declared}) {{ {' '.join(lines)} }}")


def apply_somewhere(ground: Ground, rule: Rule, number: int) -> object:
    nodes = ground.index.nodes()
    for offset in range(len(nodes)):
        node = nodes[(number + offset) % len(nodes)]
        for match in Matcher(rule.pattern, ground.state.context).matches(node):
            try:
                return ground.rewriter.rewrite(rule, match)
            except Decline:
                continue
    return None


@settings(max_examples=120, deadline=None)
@given(graphs(), st.lists(st.tuples(st.sampled_from(RULES), st.integers(0, 9)), max_size=8))
def test_random_edits_are_sound_and_undone_to_the_byte(proto: onnx.ModelProto, choices: list[tuple[Rule, int]]) -> None:
    ground = Ground(proto)
    states, edits = [ground.bytes()], []
    for rule, number in choices:
        edit = apply_somewhere(ground, rule, number)
        if edit is not None:
            edits.append(edit)
            states.append(ground.bytes())
    x = floats(2)
    ground.index.sync()
    same(run(proto, x=x), run(onnx.ModelProto.FromString(states[-1]), x=x))
    for edit in reversed(edits):
        assert ground.bytes() == states.pop()
        ground.rewriter.journal.undo(edit)
    assert ground.bytes() == states.pop()
