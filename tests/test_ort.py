"""Sessions of optimised models, and the cache behind them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest

import surgeon_passes as sp
import surgeon_passes.ort
from surgeon_passes import demo, fingerprint, testing
from surgeon_passes import operators as operators_of
from surgeon_passes.cache import Cache, default_folder
from surgeon_passes.pipeline import Pipeline
from surgeon_passes.rules.registry import Registry
from tests.models import floats, model, operators, run

TEXT = """g (float[N,4] x) => (float[N,4] y) {
    a = Mul(x, k) b = Mul(a, l) i = Identity(b) y = Relu(i)
}"""
RULES = """
from surgeon_passes import Match, Replacement, rule

FACTOR = {factor}


@rule(pattern="y = Relu(Mul(x, a: const))", rewrite="y = Mul(Relu(x), K)", sets="own")
def pull_out(m: Match) -> Replacement:
    return Replacement(K=m.a * FACTOR)
"""


def source(k: float = 2.0) -> onnx.ModelProto:
    return model(TEXT, k=np.float32([k]), l=floats(4))


@pytest.fixture
def runs() -> Any:
    """How often a pipeline was run."""
    with mock.patch.object(Pipeline, "run", autospec=True, side_effect=Pipeline.run) as spy:
        yield spy


def opened(proto: Any, cache: Any, *args: Any, **options: Any) -> Any:
    return surgeon_passes.ort.session(proto, *args, cache=cache, **options)


def entries(cache: Path) -> list[str]:
    return sorted(p.name for p in cache.iterdir())


def test_a_session_gives_what_the_model_gives(tmp_path: Path) -> None:
    proto = demo.build()
    before = proto.SerializeToString(deterministic=True)
    x = floats(2, 3, 64, 64)
    for _ in range(2):
        session = opened(proto, tmp_path, {"images": {"N": 2}})
        assert session.get_inputs()[0].shape == [2, 3, 64, 64]
        np.testing.assert_allclose(
            session.run(None, {"images": x})[0], run(proto, images=x)["logits"], rtol=1e-4, atol=1e-5
        )
    (entry,) = entries(tmp_path)
    assert len(operators(onnx.load(tmp_path / entry / "model.onnx"))) == 15  # of 47
    assert proto.SerializeToString(deterministic=True) == before


def test_the_second_time_nothing_is_run(tmp_path: Path, runs: Any) -> None:
    for _ in range(3):
        opened(source(), tmp_path)
    assert runs.call_count == 1 and len(entries(tmp_path)) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"proto": source(2.5)},
        {"shapes": {"x": {"N": 3}}},
        {"skip": ["fusion"]},
        {"sets": ["npu"]},
        {"max_iterations": 3},
        {"keep": ["k"]},
        {"verify": "available"},
        {"verify": sp.Verify(seed=1)},
        {"pipeline": sp.Pipeline(sp.Rewrite("cleanup"))},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_change_is_a_miss(change: dict[str, Any], tmp_path: Path, runs: Any) -> None:
    opened(source(), tmp_path)
    options = dict(change)
    opened(options.pop("proto", source()), tmp_path, **options)
    assert runs.call_count == 2 and len(entries(tmp_path)) == 2


def test_another_version_is_a_miss(tmp_path: Path, runs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(source(), tmp_path)
    assert "onnxruntime" in fingerprint.versions()
    monkeypatch.setattr(fingerprint, "version", lambda name: "0.0")
    opened(source(), tmp_path)
    assert runs.call_count == 2


def test_a_byte_of_external_data_is_a_miss(tmp_path: Path, runs: Any) -> None:
    proto = model("g (float[N,64] x) => (float[N,64] y) { a = MatMul(x, w) y = Relu(a) }", w=floats(64, 64))
    path, cache = tmp_path / "m.onnx", tmp_path / "cache"
    onnx.save(proto, path, save_as_external_data=True, location="m.data", size_threshold=0)
    first = opened(path, cache).run(None, {"x": floats(1, 64)})[0]
    opened(path, cache)
    assert runs.call_count == 1
    weights = np.fromfile(tmp_path / "m.data", np.float32)
    (weights * 2).tofile(tmp_path / "m.data")
    second = opened(path, cache).run(None, {"x": floats(1, 64)})[0]
    assert runs.call_count == 2
    np.testing.assert_allclose(second, 2 * first, rtol=1e-5)
    assert {p.name for p in (cache / entries(cache)[0]).iterdir()} == {"model.onnx", "model.onnx.data", "entry.json"}


def with_rules(path: Path, factor: str) -> Registry:
    path.write_text(RULES.format(factor=factor))
    registry = Registry.installed()
    registry.add_path(str(path))
    return registry


def test_a_changed_rules_file_is_a_miss(tmp_path: Path, runs: Any) -> None:
    path, cache = tmp_path / "own.py", tmp_path / "cache"
    for factor in ("1", "1", "1.0"):
        opened(source(), cache, registry=with_rules(path, factor), sets=["own"])
    assert runs.call_count == 2 and len(entries(cache)) == 2


def test_a_module_that_a_rule_imports_belongs_to_the_key(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(RULES.format(factor="1").replace("FACTOR = 1", "from helper import FACTOR"))
    script = textwrap.dedent(
        """
        import sys
        import surgeon_passes.ort
        from surgeon_passes.rules.registry import Registry
        from surgeon_passes.testing import model

        registry = Registry.installed()
        registry.add_path("own.py")
        text = "g (float[N] x) => (float[N] y) <float[1] k = {2}> { a = Mul(x, k) y = Relu(a) }"
        surgeon_passes.ort.session(model(text), cache="cache", registry=registry, sets=["own"], verify="off")
        """
    )
    for factor, kept in (("1", 1), ("1", 1), ("1.0", 2)):
        (tmp_path / "helper.py").write_text(f"FACTOR = {factor}\n")
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(__file__).parent.parent)])}
        subprocess.run([sys.executable, "-B", "-c", script], cwd=tmp_path, env=env, check=True)
        assert len(entries(tmp_path / "cache")) == kept


def test_what_is_told_of_operators_belongs_to_the_key(tmp_path: Path, runs: Any) -> None:
    text = "g (float[N] x) => (float[N] y) { y = told.once.Op(x) }"
    for deterministic in (False, False, True):
        told = sp.Operator("told.once.Op", inputs="x", deterministic=deterministic)
        operators_of.register(told)
        with pytest.raises(Exception, match=r"told\.once"):  # ONNX Runtime does not know it
            opened(testing.model(text), tmp_path, verify="off")
    assert runs.call_count == 2 and len(entries(tmp_path)) == 2


def test_a_pipeline_says_itself_what_it_does(tmp_path: Path) -> None:
    for options in ({"shapes": {"x": {"N": 1}}}, {"sets": ["npu"]}):
        with pytest.raises(sp.UsageError, match="a pipeline says itself which shapes, rules and sets it has"):
            opened(source(), tmp_path, pipeline=sp.Pipeline(), **options)


def test_processes_that_mend_the_same_entry_do_not_collide(tmp_path: Path) -> None:
    cache = Cache(tmp_path)

    def write(path: Path) -> None:
        path.write_bytes(b"good")

    cache.put("key", write)
    (tmp_path / "key" / "model.onnx").write_bytes(b"bad")
    moved = Path.rename

    def rename(path: Path, target: Any) -> Path:
        if path.name == "key":  # somebody else was faster
            moved(path, tmp_path / ".away")
            Cache(tmp_path).put("key", write)
            raise FileNotFoundError(path)
        return moved(path, target)

    with mock.patch.object(Path, "rename", rename):
        assert cache.put("key", write).read_bytes() == b"good"
    assert cache.find("key") is not None


def test_what_has_no_source_is_not_kept(tmp_path: Path, runs: Any) -> None:
    number = 1.0

    @sp.rule(pattern="y = Relu(Mul(x, a: const))", rewrite="y = Mul(Relu(x), K)", name="closed")
    def closed(m: sp.Match) -> sp.Replacement:
        return sp.Replacement(K=m.a * number)

    data = sp.Verify(data=lambda: iter([{"x": floats(2, 4)}]))
    for _ in range(2):
        opened(source(), tmp_path, rules=[closed])
        opened(source(), tmp_path, verify=data)
    assert runs.call_count == 4 and entries(tmp_path) == []


def test_inputs_in_files_belong_to_the_key(tmp_path: Path, runs: Any) -> None:
    held, cache = tmp_path / "x.npz", tmp_path / "cache"
    for seed in (0, 0, 1):
        np.savez(held, x=floats(2, 4, seed=seed))
        opened(source(), cache, verify=sp.Verify(data=held))
    assert runs.call_count == 2


@pytest.mark.parametrize("damage", ["cut", "gone", "record", "other format"])
def test_a_damaged_entry_is_made_anew(damage: str, tmp_path: Path, runs: Any) -> None:
    opened(source(), tmp_path)
    folder = tmp_path / entries(tmp_path)[0]
    kept = (folder / "model.onnx").read_bytes()
    if damage == "cut":
        (folder / "model.onnx").write_bytes(kept[:-1])
    elif damage == "gone":
        (folder / "model.onnx").unlink()
    else:
        (folder / "entry.json").write_text("{" if damage == "record" else '{"format": 0, "files": {}}')
    session = opened(source(), tmp_path)
    assert runs.call_count == 2
    np.testing.assert_allclose(session.run(None, {"x": floats(2, 4)})[0], run(source(), x=floats(2, 4))["y"], rtol=1e-6)
    opened(source(), tmp_path)
    assert runs.call_count == 2
    assert (folder / "model.onnx").read_bytes() == kept and len(entries(tmp_path)) == 1


def test_whoever_is_slower_takes_the_entry_that_stands(tmp_path: Path) -> None:
    cache = Cache(tmp_path)

    def write(path: Path) -> None:
        if not cache.find("key"):
            cache.put("key", lambda p: p.write_bytes(b"first") and None)
        path.write_bytes(b"second")

    assert cache.put("key", write).read_bytes() == b"first"
    assert entries(tmp_path) == ["key"]


def test_processes_may_race(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import sys
        import surgeon_passes.ort
        from surgeon_passes import demo

        session = surgeon_passes.ort.session(demo.build(), cache=sys.argv[1], verify="off")
        print([t.name for t in session.get_outputs()])
        """
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    racing = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [p.communicate()[0] for p in racing] == ["['logits']\n"] * 3
    assert len(entries(tmp_path)) == 1


