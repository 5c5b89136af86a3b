"""Random shape arithmetic and random windows against ONNX Runtime at several sizes: nothing known is ever wrong."""

from __future__ import annotations

import random

import numpy as np
import pytest
from onnx import helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, RuntimeException

from tests.values.build import assert_holds, assert_shape_holds, evaluator, run

REFUSED = (Fail, InvalidArgument, RuntimeException)
SIZES = [{"N": 1, "H": 1, "W": 2}, {"N": 3, "H": 8, "W": 5}, {"N": 2, "H": 31, "W": 17}]
BINARY = ["Add", "Sub", "Mul", "Div", "Mod", "Max", "Min"]
COMPARE = ["Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"]


class Builder:
    """Grows a graph of int64 vectors of four elements from Shape(x)."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.nodes = [helper.make_node("Shape", ["x"], ["v0"])]
        self.vectors = ["v0"]

    def constant(self, values):
        node = helper.make_node("Constant", [], [f"c{len(self.nodes)}"], value_ints=list(values))
        self.nodes.append(node)
        return node.output[0]

    def add(self, op, inputs, **attrs):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attrs))
        return name

    def vector(self):
        if self.random.random() < 0.3:
            return self.constant(self.random.choice([-3, -1, 1, 2, 3, 4, 7]) for _ in range(4))
        return self.random.choice(self.vectors)

    def step(self):
        kind = self.random.randrange(12)
        if kind < 3:
            made = self.add(self.random.choice(BINARY), [self.vector(), self.vector()])
        elif kind == 3:
            mask = self.add(self.random.choice(COMPARE), [self.vector(), self.vector()])
            made = self.add("Where", [mask, self.vector(), self.vector()])
        elif kind == 4:
            made = self.add(
                "Gather", [self.vector(), self.constant(self.random.choice([-4, -1, 0, 2, 3]) for _ in range(4))]
            )
        elif kind == 5:
            cut = self.random.randrange(1, 4)
            head = self.add("Slice", [self.vector(), self.constant([0]), self.constant([cut])])
            tail = self.add("Slice", [self.vector(), self.constant([cut]), self.constant([2**63 - 1])])
            made = self.add("Concat", [tail, head], axis=0)
        elif kind == 6:
            made = self.add(self.random.choice(["Neg", "Abs", "Sign"]), [self.vector()])
        else:
            made = self.rearranged(kind)
        self.vectors.append(made)

    def rearranged(self, kind):
        """Operators that put elements elsewhere, or reduce them; four elements again in the end."""
        source = self.vector()
        if kind == 7:
            places = self.constant(self.random.sample([0, 1, 2, 3], 2))
            values = self.add("Gather", [self.vector(), self.constant([0, 3])])
            reduction = self.random.choice(["none", "add", "mul", "max", "min"])
            return self.add("ScatterElements", [source, places, values], reduction=reduction)
        if kind == 8:
            op = self.random.choice(["ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin"])
            return self.add("Expand", [self.add(op, [source]), self.constant([4])])
        if kind == 9:
            square = self.add("Reshape", [source, self.constant([2, 2])])
            turned = self.add("Transpose", [square])
            return self.add("Reshape", [turned, self.constant([-1])])
        if kind == 10:
            long = self.add("Tile", [source, self.constant([2])])
            return self.add(
                "Slice", [long, self.constant([6]), self.constant([-6]), self.constant([0]), self.constant([-1])]
            )
        padded = self.add("Pad", [source, self.constant([2, 1])])
        keep = self.add("Cast", [self.constant([0, 1, 0, 1, 1, 1, 0])], to=9)
        return self.add("Compress", [padded, keep], axis=0)

    def model(self):
        x = helper.make_tensor_value_info("x", 1, ["N", 3, "H", "W"])
        outputs = [helper.make_tensor_value_info(v, 7, [4]) for v in self.vectors]
        graph = helper.make_graph(self.nodes, "g", [x], outputs)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize("seed", range(150))
def test_random_shape_arithmetic(seed):
    builder = Builder(seed)
    for _ in range(12):
        builder.step()
    proto = builder.model()
    ev = evaluator(proto)
    found = [ev.value(name) for name in builder.vectors]
    for sizes in SIZES:
        x = np.zeros((sizes["N"], 3, sizes["H"], sizes["W"]), np.float32)
        try:
            expected = run(proto, {"x": x})
        except REFUSED:
            continue  # a division by zero
        for ours, theirs in zip(found, expected, strict=True):
            assert_holds(ours, theirs, dict(sizes))


def window_node(rng, op):
    kernel = [rng.randrange(1, 4) for _ in range(2)]
    attrs = {"kernel_shape": kernel, "strides": [rng.randrange(1, 4) for _ in range(2)]}
    if rng.random() < 0.25:
        attrs["auto_pad"] = rng.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])
    else:
        attrs["pads"] = [rng.randrange(0, min(kernel)) for _ in range(4)]
    if op != "AveragePool" and not attrs.get("auto_pad", "").startswith("SAME"):
        attrs["dilations"] = [rng.randrange(1, 3) for _ in range(2)]
    if op.endswith("Pool"):
        attrs["ceil_mode"] = rng.randrange(2)
    if op == "ConvTranspose" and "auto_pad" not in attrs:
        attrs["output_padding"] = [rng.randrange(0, s) for s in attrs["strides"]]
    return attrs


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose", "MaxPool", "AveragePool"])
@pytest.mark.parametrize("seed", range(25))
def test_random_windows(op, seed):
    rng = random.Random(seed)
    nodes, weights, tensor = [], [], "x"
    for k in range(2):
        attrs = window_node(rng, op)
        inputs = [tensor]
        if op.startswith("Conv"):
            weights.append(numpy_helper.from_array(np.ones((3, 3, *attrs["kernel_shape"]), np.float32), f"w{k}"))
            inputs.append(f"w{k}")
        tensor = f"t{k}"
        nodes.append(helper.make_node(op, inputs, [tensor], **attrs))
    x = helper.make_tensor_value_info("x", 1, ["N", 3, "H", "W"])
    outputs = [helper.make_tensor_value_info(t, 1, [None] * 4) for t in ("t0", "t1")]
    graph = helper.make_graph(nodes, "g", [x], outputs, weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    ev = evaluator(proto)
    shapes = [ev.types.type_of(ev.tensor(t)).shape for t in ("t0", "t1")]
    for sizes in ({"N": 1, "H": 23, "W": 40}, {"N": 2, "H": 36, "W": 29}):
        try:
            found = run(proto, {"x": np.zeros((sizes["N"], 3, sizes["H"], sizes["W"]), np.float32)})
        except REFUSED:
            continue
        for shape, array in zip(shapes, found, strict=True):
            assert_shape_holds(shape, array.shape, sizes)


@pytest.mark.parametrize("seed", range(120))
def test_random_slices(seed):
    rng = random.Random(seed)
    bounds = [0, 1, 2, 5, -1, -2, -5, 40, -40, 2**31 - 1, 2**63 - 1, -(2**63)]
    start, end, step = rng.choice(bounds), rng.choice(bounds), rng.choice([1, 1, 2, 3, -1, -2])
    names = ["s", "e", "a", "p"]
    initializers = [
        numpy_helper.from_array(np.array([v], np.int64), n) for v, n in zip((start, end, 0, step), names, strict=True)
    ]
    x = helper.make_tensor_value_info("x", 1, ["N"])
    y = helper.make_tensor_value_info("y", 1, [None])
    graph = helper.make_graph([helper.make_node("Slice", ["x", *names], ["y"])], "g", [x], [y], initializers)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    ev = evaluator(proto)
    shape = ev.types.type_of(ev.tensor("y")).shape
    for size in (1, 2, 3, 7, 60):
        assert_shape_holds(shape, run(proto, {"x": np.zeros(size, np.float32)})[0].shape, {"N": size})
