"""What counts as a branch beside a convolution: sequences, pools, scales, and what is taken away."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surgeon_passes.patterns.batch_norm import fold_batch_norm_into_conv
from surgeon_passes.patterns.reparam import merge_branch_difference, merge_parallel_branches

from . import harness
from .covering import declines, property_of
from .harness import Builder, apply, assert_equal, assert_equal_to_rounding, constants, reference, run
from .test_reparam import DIMS, SIZES, attrs_of, total

RULES = [fold_batch_norm_into_conv, merge_parallel_branches, merge_branch_difference]


def merged(model: onnx.ModelProto, tolerance: float | None = None, **left: int) -> onnx.ModelProto:
    result = apply(RULES, model)
    assert result.ops == left, result.reasons
    assert_equal(model, result.model, SIZES, tolerance)
    return result.model


assert_stays = partial(harness.assert_stays, [merge_parallel_branches, merge_branch_difference])


def pool(b: Builder, x: str, kernel: list[int], **attrs: Any) -> str:
    return str(b.node("AveragePool", x, kernel_shape=kernel, **attrs))


# --- blocks of the literature --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("stride", [1, 2])
def test_diverse_branch_block(rank: int, group: int, stride: int) -> None:
    """kxk + 1x1 + 1x1-kxk + 1x1-average, the inner ones padded with what the first 1x1 gives outside the input."""
    b = Builder()
    x = b.input("x", ["N", 4, *DIMS[:rank]])
    ones, three, strides, pads = [1] * rank, [3] * rank, [stride] * rank, [1] * 2 * rank
    branches = [
        b.batch_norm(b.conv(x, 4, 6, three, group=group, pads=pads, strides=strides), 6),
        b.batch_norm(b.conv(x, 4, 6, ones, group=group, strides=strides), 6),
        b.batch_norm(
            pool(b, b.batch_norm(b.conv(x, 4, 6, ones, group=group, pads=pads), 6), three, strides=strides), 6
        ),
    ]
    inner = b.batch_norm(b.conv(x, 4, 4, ones, group=group, pads=pads), 4)
    branches.append(b.batch_norm(b.conv(inner, 4, 6, three, group=group, strides=strides), 6))
    found = merged(b.model(total(b, *branches)), 1e-5, Conv=1)
    assert attrs_of(found)["group"] == group and attrs_of(found)["strides"] == strides


def test_edge_oriented_block() -> None:
    """ECB: 3x3, 1x1 then 3x3, and 1x1 then fixed depthwise Sobel and Laplacian filters, and the input."""
    b = Builder()
    x = b.input("x", ["N", 4, "H", "W"])
    branches = [b.conv(x, 4, 4, [3, 3], pads=[1] * 4, bias=True)]
    for filters in ([[1, 0, -1], [2, 0, -2], [1, 0, -1]], [[0, 1, 0], [1, -4, 1], [0, 1, 0]]):
        inner = b.conv(x, 4, 4, [1, 1], bias=True, pads=[1] * 4)
        mask = np.broadcast_to(np.array(filters, np.float32), (4, 1, 3, 3)) * b.rng.standard_normal((4, 1, 1, 1))
        branches.append(b.node("Conv", inner, b.constant(mask), b.random(4), group=4))
    wide = b.conv(x, 4, 8, [1, 1], bias=True, pads=[1] * 4)
    branches += [b.conv(wide, 8, 4, [3, 3], bias=True), x]
    merged(b.model(total(b, *branches)), 1e-5, Conv=1)


def test_three_in_a_row() -> None:
    """RRRB: 1x1, 3x3, 1x1 beside the input."""
    b = Builder()
    x = b.input("x", ["N", 2, "H", "W"])
    wide = b.conv(b.conv(x, 2, 8, [1, 1], pads=[1] * 4), 8, 8, [3, 3], bias=True)
    merged(b.model(total(b, b.conv(wide, 8, 2, [1, 1]), x)), 1e-5, Conv=1)


def test_dilated_kernels_in_a_large_one() -> None:
    """UniRepLKNet: 13x13 + 5x5 + 7x7 with step 2 + 3x3 with step 4, all depthwise and normalised."""
    b = Builder()
    x = b.input("x", ["N", 3, "H", "W"])
    branches = []
    for k, r in ((13, 1), (5, 1), (7, 2), (3, 4)):
        pads = [r * (k // 2)] * 4
        branches.append(b.batch_norm(b.conv(x, 3, 3, [k, k], group=3, pads=pads, dilations=[r, r]), 3))
    found = merged(b.model(total(b, *branches)), Conv=1)
    assert attrs_of(found)["kernel_shape"] == [13, 13]


def test_dilated_kernels_alone_stay() -> None:
    b = Builder()
    x = b.input("x", ["N", 3, "H", "W"])
    branches = [b.conv(x, 3, 3, [3, 3], group=3, pads=[r] * 4, dilations=[r, r]) for r in (1, 2)]
    assert_stays(b.model(total(b, *branches)), "merged they would cost 1.39x (54 to 75 weights)")


def test_vision_mixer() -> None:
    """FastViT: x + gamma·(mixer(x) - norm(x)), without the scale."""
    b = Builder()
    x = b.input("x", ["N", 4, "H", "W"])
    mixer = total(
        b, b.conv(x, 4, 4, [3, 3], group=4, pads=[1] * 4), b.conv(x, 4, 4, [1, 1], group=4), b.batch_norm(x, 4)
    )
    merged(b.model(b.node("Add", x, b.node("Sub", mixer, b.batch_norm(x, 4)))), Conv=1)


# --- pools and scales ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["pool", "bn of pool", "conv of pool", "scale of pool"])
def test_pools(form: str) -> None:
    b = Builder()
    x = b.input("x", ["N", 4, "H", "W"])
    other = pool(b, x, [3, 3], pads=[1] * 4, count_include_pad=1)
    if form == "bn of pool":
        other = b.batch_norm(other, 4)
    if form == "conv of pool":
        other = b.conv(other, 4, 4, [1, 1], bias=True)
    if form == "scale of pool":
        other = b.node("Mul", b.random(4, 1, 1), other)
    found = merged(b.model(total(b, b.conv(x, 4, 4, [3, 3], pads=[1] * 4), other)), Conv=1)
    assert attrs_of(found)["kernel_shape"] == [3, 3]


def test_a_pool_of_values() -> None:
    b = Builder()
    x = b.input("x", ["N", 1, "H"])
    other = pool(b, x, [2], pads=[1, 0], count_include_pad=1)
    held = constants(
        merged(b.model(total(b, b.node("Conv", x, b.constant([[[1.0, 2.0]]]), pads=[1, 0]), other)), Conv=1)
    )
    np.testing.assert_array_equal(next(iter(held.values())), [[[1.5, 2.5]]])


def test_a_pool_without_its_border_stays() -> None:
    b = Builder()
    x = b.input("x", ["N", 4, "H"])
    model = b.model(total(b, b.conv(x, 4, 4, [3], pads=[1, 1]), pool(b, x, [3], pads=[1, 1])))
    assert_stays(model, "averages fewer elements at the border (count_include_pad = 0)")


def test_a_dense_kernel_for_a_pool_stays() -> None:
    b = Builder()
    x = b.input("x", ["N", 4, "H"])
    model = b.model(total(b, b.conv(x, 4, 4, [1]), pool(b, x, [3], pads=[1, 1], count_include_pad=1)))
    assert_stays(model, "merged they would cost 3x (16 to 48 weights)")


@pytest.mark.parametrize(("size", "merges"), [(7, True), (8, False), ("H", False)])
def test_a_pool_that_rounds_up(size: Any, merges: bool) -> None:
    b = Builder()
    x = b.input("x", ["N", 2, size])
    conv = b.conv(x, 2, 2, [3], strides=[2])
    model = b.model(total(b, conv, pool(b, x, [3], strides=[2], ceil_mode=1)) if merges or size == "H" else conv)
    if merges:
        merged(model, Conv=1)
    elif size == "H":
        assert_stays(model, "may reach over the border (ceil_mode = 1)")


def test_pools_alone_stay() -> None:
    """PoolFormer."""
    b = Builder()
    x = b.input("x", ["N", 4, "H"])
    averaged = pool(b, x, [3], pads=[1, 1], count_include_pad=1)
    assert_stays(b.model(b.node("Sub", averaged, x)))


def test_a_sum_of_pools_stays() -> None:
    b = Builder()
    x = b.input("x", ["N", 4, "H"])
    averaged = pool(b, x, [3], pads=[1, 1], count_include_pad=1)
    assert_stays(b.model(total(b, averaged, x)), "no branch is a Conv that can be merged")


@pytest.mark.parametrize("shape", [(), (1, 1), (4, 1), (1, 4, 1)])
@pytest.mark.parametrize("op", ["Mul", "Div"])
def test_scaled_input(shape: tuple[int, ...], op: str) -> None:
    b = Builder()
    x = b.input("x", ["N", 4, "H"])
    factor = b.random(*shape, low=0.5)
    merged(b.model(total(b, b.conv(x, 4, 4, [3], pads=[1, 1]), b.node(op, x, factor))), Conv=1)


def test_a_scale_before_a_convolution() -> None:
    b = Builder()
    x = b.input("x", ["N", 4, "H"])
    scaled = b.node("Mul", b.random(4, 1), x)
    merged(b.model(total(b, b.conv(scaled, 4, 4, [3], pads=[1, 1]), b.conv(x, 4, 4, [1]))), Conv=1)


def test_a_batch_norm_before_a_padded_convolution_stays() -> None:
    b = Builder()
    x = b.input("x", ["N", 4, "H"])
    model = b.model(total(b, b.conv(b.batch_norm(x, 4), 4, 4, [3], pads=[1, 1]), b.conv(x, 4, 4, [1])))
    assert_stays(model, "its padding puts zeros where the convolution before it would give its bias")


@pytest.mark.parametrize(("shape", "reason"), [((5,), "is not one number a channel"), ((2, 1, 1), "is not one number")])
def test_a_scale_along_another_axis_stays(shape: tuple[int, ...], reason: str) -> None:
    b = Builder()
    x = b.input("x", [2, 1, 5] if len(shape) == 3 else [2, 4, 5])
    channels = 1 if len(shape) == 3 else 4
    model = b.model(total(b, b.conv(x, channels, channels, [1]), b.node("Mul", x, b.random(*shape))))
    assert_stays(model, reason)


def test_a_division_by_zero_stays() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H"])
    model = b.model(total(b, b.conv(x, 2, 2, [1]), b.node("Div", x, b.constant([[1.0], [0.0]]))))
    assert_stays(model, "divides by zero")


# --- sequences that cannot take part -------------------------------------------------------------------------------------


def test_a_padded_sequence_is_added_again() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H"])
    inner = b.conv(b.conv(x, 2, 2, [1], bias=True), 2, 2, [3], pads=[1, 1])
    branches = [b.conv(x, 2, 2, [3], pads=[1, 1]), b.conv(x, 2, 2, [1]), inner]
    merged(b.model(total(b, *branches)), Conv=3, Add=1)


def test_a_sequence_without_bias_may_pad() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H"])
    inner = b.conv(b.conv(x, 2, 2, [1]), 2, 2, [3], pads=[1, 1], bias=True)
    merged(b.model(total(b, inner, b.conv(x, 2, 2, [3], pads=[1, 1]))), Conv=1)


def test_a_sequence_that_would_be_dense_is_added_again() -> None:
    b = Builder()
    x = b.input("x", ["N", 64, "H"])
    narrow = b.conv(b.conv(x, 64, 2, [1]), 2, 64, [1])
    depthwise = [b.conv(x, 64, 64, [3], group=64, pads=[1, 1]) for _ in range(2)]
    result = apply(merge_parallel_branches, b.model(total(b, narrow, *depthwise)))
    assert result.ops == {"Conv": 3, "Add": 1}


def test_a_sequence_that_would_be_dense_says_so() -> None:
    b = Builder()
    x = b.input("x", ["N", 64, "H"])
    narrow = b.conv(b.conv(x, 64, 2, [1]), 2, 64, [1])
    model = b.model(total(b, narrow, b.conv(x, 64, 64, [3], group=64, pads=[1, 1])))
    assert_stays(model, "as one convolution it would hold 4096 weights, all branches hold 448")


def test_an_inner_tensor_that_is_read_elsewhere_stays() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H"])
    inner = b.conv(x, 2, 2, [1])
    model = b.model(total(b, b.conv(inner, 2, 2, [1]), b.conv(x, 2, 2, [1])), b.node("Relu", inner))
    assert_stays(model)


# --- differences ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", ["bare", "bn", "conv", "pool", "scale"])
@pytest.mark.parametrize("turned", [False, True])
def test_differences(other: str, turned: bool) -> None:
    b = Builder()
    x = b.input("x", ["N", 4, "H"])
    taken = {
        "bare": lambda: x,
        "bn": lambda: b.batch_norm(x, 4),
        "conv": lambda: b.conv(x, 4, 4, [1], bias=True),
        "pool": lambda: pool(b, x, [3], pads=[1, 1], count_include_pad=1),
        "scale": lambda: b.node("Div", x, b.constant(4.0)),
    }[other]()
    operands = [b.conv(x, 4, 4, [3], pads=[1, 1]), taken]
    merged(b.model(b.node("Sub", *(operands[::-1] if turned else operands))), Conv=1)


@declines("merge_branch_difference")
@pytest.mark.parametrize(
    ("kernel", "attrs", "reason"),
    [
        ([3], {"pads": [0, 0]}, "output sizes differ"),
        ([1], {"strides": [2]}, "strides [1] and [2]"),
        ([5], {"pads": [2, 2]}, "merged they would cost"),
    ],
)
def test_differences_that_stay(kernel: list[int], attrs: dict[str, Any], reason: str) -> None:
    b = Builder()
    x = b.input("x", [1, 4, 1 if "strides" in attrs else 3])
    first = b.conv(x, 4, 4, [1]) if kernel != [5] else b.conv(x, 4, 4, [1], group=1)
    second = b.conv(x, 4, 4, kernel, group=4 if kernel == [5] else 1, **attrs)
    assert_stays(b.model(b.node("Sub", first, second)), reason)


@declines("merge_branch_difference")
def test_a_difference_of_other_channels_stays() -> None:
    b = Builder()
    x = b.input("x", ["N", 4, "H"])
    assert_stays(b.model(b.node("Sub", b.conv(x, 4, 4, [1]), b.conv(x, 4, 1, [1]))), "channels 1 and 4")


@declines("merge_branch_difference")
def test_a_difference_of_what_a_constant_gives_stays() -> None:
    b = Builder()
    x = b.random(1, 4, 3)
    model = b.model(b.node("Sub", b.conv(x, 4, 4, [1]), b.node("Mul", x, b.random(1))), rank=3)
    assert_stays(model, "is constant")


@property_of("merge_branch_difference")
@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["bare", "bn", "conv", "pool", "pool bn", "Mul", "Div"]),
    st.booleans(), st.integers(1, 2), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4]), st.integers(1, 2),
    st.booleans(), st.sampled_from([np.float32, np.float16, np.float64]), st.integers(0, 99),
)  # fmt: skip
def test_any_difference(
    other: str, turned: bool, rank: int, group: int, finer: int, stride: int, whole: bool, dtype: Any, seed: int
) -> None:
    """What is taken away lies within the Conv's taps and its groups: as one they cost no more, unless it mixes more."""
    b = Builder(dtype, seed=seed)
    x = b.input("x", ["N", 4, *DIMS[:rank]])
    ones, three, pads = [1] * rank, [3] * rank, [1] * 2 * rank
    strides = [stride] * rank if other in ("conv", "pool", "pool bn") else ones
    first = b.conv(x, 4, 4, three, bias=whole, pads=pads, strides=strides, group=group)
    counted = {"pads": pads, "strides": strides, "count_include_pad": 1}
    second = {
        "bare": lambda: x,
        "bn": lambda: b.batch_norm(x, 4),
        "conv": lambda: b.conv(x, 4, 4, ones, bias=not whole, strides=strides, group=finer),
        "pool": lambda: pool(b, x, three, **counted),
        "pool bn": lambda: b.batch_norm(pool(b, x, three, **counted), 4),
        "Mul": lambda: b.node("Mul", x, b.random(*([] if whole else [4, *ones]))),
        "Div": lambda: b.node("Div", x, b.random(*([] if whole else [4, *ones]), low=0.5)),
    }[other]()
    model = b.model(b.node("Sub", *((second, first) if turned else (first, second))))
    result = apply(merge_branch_difference, model)
    assert result.ops == {"Conv": 1} or (other == "conv" and finer < group), result.reasons
    assert_equal_to_rounding(model, result.model, SIZES[:1], reference if dtype is np.float64 else run)


