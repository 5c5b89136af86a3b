"""A fragment inside of an If, a Loop or a function that the model defines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .choices import Choices, flip
from .fragment import Array, Fragment, Tensor

Types = Mapping[str, Tensor]
"""the fragment's outputs, as they were when it ran"""


def _info(tensor: Tensor) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(tensor.name, helper.np_dtype_to_tensor_dtype(tensor.dtype), None)


def _constant(name: str, value: Array) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value))


def _inside(
    choices: Choices, fragment: Fragment, as_nodes: bool = False
) -> tuple[list[onnx.NodeProto], dict[str, Array]]:
    """Nodes of a body, some constants among them; the others stay outside and are captured."""
    within, outside = [], {}
    for name, value in fragment.constants.items():
        if as_nodes or flip(choices):
            within.append(_constant(name, value))
        else:
            outside[name] = value
    return [*within, *fragment.nodes], outside


def in_if(choices: Choices, fragment: Fragment, types: Types, flag: Tensor, prefix: str) -> Fragment:
    """Twins of one name in both branches, the second with another end; the condition is an input, or known."""
    nodes, outside = _inside(choices, fragment)
    outer = [f"{prefix}if{k}" for k in range(len(fragment.outputs))]
    ends = [f"{o}_end" for o in fragment.outputs]
    infos = [replace(types[o], name=e) for o, e in zip(fragment.outputs, ends, strict=True)]
    bodies = []
    for op in ("Identity", choices.pick(("Neg", "Identity", "Relu"))):
        last = [
            helper.make_node(op if types[o].is_float else "Identity", [o], [e])
            for o, e in zip(fragment.outputs, ends, strict=True)
        ]
        bodies.append(helper.make_graph([*nodes, *last], f"{prefix}body", [], [_info(i) for i in infos]))
    inputs, condition = dict(fragment.inputs), flag.name
    if choices.number(0, 3) == 0:
        condition = f"{prefix}condition"
        outside[condition] = np.array(flip(choices))
    else:
        inputs[flag.name] = flag
    node = helper.make_node("If", [condition], outer, then_branch=bodies[0], else_branch=bodies[1])
    return replace(fragment, nodes=[node], inputs=inputs, outputs=outer, constants=outside)


def in_loop(choices: Choices, fragment: Fragment, types: Types, flag: Tensor, prefix: str) -> Fragment:
    """Some turns, what each gives stacked; an input of the result's type is carried on."""
    nodes, outside = _inside(choices, fragment)
    outputs = list(dict.fromkeys(fragment.outputs))
    first = types[outputs[0]]
    carried = [n for n, t in fragment.inputs.items() if t.dtype == first.dtype and t.dims == first.dims]
    state = choices.pick(carried) if carried and flip(choices) else None
    inputs = [
        helper.make_tensor_value_info(f"{prefix}turn", TensorProto.INT64, []),
        helper.make_tensor_value_info(f"{prefix}go", TensorProto.BOOL, []),
    ]
    results = [helper.make_tensor_value_info(f"{prefix}gone", TensorProto.BOOL, [])]
    last = [helper.make_node("Identity", [f"{prefix}go"], [f"{prefix}gone"])]
    taken, operands, outer = outputs, [f"{prefix}turns", ""], []
    if state is not None:
        inputs.append(_info(replace(fragment.inputs[state], name=f"{prefix}state")))
        nodes = [_reading(node, state, f"{prefix}state") for node in nodes]
        results.append(_info(first))
        operands.append(fragment.inputs[state].name)
        outer.append(f"{prefix}last")
        taken = outputs[1:]
    for name in taken:
        last.append(helper.make_node("Identity", [name], [f"{name}_each"]))
        results.append(_info(replace(types[name], name=f"{name}_each")))
        outer.append(f"{prefix}{name}_all")
    body = helper.make_graph([*nodes, *last], f"{prefix}body", inputs, results)
    outside[f"{prefix}turns"] = np.array(choices.number(1, 3), np.int64)
    return replace(
        fragment, nodes=[helper.make_node("Loop", operands, outer, body=body)], outputs=outer, constants=outside
    )


def _reading(node: onnx.NodeProto, old: str, new: str) -> onnx.NodeProto:
    made = onnx.NodeProto()
    made.CopyFrom(node)
    made.input[:] = [new if n == old else n for n in node.input]
    for attribute in made.attribute:
        if attribute.HasField("g"):
            for inner in attribute.g.node:
                inner.CopyFrom(_reading(inner, old, new))
    return made


def in_function(choices: Choices, fragment: Fragment, types: Types, flag: Tensor, prefix: str) -> Fragment:
    """A call of a local function whose body it is."""
    if any(a.HasField("g") for n in fragment.nodes for a in n.attribute):
        return fragment
    nodes, _ = _inside(choices, fragment, as_nodes=True)
    outputs = list(dict.fromkeys(fragment.outputs))
    domains = {n.domain for n in nodes} - {""}
    imports = [helper.make_opsetid("", 0), *(helper.make_opsetid(d, 1) for d in sorted(domains))]
    name = f"{prefix}function"
    made = helper.make_function("fuzz", name, list(fragment.inputs), outputs, nodes, imports)
    outer = [f"{prefix}{o}_called" for o in outputs]
    call = helper.make_node(name, list(fragment.inputs), outer, domain="fuzz")
    return replace(fragment, nodes=[call], outputs=outer, constants={}, functions=[*fragment.functions, made])


BODIES: tuple[Callable[[Choices, Fragment, Types, Tensor, str], Fragment], ...] = (in_if, in_loop, in_function)
