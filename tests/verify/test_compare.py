from __future__ import annotations

import numpy as np
import pytest

from surgeon_passes.region import Exactness
from surgeon_passes.verify.compare import (
    MANY,
    Difference,
    Pair,
    agreements,
    beyond_noise,
    channel_gaps,
    compare,
    mean_gap,
)

EXACT, ROUNDING = Exactness.EXACT, Exactness.ROUNDING
NAN, INF = np.nan, np.inf


def rounding(a: object, b: object, bound: float = 3e-6) -> Difference:
    return compare(a, b, ROUNDING, bound, 1e-12)


def image(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((2, 4, 6, 6)).astype(np.float32)


def test_error_is_relative_to_the_channel_not_to_the_tensor() -> None:
    a = image()
    a[:, 2] *= 1e-3
    b = a.copy()
    b[0, 2, 3, 3] += np.float32(1e-3 * np.abs(a[:, 2]).max())
    found = rounding(a, b)
    assert found.error == pytest.approx(1e-3, rel=1e-3)
    assert found.rounding and "channel 2" in found.reason


def test_rank_below_two_has_one_scale() -> None:
    a = np.float32([1000, 1])
    assert rounding(a, a + np.float32([0, 1e-3])).reason == ""
    assert rounding(a, a + np.float32([0, 1])).error == pytest.approx(1e-3)


def test_a_huge_offset_is_no_scale() -> None:
    a = image() * np.float32(0.01) + np.float32(100)
    b = a.copy()
    b[:, 1] = 100
    assert rounding(a, b).error > 0.01
    gap, scale, top = channel_gaps(a, b)
    assert top[1] == pytest.approx(100, rel=1e-3) and scale[1] < 1 and gap[0] == 0


def test_one_small_element_is_not_the_scale_of_its_channel() -> None:
    a = np.random.default_rng(0).standard_normal((1, 64)).astype(np.float32)
    a[0, 7] = 1e-6
    b = a.copy()
    b[0, 7] += np.float32(5e-8)
    assert rounding(a, b).reason == ""
    b[0, 7] *= -1
    assert rounding(a, b).reason != ""


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        ([NAN, 1], [NAN, 1], True),
        ([NAN, 1], [1, 1], False),
        ([1, 1], [NAN, 1], False),
        ([INF, 1], [INF, 1], True),
        ([INF, 1], [-INF, 1], False),
        ([INF, 1], [3e38, 1], False),
        ([INF, 1], [INF, 2], False),
        ([INF, NAN, -INF], [INF, NAN, -INF], True),
        ([-INF, NAN], [NAN, -INF], False),
    ],
)
def test_nan_and_inf_stand_at_the_same_places(a: list[float], b: list[float], equal: bool) -> None:
    for exactness in (EXACT, ROUNDING):
        assert (compare(np.float32(a), np.float32(b), exactness, 3e-6, 1e-12).reason == "") is equal


def test_exact_is_bit_equal_but_for_the_payload_of_nan() -> None:
    one = np.float32([1.0])
    assert compare(one, np.nextafter(one, np.float32(2)), EXACT, 1.0, 1.0).reason != ""
    assert compare(np.float32([0.0]), np.float32([-0.0]), EXACT, 0.0, 0.0).reason != ""
    assert rounding(np.float32([0.0]), np.float32([-0.0])).reason == ""
    payload = np.array([0x7FC00001], np.uint32).view(np.float32)
    assert compare(payload, np.float32([NAN]), EXACT, 0.0, 0.0) == Difference()


@pytest.mark.parametrize("exactness", list(Exactness))
def test_discrete_values_are_equal_or_not(exactness: Exactness) -> None:
    big = np.array([[2**62, 5]])
    assert compare(big, big.copy(), exactness, 1.0, 1.0) == Difference()
    found = compare(big, big + np.array([[1, 0]]), exactness, 1.0, 1.0)
    assert found.reason.startswith("1 of 2 elements differ") and "[0, 0]" in found.reason
    text = np.array(["a", "b"], object)
    assert compare(text, np.array(["a", "c"], object), exactness, 1.0, 1.0).error == INF
    assert compare(np.array([True]), np.array([False]), exactness, 1.0, 1.0).error == INF


def test_sequences_are_compared_element_by_element() -> None:
    a = [image(0), image(1)]
    assert rounding(a, [x.copy() for x in a]) == Difference()
    assert rounding(a, a[:1]).reason == "1 elements instead of 2 in a sequence"
    assert rounding(a, [a[0], -a[1]]).error == pytest.approx(2, rel=0.1)
    assert rounding(a, [-a[0], a[1][..., 0]]).reason.startswith("shape")
    assert rounding(a, a[0]).reason != ""


def test_zero_channels_have_an_absolute_floor() -> None:
    a = image()
    a[:, 3] = 0
    b = a.copy()
    b[0, 3, 0, 0] = 1e-13
    assert rounding(a, b).reason == ""
    b[0, 3, 0, 0] = 1e-9
    found = rounding(a, b)
    assert found.error == INF and found.rounding


def test_empty_and_scalar_values() -> None:
    assert rounding(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32)) == Difference()
    assert rounding(np.float32(1), np.float32(2)).error == 1.0


def test_noise_explains_what_it_moves_itself_and_no_more() -> None:
    a = image()
    shaken = a + np.float32(1e-4)
    left, level = beyond_noise(a, a + np.float32(3e-4), [shaken], 3e-6, 1e-12, 4.0)
    assert (
        left.reason == ""
        and left.error > 0
        and level == pytest.approx(1e-4 / np.abs(a).max(axis=(0, 2, 3)).min(), rel=0.01)
    )
    left, _ = beyond_noise(a, a + np.float32(5e-4), [shaken], 3e-6, 1e-12, 4.0)
    assert left.reason != ""
    other = a.copy()
    other[:, 0] += np.float32(1e-4)
    assert beyond_noise(a, a + np.float32(3e-4), [other], 3e-6, 1e-12, 4.0)[0].reason != ""


