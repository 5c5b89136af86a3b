"""Linear operators in a row."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surgeon_passes.patterns.sequence import compose_convolutions, compose_gemms, compose_matmuls

from . import harness
from .covering import declines, property_of
from .harness import Builder, apply, assert_equal, assert_equal_to_rounding, constants, reference, run

RULES = [compose_convolutions, compose_gemms, compose_matmuls]
SIZES = ({"N": 2, "H": 9, "W": 11, "D": 8}, {"N": 1, "H": 12, "W": 8, "D": 9})
DIMS = ("H", "W", "D")


def composed(model: onnx.ModelProto, tolerance: float | None = None, **left: int) -> onnx.ModelProto:
    result = apply(RULES, model)
    assert result.ops == left
    assert_equal(model, result.model, SIZES, tolerance)
    return result.model


assert_stays = partial(harness.assert_stays, RULES)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_expand_and_squeeze(rank: int) -> None:
    """SESR's collapsible block: 1x1 to many channels, then kxk back."""
    b = Builder()
    x = b.input("x", ["N", 3, *DIMS[:rank]])
    wide = b.conv(x, 3, 16, [1] * rank, bias=True)
    composed(b.model(b.conv(wide, 16, 4, [3] * rank, bias=True)), Conv=1)


def test_a_chain_of_three() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H", "W"])
    a = b.conv(x, 2, 16, [3, 3], pads=[1] * 4)
    composed(b.model(b.conv(b.conv(a, 16, 16, [1, 1]), 16, 2, [1, 1], bias=True)), Conv=1)


def test_depthwise_twice() -> None:
    b = Builder()
    x = b.input("x", ["N", 4, "H", "W"])
    a = b.conv(x, 4, 4, [1, 3], group=4, pads=[0, 1, 0, 1])
    found = composed(b.model(b.conv(a, 4, 4, [1, 1], group=4)), Conv=1)
    assert next(a.shape for a in constants(found).values()) == (4, 1, 1, 3)


def test_padding_after_a_convolution_without_bias() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H", "W"])
    composed(b.model(b.conv(b.conv(x, 2, 16, [1, 1]), 16, 2, [3, 3], pads=[1] * 4, bias=True)), Conv=1)


@declines("compose_convolutions")
def test_padding_after_a_bias_stays() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H", "W"])
    model = b.model(b.conv(b.conv(x, 2, 16, [1, 1], bias=True), 16, 2, [3, 3], pads=[1] * 4))
    assert_stays(model, "its padding puts zeros where the convolution before it would give its bias")


@declines("compose_convolutions")
def test_a_dearer_one_stays() -> None:
    b = Builder()
    x = b.input("x", ["N", 64, "H", "W"])
    model = b.model(b.conv(b.conv(x, 64, 4, [1, 1]), 4, 64, [1, 1]))
    assert_stays(model, "as one they would hold 8x the weights (512 to 4096)")


@declines("compose_convolutions")
def test_separable_stays() -> None:
    b = Builder()
    x = b.input("x", ["N", 8, "H", "W"])
    model = b.model(b.conv(b.conv(x, 8, 8, [3, 3], group=8), 8, 8, [1, 1]))
    assert_stays(model, "as one they would hold 4.24x the weights (136 to 576)")


@declines("compose_convolutions")
def test_more_arithmetic_at_equal_weights_stays() -> None:
    """The wide border of the second costs it one weight an element; the one would do the first's arithmetic there, too."""
    b = Builder()
    x = b.input("x", [1, 1, 2, 2])
    model = b.model(b.conv(b.conv(x, 1, 1, [3, 3], pads=[2] * 4), 1, 1, [1, 1], pads=[4] * 4))
    assert_stays(model, "the multiply-accumulates")


@declines("compose_convolutions")
def test_one_that_is_read_elsewhere_stays() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H"])
    inner = b.conv(x, 2, 16, [1])
    model = b.model(b.conv(inner, 16, 2, [3]), b.node("Relu", inner))
    assert_stays(model, "is also used by Relu")


@declines("compose_convolutions")
def test_a_shared_weight_stays() -> None:
    b = Builder()
    x = b.input("x", ["N", 4, "H"])
    w = b.random(4, 4, 1)
    a = b.node("Conv", b.node("Conv", x, w), w)
    assert_stays(b.model(a), "has other users")


@declines("compose_convolutions")
def test_automatic_pads_of_an_unknown_size_stay() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H"])
    model = b.model(b.conv(b.conv(x, 2, 16, [3], strides=[2], auto_pad="SAME_UPPER"), 16, 2, [1]))
    assert_stays(model, "pads depend on an input size that is not known")


