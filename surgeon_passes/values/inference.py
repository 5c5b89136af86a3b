"""onnx's own shape inference: once over the whole model on a copy without large weights, and for single nodes."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from onnx import AttributeProto, numpy_helper, shape_inference

from surgeon_passes.index import GraphIndex, Scope, subgraphs
from surgeon_passes.model import Extras, Model, export_model
from surgeon_passes.model.export import SMALL, fill_type, node_proto, rename_graph
from surgeon_passes.model.nested import bodies
from surgeon_passes.ops import schema
from surgeon_passes.ops.schema import domain_of
from surgeon_passes.region import TensorType
from surgeon_passes.values.declared import declared_type
from surgeon_passes.values.dims import Dim
from surgeon_passes.values.lattice import Value
from surgeon_passes.values.names import SizeNames
from surgeon_passes.values.symbols import Poly

log = logging.getLogger(__name__)

_FAILURES = (shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError, ValueError, TypeError)


def model_types(
    index: GraphIndex, extras: Extras | None = None, names: SizeNames | None = None
) -> dict[int, TensorType]:
    """Types by id(tensor), as onnx infers them from the model's inputs and weights alone.

    Declared shapes of interior tensors, of outputs and of bodies' inputs are taken out first: they are hints, and where
    they are stale inference would repeat them. Dims that onnx invents (``unk__0``) are unknown; unnamed ones of inputs go
    by their name in ``names``.
    """
    names = names or SizeNames(index.graph)
    proto = export_model(Model(index.graph, extras or Extras()), weights="none")
    del proto.graph.value_info[:]
    held = {tensor.name for tensor in proto.graph.initializer}  # without theirs onnx reads a constant's values wrongly
    for value in proto.graph.output:
        if value.name not in held:
            _forget_shape(value)
    _lighten(proto.graph)
    _forget_defaults(proto)
    _name_inputs(index, proto.graph, names)
    _write_defaults(proto)
    _hide_open_slices(proto)
    was = _unique_names(proto.graph)
    try:
        inferred = shape_inference.infer_shapes(proto, check_type=False, strict_mode=False, data_prop=True)
    except _FAILURES as error:
        log.debug("shape inference of the whole model failed: %s", error)
        return {}
    return _collect(index, inferred.graph, was, names.symbols())


def _name_inputs(index: GraphIndex, proto: onnx.GraphProto, names: SizeNames) -> None:
    inputs = {t.name: t for t in index.graph.inputs if isinstance(t, gs.Variable)}
    for value in proto.input:
        tensor = inputs.get(value.name)
        if tensor is None or not value.type.tensor_type.HasField("shape"):
            continue
        shape = names.of_input(tensor, declared_type(tensor)).shape or ()
        for entry, dim in zip(value.type.tensor_type.shape.dim, shape, strict=False):
            if isinstance(dim, Poly):
                entry.dim_param = str(dim)


def _forget_defaults(proto: onnx.ModelProto) -> None:
    """Take out the values of what callers may override, which onnx would reckon with; before IR 4 they may not."""
    if proto.ir_version >= 4:
        inputs = {value.name for value in proto.graph.input}
        _drop(proto.graph.initializer, [k for k, t in enumerate(proto.graph.initializer) if t.name in inputs])


def _write_defaults(proto: onnx.ModelProto) -> None:
    """Write out defaults that onnx's inference takes for something else."""
    todo: list[Any] = [proto.graph, *proto.functions]
    while todo:
        for node in todo.pop().node:
            write_default(node)
            todo.extend(bodies(node))


def _hide_open_slices(proto: onnx.ModelProto) -> None:
    """Hide from onnx the values of what is sliced from a start, or to an end, that is no constant of the same graph.

    It propagates the value of the whole as that of the slice, and infers wrong ranks of what is reshaped by it. Abs has
    the type of its operand, and no value is propagated through it.
    """
    todo: list[Any] = [proto.graph, *proto.functions]
    while todo:
        graph = todo.pop()
        constant = {tensor.name for tensor in getattr(graph, "initializer", ())}
        constant.update(n.output[0] for n in graph.node if n.op_type == "Constant" and not domain_of(n.domain))
        nodes = list(graph.node)
        for node in nodes:
            todo.extend(bodies(node))
        open_slices = [n for n in nodes if _is_slice(n) and not constant.issuperset(n.input[1:3])]
        if not open_slices:
            continue
        hidden = set(map(id, open_slices))
        kept = []
        for number, node in enumerate(nodes):
            copied = onnx.NodeProto()
            copied.CopyFrom(node)
            if id(node) in hidden:
                copied.output[0] = f"{node.output[0]}~slice{number}"
                kept += [copied, onnx.helper.make_node("Abs", copied.output, node.output)]
            else:
                kept.append(copied)
        del graph.node[:]
        graph.node.extend(kept)


