"""Formulae, held against what they are for known distributions and small vectors."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from surgeon_passes.compare.statistics import BINS, QUANTILES, Distance, distance, divergence, summarize


def test_a_summary_of_a_uniform_ramp() -> None:
    ramp = np.arange(101, dtype=np.float32).reshape(1, 101)
    found = summarize([ramp])
    assert (found.shape, found.dtype, found.mean, found.max_abs) == ((1, 101), "float32", 50.0, 100.0)
    assert found.variance == pytest.approx((101**2 - 1) / 12)
    assert found.quantiles == {q: float(q) for q in QUANTILES}


def test_runs_of_other_sizes_are_told_of_as_one() -> None:
    found = summarize([np.array([1.0, 2.0]), np.array([[3.0], [4.0], [5.0]])])
    assert (found.shape, found.mean, found.quantiles[50]) == ((2,), 3.0, 3.0)


def test_what_is_not_finite_is_counted_and_left_out() -> None:
    found = summarize([np.array([1.0, np.nan, np.inf, -np.inf, 3.0])])
    assert (found.nan, found.inf, found.mean, found.max_abs) == (1, 2, 2.0, 3.0)
    nothing = summarize([np.array([np.nan])])
    assert (nothing.nan, nothing.mean, nothing.quantiles) == (1, None, {})


@pytest.mark.parametrize("dtype", ["int8", "bool", "float16", "float64", ml_dtypes.bfloat16])
def test_every_type_of_numbers_has_a_summary(dtype: object) -> None:
    found = summarize([np.array([0, 1, 1], dtype)])
    assert found.mean == pytest.approx(2 / 3) and found.as_dict()["quantiles"]["50"] == 1.0


def test_texts_have_only_a_shape() -> None:
    found = summarize([np.array(["a", "b"], object)])
    assert (found.shape, found.dtype, found.mean) == ((2,), "object", None)


def apart(a: object, b: object) -> Distance:
    found = distance([np.asarray(a, np.float64)], [np.asarray(b, np.float64)])
    assert found is not None
    return found


def test_distances_of_small_vectors() -> None:
    found = apart([3.0, 4.0], [3.0, 4.5])
    assert found.max_abs == 0.5 and found.relative == 0.1
    assert found.sqnr == pytest.approx(20.0)  # the noise is a tenth of the signal
    assert found.cosine == pytest.approx((9 + 18) / (5 * math.hypot(3, 4.5)))
    right = apart([1.0, 0.0], [0.0, 1.0])
    assert (right.cosine, right.max_abs) == (0.0, 1.0)
    assert apart([1.0, -2.0], [-1.0, 2.0]).cosine == -1.0


def test_equal_tensors_are_not_apart() -> None:
    assert apart([1.0, 2.0], [1.0, 2.0]) == Distance(1.0, math.inf, 0.0, 0.0, 0.0)
    assert apart([0.0, 0.0], [0.0, 0.0]) == Distance(1.0, math.inf, 0.0, 0.0, 0.0)


def test_zeros_against_something() -> None:
    found = apart([0.0, 0.0], [1.0, 1.0])
    assert (found.cosine, found.sqnr, found.relative, found.max_abs) == (None, None, None, 1.0)


def test_the_cosine_of_tiny_and_huge_values() -> None:
    assert apart([1e-200, 2e-200], [1e-200, 2e-200]).cosine == pytest.approx(1.0)
    with np.errstate(over="ignore"):
        assert apart([1e200, 2e200], [-1e200, -2e200]).cosine == pytest.approx(-1.0)


def test_the_divergence_of_two_histograms() -> None:
    """A half of the mass moves from the lowest bin to the highest one: ½ ln(½ / 1) … over the share that is left."""
    x = np.array([0.0] * 500 + [1.0] * 500)
    y = np.array([0.0] * 750 + [1.0] * 250)
    expected = 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)
    assert divergence(x, y) == pytest.approx(expected, rel=1e-3)
    assert divergence(x, x) == 0.0
    assert divergence(y, x) != pytest.approx(expected, rel=1e-2)  # it is not symmetric


def test_the_divergence_of_two_normal_distributions() -> None:
    random = np.random.default_rng(0)
    x, y = random.normal(0.0, 1.0, 400_000), random.normal(0.5, 1.0, 400_000)
    assert divergence(x, y) == pytest.approx(0.5**2 / 2, rel=0.05)


def test_the_divergence_has_a_bin_for_everything() -> None:
    assert divergence(np.array([5.0]), np.array([5.0])) == 0.0
    far = divergence(np.zeros(10), np.ones(10))
    assert far is not None and far > math.log(1 / (1e-6 * BINS))
    assert divergence(np.array([-1.7e308]), np.array([1.7e308])) is None  # the range has no number


def test_what_cannot_be_compared() -> None:
    assert distance([np.zeros(2)], [np.zeros(3)]) is None
    assert distance([np.array([np.nan])], [np.array([1.0])]) is None
    assert distance([np.zeros(0)], [np.zeros(0)]) is None
    assert distance([np.array(["a"], object)], [np.array(["a"], object)]) is None
    one = apart([np.nan, 1.0], [2.0, 1.5])
    assert one.max_abs == 0.5
