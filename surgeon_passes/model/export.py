"""gs.Graph to ModelProto, with what :class:`Extras` kept.

gs.export_onnx copies outer constants into every body that reads them and drops what it does not know; each piece here
writes what the graph says and takes the rest from the extras.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, cast

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from onnx import AttributeProto, TensorProto, helper, numpy_helper
from onnx_graphsurgeon.ir.tensor import LazyValues
from onnx_graphsurgeon.util.misc import convert_to_onnx_attr_type

from surgeon_passes.model.constants import SparseTensorValues, TensorValues, array_of
from surgeon_passes.model.elements import onnx_dtype, stated_dims
from surgeon_passes.model.extras import Extras, GraphExtras, Model
from surgeon_passes.model.nested import bodies, every_node
from surgeon_passes.model.weights import Weights
from surgeon_passes.model.wire import LARGE
from surgeon_passes.ops.schema import STANDARD, domain_of, forgotten_by, opsets_of, schema
from surgeon_passes.region import TensorType, Types

Rename = Callable[[str], str]
SMALL = 1024
"""Elements up to which a constant stays in a weightless copy."""


def export_model(model: Model, types: Types | None = None, weights: str = "all") -> onnx.ModelProto:
    """The model as a ModelProto.

    ``types`` fills value_info; without it the file's own is left out. ``weights="none"`` makes large initializers of the
    main graph typed inputs: a copy for inference and the checker, which read no large values.
    """
    weightless = weights == "none"
    return _Exporter(model.extras, types, weightless, refers=not weightless).model(model.graph)


def export_light(model: Model, types: Types | None = None) -> tuple[onnx.ModelProto, Weights]:
    """The model as :func:`export_model` gives it, its large weights referred to, not copied; and what finds those."""
    weights = model.weights.branch()
    return _Exporter(model.extras, types, False, weights, refers=True).model(model.graph), weights


class _Exporter:
    def __init__(
        self,
        extras: Extras,
        types: Types | None = None,
        weightless: bool = False,
        weights: Weights | None = None,
        refers: bool = False,
    ) -> None:
        """``weights`` takes up references to large initializers of the main graph; without it they are written out.
        What refers to a file goes on doing so with ``refers``; else it is read."""
        self.extras = extras
        self.types = types
        self.untold: set[int] = set()
        """tensors, by id, whose shape hangs on an operator that nobody here knows, or on a default that callers may
        override: of those the file may say more than can be inferred"""
        self.weightless = weightless
        self.weights = weights
        self.refers = refers

    def model(self, graph: gs.Graph) -> onnx.ModelProto:
        proto = onnx.ModelProto()
        proto.MergeFrom(self.extras.shell)
        for name in ("producer_name", "producer_version"):
            if getattr(proto, name) != (getattr(graph, name) or ""):
                setattr(proto, name, getattr(graph, name) or "")
        proto.ir_version = graph.ir_version or proto.ir_version or helper.VERSION_TABLE[-1][1]
        self.graph(graph, proto.graph, main=True)
        _write_opsets(proto, graph, proto.graph.node)
        for function in graph.functions:
            self.function(function, proto.functions.add())
        return proto

    # --- graphs ------------------------------------------------------------------------------------------------------

    def graph(self, graph: gs.Graph, proto: onnx.GraphProto, main: bool, outer: frozenset[int] = frozenset()) -> None:
        extras = self.extras.graphs.get(id(graph)) or GraphExtras(onnx.GraphProto())
        if isinstance(extras.shell, onnx.GraphProto):
            proto.MergeFrom(extras.shell)
        proto.name = graph.name or ""
        if graph.doc_string:
            proto.doc_string = graph.doc_string
        mine = self.owned_constants(graph, extras, outer)
        for tensor in graph.inputs:
            self.interface(tensor, extras, proto.input.add(), main)
        for constant in mine:
            self.initializer(constant, proto, main)
        kept = (d for d in extras.defaults.values() if not (self.weightless and _is_heavy(d)))
        proto.initializer.extend(kept)  # without its default an input is one that callers must give
        inside = outer | {id(c) for c in mine}
        for node in graph.nodes:
            self.node(node, proto.node.add(), inside, domain_opset(graph, node.domain))
        for tensor in graph.outputs:
            if id(tensor) in extras.as_output:
                proto.output.add().CopyFrom(extras.as_output[id(tensor)])
            else:
                self.interface(tensor, extras, proto.output.add(), main)
        if self.types is not None:
            self.value_info(graph, proto, extras)

    def owned_constants(self, graph: gs.Graph, extras: GraphExtras, outer: frozenset[int]) -> list[gs.Constant]:
        """Constants that this graph defines: used here or in its bodies, known to no outer graph; annotated ones too."""
        used = {id(t): t for t in self.constants_read(graph)}
        named = {p.value for a in extras.shell.quantization_annotation for p in a.quant_parameter_tensor_names} \
            if isinstance(extras.shell, onnx.GraphProto) else set()  # fmt: skip
        kept = [c for c in extras.constants if id(c) in used or id(c) in extras.unread or c.name in named]
        seen = {id(c) for c in kept}
        new = [t for key, t in used.items() if key not in seen and key not in outer]
        return kept + new

    def constants_read(self, graph: gs.Graph) -> Iterable[gs.Constant]:
        todo = [graph]
        own: set[int] = set()
        while todo:
            current = todo.pop()
            if current is not graph:
                held = self.extras.graphs.get(id(current))
                own |= {id(c) for c in held.constants} if held else set()
            tensors = [t for n in current.nodes for t in n.inputs] + list(current.outputs)
            yield from (t for t in tensors if isinstance(t, gs.Constant) and id(t) not in own)
            todo.extend(body for n in current.nodes for body in _bodies(n))

    def initializer(self, constant: gs.Constant, proto: onnx.GraphProto, main: bool) -> None:
        if isinstance(constant._values, SparseTensorValues):
            proto.sparse_initializer.append(constant._values.tensor)
        elif self.weightless and main and math.prod(constant.shape) > SMALL:
            value = proto.input.add()
            value.name = constant.name
            fill_type(value.type, TensorType(onnx_dtype(constant.dtype), tuple(constant.shape)))
        else:
            tensor = self.reference(constant) if main and self.weights is not None else None
            if tensor is None:
                write_tensor(constant, constant.name, proto.initializer.add(), self.refers)
            else:
                proto.initializer.append(tensor)

    def reference(self, constant: gs.Constant) -> TensorProto | None:
        """A tensor that refers to the constant's bytes; None for a small one, or one that is a reference already."""
        assert self.weights is not None
        held = constant._values
        if isinstance(held, TensorValues) and held.is_reference:
            return None if held.weights.shares_files(self.weights) else self.weights.refer(constant.name, held.load())
        if constant._values.nbytes < LARGE:
            return None
        return self.weights.refer(constant.name, held.tensor if isinstance(held, LazyValues) else np.asarray(held))

    def interface(self, tensor: gs.Tensor, extras: GraphExtras, value: onnx.ValueInfoProto, main: bool) -> None:
        known = extras.interface.get(id(tensor))
        if known is not None:
            value.MergeFrom(known)
        value.name = tensor.name
        kind = value.type.WhichOneof("value")
        if isinstance(tensor, gs.Constant):
            if kind is None:
                fill_type(value.type, TensorType(onnx_dtype(tensor.dtype), tuple(tensor.shape)))
            return
        if kind in (None, "tensor_type") and tensor.dtype is not None and tensor.type in (None, "tensor_type"):
            _update_type(value.type, tensor)
        elif kind is None and tensor.dtype is not None and main:
            value.type.MergeFrom(_gs_type(tensor))

    def value_info(self, graph: gs.Graph, proto: onnx.GraphProto, extras: GraphExtras) -> None:
        assert self.types is not None
        public = {id(t) for t in (*graph.inputs, *graph.outputs)}
        self.untold.update(id(t) for t in graph.inputs if t.name in extras.defaults)
        for node in graph.nodes:
            untold = (node.domain or "") not in STANDARD or any(id(t) in self.untold for t in node.inputs)
            if untold:
                self.untold.update(map(id, node.outputs))
            for tensor in node.outputs:
                if not tensor.name or id(tensor) in public:
                    continue
                found = self.types.type_of(tensor)
                if untold and not self.extras.resized and id(tensor) in extras.hints:
                    found = _with_stated_dims(found, extras.hints[id(tensor)].type)
                if found.kind == "tensor" and found.dtype and found.shape is not None:
                    value = proto.value_info.add()
                    value.name = tensor.name
                    fill_type(value.type, found)
                elif id(tensor) in extras.hints and not found.dtype:
                    proto.value_info.append(extras.hints[id(tensor)])

    def function(self, function: gs.Function, proto: onnx.FunctionProto) -> None:
        extras = self.extras.graphs.get(id(function))
        if extras is not None and isinstance(extras.shell, onnx.FunctionProto):
            proto.MergeFrom(extras.shell)
        proto.name, proto.domain = function.name, function.domain or ""
        if function.doc_string:
            proto.doc_string = function.doc_string
        proto.input.extend(t.name for t in function.inputs)
        proto.output.extend(t.name for t in function.outputs)
        for name, default in function.attrs.items():
            if default is None:
                proto.attribute.append(name)
            else:
                write_attribute(proto.attribute_proto.add(), name, default, None, self.body, self.refers)
        for constant in {id(t): t for t in self.constants_read(function)}.values():
            node = proto.node.add()
            node.op_type = "Constant"
            node.output.append(constant.name)
            attribute = node.attribute.add()
            attribute.name, attribute.type = "value", AttributeProto.TENSOR
            write_tensor(constant, constant.name, attribute.t, self.refers)
        known = frozenset(id(t) for t in self.constants_read(function))
        for node in function.nodes:
            self.node(node, proto.node.add(), known, domain_opset(function, node.domain))
        _write_opsets(proto, function, proto.node)

    # --- nodes -------------------------------------------------------------------------------------------------------

    def node(self, node: gs.Node, proto: onnx.NodeProto, outer: frozenset[int], opset: int) -> None:
        kept = self.extras.nodes.get(id(node))
        if kept is not None:
            proto.MergeFrom(kept)

        def body(graph: gs.Graph, target: onnx.GraphProto) -> None:
            self.graph(graph, target, main=False, outer=outer)

        write_node(node, proto, node.inputs, node.outputs, opset=opset, body=body, refers=self.refers)

    def body(self, graph: gs.Graph, target: onnx.GraphProto) -> None:
        self.graph(graph, target, main=False)


