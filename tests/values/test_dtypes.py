"""Element types by the operators' schemas."""

from __future__ import annotations

import pytest
from onnx import TensorProto

from surgeon_passes.values.dtypes import dtype_rules, is_for_tensors

RULES = [
    ("Relu", 14, 1, [(0,)]),
    ("Shape", 15, 1, [TensorProto.INT64]),
    ("Cast", 13, 1, [None]),  # an attribute says it
    ("CastLike", 15, 1, [(1,)]),
    ("Where", 16, 1, [(1, 2)]),
    ("Less", 13, 1, [TensorProto.BOOL]),
    ("TopK", 11, 2, [(0,), TensorProto.INT64]),
    ("Split", 18, 3, [(0,)] * 3),
    ("QuantizeLinear", 13, 1, [(2,)]),
    ("DequantizeLinear", 21, 1, [(1,)]),
    ("DynamicQuantizeLinear", 11, 3, [TensorProto.UINT8, TensorProto.FLOAT, TensorProto.UINT8]),
    ("If", 16, 2, [None, None]),  # each of its results has a type of its own
    ("NoSuchOperator", 16, 1, [None]),
]


@pytest.mark.parametrize(("op", "opset", "count", "rules"), RULES)
def test_rules(op: str, opset: int, count: int, rules: list[object]) -> None:
    assert dtype_rules(op, opset, "", count) == tuple(rules)


@pytest.mark.parametrize(
    ("op", "domain", "expected"),
    [("Conv", "", True), ("If", "", True), ("SequenceAt", "", False), ("Optional", "", False),
     ("ZipMap", "ai.onnx.ml", False)],
)  # fmt: skip
def test_operators_for_what_is_no_tensor(op: str, domain: str, expected: bool) -> None:
    assert is_for_tensors(op, 3 if domain else 16, domain) is expected
