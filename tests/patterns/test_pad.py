"""Pad by nothing, Pad of Pad, and Pad in front of what pads by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from surgeon_passes.patterns import pad
from surgeon_passes.rules.registry import rules_of

from .covering import declines, property_of
from .harness import Builder, apply, assert_equal, operators
from .moves import after, assert_becomes, assert_stays

RULES = list(rules_of(pad))
SIZES = ({"N": 9, "H": 8, "W": 7}, {"N": 5, "H": 6, "W": 9})
DRAWN = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))


def assert_folds(model: onnx.ModelProto, tolerance: float | None = None, **left: int) -> list[int]:
    """The pads of the node behind."""
    result = apply(RULES, model)
    assert result.ops == left, result.reasons
    assert_equal(model, result.model, SIZES, tolerance)
    return [int(v) for n in result.model.graph.node for a in n.attribute if a.name == "pads" for v in a.ints]


# --- by nothing, and twice -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_pad_by_nothing(mode: str) -> None:
    b = Builder()
    assert_becomes(after(b, b.node("Pad", b.input("x", ["N", 9]), b.constant([0] * 4), mode=mode)), Neg=1)


def test_pad_by_nothing_along_axes_and_as_an_attribute() -> None:
    b = Builder(opset=18)
    assert_becomes(after(b, b.node("Pad", b.input("x", [9]), b.constant([0, 0]), "", b.constant([0]))), Neg=1)
    b = Builder(opset=9)
    assert_becomes(after(b, b.node("Pad", b.input("x", [9]), pads=[0, 0])), Neg=1)


@pytest.mark.parametrize("amounts", [[0, 1], [-1, 0]])
def test_other_pads_stay(amounts: list[int]) -> None:
    b = Builder()
    assert_stays(after(b, b.node("Pad", b.input("x", [9]), b.constant(amounts))))


@property_of("merge_pads")
@DRAWN
@given(
    first=st.lists(st.integers(0, 2), min_size=4, max_size=4),
    second=st.lists(st.integers(0, 2), min_size=4, max_size=4),
    mode=st.sampled_from(["constant", "edge"]),
    fill=st.sampled_from([None, 0.0, -0.0, 1.5, np.inf]),
    opset=st.sampled_from([9, 13, 18]),
    axes=st.sampled_from([None, [1, 0], [-1, -2]]),
)
def test_two_pads(
    first: list[int], second: list[int], mode: str, fill: float | None, opset: int, axes: list[int] | None
) -> None:
    b = Builder(opset=opset)
    x = b.input("x", ["N", 9])
    if opset < 11:
        value = {} if fill is None else {"value": fill}
        y = b.node("Pad", b.node("Pad", x, pads=first, mode=mode, **value), pads=second, mode=mode, **value)
    else:
        extra = [] if fill is None else [b.constant(fill)]
        along = [*extra, *([""] if not extra else []), b.constant(axes)] if axes and opset >= 18 else extra
        a = b.node("Pad", x, b.constant(first), *extra, mode=mode)
        y = b.node("Pad", a, b.constant(second), *along, mode=mode)
    assert_becomes(after(b, y), rules=[pad.merge_pads], Pad=1, Neg=1)


@declines("merge_pads")
@pytest.mark.parametrize(
    ("mode", "fills", "second", "reason"),
    [
        ("reflect", (0.0, 0.0), [1, 1], "the mode is reflect"),
        ("constant", (0.0, 1.0), [1, 1], "different numbers"),
        ("constant", (0.0, -0.0), [1, 1], "different numbers"),
        ("constant", (0.0, 0.0), [-1, 1], "it crops"),
    ],
)
def test_two_pads_that_differ_stay(mode: str, fills: tuple[float, float], second: list[int], reason: str) -> None:
    b = Builder()
    a = b.node("Pad", b.input("x", [9]), b.constant([1, 2]), b.constant(fills[0]), mode=mode)
    y = b.node("Pad", a, b.constant(second), b.constant(fills[1]), mode=mode)
    assert_stays(after(b, y), reason, rules=RULES)


# --- Conv ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [9, 13, 18])
@pytest.mark.parametrize("auto_pad", ["NOTSET", "VALID"])
def test_pad_into_conv(opset: int, auto_pad: str) -> None:
    b = Builder(opset=opset)
    x = b.input("x", ["N", 2, "H", "W"])
    amounts = [0, 0, 1, 2, 0, 0, 0, 3]
    p = b.node("Pad", x, pads=amounts) if opset < 11 else b.node("Pad", x, b.constant(amounts), b.constant(0.0))
    own = {"pads": [1, 0, 0, 1]} if auto_pad == "NOTSET" else {}
    pads = assert_folds(b.model(b.conv(p, 2, 3, [3, 3], auto_pad=auto_pad, strides=[2, 1], **own)), Conv=1)
    assert pads == ([2, 2, 0, 4] if own else [1, 2, 0, 3])


@property_of("fold_pad_into_conv")
@DRAWN
@given(
    rank=st.integers(1, 3),
    amounts=st.lists(st.integers(0, 3), min_size=6, max_size=6),
    own=st.integers(0, 1),
    stride=st.integers(1, 2),
    dilation=st.integers(1, 2),
    group=st.sampled_from([1, 2]),
    dtype=st.sampled_from([np.float32, np.float16]),
)
def test_pad_into_any_conv(
    rank: int, amounts: list[int], own: int, stride: int, dilation: int, group: int, dtype: Any
) -> None:
    b = Builder(dtype)
    sides = [0, 0, *amounts[:rank], 0, 0, *amounts[3 : 3 + rank]]
    p = b.node("Pad", b.input("x", ["N", 2, *[6] * rank]), b.constant(sides))
    attrs = {"strides": [stride] * rank, "dilations": [dilation] * rank, "pads": [own] * (2 * rank), "group": group}
    model = b.model(b.conv(p, 2, 4, [3] * rank, **attrs))
    result = apply([pad.fold_pad_into_conv], model)
    assert result.ops == {"Conv": 1}
    assert_equal(model, result.model, [{"N": 2}])


def test_pad_along_axes() -> None:
    b = Builder(opset=18)
    p = b.node("Pad", b.input("x", ["N", 2, "H", "W"]), b.constant([0, 0, 2, 1]), "", b.constant([-1, 2]))
    assert assert_folds(b.model(b.conv(p, 2, 3, [3, 3])), Conv=1) == [0, 0, 1, 2]


def test_pad_before_a_conv_whose_weight_is_computed() -> None:
    b = Builder()
    p = b.node("Pad", b.input("x", ["N", 2, "H"]), b.constant([0, 0, 1, 0, 0, 1]))
    assert_folds(b.model(b.node("Conv", p, b.input("w", [3, 2, 3]))), Conv=1)


@declines("fold_pad_into_conv")
@pytest.mark.parametrize(
    ("amounts", "form", "auto_pad", "reason"),
    [
        ([0, 1, 1, 0, 0, 1], {}, "NOTSET", "it pads batch or channels"),
        ([0, 0, 2, 0, 0, -1], {}, "NOTSET", "it crops"),
        ([0, 0, 1, 0, 0, 1], {"value": 1.0}, "NOTSET", "it pads with 1.0"),
        ([0, 0, 1, 0, 0, 1], {"mode": "reflect"}, "NOTSET", "it pads by reflect"),
        ([0, 0, 1, 0, 0, 1], {"mode": "edge"}, "NOTSET", "it pads by edge"),
        ([0, 0, 1, 0, 0, 1], {}, "SAME_UPPER", "auto_pad is SAME_UPPER"),
    ],
)
def test_other_pads_before_conv_stay(amounts: list[int], form: dict[str, Any], auto_pad: str, reason: str) -> None:
    b = Builder()
    names = [b.input("x", [1, 2, 8]), b.constant(amounts)]
    names += [b.constant(form["value"])] if "value" in form else []
    p = b.node("Pad", *names, mode=form.get("mode", "constant"))
    assert_stays(b.model(b.conv(p, 2 + amounts[1], 3, [3], auto_pad=auto_pad, strides=[2])), reason, rules=RULES)


@pytest.mark.parametrize("op", ["Conv", "AveragePool"])
def test_pads_of_nothing_stay(op: str) -> None:
    """ONNX Runtime takes no window over no elements, and one over pads that are written out."""
    b = Builder()
    p = b.node("Pad", b.input("x", [1, 2, 0]), b.constant([0, 0, 2, 0, 0, 1]))
    y = b.conv(p, 2, 3, [3]) if op == "Conv" else b.node(op, p, kernel_shape=[3])
    assert_stays(b.model(y), "there is nothing but pads", rules=RULES)


def test_a_padded_tensor_that_is_used_elsewhere_stays() -> None:
    b = Builder()
    p = b.node("Pad", b.input("x", [1, 2, 8]), b.constant([0, 0, 1, 0, 0, 1]))
    assert_stays(b.model(b.conv(p, 2, 3, [3]), b.node("Relu", p)), "is also used by", rules=RULES)


def test_pads_before_what_pads_otherwise_stay() -> None:
    b = Builder()
    p = b.node("Pad", b.input("x", [1, 2, 8]), b.constant([0, 0, 1, 0, 0, 1]))
    model = b.model(b.node("ConvTranspose", p, b.random(2, 3, 3)))
    assert apply(RULES, model).ops == operators(model)
    b = Builder()
    p = b.node("Pad", b.input("x", [1, 2, 8], np.uint8), b.constant([0, 0, 1, 0, 0, 1]), b.constant(3, np.uint8))
    scale, zero = b.constant(0.1), b.constant(3, np.uint8)
    weight = b.constant(b.rng.integers(0, 9, (3, 2, 3)), np.uint8)
    model = b.model(b.node("QLinearConv", p, scale, zero, weight, scale, zero, scale, zero), dtype=np.uint8)
    assert apply(RULES, model).ops == operators(model)


# --- pools ---------------------------------------------------------------------------------------------------------------


@property_of("fold_pad_into_average_pool")
@DRAWN
@given(
    rank=st.integers(1, 3),
    amounts=st.lists(st.integers(0, 1), min_size=6, max_size=6),
    own=st.integers(0, 1),
    counts=st.booleans(),
    stride=st.integers(1, 2),
    opset=st.sampled_from([9, 17, 19]),
)
def test_pad_into_average_pool(rank: int, amounts: list[int], own: int, counts: bool, stride: int, opset: int) -> None:
    b = Builder(opset=opset)
    sides = [0, 0, *amounts[:rank], 0, 0, *amounts[3 : 3 + rank]]
    x = b.input("x", ["N", 2, *[6] * rank])
    p = b.node("Pad", x, pads=sides) if opset < 11 else b.node("Pad", x, b.constant(sides))
    attrs = {"kernel_shape": [3] * rank, "strides": [stride] * rank, "count_include_pad": int(counts)}
    model = b.model(b.node("AveragePool", p, pads=[own] * (2 * rank), **attrs))
    result = apply([pad.fold_pad_into_average_pool], model)
    assert (result.ops == {"AveragePool": 1}) is (counts or not own), result.reasons
    assert_equal(model, result.model, [{"N": 2}])


@declines("fold_pad_into_average_pool")
@pytest.mark.parametrize(
    ("attrs", "amount", "reason"),
    [
        ({"count_include_pad": 0, "pads": [1, 1]}, 1, "own pads do not count"),
        ({"count_include_pad": 1, "ceil_mode": 1}, 1, "rounded up"),
        ({"count_include_pad": 1}, 3, "reach the size of the kernel"),
        ({"auto_pad": "SAME_LOWER"}, 1, "auto_pad is SAME_LOWER"),
    ],
)
def test_pad_before_another_average_pool_stays(attrs: dict[str, Any], amount: int, reason: str) -> None:
    b = Builder()
    p = b.node("Pad", b.input("x", [1, 2, 9]), b.constant([0, 0, amount, 0, 0, amount]))
    assert_stays(b.model(b.node("AveragePool", p, kernel_shape=[3], **attrs)), reason, rules=RULES)


@property_of("fold_pad_into_max_pool", "fold_pad_into_max_pool_after_relu")
@DRAWN
@given(
    rank=st.integers(1, 3),
    amounts=st.lists(st.integers(0, 1), min_size=6, max_size=6),
    own=st.integers(0, 1),
    stride=st.integers(1, 2),
    kind=st.sampled_from(["infinity", "bytes", "Relu", "Sigmoid", "Abs", "shared"]),
)
def test_pad_into_max_pool(rank: int, amounts: list[int], own: int, stride: int, kind: str) -> None:
    dtype = np.uint8 if kind == "bytes" else np.float32
    b = Builder(dtype)
    sides = [0, 0, *amounts[:rank], 0, 0, *amounts[3 : 3 + rank]]
    x = b.input("x", ["N", 2, *[6] * rank])
    others = []
    if kind not in ("infinity", "bytes"):
        x = b.node("Relu" if kind == "shared" else kind, x)
        others = [b.node("Neg", x)] if kind == "shared" else []
    lowest = 0 if kind == "bytes" else -np.inf
    fill = [b.constant(lowest, dtype)] if kind in ("infinity", "bytes") else []
    p = b.node("Pad", x, b.constant(sides), *fill)
    y = b.node("MaxPool", p, kernel_shape=[3] * rank, strides=[stride] * rank, pads=[own] * (2 * rank))
    model = b.model(y, *others)
    result = apply(RULES, model)
    assert "Pad" not in result.ops, result.reasons
    assert_equal(model, result.model, [{"N": 2}], tolerance=0)


@declines("fold_pad_into_max_pool")
@pytest.mark.parametrize(
    ("fill", "attrs", "reason"),
    [
        (0.0, {}, "may be the largest number"),
        (-3e38, {}, "may be the largest number"),
        (-np.inf, {"ceil_mode": 1}, "rounded up"),
        (-np.inf, {"dilations": [2]}, "is dilated"),
        (-np.inf, {"kernel_shape": [1]}, "reach the size of the kernel"),
    ],
)
def test_pad_before_another_max_pool_stays(fill: float, attrs: dict[str, Any], reason: str) -> None:
    b = Builder()
    p = b.node("Pad", b.input("x", [1, 2, 9]), b.constant([0, 0, 1, 0, 0, 1]), b.constant(fill))
    assert_stays(b.model(b.node("MaxPool", p, **{"kernel_shape": [3], **attrs})), reason, rules=RULES)


@declines("fold_pad_into_max_pool_after_relu")
@pytest.mark.parametrize(("fill", "mode", "reason"), [(1.0, "constant", "it pads with 1.0"), (0.0, "edge", "by edge")])
def test_relu_and_another_pad_before_max_pool_stay(fill: float, mode: str, reason: str) -> None:
    b = Builder()
    r = b.node("Relu", b.input("x", [1, 2, 9]))
    p = b.node("Pad", r, b.constant([0, 0, 1, 0, 0, 1]), b.constant(fill), mode=mode)
    assert_stays(b.model(b.node("MaxPool", p, kernel_shape=[3])), reason, rules=RULES)


def test_indices_of_maxima_stay() -> None:
    b = Builder()
    p = b.node("Pad", b.input("x", [1, 2, 9]), b.constant([0, 0, 1, 0, 0, 1]), b.constant(-np.inf))
    y, where = b.node("MaxPool", p, kernel_shape=[3], outputs=2)
    model = b.model(y, b.node("Cast", where, to=1))
    assert apply(RULES, model).ops == operators(model)


@pytest.mark.parametrize("op", ["Conv", "AveragePool", "MaxPool"])
def test_two_pads_go_in_one_run(op: str) -> None:
    """By one rule alone, and byte for byte where it runs again."""
    b = Builder()
    fill = [b.constant(-np.inf)] if op == "MaxPool" else []
    x, amounts = b.input("x", ["N", 2, 9]), b.constant([0, 0, 1, 0, 0, 1])
    p = b.node("Pad", b.node("Pad", x, amounts, *fill), amounts, *fill)
    model = b.model(b.conv(p, 2, 3, [3]) if op == "Conv" else b.node(op, p, kernel_shape=[3]))
    names = {"Conv": "conv", "AveragePool": "average_pool", "MaxPool": "max_pool"}
    rule = getattr(pad, f"fold_pad_into_{names[op]}")
    once = apply(rule, model)
    assert once.ops == {op: 1}
    again = apply(rule, once.model).model
    assert again.SerializeToString(deterministic=True) == once.model.SerializeToString(deterministic=True)
    assert_equal(model, once.model, SIZES)


@declines("fold_pad_into_max_pool_after_relu")
def test_the_lowest_integer_has_no_absolute_value() -> None:
    b = Builder(np.int8)
    p = b.node("Pad", b.node("Abs", b.input("x", [1, 2, 9])), b.constant([0, 0, 1, 0, 0, 1]))
    assert_stays(b.model(b.node("MaxPool", p, kernel_shape=[3])), "floats or unsigned integers", rules=RULES)


def test_an_absolute_value_of_bytes_before_max_pool() -> None:
    b = Builder(np.uint8)
    p = b.node("Pad", b.node("Abs", b.input("x", [1, 2, 9])), b.constant([0, 0, 1, 0, 0, 1]))
    model = b.model(b.node("MaxPool", p, kernel_shape=[3]))
    result = apply(RULES, model)
    assert result.ops == {"Abs": 1, "MaxPool": 1}, result.reasons
    assert_equal(model, result.model, SIZES, tolerance=0)
