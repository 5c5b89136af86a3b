"""Where weights lie: in files that are mapped and held, or in memory; read only by those who need their values."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import surgeon_passes as sp
from surgeon_passes.errors import ModelError
from surgeon_passes.model import Weights, files, weights
from surgeon_passes.model.constants import TensorValues
from surgeon_passes.model.files import read_model, with_weights, write_proto
from tests.models import floats, model, run, same

TEXT = """
g (float[N,160] x) => (float[N,160] y) {
    a = MatMul(x, w) b = Mul(a, s) c = Relu(b) d = MatMul(c, v) e = Relu(d) y = MatMul(e, u)
}"""
UNTOUCHED = ("w", "v", "u")


@pytest.fixture
def mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files are treated as large ones are."""
    monkeypatch.setattr(files, "MAPPED_FROM", 0)


def large() -> onnx.ModelProto:
    held = {name: floats(160, 160, seed=k) / 12 for k, name in enumerate(UNTOUCHED)}
    powers = np.float32([[0.5, 1, 2, 4] * 40])  # a product with them is exact, whenever it is taken
    return model(TEXT, s=powers, **held)


def inline(folder: Path, name: str = "m.onnx") -> Path:
    (folder / name).write_bytes(large().SerializeToString())
    return folder / name


def external(folder: Path) -> Path:
    path = folder / "m.onnx"
    onnx.save(large(), path, save_as_external_data=True, location="m.bin", size_threshold=0)
    return path


def raw(path: Path) -> dict[str, bytes]:
    """Raw data by name, wherever it lies."""
    return {t.name: numpy_helper.to_array(t).tobytes() for t in onnx.load(path).graph.initializer}


# --- from a file ---------------------------------------------------------------------------------------------------------


def test_large_weights_stay_in_their_file(tmp_path: Path, mapped: None) -> None:
    path = inline(tmp_path)
    proto, found = read_model(path)
    outside = {t.name: t for t in proto.graph.initializer if t.data_location == TensorProto.EXTERNAL}
    assert tuple(outside) == UNTOUCHED
    assert not any(map(found.is_external, outside.values()))
    for name, tensor in outside.items():
        assert found.array(tensor).tobytes() == raw(path)[name]
        assert found.aligned(tensor).flags.aligned
    assert with_weights(proto, found) == large()


def test_small_files_are_read_as_a_whole(tmp_path: Path) -> None:
    proto, _ = read_model(inline(tmp_path))
    assert proto == large()


def test_copies_for_alignment_are_shared_while_they_are_held(tmp_path: Path, mapped: None) -> None:
    proto, found = read_model(inline(tmp_path))
    tensors = [t for t in proto.graph.initializer if not found.array(t).flags.aligned]
    assert tensors, "three offsets of one file cannot all be multiples of four"
    held = found.aligned(tensors[0])
    assert found.aligned(tensors[0]) is held


@pytest.mark.parametrize("verify", ["off", "strict"])
def test_an_inline_model_comes_out_inline(tmp_path: Path, mapped: None, verify: str) -> None:
    path = inline(tmp_path)
    result = sp.optimize(path, verify=verify)
    result.save(tmp_path / "out.onnx")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "out.onnx"]
    assert (tmp_path / "out.onnx").read_bytes() == result.proto.SerializeToString(deterministic=True)
    assert result.proto == sp.optimize(large(), verify=verify).proto
    x = floats(3, 160)
    same(run(onnx.load(tmp_path / "out.onnx"), x=x), run(large(), x=x))


def test_the_source_is_overwritten_and_the_result_saved_again(tmp_path: Path, mapped: None) -> None:
    path = inline(tmp_path)
    result = sp.optimize(path)
    result.save(path)
    result.save(tmp_path / "again.onnx")
    assert path.read_bytes() == (tmp_path / "again.onnx").read_bytes()
    assert result.measure_latency().rounds > 0


def test_a_file_that_is_written_over_is_an_error_not_a_crash(tmp_path: Path, mapped: None) -> None:
    path = inline(tmp_path)
    result = sp.optimize(path, verify="off")
    path.write_bytes(b"short")
    with pytest.raises(ModelError, match=r"m\.onnx was written over since it was read$"):
        result.save(tmp_path / "out.onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_dims_that_do_not_fit_the_bytes(tmp_path: Path, mapped: None) -> None:
    path = tmp_path / "m.onnx"
    proto = large()
    tensor = next(t for t in proto.graph.initializer if t.name == "w")
    tensor.dims[0] = 159
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match=r"tensor 'w': dims \[159, 160\] do not fit its 102400 bytes"):
        sp.optimize(path)


# --- external data -------------------------------------------------------------------------------------------------------


