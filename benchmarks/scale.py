"""Generated models of any number of nodes, one function a kind: what the growth of time and memory is measured on.

Each takes the number of nodes wanted and gives a valid model of about as many; :func:`shuffled` puts its nodes out of order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

CHANNELS = 4
SIDE = 8
BLOCK = ("Conv", "BatchNormalization", "Relu", "Identity")
SCALE = {"gamma": (0.8, 1.2), "beta": (-0.1, 0.1), "mean": (-0.1, 0.1), "var": (0.8, 1.2)}
PER_GROUP = 3
"""Branches of one tensor in :func:`groups`."""


class Builder:
    """Nodes and weights of a graph that is being made; ``x`` is float[N, CHANNELS, SIDE, SIDE] unless said otherwise."""

    def __init__(self, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def add(self, op: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """A node named ``name``; gives the name of its one output."""
        name = name or f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [f"{name}.out"], name, **attributes))
        return f"{name}.out"

    def constant(self, name: str, array: Any) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def floats(self, name: str, low: float, high: float, *shape: int) -> str:
        return self.constant(name, self.random.uniform(low, high, shape).astype(np.float32))

    def conv(self, x: str, kernel: int, gain: float = 1.0) -> str:
        """A Conv over CHANNELS channels that keeps the size."""
        name = f"conv_{len(self.nodes)}"
        spread = gain * np.sqrt(2 / (kernel * kernel * CHANNELS))
        weight = self.random.standard_normal((CHANNELS, CHANNELS, kernel, kernel)) * spread
        held = self.constant(f"{name}.weight", weight.astype(np.float32))
        return self.add("Conv", x, held, name=name, pads=[kernel // 2] * 4)

    def norm(self, x: str) -> str:
        name = f"batchnormalization_{len(self.nodes)}"
        parts = [self.floats(f"{name}.{part}", *span, CHANNELS) for part, span in SCALE.items()]
        return self.add("BatchNormalization", x, *parts, name=name)

    def model(self, result: str, inputs: Sequence[ValueInfoProto] = (), output: Any = None) -> onnx.ModelProto:
        """The model that gives ``result`` as ``y``; ``output`` is its shape, by default the image's."""
        for node in self.nodes:
            node.output[:] = ["y" if name == result else name for name in node.output]
            node.input[:] = ["y" if name == result else name for name in node.input]
        made = helper.make_tensor_value_info("y", TensorProto.FLOAT, output or _IMAGE)
        graph = helper.make_graph(self.nodes, "scale", inputs or [image("x")], [made], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


_IMAGE = ["N", CHANNELS, SIDE, SIDE]


def image(name: str) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, _IMAGE)


def chain(nodes: int) -> onnx.ModelProto:
    """Conv, BatchNormalization, Relu and Identity in turn, every Conv and BatchNormalization with weights of its own."""
    made, x = Builder(), "x"
    for number in range(nodes):
        op = BLOCK[number % len(BLOCK)]
        x = made.conv(x, 3) if op == "Conv" else made.norm(x) if op == "BatchNormalization" else made.add(op, x)
    return made.model(x)


