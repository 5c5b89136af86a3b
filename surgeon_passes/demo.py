"""A small RepVGG-style network as a training script exports it: what ``surgeon-passes optimize`` shows itself on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

NAME = "the embedded model"
SIZE = 64
CLASSES = 10
STAGES = ((3, 32, 2), (32, 32, 1), (32, 64, 2), (64, 64, 1), (64, 64, 1))
"""(input channels, output channels, stride) of each block"""


def build(seed: int = 0) -> onnx.ModelProto:
    """The model, equal for equal seeds.

    Five RepVGG blocks in training form (3x3 and 1x1 branches and, where shapes allow, an identity branch, each with its
    BatchNormalization), a Conv with BatchNormalization, a Dropout, and a head that flattens with a shape computed from
    the dynamic batch, then a Gemm. Input ``images`` float[N, 3, 64, 64], output ``logits`` float[N, 10].
    """
    net = _Net(seed)
    x = net.node("Identity", ["images"], "input")
    for number, (channels, width, stride) in enumerate(STAGES):
        x = net.block(f"stage{number}", x, channels, width, stride)
    width = STAGES[-1][1]
    x = net.norm("neck.bn", net.conv("neck.conv", x, width, width, 1), width)
    x = net.node("GlobalAveragePool", [net.node("Relu", [x], "neck.relu")], "pool")
    x = net.node("Dropout", [net.flatten("flatten", x)], "dropout")
    weight = net.weight("fc.weight", (CLASSES, width), fan_in=width)
    bias = net.weight("fc.bias", (CLASSES,), fan_in=width)
    net.nodes.append(helper.make_node("Gemm", [x, weight, bias], ["logits"], "fc", transB=1))
    return net.model()


class _Net:
    """Nodes and initializers, made in order from one stream of random numbers."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def node(self, op: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, list(inputs), [f"{name}.out"], name, **attributes))
        return f"{name}.out"

    def constant(self, name: str, array: NDArray[Any]) -> str:
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def weight(self, name: str, shape: tuple[int, ...], fan_in: int) -> str:
        scale = np.sqrt(2 / fan_in)
        return self.constant(name, (self.random.standard_normal(shape) * scale).astype(np.float32))

    def conv(self, name: str, x: str, channels: int, width: int, kernel: int, stride: int = 1) -> str:
        weight = self.weight(f"{name}.weight", (width, channels, kernel, kernel), channels * kernel * kernel)
        pads, strides = [kernel // 2] * 4, [stride] * 2
        return self.node("Conv", [x, weight], name, kernel_shape=[kernel] * 2, pads=pads, strides=strides)

    def norm(self, name: str, x: str, width: int) -> str:
        """An inference BatchNormalization with statistics as after some training."""
        draw = self.random
        parameters = (
            ("weight", draw.uniform(0.5, 1.0, width)),
            ("bias", draw.uniform(-0.2, 0.2, width)),
            ("running_mean", draw.uniform(-0.2, 0.2, width)),
            ("running_var", draw.uniform(0.7, 1.5, width)),
        )
        inputs = [self.constant(f"{name}.{part}", values.astype(np.float32)) for part, values in parameters]
        return self.node("BatchNormalization", [x, *inputs], name, epsilon=1e-5)

    def block(self, name: str, x: str, channels: int, width: int, stride: int) -> str:
        dense = self.norm(f"{name}.dense.bn", self.conv(f"{name}.dense.conv", x, channels, width, 3, stride), width)
        point = self.norm(f"{name}.point.bn", self.conv(f"{name}.point.conv", x, channels, width, 1, stride), width)
        total = self.node("Add", [dense, point], f"{name}.add")
        if channels == width and stride == 1:
            total = self.node("Add", [total, self.norm(f"{name}.identity.bn", x, width)], f"{name}.add_identity")
        return self.node("Relu", [total], f"{name}.relu")

    def flatten(self, name: str, x: str) -> str:
        """``x.reshape(x.shape[0], -1)``, as exporters write it."""
        shape = self.node("Shape", [x], f"{name}.shape")
        first = self.constant(f"{name}.first", np.array([0], np.int64))
        batch = self.node("Gather", [shape, first], f"{name}.batch", axis=0)
        rest = self.constant(f"{name}.rest", np.array([-1], np.int64))
        target = self.node("Concat", [batch, rest], f"{name}.target", axis=0)
        return self.node("Reshape", [x, target], f"{name}.reshape")

    def model(self) -> onnx.ModelProto:
        images = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["N", 3, SIZE, SIZE])
        logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", CLASSES])
        graph = helper.make_graph(self.nodes, "repvgg_demo", [images], [logits], self.initializers)
        opsets = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="surgeon_passes.demo")
