"""Reductions that have an operator of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from surgeon_passes.patterns import reduction
from surgeon_passes.rules.registry import rules_of

from .covering import declines, property_of
from .fusing import assert_fuses, assert_stays, attributes
from .harness import Builder

RULES = list(rules_of(reduction))


@property_of("use_global_pool")
def test_global_pools() -> None:
    @settings(max_examples=30, deadline=None)
    @given(
        st.lists(st.integers(1, 5), min_size=3, max_size=5),
        st.booleans(),
        st.sampled_from([13, 18]),
        st.sampled_from([np.float32, np.float16]),
    )
    def check(shape: list[int], negative: bool, opset: int, dtype: Any) -> None:
        b = Builder(dtype, opset=opset)
        axes = [a - len(shape) if negative else a for a in range(2, len(shape))]
        x = b.input("x", shape)
        y = b.node("ReduceMean", x, axes=axes) if opset < 18 else b.node("ReduceMean", x, b.constant(axes))
        assert_fuses(RULES, b.model(y), GlobalAveragePool=1)

    check()


@declines("use_global_pool")
def test_pools_of_other_types_stay() -> None:
    b = Builder(np.float64)
    assert_stays(
        RULES, b.model(b.node("ReduceMean", b.input("x", [1, 2, 3]), axes=[2])), "computed in single precision"
    )


def test_other_axes_stay() -> None:
    for axes, keep in (([1, 2], 1), ([2], 1), ([2, 3], 0)):
        b = Builder()
        y = b.node("ReduceMean", b.input("x", [1, 2, 3, 4]), axes=axes, keepdims=keep)
        assert_stays(RULES, b.model(y, rank=4 if keep else 2))
    b = Builder()
    assert_stays(RULES, b.model(b.node("ReduceMean", b.input("x", [2, 3]), axes=[1])))


@property_of("fuse_sum_of_squares", "fuse_root_of_sum_of_squares")
def test_sums_of_squares() -> None:
    @settings(max_examples=20, deadline=None)
    @given(
        st.lists(st.integers(1, 5), min_size=1, max_size=4),
        st.data(),
        st.booleans(),
        st.integers(0, 1),
        st.sampled_from([13, 18]),
        st.sampled_from([np.float32, np.float64]),
    )
    def check(
        root: bool, shape: list[int], data: st.DataObject, power: bool, keep: int, opset: int, dtype: Any
    ) -> None:
        axes = data.draw(st.lists(st.integers(0, len(shape) - 1), unique=True))
        whole = data.draw(st.booleans()) if axes else True
        b = Builder(dtype, opset=opset)
        x = b.input("x", shape)
        q = b.node("Pow", x, b.constant(2.0)) if power else b.node("Mul", x, x)
        axes = [] if whole else axes
        y = b.node("ReduceSum", q, *([] if whole else [b.constant(axes)]), keepdims=keep)
        y = b.node("Sqrt", y) if root else y
        model = b.model(y, rank=len(shape) if keep else len(shape) - len(axes) if axes else 0)
        found = assert_fuses(RULES, model, **{"ReduceL2" if root else "ReduceSumSquare": 1})
        assert attributes(found.graph.node[0])["keepdims"] == keep

    check(True)
    check(False)


@declines("fuse_sum_of_squares")
def test_sums_of_squares_in_half_precision_stay() -> None:
    b = Builder(np.float16)
    x = b.input("x", [3, 4])
    assert_stays(RULES, b.model(b.node("ReduceSum", b.node("Mul", x, x), b.constant([1]))), "float32 or double")
    b = Builder()
    x = b.input("x", [3, 4])
    y = b.node("ReduceSum", b.node("Mul", x, x), b.constant(np.zeros(0, np.int64), np.int64), noop_with_empty_axes=1)
    assert_stays(RULES, b.model(y), "may reduce nothing")


@declines("fuse_root_of_sum_of_squares")
def test_a_sum_that_is_read_elsewhere_stays() -> None:
    b = Builder()
    s = b.node("ReduceSumSquare", b.input("x", [3, 4]), axes=[1])
    assert_stays(RULES, b.model(b.node("Sqrt", s), b.node("Neg", s)), "is also used by")


def test_means_of_a_normalization_stay() -> None:
    """Over the last of three axes they look like pools; the rules that know normalizations need them."""
    b = Builder(opset=18)
    x = b.input("x", [2, 3, 4])
    d = b.node("Sub", x, b.node("ReduceMean", x, b.constant([-1])))
    y = b.node("Div", d, b.node("Sqrt", b.node("ReduceMean", b.node("Mul", d, d), b.constant([-1]))))
    assert_stays(RULES, b.model(y), "part of a normalization")


@declines("use_global_pool")
def test_what_a_pool_cannot_do_stays() -> None:
    """A maximum stays, too: GlobalMaxPool skips NaN, and makes the lowest finite number of a plane of -infinity."""
    for shape, says in (
        ([2, 3, 0, 4], "unknown or zero"),
        ([2, 3, "H", 4], "unknown or zero"),
        ([1, 1, 2, 2, 2, 2], "over 3 axes at most"),
    ):
        b = Builder()
        y = b.node("ReduceMean", b.input("x", shape), axes=list(range(2, len(shape))))
        assert_stays(RULES, b.model(y), says)
    b = Builder()
    assert_stays(RULES, b.model(b.node("ReduceMax", b.input("x", [2, 3, 4]), axes=[2])))
