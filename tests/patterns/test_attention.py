"""Attention written out with MatMul and Softmax."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surgeon_passes.patterns import attention
from surgeon_passes.rules.registry import rules_of

from .covering import declines, property_of
from .fusing import assert_fuses, assert_stays, attributes, unranked
from .harness import Builder, feeds_for, run

RULES = list(rules_of(attention))
PLACES = ["none", "queries", "keys", "product", "quotient"]


def written_out(
    b: Builder,
    sizes: tuple[int, int, int, int, int],
    *,
    place: str = "product",
    scale: Any = 0.5,
    mask: Any = None,
    rows_first: bool = False,
    axis: int = -1,
) -> str:
    """``sizes``: batch, heads, rows of queries, rows of keys, size of a vector; ``mask``: a tensor."""
    batch, heads, rows, others, size = sizes
    q = b.input("q", [batch, heads, rows, size])
    k = b.input("k", [batch, others, heads, size] if rows_first else [batch, heads, others, size])
    v = b.input("v", [batch, heads, others, size])
    q = b.node("Mul", q, b.constant(scale)) if place == "queries" else q
    t = b.node("Transpose", k, perm=[0, 2, 3, 1] if rows_first else [0, 1, 3, 2])
    t = b.node("Mul", b.constant(scale), t) if place == "keys" else t
    p = b.node("MatMul", q, t)
    p = b.node("Mul", p, b.constant(scale)) if place == "product" else p
    p = b.node("Div", p, b.constant(scale)) if place == "quotient" else p
    p = b.node("Add", p, mask) if mask is not None else p
    return str(b.node("MatMul", b.node("Softmax", p, axis=axis), v))


@property_of("fuse_attention")
def test_attention() -> None:
    @settings(max_examples=40, deadline=None)
    @given(
        st.tuples(*[st.integers(1, 3)] * 5),
        st.sampled_from(PLACES),
        st.sampled_from([0.5, 0.125, 2.0]),
        st.booleans(),
        st.sampled_from([None, 2, 3, 4]),
        st.sampled_from([np.float32, np.float16]),
    )
    def check(sizes: Any, place: str, scale: float, rows_first: bool, mask: int | None, dtype: Any) -> None:
        b = Builder(dtype, opset=23)
        dims = [sizes[0], 1, sizes[2], sizes[3]]
        given = None if mask is None else b.random(*dims[4 - mask :])
        y = written_out(b, sizes, place=place, scale=scale, mask=given, rows_first=rows_first)
        left = {"Attention": 1, **({"Transpose": 1} if rows_first else {})}
        tolerance = 5e-6 if dtype == np.float32 else None
        model, feeds = b.model(y), None
        if dtype == np.float16:  # values of one sign: where they cancel, the bound would measure the half precision sum
            feeds = feeds_for(model, {})
            feeds["v"] = np.abs(feeds["v"])
        found = assert_fuses(RULES, model, tolerance=tolerance, sizes=[{}], feeds=feeds, **left)
        expected = {"none": 1.0, "quotient": 1 / scale}.get(place, scale)
        assert attributes(found.graph.node[-1])["scale"] == pytest.approx(expected, rel=1e-3)

    check()


@declines("fuse_attention")
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"scale": -1.0}, "not all positive"),
        ({"scale": np.ones((1, 1, 3))}, "is not one number"),
        ({"scale": -2.0, "place": "keys"}, "not all positive"),
        ({"scale": 0.0, "place": "quotient"}, "not all positive"),
        ({"axis": 2}, "not over the last axis"),
    ],
)
def test_what_is_no_attention_stays(options: dict[str, Any], reason: str) -> None:
    b = Builder(opset=23)
    assert_stays(RULES, b.model(written_out(b, (1, 2, 3, 3, 4), **options)), reason)


@pytest.mark.parametrize(
    ("queries", "keys", "reason"),
    [
        (["N", 2, 3, 4], [1, 2, 3, 4], "not certainly the same batch and heads"),
        ([1, 4, 3, 4], [1, 1, 3, 4], "not certainly the same batch and heads"),
        (["M", "T", 3, 4], ["N", "T", 3, 4], "not certainly the same batch and heads"),
    ],
)
def test_products_that_broadcast_stay(queries: list[Any], keys: list[Any], reason: str) -> None:
    b = Builder(opset=23)
    q, k, v = b.input("q", queries), b.input("k", keys), b.input("v", keys)
    p = b.node("MatMul", q, b.node("Transpose", k, perm=[0, 1, 3, 2]))
    assert_stays(RULES, b.model(b.node("MatMul", b.node("Softmax", p), v)), reason)


def test_three_axes_stay() -> None:
    b = Builder(opset=23)
    q, k = b.input("q", [2, 3, 4]), b.input("k", [2, 3, 4])
    p = b.node("MatMul", q, b.node("Transpose", k, perm=[0, 2, 1]))
    assert_stays(RULES, b.model(b.node("MatMul", b.node("Softmax", p), k)))


def test_a_factor_or_values_of_another_rank_stay() -> None:
    b = Builder(opset=23)
    y = written_out(b, (1, 2, 3, 3, 4), scale=np.full((1,) * 5, 0.5))
    assert_stays(RULES, b.model(y, rank=5))
    b = Builder(opset=23)
    q, k = b.input("q", [1, 2, 3, 4]), b.input("k", [1, 2, 3, 4])
    p = b.node("MatMul", q, b.node("Transpose", k, perm=[0, 1, 3, 2]))
    y = b.node("MatMul", b.node("Softmax", p), unranked(b))
    assert_stays(RULES, b.model(y, rank=4), "not known to be of rank 4")


def test_attention_in_double_stays() -> None:
    b = Builder(np.float64, opset=23)
    assert_stays(RULES, b.model(written_out(b, (1, 2, 3, 3, 4))), "is double, where Attention is slower")


def test_attention_below_its_opset_stays() -> None:
    b = Builder(opset=22)
    assert_stays(RULES, b.model(written_out(b, (1, 2, 3, 3, 4))))


# --- masks ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3,), (1, 3), (1, 1, 1, 3), (3, 1)])
def test_masks_of_other_rows_and_columns_stay(shape: tuple[int, ...]) -> None:
    """ONNX Runtime asks for a mask of the product's rows and columns."""
    b = Builder(opset=23)
    y = written_out(b, (1, 2, 3, 3, 4), mask=b.random(*shape))
    assert_stays(RULES, b.model(y), "has not certainly the rows and columns")


