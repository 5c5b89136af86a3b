"""A convolution of a convolution, against both written out in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surgeon_passes import Decline
from surgeon_passes.patterns._affine_branch import AffineBranch, pointwise
from surgeon_passes.patterns._compose import compose, composed_cost

from .test_affine_branch import branch, convolve

RNG = np.random.default_rng(11)


def assert_composed(first: AffineBranch, second: AffineBranch) -> AffineBranch:
    both = compose(first, second)
    assert both.cost == first.cost + second.cost
    assert composed_cost(first, second) == both.kernel.size
    for size in (8, 9, 11):
        x = RNG.standard_normal((first.inputs, *[size + axis for axis in range(first.rank)]))
        expected, found = convolve(convolve(x, first), second), convolve(x, both)
        assert expected.shape == found.shape
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    return both


def unbiased(b: AffineBranch) -> AffineBranch:
    b.bias[:] = 0
    return b


def test_one_tap_before_a_kernel() -> None:
    both = assert_composed(branch(4, 2, (1,), (0, 0)), branch(3, 4, (3,), (0, 0)))
    assert both.spatial == (3,) and both.pads == (0, 0)


def test_values() -> None:
    first = AffineBranch(np.array([[[1.0]], [[2.0]]]), np.array([0.5, 1.0]), (0, 0), (1,), (1,), 1)
    second = AffineBranch(np.array([[[1.0, 2.0], [3.0, 4.0]]]), np.array([10.0]), (0, 0), (1,), (1,), 1)
    both = compose(first, second)
    np.testing.assert_array_equal(both.kernel, [[[7.0, 10.0]]])
    np.testing.assert_array_equal(both.bias, [10 + 0.5 * 3 + 1.0 * 7])


def test_strides_multiply_and_offsets_spread() -> None:
    both = assert_composed(branch(2, 2, (3,), (1, 1), strides=(2,)), branch(2, 2, (2,), (0, 0), strides=(3,)))
    assert both.strides == (6,) and both.spatial == (5,) and both.pads == (1, 1)


def test_steps_are_as_wide_as_they_can_be() -> None:
    both = assert_composed(branch(2, 2, (1,), (0, 0), strides=(2,)), branch(2, 2, (3,), (0, 0), dilations=(2,)))
    assert both.spatial == (3,) and both.dilations == (4,)


def test_depthwise_before_pointwise_keeps_no_groups() -> None:
    both = assert_composed(branch(4, 4, (3,), (1, 1), group=4), branch(6, 4, (1,), (0, 0)))
    assert both.group == 1


def test_depthwise_after_a_grouped_one_keeps_its_groups() -> None:
    both = assert_composed(branch(4, 4, (1,), (0, 0), group=2), branch(8, 4, (3,), (0, 0), group=4))
    assert both.group == 2


def test_a_scale_after_a_convolution() -> None:
    both = assert_composed(branch(4, 2, (3,), (1, 1)), pointwise(RNG.standard_normal(4), RNG.standard_normal(4), 1))
    assert both.spatial == (3,)


def test_zeros_stay_zeros_without_a_bias() -> None:
    both = assert_composed(unbiased(branch(2, 2, (1,), (0, 0))), branch(2, 2, (3,), (1, 1)))
    assert both.pads == (1, 1)
    both = assert_composed(unbiased(branch(2, 2, (1,), (0, 0), strides=(2,))), branch(2, 2, (3,), (1, 2)))
    assert both.pads == (2, 4)


def test_a_bias_under_padding_is_none() -> None:
    with pytest.raises(Decline, match="zeros where the convolution before it would give its bias"):
        compose(branch(2, 2, (1,), (0, 0)), branch(2, 2, (3,), (1, 1)))


@pytest.mark.parametrize(("inner", "outer"), [((1, 2), (1, 0)), ((2, 1), (0, 1))])
def test_taps_that_reach_into_the_input_under_padding_are_none(inner: Any, outer: Any) -> None:
    with pytest.raises(Decline, match="would still read its input"):
        compose(unbiased(branch(2, 2, (3,), inner)), branch(2, 2, (2,), outer))


def test_channels_that_differ_are_none() -> None:
    with pytest.raises(Decline, match="3 channels meet a Conv of 2"):
        compose(branch(3, 2, (1,), (0, 0)), branch(2, 2, (1,), (0, 0)))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_any_two(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 3))

    def drawn(out: int, cin: int, pads: bool) -> AffineBranch:
        group = int(rng.choice([g for g in (1, 2, 4) if cin % g == 0 and out % g == 0]))
        return branch(
            out,
            cin,
            tuple(rng.integers(1, 4, rank).tolist()),
            tuple(rng.integers(0, 3, 2 * rank).tolist()) if pads else (0,) * (2 * rank),
            strides=tuple(rng.integers(1, 3, rank).tolist()),
            dilations=tuple(rng.integers(1, 3, rank).tolist()),
            group=group,
        )

    first, second = drawn(4, int(rng.choice([2, 4])), True), drawn(int(rng.choice([4, 8])), 4, bool(rng.integers(2)))
    if rng.integers(2):
        unbiased(first)
    if max(first.reach) + max(second.reach) * max(first.strides) > 8:
        return  # larger than the smallest input
    try:
        compose(first, second)
    except Decline:
        return
    assert_composed(first, second)