def test_a_result_that_is_not_shown_equal_is_not_used(tmp_path: Path) -> None:
    spoilt = sp.Rule.from_text("spoil", "y = Relu(x)", "y = Neg(x)", exactness="exact")
    options: dict[str, Any] = {"pipeline": sp.Pipeline(sp.Rewrite(spoilt)), "verify": "strict"}
    blind = mock.patch("surgeon_passes.verify.check", lambda regions, *_: [_passed() for _ in regions])
    unsure = mock.patch("surgeon_passes.run.Run.find_guilty", lambda *_: None)
    with blind, unsure, pytest.warns(UserWarning, match="the optimised model was not used"):
        session = opened(source(), tmp_path, **options)
    np.testing.assert_allclose(session.run(None, {"x": floats(2, 4)})[0], run(source(), x=floats(2, 4))["y"])
    assert entries(tmp_path) == []


def _passed() -> Any:
    from surgeon_passes.region import Verdict

    return Verdict("verified")


def test_a_graph_stays_as_it_is_and_options_of_the_session_go_through(tmp_path: Path) -> None:
    import onnxruntime

    graph = gs.import_onnx(source())
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = opened(graph, False, sess_options=options, providers=["CPUExecutionProvider"])
    assert [n.op for n in graph.nodes] == ["Mul", "Mul", "Identity", "Relu"]
    assert session.get_session_options().intra_op_num_threads == 1
    assert session.get_providers() == ["CPUExecutionProvider"]


def test_where_the_cache_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SURGEON_CACHE_DIR", str(tmp_path / "named"))
    assert default_folder() == tmp_path / "named"
    surgeon_passes.ort.session(source())
    assert len(entries(tmp_path / "named")) == 1
    monkeypatch.delenv("SURGEON_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "surgeon-passes"
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match=r"the cache cannot be written .*: the optimised model is not kept"):
        session = opened(source(), tmp_path / "file")
    np.testing.assert_allclose(session.run(None, {"x": floats(2, 4)})[0], run(source(), x=floats(2, 4))["y"], rtol=1e-6)
