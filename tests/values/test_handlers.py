"""Handlers on chosen inputs, against ONNX Runtime: equal bits, dtype and shape. (Drawn ones: test_operators.py.)"""

from __future__ import annotations

import numpy as np
import pytest

from tests.values.build import assert_same, evaluator, node_model, run

I64, I32, F32, F64 = np.int64, np.int32, np.float32, np.float64
RNG = np.random.default_rng(0)
INTS = RNG.integers(-9, 9, (3, 4))
SIGNED = np.array([-7, 7, -8, 7, -1, 0], I64)
DIVISORS = np.array([2, -2, 3, 3, 5, -4], I64)
FLOATS = RNG.normal(size=(3, 4)).astype(F32)
HALVES = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.2, -0.0], F32)
BOOLS = np.array([True, False, True, False])
CUBE = np.arange(24, dtype=I64).reshape(2, 3, 4)


def ints(*values):
    return np.array(values, I64)


def scalar(value, dtype=I64):
    return np.array(value, dtype)


CASES = [
    ("Add", [INTS, ints(1, 2, 3, 4)], {}),
    ("Add", [np.array([2**63 - 1], I64), ints(1)], {}),
    ("Add", [INTS.astype(I32), scalar(5, I32)], {}),
    ("Add", [FLOATS, FLOATS[:1]], {}),
    ("Add", [FLOATS.astype(np.float16), FLOATS[:1].astype(np.float16)], {}),
    ("Sub", [INTS, INTS[::-1].copy()], {}),
    ("Mul", [INTS, scalar(-3)], {}),
    ("Mul", [np.array([2**40], I64), np.array([2**40], I64)], {}),
    ("Div", [SIGNED, DIVISORS], {}),
    ("Div", [SIGNED.astype(I32), DIVISORS.astype(I32)], {}),
    ("Div", [FLOATS, scalar(3, F32)], {}),
    ("Div", [FLOATS, scalar(0, F32)], {}),
    ("Mod", [SIGNED, DIVISORS], {}),
    ("Mod", [SIGNED, DIVISORS], {"fmod": 1}),
    ("Mod", [FLOATS, scalar(0.7, F32)], {"fmod": 1}),
    ("Neg", [INTS], {}),
    ("Abs", [INTS], {}),
    ("Sign", [INTS], {}),
    ("Max", [INTS, scalar(2), scalar(-1)], {}),
    ("Min", [INTS, scalar(2)], {}),
    ("Min", [FLOATS, scalar(np.nan, F32)], {}),
    ("Sum", [FLOATS, FLOATS * F32(3), FLOATS / F32(7)], {}),
    ("Clip", [INTS, scalar(-2), scalar(3)], {}),
    ("Clip", [INTS, None, scalar(3)], {}),
    ("Clip", [FLOATS, scalar(0.5, F32), scalar(-0.5, F32)], {}),
    ("Pow", [INTS, scalar(3)], {}),
    ("Pow", [FLOATS, scalar(2, F32)], {}),
    ("Floor", [HALVES], {}),
    ("Ceil", [HALVES], {}),
    ("Round", [HALVES], {}),
    ("Sqrt", [np.abs(FLOATS)], {}),
    ("BitwiseAnd", [INTS, scalar(6)], {}),
    ("BitwiseOr", [INTS, scalar(6)], {}),
    ("BitwiseXor", [INTS, scalar(6)], {}),
    ("Equal", [INTS, INTS[:1]], {}),
    ("Less", [INTS, scalar(0)], {}),
    ("LessOrEqual", [INTS, scalar(0)], {}),
    ("Greater", [FLOATS, scalar(0, F32)], {}),
    ("GreaterOrEqual", [INTS, scalar(0)], {}),
    ("Not", [BOOLS], {}),
    ("And", [BOOLS, BOOLS[:1]], {}),
    ("Or", [BOOLS, np.array([False])], {}),
    ("Xor", [BOOLS, np.array([True])], {}),
    ("Where", [BOOLS, INTS, scalar(100)], {}),
    ("Where", [np.array([[True], [False], [True]]), FLOATS, FLOATS + F32(1)], {}),
    ("Cast", [INTS], {"to": 1}),
    ("Cast", [np.array([2**53 + 1, -(2**24) - 1], I64)], {"to": 1}),
    ("Cast", [INTS], {"to": 6}),
    ("Cast", [np.array([2**32 + 5, -1], I64)], {"to": 6}),
    ("Cast", [HALVES], {"to": 7}),
    ("Cast", [HALVES], {"to": 9}),
    ("Cast", [HALVES], {"to": 10}),
    ("Cast", [HALVES], {"to": 11}),
    ("Cast", [BOOLS], {"to": 7}),
    ("Cast", [np.array([-3.9, 3.9], F64)], {"to": 6}),
    ("CastLike", [INTS, scalar(0, F32)], {}),
    ("Shape", [CUBE], {}),
    ("Shape", [CUBE], {"start": 1}),
    ("Shape", [CUBE], {"start": -2, "end": -1}),
    ("Shape", [CUBE], {"start": 2, "end": 1}),
    ("Shape", [CUBE], {"start": -9, "end": 9}),
    ("Size", [CUBE], {}),
    ("ConstantOfShape", [ints(2, 3)], {}),
    ("ConstantOfShape", [ints()], {}),
    ("ConstantOfShape", [ints(0, 3)], {}),
    ("Range", [scalar(2), scalar(11), scalar(3)], {}),
    ("Range", [scalar(5), scalar(-2), scalar(-2)], {}),
    ("Range", [scalar(5), scalar(2), scalar(1)], {}),
    ("Range", [scalar(0, F32), scalar(4, F32), scalar(1, F32)], {}),
    ("Identity", [INTS], {}),
    ("Dropout", [FLOATS, scalar(0.5, F32)], {}),
    ("Reshape", [CUBE, ints(0, -1)], {}),
    ("Reshape", [CUBE, ints(4, 6)], {}),
    ("Reshape", [np.zeros((0, 3), F32), ints(3, 0)], {"allowzero": 1}),
    ("Squeeze", [INTS.reshape(1, 3, 1, 4), ints(0, -2)], {}),
    ("Squeeze", [INTS.reshape(1, 3, 1, 4)], {}),
    ("Unsqueeze", [INTS, ints(0, -1)], {}),
    ("Unsqueeze", [scalar(3), ints(0)], {}),
    ("Flatten", [CUBE], {"axis": 2}),
    ("Flatten", [CUBE], {"axis": 0}),
    ("Flatten", [CUBE], {"axis": -1}),
    ("Transpose", [CUBE], {}),
    ("Transpose", [CUBE], {"perm": [1, 2, 0]}),
    ("Concat", [INTS, INTS + 1, INTS[:1]], {"axis": 0}),
    ("Concat", [INTS, INTS + 1], {"axis": -1}),
    ("Expand", [INTS, ints(2, 1, 4)], {}),
    ("Expand", [scalar(1.5, F32), ints(2, 2)], {}),
    ("Tile", [INTS, ints(2, 3)], {}),
    ("Pad", [INTS, ints(1, 0, 0, 2), scalar(9)], {}),
    ("Pad", [INTS, ints(1, 2), None, ints(-1)], {}),
    ("Pad", [INTS, ints(-1, 2, 0, -3)], {}),
    ("Gather", [CUBE, scalar(1)], {}),
    ("Gather", [CUBE, ints(-1, 0)], {"axis": 2}),
    ("Gather", [CUBE, np.array([[0, 1], [2, -1]], I32)], {"axis": 1}),
    ("GatherElements", [INTS, np.array([[0, -1], [2, 1]], I64)], {"axis": 0}),
    ("GatherElements", [INTS, np.array([[3, 0, -4]], I64)], {"axis": 1}),
    ("GatherND", [CUBE, np.array([[0, 1], [1, -1]], I64)], {}),
    ("GatherND", [CUBE, np.array([[1], [2]], I64)], {"batch_dims": 1}),
    ("Slice", [CUBE, ints(1), ints(2**63 - 1), ints(1)], {}),
    ("Slice", [CUBE, ints(-1), ints(-(2**63)), ints(-1), ints(-1)], {}),
    ("Slice", [CUBE, ints(3, 0), ints(0, 2), ints(2, 0), ints(-2, 1)], {}),
    ("Slice", [INTS, ints(2, -3), ints(-5, 100)], {}),
    ("Slice", [INTS, ints(-100), ints(100), ints(1), ints(3)], {}),
    ("ScatterElements", [INTS, np.array([[0, 2]], I64), np.array([[50, 60]], I64)], {"axis": 1}),
    ("ScatterND", [CUBE, np.array([[1, 0], [0, -1]], I64), np.array([[1, 2, 3, 4], [5, 6, 7, 8]], I64)], {}),
    ("NonZero", [INTS], {}),
    ("Compress", [CUBE, BOOLS], {"axis": 2}),
    ("Compress", [CUBE, BOOLS], {}),
    ("Trilu", [CUBE], {}),
    ("Trilu", [CUBE, scalar(-1)], {"upper": 0}),
    ("Trilu", [CUBE, scalar(40)], {}),
    ("OneHot", [ints(0, 2, -1, 9), scalar(3), ints(5, 7)], {}),
    ("OneHot", [np.array([[0, 1], [2, 0]], I64), scalar(3), np.array([0, 1], F32)], {"axis": 0}),
    ("OneHot", [np.array([[0, 1], [2, 0]], I64), scalar(3), np.array([0, 1], F32)], {"axis": 1}),
    ("ReduceSum", [CUBE], {}),
    ("ReduceSum", [CUBE, ints(1, -1)], {"keepdims": 0}),
    ("ReduceSum", [CUBE], {"noop_with_empty_axes": 1}),
    ("ReduceSum", [np.zeros((0, 3), F32), ints(0)], {"keepdims": 0}),
    ("ReduceSum", [np.array([1.0, 2.0, 4.0], F32)], {}),
    ("ReduceSum", [CUBE, ints(1)], {"keepdims": -1}),
    ("ReduceProd", [ints(2, 3, 4)], {"keepdims": 0}),
    ("ReduceProd", [np.array([2, 3, 7], F32)], {"keepdims": 0}),
    ("ReduceMax", [CUBE, ints(0)], {}),
    ("ReduceMin", [FLOATS, ints(1)], {"keepdims": 0}),
    ("ReduceMean", [np.array([[2, 4], [6, 8]], F32), ints(1)], {}),
    ("CumSum", [INTS, scalar(1)], {}),
    ("CumSum", [INTS, scalar(0)], {"exclusive": 1, "reverse": 1}),
    ("ArgMax", [np.array([[3, 9, 9], [1, 1, 0]], I64)], {"axis": 1}),
    ("ArgMax", [np.array([[3, 9, 9], [1, 1, 0]], F32)], {"axis": 1, "select_last_index": 1, "keepdims": 0}),
    ("ArgMin", [INTS.astype(I32)], {"axis": 0}),
    ("ArgMin", [INTS], {"axis": 1, "keepdims": -1}),
]


