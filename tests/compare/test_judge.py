"""What is a drift, and what rounding may explain."""

from __future__ import annotations

import numpy as np
import pytest

from surgeon_passes.compare.judge import bound_of, explained, gap_of, in_shape_of
from tests.models import floats

ONE = np.float32(1)


def test_the_worst_run_counts() -> None:
    a = floats(2, 32)
    found = gap_of([a, a, a], [a, a + ONE, a], 1e-4)
    assert found.reason.startswith("error ") and found.error > 0.1
    assert gap_of([a, a], [a, a], 1e-4).reason == ""


def test_a_shape_is_worse_than_any_number() -> None:
    a = floats(2, 3)
    found = gap_of([a, a], [a * 100, a.T], 1e-4)
    assert (found.error, found.reason) == (np.inf, "shape [3, 2] instead of [2, 3]")


@pytest.mark.parametrize(("dtype", "bound"), [("float32", 1e-4), ("float64", 1e-4), ("float16", 2e-3), ("int8", 1e-4)])
def test_the_coarser_type_sets_the_bound(dtype: str, bound: float) -> None:
    assert bound_of(np.zeros(1, np.float32), np.zeros(1, dtype), 1e-4) == bound
    assert bound_of(np.zeros(1, dtype), np.zeros(1, np.float32), 0.1) == 0.1


def test_floats_are_explained_by_runs_that_move_as_much() -> None:
    a = floats(2, 64)
    step = np.float32(1e-3) * np.abs(a).max(axis=0)
    assert explained(a, a + 3 * step, [a + step], 1e-4)
    assert not explained(a, a + 5 * step, [a + step], 1e-4)
    assert not explained(a, a + 3 * step, [], 1e-4)


def test_integers_are_explained_where_they_change_by_themselves() -> None:
    a, b, other = np.array([1, 2]), np.array([1, 3]), np.array([0, 2])
    assert explained(a, b, [a, b], 1e-4) and not explained(a, b, [a, a], 1e-4)
    assert not explained(a, b, [other], 1e-4), "another element flips"


def test_quantised_elements_are_explained_by_their_distance() -> None:
    a = np.array([1, 2], np.int8)
    near, far, moved = a + np.array([0, 1], np.int8), a + np.array([0, 9], np.int8), a + np.array([1, 0], np.int8)
    assert explained(a, near, [moved], 1e-4)
    assert not explained(a, far, [moved], 1e-4) and not explained(a, near, [a], 1e-4)


def test_another_shape_is_explained_by_another_shape_alone() -> None:
    a = floats(2, 3)
    assert not explained(a, a.T, [a + ONE], 1e-4)
    assert explained(a, a.T, [a[:1]], 1e-4)


def test_nan_is_explained_by_nan_alone() -> None:
    a = floats(2, 64)
    b = a.copy()
    b[0, 0] = np.nan
    assert not explained(a, b, [a + ONE], 1e-4) and explained(a, b, [b], 1e-4)


def test_another_type_is_not_explained() -> None:
    assert not explained(np.array([1, 2]), np.array([1.0, 2.0]), [np.array([2, 2])], 1e-4)


def test_only_as_many_elements_are_seen_in_another_shape() -> None:
    a = floats(2, 3)
    assert in_shape_of(a, a.reshape(6)).shape == (2, 3)
    assert in_shape_of(a, floats(7)).shape == (7,) and in_shape_of([a], a) is a
