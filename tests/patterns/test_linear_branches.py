"""Sums of linear layers on one tensor."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surgeon_passes.patterns.linear_branches import merge_parallel_linears

from . import harness
from .covering import declines, property_of
from .harness import Builder, apply, assert_equal, assert_equal_to_rounding, constants
from .test_reparam import total

SIZES = ({"N": 2, "H": 5, "W": 3}, {"N": 1, "H": 2, "W": 6})
DIMS = ("H", "W")


def merged(model: onnx.ModelProto, tolerance: float | None = None, **left: int) -> onnx.ModelProto:
    result = apply(merge_parallel_linears, model)
    assert result.ops == left, result.reasons
    assert_equal(model, result.model, SIZES, tolerance)
    return result.model


assert_stays = partial(harness.assert_stays, merge_parallel_linears)


@pytest.mark.parametrize("rank", [2, 3, 4])
def test_low_rank_adapter(rank: int) -> None:
    b = Builder()
    x = b.input("x", ["N", *DIMS[: rank - 2], 8])
    low = b.node("MatMul", b.node("MatMul", x, b.random(8, 2)), b.random(2, 6))
    merged(b.model(total(b, b.node("MatMul", x, b.random(8, 6)), low)), MatMul=1)


def test_low_rank_adapter_beside_a_gemm() -> None:
    b = Builder()
    x = b.input("x", ["N", 8])
    low = b.node("MatMul", b.node("Gemm", x, b.random(2, 8), transB=1), b.random(2, 6))
    full = b.node("Gemm", x, b.random(6, 8), b.random(6), transB=1)
    merged(b.model(total(b, low, full)), Gemm=1)


def test_heads_that_are_averaged() -> None:
    b = Builder()
    x = b.input("x", ["N", 8])
    heads = [b.node("Gemm", x, b.random(8, 6), b.random(6), alpha=0.5, beta=2.0) for _ in range(3)]
    merged(b.model(b.node("Sum", *heads)), Gemm=1)


def test_values() -> None:
    b = Builder()
    x = b.input("x", ["N", 2])
    w, v = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[10.0, 20.0], [30.0, 40.0]])
    first = b.node("Gemm", x, b.constant(w), b.constant([1.0, 2.0]), transB=1)
    found = constants(merged(b.model(total(b, first, b.node("MatMul", x, b.constant(v)), x)), Gemm=1))
    weight, bias = sorted(found.values(), key=lambda a: -a.ndim)
    np.testing.assert_array_equal(weight, w.T + v + np.eye(2))
    np.testing.assert_array_equal(bias, [1, 2])


def test_the_bare_input_of_other_features_is_added_again() -> None:
    b = Builder()
    x = b.input("x", ["N", "H", 1])
    layers = [b.node("MatMul", x, b.random(1, 4)) for _ in range(2)]
    merged(b.model(total(b, *layers, x)), MatMul=1, Add=1)


def test_one_layer_and_the_bare_input() -> None:
    b = Builder()
    x = b.input("x", ["N", "H", 4])
    merged(b.model(total(b, b.node("MatMul", x, b.random(4, 4)), x)), MatMul=1)


def test_layers_of_other_sizes_are_added_again() -> None:
    """One column broadcasts over all."""
    b = Builder()
    x = b.input("x", ["N", 3])
    layers = [b.node("MatMul", x, b.random(3, k)) for k in (4, 1, 4)]
    merged(b.model(total(b, *layers)), MatMul=2, Add=1)


@declines("merge_parallel_linears")
def test_a_bottleneck_beside_the_input_stays() -> None:
    b = Builder()
    x = b.input("x", ["N", 8])
    model = b.model(total(b, b.node("MatMul", b.node("MatMul", x, b.random(8, 2)), b.random(2, 8)), x))
    assert_stays(model, "merged they would hold 2x the weights (32 to 64)")


@declines("merge_parallel_linears")
def test_a_batch_of_matrices_stays() -> None:
    b = Builder()
    x = b.input("x", [2, 3, 3])
    model = b.model(total(b, b.node("MatMul", x, b.random(2, 3, 3)), b.node("MatMul", x, b.random(3, 3))))
    assert_stays(model, "no two branches fit together; matmul0: 'k0' is no matrix")


@declines("merge_parallel_linears")
def test_a_weight_that_is_not_constant_stays() -> None:
    b = Builder()
    x, w = b.input("x", ["N", 3]), b.input("w", [3, 3])
    model = b.model(total(b, b.node("MatMul", x, w), x))
    assert_stays(model, "no branch is a layer that can be merged; matmul0: 'w' is not constant")


@declines("merge_parallel_linears")
def test_a_gemm_that_transposes_stays() -> None:
    b = Builder()
    x = b.input("x", [3, 3])
    model = b.model(total(b, b.node("Gemm", x, b.random(3, 3), transA=1), b.node("MatMul", x, b.random(3, 3))))
    assert_stays(model, "the Gemm transposes what it reads")


@declines("merge_parallel_linears")
def test_a_bias_that_differs_by_row_stays() -> None:
    b = Builder()
    x = b.input("x", [2, 3])
    model = b.model(total(b, b.node("Gemm", x, b.random(3, 3), b.random(2, 3)), b.node("MatMul", x, b.random(3, 3))))
    assert_stays(model, "is not one number a channel")


@property_of("merge_parallel_linears")
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([np.float32, np.float16, np.float64]), st.booleans())
def test_any_layers(seed: int, dtype: Any, flat: bool) -> None:
    """Flat ones are layers only, none in a row: together they always cost less."""
    rng = np.random.default_rng(seed)
    b = Builder(dtype, seed=seed)
    two = bool(rng.integers(2))
    k, n = rng.integers(1, 5, 2).tolist()
    x = b.input("x", ["N", k] if two else ["N", "H", k])

    def layer(y: str, rows: int, columns: int) -> str:
        if two and rng.integers(2):
            transposed = int(rng.integers(2))
            bias = [b.random(columns)] if rng.integers(2) else []
            weight = b.random(columns, rows) if transposed else b.random(rows, columns)
            return str(b.node("Gemm", y, weight, *bias, transB=transposed, alpha=0.5))
        return str(b.node("MatMul", y, b.random(rows, columns)))

    branches = []
    for _ in range(int(rng.integers(2, 5))):
        middle = int(rng.integers(1, 5))
        branches.append(layer(x, k, n) if flat or rng.integers(2) else layer(layer(x, k, middle), middle, n))
    model = b.model(total(b, *branches, *([x] if k == n else [])))
    result = apply(merge_parallel_linears, model)
    assert not flat or (result.applied and result.ops["MatMul"] + result.ops["Gemm"] == 1), result.reasons
    assert_equal_to_rounding(model, result.model, SIZES)


def test_empty_weights_stay() -> None:
    b = Builder()
    x = b.input("x", ["N", 2])
    model = b.model(total(b, b.node("MatMul", x, b.random(2, 0)), b.node("MatMul", x, b.random(2, 0))))
    assert_stays(model, "holds no elements")
