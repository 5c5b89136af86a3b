"""The wire format of a ModelProto, as far as it takes to leave large weights in their file and to write them there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto

from surgeon_passes.model.fields import copy_fields

Buffer = Any
"""bytes, a memoryview or a mapping: indexing gives ints, slicing something like bytes"""

LARGE = 1 << 16
"""Bytes from which weights are referred to, not copied."""

_MODEL_GRAPH, _GRAPH_INITIALIZER = 7, 5
_TENSOR_RAW, _TENSOR_EXTERNAL, _TENSOR_LOCATION = 9, 13, 14
_OUTSIDE = (_TENSOR_EXTERNAL, _TENSOR_LOCATION)
_BYTES = 2
"""wire type of what has a length"""

PLAIN = frozenset(
    {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.BOOL}
    | {TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64}
    | {TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64}
)
"""Element types whose raw data is an array's memory."""


@dataclass(frozen=True, slots=True)
class _Field:
    number: int
    kind: int
    start: int
    """where its tag begins"""
    inside: int
    """where its content begins"""
    end: int


def with_references(data: Buffer, location: str) -> bytes:
    """A serialised ModelProto without the bytes of its large initializers, which refer to ``location`` instead.

    ``data`` is the file ``location`` itself. Everything else is as it was. Raises DecodeError for what is no message.
    """
    parts: list[bytes] = []
    done = 0
    for field in _fields(data, 0, len(data)):
        if field.number == _MODEL_GRAPH and field.kind == _BYTES and field.end - field.inside >= LARGE:
            graph = b"".join(_graph(data, field, location))
            parts += [bytes(data[done : field.start]), _head(_MODEL_GRAPH, len(graph)), graph]
            done = field.end
    return b"".join([*parts, bytes(data[done:])])


def _graph(data: Buffer, graph: _Field, location: str) -> Iterator[bytes]:
    done = graph.inside
    for field in _fields(data, graph.inside, graph.end):
        if field.number == _GRAPH_INITIALIZER and field.end - field.inside >= LARGE and field.kind == _BYTES:
            tensor = _reference(data, field, location)
            if tensor is not None:
                yield bytes(data[done : field.start])
                yield _head(_GRAPH_INITIALIZER, len(tensor)) + tensor
                done = field.end
    yield bytes(data[done : graph.end])


def _reference(data: Buffer, tensor: _Field, location: str) -> bytes | None:
    """The tensor with its raw data outside; None for one that has none, or of elements that share bytes."""
    fields = list(_fields(data, tensor.inside, tensor.end))
    raw = [f for f in fields if f.number == _TENSOR_RAW and f.kind == _BYTES]
    if len(raw) != 1 or raw[0].end - raw[0].inside < LARGE:
        return None
    proto = TensorProto()
    proto.ParseFromString(b"".join(bytes(data[f.start : f.end]) for f in fields if f is not raw[0]))
    if proto.data_type not in PLAIN or proto.external_data or proto.HasField("data_location"):
        return None
    point(proto, location, raw[0].inside, raw[0].end - raw[0].inside)
    return bytes(proto.SerializeToString())


def _fields(data: Buffer, start: int, end: int) -> Iterator[_Field]:
    """Fields of a message in the file's order. Raises DecodeError where they do not fit into it."""
    at = start
    while at < end:
        tag, inside = _varint(data, at, end)
        kind = tag & 7
        if kind == _BYTES:
            length, inside = _varint(data, inside, end)
            stop = inside + length
        elif kind == 0:
            _, stop = _varint(data, inside, end)
        elif kind in (1, 5):
            stop = inside + (8 if kind == 1 else 4)
        else:
            raise DecodeError(f"wire type {kind}")
        if stop > end or tag < 8:
            raise DecodeError("cut short")
        yield _Field(tag >> 3, kind, at, inside, stop)
        at = stop


def _varint(data: Buffer, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise DecodeError("cut short")


def _encoded(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _head(number: int, length: int) -> bytes:
    return _encoded(number << 3 | _BYTES) + _encoded(length)


def point(tensor: TensorProto, location: str, offset: int, length: int) -> None:
    """Let ``tensor`` refer to bytes of a file in place of its own."""
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    del tensor.external_data[:]
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))


# --- writing -------------------------------------------------------------------------------------------------------------


def pieces(proto: onnx.ModelProto, lengths: Mapping[int, int], raw: Callable[[int], Any]) -> Iterator[Any]:
    """The serialised model piece by piece: bytes, and what ``raw`` gives for initializers of the main graph, by place.

    Those in ``lengths``, which says how many bytes that are, are written inline, whatever they refer to. Joined, the
    pieces are what protobuf would write.
    """
    graph = list(_graph_pieces(proto.graph, lengths))
    size = sum(lengths[piece] if isinstance(piece, int) else len(piece) for piece in graph)
    yield _part(proto, lambda number: number < _MODEL_GRAPH) + _head(_MODEL_GRAPH, size)
    for piece in graph:
        yield raw(piece) if isinstance(piece, int) else piece
    yield _part(proto, lambda number: number > _MODEL_GRAPH)


def _graph_pieces(graph: onnx.GraphProto, lengths: Mapping[int, int]) -> Iterator[bytes | int]:
    """Bytes, and places of initializers where their raw data stands."""
    yield _part(graph, lambda number: number < _GRAPH_INITIALIZER)
    for place, tensor in enumerate(graph.initializer):
        if place not in lengths:
            whole = tensor.SerializeToString(deterministic=True)
            yield _head(_GRAPH_INITIALIZER, len(whole)) + whole
            continue
        before = _part(tensor, lambda number: number < _TENSOR_RAW) + _head(_TENSOR_RAW, lengths[place])
        after = _part(tensor, lambda number: number > _TENSOR_RAW and number not in _OUTSIDE)
        yield _head(_GRAPH_INITIALIZER, len(before) + lengths[place] + len(after)) + before
        yield place
        yield after
    yield _part(graph, lambda number: number > _GRAPH_INITIALIZER)


def _part(message: Any, wanted: Callable[[int], bool]) -> bytes:
    """The serialised fields of those numbers."""
    found = type(message)()
    copy_fields(message, found, lambda field: wanted(field.number))
    return bytes(found.SerializeToString(deterministic=True))
