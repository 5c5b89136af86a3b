"""The decision record of a run: against its schema, and against what the run itself says."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import pytest

import surgeon_passes as sp
from surgeon_passes import demo

from ..models import model

optimize = partial(sp.optimize, record=True)

SCHEMA: dict[str, Any] = json.loads((files("surgeon_passes.record") / "schema.json").read_text())
Record = dict[str, Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("record")


@pytest.fixture(scope="module")
def result(folder: Path) -> sp.Result:
    onnx.save(demo.build(), folder / "model.onnx")
    return optimize(folder / "model.onnx", skip=["drop_dropout"], verify=sp.Verify(seed=3))


@pytest.fixture(scope="module")
def record(result: sp.Result) -> Record:
    return result.record()


def of(record: Record, rule: str) -> list[Record]:
    return [match for match in record["matches"] if match["rule"] == rule]


def test_it_is_what_the_schema_says(record: Record) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(json.loads(json.dumps(record, allow_nan=False)), SCHEMA)


def test_the_schema_refuses_what_it_does_not_name(record: Record) -> None:
    short = {**record, "matches": record["matches"][:1], "near_misses": [], "rules": []}
    jsonschema.validate(short, SCHEMA)
    for path in ([], ["options"], ["matches", 0], ["matches", 0, "region"], ["before"], ["source"]):
        changed = json.loads(json.dumps(short))
        held = changed
        for step in path:
            held = held[step]
        held["more"] = 1
        with pytest.raises(jsonschema.ValidationError, match="more"):
            jsonschema.validate(changed, SCHEMA)


def test_files_by_their_digests(result: sp.Result, record: Record, folder: Path) -> None:
    result.save(folder / "out.onnx")
    for side, name in (("source", "model.onnx"), ("result", "out.onnx")):
        data = (folder / name).read_bytes()
        assert record[side]["sha256"] == hashlib.sha256(data).hexdigest()
        assert record[side]["bytes"] == len(data)
    assert record["source"]["producer"] == "surgeon_passes.demo"
    assert record["source"]["opsets"] == {"": 17}
    assert record["source"]["inputs"] == [{"name": "images", "dtype": "float", "shape": ["N", 3, 64, 64]}]


def test_a_source_that_is_written_over_was_told_before(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(demo.build(), path)
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    result = optimize(path)
    result.save(path)
    assert result.record()["source"]["sha256"] == before
    assert result.record()["result"]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest() != before


def test_a_source_that_somebody_else_replaced_has_no_digest(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(demo.build(), path)
    result = optimize(path)
    onnx.save(demo.build(seed=1), path)
    assert result.record()["source"]["sha256"] is None


def test_every_decision_is_there(result: sp.Result, record: Record) -> None:
    assert len(record["matches"]) + len(record["near_misses"]) == len(result.decisions)
    applied = [m for m in record["matches"] if m["status"] == "applied"]
    assert len(applied) == len(result.applied)
    for rule in record["rules"]:
        assert rule["applied"] == sum(m["rule"] == rule["name"] for m in applied)
    by_name = {rule["name"]: rule for rule in record["rules"]}
    assert by_name["merge_parallel_branches"]["activated"]
    assert not by_name["drop_dropout"]["activated"]
    assert not by_name["write_batch_norm_as_mul_add"]["activated"]
    assert record["seed"] == 3
    assert record["options"]["skip"] == ["drop_dropout"]


def test_passes_in_their_order(record: Record) -> None:
    first = [step["name"] for step in record["passes"] if step["iteration"] == 1]
    assert first == ["fold", "rewrite", "sizes", "duplicates", "cleanup"]
    assert record["passes"][-1]["name"] == "constants"
    rewrite = record["passes"][1]
    assert rewrite["activated"]
    assert (rewrite["nodes_before"], rewrite["nodes_after"]) == (record["passes"][0]["nodes_after"], 16)
    assert record["passes"][0]["nodes_before"] == record["before"]["nodes"] == 47
    assert record["passes"][-1]["nodes_after"] == record["after"]["nodes"]
    assert [s["activated"] for s in record["passes"] if s["iteration"] == record["run"]["iterations"]] == [False] * 5


def test_a_fold_by_its_numbers(record: Record) -> None:
    """The neck's Conv and BatchNormalization, computed here by hand."""
    (match,) = [m for m in of(record, "fold_batch_norm_into_conv") if m["root"] == "BatchNormalization 'neck.bn'"]
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in demo.build().graph.initializer}
    scale = weights["neck.bn.weight"] / np.sqrt(weights["neck.bn.running_var"] + 1e-5)
    old = weights["neck.conv.weight"].astype(np.float64)
    new = (old * scale.reshape(-1, 1, 1, 1)).astype(np.float32)
    region = match["region"]
    assert [node["op"] for node in region["removed"]] == ["Conv", "BatchNormalization"]
    assert [node["op"] for node in region["added"]] == ["Conv"]
    assert region["epsilon"] == pytest.approx(1e-5)
    assert region["group"] == 1
    (change,) = region["weights"]
    assert change["old"] == "neck.conv.weight"
    assert change["norm"] == pytest.approx(float(np.linalg.norm(old)), rel=1e-9)
    assert change["distance"] == pytest.approx(float(np.linalg.norm(new - old)), rel=1e-6)
    assert region["parameters_before"] == 64 * 64 + 4 * 64
    assert region["parameters_after"] == 64 * 64 + 64
    assert region["macs_before"] == region["macs_after"] == "1048576*N"
    assert [(t["name"], t["shape"]) for t in region["inputs"]] == [("stage4.relu.out", ["N", 64, 16, 16])]
    assert region["outputs"][0]["before"]["shape"] == ["N", 64, 16, 16]
    assert match["verdict"] == "verified"
    assert 0 <= match["max_error"] < 3e-6
    assert match["tensor"] == "neck.bn.out"


