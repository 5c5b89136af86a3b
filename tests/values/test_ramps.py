"""Tensors that are one number or step evenly: what the formula says is what ONNX Runtime computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from surgeon_passes.runtime import RuntimeFailure, Session
from surgeon_passes.values import Evaluator, Poly, Ramp

SIZES = ({"N": 1, "M": 1}, {"N": 3, "M": 4}, {"N": 5, "M": 2})
Array = np.ndarray[Any, Any]


def number(dim: Any, sizes: dict[str, int]) -> int:
    return int(dim.evaluate(sizes) if isinstance(dim, Poly) else dim)


def spelled(ramp: Ramp, shape: tuple[int, ...], sizes: dict[str, int]) -> Array:
    """The array that a ramp stands for."""
    if ramp.dtype.kind == "f":
        return np.full(shape, ramp.start, ramp.dtype)
    found = np.full(shape, number(ramp.start, sizes), object)
    for grid, step in zip(np.indices(shape, dtype=object), ramp.steps, strict=True):
        found = found + grid * number(step, sizes)
    return found.astype(ramp.dtype)


class Writer:
    """Nodes over the inputs x [N, M] and v [1]; every result becomes a graph output."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.made: list[str] = []

    def constant(self, array: Any) -> str:
        name = f"k{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op: str, *inputs: str, **attrs: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attrs))
        self.made.append(name)
        return name

    def size(self, axis: int, scalar: bool = True) -> str:
        index = np.array(axis) if scalar else np.array([axis])
        return self.node("Gather", self.node("Shape", "x"), self.constant(index))

    def count(self, axis: int) -> str:
        return self.node("Range", self.constant(np.array(0)), self.size(axis), self.constant(np.array(1)))

    def model(self, outputs: list[str]) -> onnx.ModelProto:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", "M"])
        ys = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph(self.nodes, "g", [x], ys, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def check(writer: Writer) -> dict[str, Ramp]:
    """Every ramp that is claimed, against ONNX Runtime at several sizes; gives the claims."""
    names = list(dict.fromkeys(writer.made))
    model = onnx.shape_inference.infer_shapes(writer.model(names))
    evaluator = Evaluator(gs.import_onnx(model), strict=True)
    claims = {n: r for n in names if (r := evaluator.ramp(evaluator.tensor(n))) is not None}
    session = Session(model)
    for sizes in SIZES:
        x = np.zeros((sizes["N"], sizes["M"]), np.float32)
        for name, value in session.run({"x": x}).items():
            if name in claims:
                np.testing.assert_array_equal(
                    spelled(claims[name], value.shape, sizes), value, err_msg=f"{name} {sizes}"
                )
    return claims


def test_a_grid_of_indices_counts() -> None:
    """row * M + column, as exporters index a flattened mask."""
    w = Writer()
    rows = w.node("Unsqueeze", w.count(0), w.constant(np.array([1])))
    columns = w.node("Unsqueeze", w.count(1), w.constant(np.array([0])))
    index = w.node("Add", w.node("Mul", rows, w.size(1, scalar=False)), columns)
    assert check(w)[index].counts()


def test_a_grid_of_other_steps_does_not_count() -> None:
    w = Writer()
    rows = w.node("Unsqueeze", w.count(0), w.constant(np.array([1])))
    columns = w.node("Unsqueeze", w.count(1), w.constant(np.array([0])))
    index = w.node("Add", w.node("Mul", rows, w.size(0, scalar=False)), columns)
    assert not check(w)[index].counts()


def test_a_position_is_never_negative() -> None:
    w = Writer()
    positions = w.count(1)
    true = w.node("GreaterOrEqual", positions, w.constant(np.array(0)))
    open_ = w.node("Greater", positions, w.constant(np.array(0)))
    past = w.node("Less", positions, w.size(1))
    claims = check(w)
    assert bool(claims[true].fill) is True and bool(claims[past].fill) is True
    assert open_ not in claims


@pytest.mark.parametrize(
    ("value", "op", "other", "wanted"), [(2.0, "Mul", 3.0, 6.0), (1.0, "Div", 3.0, np.float32(1 / 3))]
)
def test_numbers_of_floats(value: float, op: str, other: float, wanted: float) -> None:
    w = Writer()
    fill = helper.make_tensor("v", TensorProto.FLOAT, [1], [value])
    full = w.node("ConstantOfShape", w.node("Shape", "x"), value=fill)
    result = w.node(op, full, w.constant(np.array(other, np.float32)))
    assert check(w)[result].fill == np.float32(wanted)


def test_data_is_no_ramp() -> None:
    w = Writer()
    y = w.node("Add", "x", w.constant(np.array(0, np.float32)))
    assert y not in check(w)


class Drawn(Writer):
    """A program of drawn nodes over integers and bools."""

    def __init__(self, draw: st.DrawFn) -> None:
        super().__init__()
        self.draw = draw
        self.integers = [
            self.count(0),
            self.count(1),
            self.constant(np.array([2])),
            self.constant(np.arange(3)[:, None]),
        ]
        self.bools = [self.node("Less", self.integers[0], self.small())]

    def pick(self, *choices: str) -> str:
        return self.draw(st.sampled_from(choices))

    def small(self) -> str:
        return self.constant(np.array(self.draw(st.integers(-2, 3))))

    def unsqueeze(self) -> str:
        axis = self.constant(np.array([self.draw(st.sampled_from([0, -1]))]))
        return self.node("Unsqueeze", self.pick(*self.integers), axis)

    def scale(self) -> str:
        return self.node(self.pick("Mul", "Add", "Sub"), self.pick(*self.integers), self.small())

    def by_size(self) -> str:
        return self.node(
            self.pick("Mul", "Add", "Sub"), self.pick(*self.integers), self.size(self.draw(st.integers(0, 1)))
        )

    def compare(self) -> str:
        op = self.pick("Less", "Equal", "Greater", "LessOrEqual", "GreaterOrEqual")
        return self.node(op, self.pick(*self.integers), self.small())

    def logic(self) -> str:
        last = self.node("Not", self.bools[-1])
        return self.node(self.pick("And", "Or"), self.pick(*self.bools), last)

    def where(self) -> str:
        return self.node("Where", self.bools[-1], self.small(), self.small())

    def expand(self) -> str:
        return self.node("Expand", self.small(), self.node("Shape", "x"))

    def cast(self) -> str:
        return self.node("Cast", self.pick(*self.integers, *self.bools), to=TensorProto.INT64)

    def grid(self) -> str:
        column = self.node("Unsqueeze", self.count(0), self.constant(np.array([1])))
        row = self.node("Unsqueeze", self.count(1), self.constant(np.array([0])))
        return self.node("Add", self.node("Mul", column, self.small()), row)

    def grow(self) -> None:
        integer = (self.unsqueeze, self.scale, self.by_size, self.where, self.expand, self.cast, self.grid)
        truth = (self.compare, self.logic)
        step = self.draw(st.sampled_from((*integer, *truth)))
        (self.bools if step in truth else self.integers).append(step())


@st.composite
def programs(draw: st.DrawFn) -> Writer:
    writer = Drawn(draw)
    for _ in range(draw(st.integers(2, 9))):
        writer.grow()
    return writer


def runs(writer: Writer) -> bool:
    """Whether its shapes broadcast. That most do is for hypothesis to see: it complains where too few are left."""
    try:
        Session(writer.model(writer.made)).run({"x": np.zeros((3, 4), np.float32)})
    except RuntimeFailure:
        return False
    return True


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(programs())
def test_every_claim_is_what_runs(writer: Writer) -> None:
    assume(runs(writer))
    check(writer)
