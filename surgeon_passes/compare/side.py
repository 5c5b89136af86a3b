"""One of the two models that are compared: its main graph as names, and what may be seen of it when it runs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import onnx
from onnx import ModelProto, NodeProto

from surgeon_passes.model import Weights, export_light
from surgeon_passes.model.light import without_weights
from surgeon_passes.model.nested import bodies, every_node
from surgeon_passes.model.order import reads, sorted_nodes
from surgeon_passes.ops.traits import is_random
from surgeon_passes.pipeline import Source, load
from surgeon_passes.run import with_references
from surgeon_passes.runtime import Array
from surgeon_passes.verify.feeds import InputType, model_inputs

_FAILURES = (
    onnx.shape_inference.InferenceError,
    onnx.checker.ValidationError,
    RuntimeError,
    ValueError,
    TypeError,
)


class Side:
    """A model's main graph. Tensors go by name; those of bodies and functions are part of the node that holds them.

    ``role`` is what it is called where it has no file. Raises ModelError for a file that is no valid model.
    """

    def __init__(self, source: Source, role: str = "the model") -> None:
        model = load(source)
        proto, weights = (model.proto, model.weights) if model.proto is not None else export_light(model)
        self.source = role if model.source in ("the model", "the graph") else model.source
        self.proto: ModelProto = with_references(proto)
        self.weights: Weights = weights
        graph = self.proto.graph
        self.inputs: list[InputType] = model_inputs(self.proto)
        self.outputs: list[str] = list(dict.fromkeys(value.name for value in graph.output))
        self._held = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
        self.nodes: list[NodeProto] = sorted_nodes(list(graph.node), self._held | self.input_names, self.source)
        self.maker: dict[str, int] = {n: k for k, node in enumerate(self.nodes) for n in node.output if n}

    @cached_property
    def input_names(self) -> set[str]:
        return {found.name for found in self.inputs}

    @cached_property
    def read_all(self) -> list[tuple[str, ...]]:
        """For each node the names that it and its bodies read of this graph, weights included."""
        return [tuple(dict.fromkeys(reads(node))) for node in self.nodes]

    @cached_property
    def read(self) -> list[tuple[str, ...]]:
        """The same without initializers."""
        known = self.maker.keys() | self.input_names
        return [tuple(n for n in names if n in known) for names in self.read_all]

    @cached_property
    def users(self) -> dict[str, list[int]]:
        """By tensor, the nodes that read it."""
        found: dict[str, list[int]] = {}
        for number, names in enumerate(self.read):
            for name in names:
                found.setdefault(name, []).append(number)
        return found

    @cached_property
    def activations(self) -> list[str]:
        """In topological order, what nodes make that depends on an input, and outputs: what follows from weights alone is
        left out."""
        depends = set(self.input_names)
        wanted = set(self.outputs)
        found: list[str] = []
        for node, names in zip(self.nodes, self.read, strict=True):
            follows = any(name in depends for name in names)
            made = [n for n in node.output if n and (follows or n in wanted)]
            depends.update(made if follows else ())
            found += made
        return found

    @cached_property
    def observed(self) -> list[str]:
        """Inputs, activations, and outputs that nothing computes."""
        return list(dict.fromkeys([*(found.name for found in self.inputs), *self.activations, *self.outputs]))

    @cached_property
    def random(self) -> set[int]:
        """Nodes that draw numbers, also within their bodies."""
        return {k for k, node in enumerate(self.nodes) if any(is_random(n.op_type) for n in _with_bodies(node))}

    @cached_property
    def types(self) -> dict[str, onnx.TypeProto]:
        """What shape inference knows of the types of this graph's tensors, by name."""
        light = without_weights(self.proto)
        del light.graph.value_info[:]
        try:
            graph = onnx.shape_inference.infer_shapes(light, check_type=False, strict_mode=False).graph
        except _FAILURES:
            graph = light.graph
        return {value.name: value.type for value in (*graph.input, *graph.value_info, *graph.output)}

    def kind(self, name: str) -> str:
        """ "tensor", "sequence", "optional", "map", "sparse_tensor"; "" where it is not known."""
        found = self.types.get(name)
        return "" if found is None else str(found.WhichOneof("value") or "").removesuffix("_type")

    def node(self, name: str) -> NodeProto | None:
        """Who makes a tensor; None of an input."""
        number = self.maker.get(name)
        return None if number is None else self.nodes[number]

    def operator(self, name: str) -> str:
        """The operator that makes a tensor, with its domain unless that is ONNX's own; "" of an input."""
        node = self.node(name)
        return "" if node is None else f"{node.domain}.{node.op_type}".removeprefix("ai.onnx.").lstrip(".")

    def label(self, name: str) -> str:
        """The name of the node that makes a tensor; where it has none, the tensor's."""
        node = self.node(name)
        return name if node is None or not node.name else node.name

    def has_weights(self, number: int) -> bool:
        """Whether a node reads floats of rank 2 or more that are stored, as convolutions and matrix products do."""
        return any(self._is_matrix(name) for name in reads(self.nodes[number]))

    @cached_property
    def _matrices(self) -> set[str]:
        kept = {t.name for t in self.proto.graph.initializer if len(t.dims) >= 2 and t.data_type in _FLOATS}
        for node in self.nodes:
            tensors = [a.t for a in node.attribute if node.op_type == "Constant" and a.name == "value"]
            kept.update(node.output[0] for t in tensors if len(t.dims) >= 2 and t.data_type in _FLOATS)
        return kept

    def _is_matrix(self, name: str) -> bool:
        return name in self._matrices

    def stored(self, name: str) -> Array | None:
        """An initializer's values; None of anything else."""
        tensor = next((t for t in self.proto.graph.initializer if t.name == name), None)
        return None if tensor is None else self.weights.array(tensor)


_FLOATS = frozenset(
    {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE}
)


def _with_bodies(node: NodeProto) -> Iterator[NodeProto]:
    yield node
    for body in bodies(node):
        yield from every_node(body.node)
