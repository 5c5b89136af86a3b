"""Tensors that are one number or count up: what is seen through, and what is not."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest

import surgeon_passes as sp
from surgeon_passes.runtime import Session
from tests.models import run


def optimized(body: str, signature: str, sizes: list[dict[str, Any]]) -> sp.Result:
    """Strictly verified, and the same to the bit at each of ``sizes``."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {signature} {body}')
    onnx.checker.check_model(model)
    result = sp.optimize(model, verify=sp.Verify(data=lambda: sizes))
    assert result.exit_code == 0, result.report()
    for feeds in sizes:
        for name, value in Session(result.proto).run(feeds).items():
            np.testing.assert_array_equal(value, run(model, **feeds)[name])
    return result


def rules(result: sp.Result) -> Counter[str]:
    return Counter(d.rule for d in result.applied)


def floats(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


SHAPES = [{"x": floats(2, 3)}, {"x": floats(1, 1)}, {"x": floats(5, 4)}]


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Min", "Max"])
@pytest.mark.parametrize("order", ["x, c", "c, x"])
def test_one_number_is_a_scalar(op: str, order: str) -> None:
    body = f"{{ s = Shape(x) c = ConstantOfShape<value = float[1] {{3.0}}>(s) y = {op}({order}) }}"
    result = optimized(body, "(float[N,M] x) => (float[N,M] y)", SHAPES)
    assert rules(result)["use_scalar"] == 1
    assert [n.op_type for n in result.proto.graph.node if n.op_type != "Constant"] == [op]


def test_a_number_that_enlarges_the_result_stays() -> None:
    body = "{ s = Shape(w) c = ConstantOfShape<value = float[1] {3.0}>(s) y = Add(x, c) }"
    sizes = [{"x": floats(1, 3), "w": floats(2, 3)}, {"x": floats(1, 3), "w": floats(4, 3)}]
    result = optimized(body, "(float[1,3] x, float[N,3] w) => (float[N,3] y)", sizes)
    assert "use_scalar" not in rules(result)


def test_what_is_not_one_number_stays() -> None:
    body = """{ zero = Constant<value = int64 {0}>() one = Constant<value = int64 {1}>()
        s = Shape(x) n = Gather(s, one) r = Range(zero, n, one) f = Cast<to = 1>(r) y = Add(x, f) }"""
    assert "use_scalar" not in rules(optimized(body, "(float[N,M] x) => (float[N,M] y)", SHAPES))


@pytest.mark.parametrize(
    ("op", "value", "gone"), [("And", 1, True), ("And", 0, False), ("Or", 0, True), ("Or", 1, False)]
)
def test_masks(op: str, value: int, gone: bool) -> None:
    body = f"""{{ z = Constant<value = float {{0.0}}>() b = Greater(x, z) s = Shape(x)
        t = ConstantOfShape<value = bool[1] {{{value}}}>(s) y = {op}(t, b) }}"""
    result = optimized(body, "(float[N,M] x) => (bool[N,M] y)", SHAPES)
    assert (rules(result)["drop_neutral_mask"] == 1) is gone


RNN = "(float[S,N,2] x, float[1,3,2] w, float[1,3,3] r) => (float[1,N,3] y)"
CALL = "all, y = RNN<hidden_size = 3>(x, w, r, , , h)"
BATCH = """one = Constant<value = int64 {1}>() at = Constant<value = int64[1] {0}>()
    d = Constant<value = int64[1] {1}>() k = Constant<value = int64[1] {3}>()
    s = Shape(x) n = Gather(s, one) b = Unsqueeze(n, at) size = Concat<axis = 0>(d, b, k)"""


def steps(seed: int, *shape: int) -> dict[str, Any]:
    return {"x": floats(*shape, seed=seed), "w": floats(1, 3, 2), "r": floats(1, 3, 3)}


@pytest.mark.parametrize(("value", "gone"), [("0.0", True), ("0.5", False)])
def test_initial_states(value: str, gone: bool) -> None:
    body = f"{{ {BATCH} h = ConstantOfShape<value = float[1] {{{value}}}>(size) {CALL} }}"
    result = optimized(body, RNN, [steps(0, 4, 2, 2), steps(1, 1, 1, 2)])
    assert (rules(result)["drop_zero_state"] == 1) is gone
    assert (result.after.operators["ConstantOfShape"] == 0) is gone


def test_a_state_of_negative_zeros_stays() -> None:
    body = f"{{ {BATCH} h = ConstantOfShape<value = float[1] {{-0.0}}>(size) {CALL} }}"
    assert "drop_zero_state" not in rules(optimized(body, RNN, [steps(0, 4, 2, 2)]))


MASKED = """{{ first = Constant<value = int64 {{0}}>() second = Constant<value = int64 {{1}}>()
    step = Constant<value = int64 {{1}}>() a0 = Constant<value = int64[1] {{0}}>()
    a1 = Constant<value = int64[1] {{1}}>() flat = Constant<value = int64[1] {{-1}}>()
    s = Shape(x) n = Gather(s, first) m = Gather(s, second)
    rows = Range(first, n, step) columns = Range({start}, m, step)
    r = Unsqueeze(rows, a1) c = Unsqueeze(columns, a0) far = Mul(r, m) i = Add(far, c)
    f = Reshape(x, flat) y = Gather(f, i) }}"""


def test_a_gather_of_everything_is_no_gather() -> None:
    sizes = [{"x": floats(2, 4)}, {"x": floats(1, 4)}]
    result = optimized(MASKED.format(start="first"), "(float[N,4] x) => (float[N,4] y)", sizes)
    assert result.after.operators["Gather"] == 0 and result.after.operators["Range"] == 0


def test_a_gather_of_a_part_stays() -> None:
    """Columns from 1 on: one less than there are."""
    sizes = [{"x": floats(2, 3)}, {"x": floats(5, 4)}]
    result = optimized(MASKED.format(start="step"), "(float[N,M] x) => (float[N,L] y)", sizes)
    assert "gather_all_as_reshape" not in rules(result) and result.after.operators["Gather"] >= 1


def test_sizes_that_32_bits_may_not_hold_are_unknown() -> None:
    """3000 times 1,000,000 wraps: the mask is not true everywhere, though no size that is tried shows it."""
    body = """{ zero = Constant<value = int32 {0}>() one = Constant<value = int32 {1}>()
        million = Constant<value = int32 {1000000}>() at = Constant<value = int64 {0}>()
        s = Shape(c) n = Gather(s, at) k = Cast<to = 6>(n)
        r = Range(zero, k, one) q = Mul(r, million) t = GreaterOrEqual(q, zero) y = And(t, c) }"""
    sizes = [{"c": np.ones(4, bool)}, {"c": np.ones(3000, bool)}]
    result = optimized(body, "(bool[N] c) => (bool[N] y)", sizes)
    assert result.after.operators["And"] == 1


@pytest.mark.parametrize("op", ["Max", "Min"])
def test_zeros_keep_their_sign(op: str) -> None:
    body = f"""{{ s = Shape(x) one = Constant<value = float {{1.0}}>() c = ConstantOfShape<value = float[1] {{0.0}}>(s)
        m = {op}(c, x) y = Div(one, m) }}"""
    zeros = [{"x": np.array([-0.0, 0.0, -1.0, 2.0], np.float32)}, {"x": np.array([-0.0], np.float32)}]
    assert "use_scalar" not in rules(optimized(body, "(float[N] x) => (float[N] y)", zeros))


def test_a_negative_zero_is_cast_to_one() -> None:
    body = """{ s = Shape(x) z = ConstantOfShape<value = float[1] {-0.0}>(s) d = Cast<to = 11>(z)
        one = Constant<value = double {1.0}>() e = Add(d, d) y = Div(one, e) }"""
    optimized(body, "(float[N] x) => (double[N] y)", [{"x": floats(3)}, {"x": floats(1)}])
