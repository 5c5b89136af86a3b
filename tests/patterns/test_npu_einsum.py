"""Einsum as plain operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surgeon_passes import Rule
from surgeon_passes.patterns import npu_einsum as family
from surgeon_passes.rules.registry import rules_of

from .covering import declines, property_of
from .harness import Result, apply
from .npu import one_node

RULES = list(rules_of(family))
SIZES = dict(zip("abcdefgh", (2, 3, 4, 5, 2, 3, 4, 2), strict=True))


def operands(equation: str, dtype: Any = np.float32, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    terms = equation.partition("->")[0].replace(" ", "").split(",")
    return {f"x{i}": rng.standard_normal([SIZES[c] for c in t]).astype(dtype) for i, t in enumerate(terms)}


def model(equation: str, feeds: dict[str, Any], dims: dict[str, Any] | None = None) -> onnx.ModelProto:
    found = one_node("Einsum", feeds, 17, dims, equation=equation)
    return found


def check(equation: str, rules: Rule | Sequence[Rule] = (), dtype: Any = np.float32, dims: Any = None) -> Result:
    """No Einsum is left, and the result is numpy's."""
    from surgeon_passes.runtime import run

    feeds = operands(equation, dtype)
    result = apply(rules or RULES, model(equation, feeds, dims))
    assert "Einsum" not in result.ops, result.reasons
    found = run(result.model, feeds)["y"]
    wide = {name: value.astype(np.float64) for name, value in feeds.items()}
    expected = np.einsum(equation.replace(" ", ""), *wide.values())
    tolerance = {np.float32: 1e-5, np.float16: 2e-2, np.float64: 1e-12}[dtype]
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=tolerance, atol=tolerance)
    assert found.dtype == dtype
    return result


@st.composite
def equations(draw: st.DrawFn, number: int) -> str:
    """Terms of distinct letters each, and a result of some of theirs."""
    terms = ["".join(draw(st.permutations("abcdef"))[: draw(st.integers(0, 4))]) for _ in range(number)]
    used = sorted(set("".join(terms)))
    kept = draw(st.permutations(used))[: draw(st.integers(0, len(used)))]
    return f"{','.join(terms)}->{''.join(kept)}"


@property_of("decompose_einsum", "sum_einsum_operand")
@given(equations(2), st.sampled_from([np.float32, np.float16, np.float64]))
@settings(max_examples=60, deadline=None)
def test_decompose_einsum_of_any_two_operands(equation: str, dtype: Any) -> None:
    check(equation, dtype=dtype)


@property_of("decompose_einsum_of_one")
@given(equations(1), st.sampled_from([np.float32, np.float64]))
@settings(max_examples=25, deadline=None)
def test_decompose_einsum_of_one_of_any_equation(equation: str, dtype: Any) -> None:
    check(equation, dtype=dtype)


@property_of("split_einsum")
@given(st.integers(3, 4).flatmap(equations))
@settings(max_examples=20, deadline=None)
def test_split_einsum_of_any_equation(equation: str) -> None:
    check(equation)


@pytest.mark.parametrize(
    ("equation", "left"),
    [
        ("ab,bc->ac", {"MatMul": 1}),
        ("ab,cb->ac", {"Transpose": 1, "MatMul": 1}),
        ("abcd,aecd->aceb", {"Transpose": 3, "MatMul": 1}),
        ("abc,cd", {"Reshape": 3, "MatMul": 1}),  # the result is implicit: abd
        ("ab,ab->ab", {"Reshape": 2, "Mul": 1}),
    ],
)
def test_decompose_einsum_takes_no_more_than_it_needs(equation: str, left: dict[str, int]) -> None:
    assert check(equation, family.decompose_einsum).ops == left


def test_decompose_einsum_of_open_sizes() -> None:
    dims = {"x0": ["B", "Q", 4, 5], "x1": ["B", "K", 4, 5]}
    assert check("abcd,afcd->acbf", dims=dims).ops == {"Transpose": 2, "MatMul": 1}


@declines("decompose_einsum")
@pytest.mark.parametrize(
    ("equation", "dims", "says"),
    [
        ("aa,ab->b", {}, "takes a diagonal ('a' stands twice in one operand)"),
        ("...a,ab->...b", {}, "has an ellipsis"),
        ("ab,bc->ac", {"x0": ["A", "B"], "x1": ["C", "D"]}, "'b' of ab,bc->ac may be broadcast"),
        ("abc,cd->abd", {"x0": ["A", "B", 4]}, "two sizes that a Reshape would have to say are unknown"),
    ],
)
def test_decompose_einsum_declines(equation: str, dims: dict[str, Any], says: str) -> None:
    feeds = operands(equation.replace("...", "h").replace("aa", "ae"))
    if "aa" in equation:
        feeds["x0"] = np.ones((2, 2), np.float32)
    result = apply(RULES, model(equation, feeds, dims))
    assert result.ops == {"Einsum": 1} and any(says in reason for reason in result.reasons), result.reasons


@declines("decompose_einsum_of_one")
@pytest.mark.parametrize("equation", ["aa->a", "...a->a"])
def test_decompose_einsum_of_one_declines(equation: str) -> None:
    result = apply(RULES, model(equation, {"x0": np.ones((2, 2), np.float32)}))
    assert result.ops == {"Einsum": 1} and result.reasons


@declines("split_einsum")
def test_split_einsum_declines() -> None:
    feeds = {f"x{i}": np.ones((2, 2), np.float32) for i in range(3)}
    result = apply(family.split_einsum, model("aa,ab,bc->c", feeds))
    assert not result.applied and "takes a diagonal" in result.reasons[0]


@declines("sum_einsum_operand")
def test_sum_einsum_operand_leaves_what_is_not_alone() -> None:
    feeds = operands("ab,bc->ac")
    assert not apply(family.sum_einsum_operand, model("ab,bc->ac", feeds)).applied
    assert apply(family.sum_einsum_operand, model("ab,ac->ac", operands("ab,ac->ac"))).applied
    result = apply(
        family.sum_einsum_operand, model("aa,bc->c", {"x0": np.ones((2, 2), np.float32), **{"x1": feeds["x1"]}})
    )
    assert not result.applied and "takes a diagonal" in result.reasons[0]


def test_decompose_einsum_of_an_open_size_that_is_one_at_last() -> None:
    """Each operand is reshaped to sizes of its own: the other's would not fit where this one's is 1."""
    from surgeon_passes.runtime import run

    feeds = {"x0": np.ones((1, 3), np.float32), "x1": np.ones((2, 5, 3), np.float32)}
    result = apply(family.decompose_einsum, model("ij,kij->kij", feeds, {"x0": ["N", 3]}))
    assert result.ops == {"Reshape": 2, "Mul": 1}
    np.testing.assert_array_equal(run(result.model, feeds)["y"], feeds["x1"])