def _is_heavy(tensor: TensorProto) -> bool:
    return tensor.data_location == TensorProto.EXTERNAL or math.prod(tensor.dims) > SMALL


def _bodies(node: gs.Node) -> Iterable[gs.Graph]:
    for value in node.attrs.values():
        if isinstance(value, gs.Graph):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from (item for item in value if isinstance(item, gs.Graph))


def domain_opset(graph: gs.Graph, domain: str | None) -> int:
    """Opset of a domain as ``graph`` imports it; 0 where it does not."""
    wanted = domain_of(domain)
    for entry in graph.import_domains or ():
        if domain_of(entry.domain) == wanted:
            return int(entry.version)
    return int(graph.opset or 0) if wanted == "" else 0


def _write_opsets(proto: Any, graph: gs.Graph, nodes: Iterable[onnx.NodeProto]) -> None:
    """What the graph imports, and ai.onnx where a model that had no operator of it has got one."""
    del proto.opset_import[:]
    proto.opset_import.extend(graph.import_domains or ())
    if "" not in opsets_of(proto.opset_import) and (not graph.import_domains or _has_standard(nodes)):
        proto.opset_import.append(helper.make_opsetid("", graph.opset))


def _has_standard(nodes: Iterable[onnx.NodeProto]) -> bool:
    return any(not domain_of(node.domain) for node in every_node(nodes))