def _is_slice(node: onnx.NodeProto) -> bool:
    return node.op_type == "Slice" and not domain_of(node.domain) and len(node.input) > 2


def write_default(node: onnx.NodeProto) -> None:
    """STFT is one-sided unless it says otherwise; onnx infers the shape of two sides."""
    if node.op_type == "STFT" and not domain_of(node.domain) and not any(a.name == "onesided" for a in node.attribute):
        node.attribute.append(onnx.helper.make_attribute("onesided", 1))


def _unique_names(main: onnx.GraphProto) -> dict[str, str]:
    """Rename tensors of bodies whose names stand elsewhere, too; gives the names that they had.

    onnx keeps the values that it propagates by name: those of one branch would reach into another.
    """
    taken = set(_defined(main))
    was: dict[str, str] = {}
    todo = [body for node in main.node for body in bodies(node)]
    for body in todo:
        new: dict[str, str] = {}
        for name in _defined(body):
            if name in taken:
                new[name] = f"{name}~{len(was)}"
                was[new[name]] = was.get(name, name)
            taken.add(new.get(name, name))
        if new:
            rename_graph(body, lambda name, new=new: new.get(name, name))  # type: ignore[misc]
        todo += [inner for node in body.node for inner in bodies(node)]
    return was


def _defined(graph: onnx.GraphProto) -> Iterator[str]:
    yield from (value.name for value in graph.input)
    yield from (tensor.name for tensor in graph.initializer)
    yield from (tensor.values.name for tensor in graph.sparse_initializer)
    yield from (name for node in graph.node for name in node.output if name)


def _forget_shape(value: onnx.ValueInfoProto) -> None:
    if value.type.HasField("tensor_type"):
        value.type.tensor_type.ClearField("shape")


def _lighten(main: onnx.GraphProto) -> None:
    """Take large tensors (type stays) out of Constant nodes and bodies, and hints out of bodies."""
    todo = [(main, True)]
    while todo:
        graph, is_main = todo.pop()
        _drop(graph.node, [k for k, node in enumerate(graph.node) if _large_constant(node, graph)])
        if not is_main:
            _lighten_body(graph)
        for node in graph.node:
            todo.extend((body, False) for body in bodies(node))


def _drop(field: Any, positions: list[int]) -> None:
    for position in reversed(positions):
        del field[position]


def _large_constant(node: onnx.NodeProto, graph: onnx.GraphProto) -> bool:
    if node.op_type != "Constant" or domain_of(node.domain) or len(node.attribute) != 1:
        return False
    attribute = node.attribute[0]
    if attribute.type != AttributeProto.TENSOR or attribute.ref_attr_name or not _is_large(attribute.t):
        return False
    _state_type(graph, node.output[0], attribute.t)
    return True


def _is_large(tensor: onnx.TensorProto) -> bool:
    return math.prod(tensor.dims) > SMALL


def _state_type(graph: onnx.GraphProto, name: str, tensor: onnx.TensorProto) -> None:
    value = graph.value_info.add()
    value.name = name
    fill_type(value.type, TensorType(tensor.data_type, tuple(tensor.dims)))


def _lighten_body(graph: onnx.GraphProto) -> None:
    made = {name for node in graph.node for name in node.output}
    _drop(graph.value_info, [k for k, value in enumerate(graph.value_info) if value.name in made])
    large = [k for k, tensor in enumerate(graph.initializer) if _is_large(tensor)]
    for position in large:
        _state_type(graph, graph.initializer[position].name, graph.initializer[position])
    _drop(graph.initializer, large)
    for value in (*graph.input, *graph.output):
        _forget_shape(value)


# --- reading the result ------------------------------------------------------------------------------------------------


