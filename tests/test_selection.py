"""``skip``, ``keep`` and ``only``: what stays, stays, whatever would change it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import surgeon_passes as sp
from surgeon_passes import demo
from surgeon_passes.selection import Only
from tests.models import model, operators, run

BLOCKS = """
g (float[1,2,4,4] x) => (float[1,2,4,4] y)
{
    [a.conv] a1 = Conv (x, w)
    [a.norm] a2 = BatchNormalization (a1, s, b, m, v)
    [a.drop] a3 = Identity (a2)
    [b.conv] b1 = Conv (a3, w)
    [b.norm] b2 = BatchNormalization (b1, s, b, m, v)
    [b.drop] b3 = Identity (b2)
    [c.conv] c1 = Conv (b3, w)
    [c.norm] y = BatchNormalization (c1, s, b, m, v)
}"""


def blocks() -> onnx.ModelProto:
    vectors = {name: np.linspace(0.5, 1.5, 2).astype(np.float32) for name in "sbmv"}
    return model(BLOCKS, w=np.arange(4, dtype=np.float32).reshape(2, 2, 1, 1), **vectors)


def optimized(proto: onnx.ModelProto, **options: Any) -> onnx.ModelProto:
    result = sp.optimize(proto, **options)
    assert result.check.status == "equal"
    assert result.checker_error == ""
    assert result.converged
    return result.proto


def by_name(proto: onnx.ModelProto) -> dict[str, onnx.NodeProto]:
    return {n.name: n for n in proto.graph.node}


def names(proto: onnx.ModelProto) -> list[str]:
    return [n.name for n in proto.graph.node]


def assert_untouched(before: onnx.ModelProto, after: onnx.ModelProto, *untouched: str) -> None:
    """Operator, attributes, operands and results of these nodes are what they were."""
    old, new = by_name(before), by_name(after)
    for name in untouched:
        assert new[name] == old[name]


# --- keep ----------------------------------------------------------------------------------------------------------------


def test_without_it_everything_is_merged() -> None:
    after = optimized(blocks())
    assert set(operators(after)) == {"Conv"}
    assert "a.drop" not in names(after)


@pytest.mark.parametrize("pattern", ["b.norm", "b.n*", "b.[m-n]o*"])
def test_a_kept_node_stays_as_it_is(pattern: str) -> None:
    after = optimized(blocks(), keep=[pattern])
    assert_untouched(blocks(), after, "b.norm")
    assert operators(after).count("BatchNormalization") == 1
    assert "a.drop" not in names(after)


def test_operands_of_a_kept_node_keep_their_names() -> None:
    """Dropping the Identity in front of it would give it another operand."""
    after = optimized(blocks(), keep=["b.conv"])
    assert_untouched(blocks(), after, "b.conv", "a.drop")
    (declined,) = (
        d
        for d in sp.optimize(blocks(), keep=["b.conv"]).decisions
        if d.rule == "drop_identity" and d.status == "declined"
    )
    assert declined.reason == "an operand of Conv 'b.conv' would change, and it is kept (b.conv)"


def test_a_kept_tensor_is_made_by_its_node_under_its_name_with_its_value() -> None:
    before, after = blocks(), optimized(blocks(), keep=["b1"])
    assert by_name(after)["b.conv"].output[0] == "b1"
    assert "a.drop" not in names(after), "what its maker reads may change"
    for proto in (before, after):
        proto.graph.output.add().CopyFrom(onnx.helper.make_tensor_value_info("b1", 1, [1, 2, 4, 4]))
    x = np.random.default_rng(0).standard_normal((1, 2, 4, 4)).astype(np.float32)
    np.testing.assert_allclose(run(after, x=x)["b1"], run(before, x=x)["b1"], rtol=1e-5)


def test_a_kept_weight_goes_on_being_read() -> None:
    proto = blocks()
    after = optimized(proto, keep=["w"])
    assert operators(after).count("Conv") == 3
    held = {t.name: t for t in after.graph.initializer}
    assert held["w"].raw_data == next(t for t in proto.graph.initializer if t.name == "w").raw_data
    assert all(n.input[1] == "w" for n in after.graph.node if n.op_type == "Conv")


FOLDS = """
g (float[2] x) => (float[2] y)
{
    [k] k = Constant <value_floats = [1.0, 2.0]> ()
    [twice] t = Add (k, k)
    [add] y = Add (x, t)
    [dead] d = Neg (x)
}"""


@pytest.mark.parametrize("pattern", ["k", "twice", "t", "dead", "d"])
def test_neither_folding_nor_cleaning_up_takes_what_is_kept(pattern: str) -> None:
    before = model(FOLDS)
    after = optimized(before, keep=[pattern])
    name = {"t": "twice", "d": "dead"}.get(pattern, pattern)
    assert_untouched(before, after, name)
    assert [n.op_type for n in optimized(before).graph.node] == ["Add"]


def test_dead_nodes_in_front_of_a_kept_one_stay() -> None:
    text = "g (float[2] x) => (float[2] y) { [a] a = Abs (x) [b] b = Neg (a) y = Relu (x) }"
    assert names(optimized(model(text), keep=["b"])) == ["a", "b", ""]


IF = """
g (float[2] x) => (float[2] y) <bool c = {1}>
{
    [choice] y = If (c) <
        then_branch = t () => (float[2] p) { [inner] p = Relu (x) },
        else_branch = e () => (float[2] q) { [other] q = Neg (x) }
    >
}"""


def test_an_if_that_holds_a_kept_node_is_not_inlined() -> None:
    proto = model(IF)
    assert "If" not in operators(optimized(proto))
    after = optimized(proto, keep=["other"])
    assert operators(after) == ["If"]


def test_a_function_with_a_kept_node_stays() -> None:
    proto = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17, "own" : 1]>
        g (float[2] x) => (float[2] y) { y = Relu (x) }
        <domain: "own", opset_import: ["" : 17]>
        unused (z) => (r) { [inside] r = Neg (z) }
    """)
    assert [f.name for f in optimized(proto).functions] == []
    assert [f.name for f in optimized(proto, keep=["inside"]).functions] == ["unused"]


