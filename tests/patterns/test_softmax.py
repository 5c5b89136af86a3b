"""Softmax and its logarithm, written out."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from surgeon_passes.patterns import softmax
from surgeon_passes.rules.registry import rules_of

from .covering import declines, property_of
from .fusing import assert_fuses, assert_stays, attributes
from .harness import Builder, run

RULES = list(rules_of(softmax))


def reduce(b: Builder, op: str, x: str, axes: list[int]) -> str:
    by_input = 13 if op == "ReduceSum" else 18
    return str(b.node(op, x, b.constant(axes)) if b.opset >= by_input else b.node(op, x, axes=axes))


def written_out(b: Builder, x: str, axes: list[int], log: bool) -> str:
    d = b.node("Sub", x, reduce(b, "ReduceMax", x, axes))
    e = b.node("Exp", d)
    total = reduce(b, "ReduceSum", e, axes)
    return str(b.node("Sub", d, b.node("Log", total)) if log else b.node("Div", e, total))


@property_of("fuse_softmax", "fuse_log_softmax", "fuse_softmax_along_inner_axis", "fuse_log_softmax_along_inner_axis")
def test_softmax_along_any_axis() -> None:
    @settings(max_examples=15, deadline=None)
    @given(
        st.lists(st.integers(1, 5), min_size=1, max_size=4),
        st.data(),
        st.sampled_from([13, 18]),
        st.sampled_from([np.float32, np.float16, np.float64]),
    )
    def check(log: bool, last: bool, shape: list[int], data: st.DataObject, opset: int, dtype: Any) -> None:
        axis = len(shape) - 1 if last else data.draw(st.integers(0, max(0, len(shape) - 2)))
        axis -= len(shape) * data.draw(st.integers(0, 1))
        b = Builder(dtype, opset=opset)
        found = assert_fuses(
            RULES, b.model(written_out(b, b.input("x", shape), [axis], log)), **{"LogSoftmax" if log else "Softmax": 1}
        )
        assert attributes(found.graph.node[0])["axis"] == axis

    for log, last in product((False, True), repeat=2):
        check(log, last)


@declines("fuse_softmax", "fuse_log_softmax", "fuse_softmax_along_inner_axis", "fuse_log_softmax_along_inner_axis")
def test_softmax_over_two_axes_stays() -> None:
    for log in (False, True):
        b = Builder(opset=18)
        assert_stays(RULES, b.model(written_out(b, b.input("x", [2, 3, 4]), [1, 2], log)), "over the axes [1, 2]")


def test_softmax_without_its_maximum_stays() -> None:
    b = Builder(opset=18)
    e = b.node("Exp", b.input("x", [2, 3]))
    assert_stays(RULES, b.model(b.node("Div", e, reduce(b, "ReduceSum", e, [1]))))


def test_sum_over_another_axis_stays() -> None:
    b = Builder(opset=18)
    x = b.input("x", [3, 3])
    e = b.node("Exp", b.node("Sub", x, reduce(b, "ReduceMax", x, [1])))
    assert_stays(RULES, b.model(b.node("Div", e, reduce(b, "ReduceSum", e, [0]))))


@property_of("fuse_log_of_softmax")
def test_log_of_softmax() -> None:
    @settings(max_examples=20, deadline=None)
    @given(st.lists(st.integers(1, 5), min_size=2, max_size=4), st.sampled_from([np.float32, np.float16, np.float64]))
    def check(shape: list[int], dtype: Any) -> None:
        b = Builder(dtype, opset=13)
        y = b.node("Log", b.node("Softmax", b.input("x", shape), axis=1))
        assert attributes(assert_fuses(RULES, b.model(y), LogSoftmax=1).graph.node[0])["axis"] == 1

    check()


@declines("fuse_log_of_softmax")
def test_a_softmax_that_is_read_elsewhere_stays() -> None:
    b = Builder(opset=13)
    s = b.node("Softmax", b.input("x", [2, 3]))
    assert_stays(RULES, b.model(b.node("Log", s), b.node("Neg", s)), "is also used by")


def test_log_of_a_softmax_of_zero_is_nearer_the_truth() -> None:
    b = Builder(opset=13)
    model = b.model(b.node("Log", b.node("Softmax", b.input("x", [1, 2]))))
    feeds = {"x": np.array([[0.0, 200.0]], np.float32)}
    (after,) = run(assert_fuses(RULES, model, LogSoftmax=1), feeds).values()
    assert np.isinf(run(model, feeds).popitem()[1][0, 0]) and after[0, 0] == -200


def test_along_another_axis_only_where_few_nodes_are_wanted() -> None:
    b = Builder(opset=18)
    model = b.model(written_out(b, b.input("x", [2, 3, 4]), [1], False))
    default = [r for r in RULES if "fusion" in r.sets]
    assert_stays(default, model, "the sum is over axis 1, not certainly the last")
    assert_fuses(RULES, model, Softmax=1)
