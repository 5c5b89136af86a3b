"""Parallel branches into one convolution."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surgeon_passes.patterns.batch_norm import fold_batch_norm_into_conv
from surgeon_passes.patterns.reparam import merge_parallel_branches

from . import harness
from .covering import declines, property_of
from .harness import Builder, apply, assert_equal, assert_equal_to_rounding, constants, reference, run

SIZES = ({"N": 2, "H": 7, "W": 9, "D": 6}, {"N": 1, "H": 12, "W": 8, "D": 5}, {"N": 3, "H": 6, "W": 6, "D": 9})
DIMS = ("H", "W", "D")


def merge(model: onnx.ModelProto, tolerance: float | None = None, **left: int) -> onnx.ModelProto:
    result = apply([fold_batch_norm_into_conv, merge_parallel_branches], model)
    assert result.ops == left
    assert_equal(model, result.model, SIZES, tolerance)
    return result.model


assert_stays = partial(harness.assert_stays, merge_parallel_branches)


def total(b: Builder, *branches: str) -> str:
    result = branches[0]
    for other in branches[1:]:
        result = b.node("Add", result, other)
    return result


def attrs_of(model: onnx.ModelProto, number: int = 0) -> dict[str, Any]:
    conv = [n for n in model.graph.node if n.op_type == "Conv"][number]
    return {a.name: onnx.helper.get_attribute_value(a) for a in conv.attribute}


# --- blocks of the literature --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize("identity", ["bn", "bare", None])
@pytest.mark.parametrize("dilation", [1, 2])
def test_repvgg(rank: int, group: int, identity: str | None, dilation: int) -> None:
    b = Builder()
    x = b.input("x", ["N", 4, *DIMS[:rank]])
    pads, dilations = [dilation] * 2 * rank, [dilation] * rank
    three = b.batch_norm(b.conv(x, 4, 4, [3] * rank, group=group, pads=pads, dilations=dilations), 4)
    one = b.batch_norm(b.conv(x, 4, 4, [1] * rank, group=group), 4)
    extra = {"bn": lambda: [b.batch_norm(x, 4)], "bare": lambda: [x]}.get(identity or "", list)()
    found = merge(b.model(total(b, three, one, *extra)), Conv=1)
    assert attrs_of(found)["dilations"] == dilations and attrs_of(found)["pads"] == pads


@pytest.mark.parametrize("group", [1, 2])
def test_repvgg_with_stride(group: int) -> None:
    b = Builder()
    x = b.input("x", ["N", 4, "H", "W"])
    three = b.conv(x, 4, 6, [3, 3], group=group, pads=[1] * 4, strides=[2, 2], bias=True)
    one = b.conv(x, 4, 6, [1, 1], group=group, strides=[2, 2])
    merge(b.model(total(b, one, three)), Conv=1)


def test_acnet() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H", "W"])
    square = b.conv(x, 2, 3, [3, 3], pads=[1, 1, 1, 1])
    row = b.conv(x, 2, 3, [1, 3], pads=[0, 1, 0, 1])
    column = b.conv(x, 2, 3, [3, 1], pads=[1, 0, 1, 0])
    merge(b.model(b.node("Sum", row, square, column)), Conv=1)


def test_mobileone() -> None:
    b = Builder()
    x = b.input("x", ["N", 3, "H", "W"])
    branches = [b.batch_norm(b.conv(x, 3, 3, [k, k], group=3, pads=[k // 2] * 4), 3) for k in (3, 3, 3, 3, 1)]
    merge(b.model(total(b, b.batch_norm(x, 3), *branches)), Conv=1)


def test_large_kernel_beside_a_small_one() -> None:
    b = Builder()
    x = b.input("x", ["N", 4, "H"])
    branches = [b.conv(x, 4, 4, [k], group=4, pads=[k // 2, k // 2]) for k in (7, 5)]
    merge(b.model(total(b, *branches)), Conv=1)


def test_half() -> None:
    b = Builder(np.float16)
    x = b.input("x", ["N", 4, "H", "W"])
    model = b.model(total(b, b.conv(x, 4, 4, [3, 3], pads=[1] * 4, bias=True), b.conv(x, 4, 4, [1, 1]), x))
    found = merge(model, 1e-2, Conv=1)
    assert {a.dtype for a in constants(found).values()} == {np.dtype(np.float16)}


@pytest.mark.parametrize("opset", [7, 9, 13, 15, 21])
def test_every_opset(opset: int) -> None:
    b = Builder(opset=opset)
    x = b.input("x", ["N", 4, "H", "W"])
    merge(b.model(total(b, b.conv(x, 4, 4, [3, 3], pads=[1] * 4), b.batch_norm(x, 4), x)), Conv=1)


# --- values --------------------------------------------------------------------------------------------------------------


def test_values() -> None:
    b = Builder()
    three, one, bias = b.rng.standard_normal((2, 2, 3)), b.rng.standard_normal((2, 2, 1)), b.rng.standard_normal(2)
    gamma, beta, mean, var = b.rng.uniform(0.5, 1.5, (4, 2))
    x = b.input("x", ["N", 2, "H"])
    c3 = b.node("Conv", x, b.constant(three), pads=[1, 1])
    c1 = b.node("Conv", x, b.constant(one), b.constant(bias))
    bn = b.node("BatchNormalization", x, *map(b.constant, (gamma, beta, mean, var)))
    held = constants(merge(b.model(total(b, c1, bn, c3, x)), Conv=1))
    s = gamma / np.sqrt(var + 1e-5)
    expected = three.copy()
    expected[:, :, 1] += one[:, :, 0] + np.diag(s) + np.eye(2)
    kernel, total_bias = sorted(held.values(), key=lambda a: -a.ndim)
    np.testing.assert_allclose(kernel, expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(total_bias, bias + beta - s * mean, rtol=1e-5, atol=1e-6)


def test_no_bias_where_there_was_none() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H"])
    found = merge(b.model(total(b, b.conv(x, 2, 2, [3], pads=[1, 1]), x)), Conv=1)
    assert len(found.graph.node[0].input) == 2


def test_the_bare_input_may_come_twice() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H"])
    w = np.ones((2, 2, 1))
    held = constants(merge(b.model(total(b, x, b.node("Conv", x, b.constant(w)), x)), Conv=1))
    np.testing.assert_array_equal(held["k0.merged"][:, :, 0], [[3, 1], [1, 3]])


@pytest.mark.parametrize(("pads", "tap"), [([0, 2], 0), ([1, 1], 1), ([2, 0], 2)])
def test_a_tap_goes_where_the_pads_say(pads: list[int], tap: int) -> None:
    b = Builder()
    x = b.input("x", ["N", 1, "H"])
    three = b.node("Conv", x, b.constant(np.zeros((1, 1, 3))), pads=pads)
    held = constants(merge(b.model(total(b, three, b.node("Conv", x, b.constant(np.ones((1, 1, 1)))))), Conv=1))
    np.testing.assert_array_equal(held["k0.merged"].ravel(), np.eye(3)[tap])


# --- auto_pad ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("kernel", [2, 3, 4, 5])
def test_same_pads_at_stride_one(mode: str, kernel: int) -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H", "W"])
    large = b.conv(x, 2, 2, [kernel, kernel], auto_pad=mode)
    found = merge(b.model(total(b, large, b.conv(x, 2, 2, [1, 1], auto_pad=mode), x)), Conv=1)
    assert "auto_pad" not in attrs_of(found)


@pytest.mark.parametrize("size", [6, 7])
@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_same_pads_of_a_known_size(mode: str, size: int) -> None:
    b = Builder()
    x = b.input("x", ["N", 2, size, size])
    branches = [b.conv(x, 2, 2, [k, k], auto_pad=mode, strides=[2, 2]) for k in (3, 1)]
    merge(b.model(total(b, *branches)), Conv=1)


def test_same_pads_of_an_unknown_size() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H"])
    branches = [b.conv(x, 2, 2, [3], auto_pad="SAME_UPPER", strides=[2]) for _ in range(2)]
    found = merge(b.model(total(b, *branches)), Conv=1)
    assert attrs_of(found)["auto_pad"] == b"SAME_UPPER"


@declines("merge_parallel_branches")
def test_same_pads_of_an_unknown_size_and_unlike_kernels_stay() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H"])
    branches = [b.conv(x, 2, 2, [k], auto_pad="SAME_UPPER", strides=[2]) for k in (3, 1)]
    assert_stays(b.model(total(b, *branches)), "output sizes differ")


def test_valid_is_no_pads() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H"])
    merge(b.model(total(b, b.conv(x, 2, 2, [3], auto_pad="VALID"), b.conv(x, 2, 2, [3]))), Conv=1)


# --- what stays ----------------------------------------------------------------------------------------------------------


@declines("merge_parallel_branches")
def test_strides_that_differ_stay() -> None:
    b = Builder()
    x = b.input("x", [1, 2, 4, 4])
    model = b.model(total(b, b.conv(x, 2, 3, [3, 3], strides=[2, 2], pads=[1] * 4), b.conv(x, 2, 3, [3, 3])))
    assert_stays(model, "strides [1, 1] and [2, 2]")


@declines("merge_parallel_branches")
def test_sizes_that_happen_to_agree_stay() -> None:
    """At H = 1 both give one element; at other sizes they would not broadcast."""
    b = Builder()
    x = b.input("x", [1, 2, 1])
    model = b.model(total(b, b.conv(x, 2, 3, [1]), b.conv(x, 2, 3, [3], pads=[2, 2], strides=[1])))
    assert_stays(model, "output sizes differ")


@declines("merge_parallel_branches")
def test_crossed_kernels_stay() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H", "W"])
    crossed = [b.conv(x, 2, 3, k, pads=p) for k, p in (([1, 3], [0, 1, 0, 1]), ([3, 1], [1, 0, 1, 0]))]
    assert_stays(b.model(total(b, *crossed)), "merged they would cost 1.5x (36 to 54 weights)")


def test_crossed_kernels_take_what_fits() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H", "W"])
    crossed = [b.conv(x, 2, 2, k, pads=p) for k, p in (([1, 3], [0, 1, 0, 1]), ([3, 1], [1, 0, 1, 0]))]
    merge(b.model(total(b, *crossed, b.conv(x, 2, 2, [1, 1]), x)), Conv=2, Add=1)


@declines("merge_parallel_branches")
def test_a_depthwise_branch_beside_a_full_one_stays() -> None:
    b = Builder()
    x = b.input("x", ["N", 8, "H"])
    model = b.model(total(b, b.conv(x, 8, 8, [3], group=8, pads=[1, 1]), b.conv(x, 8, 8, [1])))
    assert_stays(model, "merged they would cost 2.18x (88 to 192 weights)")


def test_groups_that_cost_nothing_merge() -> None:
    b = Builder()
    x = b.input("x", ["N", 4, "H"])
    merge(b.model(total(b, b.conv(x, 4, 4, [3], pads=[1, 1]), b.conv(x, 4, 4, [3], group=4, pads=[1, 1]))), Conv=1)


def test_an_activation_in_a_branch_stays() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H"])
    model = b.model(total(b, b.node("Relu", b.conv(x, 2, 2, [3], pads=[1, 1])), b.conv(x, 2, 2, [1])))
    assert_stays(model)


def test_an_activation_beside_mergeable_branches_is_added_again() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H"])
    other = b.node("Relu", b.conv(x, 2, 2, [3], pads=[1, 1]))
    merge(b.model(total(b, b.conv(x, 2, 2, [3], pads=[1, 1]), other, x)), Conv=2, Relu=1, Add=1)


def test_two_inputs_merge_apart() -> None:
    b = Builder()
    x, z = b.input("x", ["N", 2, "H"]), b.input("z", ["N", 2, "H"])
    branches = [b.conv(t, 2, 2, [k], pads=[k // 2] * 2) for k in (3, 1) for t in (x, z)]
    merge(b.model(b.node("Sum", *branches)), Conv=2, Add=1)


def test_a_branch_that_is_a_graph_output_stays() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H"])
    branches = [b.conv(x, 2, 2, [k], pads=[k // 2] * 2) for k in (3, 1, 3)]
    merge(b.model(total(b, *branches), branches[1]), Conv=2, Add=1)


def test_a_sum_that_is_read_inside_is_no_part() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H"])
    branches = [b.conv(x, 2, 2, [k], pads=[k // 2] * 2) for k in (3, 1, 3)]
    inner = total(b, *branches[:2])
    merge(b.model(total(b, inner, branches[2]), b.node("Relu", inner)), Conv=2, Add=1, Relu=1)


@declines("merge_parallel_branches")
@pytest.mark.parametrize("other", ["conv", "bare"])
@pytest.mark.parametrize("place", ["w", "b"])
def test_a_branch_that_is_not_constant_stays(place: str, other: str) -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H"])
    weight = b.input("w", [2, 2, 3]) if place == "w" else b.random(2, 2, 3)
    given = b.node("Conv", x, weight, b.input("b", [2]) if place == "b" else b.random(2), pads=[1, 1])
    model = b.model(total(b, given, b.conv(x, 2, 2, [1]) if other == "conv" else x))
    assert_stays(model, f"{given}: '{place}' is not constant")


def test_a_training_branch_is_added_again() -> None:
    b = Builder()
    x = b.input("x", [2, 2, 6])
    held = [b.random(2, low=0.5) for _ in range(4)]
    bn, *_ = b.node("BatchNormalization", x, *held, outputs=3, training_mode=1)
    both = total(b, b.conv(x, 2, 2, [3], pads=[1, 1]), bn, b.conv(x, 2, 2, [1]))
    merge(b.model(both), Conv=1, BatchNormalization=1, Add=1)


@declines("merge_parallel_branches")
def test_a_training_branch_beside_one_conv_stays() -> None:
    b = Builder()
    x = b.input("x", [2, 2, 6])
    held = [b.random(2, low=0.5) for _ in range(4)]
    bn, *_ = b.node("BatchNormalization", x, *held, outputs=3, training_mode=1)
    model = b.model(total(b, b.conv(x, 2, 2, [3], pads=[1, 1]), bn))
    assert_stays(model, f"only one can be merged; {bn}: the BatchNormalization is in training mode")


@declines("merge_parallel_branches")
def test_a_branch_without_variance_stays() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H"])
    bn = b.node("BatchNormalization", x, *(b.random(2) for _ in range(3)), b.constant([1.0, -1.0]), epsilon=0.5)
    assert_stays(b.model(total(b, b.conv(x, 2, 2, [1]), bn)), "variance + epsilon is -0.5 in channel 1")


@declines("merge_parallel_branches")
def test_batch_norms_alone_stay() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H"])
    assert_stays(b.model(total(b, b.batch_norm(x, 2), b.batch_norm(x, 2))), "no branch is a Conv")


@declines("merge_parallel_branches")
def test_an_identity_over_other_channels_stays() -> None:
    b = Builder()
    x = b.input("x", [1, 2, 6])
    assert_stays(b.model(total(b, b.conv(x, 2, 1, [3], pads=[1, 1]), x)), "merged they would cost 2x (6 to 12 weights)")


def test_an_identity_of_one_channel_broadcasts() -> None:
    b = Builder()
    x = b.input("x", ["N", 1, "H"])
    branches = b.conv(x, 1, 4, [3], pads=[1, 1]), b.batch_norm(x, 1), x
    found = merge(b.model(total(b, *branches)), Conv=1)
    assert next(a for n, a in constants(found).items() if a.ndim == 3).shape == (4, 1, 3)


@property_of("merge_parallel_branches")
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([np.float32, np.float16, np.float64]), st.booleans())
def test_any_branches(seed: int, dtype: Any, alike: bool) -> None:
    """Random geometry: equal at several sizes, whatever merges; Convs of one geometry always do."""
    rng = np.random.default_rng(seed)
    b = Builder(dtype, seed=seed)
    rank = int(rng.integers(1, 3))
    x = b.input("x", ["N", 4, *DIMS[:rank]])
    strides = [int(rng.integers(1, 3)) for _ in range(rank)]
    slack = [int(rng.integers(0, 2)) for _ in range(rank)]
    branches: list[str] = []
    kernel: list[int] = []
    form: dict[str, Any] = {}
    for _ in range(int(rng.integers(2, 5))):
        if alike and branches:
            branches.append(b.conv(x, 4, 4, kernel, bias=bool(rng.integers(2)), **form))
            continue
        sides, dilations = rng.integers(1, 4, rank), rng.integers(1, 3, rank)
        sums = [s + int(d * (k - 1)) for s, k, d in zip(slack, sides, dilations, strict=True)]
        begins = [int(rng.integers(0, t + 1)) for t in sums]
        pads = begins + [t - begin for t, begin in zip(sums, begins, strict=True)]
        form = {"strides": strides, "dilations": dilations.tolist(), "pads": pads, "group": int(rng.choice([1, 2, 4]))}
        kernel = sides.tolist()
        branches.append(b.conv(x, 4, 4, kernel, bias=bool(rng.integers(2)), **form))
    if not alike and strides == [1] * rank and slack == [0] * rank:
        branches += [x, b.batch_norm(x, 4)]
    model = b.model(total(b, *branches))
    result = apply(merge_parallel_branches, model)
    assert not alike or result.ops == {"Conv": 1}, result.reasons
    wide = dtype is np.float64
    assert_equal_to_rounding(model, result.model, SIZES[:1] if wide else SIZES, reference if wide else run)