def test_the_whole_by_its_numbers(record: Record) -> None:
    """Blocks of (input channels, output channels, stride): 3x3 and 1x1 before, 3x3 after; neck and head."""
    size, dense, point = demo.SIZE, 0, 0
    for channels, width, stride in demo.STAGES:
        size //= stride
        dense += size * size * channels * width * 9
        point += size * size * channels * width
    rest = size * size * 64 * 64 + 64 * demo.CLASSES
    assert record["before"]["macs"] == f"{dense + point + rest}*N"
    assert record["after"]["macs"] == f"{dense + rest}*N"
    held = sum(int(np.prod(t.dims)) for t in demo.build().graph.initializer if t.data_type == onnx.TensorProto.FLOAT)
    assert record["before"]["parameters"] == held
    assert record["after"]["macs_unknown"] == []


def test_near_misses_say_where_they_stopped() -> None:
    text = """
        g (float[1,4,8,8] x, float[4] var) => (float[1,4,8,8] y, float[1,4,8,8] z) {
            c = Conv(x, w)
            y = BatchNormalization(c, s, s, s, s)
            d = Conv(x, w)
            z = BatchNormalization(d, s, s, s, var)
        }
    """
    found = optimize(model(text, w=np.ones((4, 4, 1, 1), np.float32), s=np.ones(4, np.float32))).record()
    assert [m["status"] for m in of(found, "fold_batch_norm_into_conv")] == ["applied"]
    (miss,) = [m for m in found["near_misses"] if m["rule"] == "fold_batch_norm_into_conv"]
    assert (miss["status"], miss["verdict"], miss["region"]) == ("declined", "", None)
    assert miss["reason"]
    assert miss["pattern_line"] == 2
    assert miss["place"]["depth"] == 1.0


def test_it_is_a_copy(result: sp.Result) -> None:
    result.record()["matches"].clear()
    assert result.record()["matches"]


def test_what_no_file_can_hold_is_said() -> None:
    data = optimize(demo.build(), verify=sp.Verify(data=lambda: [{"images": np.zeros((1, 3, 64, 64), np.float32)}]))
    assert data.record()["options"]["not_replayable"] == "inputs come from a function, which no file can hold"
