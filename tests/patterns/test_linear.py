"""Linear layers: MatMul and Add, Gemm, and the Reshapes around them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import surgeon_passes as sp
from surgeon_passes.patterns import linear
from surgeon_passes.rules.registry import rules_of

from .covering import declines, property_of
from .harness import Builder, apply, assert_equal, assert_equal_to_rounding, constants, operators
from .test_reshape import dims

RULES = list(rules_of(linear))
SIZES = ({"N": 2, "T": 3}, {"N": 1, "T": 1}, {"N": 0, "T": 3}, {"N": 4, "T": 0})
TOLERANCE = {np.float32: 3e-6, np.float64: 1e-13, np.float16: 2e-3}


def assert_becomes(model: onnx.ModelProto, *, sizes: Any = SIZES, tolerance: float = 3e-6, **left: int) -> Any:
    result = apply(RULES, model)
    assert result.ops == left, result.reasons
    assert_equal(model, result.model, sizes, tolerance)
    strict = sp.Pipeline(sp.Rewrite(*RULES)).run(model)
    assert strict.undone == [] and {d.verdict for d in strict.applied} == {"verified"}
    return result.model


def assert_stays(model: onnx.ModelProto, reason: str = "") -> None:
    result = apply(RULES, model)
    assert result.ops == operators(model)
    assert any(reason in r for r in result.reasons) if reason else not result.reasons, result.reasons


# --- MatMul and Add ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (1, 3), (1, 1)])
@pytest.mark.parametrize("bias_first", [False, True])
def test_a_layer_on_a_matrix(dtype: Any, shape: tuple[int, ...], bias_first: bool) -> None:
    b = Builder(dtype)
    p = b.node("MatMul", b.input("x", ["N", 4]), b.random(4, 3))
    bias = b.constant(np.full(shape, 0.5) if not shape else b.rng.standard_normal(shape))
    y = b.node("Add", *((bias, p) if bias_first else (p, bias)))
    after = assert_becomes(b.model(y), tolerance=TOLERANCE[dtype], Gemm=1)
    assert constants(after)[after.graph.node[0].input[2]].dtype == dtype


@pytest.mark.parametrize("shape", [(2, 1), (2, 3)])
def test_a_bias_that_varies_over_known_rows(shape: tuple[int, ...]) -> None:
    b = Builder()
    y = b.node("Add", b.node("MatMul", b.input("x", [2, 4]), b.random(4, 3)), b.random(*shape))
    assert_becomes(b.model(y), Gemm=1)


@declines("fuse_linear")
@pytest.mark.parametrize("shape", [(2, 1), (2, 3), (1, 1, 1), (1, 1, 3)])
def test_a_bias_that_may_enlarge_the_product_stays(shape: tuple[int, ...]) -> None:
    b = Builder()
    y = b.node("Add", b.node("MatMul", b.input("x", ["N", 4]), b.random(4, 3)), b.random(*shape))
    assert_stays(b.model(y, rank=len(shape)), "may enlarge the product")


def test_one_column_that_a_bias_widens_stays() -> None:
    b = Builder()
    y = b.node("Add", b.node("MatMul", b.input("x", ["N", 4]), b.random(4, 1)), b.random(3))
    assert_stays(b.model(y), "may enlarge the product")


def test_more_dims_stay() -> None:
    b = Builder()
    assert_stays(b.model(b.node("Add", b.node("MatMul", b.input("x", ["N", "T", 4]), b.random(4, 3)), b.random(3))))
    b = Builder()
    y = b.node("Add", b.node("MatMul", b.input("x", [4]), b.random(4, 3)), b.random(3))
    assert_stays(b.model(y))
    b = Builder()
    assert_stays(b.model(b.node("Add", b.node("MatMul", b.input("x", [2, 4]), b.random(2, 4, 3)), b.random(3)), rank=3))


def test_integers_stay() -> None:
    b = Builder(np.int32)
    weight, bias = b.constant(np.ones((4, 3)), np.int32), b.constant([1, 2, 3], np.int32)
    y = b.node("Add", b.node("MatMul", b.input("x", ["N", 4]), weight), bias)
    assert_stays(b.model(y), "no Gemm for the type")


def test_a_product_that_is_read_elsewhere_stays() -> None:
    b = Builder()
    p = b.node("MatMul", b.input("x", ["N", 4]), b.random(4, 3))
    assert_stays(b.model(b.node("Add", p, b.random(3)), b.node("Relu", p)), "is also used by")
    b = Builder()
    p = b.node("MatMul", b.input("x", ["N", 4]), b.random(4, 3))
    assert_stays(b.model(b.node("Add", p, b.random(3)), p), "is a graph output")


def test_a_layer_without_inner_dims() -> None:
    b = Builder()
    y = b.node("Add", b.node("MatMul", b.input("x", ["N", 0]), b.random(0, 3)), b.random(3))
    assert_becomes(b.model(y), Gemm=1)


def test_old_broadcasting_stays() -> None:
    b = Builder(opset=6)
    y = b.node("Add", b.node("MatMul", b.input("x", ["N", 4]), b.random(4, 3)), b.random(3), broadcast=1)
    assert_stays(b.model(y))


# --- Reshape, Gemm, Reshape ----------------------------------------------------------------------------------------------


def wrapped(b: Builder, x: str, back: Any, bias: str = "", weight: str = "", flat: str = "", **attrs: Any) -> str:
    flat = flat or str(b.node("Reshape", x, b.constant([-1, 4])))
    operands = [flat, weight or b.random(4, 3), *([bias] if bias else [])]
    target = back if isinstance(back, str) else b.constant(back)
    return str(b.node("Reshape", b.node("Gemm", *operands, **attrs), target))


def test_a_wrapped_layer_loses_what_computed_its_shape() -> None:
    b = Builder()
    x = b.input("x", ["N", "T", 4])
    y = wrapped(b, x, dims(b, x, [0], [1], 3), b.random(3))
    assert_becomes(b.model(y), sizes=SIZES[:2], MatMul=1, Add=1)


@pytest.mark.parametrize(
    ("shape", "back"), [([2, 5, 4], [2, 5, 3]), (["N", 5, 4], [-1, 5, 3]), ([2, 5, 2, 4], [2, 5, 2, 3])]
)
def test_a_wrapped_layer_with_a_constant_target(shape: Any, back: list[int]) -> None:
    b = Builder()
    assert_becomes(b.model(wrapped(b, b.input("x", shape), back, b.random(3))), sizes=SIZES[:3], MatMul=1, Add=1)
    b = Builder()
    assert_becomes(b.model(wrapped(b, b.input("x", shape), back)), sizes=SIZES[:3], MatMul=1)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (1, 3), (1, 1)])
@pytest.mark.parametrize(
    "attrs", [{}, {"alpha": 0.5}, {"beta": 2.0}, {"alpha": 2.0, "beta": -1.0, "transB": 1}, {"beta": 0.0}]
)
def test_factors_and_transposed_weights(shape: tuple[int, ...], attrs: Any) -> None:
    b = Builder()
    weight = b.random(3, 4) if attrs.get("transB") else b.random(4, 3)
    bias = b.constant(b.rng.standard_normal(shape or 1).reshape(shape).astype(np.float32))
    model = b.model(wrapped(b, b.input("x", [2, 5, 4]), [2, 5, 3], bias, weight, **attrs))
    assert_becomes(model, MatMul=1, **({} if attrs.get("beta") == 0 else {"Add": 1}))


def test_rows_by_flatten() -> None:
    b = Builder()
    x = b.input("x", ["N", 5, 4])
    y = wrapped(b, x, [-1, 5, 3], b.random(3), flat=b.node("Flatten", x, axis=2))
    assert_becomes(b.model(y), sizes=SIZES[:3], MatMul=1, Add=1)


@declines("unflatten_linear")
@pytest.mark.parametrize(
    ("shape", "back", "reason"),
    [
        ([2, 6, 2], [2, 3, 3], "is not known to be 4"),
        (["N", "T", "C"], [-1, 3, 3], "is not known to be 4"),
        ([2, 6, 4], [3, 4, 3], "does not certainly have the leading dims"),
        ([2, 6, 4], [12, 3], "does not certainly have the leading dims"),
        (["N", 6, 4], [6, -1, 3], "does not certainly have the leading dims"),
        (["N", "T", 4], [2, -1, 3], "does not certainly have the leading dims"),
    ],
)
def test_other_rows_and_other_shapes_stay(shape: Any, back: list[int], reason: str) -> None:
    b = Builder()
    assert_stays(b.model(wrapped(b, b.input("x", shape), back, b.random(3)), rank=len(back)), reason)


def test_a_bias_over_rows_stays() -> None:
    b = Builder()
    model = b.model(wrapped(b, b.input("x", [2, 3, 4]), [2, 3, 3], b.random(6, 1)))
    assert_stays(model, "not one number a feature")
    b = Builder()
    model = b.model(wrapped(b, b.input("x", [1, 3, 4]), [1, 3, 3], b.random(3, 1)))
    assert_stays(model, "not one number a feature")


def test_a_transposed_input_stays() -> None:
    b = Builder()
    flat = b.node("Reshape", b.input("x", [2, 3, 4]), b.constant([4, -1]))
    assert_stays(b.model(wrapped(b, "x", [2, 3, 3], b.random(3), flat=flat, transA=1)), "")


@declines("unflatten_linear")
def test_a_shared_weight_is_not_transposed() -> None:
    b = Builder()
    weight = b.random(3, 4)
    y = wrapped(b, b.input("x", [2, 5, 4]), [2, 5, 3], weight=weight, transB=1)
    other = b.node("Gather", weight, b.input("i", [2], np.int64))
    model = b.model(y, other)
    assert_stays(model, "would keep a second copy")


# --- before heads are split ----------------------------------------------------------------------------------------------


def head(b: Builder, x: str, target: list[int], shape: tuple[int, ...] = (4,)) -> str:
    return str(
        b.node("Reshape", b.node("Add", b.node("MatMul", x, b.random(4, 4)), b.random(*shape)), b.constant(target))
    )


@pytest.mark.parametrize(
    ("shape", "target", "expected"),
    [
        ([2, 5, 4], [2, 5, 2, 2], [2, 5, 2, 2]),
        ([2, 5, 4], [0, 0, 2, -1], [2, 5, 2, -1]),
        (["N", 5, 4], [0, 5, 2, 2], [-1, 5, 2, 2]),
        (["N", "T", 4], [-1, 2, 2], [-1, 2, 2]),
        ([2, 5, 3, 4], [3, 0, 8], [3, 5, 8]),
    ],
)
def test_layers_that_read_the_same_rows(shape: Any, target: list[int], expected: list[int]) -> None:
    b = Builder()
    x = b.node("Neg", b.input("x", shape))
    model = b.model(*(head(b, x, target, s) for s in ((4,), (1, 4), ())), rank=len(target))
    found = assert_becomes(model, sizes=SIZES[:3], Neg=1, Reshape=6, Gemm=3)
    made = {n.input[1] for n in found.graph.node if n.op_type == "Reshape"}
    assert sorted({tuple(constants(found)[t].tolist()) for t in made}) == sorted({(-1, 4), tuple(expected)})


@declines("flatten_linear")
def test_a_single_layer_before_a_reshape_stays() -> None:
    b = Builder()
    x = b.node("Neg", b.input("x", [2, 5, 4]))
    model = b.model(head(b, x, [2, 5, 2, 2]), b.node("Relu", x), rank=4)
    model.graph.output[1].type.tensor_type.shape.dim.pop()
    assert_stays(model, "no other linear layer reads the rows")


@pytest.mark.parametrize(
    ("shape", "target", "reason"),
    [
        (["N", "T", 4], [0, 0, 2, 2], "copies a dim"),
        (["N", 5, 4], [0, 5, -1, 2], "copies a dim"),
        ([2, 5, 4], [2, 5, 4], "gives back the shape"),
        (["N", 5, 4], [-1, 5, 4], "gives back the shape"),
        ([10, 4], [2, 5, 4], ""),
    ],
)
def test_what_is_not_flattened(shape: Any, target: list[int], reason: str) -> None:
    b = Builder()
    x = b.node("Neg", b.input("x", shape))
    model = b.model(head(b, x, target), head(b, x, target), rank=len(target))
    result = apply([linear.flatten_linear], model)
    assert result.ops == operators(model)
    assert (
        any(reason in r for r in result.reasons) if reason else not result.reasons
    )  # a matrix already: not its subject


def test_flattened_layers_do_not_flip_back() -> None:
    """All rules together come to rest, and verification holds at both sizes of the batch."""
    b = Builder()
    x = b.node("Neg", b.input("x", ["N", 5, 4]))
    parts = [head(b, x, [-1, 5, 2, 2]) for _ in range(3)]
    result = sp.optimize(b.model(*parts, rank=4))
    assert result.converged and result.undone == []
    assert result.after.operators["Gemm"] == 3


def two_layers(b: Builder, shape: Any, target: list[int], op: str = "Relu", width: int = 1) -> onnx.ModelProto:
    h = b.node("Add", b.node("MatMul", b.input("x", shape), b.random(4, 6)), b.random(6))
    p = b.node("MatMul", b.node(op, h), b.random(6, width))
    return b.model(b.node("Reshape", b.node("Add", p, b.random(width)), b.constant(target)), rank=len(target))


@pytest.mark.parametrize("op", ["Relu", "LeakyRelu", "Sigmoid", "Tanh"])
@pytest.mark.parametrize(("shape", "target"), [([2, 5, 4], [-1]), (["N", 5, 4], [0, 5]), (["N", "T", 4], [-1, 1])])
def test_two_layers_before_a_reshape(op: str, shape: Any, target: list[int]) -> None:
    b = Builder()
    assert_becomes(two_layers(b, shape, target, op), sizes=SIZES[:3], Reshape=2, Gemm=2, **{op: 1})


@pytest.mark.parametrize(
    ("shape", "target", "op", "reason"),
    [
        (["N", "T", 4], [0, 0], "Relu", "copies a dim"),
        ([2, 5, 4], [2, 5, 1], "Relu", "gives back the shape"),
        ([2, 5, 4], [-1], "Softmax", "stands where"),
        ([10, 4], [-1], "Relu", None),
    ],
)
def test_two_layers_that_stay(shape: Any, target: list[int], op: str, reason: str | None) -> None:
    b = Builder()
    model = two_layers(b, shape, target, op)
    result = apply([linear.flatten_two_linears], model)
    assert result.ops == operators(model)
    assert reason is None or any(reason in r for r in result.reasons), result.reasons


@declines("flatten_two_linears")
def test_an_inner_layer_that_is_read_elsewhere_stays() -> None:
    b = Builder()
    model = two_layers(b, [2, 5, 4], [-1])
    model.graph.output.append(onnx.helper.make_tensor_value_info("add1", 1, [2, 5, 6]))
    result = apply([linear.flatten_two_linears], model)
    assert result.ops == operators(model)
    assert any("is a graph output" in r for r in result.reasons)


# --- drawn ---------------------------------------------------------------------------------------------------------------


DRAWN = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
FLOATS = st.sampled_from([np.float32, np.float16, np.float64])
BIASES = st.sampled_from([(), (1,), (3,), (1, 3), (1, 1)])


@property_of("fuse_linear")
@DRAWN
@given(rows=st.sampled_from(["N", 1, 5]), inner=st.integers(1, 6), bias=BIASES, front=st.booleans(), dtype=FLOATS)
def test_any_layer_on_a_matrix(rows: Any, inner: int, bias: tuple[int, ...], front: bool, dtype: Any) -> None:
    b = Builder(dtype)
    p = b.node("MatMul", b.input("x", [rows, inner]), b.random(inner, 3))
    k = b.random(*bias)
    model = b.model(b.node("Add", *((k, p) if front else (p, k))))
    found = apply(RULES, model)
    assert found.ops == {"Gemm": 1}, found.reasons
    assert_equal_to_rounding(model, found.model, SIZES)


@property_of("unflatten_linear")
@DRAWN
@given(
    lead=st.lists(st.sampled_from(["N", 2, 5]), min_size=2, max_size=3, unique=True),
    bias=st.none() | BIASES,
    trans=st.integers(0, 1),
    alpha=st.sampled_from([1.0, 0.5]),
    beta=st.sampled_from([1.0, -2.0]),
    dtype=FLOATS,
)
def test_any_wrapped_layer(lead: list[Any], bias: Any, trans: int, alpha: float, beta: float, dtype: Any) -> None:
    b = Builder(dtype)
    x = b.input("x", [*lead, 4])
    weight = b.random(3, 4) if trans else b.random(4, 3)
    held = "" if bias is None else b.random(*bias)
    back = [-1 if d == "N" else d for d in lead]
    model = b.model(wrapped(b, x, [*back, 3], held, weight, transB=trans, alpha=alpha, beta=beta))
    found = apply([linear.unflatten_linear], model)
    assert found.ops == ({"MatMul": 1} if bias is None else {"MatMul": 1, "Add": 1}), found.reasons
    assert_equal_to_rounding(model, found.model, SIZES[:3])


@property_of("flatten_linear", "flatten_two_linears")
@DRAWN
@given(
    batch=st.sampled_from(["N", 2]),
    target=st.sampled_from([[-1, 5, 2, 2], [-1, 20], [-1, 2], [0, -1]]),
    bias=st.sampled_from([(), (1,), (4,), (1, 4)]),
    op=st.sampled_from(["Relu", "Tanh", "Sigmoid"]),
    dtype=FLOATS,
)
def test_any_layers_before_a_reshape(batch: Any, target: list[int], bias: tuple[int, ...], op: str, dtype: Any) -> None:
    target = [-1, 20] if target == [0, -1] and batch == "N" else target
    b = Builder(dtype)
    x = b.node("Neg", b.input("x", [batch, 5, 4]))
    model = b.model(*(head(b, x, target, bias) for _ in range(2)), rank=len(target))
    found = apply(RULES, model)
    assert found.ops == {"Neg": 1, "Gemm": 2, "Reshape": 4}, found.reasons
    assert_equal_to_rounding(model, found.model, SIZES[:2])
    b = Builder(dtype)
    model = two_layers(b, [batch, 5, 4], [-1], op, 2)
    found = apply(RULES, model)
    assert found.ops == {"Reshape": 2, "Gemm": 2, op: 1}, found.reasons
    assert_equal(model, found.model, SIZES[:2], TOLERANCE[dtype])
