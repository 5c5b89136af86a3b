"""What a record tells of latency and of stages, by its schema."""

from __future__ import annotations

import json
from importlib.resources import files

import jsonschema
import onnx
import pytest

import surgeon_passes as sp
from surgeon_passes import demo
from surgeon_passes.stages import Stages


def nodes(model: onnx.ModelProto) -> float:
    """A metric that falls as nodes go."""
    return len(model.graph.node) / 100


def test_stages_and_latency_by_batch() -> None:
    result = sp.optimize(demo.build(), verify="off", stages=Stages(nodes, 0.1, latency=False))
    result.measure_latency([1, 2])
    record = result.record()
    schema = json.loads((files("surgeon_passes.record") / "schema.json").read_text())
    jsonschema.validate(json.loads(json.dumps(record, allow_nan=False)), schema)
    first, *rest = record["stages"]
    assert (first["name"], first["nodes"], first["metric"]) == ("original", 47, pytest.approx(0.47))
    assert any(stage["undone"] and stage["guilty"] for stage in rest)
    latency = record["latency"]
    sides = [latency, *latency["more"]]
    assert [found["batch"] for found in sides] == [1, 2]
    assert [found["shapes"]["images"] for found in sides] == [[1, 3, 64, 64], [2, 3, 64, 64]]
    low, middle, high = latency["ratio"]
    assert low <= middle <= high and latency["p99_ms"][0] >= latency["before_ms"] > 0


def test_neither_where_nobody_asked() -> None:
    record = sp.optimize(demo.build(), verify="off").record()
    assert (record["stages"], record["latency"]) == ([], None)