@pytest.mark.parametrize("transposed", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("bias", ["", "first", "second", "both"])
def test_gemms(transposed: tuple[int, int], bias: str) -> None:
    b = Builder()
    x = b.input("x", ["N", 3])
    w = b.random(8, 3) if transposed[0] else b.random(3, 8)
    v = b.random(2, 8) if transposed[1] else b.random(8, 2)
    first = [b.random(8)] if bias in ("first", "both") else []
    second = [b.random(1, 2)] if bias in ("second", "both") else []
    c = b.node("Gemm", x, w, *first, transB=transposed[0], alpha=0.5, beta=2.0)
    found = composed(b.model(b.node("Gemm", c, v, *second, transB=transposed[1], alpha=3.0, beta=-1.0)), Gemm=1)
    assert len(found.graph.node[0].input) == (3 if bias else 2)


@pytest.mark.parametrize("opset", [9, 10, 11, 13])
def test_gemms_at_old_opsets(opset: int) -> None:
    b = Builder(opset=opset)
    x = b.input("x", ["N", 3])
    c = b.node("Gemm", x, b.random(3, 8), b.random(8))
    composed(b.model(b.node("Gemm", c, b.random(8, 2), b.random(2))), Gemm=1)


@declines("compose_gemms")
def test_a_gemm_that_transposes_stays() -> None:
    b = Builder()
    x = b.input("x", [4, 3])
    c = b.node("Gemm", x, b.random(3, 8))
    assert_stays(b.model(b.node("Gemm", c, b.random(4, 2), transA=1)), "transposes what the first gives")


@declines("compose_gemms")
def test_a_bottleneck_stays() -> None:
    b = Builder()
    x = b.input("x", ["N", 8])
    model = b.model(b.node("Gemm", b.node("Gemm", x, b.random(8, 2)), b.random(2, 8)))
    assert_stays(model, "as one they would hold 2x the weights (32 to 64)")


@declines("compose_gemms")
def test_a_bias_that_differs_by_row_stays() -> None:
    b = Builder()
    x = b.input("x", [2, 3])
    c = b.node("Gemm", x, b.random(3, 8), b.random(2, 8))
    assert_stays(b.model(b.node("Gemm", c, b.random(8, 2))), "is not one number a channel")


@pytest.mark.parametrize("rank", [2, 3, 4])
@pytest.mark.parametrize("bias", [False, True])
def test_matmuls(rank: int, bias: bool) -> None:
    b = Builder()
    x = b.input("x", ["N", *DIMS[: rank - 2], 3])
    c = b.node("MatMul", x, b.random(3, 8))
    if bias:
        c = b.node("Add", c, b.random(8))
    composed(b.model(b.node("MatMul", c, b.random(8, 2))), **({"MatMul": 1, "Add": 1} if bias else {"MatMul": 1}))


@declines("compose_matmuls")
def test_a_batch_of_matrices_stays() -> None:
    b = Builder()
    x = b.input("x", [2, 4, 3])
    assert_stays(b.model(b.node("MatMul", b.node("MatMul", x, b.random(2, 3, 8)), b.random(8, 2))), "is no matrix")


def _must_compose(model: onnx.ModelProto) -> bool:
    """The second does not pad, and even the one over every place between the outermost taps would hold no more weights."""
    (w, first), (v, second) = [
        (constants(model)[n.input[1]], {a.name: onnx.helper.get_attribute_value(a) for a in n.attribute})
        for n in model.graph.node
    ]
    if any(second["pads"]):
        return False
    reach = [
        (a - 1) * d + s * (c - 1) * e + 1
        for a, d, s, c, e in zip(
            w.shape[2:], first["dilations"], first["strides"], v.shape[2:], second["dilations"], strict=True
        )
    ]
    return len(v) * 4 * int(np.prod(reach)) <= w.size + v.size


@property_of("compose_convolutions")
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([np.float32, np.float16, np.float64]))
def test_any_two_convolutions(seed: int, dtype: Any) -> None:
    rng = np.random.default_rng(seed)
    b = Builder(dtype, seed=seed)
    rank = int(rng.integers(1, 3))
    x = b.input("x", ["N", 4, *DIMS[:rank]])

    def conv(y: str, cin: int, cout: int, pads: Any) -> str:
        group = int(rng.choice([g for g in (1, 2, 4) if cin % g == 0 and cout % g == 0]))
        kernel, strides, dilations = (rng.integers(1, 3, rank).tolist() for _ in range(3))
        form = {"strides": strides, "dilations": dilations, "pads": pads}
        return b.conv(y, cin, cout, kernel, group=group, bias=bool(rng.integers(2)), **form)

    middle, out = int(rng.choice([4, 16])), int(rng.choice([2, 4]))
    inner = conv(x, 4, middle, rng.integers(0, 2, 2 * rank).tolist())
    model = b.model(conv(inner, middle, out, (rng.integers(0, 2, 2 * rank) * rng.integers(0, 2)).tolist()))
    result = apply(compose_convolutions, model)
    assert result.applied or not _must_compose(model), result.reasons
    runner = reference if dtype is np.float64 else run
    assert_equal_to_rounding(model, result.model, SIZES[:1], runner)


