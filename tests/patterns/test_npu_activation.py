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

from .covering import declines, property_of
from .harness import apply
from .npu import assert_declines, assert_decomposes, one_node, run_anywhere

CASES: list[tuple[Rule, str, int, dict[str, Any], list[str]]] = [
    (family.decompose_hard_swish, "HardSwish", 14, {}, ["float32", "float16"]),
    (family.decompose_hard_sigmoid, "HardSigmoid", 13, {"alpha": 0.3, "beta": 0.4}, ["float32", "float16", "float64"]),
    (family.decompose_gelu, "Gelu", 20, {"approximate": "none"}, ["float32", "float16", "float64"]),
    (family.decompose_gelu, "Gelu", 20, {"approximate": "tanh"}, ["float32", "float16", "float64"]),
    (family.decompose_mish, "Mish", 18, {}, ["float32", "float16", "float64"]),
    (family.decompose_swish, "Swish", 24, {}, ["float32", "float16", "float64"]),
    (family.decompose_swish, "Swish", 24, {"alpha": 1.7}, ["float32", "float16", "float64"]),
    (family.decompose_celu, "Celu", 12, {}, ["float32"]),
    (family.decompose_celu, "Celu", 12, {"alpha": 2.5}, ["float32"]),
    (family.decompose_selu, "Selu", 13, {"alpha": 1.5, "gamma": 0.7}, ["float32", "float16", "float64"]),
    (family.decompose_is_nan, "IsNaN", 13, {}, ["float32", "float16", "float64"]),
]
NAMES = [f"{op}-{'-'.join(map(str, attrs.values()))}" for _, op, _, attrs, _ in CASES]


@property_of(
    "decompose_hard_swish", "decompose_hard_sigmoid", "decompose_gelu", "decompose_mish", "decompose_swish",
    "decompose_celu", "decompose_selu", "decompose_is_nan",
)  # fmt: skip
@given(
    st.lists(st.integers(1, 4), max_size=4),
    st.sampled_from(["float32", "float16", "float64"]),
    st.sampled_from([0.1, 1.0, 20.0]),
    st.integers(0, 99),
)
@settings(max_examples=15, deadline=None)
def test_any_shape_type_and_scale(shape: list[int], dtype: str, scale: float, seed: int) -> None:
    x = np.asarray(scale * np.random.default_rng(seed).standard_normal(shape))
    for rule, op, opset, attrs, dtypes in CASES:
        assert_decomposes(rule, op, {"x": x.astype(dtype if dtype in dtypes else "float32")}, opset, **attrs)


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


@declines("decompose_celu")
def test_decompose_celu_declines_a_negative_alpha() -> None:
    x = {"x": np.ones(3, np.float32)}
    assert_declines(family.decompose_celu, "alpha is -1", "Celu", x, 12, alpha=-1.0)
    assert_declines(family.decompose_celu, "x/alpha may overflow", "Celu", x, 12, alpha=1e-30)


@declines("decompose_hard_swish")
def test_decompose_hard_swish_declines_doubles() -> None:
    assert_declines(family.decompose_hard_swish, "a float32 holds", "HardSwish", {"x": np.ones(3, np.float64)}, 14)


@declines("decompose_is_nan")
def test_decompose_is_nan_declines_a_type_that_equal_may_not_take() -> None:
    x = {"x": np.ones(3, onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.BFLOAT16))}
    assert_declines(family.decompose_is_nan, "of a type that Equal may not take", "IsNaN", x, 13)


@declines("decompose_hard_sigmoid", "decompose_selu", "decompose_celu", "decompose_swish", "decompose_gelu")
def test_an_attribute_that_a_caller_gives_stays() -> None:
    for rule, op, attribute, given_value in (
        (family.decompose_hard_sigmoid, "HardSigmoid", "alpha: float", "float = 0.5"),
        (family.decompose_selu, "Selu", "gamma: float", "float = 0.5"),
        (family.decompose_celu, "Celu", "alpha: float", "float = 0.5"),
        (family.decompose_swish, "Swish", "alpha: float", "float = 0.5"),
        (family.decompose_gelu, "Gelu", "approximate: string", 'string = "tanh"'),
    ):
        model = onnx.parser.parse_model(f"""
            <ir_version: 10, opset_import: ["" : 24, "pkg" : 1]>
            g (float[N] x) => (float[N] y) {{ y = pkg.F<a: {given_value}>(x) }}
            <domain: "pkg", opset_import: ["" : 24]>
            F <a>(x) => (y) {{ y = {op}<{attribute} = @a>(x) }}
        """)
        result = apply(rule, model)
        assert not result.applied and any("caller" in reason for reason in result.reasons), op


@pytest.mark.parametrize("rule", [family.decompose_hard_swish, family.decompose_mish])
@pytest.mark.parametrize("op", ["HardSigmoid", "Softplus", "com.microsoft.HardSwish", "com.microsoft.Mish"])
def test_other_operators_are_not_looked_at(rule: Rule, op: str) -> None:
    """Not even those of the same name in another domain: what they compute is not known."""
    model = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>
        g (float[N] x) => (float[N] y) {{ y = {op}(x) }}
    """)
    result = apply(rule, model)
    assert result.ops == {op.rpartition(".")[2]: 1} and not result.applied and not result.reasons


@pytest.mark.parametrize(("rule", "op"), [(family.decompose_hard_swish, "HardSwish"), (family.decompose_mish, "Mish")])
def test_in_a_function_it_fires_too(rule: Rule, op: str) -> None:
    model = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 20, "pkg" : 1]>
        g (float[N] x) => (float[N] y) {{ y = pkg.F(x) }}
        <domain: "pkg", opset_import: ["" : 20]>
        F (x) => (y) {{ y = {op}(x) }}
    """)
    assert apply(rule, model).applied == [rule.name]
