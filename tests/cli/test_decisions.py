"""Records and baselines on the command line: what is written, what is said, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from surgeon_passes import demo

from ..record.renamed import renamed
from .conftest import Call


@pytest.fixture
def folder(call: Call) -> Path:
    """The test's own folder with two exports of one network, and one that lost a BatchNormalization."""
    onnx.save(demo.build(), "model.onnx")
    onnx.save(renamed(demo.build(seed=1)), "other.onnx")
    lost = demo.build()
    (norm,) = (n for n in lost.graph.node if n.name == "neck.bn")
    (relu,) = (n for n in lost.graph.node if n.name == "neck.relu")
    relu.input[0] = norm.input[0]
    lost.graph.node.remove(norm)
    onnx.save(lost, "lost.onnx")
    return Path.cwd()


def test_a_record_is_written_and_replayed(call: Call, folder: Path) -> None:
    assert call("optimize", "model.onnx", "-o", "out.onnx", "--decisions", "d.json").code == 0
    assert json.loads(Path("d.json").read_text())["source"]["path"] == "model.onnx"
    done = call("replay", "d.json", "model.onnx", "-o", "again.onnx", "--decisions", "d2.json")
    assert (done.code, done.out) == (0, "the recorded file, and the recorded result, byte for byte\n")
    assert Path("again.onnx").read_bytes() == Path("out.onnx").read_bytes()
    same = call("decisions", "diff", "d.json", "d2.json")
    assert same.code == 0
    assert same.out.endswith("the same, 0 changed, 0 gone, 0 new\n")


def test_on_another_file_it_goes_by_structure(call: Call, folder: Path) -> None:
    call("optimize", "model.onnx", "--decisions", "d.json")
    done = call("replay", "d.json", "other.onnx", "-o", "out.onnx")
    assert done.code == 0
    assert done.out.startswith("another file than the recorded one\n")
    assert Path("out.onnx").exists()


def test_8_where_something_differs_nothing_is_written(call: Call, folder: Path) -> None:
    call("optimize", "model.onnx", "--decisions", "d.json")
    done = call("replay", "d.json", "lost.onnx", "-o", "out.onnx", "--decisions", "d2.json")
    assert done.code == 8
    assert "- fold_batch_norm_into_conv at BatchNormalization 'neck.bn': now nothing there comes near" in done.out
    assert not Path("out.onnx").exists() and "--force" in done.err
    assert call("decisions", "diff", "d.json", "d2.json").code == 8
    assert call("replay", "d.json", "lost.onnx", "-o", "out.onnx", "--force").code == 8
    assert Path("out.onnx").exists()


def test_6_for_what_is_no_record(call: Call, folder: Path) -> None:
    Path("d.json").write_text("{")
    for arguments in (["replay", "d.json", "model.onnx"], ["decisions", "diff", "d.json", "d.json"]):
        done = call(*arguments)
        assert done.code == 6
        assert done.err.startswith("error: d.json: not a decision record")
        assert done.err.count("\n") == 1


def test_2_where_the_record_would_overwrite_a_model(call: Call, folder: Path) -> None:
    done = call("optimize", "model.onnx", "--decisions", "model.onnx")
    assert done.code == 2 and "--decisions model.onnx: that is the model" in done.err
    assert call("baseline", "save", "model.onnx", "-o", "model.onnx").code == 2


# --- baselines -------------------------------------------------------------------------------------------------------


def test_a_baseline_beside_the_model_is_looked_at(call: Call, folder: Path) -> None:
    saved = call("baseline", "save", "model.onnx")
    assert saved.code == 0 and saved.out.startswith("model.baseline.json: 47 nodes, ")
    assert "drift" not in call("optimize", "model.onnx").out
    onnx.save(onnx.load("other.onnx"), "model.onnx")
    done = call("optimize", "model.onnx", "-o", "out.onnx")
    assert done.code == 0
    assert "drift 0, within the 0 that is allowed" in done.out
    assert "input 0 is called 't.1', no longer 'images'" in done.out
    assert Path("out.onnx").exists()


def test_8_beyond_the_drift_that_is_allowed(call: Call, folder: Path) -> None:
    call("baseline", "save", "model.onnx", "-o", "base.json")
    done = call("optimize", "lost.onnx", "--baseline", "base.json", "-o", "out.onnx", "--decisions", "d.json")
    assert done.code == 8
    assert "~ operator BatchNormalization stands once fewer: 14 -> 13" in done.out
    assert "~ rule fold_batch_norm_into_conv matches once fewer: " in done.out
    assert not Path("out.onnx").exists() and Path("d.json").exists()
    allowed = call("optimize", "lost.onnx", "--baseline", "base.json", "--drift", "0.5", "-o", "out.onnx")
    assert allowed.code == 0 and Path("out.onnx").exists()
    Path("out.onnx").unlink()
    assert call("optimize", "lost.onnx", "--baseline", "base.json", "-o", "out.onnx", "--force").code == 8
    assert Path("out.onnx").exists()


def test_a_check_by_itself(call: Call, folder: Path) -> None:
    call("baseline", "save", "model.onnx", "--skip", "drop_dropout")
    assert call("baseline", "check", "model.onnx", "--skip", "drop_dropout").code == 0
    assert "matches are not compared" in call("baseline", "check", "model.onnx").out
    assert call("baseline", "check", "lost.onnx", "--baseline", "model.baseline.json").code == 8
    missing = call("baseline", "check", "lost.onnx")
    assert missing.code == 6 and "lost.baseline.json: cannot be read" in missing.err


def test_6_for_a_broken_baseline_beside_the_model(call: Call, folder: Path) -> None:
    Path("model.baseline.json").write_text("[]")
    done = call("optimize", "model.onnx", "-o", "out.onnx")
    assert done.code == 6 and "model.baseline.json: not a baseline" in done.err
    assert not Path("out.onnx").exists()
