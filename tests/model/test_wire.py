"""The wire format: large weights stay in the file, and come out of it as protobuf would write them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper, numpy_helper

from surgeon_passes.model.wire import LARGE, pieces, with_references
from tests.models import floats, model

SIDE = 160
"""160 x 160 float32 are larger than LARGE"""
TEXT = "g (float[N,160] x) => (float[N,160] y) { a = MatMul(x, w) b = Add(a, c) y = MatMul(b, v) }"


def large(**more: Any) -> onnx.ModelProto:
    proto = model(TEXT, w=floats(SIDE, SIDE), c=floats(SIDE), v=floats(SIDE, SIDE, seed=1), **more)
    proto.graph.initializer[0].doc_string = "the first"
    proto.producer_name, proto.graph.doc_string = "someone", "what it is for"
    proto.metadata_props.add(key="a", value="b")
    return proto


def fields(tensor: TensorProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}


def parsed(data: bytes) -> onnx.ModelProto:
    return onnx.ModelProto.FromString(with_references(data, "m.onnx"))


def test_references_point_to_the_bytes() -> None:
    proto = large()
    data = proto.SerializeToString()
    light = parsed(data)
    assert [t.HasField("raw_data") for t in light.graph.initializer] == [False, True, False]
    for tensor, original in zip(light.graph.initializer, proto.graph.initializer, strict=True):
        if tensor.data_location == TensorProto.EXTERNAL:
            told = fields(tensor)
            start, length = int(told["offset"]), int(told["length"])
            assert told["location"] == "m.onnx"
            assert data[start : start + length] == original.raw_data
        assert (tensor.name, tensor.dims, tensor.doc_string) == (original.name, original.dims, original.doc_string)
    for tensor in (*light.graph.initializer, *proto.graph.initializer):
        for field in ("raw_data", "external_data", "data_location"):
            tensor.ClearField(field)  # type: ignore[arg-type]
    assert light == proto


def test_what_has_no_raw_data_of_whole_elements_stays() -> None:
    proto = large()
    kept = [
        helper.make_tensor("listed", TensorProto.FLOAT, [LARGE], np.ones(LARGE)),
        numpy_helper.from_array(np.array(["text" * 9] * 9000, dtype=object), "words"),
        TensorProto(name="packed", dims=[4 * LARGE], data_type=TensorProto.INT4, raw_data=b"\x21" * 2 * LARGE),
    ]
    proto.graph.initializer.extend(kept)
    assert list(parsed(proto.SerializeToString()).graph.initializer)[3:] == kept


def test_a_file_that_was_appended_to() -> None:
    """protobuf merges a field that stands twice; offsets are those of the whole file."""
    proto, more = large(), onnx.ModelProto()
    more.graph.initializer.append(numpy_helper.from_array(floats(SIDE, SIDE, seed=2), "u"))
    data = proto.SerializeToString() + more.SerializeToString()
    light = parsed(data)
    assert [t.name for t in light.graph.initializer] == ["w", "c", "v", "u"]
    start = int(fields(light.graph.initializer[3])["offset"])
    assert data[start : start + 4 * SIDE * SIDE] == more.graph.initializer[0].raw_data


@pytest.mark.parametrize("part", [0.001, 0.3, 0.7, 0.9999])
def test_cut_short(part: float) -> None:
    data = large().SerializeToString()
    with pytest.raises(DecodeError):
        parsed(data[: int(len(data) * part)])


@pytest.mark.parametrize("data", [b"\x0b" * 9, b"\x3a" + b"\xff" * 11, b"\x00\x01", b"\x0e\x00"])
def test_no_message(data: bytes) -> None:
    with pytest.raises(DecodeError):
        with_references(data, "m.onnx")


def test_pieces_are_what_protobuf_writes() -> None:
    proto = large(small=np.float32([1, 2]))
    proto.graph.quantization_annotation.add(tensor_name="a")
    data = proto.SerializeToString(deterministic=True)
    light = parsed(data)
    raw = {place: proto.graph.initializer[place].raw_data for place in (0, 2)}
    lengths = {place: len(value) for place, value in raw.items()}
    found = list(pieces(light, lengths, lambda place: memoryview(raw[place])))
    assert b"".join(found) == data
    assert max(len(p) for p in found if isinstance(p, bytes)) < LARGE