# --- pieces, for verification and folding too ----------------------------------------------------------------------------


def node_proto(
    node: gs.Node,
    inputs: Sequence[gs.Tensor] | None = None,
    outputs: Sequence[gs.Tensor] | None = None,
    rename: Rename | None = None,
    opset: int = 0,
    extras: Extras | None = None,
) -> onnx.NodeProto:
    """One node, with its bodies; ``inputs``/``outputs`` stand in for the node's own, ``rename`` maps every name.

    Tensors in it hold their values: ONNX Runtime would look for external data in the working folder.
    Constants that a body reads from outside are read by name: the caller defines them.
    """
    proto = onnx.NodeProto()
    exporter = _Exporter(extras or Extras())

    def body(graph: gs.Graph, target: onnx.GraphProto) -> None:
        outer = frozenset(id(t) for t in exporter.constants_read(graph) if not _is_local(t, graph, exporter.extras))
        exporter.graph(graph, target, main=False, outer=outer)
        if rename is not None:
            rename_graph(target, rename)

    ins = node.inputs if inputs is None else inputs
    outs = node.outputs if outputs is None else outputs
    write_node(node, proto, ins, outs, rename, opset, body)
    return proto


def _is_local(constant: gs.Tensor, graph: gs.Graph, extras: Extras) -> bool:
    held = extras.graphs.get(id(graph))
    return held is not None and any(c is constant for c in held.constants)


