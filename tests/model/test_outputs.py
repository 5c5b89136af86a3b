"""What the result states of its outputs' dims."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import surgeon_passes as sp
from tests.models import model, run


def dims(proto: onnx.ModelProto, number: int = 0) -> list[Any]:
    found = proto.graph.output[number].type.tensor_type.shape.dim
    return [d.dim_param or (d.dim_value if d.HasField("dim_value") else None) for d in found]


def optimized(text: str, shapes: Any = None, **constants: Any) -> sp.Result:
    return sp.optimize(model(text, **constants), shapes, verify="off")


POOL = "y = MaxPool <kernel_shape = [1, 2], strides = [1, 2]> (x)"


@pytest.mark.parametrize(
    ("inputs", "output", "body", "expected"),
    [
        ("float[N,4] x", "float[Relu_dim_0,Relu_dim_1] y", "y = Relu (x)", ["N", 4]),
        ("float[N,4] x", "float[?,?] y", "y = Relu (x)", ["N", 4]),
        ("float[N,4] x", "float[N,4] y", "y = Relu (x)", ["N", 4]),
        ("float[N,M] x", "float[M,N] y", "y = Relu (x)", ["M", "N"]),  # may hold: N and M may be equal
        ("float[N,4] x", "float[2,4] y", "y = Relu (x)", [2, 4]),  # may hold: N may be 2
        ("float[?,4] x", "float[rows,4] y", "y = Relu (x)", ["rows", 4]),
        ("float[1,1,H,W] x", "float[1,1,a,b] y", POOL, [1, 1, "H", "floordiv(W, 2)"]),
        ("float[N,T] x", "float[a,b] y", "y = Concat <axis = 1> (x, x)", ["N", "2*T"]),
        ("float[2,4] x", "float[N,T] y", "y = Relu (x)", [2, 4]),
        ("float[N,2] x, float[N,1] z", "float[N,N] y", "y = Concat <axis = 1> (x, z)", ["N", 3]),
        ("float[N] x", "float[k,i] y", "i = NonZero (x) y = Cast <to = 1> (i)", [1, "i"]),
    ],
)
def test_dims_of_an_output(inputs: str, output: str, body: str, expected: list[Any]) -> None:
    result = optimized(f"g ({inputs}) => ({output}) {{ {body} }}")
    assert dims(result.proto) == expected
    assert result.notes == []
    assert result.checker_error == ""


def test_what_cannot_hold_is_corrected_with_a_note() -> None:
    named = optimized("g (float[N,4] x) => (float[N,4] y) { y = Concat <axis = 0> (x, x) }")
    assert dims(named.proto) == ["2*N", 4]
    assert named.notes == ["output 'y' is declared with 'N' at dim 0, which is 2*N; corrected"]
    fixed = optimized("g (float[2,4] x) => (float[3,4] y) { y = Relu (x) }")
    assert dims(fixed.proto) == [2, 4]
    assert fixed.notes == [
        "value_info contradicts the graph and was recomputed: 'y' is declared [3, 4] and computed [2, 4]"
    ]


def test_at_fixed_sizes() -> None:
    text = f"g (float[1,1,H,W] x) => (float[1,1,a,b] y) {{ {POOL} }}"
    assert dims(optimized(text, {"x": {"W": 7}}).proto) == [1, 1, "H", 3]


def test_an_output_that_is_an_input_or_a_constant_stays() -> None:
    proto = optimized("g (float[N] x) => (float[N] x, float[k] c) <float[2] c = {1, 2}> { }").proto
    assert dims(proto) == ["N"]
    assert dims(proto, 1) == ["k"]


def test_running_again_changes_no_byte() -> None:
    first = optimized(f"g (float[1,1,H,W] x) => (float[1,1,a,b] y) {{ {POOL} }}")
    again = sp.optimize(first.proto, verify="off")
    assert again.proto.SerializeToString(deterministic=True) == first.proto.SerializeToString(deterministic=True)
    assert again.notes == []


def test_an_expression_is_a_hint_only() -> None:
    """One that was written for another graph is worked out anew."""
    stale = optimized("g (float[N] x) => (float[N] z) { z = Relu (x) }")
    stale.proto.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "2*N + 1"
    assert dims(sp.optimize(stale.proto, verify="off").proto) == ["N"]


def test_denotations_stay() -> None:
    proto = model("g (float[N,4] x) => (float[a,4] y) { y = Relu (x) }")
    proto.graph.output[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    (dim, _) = sp.optimize(proto, verify="off").proto.graph.output[0].type.tensor_type.shape.dim
    assert (dim.dim_param, dim.denotation) == ("N", "DATA_BATCH")


def test_onnx_runtime_agrees() -> None:
    result = sp.optimize(model(f"g (float[1,1,H,W] x) => (float[1,1,a,b] y) {{ {POOL} }}"))
    assert result.check.status == "equal"
    assert dims(result.proto) == [1, 1, "H", "floordiv(W, 2)"]
    assert run(result.proto, x=np.zeros((1, 1, 3, 9), np.float32))["y"].shape == (1, 1, 3, 9 // 2)