def wide(nodes: int) -> onnx.ModelProto:
    """One tensor, behind an Identity that goes, with ``2 nodes / 5`` readers, half of them behind Identities that go, too;
    the results of all in one Concat."""
    made = Builder()
    shared = made.add("Identity", made.add("Relu", "x"))
    ends = []
    for number in range(max(1, 2 * nodes // 5)):
        read = made.add("Identity", shared) if number % 2 else shared
        scaled = made.add("Mul", read, made.floats(f"scale_{number}", 0.5, 1.5, 1, CHANNELS, 1, 1))
        ends.append(made.add("Tanh", scaled))
    return made.model(made.add("Concat", *ends, axis=1), output=["N", CHANNELS * len(ends), SIDE, SIDE])


def deep_sum(nodes: int) -> onnx.ModelProto:
    """``nodes / 3`` addends that nothing merges, in one chain of Adds."""
    made, total = Builder(), "x"
    for number in range(max(1, nodes // 3)):
        scaled = made.add("Mul", "x", made.floats(f"scale_{number}", 0.5, 1.5, 1, CHANNELS, 1, 1))
        total = made.add("Add", total, made.add("Tanh", scaled))
    return made.model(total)


def branches(nodes: int) -> onnx.ModelProto:
    """``nodes / 2`` convolutions of one tensor, 3x3 and 1x1 in turn, in one chain of Adds: they become one Conv."""
    made, total = Builder(), ""
    for number in range(max(2, nodes // 2)):
        branch = made.conv("x", 1 if number % 2 else 3, gain=2 / nodes)
        total = made.add("Add", total, branch) if total else branch
    return made.model(total)


def groups(nodes: int) -> onnx.ModelProto:
    """One chain of Adds over branches of many tensors, PER_GROUP of each, which become one Conv a tensor."""
    made, total = Builder(), ""
    for number in range(max(1, nodes // (2 * PER_GROUP + 2))):
        source = made.add("Tanh", made.add("Mul", "x", made.floats(f"scale_{number}", 0.5, 1.5, 1, CHANNELS, 1, 1)))
        for branch in range(PER_GROUP):
            found = made.conv(source, 1 if branch % 2 else 3)
            total = made.add("Add", total, found) if total else found
    return made.model(total)


def repvgg(nodes: int) -> onnx.ModelProto:
    """RepVGG blocks in training form: 3x3 and 1x1 convolutions and the input, each normalised, summed, and Relu."""
    made, x = Builder(), "x"
    for _ in range(max(1, nodes // 8)):
        dense, point, same = made.norm(made.conv(x, 3, 0.5)), made.norm(made.conv(x, 1, 0.5)), made.norm(x)
        x = made.add("Relu", made.add("Add", made.add("Add", dense, point), same))
    return made.model(x)


HEADS = 2
WIDTH = 8


def soup(nodes: int) -> onnx.ModelProto:
    """Attention layers whose every Reshape computes its target from the sizes of open dims, as exporters write them."""
    made, x = Builder(), "x"
    zero, one = made.constant("zero", np.array(0)), made.constant("one", np.array(1))
    axis = made.constant("axis", np.array([0]))
    heads, each = made.constant("heads", np.array([HEADS])), made.constant("each", np.array([WIDTH // HEADS]))
    width = made.constant("width", np.array([WIDTH]))

    def size(of: str, place: str) -> str:
        return made.add("Unsqueeze", made.add("Gather", made.add("Shape", of), place, axis=0), axis)

    def reshaped(of: str, *tail: str) -> str:
        target = made.add("Concat", size(of, zero), size(of, one), *tail, axis=0)
        return made.add("Reshape", of, target)

    def dense(of: str) -> str:
        weight = made.floats(f"weight_{len(made.nodes)}", -0.5, 0.5, WIDTH, WIDTH)
        return made.add("MatMul", of, weight)

    while len(made.nodes) < nodes - 10:
        query, value = (made.add("Transpose", reshaped(dense(x), heads, each), perm=[0, 2, 1, 3]) for _ in range(2))
        scores = made.add("MatMul", query, made.add("Transpose", value, perm=[0, 1, 3, 2]))
        mixed = made.add("Transpose", made.add("MatMul", made.add("Softmax", scores), value), perm=[0, 2, 1, 3])
        x = made.add("Tanh", made.add("Add", x, dense(reshaped(mixed, width))))
    entry = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "sequence", WIDTH])
    return made.model(x if made.nodes else made.add("Tanh", x), [entry], ["batch", "sequence", WIDTH])


OPEN = 8
"""One If of so many in :func:`names` has a condition that is computed."""


def names(nodes: int) -> onnx.ModelProto:
    """Ifs whose bodies all use the names ``a``, ``a_1`` and ``a_1_1``: of most the condition is known, and the branch
    comes into the graph. Behind each a Conv on a weight that all share, so that what it is folded into has one name."""
    made, x = Builder(), "x"
    known = made.constant("known", np.array(True))
    computed = made.add("Greater", made.add("ReduceMax", "x", keepdims=0), made.constant("half", np.float32(0.5)))
    weight = made.floats("weight", -0.5, 0.5, CHANNELS, CHANNELS, 1, 1)
    for number in range(max(1, nodes // 9)):
        bodies = {f"{name}_branch": _body(name, op, x) for name, op in (("then", "Tanh"), ("else", "Sigmoid"))}
        chosen = made.add("If", known if number % OPEN else computed, **bodies)
        x = made.norm(made.add("Conv", chosen, weight))
    return made.model(x)


def _body(name: str, op: str, x: str) -> onnx.GraphProto:
    steps = [("Relu", x, "a"), (op, "a", "a_1"), ("Neg", "a_1", "a_1_1")]
    inner = [helper.make_node(kind, [of], [to], to) for kind, of, to in steps]
    return helper.make_graph(inner, name, [], [image("a_1_1")])


def data(nodes: int) -> onnx.ModelProto:
    """Operators whose size is data, each computed from what the one before gave."""
    made, x = Builder(), "x"
    for _ in range(max(1, nodes // 4)):
        places = made.add("NonZero", x)
        x = made.add("Tanh", made.add("Cast", made.add("Transpose", places, perm=[1, 0]), to=TensorProto.FLOAT))
    entry = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 2])
    return made.model(x, [entry], [None, 2])


KINDS: dict[str, Callable[[int], onnx.ModelProto]] = {
    "chain": chain,
    "wide": wide,
    "sum": deep_sum,
    "branches": branches,
    "groups": groups,
    "repvgg": repvgg,
    "soup": soup,
    "names": names,
    "data": data,
}


def shuffled(model: onnx.ModelProto, seed: int = 0) -> onnx.ModelProto:
    """The same model, the nodes of its graph out of order (which the checker refuses, and files in the wild have)."""
    order = np.random.default_rng(seed).permutation(len(model.graph.node))
    nodes = [model.graph.node[int(place)] for place in order]
    found = onnx.ModelProto()
    found.CopyFrom(model)
    del found.graph.node[:]
    found.graph.node.extend(nodes)
    return found