def rename_graph(proto: onnx.GraphProto, rename: Rename) -> None:
    """Map every tensor name of a body, in place."""
    named: list[Any] = [*proto.input, *proto.output, *proto.value_info, *proto.initializer]
    for value in named:
        value.name = rename(value.name)
    for sparse in proto.sparse_initializer:
        sparse.values.name = rename(sparse.values.name)
    for node in proto.node:
        node.input[:] = [rename(n) if n else n for n in node.input]
        node.output[:] = [rename(n) if n else n for n in node.output]
        for inner in bodies(node):
            rename_graph(inner, rename)


def write_node(
    node: gs.Node,
    proto: onnx.NodeProto,
    inputs: Iterable[gs.Tensor],
    outputs: Iterable[gs.Tensor],
    rename: Rename | None = None,
    opset: int = 0,
    body: Callable[[gs.Graph, onnx.GraphProto], None] | None = None,
    refers: bool = False,
) -> None:
    """Fill ``proto``. Attribute types follow the operator's schema where it has one (an int for a FLOAT is a float)."""
    proto.op_type = node.op
    if node.name:
        proto.name = rename(node.name) if rename else node.name
    if node.domain is not None:
        proto.domain = node.domain
    name = rename or (lambda n: n)
    proto.input.extend(name(t.name) if t.name else "" for t in inputs)
    proto.output.extend(name(t.name) if t.name else "" for t in outputs)
    if node.attrs:
        domain = domain_of(node.domain)
        wanted = _attribute_types(node.op, opset or 1 << 20, domain)
        for key, value in node.attrs.items():
            write_attribute(proto.attribute.add(), key, value, wanted.get(key), body, refers)


@lru_cache(maxsize=4096)
def _attribute_types(op: str, opset: int, domain: str) -> dict[str, int]:
    """Types of the attributes that the operator's schema has, as AttributeProto numbers them."""
    declared = schema(op, opset, domain)
    if declared is None:
        return {}
    kinds: dict[str, Any] = {name: attribute.type for name, attribute in declared.attributes.items()}
    return {name: int(getattr(kind, "value", kind)) for name, kind in kinds.items()}


forgotten_by(_attribute_types.cache_clear)


def write_attribute(
    proto: AttributeProto,
    name: str,
    value: Any,
    wanted: int | None,
    body: Callable[[gs.Graph, onnx.GraphProto], None] | None,
    refers: bool = False,
) -> None:
    proto.name = name
    if isinstance(value, gs.Node.AttributeRef):
        proto.ref_attr_name = value.name
        proto.type = cast(
            "AttributeProto.AttributeType", convert_to_onnx_attr_type(value.type) if wanted is None else wanted
        )
    elif isinstance(value, AttributeProto):
        proto.CopyFrom(value)
        proto.name = name
    elif isinstance(value, gs.Graph):
        proto.type = AttributeProto.GRAPH
        assert body is not None
        body(value, proto.g)
    elif isinstance(value, gs.Tensor):
        proto.type = AttributeProto.TENSOR
        write_tensor(value, value.name, proto.t, refers)
    elif isinstance(value, (list, tuple, np.ndarray)):
        _write_list(proto, list(value), wanted, body)
    else:
        _write_scalar(proto, value, wanted)


def _write_scalar(proto: AttributeProto, value: Any, wanted: int | None) -> None:
    if isinstance(value, (str, bytes)):
        proto.type = AttributeProto.STRING
        proto.s = value.encode() if isinstance(value, str) else value
    elif isinstance(value, (bool, int, np.integer)) and wanted != AttributeProto.FLOAT:
        proto.type = AttributeProto.INT
        proto.i = int(value)
    elif isinstance(value, (float, int, np.floating, np.integer)):
        proto.type = AttributeProto.FLOAT
        proto.f = float(value)
    elif isinstance(value, (np.dtype, type)):
        proto.type = AttributeProto.INT
        proto.i = onnx_dtype(value)
    else:
        raise TypeError(f"attribute {proto.name}: cannot write a {type(value).__name__}")


