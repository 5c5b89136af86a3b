"""Parallel linear operators under a Concat."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surgeon_passes.patterns.stacked import stack_convolutions, stack_gemms, stack_matmuls

from . import harness
from .covering import declines, property_of
from .harness import Builder, apply, assert_equal, assert_equal_to_rounding, constants, operators, reference, run
from .test_sequence import BIASES, DTYPES, WIDTHS, biased

RULES = [stack_convolutions, stack_gemms, stack_matmuls]
SIZES = ({"N": 2, "H": 9, "W": 11, "D": 8}, {"N": 1, "H": 12, "W": 8, "D": 9})
DIMS = ("H", "W", "D")


def stacked(model: onnx.ModelProto, tolerance: float | None = None, **left: int) -> onnx.ModelProto:
    result = apply(RULES, model)
    assert result.ops == left, result.reasons
    assert_equal(model, result.model, SIZES, tolerance)
    return result.model


assert_stays = partial(harness.assert_stays, RULES)


@pytest.mark.parametrize("number", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolutions(number: int, rank: int) -> None:
    b = Builder()
    x = b.input("x", ["N", 3, *DIMS[:rank]])
    parts = [b.conv(x, 3, 2 + k, [3] * rank, pads=[1] * 2 * rank, bias=k == 1) for k in range(number)]
    found = stacked(b.model(b.node("Concat", *parts, axis=1)), Conv=1)
    assert sorted(a.shape[0] for a in constants(found).values()) == [sum(range(2, 2 + number))] * 2


def test_no_bias_where_there_was_none() -> None:
    b = Builder()
    x = b.input("x", ["N", 3, "H"])
    found = stacked(b.model(b.node("Concat", b.conv(x, 3, 2, [1]), b.conv(x, 3, 1, [1]), axis=-2)), Conv=1)
    assert len(found.graph.node[0].input) == 2


def test_the_same_channels_twice() -> None:
    b = Builder()
    x = b.input("x", ["N", 3, "H"])
    w = b.random(2, 3, 1)
    parts = b.node("Conv", x, w), b.node("Conv", x, w)
    stacked(b.model(b.node("Concat", *parts, axis=1)), Conv=1)


def test_pads_that_are_written_otherwise() -> None:
    b = Builder()
    x = b.input("x", ["N", 3, "H"])
    parts = b.conv(x, 3, 2, [3], pads=[1, 1]), b.conv(x, 3, 2, [3], auto_pad="SAME_UPPER")
    stacked(b.model(b.node("Concat", *parts, axis=1)), Conv=1)


@declines("stack_convolutions")
@pytest.mark.parametrize(
    ("kernels", "first", "second"),
    [
        (([3], [1]), {"pads": [1, 1]}, {"pads": [0, 0]}),
        (([3], [3]), {"pads": [1, 1], "strides": [2]}, {"pads": [2, 0], "strides": [2]}),
        (([3], [3]), {"pads": [1, 1]}, {"pads": [2, 2], "dilations": [2]}),
        (([1], [1]), {"strides": [2]}, {"strides": [2], "pads": [0, 1]}),
    ],
)
def test_other_geometry_stays(kernels: Any, first: dict[str, Any], second: dict[str, Any]) -> None:
    b = Builder()
    x = b.input("x", ["N", 3, 7])
    parts = b.conv(x, 3, 2, kernels[0], **first), b.conv(x, 3, 2, kernels[1], **second)
    assert_stays(b.model(b.node("Concat", *parts, axis=1)), "kernels, strides, pads or dilations differ")


@declines("stack_convolutions")
def test_groups_stay() -> None:
    b = Builder()
    x = b.input("x", ["N", 4, "H"])
    parts = b.conv(x, 4, 4, [1], group=2), b.conv(x, 4, 4, [1], group=2)
    assert_stays(b.model(b.node("Concat", *parts, axis=1)), "a Conv has 2 groups")


def test_another_axis_stays() -> None:
    b = Builder()
    x = b.input("x", ["N", 3, "H"])
    model = b.model(b.node("Concat", b.conv(x, 3, 2, [1]), b.conv(x, 3, 2, [1]), axis=2))
    assert apply(RULES, model).ops == operators(model)


@declines("stack_convolutions")
def test_another_tensor_stays() -> None:
    b = Builder()
    x, z = b.input("x", ["N", 3, "H"]), b.input("z", ["N", 3, "H"])
    model = b.model(b.node("Concat", b.conv(x, 3, 2, [1]), b.conv(z, 3, 2, [1]), axis=1))
    assert_stays(model, "'x' stands for two different tensors")


@declines("stack_convolutions")
def test_one_that_is_read_elsewhere_stays() -> None:
    b = Builder()
    x = b.input("x", ["N", 3, "H"])
    first = b.conv(x, 3, 2, [1])
    model = b.model(b.node("Concat", first, b.conv(x, 3, 2, [1]), axis=1), b.node("Relu", first))
    assert_stays(model, "is also used by Relu")


@declines("stack_convolutions")
def test_a_weight_that_is_not_constant_stays() -> None:
    b = Builder()
    x = b.input("x", ["N", 3, "H"])
    parts = b.conv(x, 3, 2, [1]), b.node("Conv", x, b.input("w", [2, 3, 1]))
    assert_stays(b.model(b.node("Concat", *parts, axis=1)), "'w' is not constant")


@pytest.mark.parametrize("number", [2, 3, 4])
def test_gemms(number: int) -> None:
    """Query, key and value, each written otherwise."""
    b = Builder()
    x = b.input("x", ["N", 3])
    parts = []
    for k in range(number):
        weight = b.random(2 + k, 3) if k % 2 else b.random(3, 2 + k)
        bias = [b.random(2 + k)] if k != 1 else []
        parts.append(b.node("Gemm", x, weight, *bias, transB=k % 2, alpha=1.0 + k, beta=0.5))
    stacked(b.model(b.node("Concat", *parts, axis=1)), Gemm=1)


def test_gemms_of_the_transposed() -> None:
    b = Builder()
    x = b.input("x", [3, "N"])
    parts = [b.node("Gemm", x, b.random(3, 2), transA=1) for _ in range(2)]
    stacked(b.model(b.node("Concat", *parts, axis=-1)), Gemm=1)


@declines("stack_gemms")
def test_gemms_of_which_one_transposes_stay() -> None:
    b = Builder()
    x = b.input("x", [3, 3])
    parts = [b.node("Gemm", x, b.random(3, 2), transA=k) for k in (0, 1)]
    assert_stays(b.model(b.node("Concat", *parts, axis=1)), "one transposes 'x' and another does not")


@pytest.mark.parametrize("rank", [2, 3, 4])
def test_matmuls(rank: int) -> None:
    b = Builder()
    x = b.input("x", ["N", *DIMS[: rank - 2], 3])
    parts = [b.node("MatMul", x, b.random(3, k)) for k in (1, 2, 3)]
    stacked(b.model(b.node("Concat", *parts, axis=rank - 1)), MatMul=1)


@pytest.mark.parametrize("rank", [2, 3, 4])
@pytest.mark.parametrize("biases", [(1, 1, 1), (0, 1, 0)])
def test_linear_layers(rank: int, biases: tuple[int, ...]) -> None:
    b = Builder()
    x = b.input("x", ["N", *DIMS[: rank - 2], 3])
    parts = []
    for k, has_bias in enumerate(biases):
        part = b.node("MatMul", x, b.random(3, k + 2))
        parts.append(b.node("Add", b.random(1, k + 2), part) if has_bias else part)
    stacked(b.model(b.node("Concat", *parts, axis=-1)), MatMul=1, Add=1)


@declines("stack_matmuls")
def test_a_bias_along_another_axis_stays() -> None:
    b = Builder()
    x = b.input("x", ["N", 4, 3])
    parts = [b.node("Add", b.node("MatMul", x, b.random(3, 2)), b.random(4, 1)) for _ in range(2)]
    assert_stays(b.model(b.node("Concat", *parts, axis=2)), "is not one number a channel")


@declines("stack_matmuls")
def test_batches_of_matrices_stay() -> None:
    b = Builder()
    x = b.input("x", [2, 4, 3])
    parts = [b.node("MatMul", x, b.random(2, 3, 2)) for _ in range(2)]
    assert_stays(b.model(b.node("Concat", *parts, axis=2)), "a weight is no matrix")


@property_of("stack_convolutions")
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([np.float32, np.float16, np.float64]))
def test_any_convolutions(seed: int, dtype: Any) -> None:
    rng = np.random.default_rng(seed)
    b = Builder(dtype, seed=seed)
    rank = int(rng.integers(1, 3))
    x = b.input("x", ["N", 4, *DIMS[:rank]])
    form: dict[str, Any] = {k: rng.integers(1, 3, rank).tolist() for k in ("strides", "dilations")}
    form |= {"pads": rng.integers(0, 3, 2 * rank).tolist(), "group": int(rng.choice([1, 1, 2]))}
    kernel = rng.integers(1, 4, rank).tolist()
    parts = [
        b.conv(x, 4, int(rng.choice([2, 4])), kernel, bias=bool(rng.integers(2)), **form)
        for _ in range(int(rng.integers(2, 5)))
    ]
    model = b.model(b.node("Concat", *parts, axis=1))
    result = apply(stack_convolutions, model)
    assert result.ops == ({"Conv": 1} if form["group"] == 1 else operators(model))
    tolerance = {np.float32: 3e-6, np.float16: 2e-3, np.float64: 1e-12}[dtype]
    assert_equal(model, result.model, SIZES[:1], tolerance, runner=reference if dtype is np.float64 else run)


@property_of("stack_gemms")
@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 5),
    st.lists(st.tuples(WIDTHS, BIASES, st.integers(0, 1), st.sampled_from([0.5, 1.0, 3.0])), min_size=2, max_size=4),
    st.integers(0, 1),
    DTYPES,
    st.sampled_from([9, 11, 17]),
    st.integers(0, 99),
)
def test_any_gemms(inputs: int, layers: list[Any], turned: int, dtype: Any, opset: int, seed: int) -> None:
    b = Builder(dtype, opset, seed)
    x = b.input("x", [inputs, "N"] if turned else ["N", inputs])
    parts = []
    for width, bias, flipped, factor in layers:
        kind = "vector" if opset < 11 and bias is None else bias
        weight = b.random(*((width, inputs) if flipped else (inputs, width)))
        form = {"transA": turned, "transB": flipped, "alpha": factor, "beta": 2.0 * factor}
        parts.append(b.node("Gemm", x, weight, *biased(b, kind, width), **form))
    model = b.model(b.node("Concat", *parts, axis=1))
    result = apply(stack_gemms, model)
    assert result.ops == {"Gemm": 1}, result.reasons
    assert_equal_to_rounding(model, result.model, SIZES)


@property_of("stack_matmuls")
@settings(max_examples=30, deadline=None)
@given(
    st.integers(2, 4),
    st.integers(1, 5),
    st.lists(st.tuples(WIDTHS, BIASES, st.booleans()), min_size=2, max_size=4),
    st.booleans(),
    DTYPES,
    st.integers(0, 99),
)
def test_any_matmuls(rank: int, inputs: int, layers: list[Any], last: bool, dtype: Any, seed: int) -> None:
    b = Builder(dtype, seed=seed)
    x = b.input("x", ["N", *DIMS[: rank - 2], inputs])
    parts = []
    for width, bias, first in layers:
        part = b.node("MatMul", x, b.random(inputs, width))
        held = biased(b, bias, width)
        parts.append(b.node("Add", *([*held, part] if first else [part, *held])) if held else part)
    model = b.model(b.node("Concat", *parts, axis=-1 if last else rank - 1))
    result = apply(stack_matmuls, model)
    assert result.ops == ({"MatMul": 1, "Add": 1} if any(k is not None for _, k, _ in layers) else {"MatMul": 1})
    assert_equal_to_rounding(model, result.model, SIZES)


@declines("stack_gemms", "stack_matmuls")
def test_a_bias_that_is_larger_than_its_layer_stays() -> None:
    """The sum of one feature and four numbers has four features."""
    b = Builder()
    x = b.input("x", ["N", 3])
    wide = b.node("Add", b.node("MatMul", x, b.random(3, 1)), b.random(4))
    assert_stays(b.model(b.node("Concat", wide, b.node("MatMul", x, b.random(3, 2)), axis=1)), "one number a channel")
    b = Builder()
    x = b.input("x", [4, 3])
    rows = b.node("Gemm", x, b.random(3, 2), b.random(4, 1))
    assert_stays(b.model(b.node("Concat", rows, b.node("Gemm", x, b.random(3, 2)), axis=1)), "one number a channel")


@declines("stack_matmuls")
def test_a_bias_that_raises_the_rank_stays() -> None:
    b = Builder()
    x = b.input("x", ["N", 3])
    parts = [b.node("Add", b.node("MatMul", x, b.random(3, 2)), b.random(1, 1, 2)) for _ in range(2)]
    assert_stays(b.model(b.node("Concat", *parts, axis=-1), rank=3), "may raise the rank")
