"""Model files: reading with clear errors, writing without ever leaving half a file."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError, EncodeError
from onnx import AttributeProto, TensorProto

from surgeon_passes.errors import ModelError
from surgeon_passes.model.elements import element_bits, raw_bytes
from surgeon_passes.model.nested import every_node, graphs_in
from surgeon_passes.model.text import check_text
from surgeon_passes.model.weights import Weights, external_number
from surgeon_passes.model.wire import pieces, point, with_references
from surgeon_passes.ops.schema import STANDARD, domain_of, opsets_of, schema, suggest

LIMIT = 1_900_000_000
"""Bytes of weights above which a file is written with external data (protobuf's own limit is 2 GiB)."""
ALIGNMENT = 4096
MAPPED_FROM = 1 << 25
"""Bytes of a file from which its large weights stay there."""


def read_model(path: str | os.PathLike[str]) -> tuple[onnx.ModelProto, Weights]:
    """Parse an .onnx file; external data is left where it is, and so are the large weights of a large file.

    What its tensors refer to, the second result finds. Raises ModelError as :func:`read_proto` does.
    """
    name = os.fspath(path)
    weights = Weights(os.path.dirname(os.path.abspath(name)))
    weights.home = os.path.dirname(os.path.realpath(name))
    try:
        if os.path.getsize(name) < MAPPED_FROM or not os.path.isfile(name):
            return read_proto(path), weights
        data = weights.map_own(name).data
    except OSError as error:
        raise ModelError(f"{name}: cannot be read ({error.strerror or error})") from None
    return _parsed(lambda: with_references(data, weights.own), name, weights), weights


def read_proto(path: str | os.PathLike[str]) -> onnx.ModelProto:
    """Parse an .onnx file; external data is left where it is.

    Raises ModelError: not a file, not readable, not ONNX, no graph, no opset.
    """
    name = os.fspath(path)
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ModelError(f"{name}: cannot be read ({error.strerror or error})") from None
    return _parsed(lambda: data, name, Weights())


def _parsed(data: Callable[[], bytes], name: str, weights: Weights) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data())
    except DecodeError:
        raise ModelError(
            f"{name}: not an ONNX model, cut short, or nested too deep (protobuf cannot decode it)"
        ) from None
    check_proto(proto, name, weights)
    return proto


def check_proto(proto: onnx.ModelProto, name: str, weights: Weights | None = None) -> None:
    """Raise ModelError where ``proto`` lacks a graph or an opset, or has a standard operator that its opset lacks."""
    if not proto.HasField("graph") or not (proto.graph.node or proto.graph.output):
        raise ModelError(f"{name}: not an ONNX model (it holds no graph)")
    check_text(proto, name)
    if not proto.graph.output:
        raise ModelError(f"{name}: the graph has no outputs: it computes nothing")
    for value in (*proto.graph.input, *proto.graph.output):
        if value.type.tensor_type.elem_type:
            _check_type(value, name)
    if not proto.opset_import:
        raise ModelError(f"{name}: the model imports no opset; set opset_import")
    for tensor in all_tensors(proto):
        _check_tensor(tensor, name, weights)
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


def _check_type(value: onnx.ValueInfoProto, name: str) -> None:
    try:
        element_bits(value.type.tensor_type.elem_type)
    except ModelError as error:
        raise ModelError(f"{name}: '{value.name}': {error}") from None


def _check_tensor(tensor: TensorProto, name: str, weights: Weights | None) -> None:
    """Raise ModelError where a tensor's dims and its bytes do not fit together."""
    label = f"{name}: tensor '{tensor.name}'"
    for dim in tensor.dims:
        if dim < 0:
            raise ModelError(f"{label} has a dim of {dim}")
    if tensor.data_type == TensorProto.STRING:
        return
    if tensor.data_location == TensorProto.EXTERNAL:
        if weights is None or weights.is_external(tensor):
            return
        length = external_number(tensor, "length", 0)
    elif tensor.HasField("raw_data"):
        length = len(tensor.raw_data)
    else:
        return
    if raw_bytes(tensor) != length:
        raise ModelError(f"{label}: dims {list(tensor.dims)} do not fit its {length} bytes")


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

Job = tuple[Path, Callable[[Path], object]]


