"""Changes of a fragment at random: other numbers, types and attributes, operands turned round, more readers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from .choices import Choices, flip, noise
from .fragment import Array, Fragment, Tensor

COMMUTE = ("Add", "Mul", "Sum", "Max", "Min", "And", "Or", "Equal")
UNARY = ("Identity", "Relu", "Neg", "Abs", "Sigmoid", "Tanh", "Cast")
SPECIAL = (np.nan, np.inf, -np.inf, 1e-40, -0.0, 3e38, 0.0, 1e30, -1e-30, 65504.0, 1e-7)


def other_numbers(choices: Choices, fragment: Fragment) -> Fragment:
    """What has several elements gets others of the same sign pattern in spirit: variances stay positive."""
    random = noise(choices)
    made = dict(fragment.constants)
    for name, value in made.items():
        if value.dtype.kind == "f" and value.size > 1:
            drawn = random.uniform(0.4, 2.0, value.shape) if (value > 0).all() else random.standard_normal(value.shape)
            made[name] = (drawn * choices.pick((1.0, 0.1, 20.0))).astype(value.dtype)
    return replace(fragment, constants=made)


def special_numbers(choices: Choices, fragment: Fragment) -> Fragment:
    """An element that is not finite, denormal, or huge."""
    floats = [n for n, v in fragment.constants.items() if v.dtype.kind == "f" and v.size]
    if not floats:
        return fragment
    name = choices.pick(floats)
    value = np.array(fragment.constants[name])
    with np.errstate(over="ignore"):
        value.reshape(-1)[choices.number(0, value.size - 1)] = choices.pick(SPECIAL)
    return replace(fragment, constants={**fragment.constants, name: value})


def other_scalar(choices: Choices, fragment: Fragment) -> Fragment:
    names = [n for n, v in fragment.constants.items() if v.size == 1]
    if not names:
        return fragment
    name = choices.pick(names)
    value = fragment.constants[name]
    if value.dtype.kind == "f":
        drawn: Any = choices.pick((0.0, 1.0, -1.0, 2.0, 0.5, 3.0, -0.25))
    elif value.dtype.kind == "b":
        drawn = not value.reshape(()).item()
    else:
        drawn = choices.pick((0, 1, -1, 2, 3, -2))
    return replace(fragment, constants={**fragment.constants, name: np.full(value.shape, drawn).astype(value.dtype)})


def other_rank(choices: Choices, fragment: Fragment) -> Fragment:
    """A constant with a dim 1 more before its own."""
    names = [n for n, v in fragment.constants.items() if v.dtype.kind in "fb" and v.ndim < 4]
    if not names:
        return fragment
    name = choices.pick(names)
    return replace(fragment, constants={**fragment.constants, name: fragment.constants[name][None]})


def turned(choices: Choices, fragment: Fragment) -> Fragment:
    """Operands of commutative operators the other way round."""
    nodes = []
    for node in fragment.nodes:
        made = onnx.NodeProto()
        made.CopyFrom(node)
        if node.op_type in COMMUTE and flip(choices):
            made.input[:] = list(node.input)[::-1]
        nodes.append(made)
    return replace(fragment, nodes=nodes)


def tapped(choices: Choices, fragment: Fragment) -> Fragment:
    """An inner tensor is read from outside, too."""
    if not fragment.inner:
        return fragment
    return replace(fragment, outputs=[*fragment.outputs, choices.pick(fragment.inner)])


def interrupted(choices: Choices, fragment: Fragment) -> Fragment:
    """Another operator between two."""
    edges = [(at, k) for at, n in enumerate(fragment.nodes) for k, name in enumerate(n.input) if name]
    if not edges:
        return fragment
    at, k = choices.pick(edges)
    op = choices.pick(UNARY)
    nodes = list(fragment.nodes)
    reader = onnx.NodeProto()
    reader.CopyFrom(nodes[at])
    attrs = {"to": TensorProto.FLOAT} if op == "Cast" else {}
    between = helper.make_node(op, [reader.input[k]], [f"between{len(nodes)}"], **attrs)
    reader.input[k] = between.output[0]
    nodes[at : at + 1] = [between, reader]
    return replace(fragment, nodes=nodes)


def other_attribute(choices: Choices, fragment: Fragment) -> Fragment:
    places = [
        (at, k)
        for at, n in enumerate(fragment.nodes)
        for k, a in enumerate(n.attribute)
        if a.type in (1, 2, 6, 7) and a.name != "to"
    ]
    if not places:
        return fragment
    at, k = choices.pick(places)
    nodes = list(fragment.nodes)
    made = onnx.NodeProto()
    made.CopyFrom(nodes[at])
    attribute = made.attribute[k]
    if attribute.type == onnx.AttributeProto.FLOAT:
        attribute.f = choices.pick((0.0, 1.0, 0.5, 1e-3, 2.0, -1.0))
    elif attribute.type == onnx.AttributeProto.INT:
        attribute.i += choices.pick((1, -1))
    elif attribute.type == onnx.AttributeProto.INTS and len(attribute.ints):
        place = choices.number(0, len(attribute.ints) - 1)
        attribute.ints[place] += choices.pick((1, -1))
    nodes[at] = made
    return replace(fragment, nodes=nodes)


def repeated(choices: Choices, fragment: Fragment) -> Fragment:
    """A node twice, its twin's results with the others."""
    at = choices.number(0, len(fragment.nodes) - 1)
    twin = onnx.NodeProto()
    twin.CopyFrom(fragment.nodes[at])
    twin.output[:] = [f"{o}_twin" if o else "" for o in twin.output]
    nodes = [*fragment.nodes[: at + 1], twin, *fragment.nodes[at + 1 :]]
    first = next(o for o in twin.output if o)
    return replace(fragment, nodes=nodes, outputs=[*fragment.outputs, first])


CHANGES: tuple[Callable[[Choices, Fragment], Fragment], ...] = (
    other_numbers,
    turned,
    tapped,
    other_scalar,
    interrupted,
    other_attribute,
    other_rank,
    repeated,
    special_numbers,
)
USUAL = (other_numbers, turned)
"""changes after which a rule that fits does so still"""


def changed(choices: Choices, fragment: Fragment) -> Fragment:
    """Usual changes, in two of five fragments another one."""
    for change in USUAL:
        if flip(choices):
            fragment = change(choices, fragment)
    if choices.number(0, 4) > 2:
        fragment = choices.pick(CHANGES[2:])(choices, fragment)
    return fragment


def retyped(fragment: Fragment, dtype: np.dtype[Any]) -> Fragment:
    """Every float32 in it as ``dtype``, its inputs included."""
    kind = helper.np_dtype_to_tensor_dtype(dtype)

    def cast(array: Array) -> Array:
        with np.errstate(over="ignore"):
            return array.astype(dtype) if array.dtype == np.float32 else array

    inputs = {n: Tensor(t.name, tuple(map(cast, t.values))) for n, t in fragment.inputs.items()}
    nodes = []
    for node in fragment.nodes:
        made = onnx.NodeProto()
        made.CopyFrom(node)
        for attribute in made.attribute:
            if attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = kind
            elif attribute.type == onnx.AttributeProto.TENSOR:
                held = onnx.numpy_helper.to_array(attribute.t)
                attribute.t.CopyFrom(onnx.numpy_helper.from_array(cast(held)))
        nodes.append(made)
    return replace(fragment, nodes=nodes, inputs=inputs, constants={n: cast(v) for n, v in fragment.constants.items()})
