"""LayerNormalization and RMSNormalization, written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import surgeon_passes as sp
from surgeon_passes.patterns import normalization
from surgeon_passes.rules.registry import rules_of

from .covering import declines, property_of
from .fusing import assert_fuses, assert_stays, attributes, unranked
from .harness import Builder, constants, operators, run

RULES = list(rules_of(normalization))


def mean(b: Builder, x: str, axes: list[int]) -> str:
    return str(b.node("ReduceMean", x, axes=axes) if b.opset < 18 else b.node("ReduceMean", x, b.constant(axes)))


def quotient(b: Builder, d: str, squared: str, how: str) -> str:
    """``d`` over the root of ``squared``."""
    match how:
        case "root":
            return str(b.node("Div", d, b.node("Sqrt", squared)))
        case "half":
            return str(b.node("Div", d, b.node("Pow", squared, b.constant(0.5))))
        case "reciprocal":
            return str(b.node("Mul", d, b.node("Reciprocal", b.node("Sqrt", squared))))
        case "one over":
            return str(b.node("Mul", b.node("Div", b.constant(1.0), b.node("Sqrt", squared)), d))
        case _:
            return str(b.node("Mul", b.node("Pow", squared, b.constant(-0.5)), d))


QUOTIENTS = ["root", "half", "reciprocal", "one over", "power"]


def square(b: Builder, d: str, how: str) -> str:
    return str(b.node("Pow", d, b.constant(2.0)) if how == "pow" else b.node("Mul", d, d))


def layer_norm(b: Builder, x: str, axes: list[int], *, squared: str = "pow", how: str = "root", eps: Any = 1e-5) -> str:
    d = b.node("Sub", x, mean(b, x, axes))
    return quotient(b, d, b.node("Add", b.constant(eps), mean(b, square(b, d, squared), axes)), how)


def rms_norm(b: Builder, x: str, axes: list[int], *, squared: str = "pow", how: str = "power", eps: Any = 1e-5) -> str:
    return quotient(b, x, b.node("Add", mean(b, square(b, x, squared), axes), b.constant(eps)), how)


@pytest.mark.parametrize("opset", [17, 18])
@pytest.mark.parametrize("squared", ["pow", "mul"])
@pytest.mark.parametrize("how", QUOTIENTS)
@pytest.mark.parametrize("axes", [[-1], [2], [-2, -1], [1, 2]])
def test_layer_normalization(axes: list[int], squared: str, how: str, opset: int) -> None:
    b = Builder(opset=opset)
    x = b.input("x", ["N", 4, 6])
    n = layer_norm(b, x, axes, squared=squared, how=how, eps=1e-3)
    dims = (4, 6) if len(axes) == 2 else (6,)
    y = b.node("Add", b.node("Mul", n, b.random(*dims)), b.random(*dims))
    found = assert_fuses(RULES, b.model(y), LayerNormalization=1)
    attrs = attributes(found.graph.node[0])
    assert attrs["axis"] == 3 - len(axes) and attrs["epsilon"] == pytest.approx(1e-3)


def test_layer_normalization_alone() -> None:
    b = Builder()
    assert_fuses(RULES, b.model(layer_norm(b, b.input("x", ["N", 6]), [-1])), LayerNormalization=1)


def test_constants_after_layer_normalization() -> None:
    b = Builder()
    scale, bias = b.rng.standard_normal((2, 6))
    n = b.node("LayerNormalization", b.input("x", ["N", 6]), b.constant(scale), b.constant(bias))
    held = constants(assert_fuses(RULES, b.model(b.node("Mul", b.constant(3.0), n)), LayerNormalization=1))
    np.testing.assert_allclose(held["k0.scaled"], 3 * scale, rtol=1e-6)
    np.testing.assert_allclose(held["k1.scaled"], 3 * bias, rtol=1e-6)


@pytest.mark.parametrize("shape", [(5, 1), (1, 6), (5, 6)])
def test_constants_along_other_axes_stay(shape: tuple[int, ...]) -> None:
    b = Builder()
    n = b.node("LayerNormalization", b.input("x", [5, 6]), b.random(6))
    assert_stays(RULES, b.model(b.node("Mul", n, b.random(*shape))), "does not go along the normalised axes")


@pytest.mark.parametrize(
    ("shape", "axes", "reason"),
    [
        (["N", 4, 6], [1], "are not the last ones"),
        (["N", 4, 6], [0, 2], "are not the last ones"),
        (["N", "T"], [-1], "the size of a normalised axis is unknown"),
    ],
)
def test_other_axes_stay(shape: list[Any], axes: list[int], reason: str) -> None:
    b = Builder()
    assert_stays(RULES, b.model(layer_norm(b, b.input("x", shape), axes)), reason)


def test_double_stays() -> None:
    b = Builder(np.float64)
    assert_stays(RULES, b.model(layer_norm(b, b.input("x", ["N", 6]), [-1])), "is double")


def test_an_epsilon_for_each_place_stays() -> None:
    b = Builder()
    assert_stays(
        RULES, b.model(layer_norm(b, b.input("x", [3, 6]), [-1], eps=np.ones((3, 1)))), "epsilon is not one number"
    )


def test_means_over_different_axes_stay() -> None:
    b = Builder()
    x = b.input("x", [4, 4])
    d = b.node("Sub", x, b.node("ReduceMean", x, axes=[1]))
    v = b.node("ReduceMean", b.node("Mul", d, d), axes=[0])
    y = b.node("Div", d, b.node("Sqrt", b.node("Add", v, b.constant(1e-5))))
    assert_stays(RULES, b.model(y))


@property_of("fuse_layer_normalization", "fuse_rms_normalization")
def test_normalizations_of_any_shape() -> None:
    @settings(max_examples=30, deadline=None)
    @given(
        st.lists(st.integers(1, 5), min_size=1, max_size=4),
        st.data(),
        st.sampled_from(["pow", "mul"]),
        st.sampled_from(QUOTIENTS),
        st.sampled_from([np.float32, np.float16]),
    )
    def check(rms: bool, shape: list[int], data: st.DataObject, squared: str, how: str, dtype: Any) -> None:
        first = data.draw(st.integers(0, len(shape) - 1))
        axes = [a - len(shape) * data.draw(st.integers(0, 1)) for a in range(first, len(shape))]
        b = Builder(dtype, opset=23)
        x = b.input("x", [*shape])
        n = (rms_norm if rms else layer_norm)(b, x, axes, squared=squared, how=how, eps=1e-2)
        y = b.node("Mul", n, b.random(*shape[first:]))
        found = assert_fuses(RULES, b.model(y), sizes=[{}], **{f"{'RMS' if rms else 'Layer'}Normalization": 1})
        assert attributes(found.graph.node[0])["axis"] == first

    check(True)
    check(False)


@declines("fuse_layer_normalization", "fuse_rms_normalization")
def test_what_is_no_normalization_of_the_last_axes_stays() -> None:
    for norm in (layer_norm, rms_norm):
        b = Builder(opset=23)
        assert_stays(RULES, b.model(norm(b, b.input("x", ["N", 4, 6]), [1])), "are not the last ones")
        b = Builder(np.float64, opset=23)
        assert_stays(RULES, b.model(norm(b, b.input("x", ["N", 6]), [1])), "is double")
        b = Builder(opset=23)
        x = b.input("x", [3, 6])
        assert_stays(RULES, b.model(norm(b, x, [1], eps=np.ones((3, 1)))), "is not one number")
        b = Builder(opset=23)
        model = b.model(norm(b, b.input("x", [3, 6]), [1], eps=np.full((1, 1, 1), 1e-5)), rank=3)
        assert_stays(RULES, model, "are not known to have the same rank")
        b = Builder(opset=23)
        assert_stays(RULES, b.model(norm(b, unranked(b), [-1]), rank=2), "the rank of 'reshape0' is unknown")


def test_two_differences_and_a_long_chain_of_casts() -> None:
    """As older exporters write it: the difference twice, and a double cast; the whole pipeline clears that away."""
    b = Builder(opset=17)
    x = b.input("x", ["N", 6])
    mu = mean(b, x, [-1])
    d, again = b.node("Cast", b.node("Sub", x, mu), to=1), b.node("Sub", x, mu)
    v = mean(b, b.node("Pow", again, b.constant(2.0)), [-1])
    y = b.node("Div", d, b.node("Sqrt", b.node("Add", v, b.constant(1e-5))))
    result = sp.optimize(b.model(b.node("Add", b.node("Mul", y, b.random(6)), b.random(6))))
    assert operators(result.proto) == {"LayerNormalization": 1}
    assert all(d.verdict == "verified" for d in result.applied if d.rule == "fuse_layer_normalization")


@pytest.mark.skipif(
    tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 32),
    reason="LayerNormalization of older ONNX Runtimes (1.25 for one) loses what is far from zero",
)
@pytest.mark.parametrize("size", [768, 4096])
@pytest.mark.parametrize("center", [1e2, 1e4])
def test_far_from_zero_layer_normalization_is_nearer_the_truth(center: float, size: int) -> None:
    """Where the mean is far larger than the deviation both lose digits; the operator loses fewer."""
    b = Builder(opset=17)
    model = b.model(layer_norm(b, b.input("x", ["N", size]), [-1]))
    (fused,) = [r for r in RULES if r.name == "fuse_layer_normalization"]
    after = assert_fuses([fused], model, LayerNormalization=1)
    x = (np.random.default_rng(0).standard_normal((8, size)) + center).astype(np.float32)
    wide = x.astype(np.float64)
    truth = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    off = [np.abs(run(m, {"x": x}).popitem()[1] - truth).max() for m in (model, after)]
    assert off[1] < off[0]


# --- constants that follow -----------------------------------------------------------------------------------------------


@property_of("fold_constant_into_layer_normalization", "fold_scale_into_rms_normalization")
def test_constants_of_any_shape_along_the_axes() -> None:
    @settings(max_examples=20, deadline=None)
    @given(
        st.lists(st.integers(1, 4), min_size=1, max_size=3),
        st.integers(0, 3),
        st.sampled_from(["Mul", "Add"]),
        st.sampled_from([np.float32, np.float16, np.float64]),
    )
    def check(rms: bool, sizes: list[int], rank: int, op: str, dtype: Any) -> None:
        b = Builder(dtype, opset=23)
        x = b.input("x", [3, *sizes])
        if rms:
            n, op = b.node("RMSNormalization", x, b.random(*sizes), axis=1), "Mul"
        else:
            n = b.node("LayerNormalization", x, b.random(*sizes), b.random(*sizes), axis=1)
        k = b.random(*sizes[max(0, len(sizes) - rank) :])
        left = {f"{'RMS' if rms else 'Layer'}Normalization": 1}
        assert_fuses(RULES, b.model(b.node(op, k, n)), sizes=[{}], **left)

    check(True)
    check(False)


@declines("fold_constant_into_layer_normalization", "fold_scale_into_rms_normalization")
def test_constants_that_say_more_stay() -> None:
    for op in ("LayerNormalization", "RMSNormalization"):
        b = Builder(opset=23)
        n = b.node(op, b.input("x", [5, 6]), b.random(6))
        assert_stays(RULES, b.model(b.node("Mul", n, b.random(5, 1))), "does not go along the normalised axes")
        b = Builder(opset=23)
        n = b.node(op, b.input("x", [5, 6]), b.random(6))
        assert_stays(RULES, b.model(b.node("Mul", n, b.constant(np.inf))), "is not finite")
    b = Builder(opset=23)
    n = b.node("LayerNormalization", b.input("x", [5, 6]), b.random(6), b.random(1))
    assert_stays(RULES, b.model(b.node("Mul", n, b.constant(2.0))), "bias of shape [1], scale of shape [6]")


# --- float16 -------------------------------------------------------------------------------------------------------------


def between_casts(x: Any, scale: Any, op: str, bias: bool = False, back: int = 10, **attrs: int) -> tuple[Builder, str]:
    b = Builder(np.float32, opset=23)
    w = b.node("Cast", b.input("x", x, np.float16), to=1)
    operands = [b.constant(scale), *([b.constant(scale)] if bias else [])]
    return b, b.node("Cast", b.node(op, w, *operands, **attrs), to=back)


@property_of("drop_casts_around_normalization")
def test_normalizations_between_casts() -> None:
    @settings(max_examples=30, deadline=None)
    @given(st.integers(1, 5), st.integers(1, 40), st.booleans(), st.booleans())
    def check(rows: int, size: int, rms: bool, bias: bool) -> None:
        op = "RMSNormalization" if rms else "LayerNormalization"
        scale = np.arange(1, size + 1) / 8
        b, y = between_casts([rows, size], scale, op, bias and not rms)
        found = assert_fuses(RULES, b.model(y, dtype=np.float16), sizes=[{}], **{op: 1})
        assert constants(found)[found.graph.node[0].input[1]].dtype == np.float16

    check()


@declines("drop_casts_around_normalization")
def test_casts_that_matter_stay() -> None:
    b, y = between_casts([3, 2], np.array([0.1, 1.0]), "LayerNormalization")
    assert_stays(RULES, b.model(y, dtype=np.float16), "would be rounded to float16")
    b, y = between_casts([3, 2], np.array([1.0, 7e4]), "LayerNormalization")
    assert_stays(RULES, b.model(y, dtype=np.float16), "would be rounded to float16")
    b, y = between_casts([3, 2], np.ones(2), "LayerNormalization", back=11)
    assert_stays(RULES, b.model(y, dtype=np.float64), "is not cast from float16 and back")
    b, y = between_casts([3, 2], np.ones(2), "LayerNormalization", stash_type=16)
    assert_stays(RULES, b.model(y, dtype=np.float16), "stash_type is not float")


def test_rms_normalization_as_language_models_write_it() -> None:
    """float16 through float32 and back before the weight: Cast, Pow, ReduceMean, Add, Sqrt, Div, Mul, Cast, Mul."""
    b = Builder(np.float32, opset=23)
    x = b.input("x", ["N", 8], np.float16)
    n = rms_norm(b, b.node("Cast", x, to=1), [-1], how="one over", eps=1e-6)
    y = b.node("Mul", b.constant(np.linspace(0.5, 1.5, 8), np.float16), b.node("Cast", n, to=10))
    assert_fuses(RULES, b.model(y, dtype=np.float16), RMSNormalization=1)


def test_normalizations_without_an_epsilon() -> None:
    """An exporter that takes 1e-12 for nothing leaves it out; what is constant is NaN in both."""
    b = Builder(opset=23)
    x = b.input("x", ["N", 6])
    d = b.node("Sub", x, mean(b, x, [-1]))
    n = b.node("Div", d, b.node("Sqrt", mean(b, b.node("Mul", d, d), [-1])))
    model = b.model(b.node("Div", n, b.node("Sqrt", mean(b, b.node("Mul", n, n), [-1]))))
    found = assert_fuses(RULES, model, LayerNormalization=1, RMSNormalization=1)
    for m in (model, found):
        assert np.isnan(run(m, {"x": np.ones((1, 6), np.float32)}).popitem()[1]).all()


@pytest.mark.parametrize("rule", ["LayerNormalization", "RMSNormalization"])
def test_a_constant_that_raises_the_rank_stays(rule: str) -> None:
    b = Builder(opset=23)
    x = b.input("x", ["N", 4])
    d = b.node("Sub", x, mean(b, x, [-1])) if rule == "LayerNormalization" else x
    variance = b.node("Add", mean(b, b.node("Mul", d, d), [-1]), b.constant(1e-5))
    one = b.constant(np.ones((1, 1, 1)))
    y = b.node("Mul", d, b.node("Div", one, b.node("Sqrt", variance)))
    assert_stays(RULES, b.model(y, rank=3), "are not known to have the same rank")
