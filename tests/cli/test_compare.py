"""``surgeon-passes compare``: arguments, files and exit codes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

import surgeon_passes as sp
from surgeon_passes import demo
from tests.compare.faults import layers, renamed, scaled

from .conftest import Call, Outcome


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded network, its result with its record, and the result without names and with a layer that is off."""
    folder = tmp_path_factory.mktemp("made")
    onnx.save(demo.build(), folder / "a.onnx")
    result = sp.optimize(folder / "a.onnx")
    result.save(folder / "b.onnx")
    result.save_record(folder / "b.json")
    bare = renamed(result.proto)
    onnx.save(scaled(bare, layers(bare)[1]), folder / "off.onnx")
    return folder


@pytest.fixture
def files(made: Path, tmp_path: Path) -> None:
    """These in the test's own folder."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)


def test_a_result_is_equal(call: Call, files: None) -> None:
    outcome = call("compare", "a.onnx", "b.onnx")
    assert (outcome.code, outcome.err) == (0, "")
    head = dict(
        line.split(maxsplit=1) for line in outcome.out.splitlines() if line.startswith(("a  ", "b  ", "result "))
    )
    assert head == {"a": "a.onnx (ort:off)", "b": "b.onnx (ort:off)", "result": "no tensor drifts"}
    assert "drift begins  nowhere" in outcome.out


def test_a_fault_is_named_at_the_top(call: Call, files: None) -> None:
    outcome = call("compare", "a.onnx", "off.onnx", "--map", "b.json")
    assert outcome.code == 5
    begins = next(line for line in outcome.out.splitlines() if line.startswith("drift begins"))
    layer = layers(onnx.load("off.onnx"))[1]
    assert f"Conv '{layer}' of b" in begins and "(a: 'stage1.add_identity.out'): error 0.011, by itself 0.011" in begins
    assert begins.endswith("rewritten by merge_parallel_branches")
    assert "by operator   Conv drifts most: on average 0.0018, at most 0.011, of 6" in outcome.out
    assert "result        13 of 15 tensors drift" in outcome.out


def test_everything_is_written(call: Call, files: None) -> None:
    outcome = call("compare", "a.onnx", "off.onnx", "--json", "c.json")
    held = json.loads(Path("c.json").read_text())
    assert (outcome.code, held["version"], held["exit_code"], len(held["pairs"])) == (5, 1, 5, 15)
    first = next(pair for pair in held["pairs"] if pair["begins"])
    assert held["first"] == {"a": first["a"], "b": first["b"]} and first["verdict"] == "drift"
    assert set(first["distance"]) == {"cosine", "sqnr", "max_abs", "relative", "kl"}
    statistics = first["statistics"][0]
    assert list(statistics["quantiles"]) == ["1", "5", "25", "50", "75", "95", "99"]
    assert {"shape", "dtype", "mean", "variance", "max_abs", "nan", "inf"} <= set(statistics)
    assert held["operators"][0]["operator"] == "Conv"


def test_one_tensor(call: Call, files: None) -> None:
    outcome = call("compare", "a.onnx", "b.onnx", "--tensor", "logits")
    rows = dict(line.split(maxsplit=1) for line in outcome.out.splitlines()[1:] if line)
    assert rows["tensor"].split() == ["logits", "logits"] and rows["shape"].count("[2, 10]") == 2
    assert rows["apart:"].startswith("error ") and "SQNR" in rows["apart:"]
    refused = call("compare", "a.onnx", "b.onnx", "--tensor", "logit")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == "error: --tensor logit: no pair of tensors has this name (did you mean 'logits'?)\n"


def test_every_tensor(call: Call, files: None) -> None:
    some, every = (call("compare", "a.onnx", "b.onnx", *more).out for more in ([], ["--all"]))
    assert sum("stage" in line for line in some.splitlines()) < sum("stage" in line for line in every.splitlines())
    assert all(f"stage{k}.relu.out" in every for k in range(5))


def test_other_runtimes_sizes_and_data(call: Call, files: None) -> None:
    np.savez("x.npz", images=np.ones((1, 3, 64, 64), np.float32))
    runtimes = ["--a-runtime", "ort:all", "--b-runtime", "reference"]
    outcome = call("compare", "a.onnx", "b.onnx", *runtimes, "--data", "x.npz", "--max-bytes", "1MiB")
    assert outcome.code == 0 and "a.onnx (ort:all)" in outcome.out and "runs          1\n" in outcome.out
    outcome = call("compare", "a.onnx", "b.onnx", "-i", "images=N:3", "--tensor", "logits")
    assert "[3, 10]" in outcome.out


def test_onnx_runtime_in_a_process_of_its_own(call: Call, files: None) -> None:
    assert call("compare", "a.onnx", "off.onnx", "--isolate").code == 5
    assert call("compare", "a.onnx", "b.onnx", "--isolate").code == 0


def refused(outcome: Outcome, code: int, says: str) -> None:
    assert (outcome.code, outcome.out) == (code, "")
    assert outcome.err.startswith("error: ") and outcome.err.count("\n") == 1 and says in outcome.err


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["a.onnx", "absent.onnx"], 6, "absent.onnx: cannot be read (No such file or directory)"),
        (["a.onnx", "b.json"], 6, "b.json: not an ONNX model"),
        (["a.onnx", "b.onnx", "--map", "a.onnx"], 6, "a.onnx: not a decision record"),
        (["a.onnx", "b.onnx", "--map", "absent.json"], 6, "absent.json: cannot be read"),
        (["a.onnx", "b.onnx", "--tolerance", "0"], 2, "a tolerance of 0: it must be above 0"),
        (["a.onnx", "b.onnx", "--b-runtime", "ort:fast"], 2, "the level is one of off, basic, extended, all"),
        (["a.onnx", "b.onnx", "--data", "absent.npz"], 2, "absent.npz is no .npz file"),
        (["a.onnx", "b.onnx", "--max-bytes", "much"], 2, "max_bytes is 'much'"),
        (["a.onnx", "b.onnx", "-i", "image=1,3,64,64"], 2, "a.onnx has no input 'image' (its inputs: images)"),
        (["a.onnx", "b.onnx", "--json", "no/c.json"], 6, "no/c.json"),
    ],
)
def test_what_does_not_fit(arguments: list[str], code: int, says: str, call: Call, files: None) -> None:
    refused(call("compare", *arguments), code, says)


def test_a_record_that_does_not_hold_what_it_should(call: Call, files: None) -> None:
    Path("bad.json").write_text(json.dumps({"format": "surgeon-passes decisions", "version": 1}))
    refused(
        call("compare", "a.onnx", "b.onnx", "--map", "bad.json"), 6, "bad.json: a decision record that is damaged: "
    )
