"""Models of many regions side by side, each under its own prefix."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_graphsurgeon as gs
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from surgeon_passes.model.constants import array_of
from surgeon_passes.model.export import function_protos, node_proto, tensor_proto
from surgeon_passes.model.nested import bodies
from surgeon_passes.ops.schema import STANDARD, is_microsoft
from surgeon_passes.region import NodeImage, TensorType, Types
from surgeon_passes.runtime import Array, external_stub
from surgeon_passes.verify.bounds import HALF, elem_type
from surgeon_passes.verify.sides import Sides, Unfit, captured, inner_nodes, loop_counts

_EXTERNAL_BYTES = 1 << 16
_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype")
_VIA_FLOAT = frozenset(
    {TensorProto.BFLOAT16}
    | {v for k, v in TensorProto.DataType.items() if k.startswith(("FLOAT8", "FLOAT4"))}
)  # fmt: skip
_CASTS = ("Cast", "CastLike")
_FED = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16)
_VIA_INT: dict[int, int] = {TensorProto.INT4: TensorProto.INT8, TensorProto.UINT4: TensorProto.UINT8}


@dataclass(eq=False, slots=True)
class Piece:
    """One region as it goes into a model. ``wide``: half precision is computed in float32."""

    number: int
    sides: Sides
    wide: bool
    feed_types: list[int]
    """element types in which boundary inputs are fed"""
    real_types: list[int]
    outputs: list[tuple[str, str]] = field(default_factory=list)
    """names of the values to compare, before and after"""
    casts: list[int] = field(default_factory=list)
    """per output the type to which it is cast because numpy lacks its own, or 0"""
    rounding: set[int] = field(default_factory=set)
    """ids of the Casts to half precision"""
    trips: dict[str, Array] = field(default_factory=dict)
    """trip counts of loops, by the names under which they are fed: not every run needs all turns"""

    prefix: str = field(init=False, default="")
    """of every name in the model"""

    def __post_init__(self) -> None:
        self.prefix = f"r{self.number}~"

    def input_name(self, position: int) -> str:
        via = "f" if self.feed_types[position] != self.real_types[position] else ""
        return f"{self.prefix}i{position}{via}"

    def constant_arrays(self, names: Container[str]) -> dict[str, Array]:
        """Arrays of the constants called ``names``, in the precision in which they are fed."""
        found: dict[str, Array] = {}
        for position, constant in enumerate(self.sides.constants):
            name = f"{self.prefix}k{position}"
            if name in names:
                array = array_of(constant)
                found[name] = array.astype(np.float32) if self.wide and array.dtype == np.float16 else array
        return found


def piece_of(number: int, sides: Sides, wide: bool, types: Types) -> Piece:
    """Raises Unfit where a boundary tensor is of a kind that cannot be made up."""
    real = [_input_type(t, found, wide) for t, found in zip(sides.inputs, sides.input_types, strict=True)]
    piece = Piece(number, sides, wide, [_fed_as(dtype) for dtype in real], real)
    for place, (before, after) in enumerate(sides.region.outputs):
        dtype = types.type_of(before).dtype or types.type_of(after).dtype or 0
        cast = 0 if (wide and dtype in HALF) or _fed_as(dtype) == dtype else _fed_as(dtype)
        piece.casts.append(cast)
        first = _output_name(piece, sides.names[0][id(before)], "b", place)
        piece.outputs.append((first, _output_name(piece, sides.names[1][id(after)], "a", place)))
    casts = (image.node for image in sides.images() if image.node.op in _CASTS and not wide)
    piece.rounding = {id(node) for node in casts if types.type_of(node.outputs[0]).dtype in HALF}
    counts = loop_counts(sides)
    piece.trips = {f"{piece.prefix}k{n}": array_of(c) for n, c in enumerate(sides.constants) if id(c) in counts}
    return piece


def _output_name(piece: Piece, local: str, side: str, place: int) -> str:
    """The produced tensor itself, or a name of its own where an Identity or Cast must make it."""
    return f"{piece.prefix}o{place}{side}" if piece.casts[place] or local[0] != side else piece.prefix + local


def _input_type(tensor: gs.Tensor, found: TensorType, wide: bool) -> int:
    if found.kind != "tensor":
        raise Unfit(f"'{tensor.name}' is a {found.kind}, which is not made up")
    if found.dtype is None:
        raise Unfit(f"the element type of '{tensor.name}' is unknown")
    return int(TensorProto.FLOAT) if wide and found.dtype in HALF else int(found.dtype)


def _fed_as(dtype: int) -> int:
    return int(TensorProto.FLOAT) if dtype in _VIA_FLOAT else int(_VIA_INT.get(dtype, dtype))


@dataclass(eq=False, slots=True)
class Assembly:
    model: ModelProto
    external: dict[str, Array]
    outputs: list[str]


def assemble(
    pieces: Iterable[Piece], graph: gs.Graph, sides: Sequence[int] = (0, 1), fed_constants: bool = False
) -> Assembly:
    """One model of ``pieces``: side 0 is before, side 1 after.

    ``fed_constants`` makes float constants inputs, by their names. Local functions come along where a piece calls one.
    """
    pieces = list(pieces)
    model = ModelProto(ir_version=max(graph.ir_version or 8, 8))
    model.graph.name = "regions"
    made = Assembly(model, {}, [])
    opsets: dict[str, int] = {}
    needs_functions = False
    functions = {(f.domain or "", f.name) for f in graph.functions}
    for piece in pieces:
        opsets.update(piece.sides.region.scope.opsets)
        _add_boundary(piece, made, fed_constants)
        for side in sides:
            _add_side(piece, side, made)
        needs_functions = needs_functions or (bool(functions) and calls_function(piece.sides, functions))
    if needs_functions:
        _add_functions(model, graph, opsets)
    model.opset_import.extend(helper.make_opsetid(domain, version) for domain, version in opsets.items())
    return made


def calls_function(sides: Sides, functions: set[tuple[str, str]]) -> bool:
    """Whether a node of the region, or of a body in it, is a call of a local function."""
    return any(
        (node.domain or "", node.op) in functions
        for image in sides.images()
        for node in (image.node, *inner_nodes(image.node))
    )


def unknown_operators(images: Iterable[NodeImage], graph: gs.Graph) -> list[str]:
    """Operators of custom domains for which no function stands: ONNX Runtime may not know them."""
    functions = {(f.domain or "", f.name) for f in graph.functions}
    nodes = [node for image in images for node in (image.node, *inner_nodes(image.node))]
    named = {(node.domain or "", node.op) for node in nodes} - functions
    return [f"{domain}.{op}" for domain, op in sorted(named) if domain not in STANDARD and not is_microsoft(domain)]


def _add_functions(model: ModelProto, graph: gs.Graph, opsets: dict[str, int]) -> None:
    for function in function_protos(graph):
        model.functions.append(function)
        opsets.setdefault(function.domain, 1)
        for entry in function.opset_import:
            opsets.setdefault("" if entry.domain == "ai.onnx" else entry.domain, entry.version)


def _add_boundary(piece: Piece, made: Assembly, fed_constants: bool) -> None:
    graph = made.model.graph
    for position, found in enumerate(piece.sides.input_types):
        name = piece.input_name(position)
        rank = None if piece.sides.has_bodies else found.rank  # a branch that is not taken may contradict it
        kind = graph.input.add(name=name).type.tensor_type
        kind.elem_type = piece.feed_types[position]
        if rank is not None:
            kind.shape.SetInParent()
            for _ in range(rank):
                kind.shape.dim.add()
        if piece.feed_types[position] != piece.real_types[position]:
            graph.node.append(
                helper.make_node("Cast", [name], [f"{piece.prefix}i{position}"], to=piece.real_types[position])
            )
    for position, constant in enumerate(piece.sides.constants):
        name = f"{piece.prefix}k{position}"
        dtype = elem_type(constant)
        if name in piece.trips:
            graph.input.append(helper.make_tensor_value_info(name, dtype, list(constant.shape)))
        elif fed_constants and dtype in _FED:
            fed = TensorProto.FLOAT if piece.wide and dtype in HALF else dtype
            graph.input.append(helper.make_tensor_value_info(name, fed, list(constant.shape)))
        else:
            _add_constant(piece, constant, name, dtype, made)


def _add_constant(piece: Piece, constant: gs.Constant, name: str, dtype: int, made: Assembly) -> None:
    graph = made.model.graph
    if piece.wide and dtype in HALF:
        graph.initializer.append(numpy_helper.from_array(array_of(constant).astype(np.float32), name))
        return
    plain = dtype not in _VIA_FLOAT and dtype not in _VIA_INT and dtype != TensorProto.STRING
    array = array_of(constant) if plain else None
    if array is not None and array.nbytes >= _EXTERNAL_BYTES:
        graph.initializer.append(external_stub(name, array.shape, dtype))
        made.external[name] = array
    elif array is not None:
        data = np.ascontiguousarray(array).tobytes()
        graph.initializer.add(name=name, dims=array.shape, data_type=dtype, raw_data=data)
    else:
        graph.initializer.append(tensor_proto(constant, name))


def _add_side(piece: Piece, side: int, made: Assembly) -> None:
    sides, graph = piece.sides, made.model.graph
    names = sides.names[side]
    for number, image in enumerate(sides.after if side else sides.before):
        node = _node(piece, image, names, f"{piece.prefix}{'ba'[side]}n{number}")
        graph.node.extend(_rounded(node) if id(image.node) in piece.rounding else [node])
    listed = set(made.outputs)
    for pair, wanted, cast in zip(sides.region.outputs, piece.outputs, piece.casts, strict=True):
        made_by_node, name = piece.prefix + names[id(pair[side])], wanted[side]
        if cast:
            graph.node.append(helper.make_node("Cast", [made_by_node], [name], to=cast))
        elif name != made_by_node:
            graph.node.append(helper.make_node("Identity", [made_by_node], [name]))
        if name not in listed:
            listed.add(name)
            made.outputs.append(name)
            graph.output.append(ValueInfoProto(name=name))


def _rounded(cast: NodeProto) -> list[NodeProto]:
    """A Cast to half precision with an Identity behind it: else ONNX Runtime, which computes half precision in float32
    where it has no kernel, hands the number on as it was before the Cast."""
    name = cast.output[0]
    cast.output[0] = f"{name}~half"
    return [cast, helper.make_node("Identity", [cast.output[0]], [name])]


def _node(piece: Piece, image: NodeImage, names: dict[int, str], label: str) -> NodeProto:
    scope = piece.sides.region.scope
    has_bodies = piece.sides.has_bodies
    rename = _body_rename(piece, captured(image.node), names) if has_bodies else None
    proto = node_proto(image.node, (), (), rename, scope.opset(image.node.domain or ""))
    proto.name = label
    proto.input.extend(piece.prefix + names[id(t)] if t.name else "" for t in image.inputs)
    proto.output.extend(piece.prefix + names[id(t)] if t.name else "" for t in image.outputs)
    if has_bodies:
        _unname(proto)
        proto.name = label
    if piece.wide:
        _widen(proto)
    return proto


def _body_rename(piece: Piece, outside: Sequence[gs.Tensor], names: dict[int, str]) -> Callable[[str], str]:
    mapping: dict[str, str] = {}
    for tensor in outside:
        local = piece.prefix + names[id(tensor)]
        if mapping.setdefault(tensor.name, local) != local:
            raise Unfit(f"two tensors named '{tensor.name}' are read by one node's bodies")
    return lambda name: mapping.get(name, name)


def _unname(node: NodeProto) -> None:
    """Take the names off inner nodes: two sides side by side must not share them."""
    node.name = ""
    for graph in bodies(node):
        for inner in graph.node:
            _unname(inner)


def _widen(node: NodeProto) -> None:
    """Half precision becomes float32: casts, element types, tensors in attributes, bodies."""
    for attribute in node.attribute:
        if attribute.name in _TYPE_ATTRIBUTES and attribute.type == AttributeProto.INT and attribute.i in HALF:
            attribute.i = TensorProto.FLOAT
        if attribute.type == AttributeProto.TENSOR and attribute.t.data_type in HALF:
            attribute.t.CopyFrom(_wide_tensor(attribute.t))
    for graph in bodies(node):
        for tensor in graph.initializer:
            if tensor.data_type in HALF:
                tensor.CopyFrom(_wide_tensor(tensor))
        for value in (*graph.input, *graph.output, *graph.value_info):
            if value.type.tensor_type.elem_type in HALF:
                value.type.tensor_type.elem_type = TensorProto.FLOAT
        for inner in graph.node:
            _widen(inner)


def _wide_tensor(tensor: TensorProto) -> TensorProto:
    return numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name)