def _collect(
    index: GraphIndex, proto: onnx.GraphProto, was: Mapping[str, str], symbols: Mapping[str, Poly]
) -> dict[int, TensorType]:
    found: dict[int, TensorType] = {}
    todo: list[tuple[gs.Graph, onnx.GraphProto, bool]] = [(index.graph, proto, True)]
    while todo:
        graph, inferred, is_main = todo.pop()
        types = {was.get(v.name, v.name): v.type for v in (*inferred.value_info, *inferred.output)}
        nodes = {
            tuple(was.get(name, name) for name in node.output): node
            for node in inferred.node
            if any(a.HasField("g") or a.graphs for a in node.attribute)
        }
        for node in graph.nodes:
            for tensor in node.outputs:
                _note(tensor, types, symbols, found)
            for attribute, body in subgraphs(node):
                inner = _body_of(nodes.get(tuple(t.name for t in node.outputs)), attribute)
                if inner is not None:
                    todo.append((body, inner, False))
        if not is_main:
            types = {was.get(v.name, v.name): v.type for v in inferred.input}
            for tensor in graph.inputs:
                _note(tensor, types, symbols, found)
    return found


def _note(
    tensor: gs.Tensor, types: Mapping[str, onnx.TypeProto], symbols: Mapping[str, Poly], found: dict[int, TensorType]
) -> None:
    proto = types.get(tensor.name) if tensor.name else None
    entry = read_type(proto, symbols) if proto is not None else None
    if entry is not None:
        found[id(tensor)] = entry


def _body_of(node: onnx.NodeProto | None, attribute: str) -> onnx.GraphProto | None:
    if node is None:
        return None
    name, _, rest = attribute.partition("[")
    for entry in node.attribute:
        if entry.name == name:
            return entry.graphs[int(rest[:-1])] if rest else entry.g
    return None


def read_type(proto: onnx.TypeProto, symbols: Mapping[str, Poly | int]) -> TensorType | None:
    """A TypeProto; dims named otherwise than ``symbols`` are unknown. None where it says nothing."""
    kind = proto.WhichOneof("value")
    if kind is None:
        return None
    if kind != "tensor_type":
        return TensorType(None, None, kind.removesuffix("_type"))
    inner = proto.tensor_type
    if not inner.elem_type:
        return None
    if not inner.HasField("shape"):
        return TensorType(inner.elem_type)
    return TensorType(inner.elem_type, tuple(_dim(d, symbols) for d in inner.shape.dim))


def _dim(proto: Any, symbols: Mapping[str, Poly | int]) -> Dim:
    if proto.HasField("dim_value"):
        return int(proto.dim_value) if proto.dim_value >= 0 else None
    return symbols.get(proto.dim_param) if proto.dim_param else None


# --- one node ----------------------------------------------------------------------------------------------------------


def node_types(
    node: gs.Node, types: Mapping[int, TensorType], values: Mapping[int, Value], scope: Scope
) -> list[TensorType | None]:
    """Output types of one node from its operands' types (by id); None where onnx cannot tell."""
    nothing: list[TensorType | None] = [None] * len(node.outputs)
    domain = domain_of(node.domain)
    declared = schema(node.op, scope.opset(domain), domain)
    operands = {t.name: t for t in node.inputs if t.name}
    ready = all(types[id(t)].kind == "tensor" and types[id(t)].dtype for t in operands.values())
    if declared is None or not ready or any(True for _ in subgraphs(node)):
        return nothing
    symbols: dict[str, Poly | int] = {}
    protos = {name: _type_proto(types[id(t)], symbols) for name, t in operands.items()}
    data = {
        name: numpy_helper.from_array(v, name) for name, t in operands.items() if (v := _small(values, t)) is not None
    }
    opsets = [onnx.helper.make_opsetid(name, version) for name, version in scope.opsets.items()]
    try:
        proto = node_proto(node, opset=scope.opset(domain))
        write_default(proto)
        found = shape_inference.infer_node_outputs(declared, proto, protos, data, opset_imports=opsets)
    except (*_FAILURES, KeyError) as error:
        log.debug("inference of %s failed: %s", node.op, error)
        return nothing
    return [read_type(found[t.name], symbols) if t.name in found else None for t in node.outputs]


def _small(values: Mapping[int, Value], tensor: gs.Tensor) -> np.ndarray[Any, Any] | None:
    value = values.get(id(tensor))
    return value if isinstance(value, np.ndarray) and value.size <= SMALL else None


def _type_proto(entry: TensorType, symbols: dict[str, Poly | int]) -> onnx.TypeProto:
    """The type with every polynomial under a name of its own, equal ones under one."""
    proto = onnx.TypeProto()
    named: list[Any] = []
    known = {poly: name for name, poly in symbols.items()}
    for dim in entry.shape or ():
        if isinstance(dim, Poly):
            name = known.setdefault(dim, f"d{len(known)}")
            symbols[name] = dim
            named.append(name)
        else:
            named.append(dim)
    fill_type(proto, TensorType(entry.dtype, None if entry.shape is None else tuple(named)))
    return proto