def _write_list(
    proto: AttributeProto,
    values: list[Any],
    wanted: int | None,
    body: Callable[[gs.Graph, onnx.GraphProto], None] | None,
) -> None:
    if values and isinstance(values[0], gs.Graph):
        proto.type = AttributeProto.GRAPHS
        assert body is not None
        for graph in values:
            body(graph, proto.graphs.add())
    elif wanted == AttributeProto.STRINGS or (values and isinstance(values[0], (str, bytes))):
        proto.type = AttributeProto.STRINGS
        proto.strings.extend(v.encode() if isinstance(v, str) else v for v in values)
    elif wanted == AttributeProto.FLOATS or any(isinstance(v, (float, np.floating)) for v in values):
        proto.type = AttributeProto.FLOATS
        proto.floats.extend(float(v) for v in values)
    else:
        proto.type = AttributeProto.INTS
        proto.ints.extend(int(v) for v in values)


def tensor_proto(constant: gs.Constant, name: str) -> TensorProto:
    """A constant as a TensorProto called ``name``; encoded values are copied as bytes, not decoded.

    Raises ModelError where they lie in a file that lacks them.
    """
    proto = TensorProto()
    write_tensor(constant, name, proto)
    return proto


def write_tensor(constant: gs.Constant, name: str, proto: TensorProto, refers: bool = False) -> None:
    """As :func:`tensor_proto`, into ``proto``; with ``refers`` what lies in a file stays there."""
    held = constant._values
    if isinstance(held, TensorValues) and held.is_reference and not refers:
        held.weights.write(held.tensor, proto)
    elif isinstance(held, TensorValues) or (isinstance(held, LazyValues) and isinstance(held.tensor, TensorProto)):
        proto.CopyFrom(held.tensor)
    else:
        array = array_of(constant)
        proto.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array).reshape(np.shape(array)), name))
    if proto.name != name:  # one that has none keeps having none
        proto.name = name


def function_protos(graph: gs.Graph, extras: Extras | None = None) -> list[onnx.FunctionProto]:
    """The model's functions; their tensors hold their values."""
    exporter = _Exporter(extras or Extras())
    found = []
    for function in graph.functions:
        proto = onnx.FunctionProto()
        exporter.function(function, proto)
        found.append(proto)
    return found


# --- types ---------------------------------------------------------------------------------------------------------------


def fill_type(proto: onnx.TypeProto, tensor_type: TensorType) -> None:
    """Write dtype and dims into a TypeProto; symbols become dim_params."""
    inner = proto.tensor_type
    inner.elem_type = tensor_type.dtype or 0
    if tensor_type.shape is None:
        inner.ClearField("shape")
        return
    inner.shape.SetInParent()
    del inner.shape.dim[:]
    for dim in tensor_type.shape:
        _write_dim(inner.shape.dim.add(), dim)


def _with_stated_dims(found: TensorType, stated: onnx.TypeProto) -> TensorType:
    """``found`` with the dims that a file states in the place of unknown ones; itself where the two do not fit."""
    tensor = stated.tensor_type
    if found.kind != "tensor" or found.dtype != tensor.elem_type or not tensor.HasField("shape"):
        return found
    dims = stated_dims(tensor.shape)
    own = found.shape if found.shape is not None else [None] * len(dims)
    if len(own) != len(dims):
        return found
    return TensorType(found.dtype, tuple(b if a is None else a for a, b in zip(own, dims, strict=True)))


def _write_dim(proto: Any, dim: Any) -> None:
    if isinstance(dim, (int, np.integer)):
        proto.dim_value = int(dim)
    elif dim is not None:
        proto.dim_param = str(dim)


def _update_type(proto: onnx.TypeProto, tensor: gs.Variable) -> None:
    """Bring a declared tensor type up to date with dims that changed; what stands (denotations) stays."""
    inner = proto.tensor_type
    inner.elem_type = onnx_dtype(tensor.dtype)
    if tensor.shape is None:
        return
    if not inner.HasField("shape") or len(inner.shape.dim) != len(tensor.shape):
        fill_type(proto, TensorType(inner.elem_type, tuple(tensor.shape)))
        return
    for entry, dim in zip(inner.shape.dim, tensor.shape, strict=True):
        now = entry.dim_param or (entry.dim_value if entry.HasField("dim_value") else None)
        if dim is not None and now != dim:
            _write_dim(entry, dim)


def _gs_type(tensor: gs.Variable) -> onnx.TypeProto:
    """The type of a tensor that came from gs itself and is no plain tensor."""
    elem = onnx_dtype(tensor.dtype)
    plain = helper.make_tensor_type_proto(elem, tensor.shape)
    if tensor.type == "sequence_type":
        return helper.make_sequence_type_proto(plain)
    if tensor.type == "sparse_tensor_type":
        return helper.make_sparse_tensor_type_proto(elem, tensor.shape)
    return plain