def write_proto(
    proto: onnx.ModelProto, path: str | os.PathLike[str], folder: str | Weights = "", external: bool = False
) -> None:
    """Write a model; with ``external`` (or beyond protobuf's limit) its weights go to ``<path>.data`` beside it.

    ``folder`` is where external data that ``proto`` refers to lies now, or what finds it. Weights are copied from file to
    file, one after the other. Files are written under other names in the same folder and renamed at the end. Raises
    ModelError where the folder cannot be written.
    """
    target, weights = Path(path), Weights.of(folder)
    external = external or weight_bytes(proto) > LIMIT
    if not external and not any(t.data_location == TensorProto.EXTERNAL for t in all_tensors(proto)):
        _replace((target, lambda temporary: temporary.write_bytes(_encode(proto, target))))
        return
    slim = onnx.ModelProto()
    slim.CopyFrom(proto)
    if not external:
        for tensor in _inner_tensors(slim):
            _inline(tensor, weights)
        _replace((target, lambda temporary: _write_inline(slim, temporary, weights)))
        return
    data = target.with_name(target.name + ".data")
    _replace(
        (data, lambda temporary: _write_external(slim, temporary, data.name, weights)),
        (target, lambda temporary: temporary.write_bytes(_encode(slim, target))),
    )


def digest_of_model(proto: onnx.ModelProto, weights: Weights) -> tuple[str, int]:
    """(SHA-256, bytes) of the one file that :func:`write_proto` would write; beyond protobuf's limit too, where it would
    not. Raises ModelError where weights cannot be read."""
    slim = proto
    if any(t.data_location == TensorProto.EXTERNAL for t in all_tensors(proto)):
        slim = onnx.ModelProto()
        slim.CopyFrom(proto)
        for tensor in _inner_tensors(slim):
            _inline(tensor, weights)
    found, size = hashlib.sha256(), 0
    for piece in _inline_pieces(slim, weights):
        found.update(piece)
        size += len(piece)
    return found.hexdigest(), size


