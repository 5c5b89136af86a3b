"""Borders that are written around what a 1x1 convolution gives."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surgeon_passes.patterns.border import pad_conv_instead_of_border

from . import harness
from .covering import declines, property_of
from .harness import Builder, apply, assert_equal, reference, run
from .test_reparam import attrs_of

SIZES = (5, 6, 4)


class Border:
    """The published blocks' ``BNAndPad`` in both exporters' spelling: a Pad, and then one write for each side."""

    def __init__(self, rank: int = 2, dtype: Any = np.float32, seed: int = 0, **form: Any) -> None:
        self.b = Builder(dtype, seed=seed)
        self.rank = rank
        self.channels = 3
        self.x = self.b.input("x", [2, 4, *SIZES[:rank]])
        self.bias = self.b.rng.standard_normal(self.channels).astype(dtype)
        self.kernel = form.pop("kernel", [1] * rank)
        self.strides = form.get("strides", [1] * rank)
        weight = self.b.random(self.channels, 4 // form.get("group", 1), *self.kernel)
        self.c = self.b.node("Conv", self.x, weight, self.b.constant(self.bias), **form)
        self.shape = [2, self.channels, *[-(-n // s) for n, s in zip(SIZES[:rank], self.strides, strict=True)]]

    def pad(self, begins: list[int], ends: list[int], *more: str, **attrs: Any) -> list[int]:
        """The padded shape."""
        amounts = self.b.constant([0, 0, *begins, 0, 0, *ends])
        self.y = self.b.node("Pad", self.c, amounts, *more, **attrs)
        for axis, (begin, end) in enumerate(zip(begins, ends, strict=True)):
            self.shape[2 + axis] += begin + end
        return self.shape

    def write(self, axis: int, places: range, value: Any = None, **attrs: Any) -> None:
        """``y[:, :, …, places] = bias``, by the indices of every element."""
        grid = [np.arange(n) for n in self.shape]
        grid[axis] = np.asarray(places)
        indices = np.stack(np.meshgrid(*grid, indexing="ij"), -1)
        along = (1, -1, *[1] * self.rank)
        updates = np.broadcast_to(self.bias.reshape(along) if value is None else value, indices.shape[:-1])
        self.y = self.b.node("ScatterND", self.y, self.b.constant(indices), self.b.constant(updates), **attrs)

    def write_transposed(self, axis: int, *sides: range) -> None:
        """The same by slices of the transposed tensor, as torch.export decomposes it."""
        perm = list(range(self.rank + 2))
        perm[0], perm[axis] = perm[axis], perm[0]
        self.y = self.b.node("Transpose", self.y, perm=perm)
        shape = [self.shape[p] for p in perm]
        along = [1] * (self.rank + 2)
        along[perm.index(1)] = -1
        for places in sides:
            indices = np.asarray(places).reshape(-1, 1)
            updates = np.broadcast_to(self.bias.reshape(along), [len(indices), *shape[1:]])
            self.y = self.b.node("ScatterND", self.y, self.b.constant(indices), self.b.constant(updates))
        self.y = self.b.node("Transpose", self.y, perm=perm)

    def model(self) -> onnx.ModelProto:
        return self.b.model(self.y)


def sides(border: Border, begins: list[int], ends: list[int]) -> list[tuple[int, range, range]]:
    found = []
    for axis, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        size = border.shape[2 + axis]
        found.append((2 + axis, range(begin), range(size - end, size)))
    return found


def written(border: Border, begins: list[int], ends: list[int]) -> onnx.ModelProto:
    border.pad(begins, ends)
    for axis, low, high in sides(border, begins, ends):
        for places in (low, high):
            if len(places):
                border.write(axis, places)
    return border.model()


def padded(model: onnx.ModelProto, tolerance: float | None = None) -> onnx.ModelProto:
    result = apply(pad_conv_instead_of_border, model)
    assert result.ops == {"Conv": 1}, result.reasons
    assert_equal(model, result.model, tolerance=tolerance)
    return result.model


assert_stays = partial(harness.assert_stays, pad_conv_instead_of_border)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_written_element_by_element(rank: int) -> None:
    found = padded(written(Border(rank), [1] * rank, [1] * rank), 0)
    assert attrs_of(found)["pads"] == [1] * (2 * rank)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_written_by_slices_of_the_transposed(rank: int) -> None:
    border = Border(rank)
    border.pad([2] * rank, [2] * rank)
    for axis, low, high in sides(border, [2] * rank, [2] * rank):
        border.write_transposed(axis, low, high)
    padded(border.model(), 0)


def test_sides_may_differ() -> None:
    found = padded(written(Border(), [1, 0], [2, 3]))
    assert attrs_of(found)["pads"] == [1, 0, 2, 3]


@pytest.mark.parametrize("group", [1, 2])
def test_a_stride_pads_the_input_by_so_much(group: int) -> None:
    border = Border(2, strides=[2, 3])
    found = padded(written(border, [1, 2], [1, 1]))
    assert attrs_of(found)["pads"] == [2, 6, 2, 3]


def test_own_padding_is_added_to() -> None:
    border = Border(1, pads=[1, 2])
    border.shape[2] += 3
    found = padded(written(border, [1], [1]))
    assert attrs_of(found)["pads"] == [2, 3]


def test_values_that_are_the_bias_to_rounding() -> None:
    border = Border(1)
    border.bias *= np.float32(1 + 2**-23)
    padded(written(border, [1], [1]))


def test_negative_indices_and_overwritten_writes() -> None:
    """What is written last counts."""
    border = Border(1)
    border.pad([1], [1])
    border.write(2, range(1), 0.0)
    border.write(2, range(1))
    border.write(2, range(-1, 0))
    padded(border.model(), 0)


@declines("pad_conv_instead_of_border")
def test_another_value_stays() -> None:
    border = Border(1)
    border.bias += np.float32(1e-3)
    assert_stays(written(border, [1], [1]), "where padding 'conv0' would give")


@declines("pad_conv_instead_of_border")
def test_a_side_that_is_left_zero_stays() -> None:
    border = Border(2)
    border.pad([1, 1], [1, 1])
    for axis, low, high in sides(border, [1, 1], [1, 1])[:1]:
        border.write(axis, low)
        border.write(axis, high)
    assert_stays(border.model(), "holds 0 where padding 'conv0' would give")


@declines("pad_conv_instead_of_border")
def test_an_inner_element_that_is_written_stays() -> None:
    border = Border(1)
    border.pad([1], [1])
    border.write(2, range(2))
    border.write(2, range(6, 7))
    assert_stays(border.model(), "are overwritten or moved")


@declines("pad_conv_instead_of_border")
def test_a_transposition_that_is_not_undone_stays() -> None:
    border = Border(2)
    border.x = ""
    border.pad([1, 1], [1, 1])
    for axis, low, high in sides(border, [1, 1], [1, 1]):
        border.write(axis, low)
        border.write(axis, high)
    border.y = border.b.node("Transpose", border.y, perm=[0, 1, 3, 2])
    assert_stays(border.model(), "are overwritten or moved")


@declines("pad_conv_instead_of_border")
def test_a_larger_kernel_stays() -> None:
    border = Border(1, kernel=[3], pads=[1, 1])
    assert_stays(written(border, [1], [1]), "the kernel [3] of 'conv0' reads the input")


@declines("pad_conv_instead_of_border")
def test_a_write_that_adds_stays() -> None:
    border = Border(1)
    border.pad([1], [1])
    border.write(2, range(1), reduction="add")
    border.write(2, range(6, 7), reduction="add")
    assert_stays(border.model(), "adds to what it writes over")


@declines("pad_conv_instead_of_border")
def test_another_mode_stays() -> None:
    border = Border(1)
    border.pad([1], [1], mode="edge")
    border.write(2, range(1))
    border.write(2, range(6, 7))
    assert_stays(border.model(), "pads in mode edge")


@declines("pad_conv_instead_of_border")
@pytest.mark.parametrize(
    ("places", "writes", "reason"),
    [
        ([0, 1, 1, 0, 0, 1], [[0, 0, 0]], "pads batch or channels, or crops"),
        ([0, 0, 1, 0, 0, -1], [[0, 0, 0]], "pads batch or channels, or crops"),
        ([0, 0, 1, 0, 0, 0], [[0, 0, 9]], "writes outside its data"),
        ([0, 0, 1, 0, 0, 0], [[0, 0, 0], [0, 0, -6]], "writes a place twice"),
        ([0, 0, 1, 0, 0, 2**27], [[0, 0, 0]], "too large to look at its border"),
    ],
)
def test_other_places_stay(places: list[int], writes: list[list[int]], reason: str) -> None:
    b = Builder()
    c = b.node("Conv", b.input("x", [1, 2, 5]), b.random(1, 2, 1), b.constant([1.0]))
    y = b.node("Pad", c, b.constant(places))
    assert_stays(b.model(b.node("ScatterND", y, b.constant(writes), b.constant([1.0] * len(writes)))), reason)


@declines("pad_conv_instead_of_border")
def test_automatic_pads_stay() -> None:
    assert_stays(written(Border(1, auto_pad="SAME_UPPER"), [1], [1]), "its pads are automatic")


@pytest.mark.parametrize("fill", [0.0, 1.0, 2.0])
def test_a_filled_pad_along_axes(fill: float) -> None:
    """What the Pad fills in counts where nothing is written over it: here the last place."""
    b = Builder(opset=18)
    c = b.node("Conv", b.input("x", [1, 2, 5]), b.random(1, 2, 1), b.constant([1.0]))
    y = b.node("Pad", c, b.constant([1, 1]), b.constant(fill), b.constant([-1]))
    model = b.model(b.node("ScatterND", y, b.constant([[0, 0, 0]]), b.constant([1.0])))
    if fill == 1.0:
        padded(model, 0)
    else:
        assert_stays(model, f"holds {fill:g} where padding 'conv0' would give 1")


@declines("pad_conv_instead_of_border")
@pytest.mark.parametrize("name", ["fill", "axes"])
def test_a_pad_that_is_not_constant_stays(name: str) -> None:
    b = Builder(opset=18)
    c = b.node("Conv", b.input("x", [1, 2, 5]), b.random(1, 2, 1), b.constant([1.0]))
    more = [b.input("fill", []), b.constant([2])] if name == "fill" else ["", b.input("axes", [1], np.int64)]
    y = b.node("Pad", c, b.constant([1, 1]), *more)
    model = b.model(b.node("ScatterND", y, b.constant([[0, 0, 0]]), b.constant([1.0])))
    assert_stays(model, f"'{name}' is not constant")


@declines("pad_conv_instead_of_border")
def test_an_unknown_size_stays() -> None:
    b = Builder()
    x = b.input("x", [1, 2, "H"])
    c = b.conv(x, 2, 1, [1], bias=True)
    y = b.node("Pad", c, b.constant([0, 0, 1, 0, 0, 0]))
    model = b.model(b.node("ScatterND", y, b.constant([[0, 0, 0]]), b.constant([1.0])))
    assert_stays(model, "the size of 'conv0' is not known")


@declines("pad_conv_instead_of_border")
def test_a_convolution_that_is_read_elsewhere_stays() -> None:
    border = Border(1)
    border.pad([1], [1])
    border.write(2, range(1))
    border.write(2, range(6, 7))
    model = border.b.model(border.y, border.b.node("Relu", border.c))
    assert_stays(model, "is also used by Relu")


@property_of("pad_conv_instead_of_border")
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([np.float32, np.float16, np.float64]))
def test_any_border(seed: int, dtype: Any) -> None:
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))
    border = Border(rank, dtype, seed, strides=rng.integers(1, 3, rank).tolist())
    begins, ends = rng.integers(0, 3, (2, rank)).tolist()
    begins[0] += 1
    ordered = list(sides(border, begins, ends)) if border.pad(begins, ends) else []
    for axis, low, high in (ordered[i] for i in rng.permutation(len(ordered))):
        if rng.integers(2) and len(low) and len(high):
            border.write_transposed(axis, low, high)
        else:
            for places in (low, high):
                if len(places):
                    border.write(axis, places)
    model = border.model()
    result = apply(pad_conv_instead_of_border, model)
    assert result.ops == {"Conv": 1}, result.reasons
    wide = dtype is np.float64
    assert_equal(model, result.model, [{}], 1e-13 if wide else None, runner=reference if wide else run)


def test_an_index_of_no_axes_stays() -> None:
    b = Builder()
    p = b.node("Pad", b.conv(b.input("x", [1, 1, 2]), 1, 1, [1], bias=True), b.constant([0, 0, 1, 0, 0, 1]))
    indices = b.constant(np.zeros((1, 0), np.int64))
    assert_stays(b.model(b.node("ScatterND", p, indices, b.random(1, 1, 1, 4))), "writes over all of its data")