def case_id(case):
    return case[0]


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_equals_onnx_runtime(case):
    op, inputs, attrs = case
    proto = node_model(op, inputs, **attrs)
    assert_same(evaluator(proto).value("o0"), run(proto)[0])


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "attrs"),
    [
        ("Split", [np.arange(10, dtype=I64), ints(3, 7)], 2, {}),
        ("Split", [np.arange(10, dtype=I64)], 4, {"num_outputs": 4}),
        ("Split", [CUBE], 2, {"axis": -1, "num_outputs": 2}),
        ("TopK", [np.array([3, 1, 3, 2, 9], I64), ints(3)], 2, {}),
        ("TopK", [np.array([[3, 1, 3], [2, 9, 2]], F32), ints(2)], 2, {"largest": 0, "axis": 1}),
    ],
)
def test_several_outputs(op, inputs, outputs, attrs):
    proto = node_model(op, inputs, outputs, **attrs)
    ev = evaluator(proto)
    for k, expected in enumerate(run(proto)):
        assert_same(ev.value(f"o{k}"), expected)


@pytest.mark.parametrize(
    ("op", "opset", "inputs", "attrs"),
    [
        ("Slice", 9, [CUBE], {"starts": [0, 1], "ends": [1, 3], "axes": [0, 2]}),
        ("Squeeze", 11, [INTS.reshape(1, 3, 4)], {"axes": [0]}),
        ("Unsqueeze", 11, [INTS], {"axes": [1]}),
        ("ReduceSum", 11, [CUBE], {"axes": [1], "keepdims": 0}),
        ("ReduceMax", 13, [CUBE], {"axes": [-1]}),
        ("Clip", 10, [FLOATS], {"min": -0.5, "max": 0.5}),
        ("Pad", 10, [FLOATS], {"pads": [0, 1, 1, 0], "value": 2.0}),
        ("Split", 11, [np.arange(6, dtype=F32)], {"split": [6]}),
        ("Pad", 10, [FLOATS], {"pads": [-1, 1, 1, -2], "value": 2.0}),
    ],
)
def test_old_forms(op, opset, inputs, attrs):
    proto = node_model(op, inputs, opset=opset, **attrs)
    assert_same(evaluator(proto).value("o0"), run(proto)[0])


