"""Sums of transposed convolutions on one tensor."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surgeon_passes.patterns.transposed_branches import merge_transposed_branches

from . import harness
from .covering import declines, property_of
from .harness import Builder, apply, assert_equal, assert_equal_to_rounding, constants, run
from .test_reparam import total

SIZES = ({"N": 2, "H": 5, "W": 3, "D": 4}, {"N": 1, "H": 2, "W": 6, "D": 3})
DIMS = ("H", "W", "D")


def merged(model: onnx.ModelProto, tolerance: float | None = None, **left: int) -> onnx.ModelProto:
    result = apply(merge_transposed_branches, model)
    assert result.ops == left, result.reasons
    assert_equal(model, result.model, SIZES, tolerance)
    return result.model


assert_stays = partial(harness.assert_stays, merge_transposed_branches)


def deconv(b: Builder, x: str, kernel: list[int], bias: bool = False, group: int = 1, **attrs: Any) -> str:
    weight = b.random(4, 4 // group, *kernel)
    return str(b.node("ConvTranspose", x, weight, *([b.random(4)] if bias else []), group=group, **attrs))


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("group", [1, 2, 4])
def test_two_sizes(rank: int, group: int) -> None:
    b = Builder()
    x = b.input("x", ["N", 4, *DIMS[:rank]])
    large = deconv(b, x, [4] * rank, True, group, strides=[2] * rank, pads=[1] * 2 * rank)
    small = deconv(b, x, [2] * rank, False, group, strides=[2] * rank)
    merged(b.model(total(b, large, small)), ConvTranspose=1)


def test_values_by_output_padding() -> None:
    b = Builder()
    x = b.input("x", ["N", 1, "H"])
    first = b.node("ConvTranspose", x, b.constant([[[1.0, 2.0, 3.0]]]), strides=[2], pads=[1, 1], output_padding=[1])
    second = b.node("ConvTranspose", x, b.constant([[[10.0, 20.0]]]), strides=[2])
    held = constants(merged(b.model(total(b, first, second)), ConvTranspose=1))
    np.testing.assert_array_equal(next(iter(held.values())), [[[1, 12, 23]]])


def test_three_of_which_one_is_larger_than_its_taps() -> None:
    b = Builder()
    x = b.input("x", ["N", 4, "H"])
    branches = [
        deconv(b, x, [3], strides=[3]),
        deconv(b, x, [1], True, strides=[3], output_padding=[2]),
        deconv(b, x, [5], strides=[3], pads=[1, 1]),
    ]
    merged(b.model(b.node("Sum", *branches)), ConvTranspose=1)


def test_what_cannot_be_merged_is_added_again() -> None:
    b = Builder()
    x = b.input("x", [1, 4, 5])
    branches = [deconv(b, x, [2], strides=[2]), deconv(b, x, [1], pads=[-0, 0]), deconv(b, x, [2], strides=[2])]
    model = b.model(total(b, branches[0], branches[2], b.node("Resize", branches[1], "", "", b.constant([1, 4, 10]))))
    merged(model, ConvTranspose=2, Resize=1, Add=1)


@declines("merge_transposed_branches")
@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ({"strides": [2], "kernel": [6]}, "strides, output sizes, groups or channels differ"),
        ({"output_shape": [6]}, "its output size is given, not its pads"),
        ({"auto_pad": "SAME_UPPER"}, "its output size is given, not its pads"),
        ({"group": 2}, "strides, output sizes, groups or channels differ"),
    ],
)
def test_other_forms_stay(form: dict[str, Any], reason: str) -> None:
    b = Builder()
    size = 1 if "strides" in form else 6
    x = b.input("x", [1, 4, size])
    kernel = form.pop("kernel", [1])
    group = form.pop("group", 1)
    other = deconv(b, x, kernel, group=group, **form)
    model = b.model(total(b, deconv(b, x, [6 if size == 1 else 1]), other))
    assert_stays(model, reason)


@declines("merge_transposed_branches")
def test_kernels_side_by_side_stay() -> None:
    b = Builder()
    x = b.input("x", ["N", 4, "H", "W"])
    crossed = [deconv(b, x, [1, 3], pads=[0, 1, 0, 1]), deconv(b, x, [3, 1], pads=[1, 0, 1, 0])]
    assert_stays(b.model(total(b, *crossed)), "merged they would cost 1.5x (96 to 144 weights)")


@declines("merge_transposed_branches")
def test_a_weight_that_is_not_constant_stays() -> None:
    b = Builder()
    x = b.input("x", ["N", 4, "H"])
    other = b.node("ConvTranspose", x, b.input("w", [4, 4, 1]))
    assert_stays(b.model(total(b, deconv(b, x, [1]), other)), "convtranspose0: 'w' is not constant")


def by_definition(model: onnx.ModelProto, feeds: Any) -> dict[str, np.ndarray]:
    """A sum of ConvTransposes, tap by tap: ONNX Runtime has none in double."""
    held = {**feeds, **constants(model)}
    for node in model.graph.node:
        operands = [held[name] for name in node.input]
        if node.op_type == "Add":
            held[node.output[0]] = operands[0] + operands[1]
            continue
        attrs = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        held[node.output[0]] = _deconvolve(*operands, **attrs)
    return {o.name: held[o.name] for o in model.graph.output}


def _deconvolve(x: np.ndarray, w: np.ndarray, b: Any = 0.0, **attrs: Any) -> np.ndarray:
    rank, group = w.ndim - 2, attrs.get("group", 1)
    pads, strides, dilations = attrs["pads"], attrs["strides"], attrs["dilations"]
    full = [
        s * (n - 1) + d * (k - 1) + 1 for n, k, s, d in zip(x.shape[2:], w.shape[2:], strides, dilations, strict=True)
    ]
    padded = [n + o for n, o in zip(full, attrs["output_padding"], strict=True)]
    rows = x.shape[1] // group
    y = np.zeros((x.shape[0], w.shape[1] * group, *padded))
    for tap in np.ndindex(*w.shape[2:]):
        places = [
            slice(t * d, t * d + s * (n - 1) + 1, s)
            for t, d, s, n in zip(tap, dilations, strides, x.shape[2:], strict=True)
        ]
        for g in range(group):
            part = np.tensordot(
                w[(slice(g * rows, (g + 1) * rows), slice(None), *tap)], x[:, g * rows : (g + 1) * rows], (0, 1)
            )
            y[(slice(None), slice(g * w.shape[1], (g + 1) * w.shape[1]), *places)] += np.moveaxis(part, 0, 1)
    cut = tuple(slice(pads[a], padded[a] - pads[rank + a]) for a in range(rank))
    return y[(slice(None), slice(None), *cut)] + np.reshape(b, (1, -1, *[1] * rank))


@property_of("merge_transposed_branches")
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([np.float32, np.float16, np.float64]), st.booleans())
def test_any_branches(seed: int, dtype: Any, alike: bool) -> None:
    rng = np.random.default_rng(seed)
    b = Builder(dtype, seed=seed)
    rank = int(rng.integers(1, 3))
    x = b.input("x", ["N", 4, *DIMS[:rank]])
    strides = rng.integers(1, 4, rank).tolist()
    extents = rng.integers(1, 4, rank).tolist()
    group = int(rng.choice([1, 2]))
    branches = []
    for _ in range(int(rng.integers(2, 4))):
        kernel, dilations = rng.integers(1, 4, rank), rng.integers(1, 3, rank)
        begins, ends, extra = [], [], []
        for k, d, s, extent in zip(kernel, dilations, strides, extents, strict=True):
            surplus = int(d * (k - 1) + 1 - extent)
            more = min(max(-surplus, 0), s - 1)
            begin = int(rng.integers(0, max(surplus, 0) + 1))
            begins.append(begin)
            ends.append(max(surplus, 0) - begin)
            extra.append(more)
        form = {"strides": strides, "dilations": dilations.tolist(), "pads": begins + ends, "output_padding": extra}
        branches.append((kernel.tolist(), form))
    if alike:
        branches = branches[:1] * len(branches)
    reaches = {
        tuple(
            d * (k - 1) + 1 + o - p - q
            for k, d, o, p, q in zip(
                kernel, form["dilations"], form["output_padding"], form["pads"][:rank], form["pads"][rank:], strict=True
            )
        )
        for kernel, form in branches
    }
    if len(reaches) > 1:
        return  # they could not be added
    made = [deconv(b, x, kernel, bool(rng.integers(2)), group, **form) for kernel, form in branches]
    model = b.model(total(b, *made))
    result = apply(merge_transposed_branches, model)
    assert not alike or result.ops == {"ConvTranspose": 1}, result.reasons
    assert_equal_to_rounding(model, result.model, SIZES[:1], by_definition if dtype is np.float64 else run)


def test_empty_weights_stay() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, 5])
    model = b.model(
        total(b, b.node("ConvTranspose", x, b.random(2, 0, 3)), b.node("ConvTranspose", x, b.random(2, 0, 3)))
    )
    assert_stays(model, "holds no elements")