# --- anything ------------------------------------------------------------------------------------------------------------


@property_of("merge_parallel_branches")
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([np.float32, np.float16, np.float64]))
def test_any_kinds_of_branch(seed: int, dtype: Any) -> None:
    rng = np.random.default_rng(seed)
    b = Builder(dtype, seed=seed)
    rank = int(rng.integers(1, 3))
    x = b.input("x", ["N", 4, *DIMS[:rank]])
    ones, three, pads = [1] * rank, [3] * rank, [1] * 2 * rank

    def inner(kind: int) -> str:
        y = b.conv(x, 4, 4, ones, bias=bool(rng.integers(2)), pads=pads, group=int(rng.choice([1, 2])))
        return b.conv(y, 4, 4, three, group=int(rng.choice([1, 4]))) if kind else pool(b, y, three)

    kinds = [
        lambda: inner(0),
        lambda: inner(1),
        lambda: b.batch_norm(inner(0), 4),
        lambda: pool(b, x, three, pads=pads, count_include_pad=int(rng.integers(2))),
        lambda: b.batch_norm(x, 4),
        lambda: b.node("Mul", x, b.random(4, *ones)),
        lambda: b.conv(b.conv(x, 4, 4, ones), 4, 4, three, pads=pads),
        lambda: x,
    ]
    branches = [b.conv(x, 4, 4, three, pads=pads), *(kinds[i]() for i in rng.integers(0, len(kinds), 3))]
    model = b.model(total(b, *branches[:-1]))
    if rng.integers(2):
        model = b.model(b.node("Sub", total(b, *branches[:-1]), branches[-1]))
    result = apply(RULES, model)
    assert_equal_to_rounding(model, result.model, SIZES[:1], reference if dtype is np.float64 else run)


