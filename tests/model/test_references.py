"""Weights in files, wherever a model may hold tensors: whoever runs a piece of the model gets the values, not the place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import surgeon_passes as sp
from surgeon_passes.errors import ModelError
from surgeon_passes.model import Weights, files
from surgeon_passes.model.files import all_tensors, read_model
from surgeon_passes.verify import SegmentedSession, open_model
from tests.models import floats, model, run, same

X = floats(2, 160)


def save_apart(proto: onnx.ModelProto, folder: Path) -> Path:
    """Every tensor of a kilobyte, attributes and bodies included, goes into ``w.bin``."""
    whole, data = onnx.ModelProto(), b""
    whole.CopyFrom(proto)
    for tensor in all_tensors(whole):
        if len(tensor.raw_data) >= 1024:
            raw = tensor.raw_data
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", "w.bin"), ("offset", len(data)), ("length", len(raw))):
                tensor.external_data.add(key=key, value=str(value))
            data += raw
    folder.mkdir(exist_ok=True)
    (folder / "w.bin").write_bytes(data)
    (folder / "m.onnx").write_bytes(whole.SerializeToString())
    return folder / "m.onnx"


def folded() -> onnx.ModelProto:
    text = "g (float[2,160] x) => (float[2,160] y) { t = Transpose<perm=[1,0]>(w) v = Neg(t) y = MatMul(x, v) }"
    return model(text, w=floats(160, 160))


@pytest.mark.parametrize("verify", ["strict", "off"])
@pytest.mark.parametrize("inline", [False, True])
def test_folding_reads_no_file_of_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verify: str, inline: bool
) -> None:
    monkeypatch.setattr(files, "MAPPED_FROM", 0 if inline else 1 << 25)
    path = save_apart(folded(), tmp_path / "there")
    if inline:
        path.write_bytes(folded().SerializeToString())
    (tmp_path / "here").mkdir()
    for name in ("w.bin", "m.onnx"):  # such as an earlier result
        (tmp_path / "here" / name).write_bytes(np.full(160 * 200, 7, np.float32).tobytes())
    monkeypatch.chdir(tmp_path / "here")
    result = sp.optimize(path, verify=verify)
    assert result.after.nodes == 1
    result.save(tmp_path / "out.onnx")
    same(run(onnx.load(tmp_path / "out.onnx"), x=X), run(folded(), x=X))


def constant_node() -> onnx.ModelProto:
    proto = model("g (float[2,160] x) => (float[2,160] y) { a = Identity(x) b = MatMul(a, w) y = Relu(b) }")
    proto.graph.node.insert(0, helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(floats(160, 160))))
    return proto


def body() -> onnx.ModelProto:
    text = """
    g (float[2,160] x) => (float[2,160] y) {
        s = ReduceSum<keepdims=0>(x)
        c = Less(s, k)
        y = If(c) <
            then_branch = t () => (float[2,160] p) { a = MatMul(x, w) b = Identity(a) p = Relu(b) },
            else_branch = e () => (float[2,160] q) { q = MatMul(x, w) }>
    }"""
    proto = model(text, k=np.float32(1e9))
    for attribute in proto.graph.node[-1].attribute:
        attribute.g.initializer.append(numpy_helper.from_array(floats(160, 160), "w"))
    return proto


def function() -> onnx.ModelProto:
    text = "g (float[2,160] x) => (float[2,160] y) { a = Identity(x) y = own.f(a) }"
    proto = model(text)
    proto.functions.append(
        onnx.parser.parse_function('<domain: "own", opset_import: ["" : 17]> f (a) => (b) { b = MatMul(a, v) }')
    )
    node = helper.make_node("Constant", [], ["v"], value=numpy_helper.from_array(floats(160, 160)))
    proto.functions[0].node.insert(0, node)
    proto.opset_import.add(domain="own", version=1)
    return proto


@pytest.mark.parametrize("make", [constant_node, body, function])
def test_weights_of_attributes_bodies_and_functions(tmp_path: Path, make: Any) -> None:
    result = sp.optimize(save_apart(make(), tmp_path / "in"))
    assert (result.check.status, result.checker_error) == ("equal", "")
    assert result.after.nodes < result.before.nodes
    result.save(tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx.data").stat().st_size >= 160 * 160 * 4
    same(run(onnx.load(tmp_path / "out.onnx"), x=X), run(make(), x=X))


@pytest.mark.parametrize("external", [False, True])
def test_large_defaults_of_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, external: bool) -> None:
    monkeypatch.setattr(files, "MAPPED_FROM", 0)
    text = "g (float[2,160] x, float[160,160] w) => (float[2,160] y) { a = MatMul(x, w) y = Relu(a) }"
    proto = model(text, w=floats(160, 160))
    path = save_apart(proto, tmp_path / "in")
    if not external:
        path.write_bytes(proto.SerializeToString())
    result = sp.optimize(path)
    assert (result.check.status, result.checker_error, result.external) == ("equal", "", external)
    result.save(tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx.data").exists() == external
    same(run(onnx.load(tmp_path / "out.onnx"), x=X), run(proto, x=X))


def test_what_numpy_lacks_is_verified_where_it_lies_in_a_file(tmp_path: Path) -> None:
    text = "g (bool[160,160] k) => (bfloat16[160,160] y) { a = Identity(w) y = Where(k, a, v) }"
    held = {name: floats(160, 160, seed=k).astype(ml_dtypes.bfloat16) for k, name in enumerate("wv")}
    result = sp.optimize(save_apart(model(text, **held), tmp_path), verify=sp.Verify(end_check=False))
    assert [(d.status, d.verdict) for d in result.applied] == [("applied", "verified")]
    assert result.after.nodes == 1


def test_elements_that_share_bytes_are_what_they_are_in_the_file(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(-8, 8, (160, 161)).astype(ml_dtypes.int4)
    text = "g (float[2,160] x) => (float[2,161] y) { v = DequantizeLinear(w, s) y = MatMul(x, v) }"
    proto = model(text, opset=21, w=values, s=np.float32(0.25))
    proto.ir_version = 10
    found = read_model(save_apart(proto, tmp_path))
    expected = X @ (values.astype(np.float32) * np.float32(0.25))
    for runner in (open_model(found), SegmentedSession(proto, segment_nodes=1), SegmentedSession(*found)):
        np.testing.assert_allclose(runner.run({"x": X})["y"], expected, rtol=1e-5, atol=1e-4)


def test_small_floats_pass_between_segments() -> None:
    values = np.arange(160 * 160).reshape(160, 160) % 9
    text = f"g (float[2,160] x) => (float[2,160] y) {{ v = Cast<to={TensorProto.FLOAT}>(w) y = MatMul(x, v) }}"
    proto = model(text, opset=19, w=values.astype(ml_dtypes.float8_e4m3fn))
    proto.ir_version = 9
    got = SegmentedSession(proto, segment_nodes=1).run({"x": X})["y"]
    np.testing.assert_allclose(got, X @ values.astype(np.float32), rtol=1e-4, atol=1e-3)


# --- what cannot be read -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [4, 160 * 160 * 8])
def test_a_length_that_does_not_fit_the_dims(tmp_path: Path, length: int) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(160 * 160 * 8))
    tensor = TensorProto(name="w", dims=[160, 160], data_type=1, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "w.bin"), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
    with pytest.raises(ModelError, match=rf"tensor 'w': dims \[160, 160\] do not fit its {length} bytes"):
        Weights(tmp_path).array(tensor)


def test_strings_have_no_external_data(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(64))
    tensor = TensorProto(name="w", dims=[2], data_type=TensorProto.STRING, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w.bin")
    with pytest.raises(ModelError, match="tensor 'w': strings cannot lie in external data"):
        Weights(tmp_path).array(tensor)


# --- the result's proto --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [4, 160])
def test_what_a_caller_does_to_the_proto_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(files, "MAPPED_FROM", 0)
    text = f"g (float[2,{size}] x) => (float[2,{size}] y) {{ y = MatMul(x, w) }}"
    (tmp_path / "m.onnx").write_bytes(model(text, w=floats(size, size)).SerializeToString())
    result = sp.optimize(tmp_path / "m.onnx", verify="off")
    result.proto.metadata_props.add(key="owner", value="me")
    result.save(tmp_path / "out.onnx")
    assert [p.key for p in onnx.load(os.fspath(tmp_path / "out.onnx")).metadata_props] == ["owner"]
