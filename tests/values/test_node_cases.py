"""ONNX's own node tests with every input frozen: what the evaluator answers is what ONNX expects, and so is what folds."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import surgeon_passes as sp
from surgeon_passes.model import import_model
from surgeon_passes.values import Evaluator, TypeMap

OPERATORS = frozenset(
    """
    Shape Size Gather GatherElements GatherND Slice Concat Split Squeeze Unsqueeze Reshape Flatten Transpose Cast CastLike
    Add Sub Mul Div Mod Neg Abs Min Max Pow Floor Ceil Round Equal Less LessOrEqual Greater GreaterOrEqual Not And Or Xor
    Where ReduceProd ReduceSum ReduceMin ReduceMax Range ConstantOfShape Expand Tile NonZero Identity ScatterElements
    Scatter ScatterND TopK ArgMax ArgMin CumSum Trilu OneHot Pad Clip Sign Sum BitShift BitwiseAnd BitwiseOr BitwiseXor
    BitwiseNot Sqrt Compress Unique EyeLike Dropout Constant If Loop
    """.split()  # noqa: SIM905
)
"""Operators whose values shape arithmetic needs: each must be answered."""


def collect() -> list:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return collect_testcases(None)


@pytest.fixture(scope="module")
def cases() -> list:
    return collect()


def frozen(case) -> tuple[onnx.ModelProto, list[np.ndarray]] | None:
    """The model with its inputs as initializers, and the outputs expected; None where one is a sequence or an optional."""
    given, wanted = case.data_sets[0]
    proto = onnx.ModelProto()
    proto.CopyFrom(case.model)
    for value, held in zip(proto.graph.input, given, strict=False):
        if isinstance(held, onnx.TensorProto):
            tensor = onnx.TensorProto()
            tensor.CopyFrom(held)
            tensor.name = value.name
        elif isinstance(held, np.ndarray | np.generic):
            tensor = numpy_helper.from_array(np.asarray(held), value.name)
        else:
            return None
        proto.graph.initializer.append(tensor)
    if any(not isinstance(w, onnx.TensorProto | np.ndarray | np.generic) for w in wanted):
        return None
    if any(v.type.WhichOneof("value") != "tensor_type" for v in (*proto.graph.input, *proto.graph.output)):
        return None
    del proto.graph.input[:]
    arrays = [numpy_helper.to_array(w) if isinstance(w, onnx.TensorProto) else np.asarray(w) for w in wanted]
    return proto, arrays


def all_frozen(cases) -> Iterator[tuple]:
    for case in cases:
        found = frozen(case)
        if found is not None:
            yield (case, *found)


def same(found: np.ndarray, wanted: np.ndarray, case) -> bool:
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return False
    if found.dtype.kind == "f":
        return bool(np.allclose(found, wanted, rtol=case.rtol, atol=case.atol, equal_nan=True))
    return found.tobytes() == wanted.tobytes() if found.dtype != object else found.tolist() == wanted.tolist()


def test_what_is_answered_is_what_onnx_expects(cases) -> None:
    ran, answered, wrong = 0, Counter(), []
    for case, proto, wanted in all_frozen(cases):
        ran += 1
        imported = import_model(proto)
        ev = Evaluator(imported.graph, types=TypeMap(imported.graph, extras=imported.extras))
        for tensor, expected in zip(imported.graph.outputs, wanted, strict=True):
            entry, value = ev.types.type_of(tensor), ev.value(tensor)
            for dim, size in zip(entry.shape or (), expected.shape, strict=entry.shape is not None):
                if isinstance(dim, int) and dim != size:
                    wrong.append((case.name, "shape", entry.shape, expected.shape))
            if value is None:
                continue
            answered.update({n.op for n in imported.graph.nodes} if len(imported.graph.nodes) == 1 else ())
            if not isinstance(value, np.ndarray) or not same(value, expected, case):
                wrong.append((case.name, value, expected))
    assert wrong == []
    assert ran > 1700
    assert sum(answered.values()) >= 520
    assert sorted(op for op in OPERATORS if not answered[op]) == []


def one_operator(cases, most: int) -> Iterator[tuple]:
    """Frozen cases of a single node that shape arithmetic needs, at most so many an operator."""
    count: Counter[str] = Counter()
    for case, proto, wanted in all_frozen(cases):
        ops = [node.op_type for node in proto.graph.node]
        if len(ops) == 1 and ops[0] in OPERATORS and count[ops[0]] < most:
            count[ops[0]] += 1
            yield case, proto, wanted


@pytest.mark.parametrize(("mode", "most", "least"), [("off", 100, 480), ("strict", 2, 100)])
def test_what_folds_has_the_same_values(cases, mode: str, most: int, least: int) -> None:
    """Without verification nothing would put a wrong value right."""
    folded, wrong = 0, []
    for case, proto, wanted in one_operator(cases, most):
        result = sp.Pipeline(sp.Fold()).run(proto, verify=sp.Verify(mode=mode, end_check=mode == "strict"))
        assert [o.name for o in result.proto.graph.output] == [o.name for o in proto.graph.output]
        assert result.undone == []
        for output, expected in zip(result.proto.graph.output, wanted, strict=True):
            value = constant(result.proto, output.name)
            folded += value is not None
            if value is not None and not same(value, expected, case):
                wrong.append((case.name, value, expected))
    assert wrong == []
    assert folded >= least


def constant(proto: onnx.ModelProto, name: str) -> np.ndarray | None:
    """What a tensor is, where it is a constant."""
    held = {t.name: t for t in proto.graph.initializer}
    for node in proto.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            held[node.output[0]] = node.attribute[0].t
    for node in proto.graph.node:
        if name in node.output and node.op_type == "Identity":
            name = node.input[0]
    return numpy_helper.to_array(held[name]) if name in held else None
