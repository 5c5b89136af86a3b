"""The rules' own examples as blocks: each shows a rule the graph that it looks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import onnx
from onnx import helper, numpy_helper

from surgeon_passes.rules.rule import Rule
from tests.patterns.test_examples import RULES, example, options

from .fragment import Array

Dims = tuple[int | str, ...]


@dataclass(frozen=True)
class Example:
    """The graph before; ``inputs`` are (name, element type, dims)."""

    rule: Rule
    nodes: tuple[onnx.NodeProto, ...]
    inputs: tuple[tuple[str, int, Dims], ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Array]

    @property
    def needs(self) -> dict[str, bool]:
        """Options of Rewrite that the rule needs."""
        return options(self.rule)

    @property
    def symbols(self) -> set[str]:
        return {d for _, _, dims in self.inputs for d in dims if isinstance(d, str)}


@cache
def examples() -> dict[str, Example]:
    """By the rules' names, all of them."""
    return {name: _read(rule) for name, rule in RULES.items()}


def _read(rule: Rule) -> Example:
    before, _ = example(rule)
    constants = {t.name: numpy_helper.to_array(t) for t in before.graph.initializer}
    nodes = []
    for node in before.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
        else:
            nodes.append(node)
    inputs = tuple((v.name, v.type.tensor_type.elem_type, _dims(v)) for v in before.graph.input)
    return Example(rule, tuple(nodes), inputs, tuple(o.name for o in before.graph.output), constants)


def _dims(value: onnx.ValueInfoProto) -> Dims:
    dims = value.type.tensor_type.shape.dim
    return tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or f"_{k}" for k, d in enumerate(dims))


def dtype_of(kind: int) -> object:
    return helper.tensor_dtype_to_np_dtype(kind)
