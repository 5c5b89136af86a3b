"""Random valid graphs, biased to what rules look for: the result is the same function, with the same face."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import surgeon_passes as sp
from surgeon_passes.runtime import RuntimeFailure
from tests.models import Array, run

FLOAT = TensorProto.FLOAT
CHANNELS = 2


class Writer:
    """Draws nodes onto a graph: [N,2,H,W] tensors, a few of other ranks, shape arithmetic, bodies."""

    def __init__(self, draw: st.DrawFn, prefix: str = "", captured: tuple[str, ...] = ()) -> None:
        self.draw = draw
        self.prefix = prefix
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.images: list[str] = list(captured)
        self.count = 0
        self.rng = np.random.default_rng(draw(st.integers(0, 1 << 16)))

    def name(self) -> str:
        self.count += 1
        return f"{self.prefix}t{self.count}"

    def choose(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def image(self) -> str:
        return str(self.draw(st.sampled_from(self.images[-4:])))

    def constant(self, value: Any) -> str:
        """An initializer, or a Constant node."""
        array = np.asarray(value)
        name = self.name()
        if self.draw(st.booleans()):
            self.constants.append(numpy_helper.from_array(array, name))
        else:
            self.nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array)))
        return name

    def weights(self, *shape: int) -> str:
        return self.constant(self.rng.standard_normal(shape).astype(np.float32))

    def node(self, op: str, *inputs: str, outputs: int = 1, **attrs: Any) -> str:
        names = [self.name() for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attrs))
        return names[0]

    # --- blocks: each gives an image of the same size ---

    def conv(self) -> str:
        kernel = self.choose((1, 1), (3, 3), (3, 1), (1, 3))
        group = self.choose(1, 1, 2)
        inputs = [self.image(), self.weights(CHANNELS, CHANNELS // group, *kernel)]
        if self.draw(st.booleans()):
            inputs.append(self.weights(CHANNELS))
        padding = self.choose("pads", "auto_pad")
        sides = [k // 2 for k in kernel]
        attrs = {"pads": sides * 2} if padding == "pads" else {"auto_pad": "SAME_UPPER"}
        return self.node("Conv", *inputs, group=group, **attrs)

    def batch_norm(self, x: str | None = None) -> str:
        held = [self.weights(CHANNELS) for _ in range(3)]
        variance = self.constant(self.rng.uniform(0.5, 2, CHANNELS).astype(np.float32))
        return self.node("BatchNormalization", x or self.image(), *held, variance, epsilon=self.choose(1e-5, 1e-3))

    def conv_bn(self) -> str:
        return self.batch_norm(self.conv())

    def affine(self) -> str:
        shape = self.choose((1, CHANNELS, 1, 1), (), (1,), (CHANNELS, 1, 1))
        operands = [self.choose(self.image(), self.conv()), self.weights(*shape)]
        op = self.choose("Mul", "Add", "Sub", "Div")
        if op in ("Mul", "Add") and self.draw(st.booleans()):
            operands.reverse()
        return self.node(op, *operands)

    def total(self) -> str:
        x = self.image()
        parts = [self.choose(x, self.image())]
        for _ in range(self.draw(st.integers(1, 3))):
            self.images.append(x)
            parts.append(self.draw(st.sampled_from((self.conv, self.conv_bn, self.batch_norm)))())
        if self.draw(st.booleans()):
            return self.node("Sum", *parts)
        result = parts[0]
        for part in parts[1:]:
            result = self.node("Add", *(self.choose((result, part), (part, result))))
        return result

    def unary(self) -> str:
        op = self.choose("Identity", "Identity", "Relu", "Neg", "Abs", "Sigmoid", "Cast", "Dropout", "Clip")
        if op == "Cast":
            return self.node("Cast", self.image(), to=FLOAT)
        if op == "Dropout":
            return self.node("Dropout", self.image(), outputs=self.choose(1, 2))
        if op == "Clip":
            return self.node("Clip", self.image(), self.constant(np.float32(-1)), self.constant(np.float32(1)))
        return self.node(op, self.image())

    def there_and_back(self) -> str:
        x = self.image()
        kind = self.choose("transpose", "reshape", "unsqueeze", "split", "slice", "pad", "double")
        if kind == "transpose":
            perm = self.draw(st.permutations(range(4)))
            back = [int(i) for i in np.argsort(perm)]
            return self.node("Transpose", self.node("Transpose", x, perm=perm), perm=back)
        if kind == "reshape":
            return self.reshape(x)
        if kind == "unsqueeze":
            axis = self.constant(np.int64([self.draw(st.integers(0, 4))]))
            return self.node("Squeeze", self.node("Unsqueeze", x, axis), axis)
        if kind == "split":
            names = [self.name(), self.name()]
            sizes = self.constant(np.int64([1, CHANNELS - 1]))
            self.nodes.append(helper.make_node("Split", [x, sizes], names, axis=1))
            return self.node("Concat", *(self.choose(names, names[::-1])), axis=1)
        if kind == "slice":
            starts, ends, axes = (self.constant(np.int64([v])) for v in (0, 1 << 62, self.choose(1, 2, -1)))
            return self.node("Slice", x, starts, ends, axes)
        if kind == "pad":
            padded = self.node("Pad", x, self.constant(np.int64([0, 0, 1, 1, 0, 0, 1, 1])))
            return self.node("Conv", padded, self.weights(CHANNELS, CHANNELS, 3, 3))
        return self.node("Cast", self.node("Cast", x, to=TensorProto.DOUBLE), to=FLOAT)

    def reshape(self, x: str) -> str:
        """Flatten by shape arithmetic on dynamic dims, and back."""
        shape = self.node("Shape", x)
        first = self.node("Gather", shape, self.constant(np.int64(0)), axis=0)
        zero = self.constant(np.int64([0]))
        rest = self.constant(np.int64([-1]))
        target = self.node("Concat", self.node("Unsqueeze", first, zero), rest, axis=0)
        flat = self.node("Reshape", x, target)
        return self.node("Reshape", flat, shape)

    def branch(self) -> str:
        """An If on an input, each body with captures and names of its own (the same in both)."""
        bodies = []
        for _ in range(2):
            inner = Writer(self.draw, f"{self.prefix}b", tuple(self.images[-2:]))
            inner.grow(self.draw(st.integers(1, 3)), bodies=False)
            last = inner.node("Relu", inner.images[-1])
            value = helper.make_tensor_value_info(last, FLOAT, None)
            bodies.append(helper.make_graph(inner.nodes, "body", [], [value], inner.constants))
        condition = self.choose("flag", "flag", self.constant(np.bool_(True)))
        return self.node("If", condition, then_branch=bodies[0], else_branch=bodies[1])

    def grow(self, blocks: int, bodies: bool = True) -> None:
        options = [self.conv_bn, self.total, self.affine, self.unary, self.there_and_back, self.unary, self.conv]
        for _ in range(blocks):
            self.images.append(self.draw(st.sampled_from([*options, self.branch] if bodies else options))())


@st.composite
def models(draw: st.DrawFn) -> onnx.ModelProto:
    writer = Writer(draw, captured=("x",))
    writer.grow(draw(st.integers(1, 6)))
    made = [n for n in writer.images if n != "x"]
    outputs = draw(st.lists(st.sampled_from(made), min_size=1, max_size=3, unique=True))
    dims = draw(st.sampled_from((["N", CHANNELS, "H", "W"], [1, CHANNELS, 5, 6], ["N", CHANNELS, 5, 6])))
    inputs = [
        helper.make_tensor_value_info("x", FLOAT, dims),
        helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
    ]
    values = [helper.make_tensor_value_info(n, FLOAT, [None] * 4) for n in outputs]
    graph = helper.make_graph(writer.nodes, "g", inputs, values, writer.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def interface(model: onnx.ModelProto) -> list[tuple[str, int, int]]:
    values = [*model.graph.input, *model.graph.output]
    return [(v.name, v.type.tensor_type.elem_type, len(v.type.tensor_type.shape.dim)) for v in values]


def assert_close(expected: dict[str, Array], found: dict[str, Array]) -> None:
    for name, value in expected.items():
        scale = max(1.0, float(np.abs(value).max(initial=0)))
        np.testing.assert_allclose(found[name], value, atol=2e-5 * scale, rtol=0, err_msg=name)


def runs(model: onnx.ModelProto) -> bool:
    """Whether ONNX Runtime runs the original: of two Casts it drops one whose result only a body reads."""
    x = np.zeros((1, CHANNELS, 5, 6), np.float32)
    try:
        for flag in (True, False):
            run(model, x=x, flag=np.bool_(flag))
    except RuntimeFailure as failure:
        assert "Missing Input" in str(failure)
        return False
    return True


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(models())
def test_the_result_is_the_same_function(model: onnx.ModelProto) -> None:
    given_bytes = model.SerializeToString(deterministic=True)
    assume(runs(model))
    result = sp.optimize(model)
    assert model.SerializeToString(deterministic=True) == given_bytes
    onnx.checker.check_model(result.proto, full_check=True)
    assert interface(result.proto) == interface(model)
    assert result.check.status == "equal" and not result.undone
    for flag in (True, False):
        x = np.random.default_rng(7).standard_normal((1, CHANNELS, 5, 6)).astype(np.float32)
        feeds = {"x": x, "flag": np.bool_(flag)}
        assert_close(run(model, **feeds), run(result.proto, **feeds))
    again = sp.optimize(result.proto)
    assert again.proto.SerializeToString(deterministic=True) == result.proto.SerializeToString(deterministic=True)
