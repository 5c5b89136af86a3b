"""Benchmarks run; nothing here depends on time."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import onnx
import pytest

import surgeon_passes as sp
from benchmarks import peers
from benchmarks.entries import Wheels, packaged
from benchmarks.nodes import summary
from benchmarks.rules import EXCEPTIONS
from benchmarks.scale import KINDS, shuffled
from surgeon_passes.bench.records import Measured, Row
from surgeon_passes.bench.table import SUMMARY_HEADS
from surgeon_passes.bench.tools import OURS, TOOLS
from surgeon_passes.verify.segments import node_count

ROOT = Path(__file__).parent.parent


def growth(*arguments: str) -> str:
    command = [sys.executable, "-m", "benchmarks.growth", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def test_growth_reports_each_size_and_order() -> None:
    rows = json.loads(growth("--sizes", "40", "80", "--order", "both", "--json"))
    assert [(row["nodes"], row["order"]) for row in rows] == [
        (40, "ordered"),
        (80, "ordered"),
        (40, "shuffled"),
        (80, "shuffled"),
    ]
    for row in rows:
        assert (row["nodes_after"], row["verified"]) == (row["nodes"] // 2, row["nodes"] // 2)
        assert (row["end_check"], row["exit_code"]) == ("equal", 0)
        assert 0 < row["own"] < row["cpu"]
        assert sum(row["phases"].values()) == pytest.approx(row["cpu"], rel=0.1, abs=0.02)
    assert rows[0]["ratio"] == rows[2]["own_ratio"] == 1


def test_growth_prints_a_table_with_phases() -> None:
    header, row, *phases = growth("--kind", "data", "--sizes", "20", "--phases").splitlines()
    assert header.split()[:3] == ["kind", "order", "nodes"]
    assert row.split()[:3] == ["data", "ordered", "20"]
    assert {"import", "export", "types", "dynamics"} <= {line[:18].strip() for line in phases}


@pytest.mark.parametrize("kind", KINDS)
def test_generated_models_are_models(kind: str) -> None:
    for nodes in (1, 150, 403):
        model = KINDS[kind](nodes)
        onnx.checker.check_model(model, full_check=True)
        assert nodes < 20 or abs(node_count(model.graph) - nodes) <= 0.25 * nodes


def test_a_shuffled_model_has_the_same_nodes() -> None:
    model = KINDS["chain"](41)
    names = [[n.name for n in m.graph.node] for m in (model, shuffled(model))]
    assert names[0] != names[1] and sorted(names[0]) == sorted(names[1])


def test_shapes_reports_both_kinds_of_dims(wheels: Wheels) -> None:
    entry = next(e for e in packaged() if e["name"] == "magika_v3_3")
    wheels.read(entry["package"], entry["path"])
    command = [sys.executable, "-m", "benchmarks.shapes", entry["name"], "--verify", "off"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True, cwd=ROOT)
    (row,) = json.loads(done.stdout)
    assert row["before"] == entry["nodes"]["before"]
    for kind in ("dynamic", "static"):
        assert row[kind]["peer"] == entry["nodes"][kind] and row[kind]["nodes"] <= entry["nodes"][kind]
    assert (row["static"]["sizes"], row["static"]["args"]) == (0, 0)
    assert row["dynamic"]["sizes"] == 1  # a Shape whose target no constant says
    header, line, last = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.splitlines()
    assert header.split()[:3] == ["model", "before", "dynamic"] and line.split()[0] == entry["name"]
    assert last.startswith("1 models")


def test_nodes_sums_up_against_peers(wheels: Wheels) -> None:
    entry = next(e for e in packaged() if e["name"] == "magika_v3_3")
    wheels.read(entry["package"], entry["path"])
    command = [sys.executable, "-m", "benchmarks.nodes", entry["name"], "--verify", "off"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.splitlines()
    header, row, total, more, short = lines
    assert header.split()[:5] == ["model", "before", "ours", "peer", "deploy"]
    cells = row.split()
    assert cells[:2] == [entry["name"], str(entry["nodes"]["before"])]
    ours = int(cells[2]) + int(cells[6])
    peers = entry["nodes"]["dynamic"] + entry["nodes"]["static"]
    assert total.startswith(
        f"1 models; nodes in sum: {ours}, the best peer of each model: {peers} ({100 * (1 - ours / peers):.1f} %"
    )
    assert (more, short) == ("more nodes than a peer: none", "more nodes than the deploy form: none")


def test_nodes_names_what_falls_short() -> None:
    side = {"nodes": 8, "peer": 7, "check": "equal"}
    text = summary([{"model": "m", "before": 9, "deploy": 6, "dynamic": side, "static": None}])
    assert text.splitlines()[1:] == ["more nodes than a peer: m", "more nodes than the deploy form: m"]


def test_rules_says_where_each_fires(wheels: Wheels) -> None:
    entry = next(e for e in packaged() if e["name"] == "silero_vad_16k_sequence")
    wheels.read(entry["package"], entry["path"])
    command = [sys.executable, "-m", "benchmarks.rules", entry["name"], "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    fired = json.loads(done.stdout)
    assert fired["merge_slices"] == [entry["name"]]
    assert fired["merge_parallel_branches"] == []
    assert set(fired) == {rule.name for rule in sp.Registry.installed()}


def test_rules_without_a_model_are_few_and_have_a_reason() -> None:
    assert len(EXCEPTIONS) <= 5 and all(EXCEPTIONS.values())
    assert set(EXCEPTIONS) <= {rule.name for rule in sp.Registry.installed()}


@pytest.mark.parametrize("module", ["nodes", "shapes", "rules", "peers"])
def test_a_name_that_no_model_has_is_an_error(module: str, tmp_path: Path) -> None:
    """And no wheel is looked for: the cache stays empty."""
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('not here', name='torch')")
    command = [sys.executable, "-m", f"benchmarks.{module}", "nosuch", "other"]
    more = {"SURGEON_CACHE": str(tmp_path / "cache"), "SURGEON_MODELS": "", "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env={**os.environ, **more})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1] == "error: no model has 'nosuch' or 'other' in its name"
    assert not (tmp_path / "cache").exists()


def test_what_is_missing_is_one_line(tmp_path: Path) -> None:
    run = partial(subprocess.run, capture_output=True, text=True, check=False, cwd=ROOT)
    env = {**os.environ, "SURGEON_MODELS": str(tmp_path)}
    done = run([sys.executable, "-m", "benchmarks.nodes"], env=env)
    assert done.returncode == 6 and done.stderr.startswith(f"error: {tmp_path}/manifest.json: cannot be read")
    assert done.stderr.count("\n") == 1
    done = run([sys.executable, "-m", "benchmarks.memory", "--inline", "1", "--folder", str(tmp_path / "no")])
    assert done.returncode == 2 and done.stderr.endswith(f"error: there is no folder {tmp_path / 'no'}\n")


# --- peers ---------------------------------------------------------------------------------------------------------------


def test_peers_measures_a_real_model_and_shows_it_again(wheels: Wheels, tmp_path: Path) -> None:
    entry = next(e for e in packaged() if e["name"] == "silero_vad_16k_sequence")
    wheels.read(entry["package"], entry["path"])
    command = [sys.executable, "-m", "benchmarks.peers"]
    options = ["--tool", "onnxruntime", "-k", "1", "--latency", "0", "--json", str(tmp_path / "peers.json")]
    run = partial(subprocess.run, capture_output=True, text=True, check=True, cwd=ROOT)
    out = run([*command, entry["name"], *options]).stdout
    title, _, row = out.splitlines()[:3]
    assert title.startswith(f"{entry['name']}: {entry['nodes']['before']} nodes")
    assert row.startswith("onnxruntime (basic)") and " equal " in row
    again = run([*command, "--from", str(tmp_path / "peers.json")]).stdout
    assert again and out.endswith(again)


def test_peers_makes_generated_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}

    def fake(path: Path, name: str, *_: object) -> Measured:
        proto = onnx.load(path)
        seen[name] = (node_count(proto.graph), path)
        return Measured(name, node_count(proto.graph), path.stat().st_size)

    monkeypatch.setattr(peers, "measure", fake)
    arguments = ["--set", "scale", "--kinds", "chain", "soup", "--sizes", "40", "80", "--folder", str(tmp_path)]
    assert peers.main([*arguments, "chain", "soup_80"]) == 0
    assert list(seen) == ["chain_40", "chain_80", "soup_80"]
    assert seen["chain_80"][0] == 80 and list(tmp_path.iterdir()) == []


def test_peers_says_what_is_wrong_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert peers.main(["--tool", "onnxslm"]) == 2
    (tmp_path / "x.json").write_text("[]")
    assert peers.main(["--from", str(tmp_path / "x.json")]) == peers.main(["--from", str(tmp_path / "y.json")]) == 6
    first, second, third = capsys.readouterr().err.splitlines()
    assert "did you mean 'onnxslim'" in first
    assert "x.json: no measurements" in second and "y.json: cannot be read" in third


def test_peers_says_where_an_interrupted_run_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fake(path: Path, name: str, *_: object) -> Measured:
        if name == "chain_80":
            raise KeyboardInterrupt
        return Measured(name, 40, 1)

    monkeypatch.setattr(peers, "measure", fake)
    kept = tmp_path / "peers.json"
    arguments = ["--set", "scale", "--kinds", "chain", "--sizes", "40", "80", "--json", str(kept)]
    assert peers.main(arguments) == 130
    assert capsys.readouterr().err == f"interrupted; {kept} holds the models that were measured\n"
    assert [one["name"] for one in json.loads(kept.read_text())["models"]] == ["chain_40"]


def test_history_runs() -> None:
    if importlib.util.find_spec("pytest_benchmark") is None:
        pytest.skip("pytest-benchmark is not installed")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "benchmarks/history",
        "-q",
        "--benchmark-disable",
        "-p",
        "no:cacheprovider",
    ]
    plain = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}  # those are for this suite
    chosen = [*command, "-k", "demo or start"]
    done = subprocess.run(chosen, capture_output=True, text=True, check=False, cwd=ROOT, env=plain)
    assert done.returncode == 0, done.stdout


def test_the_readme_has_the_table_that_peers_writes() -> None:
    """As it stands: columns, and one line a tool; what is around it stays."""
    text = (ROOT / "README.md").read_text()
    start, end = (text.index(mark) for mark in peers.MARKS)
    lines = [line for line in text[start:end].splitlines() if line.startswith("|")]
    assert lines[0] == f"| {' | '.join(SUMMARY_HEADS)} |"
    assert [line.split(" | ")[0].removeprefix("| ") for line in lines[2:]] == [tool.name for tool in TOOLS]
    row = Row(OURS, "9", seconds=[1.0], nodes=1, bytes=2, check="equal")
    made = peers.with_table(text, [Measured("m", 2, 4, [row])])
    assert f"| {OURS} | 9 | 1 of 1 | 1.000 | - | - | 50% | 50% | - | - |" in made
    assert made[:start] == text[:start] and made.endswith(text[end:])


def test_the_plot_of_the_readme_is_small() -> None:
    assert (ROOT / "benchmarks" / "bench.png").stat().st_size < 60_000
