"""Regions from ONNX text: before and after share the tensors of equal name that neither makes. One fold, good or spoilt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from onnx import TensorProto, helper

from surgeon_passes.index import Scope
from surgeon_passes.region import Exactness, NodeImage, Region, TensorType, Verdict
from surgeon_passes.verify.batches import check

FLOAT = TensorProto.FLOAT


class Sym:
    """``factor * name + offset``."""

    def __init__(self, name: str, factor: int = 1, offset: int = 0) -> None:
        self.name, self.factor, self.offset = name, factor, offset

    def symbols(self) -> frozenset[str]:
        return frozenset({self.name})

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        return self.factor * sizes[self.name] + self.offset

    def __str__(self) -> str:
        return f"{self.factor}*{self.name}+{self.offset}"


class Known:
    """Types by tensor name."""

    def __init__(self, types: Mapping[str, TensorType]) -> None:
        self.types = types

    def type_of(self, tensor: gs.Tensor) -> TensorType:
        return self.types.get(tensor.name, TensorType())


def typed(**types: tuple[int, Sequence[object] | None]) -> Known:
    return Known({n: TensorType(d, None if s is None else tuple(s)) for n, (d, s) in types.items()})  # type: ignore[arg-type]


def graph_of(opset: int = 17, functions: Sequence[gs.Function] = ()) -> gs.Graph:
    graph = gs.Graph(opset=opset)
    graph.ir_version = 8
    graph.functions = list(functions)
    return graph


def nodes_of(text: str, tensors: dict[str, gs.Tensor]) -> list[NodeImage]:
    """One node a line, ``y = Op<a: int = 1>(x)`` as onnx.parser reads them."""
    images = []
    for line in filter(None, (part.strip() for part in text.splitlines())):
        proto = onnx.parser.parse_node(line)
        for name in (*proto.input, *proto.output):
            if name and name not in tensors:
                tensors[name] = gs.Variable(name)
        attrs = {a.name: _attribute(a) for a in proto.attribute}
        empty = gs.Variable.empty()
        inputs = tuple(tensors[n] if n else empty for n in proto.input)
        outputs = tuple(tensors[n] if n else empty for n in proto.output)
        node = gs.Node(
            proto.op_type, proto.output[0] + "_node", attrs, list(inputs), list(outputs), proto.domain or None
        )
        images.append(NodeImage(node, inputs, outputs))
    return images


def _attribute(attribute: onnx.AttributeProto) -> object:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, TensorProto):
        return gs.Constant(attribute.name, onnx.numpy_helper.to_array(value))
    return value.decode() if isinstance(value, bytes) else value


def region(
    before: str,
    after: str,
    outputs: Sequence[tuple[str, str]] = (("y", "y2"),),
    constants: Mapping[str, np.ndarray] | None = None,
    exactness: Exactness = Exactness.ROUNDING,
    opset: int = 17,
    cone: str = "",
    tensors: dict[str, gs.Tensor] | None = None,
    domains: Mapping[str, int] | None = None,
) -> Region:
    """Tensors of one name are one tensor; write ``y2`` for what replaces ``y``."""
    tensors = {} if tensors is None else tensors
    for name, value in (constants or {}).items():
        tensors[name] = gs.Constant(name, np.asarray(value))
    scope = Scope(graph_of(opset), "", opsets={"": opset, **(domains or {})})
    first, second, third = (nodes_of(t, tensors) for t in (before, after, cone))
    for pair in outputs:
        for name in pair:
            tensors.setdefault(name, gs.Variable(name))
    pairs = tuple((tensors[a], tensors[b]) for a, b in outputs)
    return Region(scope, tuple(first), tuple(second), pairs, exactness, tuple(third))


Constants = dict[str, np.ndarray]


def conv_bn(
    break_it: Callable[[Constants], None] | None = None,
    seed: int = 0,
    dtype: type = np.float32,
    group: int = 1,
    epsilon: float = 1e-5,
    var: float = 1.0,
) -> Region:
    """Conv + BatchNormalization folded by the formula; ``break_it`` spoils W or B."""
    rng = np.random.default_rng(seed)
    c = {n: rng.standard_normal(8).astype(dtype) for n in ("b", "gamma", "beta", "mean")}
    c["var"] = (var * (rng.random(8) + 0.5)).astype(dtype)
    c["w"] = rng.standard_normal((8, 8 // group, 3, 3)).astype(dtype)
    s = c["gamma"].astype(np.float64) / np.sqrt(c["var"].astype(np.float64) + epsilon)
    c["W"] = (s[:, None, None, None] * c["w"]).astype(dtype)
    c["B"] = (s * (c["b"].astype(np.float64) - c["mean"]) + c["beta"]).astype(dtype)
    if break_it is not None:
        break_it(c)
    conv = f"Conv<pads: ints = [1, 1, 1, 1], group: int = {group}>"
    return region(
        f"c = {conv}(x, w, b)\ny = BatchNormalization(c, gamma, beta, mean, var)", f"y2 = {conv}(x, W, B)", constants=c
    )


IMAGE = typed(x=(FLOAT, [1, 8, 56, 56]))


def verdict(one: Region, types: Known = IMAGE, **options: object) -> Verdict:
    return check([one], types, graph_of(), **options)[0]  # type: ignore[arg-type]


def scale_input_axis(c: Constants) -> None:
    s = c["gamma"] / np.sqrt(c["var"] + 1e-5)
    c["W"] = s[None, :, None, None] * c["w"]


def drop_bias(c: Constants) -> None:
    c["B"] = np.zeros_like(c["B"])


def drop_mean_of_one(c: Constants) -> None:
    c["B"][5] += 1e-4


def shift_kernel(c: Constants) -> None:
    c["W"] = np.roll(c["W"], 1, axis=3)


def flip_weak_channel(c: Constants) -> None:
    c["w"][3] *= 1e-3
    c["W"][3] *= -1e-3


def flip_border_tap(c: Constants) -> None:
    c["W"][2, 1, 0, 0] *= 1.001


BROKEN = [scale_input_axis, drop_bias, drop_mean_of_one, shift_kernel, flip_weak_channel, flip_border_tap]