def test_duplicates_and_sizes_obey() -> None:
    text = "g (float[2] x) => (float[2] y) { [a] a = Abs (x) [b] b = Abs (x) [s] y = Sub (a, b) }"
    assert names(optimized(model(text))).count("b") == 0
    assert_untouched(model(text), optimized(model(text), keep=["b"]), "b")


def test_keeping_everything_changes_nothing() -> None:
    proto = demo.build()
    result = sp.optimize(proto, keep="*")
    assert result.applied == []
    assert list(result.proto.graph.node) == list(proto.graph.node)


@pytest.mark.parametrize("number", range(0, 47, 5))
def test_each_node_of_the_demo_can_be_kept(number: int) -> None:
    proto = demo.build()
    name = proto.graph.node[number].name
    assert_untouched(proto, optimized(proto, keep=[name]), name)


def test_a_group_can_be_kept() -> None:
    before = blocks()
    assert_untouched(before, optimized(before, keep=["group:b"]), "b.conv", "b.norm", "b.drop")


def test_a_graph_of_graphsurgeon_takes_the_switches() -> None:
    import onnx_graphsurgeon as gs

    import surgeon_passes.gs

    graph: Any = gs.import_onnx(blocks())
    assert surgeon_passes.gs.rewrite(graph, keep=["b.norm"], only="b.*").check.status == "equal"
    assert_untouched(blocks(), gs.export_onnx(graph), "a.conv", "a.norm", "b.norm", "c.norm")
    assert "b.drop" in [n.name for n in graph.nodes], "what is read outside keeps its name"


# --- only ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "only",
    ["b.*", "group:b", "from:a3 to:b3", Only(inputs=["a3"], outputs=["b3"]), Only(pattern="b.*")],
)
def test_nothing_outside_is_touched(only: Any) -> None:
    before = blocks()
    after = optimized(before, only=only)
    assert_untouched(before, after, *(n.name for n in before.graph.node if not n.name.startswith("b.")))
    assert operators(after).count("BatchNormalization") == 2
    assert "b.norm" not in names(after)
    assert "b3" in [t for n in after.graph.node for t in n.output], "what is read outside keeps its name"


@pytest.mark.parametrize(("only", "norms"), [("to:b3", 1), ("from:a3", 1), ("from:b3", 2), ("from:x to:y", 0)])
def test_a_half_open_region(only: str, norms: int) -> None:
    assert operators(optimized(blocks(), only=only)).count("BatchNormalization") == norms


