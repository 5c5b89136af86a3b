"""Transposed operands, factors and sums of a Gemm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from surgeon_passes.patterns import gemm
from surgeon_passes.rules.registry import rules_of

from .covering import declines, property_of
from .harness import Builder, apply, assert_equal, operators
from .moves import assert_stays

RULES = list(rules_of(gemm))
BOUND = {np.float32: 1e-5, np.float64: 1e-13, np.float16: 2e-2}


@property_of("fold_transpose_into_gemm", "fold_factor_into_gemm")
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    trans=st.tuples(st.booleans(), st.booleans()),
    turned=st.tuples(st.booleans(), st.booleans()),
    alpha=st.sampled_from([1.0, 0.5]),
    bias=st.sampled_from([None, (), (3,), (4, 1), (4, 3)]),
    factor=st.sampled_from([None, ("Mul", ()), ("Div", (1,)), ("Mul", (1, 1))]),
    added=st.sampled_from([None, (3,), (4, 3)]),
    dtype=st.sampled_from([np.float32, np.float64, np.float16]),
)
def test_gemm(
    trans: tuple[bool, bool], turned: tuple[bool, bool], alpha: float, bias: Any, factor: Any, added: Any, dtype: Any
) -> None:
    b = Builder(dtype)
    shapes = [(4, 5), (5, 3)]
    names = []
    for name, shape, by, turn in zip("xw", shapes, trans, turned, strict=True):
        x = b.input(name, list(shape[::-1] if by != turn else shape))
        names.append(b.node("Transpose", x, perm=[1, 0]) if turn else x)
    names += [] if bias is None else [b.input("b", list(bias))]
    y = b.node("Gemm", *names, transA=int(trans[0]), transB=int(trans[1]), alpha=alpha, beta=0.5)
    if factor is not None:
        y = b.node(factor[0], y, b.random(*factor[1], low=0.5))
    if added is not None:
        y = b.node("Add", b.input("c", list(added)), y)
    model = b.model(y)
    result = apply(RULES, model)
    stays = factor is not None and dtype is np.float64  # none that alpha, a float32, could hold
    if not stays:
        assert result.ops == {"Gemm": 1, **({"Add": 1} if added is not None and bias is not None else {})}
    assert_equal(model, result.model, [{}], BOUND[dtype])


@property_of("fold_sum_into_gemm")
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    shape=st.sampled_from([(), (3,), (1, 3), (4, 1), (4, 3)]),
    first=st.booleans(),
    alpha=st.sampled_from([1.0, 0.5]),
    dtype=st.sampled_from([np.float32, np.float64, np.float16]),
)
def test_a_sum(shape: tuple[int, ...], first: bool, alpha: float, dtype: Any) -> None:
    b = Builder(dtype)
    c = b.node("Gemm", b.input("x", [4, 5]), b.input("w", [5, 3]), alpha=alpha)
    added = b.input("b", list(shape))
    model = b.model(b.node("Add", added, c) if first else b.node("Add", c, added))
    result = apply(RULES, model)
    assert result.ops == {"Gemm": 1}
    assert_equal(model, result.model, [{}], BOUND[dtype])


@property_of("fuse_transposed_matmul")
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(first=st.booleans(), dtype=st.sampled_from([np.float32, np.float64, np.float16]), dynamic=st.booleans())
def test_transposed_matmul(first: bool, dtype: Any, dynamic: bool) -> None:
    b = Builder(dtype)
    rows: Any = "N" if dynamic else 4
    x, w = b.input("x", [5, rows] if first else [rows, 5]), b.input("w", [5, "H"] if first else ["H", 5])
    t = b.node("Transpose", x, perm=[1, 0])
    model = b.model(b.node("MatMul", t, w) if first else b.node("MatMul", w, t))
    result = apply(RULES, model)
    assert result.ops == {"Gemm": 1}
    assert_equal(model, result.model, [{"N": 4, "H": 3}, {"N": 1, "H": 7}], BOUND[dtype])


@declines("fuse_transposed_matmul")
@pytest.mark.parametrize(
    ("shape", "dtype", "reason"),
    [([2, 4, 5], np.float32, "is not known to be a matrix"), ([4, 5], np.int32, "has no Gemm for the type")],
)
def test_other_products_stay(shape: list[int], dtype: Any, reason: str) -> None:
    b = Builder(dtype)
    t = b.node("Transpose", b.input("x", [3, 5]), perm=[1, 0])
    model = b.model(b.node("MatMul", b.input("w", shape), t), rank=len(shape))
    assert_stays(model, reason, rules=RULES)


@declines("fold_transpose_into_gemm")
def test_a_transposed_matrix_that_is_read_elsewhere_stays() -> None:
    b = Builder()
    t = b.node("Transpose", b.input("x", [5, 4]), perm=[1, 0])
    model = b.model(b.node("Gemm", t, b.input("w", [5, 3])), b.node("Neg", t))
    assert_stays(model, "is also used by", rules=RULES)


def test_a_product_with_itself_stays() -> None:
    b = Builder()
    t = b.node("Transpose", b.input("x", [5, 5]), perm=[1, 0])
    assert_stays(b.model(b.node("Gemm", t, t)), "is used twice", rules=RULES)


@declines("fold_factor_into_gemm")
@pytest.mark.parametrize(
    ("op", "k", "reason"),
    [
        ("Mul", [1.0, 2.0, 3.0], "is not one number"),
        ("Div", 0.0, "divides by zero"),
        ("Mul", np.nan, "not finite"),
        ("Mul", [[[2.0]]], "is not one number"),
        ("Mul", 0.0, "out of the range"),
    ],
)
def test_other_factors_stay(op: str, k: Any, reason: str) -> None:
    b = Builder()
    c = b.node("Gemm", b.input("x", [4, 5]), b.input("w", [5, 3]))
    model = b.model(b.node(op, c, b.constant(k)), rank=max(2, np.ndim(k)))
    assert_stays(model, reason, rules=RULES)


@pytest.mark.parametrize(("k", "stays"), [(0.1, True), (0.5, False)])
def test_a_factor_of_doubles_must_be_a_float32(k: float, stays: bool) -> None:
    b = Builder(np.float64)
    c = b.node("Gemm", b.input("x", [4, 5]), b.input("w", [5, 3]))
    model = b.model(b.node("Mul", c, b.constant(k)))
    if stays:
        assert_stays(model, "alpha is a float32", rules=RULES)
    else:
        assert_equal(model, apply(RULES, model).model, [{}], 1e-14)


@property_of("fold_factor_before_gemm")
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    first=st.booleans(),
    op=st.sampled_from(["Mul", "Div"]),
    shape=st.sampled_from([(), (1,), (1, 1)]),
    bias=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float16]),
)
def test_a_factor_of_an_operand(first: bool, op: str, shape: tuple[int, ...], bias: bool, dtype: Any) -> None:
    b = Builder(dtype)
    x, w = b.input("x", [4, 5]), b.input("w", [5, 3])
    s = b.node(op, x if first else w, b.random(*shape, low=0.5))
    names = [s, w] if first else [x, s]
    model = b.model(b.node("Gemm", *names, *([b.input("b", [3])] if bias else []), alpha=0.5, beta=2.0))
    result = apply(RULES, model)
    assert result.ops == {"Gemm": 1}
    assert_equal(model, result.model, [{}], BOUND[dtype])


@declines("fold_factor_before_gemm")
@pytest.mark.parametrize(("k", "reason"), [([1.0, 2.0, 3.0, 4.0, 5.0], "is not one number"), (0.0, "out of the range")])
def test_other_factors_of_an_operand_stay(k: Any, reason: str) -> None:
    b = Builder()
    s = b.node("Mul", b.input("x", [4, 5]), b.constant(k))
    assert_stays(b.model(b.node("Gemm", s, b.input("w", [5, 3]))), reason, rules=RULES)


def test_a_weight_of_its_own_takes_the_factor_itself() -> None:
    b = Builder()
    c = b.node("Gemm", b.input("x", [4, 5]), b.random(5, 3))
    assert_stays(b.model(b.node("Mul", c, b.constant(2.0))), "the weight takes the factor in", rules=RULES)


@declines("fold_sum_into_gemm")
@pytest.mark.parametrize("shape", [["N", 3], [4, "M"], [2, 4, 3]])
def test_sums_that_may_enlarge_stay(shape: list[Any]) -> None:
    b = Builder()
    c = b.node("Gemm", b.input("x", [4, 5]), b.input("w", [5, 3]))
    model = b.model(b.node("Add", c, b.input("b", shape)), rank=len(shape))
    assert_stays(model, "may enlarge the product", rules=RULES)


def test_an_old_gemm_stays_without_its_sum() -> None:
    b = Builder(opset=9)
    c = b.node("Gemm", b.input("x", [4, 5]), b.input("w", [5, 3]), b.random(3))
    model = b.model(b.node("Add", c, b.input("b", [3])))
    assert apply(RULES, model).ops == operators(model)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("k", [1e300, 1e-300])
def test_factors_beyond_a_float32_stay(k: float) -> None:
    b = Builder(np.float64)
    y = b.node("Gemm", b.node("Mul", b.input("x", [2, 4]), b.constant(k)), b.input("w", [4, 3]))
    assert_stays(b.model(y), "out of the range", rules=RULES)
