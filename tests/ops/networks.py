"""Published networks as graphs, from the papers' tables; weights have shapes and no values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from onnx import TensorProto, helper


class Net:
    """Nodes in order. Weights are references to a file that nobody reads."""

    def __init__(self, size: int = 224) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[TensorProto] = []
        self.size = size
        self.statistics = 0
        """elements of running means and variances, which published numbers of parameters leave out"""

    def weight(self, *shape: int) -> str:
        tensor = TensorProto(name=f"w{len(self.weights)}", data_type=TensorProto.FLOAT, dims=shape)
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="nowhere.bin")
        self.weights.append(tensor)
        return tensor.name

    def node(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def conv(self, x: str, width: int, out: int, kernel: int, stride: int = 1, group: int = 1) -> str:
        """With its BatchNormalization."""
        weight = self.weight(out, width // group, kernel, kernel)
        y = self.node("Conv", [x, weight], strides=[stride] * 2, pads=[kernel // 2] * 4, group=group)
        self.statistics += 2 * out
        return self.node("BatchNormalization", [y, *(self.weight(out) for _ in range(4))])

    def relu(self, x: str) -> str:
        return self.node("Relu", [x])

    def head(self, x: str, width: int, classes: int = 1000) -> onnx.ModelProto:
        flat = self.node("Flatten", [self.node("GlobalAveragePool", [x])])
        y = self.node("Gemm", [flat, self.weight(classes, width), self.weight(classes)], transB=1)
        images = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, self.size, self.size])
        logits = helper.make_tensor_value_info(y, TensorProto.FLOAT, [1, classes])
        graph = helper.make_graph(self.nodes, "g", [images], [logits], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def resnet(blocks: Sequence[int], bottleneck: bool) -> tuple[onnx.ModelProto, Net]:
    """He et al. 2016, table 1; of a bottleneck the 3x3 convolution has the stride, as torchvision has it."""
    net = Net()
    x = net.relu(net.conv("x", 3, 64, 7, 2))
    x = net.node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    width = 64
    for stage, count in enumerate(blocks):
        inner = 64 * 2**stage
        out = 4 * inner if bottleneck else inner
        for number in range(count):
            stride = 2 if stage and not number else 1
            if bottleneck:
                y = net.relu(net.conv(x, width, inner, 1))
                y = net.conv(net.relu(net.conv(y, inner, inner, 3, stride)), inner, out, 1)
            else:
                y = net.conv(net.relu(net.conv(x, width, inner, 3, stride)), inner, inner, 3)
            short = x if width == out and stride == 1 else net.conv(x, width, out, 1, stride)
            x, width = net.relu(net.node("Add", [y, short])), out
    return net.head(x, width), net


def mobilenet_v2() -> tuple[onnx.ModelProto, Net]:
    """Sandler et al. 2018, table 2: (expansion, channels, repeats, stride)."""
    net = Net()
    x, width = net.relu(net.conv("x", 3, 32, 3, 2)), 32
    table = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for expansion, out, repeats, first in table:
        for number in range(repeats):
            inner, stride = width * expansion, first if not number else 1
            y = x if expansion == 1 else net.relu(net.conv(x, width, inner, 1))
            y = net.conv(net.relu(net.conv(y, inner, inner, 3, stride, inner)), inner, out, 1)
            x = net.node("Add", [x, y]) if stride == 1 and width == out else y
            width = out
    return net.head(net.relu(net.conv(x, width, 1280, 1)), 1280), net
