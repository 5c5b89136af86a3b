"""Rules without which the result is faster are undone; times are made up here, not measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import surgeon_passes as sp
from surgeon_passes import demo
from surgeon_passes.timing import faster


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """What one run takes without a rule, "" with all; the models are run once."""
    found: dict[str, float] = {"": 1.0}
    asked: list[set[str]] = []

    def interleaved(make: Any, seconds: float, blocks: int) -> Mapping[str, Any]:
        runs = make()
        asked.append(set(runs))
        for go in runs.values():
            go()
        noise = (1.0, 1.01, 0.99, 1.0)
        return {name: [[found.get(name, 1.0) * n for n in noise]] * blocks for name in runs}

    monkeypatch.setattr(faster, "interleaved", interleaved)
    return found


def test_a_rule_that_costs_time_is_undone_and_named(seconds: dict[str, float]) -> None:
    seconds["merge_parallel_branches"] = 0.8
    result = sp.optimize(demo.build(), keep_if_faster=True)
    assert "merge_parallel_branches" not in {d.rule for d in result.applied}
    assert result.check.status == "equal" and result.exit_code == 0
    undone = [d for d in result.decided if d.status == "undone"]
    assert [d.rule for d in undone] == ["merge_parallel_branches"]
    assert undone[0].reason.startswith("without its 5 rewrites the model takes 0.80 [")
    assert "merge_parallel_branches" in result.report()


def test_the_costliest_goes_first_and_the_others_are_measured_again(seconds: dict[str, float]) -> None:
    seconds.update(fold_batch_norm_into_conv=0.7, drop_identity=0.9)
    result = sp.optimize(demo.build(), keep_if_faster=True)
    undone = [d.rule for d in result.decided if d.status == "undone"]
    assert undone == ["fold_batch_norm_into_conv", "drop_identity"]
    assert {"BatchNormalization", "Identity"} <= result.after.operators.keys()


def test_stages_and_what_was_undone_for_a_metric_are_told_all_the_same(seconds: dict[str, float]) -> None:
    seconds["fold_batch_norm_into_conv"] = 0.7
    options = sp.Stages(lambda proto: float(any(n.op_type == "Shape" for n in proto.graph.node)), 0, latency=False)
    result = sp.optimize(demo.build(), stages=options, keep_if_faster=True)
    undone = {d.rule for d in result.decided if d.status == "undone"}
    assert next(s.title for s in result.stages) == "original"
    guilty = {name for s in result.stages for name in s.guilty}
    assert guilty and undone == guilty | {"fold_batch_norm_into_conv"}
    assert {"BatchNormalization", "Shape"} <= result.after.operators.keys()


def test_what_is_not_certainly_faster_stays(seconds: dict[str, float]) -> None:
    seconds["merge_parallel_branches"] = 0.985
    source = demo.build()
    result = sp.optimize(source, keep_if_faster=True)
    assert result.proto == sp.optimize(source).proto and not result.undone


def test_what_cannot_be_timed_is_told() -> None:
    result = sp.optimize(demo.build(), keep_if_faster=True, isolate=True)
    assert any(note.startswith("keep-if-faster: not measured: ONNX Runtime was kept out") for note in result.notes)
