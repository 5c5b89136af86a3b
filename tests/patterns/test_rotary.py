"""Rotary position embeddings, written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surgeon_passes.patterns import rotary
from surgeon_passes.rules.registry import rules_of

from .covering import declines, property_of
from .fusing import assert_fuses, assert_stays
from .harness import Builder

RULES = list(rules_of(rotary))
FAR = 2**63 - 1
FLOATS = st.sampled_from([np.float32, np.float16])
Sizes = tuple[Any, int, int, int]
"""Batch, heads, rows and half the size of a vector."""
SIZES = st.tuples(*[st.integers(1, 3)] * 4)


def piece(b: Builder, x: str, start: int, end: int, step: int | None = None) -> str:
    operands = [b.constant([v]) for v in (start, end, -1, *(() if step is None else (step,)))]
    return str(b.node("Slice", x, *operands))


def halves(b: Builder, x: str, half: int) -> str:
    return str(b.node("Concat", b.node("Neg", piece(b, x, half, FAR)), piece(b, x, 0, half), axis=-1))


def pairs(b: Builder, x: str, sizes: Sizes) -> str:
    odd, even = piece(b, x, 1, FAR, 2), piece(b, x, 0, FAR, 2)
    last = b.constant([-1])
    both = b.node("Concat", b.node("Unsqueeze", b.node("Neg", odd), last), b.node("Unsqueeze", even, last), axis=-1)
    return str(b.node("Reshape", both, b.constant([*sizes[:3], 2 * sizes[3]])))


def turn(b: Builder, x: str, turned: str, cos: str, sin: str) -> str:
    return str(b.node("Add", b.node("Mul", x, cos), b.node("Mul", turned, sin)))


def tables(b: Builder, sizes: Sizes, rank: int, join: Any) -> tuple[str, str]:
    angles = b.rng.uniform(-3, 3, (sizes[2], sizes[3]))
    both = np.asarray(join(angles)).reshape((1,) * (rank - 2) + (sizes[2], 2 * sizes[3]))
    return b.constant(np.cos(both)), b.constant(np.sin(both))


def side_by_side(angles: Any) -> Any:
    return np.repeat(angles, 2, axis=1)


def one_after_another(angles: Any) -> Any:
    return np.concatenate([angles, angles], axis=1)


@property_of("fuse_rotary_embedding", "fuse_interleaved_rotary_embedding")
def test_constant_angles() -> None:
    @settings(max_examples=20, deadline=None)
    @given(SIZES, st.integers(2, 4), FLOATS)
    def check(interleaved: bool, sizes: Sizes, rank: int, dtype: Any) -> None:
        b = Builder(dtype, opset=23)
        x = b.input("x", [*sizes[:3], 2 * sizes[3]])
        cos, sin = tables(b, sizes, rank, side_by_side if interleaved else one_after_another)
        turned = pairs(b, x, sizes) if interleaved else halves(b, x, sizes[3])
        assert_fuses(RULES, b.model(turn(b, x, turned, cos, sin)), sizes=[{}], RotaryEmbedding=1)

    check(True)
    check(False)


def computed(b: Builder, sizes: Sizes, dims: list[Any]) -> tuple[str, str]:
    f = b.input("f", dims)
    angles = b.node("Concat", f, f, axis=-1)
    one = b.constant([1])
    return b.node("Unsqueeze", b.node("Cos", angles), one), b.node("Unsqueeze", b.node("Sin", angles), one)


@property_of("fuse_computed_rotary_embedding")
def test_computed_angles() -> None:
    @settings(max_examples=30, deadline=None)
    @given(SIZES, st.booleans(), FLOATS)
    def check(sizes: Sizes, dynamic: bool, dtype: Any) -> None:
        b = Builder(dtype, opset=23)
        batch, rows = ("N", "T") if dynamic else (sizes[0], sizes[2])
        x = b.input("x", [batch, sizes[1], rows, 2 * sizes[3]])
        cos, sin = computed(b, sizes, [batch, rows, sizes[3]])
        model = b.model(turn(b, x, halves(b, x, sizes[3]), cos, sin))
        assert_fuses(RULES, model, RotaryEmbedding=1, Cos=1, Sin=1)

    check()


def test_angles_of_queries_and_keys() -> None:
    """Sines and cosines are read by both; the whole ones go with the last reader."""
    b = Builder(opset=23)
    q, k = b.input("q", ["N", 3, "T", 4]), b.input("k", ["N", 3, "T", 4])
    cos, sin = computed(b, ("N", 3, 1, 2), ["N", "T", 2])
    outs = [turn(b, t, halves(b, t, 2), cos, sin) for t in (q, k)]
    assert_fuses(RULES, b.model(*outs), RotaryEmbedding=2, Cos=2, Sin=2)


@pytest.mark.parametrize(
    ("first", "second", "axis", "reason"),
    [
        ((0, FAR, 2), (1, FAR, 2), -1, "the slices are not every other element"),
        ((1, FAR, 2), (0, FAR, 2), 3, "the pairs are not put side by side"),
    ],
)
def test_pairs_of_another_order_stay(first: Any, second: Any, axis: int, reason: str) -> None:
    b = Builder(opset=23)
    x = b.input("x", [1, 2, 3, 4])
    cos, sin = tables(b, (1, 2, 3, 2), 2, side_by_side)
    last = b.constant([-1])
    n = b.node("Unsqueeze", b.node("Neg", piece(b, x, *first)), last)
    both = b.node("Concat", n, b.node("Unsqueeze", piece(b, x, *second), last), axis=axis)
    flat = b.node("Reshape", both, b.constant([1, 2, 3, -1]))
    assert_stays(RULES, b.model(turn(b, x, flat, cos, sin)), reason)


def test_vectors_of_another_rank_or_size_stay() -> None:
    b = Builder(opset=23)
    x = b.input("x", [2, 3, 4])
    cos, sin = tables(b, (1, 2, 3, 2), 2, one_after_another)
    assert_stays(RULES, b.model(turn(b, x, halves(b, x, 2), cos, sin)), "'x' is not known to be of rank 4")
    b = Builder(opset=23)
    x = b.input("x", [1, 2, 3, "D"])
    cos, sin = tables(b, (1, 2, 3, 2), 2, one_after_another)
    assert_stays(RULES, b.model(turn(b, x, halves(b, x, 2), cos, sin)), "the vectors of 'x' are of size")
    b = Builder(opset=23)
    x = b.input("x", [1, 2, 4, 4])
    cos, sin = tables(b, (1, 2, 4, 2), 2, one_after_another)
    rows = [b.node("Slice", x, *(b.constant([v]) for v in (start, end, 2))) for start, end in ((2, FAR), (0, 2))]
    turned = b.node("Concat", b.node("Neg", rows[0]), rows[1], axis=2)
    assert_stays(RULES, b.model(turn(b, x, turned, cos, sin)), "a Slice along the axes [2]")


@declines("fuse_rotary_embedding", "fuse_interleaved_rotary_embedding", "fuse_computed_rotary_embedding")
def test_vectors_in_double_stay() -> None:
    for kind in ("halves", "pairs", "computed"):
        b = Builder(np.float64, opset=23)
        sizes = (1, 2, 3, 2)
        x = b.input("x", [1, 2, 3, 4])
        join = side_by_side if kind == "pairs" else one_after_another
        cos, sin = computed(b, sizes, [1, 3, 2]) if kind == "computed" else tables(b, sizes, 2, join)
        turned = pairs(b, x, sizes) if kind == "pairs" else halves(b, x, 2)
        assert_stays(RULES, b.model(turn(b, x, turned, cos, sin)), "is computed in single precision")


@pytest.mark.parametrize("batch", [1, "M"])
def test_angles_of_another_batch_stay(batch: Any) -> None:
    b = Builder(opset=23)
    x = b.input("x", ["N", 3, "T", 4])
    cos, sin = computed(b, ("N", 3, 1, 2), [batch, "T", 2])
    assert_stays(RULES, b.model(turn(b, x, halves(b, x, 2), cos, sin)), "has not certainly the batch")


def test_an_unknown_batch_stays() -> None:
    b = Builder(opset=23)
    x = b.input("x", ["N", 2, 3, 4])
    cos, sin = tables(b, ("N", 2, 3, 2), 2, one_after_another)
    assert_stays(RULES, b.model(turn(b, x, halves(b, x, 2), cos, sin)), "the batch of 'x' is unknown")


@pytest.mark.parametrize("interleaved", [True, False])
def test_angles_that_differ_within_a_pair_stay(interleaved: bool) -> None:
    """The other form's tables, with this form's slices."""
    b = Builder(opset=23)
    sizes = (1, 2, 3, 2)
    x = b.input("x", [1, 2, 3, 4])
    cos, sin = tables(b, sizes, 2, one_after_another if interleaved else side_by_side)
    turned = pairs(b, x, sizes) if interleaved else halves(b, x, 2)
    assert_stays(RULES, b.model(turn(b, x, turned, cos, sin)), "have different numbers")


def test_unequal_parts_stay() -> None:
    b = Builder(opset=23)
    x = b.input("x", [1, 2, 3, 4])
    cos, sin = tables(b, (1, 2, 3, 2), 2, one_after_another)
    turned = b.node("Concat", b.node("Neg", piece(b, x, 1, FAR)), piece(b, x, 0, 1), axis=-1)
    assert_stays(RULES, b.model(turn(b, x, turned, cos, sin)), "are not the halves")


def test_tables_of_each_head_stay() -> None:
    b = Builder(opset=23)
    x = b.input("x", [1, 2, 3, 4])
    cos, sin = b.random(2, 3, 4), b.random(2, 3, 4)
    assert_stays(RULES, b.model(turn(b, x, halves(b, x, 2), cos, sin)), "is not a row for each")
