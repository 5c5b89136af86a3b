"""Model files: reading with clear errors, writing without ever leaving half a file."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError, EncodeError
from onnx import AttributeProto, TensorProto

from surgeon_passes.errors import ModelError
from surgeon_passes.model.constants import element_bits, external_number, map_external
from surgeon_passes.model.nested import every_node, graphs_in
from surgeon_passes.ops.schema import STANDARD, domain_of, opsets_of, schema, suggest

LIMIT = 1_900_000_000
"""Bytes of weights above which a file is written with external data (protobuf's own limit is 2 GiB)."""
ALIGNMENT = 4096


def read_proto(path: str | os.PathLike[str]) -> onnx.ModelProto:
    """Parse an .onnx file; external data is left where it is.

    Raises ModelError: not a file, not readable, not ONNX, no graph, no opset.
    """
    name = os.fspath(path)
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ModelError(f"{name}: cannot be read ({error.strerror or error})") from None
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError:
        raise ModelError(f"{name}: not an ONNX model, or cut short (protobuf cannot decode it)") from None
    check_proto(proto, name)
    return proto


def check_proto(proto: onnx.ModelProto, name: str) -> None:
    """Raise ModelError where ``proto`` lacks a graph or an opset, or has a standard operator that its opset lacks."""
    if not proto.HasField("graph") or not (proto.graph.node or proto.graph.output):
        raise ModelError(f"{name}: not an ONNX model (it holds no graph)")
    if not proto.opset_import:
        raise ModelError(f"{name}: the model imports no opset; set opset_import")
    for tensor in all_tensors(proto):
        _check_tensor(tensor, name)
    newest = onnx.defs.onnx_opset_version()
    opsets = opsets_of(proto.opset_import)
    if opsets.get("", 0) > newest:
        raise ModelError(
            f"{name}: opset {opsets['']} is newer than onnx {onnx.__version__} knows ({newest}); update onnx"
        )
    functions = {(domain_of(f.domain), f.name) for f in proto.functions}
    _check_nodes(proto.graph.node, opsets, functions, name)
    for function in proto.functions:
        _check_nodes(function.node, opsets_of(function.opset_import), functions, name)


def _check_tensor(tensor: TensorProto, name: str) -> None:
    """Raise ModelError where a tensor's dims and its bytes do not fit together."""
    label = f"{name}: tensor '{tensor.name}'"
    count = 1
    for dim in tensor.dims:
        if dim < 0:
            raise ModelError(f"{label} has a dim of {dim}")
        count *= dim
    if tensor.data_type == TensorProto.STRING or tensor.data_location == TensorProto.EXTERNAL:
        return
    if tensor.HasField("raw_data"):
        bits = element_bits(tensor.data_type)
        if (count * bits + 7) // 8 != len(tensor.raw_data):
            raise ModelError(f"{label}: dims {list(tensor.dims)} do not fit its {len(tensor.raw_data)} bytes")


def _check_nodes(
    nodes: Iterable[onnx.NodeProto], opsets: dict[str, int], functions: set[tuple[str, str]], name: str
) -> None:
    for node in every_node(nodes):
        domain = domain_of(node.domain)
        if domain in STANDARD and (domain, node.op_type) not in functions:
            _check_operator(node, domain, opsets.get(domain, 0), name)


def _check_operator(node: onnx.NodeProto, domain: str, opset: int, name: str) -> None:
    if schema(node.op_type, opset, domain) is not None:
        return
    label = f"node '{node.name}'" if node.name else f"the node that makes '{', '.join(node.output)}'"
    if not opset:
        raise ModelError(f"{name}: {label} is {node.op_type} of domain '{domain}', which the model does not import")
    close = suggest(node.op_type, domain)
    hint = f" (did you mean '{close}'?)" if close and close != node.op_type else ""
    where = f"opset {opset}" if domain == "" else f"{domain} opset {opset}"
    raise ModelError(f"{name}: {label}: {where} has no operator '{node.op_type}'{hint}")


# --- writing -------------------------------------------------------------------------------------------------------------


def write_proto(proto: onnx.ModelProto, path: str | os.PathLike[str], folder: str = "", external: bool = False) -> None:
    """Write a model; with ``external`` (or beyond protobuf's limit) its weights go to ``<path>.data`` beside it.

    ``folder`` is where external data that ``proto`` refers to lies now. Files are written under other names in the same
    folder and renamed at the end. Raises ModelError where the folder cannot be written.
    """
    target = Path(path)
    if not external and weight_bytes(proto) <= LIMIT:
        inline_external(proto, folder)
        _replace(target, lambda temporary: temporary.write_bytes(_encode(proto, target)))
        return
    data = target.with_name(target.name + ".data")
    slim = onnx.ModelProto()
    slim.CopyFrom(proto)
    _replace(data, lambda temporary: _write_external(slim, temporary, data.name, folder))
    _replace(target, lambda temporary: temporary.write_bytes(_encode(slim, target)))


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file under another name and rename it. Raises ModelError where that cannot be."""
    _replace(Path(path), lambda temporary: temporary.write_bytes(data))


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise ModelError, before any work is done, where a file cannot be written."""
    target = Path(path)
    folder = target.parent
    if target.is_dir():
        raise ModelError(f"{target}: cannot be written (it is a folder)")
    if target.exists() and not target.is_file():
        raise ModelError(f"{target}: cannot be written (it is no regular file)")
    if not folder.is_dir():
        raise ModelError(f"{target}: cannot be written (there is no folder {folder})")
    if target.exists() and not os.access(target, os.W_OK):
        raise ModelError(f"{target}: cannot be written (permission denied)")
    _replace(target, lambda temporary: temporary.write_bytes(b""), keep=False)


def _encode(proto: onnx.ModelProto, path: Path) -> bytes:
    try:
        return bytes(proto.SerializeToString(deterministic=True))
    except (EncodeError, ValueError) as error:
        raise ModelError(f"{path}: cannot be encoded ({error})") from None


def _replace(target: Path, write: Callable[[Path], object], keep: bool = True) -> None:
    """Write beside ``target`` under another name and rename; without ``keep`` only see whether that can be."""
    if target.exists() and not target.is_file():
        raise ModelError(f"{target}: cannot be written (it is no regular file)")
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        write(temporary)
        if keep:
            os.replace(temporary, target)
    except OSError as error:
        raise ModelError(f"{target}: cannot be written ({error.strerror or error})") from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _write_external(proto: onnx.ModelProto, path: Path, location: str, folder: str) -> None:
    with path.open("wb") as stream:
        for tensor in all_tensors(proto):
            if not _worth_moving(tensor):
                _inline(tensor, folder)
                continue
            stream.write(b"\0" * (-stream.tell() % ALIGNMENT))
            offset = stream.tell()
            if tensor.data_location == TensorProto.EXTERNAL:
                stream.write(np.ascontiguousarray(map_external(tensor, folder)).tobytes())
            else:
                stream.write(tensor.raw_data)
                tensor.ClearField("raw_data")
            _point(tensor, location, offset, stream.tell() - offset)


def _worth_moving(tensor: TensorProto) -> bool:
    if tensor.data_location == TensorProto.EXTERNAL:
        return external_number(tensor, "length", 1024) >= 1024
    return len(tensor.raw_data) >= 1024


def _point(tensor: TensorProto, location: str, offset: int, length: int) -> None:
    tensor.data_location = TensorProto.EXTERNAL
    del tensor.external_data[:]
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, str(value)


def _inline(tensor: TensorProto, folder: str) -> None:
    if tensor.data_location == TensorProto.EXTERNAL:
        array = map_external(tensor, folder)
        tensor.raw_data = onnx.numpy_helper.from_array(np.ascontiguousarray(array)).raw_data
        tensor.data_location = TensorProto.DEFAULT
        del tensor.external_data[:]


def inline_external(proto: onnx.ModelProto, folder: str) -> None:
    """Read external data into ``proto``. Raises ModelError naming tensor and file where it is missing or short."""
    for tensor in all_tensors(proto):
        _inline(tensor, folder)


def weight_bytes(proto: onnx.ModelProto) -> int:
    """Bytes of all tensors, external ones included."""
    total = 0
    for tensor in all_tensors(proto):
        external = tensor.data_location == TensorProto.EXTERNAL
        total += external_number(tensor, "length", 0) if external else tensor.ByteSize()
    return total


def all_tensors(proto: onnx.ModelProto) -> Iterator[TensorProto]:
    """Every initializer and tensor attribute, in bodies and functions too."""
    yield from _graph_tensors(proto.graph)
    for function in proto.functions:
        for node in function.node:
            yield from _node_tensors(node)


def _graph_tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        yield from _node_tensors(node)


def _node_tensors(node: onnx.NodeProto) -> Iterator[TensorProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.TENSOR:
            yield attribute.t
        yield from attribute.tensors
        for graph in graphs_in(attribute):
            yield from _graph_tensors(graph)