@pytest.mark.parametrize("opset", [10, 17, 19])
def test_a_valid_pool_that_rounds_up_stays(opset: int) -> None:
    """ONNX Runtime rounds up for VALID, too."""
    b = Builder(opset=opset)
    x = b.input("x", ["N", 2, 8])
    p = pool(b, x, [3], strides=[2], ceil_mode=1, auto_pad="VALID")
    model = b.model(total(b, b.conv(x, 2, 2, [3], strides=[2], pads=[0, 1]), p))
    assert_stays(model, "may reach over the border (ceil_mode = 1)")


@pytest.mark.parametrize("auto_pad", ["VALID", "SAME_UPPER"])
def test_a_pool_of_even_size_that_rounds_up_merges(auto_pad: str) -> None:
    b = Builder()
    x = b.input("x", ["N", 2, 7])
    more = {"count_include_pad": 1} if auto_pad != "VALID" else {}
    p = pool(b, x, [3], strides=[2], ceil_mode=1, auto_pad=auto_pad, **more)
    merged(b.model(total(b, b.conv(x, 2, 2, [3], strides=[2], auto_pad=auto_pad), p)), Conv=1)


def test_empty_weights_stay() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, 8])
    assert_stays(b.model(total(b, b.conv(x, 2, 0, [3]), b.conv(x, 2, 0, [3]))), "holds no elements")