def test_untouched_weights_are_neither_decoded_nor_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = external(tmp_path)
    before = raw(path)
    decoded: list[str] = []
    array = Weights.array

    def counted(self: Weights, tensor: TensorProto) -> Any:
        decoded.append(tensor.name)
        return array(self, tensor)

    monkeypatch.setattr(Weights, "array", counted)
    result = sp.optimize(path, verify="off")
    result.save(tmp_path / "out.onnx")
    assert set(decoded) <= {"w", "s"}  # the Mul is moved into the first
    monkeypatch.undo()
    after = raw(tmp_path / "out.onnx")
    assert [after[name] == before[name] for name in ("v", "u")] == [True, True]
    saved = onnx.load(tmp_path / "out.onnx", load_external_data=False).graph.initializer
    told = [weights.external_fields(t) for t in saved if t.data_location == TensorProto.EXTERNAL]
    assert [t["location"] for t in told] == ["out.onnx.data"] * 3
    assert [int(t["offset"]) % 4096 for t in told] == [0, 0, 0]


def test_a_proto_in_memory_finds_external_data_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proto = onnx.load(external(tmp_path), load_external_data=False)
    monkeypatch.chdir(tmp_path)
    result = sp.optimize(proto)
    assert result.check.status == "equal"
    result.save("out.onnx")
    x = floats(3, 160)
    same(run(onnx.load("out.onnx"), x=x), run(large(), x=x))


def test_more_files_than_are_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "HELD_FILES", 1)
    path = tmp_path / "m.onnx"
    onnx.save(large(), path, save_as_external_data=True, all_tensors_to_one_file=False, size_threshold=0)
    result = sp.optimize(path)
    assert result.check.status == "equal"
    (tmp_path / "u").write_bytes((tmp_path / "u").read_bytes())
    os.utime(tmp_path / "u", ns=(1, 1))
    with pytest.raises(ModelError, match=r"tensor 'u': .*u was written over since it was read"):
        result.save(tmp_path / "out.onnx")


def test_a_failure_leaves_both_files_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    write_proto(large(), path, external=True)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def fails(*_: Any) -> bytes:
        raise ModelError("cannot be encoded")

    monkeypatch.setattr(files, "_encode", fails)
    with pytest.raises(ModelError, match="cannot be encoded"):
        write_proto(model(TEXT, s=floats(1, 160), w=floats(160, 160)), path, external=True)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


# --- memory --------------------------------------------------------------------------------------------------------------


def test_references_to_memory() -> None:
    found = Weights()
    array = floats(160, 160)
    tensor, held = found.refer("a", array), found.refer("b", numpy_helper.from_array(array, "else"))
    assert tensor is not None and held is not None
    assert found.array(tensor) is array
    assert found.array(held).tolist() == array.tolist()
    assert (held.name, list(held.dims)) == ("b", [160, 160])
    assert found.refer("small", array[:9]) is None
    assert found.refer("words", np.array(["a" * 99] * 9999, dtype=object)) is None
    packed = TensorProto(dims=[1 << 18], data_type=TensorProto.INT4, raw_data=b"\x21" * (1 << 17))
    assert found.refer("packed", packed) is None


def test_no_file_can_name_what_lies_in_memory(tmp_path: Path) -> None:
    found = Weights(tmp_path)
    assert found.refer("a", floats(160, 160)) is not None
    for location in ("\0000", "\0", "0"):
        tensor = TensorProto(name="t", dims=[1], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value=location)
        with pytest.raises(ModelError, match="tensor 't'"):
            found.array(tensor)


def test_a_result_does_not_follow_changes_of_what_was_given() -> None:
    proto = large()
    result = sp.optimize(proto, verify="off")
    x = floats(3, 160)
    for tensor in proto.graph.initializer:
        tensor.raw_data = bytes(len(tensor.raw_data))
    same(run(result.proto, x=x), run(large(), x=x))


@pytest.mark.parametrize("there", [False, True])
def test_a_rename_that_fails_leaves_both_files_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    path = tmp_path / "m.onnx"
    if there:
        write_proto(large(), path, external=True)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    real = os.replace

    def fails(source: Path, target: Path) -> None:
        if target == path:
            raise PermissionError(1, "Operation not permitted")
        real(source, target)

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(ModelError, match=r"m.onnx: cannot be written \(Operation not permitted\)"):
        write_proto(model(TEXT, s=floats(1, 160), w=floats(160, 160)), path, external=True)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    monkeypatch.undo()
    write_proto(large(), path, external=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]


def test_small_values_are_decoded_once_unless_somebody_could_change_them() -> None:
    raw = TensorValues(numpy_helper.from_array(np.arange(4, dtype=np.float32), "raw"), Weights())
    assert raw.load() is raw.load() and not raw.load().flags.writeable
    typed = TensorValues(TensorProto(dims=[2], data_type=TensorProto.FLOAT, float_data=[1, 2]), Weights())
    typed.load()[0] = 7
    assert typed.load().tolist() == [1, 2]
    large = TensorValues(numpy_helper.from_array(np.zeros(257, np.float32), "large"), Weights())
    assert large.load() is not large.load()
