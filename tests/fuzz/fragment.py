"""A piece of a graph that reads given tensors: what blocks make, what is changed at random, put into bodies and run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

Array = NDArray[Any]
Pair = tuple[int, ...]
"""A dim at each of the sizes that a graph is run at."""


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor of the graph that grows, with its value at each of the sizes."""

    name: str
    values: tuple[Array, ...]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values[0].dtype

    @property
    def dims(self) -> tuple[Pair, ...]:
        return tuple(zip(*(v.shape for v in self.values), strict=True))

    @property
    def rank(self) -> int:
        return self.values[0].ndim

    @property
    def is_float(self) -> bool:
        return self.dtype.kind == "f"

    def fixed(self, axis: int) -> int | None:
        """The dim, where it is the same at all sizes."""
        first, *others = self.dims[axis]
        return first if all(o == first for o in others) else None


@dataclass
class Fragment:
    """``nodes`` in order, ``constants`` by name; ``inputs`` maps names in the nodes to tensors of the graph."""

    nodes: list[onnx.NodeProto]
    inputs: dict[str, Tensor]
    outputs: list[str]
    constants: dict[str, Array] = field(default_factory=dict)
    functions: list[onnx.FunctionProto] = field(default_factory=list)
    source: str = ""

    @property
    def inner(self) -> list[str]:
        """Tensors that are made inside and are no output."""
        return [o for n in self.nodes for o in n.output if o and o not in self.outputs]

    @property
    def reads_nothing(self) -> bool:
        """Whether some input has no elements."""
        return any(v.size == 0 for t in self.inputs.values() for v in t.values)

    @property
    def all_outputs(self) -> list[str]:
        """Outputs, each once, and what is inside."""
        return [*dict.fromkeys(self.outputs), *self.inner]


def renamed(fragment: Fragment, prefix: str) -> Fragment:
    """With names that no other has, and those of the graph's tensors for the inputs."""
    names = {n: t.name for n, t in fragment.inputs.items()}
    for name in (*fragment.constants, *(o for n in fragment.nodes for o in n.output if o)):
        names.setdefault(name, f"{prefix}{name}")
    return replace(
        fragment,
        nodes=[_rewired(n, names, prefix) for n in fragment.nodes],
        inputs={t.name: t for t in fragment.inputs.values()},
        outputs=[names[o] for o in fragment.outputs],
        constants={names[c]: v for c, v in fragment.constants.items()},
    )


def _rewired(node: onnx.NodeProto, names: Mapping[str, str], prefix: str) -> onnx.NodeProto:
    made = onnx.NodeProto()
    made.CopyFrom(node)
    made.name = f"{prefix}{node.name}" if node.name else ""
    made.input[:] = [names.get(n, n) for n in node.input]
    made.output[:] = [names.get(n, n) for n in node.output]
    for attribute in made.attribute:  # what bodies capture
        if attribute.HasField("g"):
            for inner, old in zip(attribute.g.node, list(attribute.g.node), strict=True):
                inner.CopyFrom(_rewired(old, names, ""))
            for value in attribute.g.output:
                value.name = names.get(value.name, value.name)
    return made


def as_model(fragment: Fragment, opset: int) -> onnx.ModelProto:
    """The fragment alone: its inputs with their types, ranks open where sizes differ, its outputs untyped."""
    inputs = [value_info(t) for t in fragment.inputs.values()]
    outputs = [onnx.ValueInfoProto(name=o) for o in fragment.outputs]
    held = [numpy_helper.from_array(v, n) for n, v in fragment.constants.items()]
    graph = helper.make_graph(fragment.nodes, "g", inputs, outputs, held)
    return finished(graph, opset, fragment.functions)


def value_info(tensor: Tensor, dims: Any = None) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(tensor.dtype)
    shape = [d if (d := tensor.fixed(k)) is not None else None for k in range(tensor.rank)] if dims is None else dims
    return helper.make_tensor_value_info(tensor.name, kind, shape)


def domains_of(nodes: Any) -> set[str]:
    found = set()
    for node in nodes:
        found.add(node.domain)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found |= domains_of(attribute.g.node)
    return found - {"", "ai.onnx"}


def finished(graph: onnx.GraphProto, opset: int, functions: list[onnx.FunctionProto], ir: int = 0) -> onnx.ModelProto:
    domains = sorted(domains_of(graph.node).union(*(domains_of(f.node) for f in functions)))
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    ir = ir or max(8, helper.find_min_ir_version_for(imports, ignore_unknown=True))
    return helper.make_model(graph, opset_imports=imports, ir_version=ir, functions=functions)