def test_a_channel_that_cancels_is_measured_against_its_usual_scale() -> None:
    usual = np.random.default_rng(0).standard_normal((1, 2, 8, 8)).astype(np.float32)
    a = np.full_like(usual, 1e-3)
    b = a + np.float32(5e-8)
    assert beyond_noise(a, b, [a], 3e-6, 1e-12, 4.0)[0].reason != ""
    assert beyond_noise(a, b, [a], 3e-6, 1e-12, 4.0, usual=usual)[0].reason == ""
    assert beyond_noise(a, b + np.float32(1e-4), [a], 3e-6, 1e-12, 4.0, usual=usual)[0].reason != ""


def test_an_output_in_half_precision_is_not_told_more_finely_than_its_step() -> None:
    a = np.full((1, 1, 4, 4), 1.0, np.float32) + np.random.default_rng(0).uniform(0, 1e-3, (1, 1, 4, 4)).astype(
        np.float32
    )
    b = a + np.float32(2.0**-11)
    assert beyond_noise(a, b, [a], 2e-3, 1e-12, 4.0)[0].reason != ""
    assert beyond_noise(a, b, [a], 2e-3, 1e-12, 4.0, resolution=2.0**-10)[0].reason == ""
    assert beyond_noise(a, a + np.float32(2.0**-9), [a], 2e-3, 1e-12, 4.0, resolution=2.0**-10)[0].reason != ""


def test_the_mean_gap_is_relative_to_the_largest_value() -> None:
    a, b = np.array([[1.0, -4.0], [2.0, np.inf]], np.float32), np.array([[1.5, -4.0], [2.0, 7.0]], np.float32)
    assert mean_gap(a, b) == 0.5 / 4 / 4
    assert mean_gap(a.astype(np.float16), b.astype(np.float16)) == 0.5 / 4 / 4
    assert mean_gap(a, b[:1]) is mean_gap(a == 1, b == 1) is mean_gap(a, [b]) is None
    assert mean_gap(np.zeros(2), np.ones(2)) is None


SHAPES = ((2, 4, 6, 6), (3, 5), (7,), (), (2, 3, 32))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "bool"])
@pytest.mark.parametrize("exactness", [EXACT, ROUNDING])
@pytest.mark.parametrize("axis", [1, -1])
def test_many_pairs_agree_together_exactly_where_each_agrees_alone(dtype: str, exactness: Exactness, axis: int) -> None:
    rng = np.random.default_rng(3)
    pairs: list[Pair] = []
    for shape in SHAPES:
        for number in range(3 * MANY):
            a = (rng.standard_normal(shape) * 10.0 ** (number % 5)).astype(dtype)
            b = np.asarray(a * (1 + 1e-6 * (number % 4))).astype(dtype) if dtype.startswith("float") else a.copy()
            if a.ndim and number % 6 == 5:
                b = b[::-1].copy()
            if a.ndim and dtype.startswith("float") and number % 7 == 6:
                a[(0,) * a.ndim] = b[(0,) * a.ndim] = (NAN, INF)[number % 2]
            pairs.append(Pair(a, b, exactness, (3e-6, 1e-3)[number % 2], axis))
    together = agreements(pairs)
    alone = [compare(p.a, p.b, p.exactness, p.bound, 1e-12, p.axis) for p in pairs]
    agreeing = [(one, many) for one, many in zip(alone, together, strict=True) if many is not None]
    assert all(one == many for one, many in agreeing)
    assert len(agreeing) >= len(SHAPES) * MANY / 2
    assert all(many is None for one, many in zip(alone, together, strict=True) if one.reason)


def test_an_infinity_on_one_side_is_no_agreement() -> None:
    a = np.ones((MANY, 2, 3), np.float32)
    a[:, 0, 0] = INF
    b = np.ones_like(a)
    assert agreements([Pair(x, y, ROUNDING, 1.0, 1) for x, y in zip(a, b, strict=True)]) == [None] * MANY


def test_what_differs_in_shape_or_type_or_is_no_array_is_left_to_be_compared_alone() -> None:
    a = np.ones((2, 3), np.float32)
    odd = [(a, a[:1]), (a, a.astype(np.float64)), ([a], [a]), (None, None), (a[:0], a[:0])]
    assert agreements([Pair(x, y, ROUNDING, 1.0, 1) for x, y in odd * MANY]) == [None] * len(odd) * MANY
    assert agreements([Pair(a, a, ROUNDING, 1.0, 1)] * (MANY - 1)) == [None] * (MANY - 1)


def test_channels_at_the_end_of_the_range_do_not_add_up_to_an_infinite_scale() -> None:
    for dtype, top in ((np.float32, 3e38), (np.float64, 1.5e308)):
        a = np.full((2, 8), top, dtype)
        assert rounding(a, a * dtype(0.5)).error == pytest.approx(0.5)
        assert agreements([Pair(a, a * dtype(0.5), ROUNDING, 3e-6, 1)] * MANY) == [None] * MANY
        left, _ = beyond_noise(a, a * dtype(0.5), [a * dtype(0.99)], 3e-6, 1e-12, 4.0)
        assert left.reason
        noise = np.where(np.arange(8) % 2, a, -a)  # perturbed by as much as there is
        assert np.isfinite(
            beyond_noise(a * dtype(0.4), -a * dtype(0.4), [noise * dtype(0.1)], 3e-6, 1e-12, 1e-3)[0].error
        )
