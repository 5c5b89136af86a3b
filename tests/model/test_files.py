"""Files that cannot be read or written, and external data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from surgeon_passes.errors import ModelError
from surgeon_passes.model.files import check_writable, read_proto, write_proto
from surgeon_passes.pipeline import load, optimize
from tests.models import floats, model, run, same

PRODUCT = "g (float[N,64] x) => (float[N,64] y) { a = MatMul(x, w) y = Relu(a) }"


def external(folder: Path, **options: Any) -> Path:
    path = folder / "m.onnx"
    proto = model(PRODUCT, w=floats(64, 64))
    onnx.save(proto, path, save_as_external_data=True, location="m.bin", size_threshold=0, **options)
    return path


def message(action: Any) -> str:
    with pytest.raises(ModelError) as caught:
        action()
    text = str(caught.value)
    assert "\n" not in text and caught.value.exit_code == 6
    return text


@pytest.mark.parametrize(
    ("field", "says"),
    [
        ("node", "a name in it is not UTF-8 text: b'\\xff\\xfe'"),
        ("dim", "a name in it is not UTF-8 text: b'\\xff\\xfe'"),
        ("producer", "it holds a text that is not UTF-8"),
    ],
)
def test_texts_that_are_none(tmp_path: Path, field: str, says: str) -> None:
    path = tmp_path / "m.onnx"
    proto = model(PRODUCT, w=floats(64, 64))
    proto.graph.node[0].name = "§" if field == "node" else "n"
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "§" if field == "dim" else "N"
    proto.producer_name = "§" if field == "producer" else "p"
    data = proto.SerializeToString()
    place = data.index("§".encode())
    path.write_bytes(data[:place] + b"\xff\xfe" + data[place + 2 :])
    assert says in message(lambda: load(path))


def test_a_graph_without_outputs(tmp_path: Path) -> None:
    proto = model(PRODUCT, w=floats(64, 64))
    del proto.graph.output[:]
    onnx.save(proto, tmp_path / "m.onnx")
    assert message(lambda: read_proto(tmp_path / "m.onnx")).endswith("the graph has no outputs: it computes nothing")


def test_an_element_type_that_there_is_not(tmp_path: Path) -> None:
    proto = model(PRODUCT, w=floats(64, 64))
    proto.graph.input[0].type.tensor_type.elem_type = 99
    onnx.save(proto, tmp_path / "m.onnx")
    assert "m.onnx: 'x': 99 is no element type of ONNX" in message(lambda: read_proto(tmp_path / "m.onnx"))


def test_no_file(tmp_path: Path) -> None:
    path = tmp_path / "none.onnx"
    assert message(lambda: read_proto(path)) == f"{path}: cannot be read (No such file or directory)"


def test_a_folder(tmp_path: Path) -> None:
    assert message(lambda: read_proto(tmp_path)) == f"{tmp_path}: cannot be read (Is a directory)"


def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.touch()
    assert message(lambda: read_proto(path)) == f"{path}: not an ONNX model (it holds no graph)"


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file(tmp_path: Path, part: float) -> None:
    path = tmp_path / "m.onnx"
    data = model(PRODUCT, w=floats(64, 64)).SerializeToString()
    path.write_bytes(data[: int(len(data) * part)])
    assert message(lambda: read_proto(path)).startswith(f"{path}: not an ONNX model")


@pytest.mark.parametrize("data", [b"\x00\x01\x02", b"PK\x03\x04" * 40, b"import torch\n", b"\x89PNG\r\n\x1a\n" * 9])
def test_other_files(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    assert message(lambda: read_proto(path)).startswith(f"{path}: not an ONNX model")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "g (float[2] x) => (float[2] y) { [n] y = Reluu(x) }",
            "node 'n': opset 17 has no operator 'Reluu' (did you mean 'Relu'?)",
        ),
        ("g (float[2] x) => (float[2] y) { y = Gelu(x) }", "the node that makes 'y': opset 17 has no operator 'Gelu'"),
        (
            "g (float[2] x) => (float[2] y) { y = ai.onnx.ml.Scaler(x) }",
            "the node that makes 'y' is Scaler of domain 'ai.onnx.ml', which the model does not import",
        ),
    ],
)
def test_operators_that_do_not_exist(text: str, expected: str) -> None:
    assert message(lambda: load(model(text))) == f"the model: {expected}"


def test_no_opset_and_a_future_one() -> None:
    proto = model("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    proto.opset_import[0].version = 999
    assert "opset 999 is newer than onnx" in message(lambda: load(proto))
    del proto.opset_import[:]
    assert message(lambda: load(proto)) == "the model: the model imports no opset; set opset_import"


def test_external_data_is_read(tmp_path: Path) -> None:
    path = external(tmp_path)
    x = floats(3, 64)
    same(run(onnx.load(path), x=x), run(model(PRODUCT, w=floats(64, 64)), x=x))
    assert optimize(path).check.status == "equal"


def test_missing_external_data(tmp_path: Path) -> None:
    path = external(tmp_path)
    (tmp_path / "m.bin").unlink()
    expected = f"tensor 'w': external data {tmp_path / 'm.bin'} cannot be read (No such file or directory)"
    assert message(lambda: optimize(path)) == expected


def test_short_external_data(tmp_path: Path) -> None:
    path = external(tmp_path)
    (tmp_path / "m.bin").write_bytes(b"\0" * 100)
    assert message(lambda: optimize(path)) == f"tensor 'w': external data {tmp_path / 'm.bin'} ends before byte 16384"


@pytest.mark.parametrize("location", ["../m.bin", "/etc/passwd", "a/../../m.bin"])
def test_external_data_outside_the_folder(tmp_path: Path, location: str) -> None:
    path = external(tmp_path)
    proto = onnx.load(path, load_external_data=False)
    proto.graph.initializer[0].external_data[0].value = location
    path.write_bytes(proto.SerializeToString())
    assert (
        message(lambda: optimize(path)) == f"tensor 'w': its external data '{location}' lies outside the model's folder"
    )


def test_external_data_that_links_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    path = external(tmp_path / "inside")
    (tmp_path / "inside" / "m.bin").rename(tmp_path / "m.bin")
    (tmp_path / "inside" / "m.bin").symlink_to(tmp_path / "m.bin")
    assert message(lambda: optimize(path)) == "tensor 'w': its external data 'm.bin' links out of the model's folder"
    (tmp_path / "inside" / "below").mkdir()
    (tmp_path / "m.bin").rename(tmp_path / "inside" / "below" / "m.bin")
    (tmp_path / "inside" / "m.bin").unlink()
    (tmp_path / "inside" / "m.bin").symlink_to(Path("below", "m.bin"))
    assert optimize(path).exit_code == 0


def test_a_cache_that_links_to_model_and_data_in_one_folder(tmp_path: Path) -> None:
    for folder in ("blobs", "snapshot"):
        (tmp_path / folder).mkdir()
    path = external(tmp_path / "blobs")
    for name, blob in (("m.onnx", "1f"), ("m.bin", "2e")):
        (path.parent / name).rename(path.parent / blob)
        (tmp_path / "snapshot" / name).symlink_to(path.parent / blob)
    assert optimize(tmp_path / "snapshot" / "m.onnx").exit_code == 0


def test_an_external_data_offset_that_is_no_number(tmp_path: Path) -> None:
    path = external(tmp_path)
    proto = onnx.load(path, load_external_data=False)
    tensor = proto.graph.initializer[0]
    del tensor.external_data[:]
    for key, value in (("location", "m.bin"), ("offset", "many")):
        tensor.external_data.add(key=key, value=value)
    path.write_bytes(proto.SerializeToString())
    assert (
        message(lambda: optimize(path)) == "tensor 'w': the offset of its external data is 'many', no number of bytes"
    )


def test_writing(tmp_path: Path) -> None:
    proto = model(PRODUCT, w=floats(64, 64))
    write_proto(proto, tmp_path / "a.onnx", external=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.onnx", "a.onnx.data"]
    assert (
        onnx.numpy_helper.to_array(onnx.load(tmp_path / "a.onnx").graph.initializer[0]).tolist()
        == floats(64, 64).tolist()
    )
    assert proto.graph.initializer[0].raw_data  # what was given is as it was
    assert np.prod((tmp_path / "a.onnx.data").stat().st_size) == 64 * 64 * 4


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    proto = model(PRODUCT, w=floats(64, 64))
    missing = tmp_path / "no" / "m.onnx"
    assert (
        message(lambda: check_writable(missing))
        == f"{missing}: cannot be written (there is no folder {missing.parent})"
    )
    assert message(lambda: check_writable(tmp_path)) == f"{tmp_path}: cannot be written (it is a folder)"
    assert message(lambda: write_proto(proto, missing)).startswith(f"{missing}: cannot be written")
    (tmp_path / "dir.onnx").mkdir()
    assert message(lambda: write_proto(proto, tmp_path / "dir.onnx")).startswith(
        f"{tmp_path / 'dir.onnx'}: cannot be written"
    )
    assert [p.name for p in tmp_path.iterdir()] == ["dir.onnx"]
