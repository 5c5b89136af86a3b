"""Chains of operations with constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from surgeon_passes.patterns import constant_chain
from surgeon_passes.rules.registry import rules_of

from .covering import declines, property_of
from .harness import Builder, apply, assert_equal, constants, operators
from .moves import assert_stays

RULES = list(rules_of(constant_chain))
OPS = ["Mul", "Div", "Add", "Sub", "from"]


def _chain(b: Builder, x: str, steps: list[str], shapes: list[tuple[int, ...]]) -> str:
    for step, shape in zip(steps, shapes, strict=True):
        k = b.random(*shape, low=0.5) if b.dtype.kind == "f" else b.constant(b.rng.integers(-9, 9, shape), b.dtype)
        x = b.node("Neg", x) if step == "Neg" else b.node(*(("Sub", k, x) if step == "from" else (step, x, k)))
    return x


@property_of("merge_constant_pair", "merge_constant_chain")
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(st.sampled_from([*OPS, "Neg"]), min_size=2, max_size=4),
    shapes=st.lists(st.sampled_from([(), (1,), (3,), (2, 1), (1, 1, 3)]), min_size=4, max_size=4),
    dtype=st.sampled_from([np.float32, np.float64, np.float16, np.int32, np.int64]),
    seed=st.integers(0, 99),
)
def test_chains(steps: list[str], shapes: list[tuple[int, ...]], dtype: Any, seed: int) -> None:
    if np.dtype(dtype).kind == "i":
        steps = [step if step != "Div" else "Mul" for step in steps]
    b = Builder(dtype, seed=seed)
    y = _chain(b, b.input("x", ["N", 2, 3]), steps, shapes[: len(steps)])
    model = b.model(y)
    result = apply(RULES, model)
    assert sum(result.ops.values()) <= sum(operators(model).values())
    assert set(result.ops) <= {"Mul", "Add", "Sub", "Div", "Neg"}
    tolerance = {np.float32: 1e-5, np.float64: 1e-13, np.float16: 2e-2}.get(dtype, 0)
    assert_equal(model, result.model, [{"N": 2}], tolerance)


@pytest.mark.parametrize(
    ("steps", "left"),
    [
        (["Mul", "Div"], {"Mul": 1}),
        (["Add", "Sub"], {"Add": 1}),
        (["from", "from"], {"Add": 1}),
        (["from", "Add"], {"Sub": 1}),
        (["Mul", "Neg"], {"Mul": 1}),
        (["Neg", "Add"], {"Sub": 1}),
        (["Mul", "Add", "Mul"], {"Mul": 1, "Add": 1}),
        (["Sub", "Div", "Mul", "Add", "Mul"], {"Mul": 1, "Add": 1}),
    ],
)
def test_what_is_left(steps: list[str], left: dict[str, int]) -> None:
    b = Builder()
    model = b.model(_chain(b, b.input("x", ["N", 3]), steps, [(3,)] * len(steps)))
    result = apply(RULES, model)
    assert result.ops == left
    assert_equal(model, result.model, tolerance=1e-5)


def test_values() -> None:
    b = Builder()
    a = b.node("Div", b.node("Sub", b.input("x", ["N", 3]), b.constant([2.0, 4.0, 6.0])), b.constant(2.0))
    held = constants(apply(RULES, b.model(b.node("Add", a, b.constant(5.0)))).model)
    assert sorted(v.ravel().tolist() for v in held.values()) == [[0.5, 0.5, 0.5], [4.0, 3.0, 2.0]] or sorted(
        v.ravel().tolist() for v in held.values()
    ) == [[0.5], [4.0, 3.0, 2.0]]


def test_constants_that_give_the_result_its_rank_go_on_doing_so() -> None:
    b = Builder()
    y = b.node("Mul", b.node("Mul", b.input("x", ["N"]), b.constant([[2.0]])), b.constant(3.0))
    model = b.model(y, rank=2)
    result = apply(RULES, model)
    assert result.ops == {"Mul": 1}
    assert_equal(model, result.model)


@declines("merge_constant_pair")
@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (("Add", 1e8), ("Sub", 1e8), "nearly cancel"),
        (("Add", 12582912.0), ("Sub", 12582911.0), "nearly cancel"),
        (("Mul", 2.0), ("Div", 0.0), "divides by zero"),
        (("Mul", np.inf), ("Mul", 0.5), "not finite"),
        (("Mul", [[1.0], [2.0]]), ("Mul", [1.0, 2.0, 3.0]), "along different axes"),
        (("Mul", 1e30), ("Mul", 1e30), "overflows float32"),
    ],
)
def test_pairs_that_stay(first: tuple[str, Any], second: tuple[str, Any], reason: str) -> None:
    b = Builder()
    a = b.node(first[0], b.input("x", [2, 3]), b.constant(first[1]))
    assert_stays(b.model(b.node(second[0], a, b.constant(second[1]))), reason, rules=RULES)


@declines("merge_constant_chain")
def test_a_chain_that_cancels_stays() -> None:
    b = Builder()
    a = b.node("Mul", b.node("Add", b.input("x", [3]), b.constant(1e6)), b.constant(2.0))
    assert_stays(b.model(b.node("Sub", a, b.constant(2e6))), "nearly cancel", rules=RULES)


def test_a_division_of_integers_stays() -> None:
    b = Builder(np.int32)
    a = b.node("Mul", b.input("x", [3]), b.constant(3, np.int32))
    assert_stays(b.model(b.node("Div", a, b.constant(2, np.int32))), "a division of integers", rules=RULES)


def test_unsigned_integers_wrap_as_before() -> None:
    b = Builder(np.uint32)
    a = b.node("Sub", b.input("x", [3]), b.constant(7, np.uint32))
    model = b.model(b.node("Sub", a, b.constant(2**31, np.uint32)))
    result = apply(RULES, model)
    assert result.ops == {"Add": 1}
    x = np.array([0, 5, 2**32 - 1], np.uint32)
    assert_equal(model, result.model, [{}], tolerance=0, feeds={"x": x})


def test_an_inner_result_that_is_read_stays() -> None:
    b = Builder()
    a = b.node("Mul", b.input("x", [3]), b.constant(2.0))
    assert_stays(b.model(b.node("Mul", a, b.constant(3.0)), b.node("Relu", a)), "is also used by", rules=RULES)