def test_constant_of_shape_fills_with_its_own_dtype():
    from onnx import numpy_helper

    value = numpy_helper.from_array(np.array([7], np.int32), "v")
    proto = node_model("ConstantOfShape", [ints(2)], value=value)
    assert_same(evaluator(proto).value("o0"), np.array([7, 7], np.int32))


# --- before opset 7, which ONNX Runtime does not run: what numpy says ----------------------------------------------------

SUMMANDS = (CUBE.astype(F32), np.arange(3, dtype=F32))


@pytest.mark.parametrize(
    ("op", "opset", "inputs", "attrs", "expected"),
    [
        ("Add", 6, SUMMANDS, {"broadcast": 1, "axis": 1}, SUMMANDS[0] + SUMMANDS[1].reshape(3, 1)),
        ("Sub", 1, SUMMANDS, {"broadcast": 1, "axis": -2}, SUMMANDS[0] - SUMMANDS[1].reshape(3, 1)),
        ("Mul", 6, (CUBE, ints(1, 2, 3, 4)), {"broadcast": 1}, CUBE * ints(1, 2, 3, 4)),
        ("Div", 6, (CUBE, ints(2, 3)), {"broadcast": 1, "axis": 0}, CUBE // ints(2, 3).reshape(2, 1, 1)),
        ("Pow", 1, (SUMMANDS[0], scalar(2, F32)), {"broadcast": 1}, SUMMANDS[0] ** 2),
        ("Less", 1, SUMMANDS, {"broadcast": 1, "axis": 1}, SUMMANDS[0] < SUMMANDS[1].reshape(3, 1)),
        ("And", 1, (CUBE > 3, BOOLS), {"broadcast": 1}, (CUBE > 3) & BOOLS),
        ("Add", 6, (CUBE, CUBE), {}, CUBE + CUBE),
        ("Reshape", 1, (SUMMANDS[0],), {"shape": [0, -1]}, SUMMANDS[0].reshape(2, 12)),
        ("Cast", 1, (CUBE,), {"to": "FLOAT"}, CUBE.astype(F32)),
        ("Tile", 1, (FLOATS, scalar(2, F32), scalar(1, F32)), {}, np.tile(FLOATS, (1, 2))),
        ("Pad", 1, (FLOATS,), {"paddings": [1, 0, 0, 2]}, np.pad(FLOATS, ((1, 0), (0, 2)))),
        ("Concat", 1, (FLOATS, FLOATS), {}, np.concatenate([FLOATS, FLOATS], 1)),
        ("Max", 6, (FLOATS, -FLOATS), {}, np.maximum(FLOATS, -FLOATS)),
        ("Dropout", 6, (FLOATS,), {"is_test": 1}, FLOATS),
    ],
)  # fmt: skip
def test_forms_before_opset_7(op, opset, inputs, attrs, expected):
    ev = evaluator(node_model(op, list(inputs), opset=opset, **attrs))
    assert_same(ev.value("o0"), np.asarray(expected))
    assert ev.types.type_of(ev.tensor("o0")).shape == np.shape(expected)


def test_dropout_that_trains_is_unknown():
    assert evaluator(node_model("Dropout", [FLOATS], opset=6)).value("o0") is None
    assert evaluator(node_model("Dropout", [FLOATS, scalar(0.5, F32), np.array(True)])).value("o0") is None


def test_a_scalar_stays_an_array():
    """numpy turns arrays of rank 0 into scalars, which are no values here."""
    found = evaluator(node_model("Cast", [scalar(2.5, F32)], to=7)).value("o0")
    assert_same(found, np.array(2, I64))


def test_clip_without_a_bound_stops_infinity():
    proto = node_model("Clip", [np.array([np.inf, -np.inf, 1], F32), scalar(0, F32)])
    assert_same(evaluator(proto).value("o0"), run(proto)[0])
    assert evaluator(proto).value("o0")[0] == np.finfo(F32).max


UNKNOWN = [
    ("Pad", [INTS, ints(0, -3, 0, -2)], {}),
    ("Pad", [INTS, ints(5, 0, 0, 0)], {"mode": "reflect"}),
    ("BitShift", [np.array([1], np.uint8), np.array([8], np.uint8)], {"direction": "LEFT"}),
    ("ScatterElements", [FLOATS[0], ints(0, 0), FLOATS[0, :2]], {"reduction": "add"}),
    ("ScatterND", [ints(1, 2), np.array([[0], [0]]), ints(7, 8)], {}),
    ("CumSum", [np.array([0.1, 0.2, 0.3], F32), scalar(0)], {}),
    ("OneHot", [np.array([0.5], F32), scalar(3), ints(0, 1)], {}),
    ("Unique", [np.array([np.nan, 1], F32)], {}),
    ("Div", [ints(1), ints(0)], {}),
    ("Mod", [ints(1), ints(0)], {}),
    ("Gather", [ints(1, 2), ints(5)], {}),
    ("Pow", [ints(10), ints(30)], {}),
    ("Cast", [np.array([np.nan], F32)], {"to": 7}),
    ("Cast", [np.array([1e30], F32)], {"to": 7}),
    ("ScatterElements", [ints(1, 2, 3), ints(0, 0), ints(7, 8)], {}),
    ("TopK", [np.array([np.nan, 1], F32), ints(1)], {}),
    ("ReduceSum", [np.array([0.1, 0.2, 0.3], F32)], {}),
    ("ConstantOfShape", [ints(1 << 20)], {}),
    ("Expand", [scalar(1), ints(1 << 10, 1 << 10)], {}),
    ("Tile", [ints(1), ints(1 << 20)], {}),
    ("Range", [scalar(0), scalar(1 << 20), scalar(1)], {}),
    ("RandomNormal", [], {"shape": [3]}),
    ("Exp", [FLOATS], {}),
    ("Reshape", [ints(1, 2, 3), ints(2, -1)], {}),
]


@pytest.mark.parametrize("case", UNKNOWN, ids=case_id)
def test_unknown_rather_than_a_guess(case):
    op, inputs, attrs = case
    outputs = 2 if op == "TopK" else 1
    assert evaluator(node_model(op, inputs, outputs, **attrs), strict=False).value("o0") is None