def test_a_mask_that_enlarges_stays() -> None:
    b = Builder(opset=23)
    y = written_out(b, (1, 2, 3, 3, 4), mask=b.random(5, 1, 3, 3))
    assert_stays(RULES, b.model(y), "may enlarge the product")


def causal(rows: int, low: float, whole: bool = False) -> Any:
    return np.where(np.tril(np.ones((rows, rows)), -1 if whole else 0) > 0, 0.0, low)


def test_causal_masks() -> None:
    for low in (-np.inf, float(np.finfo(np.float32).min)):
        b = Builder(opset=23)
        y = written_out(b, (1, 2, 3, 3, 4), mask=b.constant(causal(3, low)))
        assert_fuses(RULES, b.model(y), sizes=[{}], Attention=1)


def test_rows_that_are_all_masked() -> None:
    """NaN where it is written out, 0 in Attention."""
    b = Builder(opset=23)
    y = written_out(b, (1, 2, 3, 3, 4), mask=b.constant(causal(3, -np.inf, whole=True)))
    assert_stays(RULES, b.model(y), "is all -infinity")
    b = Builder(opset=23)
    model = b.model(written_out(b, (1, 2, 3, 3, 4), mask=b.constant(causal(3, -1e9, whole=True))))
    after = assert_fuses(RULES, model, sizes=[{}], Attention=1)
    assert np.isfinite(run(after, {n: np.ones((1, 2, 3, 4), np.float32) for n in "qkv"}).popitem()[1]).all()


@pytest.mark.parametrize("low", [-np.inf, -1e9])
def test_computed_masks(low: float) -> None:
    b = Builder(opset=23)
    keep = b.input("keep", [1, 1, 3, 3], np.bool_)
    mask = b.node("Unsqueeze", b.node("Where", keep, b.constant(0.0), b.constant(low)), b.constant([0]))
    mask = b.node("Squeeze", mask, b.constant([0]))
    b.inputs.append(b.inputs.pop(0))
    model = b.model(written_out(b, (1, 2, 3, 3, 4), mask=mask), rank=4)
    if np.isinf(low):
        assert_stays(RULES, model, "may hold -infinity")
    else:
        assert_fuses(RULES, model, sizes=[{}], Attention=1, Where=1, Unsqueeze=1, Squeeze=1)


def test_a_mask_that_is_given_stays() -> None:
    b = Builder(opset=23)
    mask = b.input("mask", [1, 1, 3, 3])
    assert_stays(RULES, b.model(written_out(b, (1, 2, 3, 3, 4), mask=mask)), "may hold -infinity")


@declines("fuse_attention")
@pytest.mark.parametrize("computed", [False, True])
def test_rows_that_are_masked_in_half_precision_stay(computed: bool) -> None:
    """What is added there loses the scores; Attention adds in single precision, and keeps them."""
    b = Builder(np.float16, opset=23)
    held = np.zeros((3, 4), np.float16)
    held[1] = -65504
    mask = b.constant(held)
    if computed:
        mask = b.node("Where", b.input("c", [3, 4], np.bool_), b.constant(0.0), b.constant(-65504.0))
    model = b.model(written_out(b, (1, 2, 3, 4, 5), mask=mask))
    assert_stays(RULES, model, "half precision loses the scores there")