WIDTHS = st.integers(1, 6)
DTYPES = st.sampled_from([np.float32, np.float16, np.float64])
BIASES = st.sampled_from([None, (), (1,), (1, 1), "vector", "row"])


def biased(b: Builder, kind: Any, features: int) -> list[str]:
    """One constant of the kind, or none."""
    shape = {"vector": (features,), "row": (1, features)}.get(kind, kind)
    return [] if shape is None else [b.random(*shape)]


@property_of("compose_gemms")
@settings(max_examples=30, deadline=None)
@given(
    st.tuples(WIDTHS, WIDTHS, WIDTHS), st.tuples(BIASES, BIASES), st.tuples(*[st.integers(0, 1)] * 3), DTYPES,
    st.sampled_from([9, 11, 17]), st.sampled_from([0.5, 1.0, 3.0]), st.sampled_from([0.0, 0.5, 1.0]),
    st.integers(0, 99),
)  # fmt: skip
def test_any_two_gemms(
    widths: tuple[int, int, int], biases: tuple[Any, Any], turned: tuple[int, int, int], dtype: Any, opset: int,
    alpha: float, beta: float, seed: int,
) -> None:  # fmt: skip
    b = Builder(dtype, opset, seed)
    k, m, n = widths
    kinds = [kind or "vector" for kind in biases] if opset < 11 else biases
    x = b.input("x", [k, "N"] if turned[0] else ["N", k])
    w, v = b.random(*((m, k) if turned[1] else (k, m))), b.random(*((n, m) if turned[2] else (m, n)))
    c = b.node("Gemm", x, w, *biased(b, kinds[0], m), transA=turned[0], transB=turned[1], alpha=alpha, beta=beta)
    model = b.model(b.node("Gemm", c, v, *biased(b, kinds[1], n), transB=turned[2], alpha=alpha, beta=2.0))
    result = apply(compose_gemms, model)
    assert result.ops == {"Gemm": 1 if k * n <= m * (k + n) else 2}, result.reasons
    assert_equal_to_rounding(model, result.model, SIZES)


@property_of("compose_matmuls")
@settings(max_examples=30, deadline=None)
@given(st.integers(2, 4), st.tuples(WIDTHS, WIDTHS, WIDTHS), BIASES, st.booleans(), DTYPES, st.integers(0, 99))
def test_any_two_matmuls(
    rank: int, widths: tuple[int, int, int], bias: Any, first: bool, dtype: Any, seed: int
) -> None:
    b = Builder(dtype, seed=seed)
    k, m, n = widths
    c = b.node("MatMul", b.input("x", ["N", *DIMS[: rank - 2], k]), b.random(k, m))
    held = biased(b, bias, m)
    if held:
        c = b.node("Add", *([*held, c] if first else [c, *held]))
    model = b.model(b.node("MatMul", c, b.random(m, n)))
    result = apply(compose_matmuls, model)
    products = {"MatMul": 1 if k * n <= m * (k + n) else 2}
    assert result.ops == (products | {"Add": 1} if held else products), result.reasons
    assert_equal_to_rounding(model, result.model, SIZES)


@declines("compose_matmuls")
@pytest.mark.parametrize(
    ("shape", "reason"), [((1, 1, 4), "may raise the rank"), ((3, 1), "is not one number a channel")]
)
def test_matmuls_with_another_sum_between_stay(shape: tuple[int, ...], reason: str) -> None:
    b = Builder()
    c = b.node("Add", b.node("MatMul", b.input("x", [3, 2]), b.random(2, 4)), b.random(*shape))
    assert_stays(b.model(b.node("MatMul", c, b.random(4, 2)), rank=max(2, len(shape))), reason)


@pytest.mark.parametrize("op", ["Conv", "Gemm", "MatMul"])
def test_empty_weights_stay(op: str) -> None:
    b = Builder()
    taps = [1] if op == "Conv" else []
    x = b.input("x", ["N", 2, 5] if taps else ["N", 2])
    first, second = ((0, 2), (3, 0)) if taps else ((2, 0), (0, 3))
    y = b.node(op, b.node(op, x, b.random(*first, *taps)), b.random(*second, *taps))
    assert_stays(b.model(y), "holds no elements")
