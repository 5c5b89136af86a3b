"""Operators that were written out."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import onnx
import pytest

from surgeon_passes.patterns import decomposed
from surgeon_passes.rules.registry import rules_of

from .harness import Builder, apply, assert_equal, constants, operators

RULES = list(rules_of(decomposed))
SIZES = ({"N": 9, "T": 4, "H": 8, "W": 7}, {"N": 5, "T": 3, "H": 6, "W": 9})


def assert_fuses(model: onnx.ModelProto, tolerance: float | None = None, **left: int) -> onnx.ModelProto:
    result = apply(RULES, model)
    assert result.ops == left
    assert_equal(model, result.model, SIZES, tolerance)
    return result.model


def assert_stays(model: onnx.ModelProto, reason: str = "") -> None:
    result = apply(RULES, model)
    assert result.ops == operators(model)
    assert any(reason in r for r in result.reasons) or not reason, result.reasons


# --- Gelu ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("divide", [True, False])
def test_gelu_in_all_its_associations(order: tuple[int, ...], left: bool, divide: bool) -> None:
    b = Builder(opset=20)
    x = b.input("x", ["N", 6])
    d = b.node("Div", x, b.constant(2**0.5)) if divide else b.node("Mul", b.constant(0.5**0.5), x)
    factors = [x, b.constant(0.5), b.node("Add", b.constant(1.0), b.node("Erf", d))]
    p, q, r = (factors[i] for i in order)
    y = b.node("Mul", b.node("Mul", p, q), r) if left else b.node("Mul", p, b.node("Mul", q, r))
    assert_fuses(b.model(y), Gelu=1)


def test_gelu_times_something() -> None:
    b = Builder(opset=20)
    x = b.input("x", ["N", 6])
    e = b.node("Add", b.node("Erf", b.node("Div", x, b.constant(2**0.5))), b.constant(1.0))
    y = b.node("Mul", b.node("Mul", b.node("Mul", x, b.constant(0.5)), b.random(6)), e)
    assert_fuses(b.model(y), Gelu=1, Mul=1)


@pytest.mark.parametrize("cube", ["pow", "mul"])
def test_tanh_gelu(cube: str) -> None:
    b = Builder(opset=20)
    x = b.input("x", ["N", 6])
    third = b.node("Pow", x, b.constant(3.0)) if cube == "pow" else b.node("Mul", x, b.node("Mul", x, x))
    inner = b.node("Add", x, b.node("Mul", b.constant(0.044715), third))
    t = b.node("Tanh", b.node("Mul", b.constant((2 / np.pi) ** 0.5), inner))
    y = b.node("Mul", b.node("Mul", b.constant(0.5), x), b.node("Add", t, b.constant(1.0)))
    assert_fuses(b.model(y), Gelu=1)


@pytest.mark.parametrize(("opset", "half", "one"), [(17, 0.5, 1.0), (20, 0.49, 1.0), (20, 0.5, 1.01)])
def test_what_is_no_gelu_stays(opset: int, half: float, one: float) -> None:
    b = Builder(opset=opset)
    x = b.input("x", ["N", 6])
    e = b.node("Add", b.node("Erf", b.node("Div", x, b.constant(2**0.5))), b.constant(one))
    assert_stays(b.model(b.node("Mul", b.node("Mul", x, b.constant(half)), e)))


def test_gelu_whose_constant_raises_the_rank_stays() -> None:
    b = Builder(opset=20)
    x = b.input("x", ["N", 6])
    e = b.node("Add", b.node("Erf", b.node("Div", x, b.constant(2**0.5))), b.constant(1.0))
    model = b.model(b.node("Mul", b.node("Mul", x, b.constant(np.full((1, 1, 1), 0.5))), e), rank=3)
    assert_stays(model, "not known to have the same rank")


# --- LayerNormalization --------------------------------------------------------------------------------------------------


def layer_norm(
    b: Builder, x: str, axes: list[int], *, square: str = "pow", reciprocal: bool = False, eps: Any = 1e-5
) -> str:
    def mean(t: str) -> str:
        return str(b.node("ReduceMean", t, axes=axes) if b.opset < 18 else b.node("ReduceMean", t, b.constant(axes)))

    d = b.node("Sub", x, mean(x))
    q = b.node("Pow", d, b.constant(2.0)) if square == "pow" else b.node("Mul", d, d)
    s = b.node("Sqrt", b.node("Add", mean(q), b.constant(eps)))
    return str(b.node("Mul", d, b.node("Reciprocal", s)) if reciprocal else b.node("Div", d, s))


@pytest.mark.parametrize("opset", [17, 18])
@pytest.mark.parametrize("square", ["pow", "mul"])
@pytest.mark.parametrize("reciprocal", [True, False])
@pytest.mark.parametrize("axes", [[-1], [2], [-2, -1], [1, 2]])
def test_layer_normalization(axes: list[int], square: str, reciprocal: bool, opset: int) -> None:
    b = Builder(opset=opset)
    x = b.input("x", ["N", 4, 6])
    n = layer_norm(b, x, axes, square=square, reciprocal=reciprocal, eps=1e-3)
    dims = (4, 6) if len(axes) == 2 else (6,)
    y = b.node("Add", b.node("Mul", n, b.random(*dims)), b.random(*dims))
    found = assert_fuses(b.model(y), LayerNormalization=1)
    attrs = {a.name: onnx.helper.get_attribute_value(a) for a in found.graph.node[0].attribute}
    assert attrs["axis"] == 3 - len(axes) and attrs["epsilon"] == pytest.approx(1e-3)


def test_layer_normalization_alone() -> None:
    b = Builder()
    assert_fuses(b.model(layer_norm(b, b.input("x", ["N", 6]), [-1])), LayerNormalization=1)


def test_constants_after_layer_normalization() -> None:
    b = Builder()
    scale, bias = b.rng.standard_normal((2, 6))
    n = b.node("LayerNormalization", b.input("x", ["N", 6]), b.constant(scale), b.constant(bias))
    held = constants(assert_fuses(b.model(b.node("Mul", b.constant(3.0), n)), LayerNormalization=1))
    np.testing.assert_allclose(held["k0.scaled"], 3 * scale, rtol=1e-6)
    np.testing.assert_allclose(held["k1.scaled"], 3 * bias, rtol=1e-6)


@pytest.mark.parametrize("shape", [(5, 1), (1, 6), (5, 6)])
def test_constants_along_other_axes_stay(shape: tuple[int, ...]) -> None:
    b = Builder()
    n = b.node("LayerNormalization", b.input("x", [5, 6]), b.random(6))
    assert_stays(b.model(b.node("Mul", n, b.random(*shape))), "does not go along the normalised axes")


@pytest.mark.parametrize(
    ("shape", "axes", "reason"),
    [
        (["N", 4, 6], [1], "are not the last ones"),
        (["N", 4, 6], [0, 2], "are not the last ones"),
        (["N", "T"], [-1], "the size of a normalised axis is unknown"),
    ],
)
def test_other_axes_stay(shape: list[Any], axes: list[int], reason: str) -> None:
    b = Builder()
    assert_stays(b.model(layer_norm(b, b.input("x", shape), axes)), reason)


def test_double_stays() -> None:
    b = Builder(np.float64)
    assert_stays(b.model(layer_norm(b, b.input("x", ["N", 6]), [-1])), "is double")


def test_an_epsilon_for_each_place_stays() -> None:
    b = Builder()
    assert_stays(b.model(layer_norm(b, b.input("x", [3, 6]), [-1], eps=np.ones((3, 1)))), "epsilon is not one number")


def test_means_over_different_axes_stay() -> None:
    b = Builder()
    x = b.input("x", [4, 4])
    d = b.node("Sub", x, b.node("ReduceMean", x, axes=[1]))
    v = b.node("ReduceMean", b.node("Mul", d, d), axes=[0])
    y = b.node("Div", d, b.node("Sqrt", b.node("Add", v, b.constant(1e-5))))
    assert_stays(b.model(y))
