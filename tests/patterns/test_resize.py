"""Resize: what resizes nothing, and sizes that are multiples of the input's."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surgeon_passes.passes.rewrite import DEFAULT_SETS
from surgeon_passes.patterns.resize import drop_resize, make_resize_static, state_resize_sizes
from surgeon_passes.rules.registry import Registry

from .covering import declines, property_of
from .harness import Builder, apply, assert_equal, constants
from .moves import DRAWN, after, assert_becomes, assert_stays
from .moves import EXACT as RULES

COORDINATES = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"]
FILTERS = [
    {"mode": "nearest", "nearest_mode": "round_prefer_floor"},
    {"mode": "nearest", "nearest_mode": "ceil"},
    {"mode": "linear"},
    {"mode": "linear", "antialias": 1},
    {"mode": "cubic", "cubic_coeff_a": -0.6},
    {"mode": "cubic", "exclude_outside": 1},
]
SIZES = ({"N": 2, "H": 5}, {"N": 1, "H": 1}, {"N": 1, "H": 33})


def attributes(opset: int = 19) -> list[dict[str, Any]]:
    chosen = COORDINATES if opset >= 19 else [c for c in COORDINATES if c != "half_pixel_symmetric"]
    filters = FILTERS if opset >= 18 else [f for f in FILTERS if "antialias" not in f]
    return [{"coordinate_transformation_mode": c, **f} for c, f in product(chosen, filters)]


# --- nothing to resize ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attrs", attributes(), ids=lambda a: " ".join(map(str, a.values())))
def test_scales_of_one(attrs: Any) -> None:
    b = Builder(opset=19)
    y = b.node("Resize", b.input("x", [1, 1, 6, 5]), "", b.constant([1.0] * 4), **attrs)
    model = after(b, y, 4)
    found = apply(RULES, model)
    assert found.ops == {"Neg": 1}
    assert_equal(model, found.model, [{}], 0)


@pytest.mark.parametrize("opset", [11, 13, 18])
def test_the_inputs_own_sizes(opset: int) -> None:
    b = Builder(opset=opset)
    x = b.input("x", ["N", 3, "H", 7])
    empty = b.constant([], np.float32) if opset == 11 else ""
    model = after(b, b.node("Resize", x, empty, empty, b.node("Shape", x), mode="linear"), 4)
    result = apply(RULES, model)
    assert result.ops == {"Neg": 1}
    assert_equal(model, result.model, SIZES, 0)


def test_sizes_of_some_axes() -> None:
    b = Builder(opset=18)
    x = b.input("x", ["N", 3, "H", 7])
    size = b.node("Gather", b.node("Shape", x), b.constant([2]))
    assert_becomes(after(b, b.node("Resize", x, "", "", size, axes=[2], mode="linear"), 4), sizes=SIZES, Neg=1)


@pytest.mark.parametrize("scales", [[1.0, 1.0, 2.0, 1.0], [1.0, 1.0, 1.0000001, 1.0]])
def test_other_scales_stay(scales: list[float]) -> None:
    b = Builder(opset=18)
    y = b.node("Resize", b.input("x", [1, 1, 6, 5]), "", b.constant(scales), mode="linear")
    assert_stays(after(b, y, 4))


@declines("make_resize_static")
def test_sizes_of_another_tensor_stay() -> None:
    b = Builder(opset=18)
    x, z = b.input("x", ["N", 1, "H", 5]), b.input("z", ["N", 1, "T", 5])
    model = after(b, b.node("Resize", x, "", "", b.node("Shape", z), mode="linear"), 4)
    assert_stays(model, "no fixed multiples")


@declines("drop_resize")
def test_a_crop_stays() -> None:
    b = Builder(opset=18)
    roi = b.constant([0.0, 0, 0.25, 0.25, 1, 1, 0.75, 0.75])
    mode = {"coordinate_transformation_mode": "tf_crop_and_resize", "mode": "linear"}
    assert_stays(
        after(b, b.node("Resize", b.input("x", [1, 1, 6, 6]), roi, b.constant([1.0] * 4), **mode), 4), "it crops"
    )


# --- fixed multiples -----------------------------------------------------------------------------------------------------


def multiplied(b: Builder, x: str, *factors: int, op: str = "Mul") -> str:
    return str(b.node(op, b.node("Shape", x), b.constant(list(factors))))


def only_scales(model: onnx.ModelProto) -> list[float]:
    node = next(n for n in model.graph.node if n.op_type == "Resize")
    assert len(node.input) == 3
    return [float(v) for v in constants(model)[node.input[2]]]


@pytest.mark.parametrize("opset", [11, 19])
def test_multiples_in_every_mode(opset: int) -> None:
    for attrs in attributes(opset):
        b = Builder(opset=opset)
        x = b.input("x", ["N", 2, "H", 5])
        empty = b.constant([], np.float32) if opset == 11 else ""
        model = after(b, b.node("Resize", x, empty, empty, multiplied(b, x, 1, 1, 2, 3), **attrs), 4)
        result = apply(RULES, model)
        assert only_scales(result.model)[:3] == [1.0, 1.0, 2.0]
        assert_equal(model, result.model, SIZES, 0)


def test_parts_and_known_dims() -> None:
    b = Builder(opset=18)
    x = b.input("x", ["N", 1, "H", 10])
    wide = b.node("Concat", x, x, axis=2)
    sizes = b.node("Concat", b.node("Shape", x, start=0, end=3), b.constant([15]), axis=0)
    model = after(b, b.node("Resize", wide, "", "", sizes, mode="linear"), 4)
    result = apply(RULES, model)
    assert only_scales(result.model) == [1.0, 1.0, 0.5, 1.5]
    assert_equal(model, result.model, SIZES, 0)


@declines("make_resize_static")
@pytest.mark.parametrize(("factors", "op", "known"), [((1, 1, 2, 1), "Add", 5), ((1, 1, 2, 1), "Div", 5)])
def test_sizes_that_are_no_fixed_multiple_stay(factors: Any, op: str, known: int) -> None:
    b = Builder(opset=18)
    x = b.input("x", ["N", 1, "H", known])
    model = after(b, b.node("Resize", x, "", "", multiplied(b, x, *factors, op=op), mode="linear"), 4)
    assert_stays(model, "no fixed multiples")


def test_a_quotient_that_is_not_exact_stays() -> None:
    b = Builder(opset=18)
    x = b.input("x", ["N", 1, "H", 3])
    sizes = b.node("Concat", b.node("Shape", x, start=0, end=3), b.constant([10]), axis=0)
    assert_stays(after(b, b.node("Resize", x, "", "", sizes, mode="linear"), 4), "no fixed multiples")


@declines("make_resize_static")
def test_a_kept_aspect_ratio_stays() -> None:
    b = Builder(opset=18)
    x = b.input("x", ["N", 1, "H", 3])
    policy = {"keep_aspect_ratio_policy": "not_larger", "axes": [2, 3], "mode": "linear"}
    sizes = b.node("Mul", b.node("Shape", x, start=2), b.constant([2, 3]))
    assert_stays(after(b, b.node("Resize", x, "", "", sizes, **policy), 4), "keeps the aspect ratio")


# --- sizes, where they are asked for ---------------------------------------------------------------------------------


def stated(scale: float, **attrs: Any) -> tuple[onnx.ModelProto, Any]:
    b = Builder(opset=18)
    y = b.node("Resize", b.input("x", [1, 1, 4, 6]), "", b.constant([1.0, 1.0, scale, scale], np.float32), **attrs)
    model = after(b, y, 4)
    return model, apply(state_resize_sizes, model)


@pytest.mark.parametrize("attrs", attributes(18), ids=lambda a: " ".join(map(str, a.values())))
@pytest.mark.parametrize("scale", [2.0, 0.5, 1.5])
def test_sizes_are_stated_where_they_give_the_very_scale(scale: float, attrs: Any) -> None:
    model, found = stated(scale, **attrs)
    assert [v.tolist() for v in constants(found.model).values() if v.dtype == np.int64] == [
        [1, 1, int(4 * scale), int(6 * scale)]
    ]
    assert_equal(model, found.model, [{}], 0)


@declines("state_resize_sizes")
@pytest.mark.parametrize("scale", [0.3, 1.1, 2.0000002])
def test_a_scale_that_no_size_gives_stays(scale: float) -> None:
    """4 x 0.3 is 1.2, of which 1 is left: 1 / 4 is another scale."""
    _, found = stated(scale, mode="linear")
    assert found.applied == [] and any("no quotient" in r for r in found.reasons)


def test_by_default_scales_stay_scales() -> None:
    assert "state_resize_sizes" not in {rule.name for rule in Registry.installed().select(DEFAULT_SETS)}


# --- drawn ---------------------------------------------------------------------------------------------------------------


ATTRS = st.sampled_from(attributes(18))
TYPES = st.sampled_from([np.float32, np.float16])


@property_of("drop_resize")
@DRAWN
@given(attrs=ATTRS, by=st.sampled_from(["scales", "sizes", "axes"]), size=st.integers(1, 7), dtype=TYPES)
def test_any_resize_to_the_same_size(attrs: Any, by: str, size: int, dtype: Any) -> None:
    b = Builder(dtype, opset=18)
    x = b.input("x", ["N", 2, "H", size])
    if by == "scales":
        y = b.node("Resize", x, "", b.constant([1.0] * 4, np.float32), **attrs)
    elif by == "sizes":
        y = b.node("Resize", x, "", "", b.node("Shape", x), **attrs)
    else:
        y = b.node("Resize", x, "", "", b.node("Shape", x, start=2), axes=[2, 3], **attrs)
    model = after(b, y)
    found = apply(drop_resize, model)
    assert found.ops == {"Neg": 1}, found.reasons
    assert_equal(model, found.model, SIZES, 0)


@property_of("make_resize_static")
@DRAWN
@given(attrs=ATTRS, up=st.integers(1, 4), wide=st.integers(1, 4), size=st.sampled_from([1, 3, 4, 8]), dtype=TYPES)
def test_any_multiple(attrs: Any, up: int, wide: int, size: int, dtype: Any) -> None:
    b = Builder(dtype, opset=18)
    x = b.input("x", ["N", 2, "H", size])
    model = after(b, b.node("Resize", x, "", "", multiplied(b, x, 1, 1, up, wide), **attrs))
    found = apply(make_resize_static, model)
    assert only_scales(found.model) == [1.0, 1.0, up, wide]
    assert_equal(model, found.model, SIZES, 0)


@property_of("state_resize_sizes")
@DRAWN
@given(attrs=ATTRS, sizes=st.tuples(*[st.integers(1, 9)] * 4), dtype=TYPES)
def test_any_scale_that_is_a_quotient(attrs: Any, sizes: tuple[int, ...], dtype: Any) -> None:
    b = Builder(dtype, opset=18)
    high, wide, *wanted = sizes
    scales = np.array([1, 1, wanted[0] / high, wanted[1] / wide], np.float32)
    model = after(b, b.node("Resize", b.input("x", [1, 2, high, wide]), "", b.constant(scales, np.float32), **attrs))
    found = apply(state_resize_sizes, model)
    exact = all(int(float(s) * d) == w for s, d, w in zip(scales[2:], sizes, wanted, strict=False))
    assert bool(found.applied) or not exact, found.reasons
    assert_equal(model, found.model, [{}], 0)
