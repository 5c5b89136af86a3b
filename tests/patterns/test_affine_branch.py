"""The arithmetic of branches, against a convolution written out in numpy."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from surgeon_passes.patterns._affine_branch import (
    AffineBranch,
    cheapest,
    explicit_pads,
    merge,
    merged_cost,
    pointwise,
    regroup,
    widen,
)

RNG = np.random.default_rng(3)


def branch(out: int = 2, cin: int = 2, kernel: Any = (3,), pads: Any = (1, 1), **other: Any) -> AffineBranch:
    group, rank = other.pop("group", 1), len(kernel)
    made = AffineBranch(
        RNG.standard_normal((out, cin // group, *kernel)),
        RNG.standard_normal(out),
        tuple(pads),
        other.pop("strides", (1,) * rank),
        other.pop("dilations", (1,) * rank),
        group,
    )
    return replace(made, **other)


def convolve(x: np.ndarray, b: AffineBranch) -> np.ndarray:
    """[C, size…] -> [O, size…], by the definition."""
    sizes = [(n + s - 1) // t + 1 for n, s, t in zip(x.shape[1:], b.slack, b.strides, strict=True)]
    y = np.zeros((b.outputs, *sizes))
    rows, width = b.outputs // b.group, b.kernel.shape[1]
    for o, place in product(range(b.outputs), product(*map(range, sizes))):
        y[(o, *place)] = b.bias[o]
        for c, tap in product(range(width), product(*map(range, b.spatial))):
            at = [
                p * s - b.pads[a] + t * d
                for a, (p, s, t, d) in enumerate(zip(place, b.strides, tap, b.dilations, strict=True))
            ]
            if all(0 <= i < n for i, n in zip(at, x.shape[1:], strict=True)):
                y[(o, *place)] += b.kernel[(o, c, *tap)] * x[(o // rows * width + c, *at)]
    return y


def assert_sum(*branches: AffineBranch) -> AffineBranch:
    merged = merge(branches)
    assert len({b.sizing() for b in (merged, *branches)}) == 1
    assert merged_cost(branches) == merged.cost
    for size in (6, 7, 9):
        x = RNG.standard_normal((merged.inputs, *([size] * merged.rank)))
        expected = sum(np.broadcast_to(y, convolve(x, merged).shape) for y in (convolve(x, b) for b in branches))
        np.testing.assert_allclose(convolve(x, merged), expected, atol=1e-12)
    return merged


def test_a_smaller_kernel_lies_in_the_middle() -> None:
    one = branch(kernel=(1,), pads=(0, 0))
    three = branch()
    merged = assert_sum(three, one, pointwise(np.ones(2), np.zeros(2), 1))
    np.testing.assert_allclose(merged.kernel[:, :, [0, 2]], three.kernel[:, :, [0, 2]])
    np.testing.assert_allclose(merged.kernel[:, :, 1], three.kernel[:, :, 1] + one.kernel[:, :, 0] + np.eye(2))


def test_a_smaller_kernel_lies_where_the_pads_say() -> None:
    one = branch(kernel=(1,), pads=(0, 0))
    corner = branch(pads=(0, 2))
    np.testing.assert_allclose(merge([corner, one]).kernel[:, :, 0], corner.kernel[:, :, 0] + one.kernel[:, :, 0])
    assert_sum(corner, one)
    assert_sum(branch(pads=(2, 0)), one)
    assert_sum(branch(pads=(3, 1)), branch(kernel=(1,), pads=(1, 1)))


def test_dilation_keeps_its_taps() -> None:
    wide = branch(pads=(2, 2), dilations=(2,))
    merged = assert_sum(wide, branch(kernel=(1,), pads=(0, 0)))
    assert merged.spatial == (3,) and merged.dilations == (2,) and merged.pads == (2, 2)


def test_dilations_that_differ_meet_on_the_finer_grid() -> None:
    merged = assert_sum(branch(kernel=(5,), pads=(2, 2)), branch(pads=(2, 2), dilations=(2,)))
    assert merged.spatial == (5,) and merged.dilations == (1,)


def test_an_even_kernel_and_a_middle_between_its_taps() -> None:
    merged = assert_sum(branch(kernel=(2,), pads=(1, 1), dilations=(2,)), branch(kernel=(1,), pads=(0, 0)))
    assert merged.spatial == (3,) and merged.dilations == (1,)


def test_crossed_kernels_span_a_square() -> None:
    merged = assert_sum(branch(kernel=(1, 3), pads=(0, 1, 0, 1)), branch(kernel=(3, 1), pads=(1, 0, 1, 0)))
    assert merged.spatial == (3, 3) and merged.pads == (1, 1, 1, 1)


def test_sizes_that_agree_where_they_are_known() -> None:
    wide, one = branch(pads=(0, 1), strides=(2,)), branch(kernel=(1,), pads=(0, 0), strides=(2,))
    assert wide.sizing() != one.sizing() and wide.sizing([7]) != one.sizing([7])
    assert wide.sizing([6]) == one.sizing([6])
    x = RNG.standard_normal((2, 6))
    np.testing.assert_allclose(convolve(x, merge([wide, one])), convolve(x, wide) + convolve(x, one))


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_strides(stride: int) -> None:
    assert_sum(branch(strides=(stride,)), branch(kernel=(1,), pads=(0, 0), strides=(stride,)))


def test_groups_become_blocks() -> None:
    grouped = branch(4, 4, group=2)
    plain = regroup(grouped, 1)
    x = RNG.standard_normal((4, 6))
    np.testing.assert_allclose(convolve(x, plain), convolve(x, grouped))
    assert_sum(grouped, branch(4, 4, group=4, kernel=(1,), pads=(0, 0)))
    assert_sum(branch(8, 4, group=4), branch(8, 4, group=2))
    assert merge([branch(6, 6, group=6), branch(6, 6, group=4 // 2), branch(6, 6, group=3)]).group == 1


def test_one_output_broadcasts() -> None:
    one = branch(1)
    assert widen(one, 4).kernel.shape == (4, 2, 3)
    assert_sum(branch(4), one)
    assert_sum(branch(4, 1), pointwise(np.array([2.0]), np.array([1.0]), 1))


@pytest.mark.parametrize(
    ("mode", "stride", "size", "pads"),
    [
        ("SAME_UPPER", 1, None, (1, 2)),
        ("SAME_LOWER", 1, None, (2, 1)),
        ("SAME_UPPER", 2, 7, (1, 2)),
        ("SAME_LOWER", 2, 8, (1, 1)),
        ("SAME_UPPER", 3, 9, (0, 1)),
        ("SAME_UPPER", 5, 5, (0, 0)),
        ("VALID", 2, None, (0, 0)),
        ("NOTSET", 2, None, (9, 9)),
    ],
)
def test_auto_pad_written_out(mode: str, stride: int, size: int | None, pads: tuple[int, int]) -> None:
    found = explicit_pads(branch(kernel=(4,), pads=(9, 9), strides=(stride,)), mode, None if size is None else [size])
    assert found.auto_pad == "NOTSET" and found.pads == pads


def test_auto_pad_of_an_unknown_size_stays() -> None:
    found = explicit_pads(branch(strides=(2,)), "SAME_UPPER", [None])
    assert found.auto_pad == "SAME_UPPER"
    assert "pads" not in found.attributes() and found.attributes()["auto_pad"] == "SAME_UPPER"
    both = merge([found, found])
    assert both.auto_pad == "SAME_UPPER"
    np.testing.assert_allclose(both.kernel, 2 * found.kernel)


def test_the_cheapest_choice() -> None:
    row, column = branch(kernel=(1, 3), pads=(0, 1, 0, 1)), branch(kernel=(3, 1), pads=(1, 0, 1, 0))
    square, one = branch(kernel=(3, 3), pads=(1,) * 4), branch(kernel=(1, 1), pads=(0,) * 4)
    bare = pointwise(np.ones(2), np.zeros(2), 2)
    assert cheapest([square, row, column]) == [0, 1, 2]
    assert len(cheapest([row, column])) < 2
    assert sorted(cheapest([row, column, one, bare])) == [0, 2, 3]
    assert cheapest([row, column, row, column]) == [0, 1, 2, 3]
    assert len(cheapest([branch(8, 8, group=8), branch(8, 8, kernel=(1,), pads=(0, 0))])) < 2
