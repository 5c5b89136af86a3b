"""Attention and RotaryEmbedding as plain operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import defs

from surgeon_passes.patterns import npu_attention as family

from .covering import declines, property_of
from .npu import assert_declines, assert_decomposes

DTYPES = st.sampled_from([np.float32, np.float64])


def qkv(batch: int, heads: int, t: int, s: int, size: int, dtype: Any = np.float32, rank: int = 4) -> dict[str, Any]:
    rng = np.random.default_rng(t)
    shapes = {"q": (batch, heads, t, size), "k_": (batch, heads, s, size), "v": (batch, heads, s, size)}
    found = {}
    for name, shape in shapes.items():
        whole = rng.standard_normal(shape).astype(dtype)
        found[name.replace("k_", "x")] = (
            whole if rank == 4 else whole.transpose(0, 2, 1, 3).reshape(batch, shape[2], -1)
        )
    return found


@property_of("decompose_attention")
@given(
    st.integers(1, 2), st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), st.integers(1, 5), DTYPES,
    st.sampled_from([3, 4]), st.booleans(), st.sampled_from([None, 0.3]),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_decompose_attention_of_any_size(
    batch: int, heads: int, t: int, s: int, size: int, dtype: Any, rank: int, masked: bool, scale: float | None
) -> None:
    feeds = qkv(batch, heads, t, s, size, dtype, rank)
    if masked:
        feeds["k_mask"] = np.random.default_rng(0).standard_normal((t, s)).astype(dtype)
    attrs: dict[str, Any] = {"q_num_heads": heads, "kv_num_heads": heads} if rank == 3 else {}
    attrs |= {"scale": scale} if scale else {}
    assert_decomposes(family.decompose_attention, "Attention", feeds, 23, **attrs)


def test_decompose_attention_of_open_sizes() -> None:
    feeds = qkv(2, 2, 3, 5, 4, rank=3)
    dims = {"q": ["B", "T", 8], "x": ["B", "S", 8], "v": ["B", "S", 8]}
    result = assert_decomposes(family.decompose_attention, "Attention", feeds, 23, dims, q_num_heads=2, kv_num_heads=2)
    assert result.ops["MatMul"] == 2 and result.ops["Softmax"] == 1


@declines("decompose_attention")
@pytest.mark.parametrize(
    ("change", "attrs", "says"),
    [
        ({}, {"is_causal": 1}, "it is causal, or caps its scores"),
        ({}, {"softcap": 5.0}, "it is causal, or caps its scores"),
        ({"mask": np.ones((3, 5), np.bool_)}, {}, "'mask' is not of the type of 'q'"),
        ({"mask": np.ones((3, 1), np.float32)}, {}, "has not certainly as many columns as there are keys"),
        ({"mask": np.ones((3, 4), np.float32)}, {}, "has not certainly as many columns as there are keys"),
        ({"kmask": np.full((3, 5), -np.inf, np.float32)}, {}, "a row of the mask 'kmask' is all -infinity"),
        ({}, {"softmax_precision": 11}, "its Softmax is of another precision"),
        ({"x": np.ones((2, 1, 5, 4), np.float32), "v": np.ones((2, 1, 5, 4), np.float32)}, {}, "equally many heads"),
    ],
)
def test_decompose_attention_declines(change: dict[str, Any], attrs: dict[str, Any], says: str) -> None:
    feeds = {**qkv(2, 2, 3, 5, 4), **change}
    assert_declines(family.decompose_attention, says, "Attention", feeds, 23, **attrs)


def test_decompose_attention_declines_types_and_sizes() -> None:
    rule = family.decompose_attention
    assert_declines(rule, "of half precision", "Attention", qkv(2, 2, 3, 5, 4, np.float16), 23)
    ranks = {**qkv(1, 1, 3, 5, 4), "q": np.ones((1, 3, 4), np.float32)}
    assert_declines(rule, "not 3 or 4 in all", "Attention", ranks, 23, q_num_heads=1, kv_num_heads=1)
    masked = {**qkv(2, 2, 3, 5, 4), "mask": np.ones((3, 5), np.float32)}
    says = "has not certainly as many columns"
    assert_declines(rule, says, "Attention", masked, 23, {"mask": [3, "M"]})
    past = {
        "none": np.ones(0),
        "past_k": np.ones((2, 2, 1, 4), np.float32),
        "past_v": np.ones((2, 2, 1, 4), np.float32),
    }
    assert_declines(rule, "it keeps keys and values", "Attention", {**qkv(2, 2, 3, 5, 4), **past}, 23)
    dims = {"q": ["B", 2, "T", "D"]}
    assert_declines(rule, "the size of a head is unknown", "Attention", qkv(2, 2, 3, 5, 4), 23, dims)


@pytest.mark.skipif(defs.onnx_opset_version() < 25, reason="windows came with opset 25")
@pytest.mark.parametrize("window", [{"left_window_size": 0}, {"right_window_size": 1}])
def test_decompose_attention_declines_windows(window: dict[str, int]) -> None:
    rule, feeds = family.decompose_attention, qkv(2, 2, 3, 5, 4)
    assert_declines(rule, "the keys of a window", "Attention", feeds, 25, **window)
    assert_decomposes(rule, "Attention", feeds, 25, left_window_size=-1, right_window_size=-1)


def test_decompose_attention_at_the_scale_that_is_given() -> None:
    """A scale of 0 is one, too: every key counts the same."""
    assert_decomposes(family.decompose_attention, "Attention", qkv(2, 2, 3, 5, 4), 23, scale=0.0)


def rotary(batch: int, heads: int, t: int, size: int, dtype: Any = np.float32) -> dict[str, Any]:
    rng = np.random.default_rng(t)
    angles = rng.standard_normal((batch, t, size // 2))
    x = rng.standard_normal((batch, heads, t, size)).astype(dtype)
    return {"x": x, "cos": np.cos(angles).astype(dtype), "sin": np.sin(angles).astype(dtype)}


@property_of("decompose_rotary_embedding")
@given(
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from([np.float32, np.float16]),
)
@settings(max_examples=20, deadline=None)
def test_decompose_rotary_embedding_of_any_size(batch: int, heads: int, t: int, half: int, dtype: Any) -> None:
    feeds = rotary(batch, heads, t, 2 * half, dtype)
    dims = {"x": ["B", heads, "T", 2 * half], "cos": ["B", "T", half], "sin": ["B", "T", half]}
    assert_decomposes(family.decompose_rotary_embedding, "RotaryEmbedding", feeds, 23, dims)


@declines("decompose_rotary_embedding")
@pytest.mark.parametrize("attrs", [{"interleaved": 1}, {"rotary_embedding_dim": 2}])
def test_decompose_rotary_embedding_declines(attrs: dict[str, int]) -> None:
    feeds = rotary(2, 3, 4, 4)
    if "rotary_embedding_dim" in attrs:
        feeds = {**feeds, "cos": feeds["cos"][..., :1], "sin": feeds["sin"][..., :1]}
        attrs = {**attrs, "num_heads": 3}
    assert_declines(
        family.decompose_rotary_embedding, "interleaved, or only a part", "RotaryEmbedding", feeds, 23, **attrs
    )


def test_decompose_rotary_embedding_leaves_positions() -> None:
    feeds = {**rotary(2, 3, 4, 4), "ids": np.zeros((2, 4), np.int64)}
    feeds |= {name: feeds[name][0] for name in ("cos", "sin")}
    assert_declines(family.decompose_rotary_embedding, "", "RotaryEmbedding", feeds, 23)


def test_decompose_rotary_embedding_declines_an_unknown_size() -> None:
    dims = {"x": ["B", 3, "T", "D"]}
    says = "with a known size"
    assert_declines(family.decompose_rotary_embedding, says, "RotaryEmbedding", rotary(2, 3, 4, 4), 23, dims)


@declines("decompose_attention")
@pytest.mark.parametrize(
    ("mask", "opset", "says"),
    [
        ({"mask": np.zeros((3, 5), np.float32)}, 23, "may hold -infinity"),
        ({"k_mask": np.array([[0] * 5, [-np.inf] * 5, [0] * 5], np.float32)}, 23, "is all -infinity, or holds NaN"),
        ({"k_mask": np.zeros((3, 2), np.float32)}, 24, "has not certainly as many columns as there are keys"),
    ],
)
def test_decompose_attention_declines_masks(mask: dict[str, Any], opset: int, says: str) -> None:
    """A row that is all masked is 0 in ONNX Runtime, and short masks are filled up from opset 24 on."""
    feeds = qkv(2, 2, 3, 5, 4) | mask
    assert_declines(family.decompose_attention, says, "Attention", feeds, opset)
