"""The model after each pass: what is measured, and what is undone for a metric."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import surgeon_passes as sp
from surgeon_passes import demo
from surgeon_passes.passes import Cleanup, Fold, Rewrite
from tests.cli.conftest import Call, assert_refused
from tests.cli.conftest import call as call  # noqa: PLC0414
from tests.models import floats, model, run, same

NETWORK = model(
    """g (float[N,4] x) => (float[N,4] y) {
        i = Identity(x) a = Mul(i, two) b = Mul(a, two) r = Relu(b) d = Dropout(r)
        s = Shape(x) f = Reshape(d, s) y = Add(f, one)
    }""",
    two=np.float32(2), one=np.float32(1),
)  # fmt: skip


def count_of(*operators: str) -> Any:
    """A metric: how many nodes of these operators a model has."""
    return lambda proto: float(sum(n.op_type in operators for n in proto.graph.node))


def test_each_pass_that_changes_anything_is_a_stage() -> None:
    passes = (Fold(), Rewrite("fusion"), Rewrite("cleanup", "shape"), Cleanup())
    result = sp.Pipeline(*passes).run(demo.build(), stages=True)
    assert [s.title for s in result.stages] == ["original", "rewrite{fusion}", "rewrite{cleanup+shape}"]
    assert next(s.nodes for s in result.stages) == result.before.nodes
    assert [s.nodes for s in result.stages] == sorted((s.nodes for s in result.stages), reverse=True)
    first, last = result.stages[0], result.stages[-1]
    assert (first.bytes, last.bytes, last.nodes) == (result.before.bytes, result.after.bytes, result.after.nodes)
    assert last.parameters < first.parameters and last.macs is not None
    assert first.drift is None and all(s.drift is not None and s.drift < 1e-4 for s in result.stages[1:])
    assert all(s.latency is not None and s.latency > 0 for s in result.stages)


def test_stages_change_nothing_of_the_result() -> None:
    source = demo.build()
    plain, staged = sp.optimize(source), sp.optimize(source, stages=sp.Stages(latency=False))
    assert staged.proto.SerializeToString(deterministic=True) == plain.proto.SerializeToString(deterministic=True)
    assert {s.latency for s in staged.stages} == {None}


def test_the_drift_of_a_wrong_rewrite_is_named() -> None:
    """Unchecked, 2x becomes 2.1x: what reads it differs by a twentieth."""
    wrong = sp.Rule.from_text("wrong", "y = Mul(x, 2)", "y = Mul(x, 2.1)")
    result = sp.Pipeline(Rewrite("shape"), Rewrite.of(sets=(wrong,))).run(NETWORK, verify="off", stages=True)
    assert result.stages[-1].drift == pytest.approx(0.1025, rel=1e-3)  # 1.05 twice
    assert result.stages[-1].drift_at == "b"


def test_the_metric_is_taken_of_whole_models_once_each() -> None:
    seen: list[onnx.ModelProto] = []

    def metric(proto: onnx.ModelProto) -> float:
        onnx.checker.check_model(proto)
        seen.append(onnx.ModelProto.FromString(proto.SerializeToString()))
        x = floats(2, 4)
        same(run(proto, x=x), run(NETWORK, x=x))
        del proto.graph.node[:]  # what it does to its copy is its own affair
        return float(len(seen))

    result = sp.optimize(NETWORK, stages=sp.Stages(metric))
    assert [s.metric for s in result.stages] == [float(k + 1) for k in range(len(result.stages))]
    assert result.check.status == "equal"


def test_the_rule_that_costs_too_much_is_left_out_and_named() -> None:
    """Two Muls by constants are merged into one: one is too little for this metric."""
    free = sp.optimize(NETWORK)
    assert count_of("Mul")(free.proto) == 1
    result = sp.optimize(NETWORK, stages=sp.Stages(count_of("Mul"), max_drop=0.5))
    assert count_of("Mul")(result.proto) == 2
    (undone,) = (s for s in result.stages if s.undone)
    assert undone.guilty == ("merge_constant_pair",) and undone.name == "rewrite"
    assert undone.undone == "the metric fell from 2 to 1; 0.5 less is allowed"
    assert [(d.rule, d.status) for d in result.decided if "metric" in d.reason] == [("merge_constant_pair", "undone")]
    assert result.exit_code == 0 and result.after.nodes < result.before.nodes
    assert "left out: merge_constant_pair of rewrite: the metric fell from 2 to 1" in result.report()
    allowed = sp.optimize(NETWORK, stages=sp.Stages(count_of("Mul"), max_drop=1.0))
    assert allowed.proto == free.proto and not any(s.undone for s in allowed.stages)


def test_a_pass_whose_edits_cost_only_together_is_left_out_whole() -> None:
    """Either of Identity and Dropout is enough for the metric."""

    def metric(proto: onnx.ModelProto) -> float:
        return float(any(n.op_type in ("Identity", "Dropout") for n in proto.graph.node))

    result = sp.optimize(NETWORK, stages=sp.Stages(metric, max_drop=0))
    assert metric(result.proto) == 1
    guilty = [name for s in result.stages if s.undone for name in s.guilty]
    assert guilty and set(guilty) <= {"drop_identity", "drop_dropout", "rewrite"}


@pytest.mark.parametrize(
    ("metric", "says"),
    [
        (lambda proto: 1 / 0, "evaluate failed: ZeroDivisionError"),
        (lambda proto: "good", "evaluate gave 'good'; it must give one finite number"),
        (lambda proto: float("nan"), "evaluate gave nan"),
    ],
)
def test_a_metric_that_fails_is_told(metric: Any, says: str) -> None:
    with pytest.raises(sp.UsageError, match=says):
        sp.optimize(NETWORK, stages=sp.Stages(metric))


def test_a_drop_wants_a_metric() -> None:
    with pytest.raises(sp.UsageError, match="give evaluate"):
        sp.Stages(max_drop=0.1)
    with pytest.raises(sp.UsageError, match="max_drop is -1"):
        sp.Stages(count_of("Mul"), max_drop=-1)


def test_a_path_and_a_graph_are_run_anew_from_what_they_were(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(NETWORK, path)
    options = sp.Stages(count_of("Mul"), max_drop=0.5)
    import onnx_graphsurgeon as gs

    graph = gs.import_onnx(NETWORK)
    for source in (str(path), graph):
        result = sp.optimize(source, stages=options)
        assert count_of("Mul")(result.proto) == 2 and result.check.status == "equal"
    assert sorted(n.op for n in graph.nodes).count("Mul") == 2


def test_the_command_line(call: Call) -> None:
    onnx.save(NETWORK, "m.onnx")
    Path("stage_metrics.py").write_text("def muls(m):\n    return sum(n.op_type == 'Mul' for n in m.graph.node)\n")
    outcome = call("optimize", "m.onnx", "--stages", "-o", "free.onnx")
    assert outcome.code == 0 and "stage     nodes  bytes" in outcome.out
    outcome = call("optimize", "m.onnx", "--evaluate", "stage_metrics:muls", "--max-drop", "0.5", "-o", "kept.onnx")
    assert outcome.code == 0 and "left out: merge_constant_pair of rewrite" in outcome.out
    assert [count_of("Mul")(onnx.load(n)) for n in ("free.onnx", "kept.onnx")] == [1, 2]
    for name, says in (
        ("stage_metrics", "write module:function"),
        ("nothing:f", "there is no module nothing"),
        ("stage_metrics:f", "stage_metrics has no function f"),
    ):
        assert_refused(call, 2, "optimize", "m.onnx", "--evaluate", name, says=says)
    assert_refused(call, 2, "optimize", "m.onnx", "--max-drop", "0.1", says="give evaluate")