def digest_of_file(path: str | os.PathLike[str]) -> tuple[str, int]:
    """(SHA-256, bytes) of a file. Raises ModelError where it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest(), os.fstat(stream.fileno()).st_size
    except OSError as error:
        raise ModelError(f"{os.fspath(path)}: cannot be read ({error.strerror or error})") from None


def stamp_of(path: str | os.PathLike[str]) -> tuple[int, int, int] | None:
    """What changes with a file (inode, bytes, nanoseconds of its last change); None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file under another name and rename it. Raises ModelError where that cannot be."""
    _replace((Path(path), lambda temporary: temporary.write_bytes(data)))


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
    _replace((target, lambda temporary: temporary.write_bytes(b"")), keep=False)


def _encode(proto: onnx.ModelProto, path: Path) -> bytes:
    try:
        return bytes(proto.SerializeToString(deterministic=True))
    except (EncodeError, ValueError) as error:
        raise ModelError(f"{path}: cannot be encoded ({error})") from None


def _replace(*jobs: Job, keep: bool = True) -> None:
    """Write each target beside it under another name, then rename all; without ``keep`` only see whether that can be."""
    written: list[tuple[Path, Path]] = []
    try:
        for target, write in jobs:
            if target.exists() and not target.is_file():
                raise ModelError(f"{target}: cannot be written (it is no regular file)")
            temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
            written.append((temporary, target))
            with _blaming(target):
                write(temporary)
        if keep:
            _rename(written)
    finally:
        for temporary, _ in written:
            with contextlib.suppress(OSError):
                temporary.unlink()


def _rename(written: list[tuple[Path, Path]]) -> None:
    """Rename all or none: the older file of each but the last keeps a second name until the last is there."""
    older: dict[Path, Path] = {}
    done: list[Path] = []
    try:
        for temporary, target in written:
            if target != written[-1][1] and target.exists():
                second = temporary.with_suffix(".old")
                with contextlib.suppress(OSError):  # a file system without links
                    os.link(target, second)
                    older[target] = second
            else:
                done.append(target)
            with _blaming(target):
                os.replace(temporary, target)
    except BaseException:
        for target, second in older.items():
            os.replace(second, target)
        for target in done[:-1]:
            target.unlink(missing_ok=True)
        raise
    finally:
        for second in older.values():
            second.unlink(missing_ok=True)


@contextlib.contextmanager
def _blaming(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ModelError(f"{target}: cannot be written ({error.strerror or error})") from None


def _write_inline(proto: onnx.ModelProto, path: Path, weights: Weights) -> None:
    """One file; initializers of the main graph are copied into it from where they lie."""
    with path.open("wb") as stream:
        for piece in _inline_pieces(proto, weights):
            stream.write(piece)


def _inline_pieces(proto: onnx.ModelProto, weights: Weights) -> Iterator[Any]:
    outside = {k: t for k, t in enumerate(proto.graph.initializer) if t.data_location == TensorProto.EXTERNAL}
    lengths = {place: raw_bytes(tensor) for place, tensor in outside.items()}
    return pieces(proto, lengths, lambda place: weights.raw(outside[place]))


def _write_external(proto: onnx.ModelProto, path: Path, location: str, weights: Weights) -> None:
    with path.open("wb") as stream:
        for tensor in all_tensors(proto):
            if not _worth_moving(tensor):
                _inline(tensor, weights)
                continue
            stream.write(b"\0" * (-stream.tell() % ALIGNMENT))
            offset = stream.tell()
            is_outside = tensor.data_location == TensorProto.EXTERNAL
            stream.write(weights.raw(tensor).data if is_outside else tensor.raw_data)
            point(tensor, location, offset, stream.tell() - offset)


def _worth_moving(tensor: TensorProto) -> bool:
    outside = tensor.data_location == TensorProto.EXTERNAL
    return (raw_bytes(tensor) if outside else len(tensor.raw_data)) >= 1024


def _inline(tensor: TensorProto, weights: Weights) -> None:
    if tensor.data_location == TensorProto.EXTERNAL:
        weights.write(tensor, tensor)


def with_inner_weights(proto: onnx.ModelProto, weights: Weights) -> onnx.ModelProto:
    """``proto`` with what ONNX Runtime must find inside: all that it refers to, but for plain initializers of the main
    graph, which can be given to it as arrays. The same object where there is nothing of that kind.

    Raises ModelError naming tensor and file where one is missing or short.
    """

    def moves(model: onnx.ModelProto) -> Iterator[TensorProto]:
        packed = (t for t in model.graph.initializer if element_bits(t.data_type) < 8)
        sparse = (part for t in model.graph.sparse_initializer for part in (t.values, t.indices))
        some = (*packed, *sparse, *_inner_tensors(model))
        return (t for t in some if t.data_location == TensorProto.EXTERNAL)

    if next(moves(proto), None) is None:
        return proto
    whole = onnx.ModelProto()
    whole.CopyFrom(proto)
    for tensor in moves(whole):
        weights.write(tensor, tensor)
    return whole


def with_weights(
    proto: onnx.ModelProto, weights: Weights, external: bool = False, in_place: bool = False
) -> onnx.ModelProto:
    """``proto`` with the weights that it refers to; what lies in other files stays there where ``external`` says so.

    The same object where it refers to nothing, or with ``in_place``. Beyond protobuf's limit what lies in a file stays
    there. Raises ModelError naming tensor and file where one is missing or short.
    """
    in_files = external or weight_bytes(proto) > LIMIT

    def moves(tensor: TensorProto) -> bool:
        stays = in_files and weights.is_in_file(tensor, external)
        return tensor.data_location == TensorProto.EXTERNAL and not stays

    if not any(map(moves, all_tensors(proto))):
        return proto
    whole = proto
    if not in_place:
        whole = onnx.ModelProto()
        whole.CopyFrom(proto)
    for tensor in filter(moves, all_tensors(whole)):
        _inline(tensor, weights)
    return whole


def weight_bytes(proto: onnx.ModelProto) -> int:
    """Bytes of all tensors, external ones included."""
    total = 0
    for tensor in all_tensors(proto):
        inside = tensor.data_location != TensorProto.EXTERNAL and not tensor.HasField("raw_data")
        total += tensor.ByteSize() if inside else raw_bytes(tensor)
    return total


def all_tensors(proto: onnx.ModelProto) -> Iterator[TensorProto]:
    """Every initializer and tensor attribute, in bodies and functions too."""
    yield from proto.graph.initializer
    yield from _inner_tensors(proto)


def _inner_tensors(proto: onnx.ModelProto) -> Iterator[TensorProto]:
    """Those that are no initializers of the main graph."""
    nodes: list[Any] = [proto.graph.node, *(function.node for function in proto.functions)]
    for node in (node for some in nodes for node in some):
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
