"""What a whole run promises: its source, its face, its record, and the end check's way out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from onnx import TensorProto

import surgeon_passes as sp
from surgeon_passes import Cleanup, Decision, Fold, Pipeline, Rewrite, Specialize, Verify
from surgeon_passes.passes import Pass
from surgeon_passes.passes.state import InvariantError, State
from surgeon_passes.region import Region, Verdict
from surgeon_passes.rules.registry import Registry
from surgeon_passes.verify import segments
from tests.models import floats, model, operators, run, same
from tests.rules.ground import make

DROP = make("y = Identity(x)", "y = x", name="drop", exactness="exact")
PAIR = make("y = Neg(Neg(x))", "y = x", name="pair", exactness="exact")
WRONG = make("y = Abs(x)", "y = Neg(x)", name="wrong", exactness="exact")
BLOCK = """g (float[1,2,H,W] x) => (float[1,2,H,W] y) {
    c = Conv<pads = [1, 1, 1, 1]>(x, w) b = BatchNormalization(c, s, s, s, v) i = Identity(b) y = Relu(i)
}"""


def block() -> onnx.ModelProto:
    positive = np.float32([0.5, 2])
    return model(BLOCK, w=floats(2, 2, 3, 3), s=positive, v=positive)


def test_a_proto_is_left_as_it_was() -> None:
    proto = block()
    before = proto.SerializeToString(deterministic=True)
    result = sp.optimize(proto, {"x": [1, 2, 5, 5]})
    assert operators(result.proto) == ["Conv", "Relu"]
    assert proto.SerializeToString(deterministic=True) == before


def test_a_graph_gets_the_result() -> None:
    graph = gs.import_onnx(block())
    result = sp.optimize(graph)
    assert [n.op for n in graph.nodes] == ["Conv", "Relu"]
    x = floats(1, 2, 4, 4)
    np.testing.assert_allclose(run(gs.export_onnx(graph), x=x)["y"], run(result.proto, x=x)["y"])


def test_a_second_run_changes_nothing() -> None:
    first = sp.optimize(block()).proto
    again = sp.optimize(first)
    assert not again.applied
    assert again.proto.SerializeToString(deterministic=True) == first.SerializeToString(deterministic=True)


def test_a_result_is_saved_and_read_again(tmp_path: Path) -> None:
    result = sp.optimize(block())
    result.save(tmp_path / "out.onnx")
    assert onnx.load(tmp_path / "out.onnx") == result.proto
    assert [p.name for p in tmp_path.iterdir()] == ["out.onnx"]


def test_external_data_stays_external(tmp_path: Path) -> None:
    text = "g (float[N,64] x) => (float[N,64] y) { a = MatMul(x, w) i = Identity(a) y = Relu(i) }"
    proto = model(text, w=floats(64, 64))
    source, target = tmp_path / "in.onnx", tmp_path / "other" / "out.onnx"
    target.parent.mkdir()
    copy = onnx.ModelProto.FromString(proto.SerializeToString())
    onnx.save(copy, source, save_as_external_data=True, location="in.bin", size_threshold=0)
    result = sp.optimize(source)
    assert result.external and result.check.status == "equal"
    result.save(target)
    assert sorted(p.name for p in target.parent.iterdir()) == ["out.onnx", "out.onnx.data"]
    found = onnx.load(target)
    assert operators(found) == ["MatMul", "Relu"]
    x = floats(3, 64)
    same(run(proto, x=x), run(found, x=x))
    result.save(source)  # over its own source, whose data it still reads
    same(run(proto, x=x), run(onnx.load(source), x=x))


def test_a_pass_may_not_change_the_interface() -> None:
    class Renames(Pass):
        name = "renames"

        def run(self, state: State) -> bool:
            state.graph.outputs[0].name = "z"
            return True

    with pytest.raises(InvariantError, match="pass renames changed the model's interface"):
        Pipeline(Renames()).run(block(), registry=Registry())


def test_observers_get_each_decision_once() -> None:
    seen: list[Decision] = []
    result = sp.optimize(block(), observers=[seen.append])
    assert seen == result.decisions
    assert {d.rule for d in seen if d.status == "applied"} >= {"drop_identity"}


def test_iterations_are_bounded() -> None:
    flip = make("y = Abs(x)", "y = Max(x, Neg(x))", name="flip", exactness="exact")
    flop = make("y = Max(x, Neg(x))", "y = Abs(x)", name="flop", exactness="exact")
    text = "g (float[2] x) => (float[2] y) { y = Abs(x) }"
    result = Pipeline(Rewrite(flip), Rewrite(flop), max_iterations=3).run(model(text), registry=Registry())
    assert (result.iterations, result.converged) == (3, False)
    assert Pipeline(Rewrite(DROP)).run(model(text), registry=Registry()).converged


def test_a_rule_is_not_applied_to_its_own_output_in_a_later_round() -> None:
    double = make("y = Relu(x)", "y = Relu(Relu(x))", name="double", exactness="exact")
    result = Pipeline(Rewrite(double)).run(model("g (float[2] x) => (float[2] y) { y = Relu(x) }"), registry=Registry())
    assert result.converged and result.after.nodes == 2


def test_progress_is_told() -> None:
    told: list[str] = []
    sp.optimize(block(), progress=lambda what, done, total: told.append(what))
    assert {"fold", "rewrite", "cleanup", "end check"} <= set(told)


def test_exit_codes() -> None:
    static, dynamic = {"x": [1, 2, 5, 5]}, None
    assert sp.optimize(block(), static).exit_code == 0
    assert sp.optimize(block(), dynamic).exit_code == 0
    text = "g (float[N] x) => (int64[A,B] y) { y = NonZero(x) }"
    result = sp.optimize(model(text), {"x": [4]})
    assert result.exit_code == 3 and not result.is_static and result.dynamic_items == ["y"]


# --- the end check -------------------------------------------------------------------------------------------------------


@pytest.fixture
def gullible(monkeypatch: pytest.MonkeyPatch) -> None:
    """A region checker that believes everything."""

    def check(regions: Sequence[Region], *_: Any, **__: Any) -> list[Verdict]:
        return [Verdict("verified") for _ in regions]

    monkeypatch.setattr("surgeon_passes.verify.check", check)


CHAIN = "g (float[3] x) => (float[3] y) {{ {} y = Sigmoid(t{}) }}"


def chain(*ops: str) -> onnx.ModelProto:
    lines = " ".join(f"t{i + 1} = {op}(t{i})" for i, op in enumerate(ops)).replace("t0", "x")
    return model(CHAIN.format(lines, len(ops)))


@pytest.mark.usefixtures("gullible")
def test_the_end_check_finds_the_guilty_rewrite() -> None:
    proto = chain("Identity", "Neg", "Neg", "Identity", "Abs", "Identity", "Neg", "Neg", "Identity")
    result = Pipeline(Rewrite(DROP, PAIR, WRONG), Cleanup()).run(proto, registry=Registry())
    assert [(d.rule, d.root, d.status, d.verdict) for d in result.undone] == [
        ("wrong", "Abs -> 't5'", "undone", "refuted")
    ]
    assert result.undone[0].reason.startswith("the end check failed with it: error")
    assert operators(result.proto) == ["Abs", "Sigmoid"]
    assert result.check.status == "equal" and result.exit_code == 7
    x = floats(3)
    same(run(proto, x=x), run(result.proto, x=x))


@pytest.mark.parametrize("shapes", [None, {"x": [1, 2, 5, 5]}, {"x": {"H": 6}}])
def test_original_and_result_are_each_loaded_once(shapes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[list[tuple[int, ...]]] = []

    class Counted(segments.Session):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.fed: list[tuple[int, ...]] = []
            runs.append(self.fed)

        def run(self, feeds: Any, outputs: Any = None) -> Any:
            self.fed.append(np.shape(feeds["x"]))
            return super().run(feeds, outputs)

    monkeypatch.setattr(segments, "Session", Counted)
    result = sp.optimize(block(), shapes)
    assert result.check.status == "equal"
    assert len(runs) == 2 and runs[0] == runs[1]
    assert len(runs[0]) == (1 if shapes == {"x": [1, 2, 5, 5]} else 2)
    assert all(shape[2] == 6 for shape in runs[0]) or shapes != {"x": {"H": 6}}


@pytest.mark.usefixtures("gullible")
def test_the_end_check_finds_several() -> None:
    proto = chain("Abs", "Identity", "Exp", "Abs", "Neg", "Abs")
    result = Pipeline(Rewrite(DROP, PAIR, WRONG), Cleanup()).run(proto, registry=Registry())
    assert {d.root for d in result.undone} <= {"Abs -> 't1'", "Abs -> 't4'", "Abs -> 't6'"}
    assert result.check.status == "equal" and result.exit_code == 7
    x = floats(3)
    np.testing.assert_allclose(run(proto, x=x)["y"], run(result.proto, x=x)["y"], rtol=1e-4)


@pytest.mark.usefixtures("gullible")
def test_the_guilty_one_is_found_among_groups() -> None:
    """The edit that was made last is not the one that was accepted last: groups are accepted one after the other."""
    text = """g (float[3] x) => (float[3] y, float[3] z) {
        a = Identity(x) p = Identity(x) q = Neg(p) r = Neg(q) b = Abs(a) y = Sigmoid(b) z = Sigmoid(r)
    }"""
    proto = model(text)
    result = Pipeline(Rewrite(DROP, PAIR, WRONG), Cleanup()).run(proto, registry=Registry())
    assert [d.root for d in result.undone] == ["Abs -> 'b'"]
    assert sorted(operators(result.proto)) == ["Abs", "Sigmoid", "Sigmoid"]


@pytest.mark.usefixtures("gullible")
def test_a_graph_is_not_given_a_wrong_result() -> None:
    proto = chain("Abs", "Identity")
    graph = gs.import_onnx(proto)
    Pipeline(Rewrite(DROP, WRONG), Cleanup()).run(graph, registry=Registry())
    assert [n.op for n in graph.nodes] == ["Abs", "Sigmoid"]


def test_a_graph_is_not_given_what_is_not_valid() -> None:
    proto = model("g (float[2] x) => (float[2] y) { a = Identity(x) b = un.known.Op(a) y = Relu(b) }")
    graph = gs.import_onnx(proto)  # its domain is not imported
    assert sp.optimize(graph).exit_code == 4
    assert [n.op for n in graph.nodes] == ["Identity", "Op", "Relu"]


@pytest.mark.usefixtures("gullible")
def test_without_the_end_check_nobody_notices() -> None:
    result = Pipeline(Rewrite(WRONG)).run(chain("Abs"), verify=Verify(end_check=False), registry=Registry())
    assert operators(result.proto) == ["Neg", "Sigmoid"] and result.check is None


# --- specialised ---------------------------------------------------------------------------------------------------------


def test_the_default_order_folds_what_sizes_make_known() -> None:
    text = """g (float[N,C,H,W] x) => (float[A,B] y) {
        s = Shape<start = 0, end = 2>(x) m = Constant<value = int64[1] {-1}>() z = Constant<value = int64[1] {0}>()
        e = Gather<axis = 0>(s, z) t = Concat<axis = 0>(e, m) y = Reshape(x, t)
    }"""
    result = Pipeline(Specialize({"x": [2, 3, 4, 5]}), Fold(), Cleanup()).run(model(text), registry=Registry())
    assert operators(result.proto) == ["Reshape"] and result.is_static
    shape = result.proto.graph.output[0].type.tensor_type
    assert [d.dim_value for d in shape.shape.dim] == [2, 60] and shape.elem_type == TensorProto.FLOAT


def test_own_rules_come_besides_the_installed_ones() -> None:
    text = "g (float[2] x) => (float[2] y) { a = Identity(x) b = Abs(a) y = Neg(b) }"
    own = make("y = Neg(Abs(x))", "y = Min(x, Neg(x))", name="own")
    assert sorted(n.op_type for n in sp.optimize(model(text), rules=[own]).proto.graph.node) == ["Min", "Neg"]
    alone = Pipeline(Rewrite(own)).run(model(text)).proto
    assert sorted(n.op_type for n in alone.graph.node) == ["Identity", "Min", "Neg"]


def test_what_is_no_rule_is_refused() -> None:
    with pytest.raises(sp.UsageError, match="'nonsense' is no rule"):
        sp.optimize(block(), rules=["nonsense"])  # type: ignore[list-item]


def test_a_rule_that_spoils_one_row_of_a_table_is_refuted() -> None:
    def spoil(m: sp.Match) -> sp.Replacement:
        table = np.array(m.table)
        table[10] = -table[10]
        return sp.Replacement(Table=table)

    rule = sp.Rule.from_text("spoil", "y = Gather(table: const, ids)", "y = Gather(Table, ids)", spoil)
    text = "g (int64[N,8] ids) => (float[N,8,3] y) { y = Gather(table, ids) }"
    table = np.random.default_rng(0).standard_normal((40, 3)).astype(np.float32)
    result = Pipeline(Rewrite(rule)).run(model(text, table=table), verify=Verify(end_check=False), registry=Registry())
    assert [d.status for d in result.decisions] == ["undone"] and result.exit_code == 7


def test_an_input_that_is_an_output_keeps_both_declarations() -> None:
    proto = model("g (float[2] x) => (float[M] y) { y = Relu(x) }")
    proto.graph.output.append(onnx.helper.make_tensor_value_info("x", TensorProto.FLOAT, ["K"]))
    out = sp.optimize(proto).proto.graph.output
    assert [(o.name, o.type.tensor_type.shape.dim[0].dim_param) for o in out][1] == ("x", "K")


def _add_empty_if(proto: onnx.ModelProto) -> None:
    """An If of a constant condition, without branches."""
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), "c"))
    proto.graph.node.add(op_type="If", input=["c"], output=["q"])
    proto.graph.output.append(onnx.helper.make_tensor_value_info("q", TensorProto.FLOAT, [2]))


@pytest.mark.parametrize(
    ("break_it", "reason"),
    [
        (lambda m: m.graph.initializer[0].dims.append(3), "do not fit its"),
        (lambda m: m.graph.initializer[0].dims.__setitem__(0, -2), "has a dim of -2"),
        (lambda m: setattr(m.graph.initializer[0], "data_type", 99), "99 is no element type"),
        (_add_empty_if, "not a valid model: .*_branch' is missing"),
    ],
)
def test_a_broken_model_gets_one_line(break_it: Any, reason: str) -> None:
    proto = model("g (float[2] x) => (float[2] y) { a = Softmax(x) y = Add(a, w) }", w=np.float32([1, 2]))
    break_it(proto)
    with pytest.raises(sp.ModelError, match=reason) as caught:
        sp.optimize(proto)
    assert "\n" not in str(caught.value)


def test_passes_are_put_in_by_name() -> None:
    base = Pipeline(Fold(), Rewrite(), Cleanup(), max_iterations=4)
    assert base.before("rewrite", sp.Sizes(), sp.Constants()) == Pipeline(
        Fold(), sp.Sizes(), sp.Constants(), Rewrite(), Cleanup(), max_iterations=4
    )
    assert base.after("cleanup", sp.Constants()).passes == (*base.passes, sp.Constants())
    assert base.instead("fold", Fold(max_bytes=0)).passes == (Fold(max_bytes=0), *base.passes[1:])
    assert base.instead("rewrite").passes == (Fold(), Cleanup())
    assert base == Pipeline(Fold(), Rewrite(), Cleanup(), max_iterations=4)
    with pytest.raises(sp.UsageError, match=r"pipeline \(fold, rewrite, cleanup\): no pass of it is \(did you mean"):
        base.before("rewrte", Fold())
    with pytest.raises(sp.UsageError, match="2 passes are called 'fold'"):
        base.after("rewrite", Fold()).instead("fold")


def test_a_pass_of_ones_own_is_run_where_it_was_put() -> None:
    class Mark(Pass):
        name = "mark"

        def run(self, state: State) -> bool:
            seen.append([n.op for n in state.index.nodes()])
            return False

    seen: list[list[str]] = []
    pipeline = Pipeline(Rewrite(), Cleanup()).before("rewrite", Mark()).after("rewrite", Mark())
    pipeline.run(block())
    assert seen[0] == ["Conv", "BatchNormalization", "Identity", "Relu"]
    assert seen[1] == ["Conv", "Relu"]


@pytest.mark.usefixtures("gullible")
def test_observers_hear_what_the_end_check_finds() -> None:
    heard: list[tuple[str, str]] = []
    Pipeline(Rewrite(DROP, WRONG)).run(
        chain("Identity", "Abs"), observers=[lambda d: heard.append((d.rule, d.status))], registry=Registry()
    )
    assert heard == [("drop", "applied"), ("wrong", "applied"), ("wrong", "undone")]


def test_what_a_rule_meets_in_an_invalid_model_is_the_models_fault() -> None:
    """Not the rule's: its function fails over a perm that is no list."""
    model = block()
    model.graph.node.append(onnx.helper.make_node("Transpose", ["y"], ["z"], perm=1))
    model.graph.node.append(onnx.helper.make_node("Transpose", ["z"], ["u"], perm=1))
    model.graph.output[0].name = "u"
    with pytest.raises(sp.ModelError, match=r"^the model: not a valid model: "):
        sp.optimize(model)


def test_a_graph_of_graphsurgeon_is_the_results_graph_then() -> None:
    graph = gs.import_onnx(block())
    result = sp.optimize(graph)
    assert result.graph is graph and result.exit_code == 0 and result.checker_error == ""