def test_constants_that_only_feed_the_region_belong_to_it() -> None:
    text = """g (float[2] x) => (float[2] y) {
        [k] k = Constant <value_floats = [1.0, 2.0]> ()  [t] t = Add (k, k)  [a] a = Add (x, t)  [b] b = Abs (a)
        [l] l = Constant <value_floats = [1.0, 2.0]> ()  [u] u = Add (l, l)  [c] y = Add (b, u)
    }"""
    assert names(optimized(model(text), only="from:x to:b")) == ["a", "b", "l", "u", "c"]


def test_an_empty_difference_is_no_change() -> None:
    before = blocks()
    after = optimized(before, only="a.conv")
    assert list(after.graph.node) == list(before.graph.node)


# --- skip ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("skip", "left"),
    [
        (["fold_batch_norm_into_conv"], ["BatchNormalization"] * 3),
        ("rewrite", ["BatchNormalization"] * 3),
        (["fusion"], ["BatchNormalization"] * 3),
    ],
)
def test_rules_sets_and_passes_can_be_left_out(skip: Any, left: list[str]) -> None:
    after = optimized(blocks(), skip=skip)
    assert [op for op in operators(after) if op == "BatchNormalization"] == left


@pytest.mark.parametrize("skip", ["fold", "fold_constants"])
def test_folding_can_be_left_out(skip: str) -> None:
    after = optimized(model(FOLDS), skip=[skip])
    assert operators(after) == ["Add", "Add"]
    assert [n.op_type for n in after.graph.node].count("Constant") == (skip == "fold")


def test_lifting_alone_can_be_left_out_and_the_run_converges() -> None:
    proto = model("g (float[2] x) => (float[2] y) { k = Constant <value_floats = [1.0, 2.0]> () y = Add (x, k) }")
    after = optimized(proto, skip=["lift_constant_nodes"])
    assert [n.op_type for n in after.graph.node] == ["Constant", "Add"]


def test_cleaning_up_and_duplicates_can_be_left_out() -> None:
    text = "g (float[2] x) => (float[2] y) { a = Abs (x) b = Abs (x) y = Sub (a, b) }"
    assert len(optimized(model(text), skip=["duplicates"]).graph.node) == 3
    assert len(optimized(model(text), skip=["merge_duplicate_nodes"]).graph.node) == 3
    dead = "g (float[2] x) => (float[2] y) { a = Abs (x) y = Neg (x) }"
    assert len(optimized(model(dead), skip=[*(["fold", "rewrite", "sizes", "duplicates", "cleanup"])]).graph.node) == 2


# --- errors --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": ["b.nrom"]}, r"keep 'b.nrom' matches no node and no tensor \(did you mean 'b.norm'\?\)"),
        ({"keep": ["zzz*"]}, r"keep 'zzz\*' matches no node and no tensor$"),
        ({"keep": "group:q"}, "the model has no group 'q'"),
        ({"only": "group:bb"}, "the model has no group 'bb'"),
        ({"only": "zzz*"}, r"only 'zzz\*' matches no node$"),
        ({"only": ""}, "only is empty"),
        ({"only": "  "}, "only is empty"),
        ({"only": "from:a4 to:b3"}, "only: the main graph has no tensor 'a4'"),
        ({"only": "from:b3 to:a3"}, "'a3' does not depend on b3"),
        ({"only": "from:x,y to:b3"}, "'y' does not lead to b3"),
        ({"only": Only()}, "give one of the two"),
        ({"only": Only(inputs=["x"], pattern="a*")}, "give one of the two"),
        ({"skip": ["fodl"]}, r"no rule or set of rules is called 'fodl', nor a pass \(did you mean 'fold'\?\)"),
        ({"skip": "drop_identty"}, r"\(did you mean 'drop_identity'\?\)"),
    ],
)
def test_what_matches_nothing_is_an_error(options: Any, message: str) -> None:
    with pytest.raises(sp.UsageError, match=message):
        sp.optimize(blocks(), **options)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from:a,b to:c", Only(("a", "b"), ("c",))),
        ("to:c", Only((), ("c",))),
        ("from:/m/x:0", Only(("/m/x:0",))),
        ("group:/m/layer.0", Only(pattern="group:/m/layer.0")),
        ("fromage", Only(pattern="fromage")),
    ],
)
def test_the_text_of_only(text: str, expected: Only) -> None:
    assert Only.parse(text) == expected
    assert Only.parse(str(expected)) == expected
