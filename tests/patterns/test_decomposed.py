"""Pads in front of what reads zeros beyond its input."""

from __future__ import annotations

from typing import Any

import pytest

from surgeon_passes.patterns import decomposed
from surgeon_passes.rules.registry import rules_of

from .fusing import assert_fuses, assert_stays
from .harness import Builder

RULES = list(rules_of(decomposed))


@pytest.mark.parametrize("opset", [9, 13, 18])
@pytest.mark.parametrize("auto_pad", ["NOTSET", "VALID"])
def test_pad_into_conv(opset: int, auto_pad: str) -> None:
    b = Builder(opset=opset)
    x = b.input("x", ["N", 2, "H", "W"])
    amounts = [0, 0, 1, 2, 0, 0, 0, 3]
    p = b.node("Pad", x, pads=amounts) if opset < 11 else b.node("Pad", x, b.constant(amounts), b.constant(0.0))
    own = {"pads": [1, 0, 0, 1]} if auto_pad == "NOTSET" else {}
    found = assert_fuses(RULES, b.model(b.conv(p, 2, 3, [3, 3], auto_pad=auto_pad, strides=[2, 1], **own)), Conv=1)
    pads = next(a for a in found.graph.node[0].attribute if a.name == "pads")
    assert list(pads.ints) == ([2, 2, 0, 4] if own else [1, 2, 0, 3])


def test_pad_along_axes() -> None:
    b = Builder(opset=18)
    p = b.node("Pad", b.input("x", ["N", 2, "H", "W"]), b.constant([0, 0, 2, 1]), "", b.constant([-1, 2]))
    found = assert_fuses(RULES, b.model(b.conv(p, 2, 3, [3, 3])), Conv=1)
    pads = next(a for a in found.graph.node[0].attribute if a.name == "pads")
    assert list(pads.ints) == [0, 0, 1, 2]


def test_pad_before_a_conv_whose_weight_is_computed() -> None:
    b = Builder()
    p = b.node("Pad", b.input("x", ["N", 2, "H"]), b.constant([0, 0, 1, 0, 0, 1]))
    assert_fuses(RULES, b.model(b.node("Conv", p, b.input("w", [3, 2, 3]))), Conv=1)


@pytest.mark.parametrize(
    ("amounts", "form", "auto_pad", "reason"),
    [
        ([0, 1, 1, 0, 0, 1], {}, "NOTSET", "it pads batch or channels"),
        ([0, 0, 2, 0, 0, -1], {}, "NOTSET", "it crops"),
        ([0, 0, 1, 0, 0, 1], {"value": 1.0}, "NOTSET", "it pads with 1.0"),
        ([0, 0, 1, 0, 0, 1], {"mode": "reflect"}, "NOTSET", ""),
        ([0, 0, 1, 0, 0, 1], {}, "SAME_UPPER", "auto_pad is SAME_UPPER"),
    ],
)
def test_other_pads_stay(amounts: list[int], form: dict[str, Any], auto_pad: str, reason: str) -> None:
    b = Builder()
    names = [b.input("x", [1, 2, 8]), b.constant(amounts)]
    names += [b.constant(form["value"])] if "value" in form else []
    p = b.node("Pad", *names, mode=form.get("mode", "constant"))
    assert_stays(RULES, b.model(b.conv(p, 2 + amounts[1], 3, [3], auto_pad=auto_pad, strides=[2])), reason)


def test_a_padded_tensor_that_is_used_elsewhere_stays() -> None:
    b = Builder()
    p = b.node("Pad", b.input("x", [1, 2, 8]), b.constant([0, 0, 1, 0, 0, 1]))
    assert_stays(RULES, b.model(b.conv(p, 2, 3, [3]), b.node("Relu", p)), "is also used by")


@pytest.mark.parametrize("own", [[0, 0], [1, 0]])
def test_pad_into_average_pool(own: list[int]) -> None:
    b = Builder()
    p = b.node("Pad", b.input("x", ["N", 2, "H"]), b.constant([0, 0, 1, 0, 0, 2]))
    y = b.node("AveragePool", p, kernel_shape=[3], strides=[2], count_include_pad=1, pads=own)
    assert_fuses(RULES, b.model(y), AveragePool=1)


@pytest.mark.parametrize(
    ("attrs", "amount", "reason"),
    [
        ({"count_include_pad": 0}, 1, ""),
        ({"count_include_pad": 1, "ceil_mode": 1}, 1, ""),
        ({"count_include_pad": 1}, 3, "reach the size of the kernel"),
    ],
)
def test_pad_before_another_average_pool_stays(attrs: dict[str, int], amount: int, reason: str) -> None:
    b = Builder()
    p = b.node("Pad", b.input("x", [1, 2, 9]), b.constant([0, 0, amount, 0, 0, amount]))
    assert_stays(RULES, b.model(b.node("AveragePool", p, kernel_shape=[3], **attrs)), reason)
