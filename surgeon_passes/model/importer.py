"""ModelProto to gs.Graph, keeping what gs.import_onnx loses.

gs.import_onnx drops overridable initializers from the inputs, unused initializers, Optional types, attributes it has no
Python type for, metadata and annotations, and copies its map of names for every body. The graph made here is the same
kind of graph; :class:`Extras` holds the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import onnx
import onnx_graphsurgeon as gs
from onnx import AttributeProto, helper
from onnx_graphsurgeon.util.misc import convert_from_onnx_attr_type

from surgeon_passes.errors import ModelError
from surgeon_passes.model.constants import SparseTensorValues, TensorValues
from surgeon_passes.model.elements import numpy_dtype
from surgeon_passes.model.extras import Extras, GraphExtras, Model
from surgeon_passes.model.fields import copy_fields
from surgeon_passes.model.nested import bodies, every_node
from surgeon_passes.model.objects import make_constant, make_node, make_variable
from surgeon_passes.model.order import sorted_nodes
from surgeon_passes.model.weights import Weights
from surgeon_passes.ops.schema import opsets_of

Names = dict[str, gs.Tensor]


def import_model(proto: onnx.ModelProto, source: str = "the model", folder: str | Weights = "") -> Model:
    """Import, sorting nodes where needed; ``proto`` is not changed, its tensors are shared.

    ``folder`` holds its external data, or is what finds it.

    Raises ModelError for a graph that is not one: a name written twice, an input that nothing makes, a cycle.
    """
    return _Importer(proto, source, Weights.of(folder)).run()


def import_function(proto: onnx.FunctionProto) -> gs.Function:
    """One function by itself. Raises ModelError as :func:`import_model` does."""
    return _Importer(onnx.ModelProto(), f"function {proto.domain}.{proto.name}", Weights()).function(proto)


class _Importer:
    def __init__(self, proto: onnx.ModelProto, source: str, weights: Weights) -> None:
        self.proto = proto
        self.source = source
        self.weights = weights
        self.extras = Extras()
        self.external = False
        self.functions: list[gs.Function] = []

    def run(self) -> Model:
        copy_fields(self.proto, self.extras.shell, _but("graph", "functions"))
        for function in self.proto.functions:
            self.functions.append(self.function(function))
        graph = self.graph(self.proto.graph, [], self.proto.opset_import, main=True)
        graph.producer_name = self.proto.producer_name
        graph.producer_version = self.proto.producer_version
        if graph.ir_version is not None and graph.ir_version < 4:
            graph.ir_version = 4  # initializers need not be inputs from here on: they are constants, as they were
        return Model(graph, self.extras, self.source, self.weights, self.external, self.proto)

    # --- graphs ------------------------------------------------------------------------------------------------------

    def graph(self, proto: onnx.GraphProto, outer: list[Names], opsets: Any, main: bool = False) -> gs.Graph:
        extras = GraphExtras(onnx.GraphProto())
        copy_fields(
            proto,
            extras.shell,
            _but("node", "initializer", "sparse_initializer", "input", "output", "value_info"),
        )
        local: Names = {}
        overridable = self.overridable(proto, main)
        extras.constants = self.constants(proto, local, overridable, extras)
        inputs = self.inputs(proto, local, overridable, extras)
        nodes = self.nodes(proto.node, local, outer, opsets, proto.name or "the graph")
        outputs = [self.output(value, local, outer, extras) for value in proto.output]
        read = _names_read(proto)
        extras.unread = {id(c) for c in extras.constants if c.name not in read}
        for value in proto.value_info:
            if value.name in local:
                extras.hints[id(local[value.name])] = value
        graph = gs.Graph(
            nodes=nodes,
            inputs=inputs,
            outputs=outputs,
            name=proto.name,
            doc_string=proto.doc_string,
            opset=self.opset(opsets),
            import_domains=list(opsets),
            functions=self.functions,
            ir_version=self.proto.ir_version or None,
        )
        graph._functions = self.functions
        self.extras.graphs[id(graph)] = extras
        return graph

    def opset(self, imported: Any) -> int:
        """Of ai.onnx; where it is not imported the one that is imported with the first node of it that comes in."""
        found = opsets_of(imported).get("")
        return int(found or _first_opset(max(self.proto.ir_version, 4)))

    def overridable(self, proto: onnx.GraphProto, main: bool) -> set[str]:
        """Initializers that are inputs too: defaults from IR 4 on, constants before."""
        listed = {value.name for value in proto.input}
        both = {t.name for t in proto.initializer if t.name in listed}
        return both if not main or self.proto.ir_version >= 4 else set()

    def constants(
        self, proto: onnx.GraphProto, local: Names, overridable: set[str], extras: GraphExtras
    ) -> list[gs.Constant]:
        found = []
        for tensor in proto.initializer:
            if tensor.name in overridable:
                extras.defaults[tensor.name] = tensor
                self.external = self.external or self.weights.is_external(tensor)
                continue
            found.append(self.define(local, self.constant(tensor)))
        for sparse in proto.sparse_initializer:
            found.append(self.define(local, gs.Constant(sparse.values.name, SparseTensorValues(sparse))))
        return found

    def constant(self, tensor: onnx.TensorProto) -> gs.Constant:
        values = TensorValues(tensor, self.weights)
        self.external = self.external or self.weights.is_external(tensor)
        return make_constant(tensor.name, values)

    def inputs(
        self, proto: onnx.GraphProto, local: Names, overridable: set[str], extras: GraphExtras
    ) -> list[gs.Variable]:
        found = []
        for value in proto.input:
            if value.name in local and value.name not in overridable:
                if isinstance(local[value.name], gs.Constant):
                    continue
                raise ModelError(f"{self.source}: input '{value.name}' is listed twice")
            tensor = self.define(local, variable(value))
            extras.interface[id(tensor)] = value
            found.append(tensor)
        return found

    def define(self, local: Names, tensor: Any) -> Any:
        if tensor.name in local:
            raise ModelError(f"{self.source}: tensor '{tensor.name}' is defined twice in one graph")
        local[tensor.name] = tensor
        return tensor

    def output(self, value: onnx.ValueInfoProto, local: Names, outer: list[Names], extras: GraphExtras) -> gs.Tensor:
        tensor = local.get(value.name)
        if tensor is None:
            tensor = self.resolve(value.name, local, outer, f"output '{value.name}'")
        if extras.interface.setdefault(id(tensor), value) is not value:
            extras.as_output[id(tensor)] = value
        if isinstance(tensor, gs.Variable) and tensor.dtype is None and tensor.shape is None:
            declared = variable(value)
            tensor.dtype, tensor.shape, tensor.type = declared.dtype, declared.shape, declared.type
        return tensor

    # --- nodes -------------------------------------------------------------------------------------------------------

    def nodes(
        self, protos: Iterable[onnx.NodeProto], local: Names, outer: list[Names], opsets: Any, where: str
    ) -> list[gs.Node]:
        ordered = sorted_nodes(list(protos), local, self.source)
        for proto in ordered:
            for name in proto.output:
                if name:
                    self.define(local, make_variable(name))
        return [self.node(proto, local, outer, opsets) for proto in ordered]

    def node(self, proto: onnx.NodeProto, local: Names, outer: list[Names], opsets: Any) -> gs.Node:
        node = make_node(
            proto.op_type,
            proto.name,
            self.attributes(proto.attribute, local, outer, opsets),
            proto.domain if proto.HasField("domain") else None,
            [local.get(n) or self.resolve(n, local, outer, proto) if n else make_variable("") for n in proto.input],
            [local[n] if n else make_variable("") for n in proto.output],
        )
        if any(getattr(proto, name) for name in _KEPT):
            kept = onnx.NodeProto()
            copy_fields(proto, kept, _but(*_READ))
            self.extras.nodes[id(node)] = kept
        return node

    def resolve(self, name: str, local: Names, outer: list[Names], reader: onnx.NodeProto | str) -> gs.Tensor:
        if name in local:
            return local[name]
        for names in reversed(outer):
            if name in names:
                return names[name]
        if isinstance(reader, onnx.NodeProto):
            reader = f"node '{reader.name}' ({reader.op_type})" if reader.name else f"node {reader.op_type}"
        raise ModelError(f"{self.source}: {reader} reads '{name}', which nothing makes")

    def attributes(
        self, protos: Iterable[AttributeProto], local: Names, outer: list[Names], opsets: Any
    ) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for proto in protos:
            if proto.ref_attr_name:
                found[proto.name] = gs.Node.AttributeRef(proto.ref_attr_name, convert_from_onnx_attr_type(proto.type))
            elif proto.type == AttributeProto.GRAPH:
                found[proto.name] = self.graph(proto.g, [*outer, local], opsets)
            elif proto.type == AttributeProto.GRAPHS:
                found[proto.name] = [self.graph(g, [*outer, local], opsets) for g in proto.graphs]
            elif proto.type == AttributeProto.TENSOR:
                found[proto.name] = self.constant(proto.t)
            else:
                found[proto.name] = _plain_value(proto)
        return found

    def function(self, proto: onnx.FunctionProto) -> gs.Function:
        extras = GraphExtras(onnx.FunctionProto())
        copy_fields(proto, extras.shell, _but("node", "input", "output", "attribute", "attribute_proto", "value_info"))
        local: Names = {}
        inputs = [self.define(local, gs.Variable(name)) for name in proto.input]
        nodes = self.nodes(proto.node, local, [], proto.opset_import, proto.name)
        outputs = [self.resolve(name, local, [], f"function {proto.name}") for name in proto.output]
        attrs: dict[str, Any] = dict.fromkeys(proto.attribute)
        attrs.update(self.attributes(proto.attribute_proto, local, [], proto.opset_import))
        function = gs.Function(
            proto.name,
            proto.domain,
            nodes=nodes,
            inputs=inputs,
            outputs=outputs,
            doc_string=proto.doc_string,
            opset=self.opset(proto.opset_import),
            import_domains=list(proto.opset_import),
            attrs=attrs,
        )
        function._functions = self.functions
        self.extras.graphs[id(function)] = extras
        return function


def _plain_value(proto: AttributeProto) -> Any:
    if proto.type == AttributeProto.STRING:
        return _text(proto.s)
    if proto.type == AttributeProto.STRINGS:
        return [_text(s) for s in proto.strings]
    if proto.type == AttributeProto.INT:
        return proto.i
    if proto.type == AttributeProto.INTS:
        return list(proto.ints)
    if proto.type == AttributeProto.FLOAT:
        return proto.f
    if proto.type == AttributeProto.FLOATS:
        return list(proto.floats)
    return proto  # gs has no Python type for it: it passes through as it is


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def variable(value: onnx.ValueInfoProto) -> gs.Variable:
    """A gs.Variable with what it can say of the type: numpy dtype and dims for tensors, the kind for others."""
    tensor = gs.Variable(value.name)
    kind = value.type.WhichOneof("value")
    if kind is None:
        return tensor
    tensor.type = kind
    if kind in ("tensor_type", "sparse_tensor_type"):
        inner = getattr(value.type, kind)
        tensor.dtype = numpy_dtype(inner.elem_type) if inner.elem_type else None
        tensor.shape = dims(inner.shape) if inner.HasField("shape") else None
    return tensor


def dims(shape: onnx.TensorShapeProto) -> list[int | str | None]:
    """Dims as ints, names (str), or None."""
    return [d.dim_param or (d.dim_value if d.HasField("dim_value") else None) for d in shape.dim]


def _names_read(proto: onnx.GraphProto) -> set[str]:
    """Names that a graph, or a body in it, reads or gives out."""
    found = {value.name for value in proto.output}
    for node in every_node(proto.node):
        found.update(node.input)
        for body in bodies(node):
            found.update(value.name for value in body.output)
    return found


def _first_opset(ir_version: int) -> int:
    """The opset of ai.onnx that came with an IR version; the newest one for an IR version that onnx does not list."""
    return next((int(row[2]) for row in helper.VERSION_TABLE if row[1] == ir_version), int(helper.VERSION_TABLE[-1][2]))


_READ = {"input", "output", "name", "op_type", "domain", "attribute"}
_KEPT = [field.name for field in onnx.NodeProto.DESCRIPTOR.fields if field.name not in _READ]
"""fields of a node that gs has no place for"""


def _but(*names: str) -> Callable[[Any], bool]:
    """All fields but those."""
    return lambda field: field.name not in names
