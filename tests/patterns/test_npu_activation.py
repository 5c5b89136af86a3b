"""Activations as plain operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surgeon_passes import Rule
from surgeon_passes.patterns import npu_activation as family

from .harness import apply
from .npu import assert_declines, assert_decomposes, one_node, run_anywhere

CASES: list[tuple[Rule, str, int, dict[str, Any], list[str]]] = [
    (family.decompose_hard_swish, "HardSwish", 14, {}, ["float32", "float16"]),
    (family.decompose_hard_sigmoid, "HardSigmoid", 13, {"alpha": 0.3, "beta": 0.4}, ["float32", "float16"]),
    (family.decompose_gelu, "Gelu", 20, {"approximate": "none"}, ["float32", "float16", "float64"]),
    (family.decompose_gelu, "Gelu", 20, {"approximate": "tanh"}, ["float32", "float16", "float64"]),
    (family.decompose_mish, "Mish", 18, {}, ["float32", "float16", "float64"]),
    (family.decompose_swish, "Swish", 24, {}, ["float32", "float16", "float64"]),
    (family.decompose_swish, "Swish", 24, {"alpha": 1.7}, ["float32", "float16", "float64"]),
    (family.decompose_celu, "Celu", 12, {}, ["float32"]),
    (family.decompose_celu, "Celu", 12, {"alpha": 2.5}, ["float32"]),
    (family.decompose_selu, "Selu", 13, {"alpha": 1.5, "gamma": 0.7}, ["float32", "float16"]),
    (family.decompose_is_nan, "IsNaN", 13, {}, ["float32", "float16", "float64"]),
]
NAMES = [f"{op}-{'-'.join(map(str, attrs.values()))}" for _, op, _, attrs, _ in CASES]


@pytest.mark.parametrize(("rule", "op", "opset", "attrs", "dtypes"), CASES, ids=NAMES)
@given(data=st.data())
@settings(max_examples=12, deadline=None)
def test_any_shape_type_and_scale(
    rule: Rule, op: str, opset: int, attrs: dict[str, Any], dtypes: list[str], data: st.DataObject
) -> None:
    dtype = data.draw(st.sampled_from(dtypes))
    shape = data.draw(st.lists(st.integers(1, 4), max_size=4))
    scale = data.draw(st.sampled_from([0.1, 1.0, 20.0]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x = np.asarray(scale * rng.standard_normal(shape)).astype(dtype)
    assert_decomposes(rule, op, {"x": x}, opset, **attrs)


@pytest.mark.parametrize(("rule", "op", "opset", "attrs", "dtypes"), CASES, ids=NAMES)
def test_what_is_not_finite(rule: Rule, op: str, opset: int, attrs: dict[str, Any], dtypes: list[str]) -> None:
    feeds = {"x": np.array([np.nan, np.inf, -0.0, 0.0, 3.0, -3.0, 1e30], np.float32)}
    model = one_node(op, feeds, opset, **attrs)
    before, after = (run_anywhere(m, feeds) for m in (model, apply(rule, model).model))
    np.testing.assert_allclose(before, after, rtol=1e-5, atol=1e-6)


def test_decompose_gelu_keeps_its_form() -> None:
    x = {"x": np.ones((2, 3), np.float32)}
    assert assert_decomposes(family.decompose_gelu, "Gelu", x, 20).ops["Erf"] == 1
    assert assert_decomposes(family.decompose_gelu, "Gelu", x, 20, approximate="tanh").ops["Tanh"] == 1


def test_decompose_celu_declines_a_negative_alpha() -> None:
    x = {"x": np.ones(3, np.float32)}
    assert_declines(family.decompose_celu, "alpha is -1", "Celu", x, 12, alpha=-1.0)


def test_decompose_is_nan_declines_a_type_that_equal_may_not_take() -> None:
    x = {"x": np.ones(3, onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.BFLOAT16))}
    assert_declines(family.decompose_is_nan, "of a type that Equal may not take", "IsNaN", x, 13)


@pytest.mark.parametrize(
    ("rule", "op", "attribute"),
    [
        (family.decompose_hard_sigmoid, "HardSigmoid", "alpha"),
        (family.decompose_selu, "Selu", "gamma"),
        (family.decompose_celu, "Celu", "alpha"),
        (family.decompose_swish, "Swish", "alpha"),
    ],
)
def test_an_attribute_that_a_caller_gives_stays(rule: Rule, op: str, attribute: str) -> None:
    model = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 24, "pkg" : 1]>
        g (float[N] x) => (float[N] y) {{ y = pkg.F<a: float = 0.5>(x) }}
        <domain: "pkg", opset_import: ["" : 24]>
        F <a>(x) => (y) {{ y = {op}<{attribute}: float = @a>(x) }}
    """)
    result = apply(rule, model)
    assert not result.applied and any("caller" in reason for reason in result.reasons)


@pytest.mark.parametrize(("rule", "op"), [(family.decompose_hard_swish, "HardSwish"), (family.decompose_mish, "Mish")])
def test_in_a_function_it_fires_too(rule: Rule, op: str) -> None:
    model = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 20, "pkg" : 1]>
        g (float[N] x) => (float[N] y) {{ y = pkg.F(x) }}
        <domain: "pkg", opset_import: ["" : 20]>
        F (x) => (y) {{ y = {op}(x) }}
    """)
    assert apply(rule, model).applied == [rule.name]
