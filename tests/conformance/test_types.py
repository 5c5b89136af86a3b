"""Kinds of values and models that rules do not know pass through unharmed, while what is around them is optimised."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

import surgeon_passes as sp
from tests.e2e.holds import assert_same_interface, operators
from tests.models import floats, model

from .judge import NotRun, Reference, Runtime, differences

MODES = pytest.mark.parametrize("mode", ["strict", "off"])


def optimized(proto: onnx.ModelProto, mode: str, feeds: dict[str, Any] | None = None) -> onnx.ModelProto:
    """The result, with its interface as it was, valid where the model is, and equal in a run (in none without ``feeds``)."""
    result = sp.optimize(proto, verify=mode)
    assert result.checker_error == "" and result.undone == []
    assert_same_interface(proto, result.proto, fixed=None)
    if feeds is not None:
        judge: Runtime | Reference = Runtime()
        try:
            wanted = judge.run(proto, feeds)
        except NotRun:
            judge = Reference()
            wanted = judge.run(proto, feeds)
        assert differences(wanted, judge.run(result.proto, feeds)) == []
    return result.proto


def of_ml(nodes: str, inputs: str, outputs: list[onnx.ValueInfoProto]) -> onnx.ModelProto:
    """A model with classical operators; the parser has no maps."""
    proto = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>
        g ({inputs}) => (float[N,3] unused) {{ {nodes} }}""")
    del proto.graph.output[:]
    proto.graph.output.extend(outputs)
    return proto


@MODES
def test_a_sequence_of_maps(mode: str) -> None:
    entry = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    probabilities = helper.make_value_info("z", helper.make_sequence_type_proto(entry))
    text = "a = Neg(x) b = Neg(a) z = ai.onnx.ml.ZipMap<classlabels_int64s = [10, 20, 30]>(b)"
    found = optimized(of_ml(text, "float[N,3] x", [probabilities]), mode, {"x": floats(2, 3)})
    assert operators(found) == {"ZipMap": 1}


@MODES
def test_a_map_as_input(mode: str) -> None:
    kind = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    output = helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 3])
    text = "v = ai.onnx.ml.DictVectorizer<int64_vocabulary = [1, 2, 3]>(m) a = Neg(v) z = Neg(a)"
    proto = of_ml(text, "float[N,3] m", [output])
    proto.graph.input[0].type.CopyFrom(kind)
    found = optimized(proto, mode, {"m": {1: 0.5, 3: 2.0}})
    assert found.graph.input[0].type == kind
    assert operators(found)["DictVectorizer"] == 1 and operators(found)["Neg"] == 0


@MODES
def test_an_optional_and_its_element(mode: str) -> None:
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2]))
    proto = model(
        """g (float[2] o) => (float[2] y, bool h) {
            e = OptionalGetElement(o) a = Neg(e) y = Neg(a) h = OptionalHasElement(o)
        }""",
        opset=18,
    )
    proto.graph.input[0].type.CopyFrom(kind)
    found = optimized(proto, mode, {"o": floats(2)})
    assert operators(found)["OptionalGetElement"] == 1 and found.graph.input[0].type == kind


@MODES
def test_strings(mode: str) -> None:
    proto = model(
        """g (string[N] x, float[2] f) => (string[N] y, bool[N] e, float[2] z) {
            i = Identity(x) y = StringConcat(i, k) e = Equal(y, k) a = Neg(f) z = Neg(a)
        }""",
        opset=20,
    )
    proto.graph.initializer.append(helper.make_tensor("k", TensorProto.STRING, [1], ["é".encode()]))
    found = optimized(proto, mode, {"x": np.array(["a", ""], object), "f": floats(2)})
    assert operators(found) == {"StringConcat": 1, "Equal": 1, "Identity": 1}  # the last between f and z
    assert found.graph.initializer[0].string_data[0] == "é".encode()


@MODES
def test_a_sparse_input_and_a_sparse_initializer(mode: str) -> None:
    proto = model(
        "g (float[2,2] x) => (float[2,2] y) { a = Neg(x) b = Neg(a) y = Mul(b, k) }",
    )
    values = numpy_helper.from_array(np.float32([5, 6]), "k")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(np.int64([1, 2])), [2, 2])
    proto.graph.sparse_initializer.append(sparse)
    found = optimized(proto, mode, {"x": floats(2, 2)})
    assert operators(found) == {"Mul": 1} and list(found.graph.sparse_initializer) == [sparse]
    proto.graph.input.append(
        helper.make_value_info("s", helper.make_sparse_tensor_type_proto(TensorProto.FLOAT, [2, 2]))
    )
    assert optimized(proto, "off").graph.input[1] == proto.graph.input[1]


NARROW = [
    ("INT4", 21), ("UINT4", 21), ("FLOAT8E4M3FN", 19), ("FLOAT8E4M3FNUZ", 19), ("FLOAT8E5M2", 19),
    ("FLOAT8E5M2FNUZ", 19), ("FLOAT4E2M1", 23),
]  # fmt: skip


@MODES
@pytest.mark.parametrize(("kind", "opset"), NARROW)
def test_weights_of_few_bits_stay_in_them(kind: str, opset: int, mode: str) -> None:
    dtype = getattr(TensorProto, kind)
    proto = model(
        "g (float[N,4] x) => (float[N,4] y) { a = Neg(x) b = Neg(a) w = DequantizeLinear(q, s) y = MatMul(b, w) }",
        opset=opset, ir=11, s=np.float32(0.25),
    )  # fmt: skip
    weight = helper.make_tensor("q", dtype, [4, 4], np.arange(16) % 7)
    proto.graph.initializer.append(weight)
    found = optimized(proto, mode, {"x": floats(3, 4)})
    assert operators(found) == {"DequantizeLinear": 1, "MatMul": 1}
    (kept,) = (t for t in found.graph.initializer if t.name == "q")
    assert kept == weight


@MODES
def test_bfloat16(mode: str) -> None:
    proto = model(
        """g (float[2,4] x) => (float[2,4] y) {
            h = Cast<to = 16>(x) r = Reshape(h, t) f = Flatten(r) i = Identity(f) y = Cast<to = 1>(i)
        }""",
        opset=19, t=np.int64([2, 2, 2]),
    )  # fmt: skip
    found = optimized(proto, mode, {"x": floats(2, 4)})
    assert operators(found) == {"Cast": 2}


@MODES
def test_custom_domains_with_whatever_attributes(mode: str) -> None:
    """gs has no place for a TypeProto, or a sparse tensor, in an attribute: such attributes are carried as they are."""
    proto = model(
        """g (float[2] x) => (float[2] y) {
            a = Neg(x) b = Neg(a)
            c, d = org.example.Odd<n = 1, f = 0.5, s = "t", l = [1, 2], e = [0.5], u = ["v"], t = float[1] {2.0},
                g = inner (float[2] p) => (float[2] q) { q = org.example.Deep(p) }>(b, , k)
            y = Add(c, d)
        }""",
        k=floats(2),
    )
    proto.opset_import.add(domain="org.example", version=7)
    odd = proto.graph.node[2]
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, ["N"]))
    odd.attribute.append(helper.make_attribute("kind", kind))
    values = numpy_helper.from_array(np.float32([5]), "")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(np.int64([1])), [2])
    odd.attribute.append(helper.make_attribute("sparse", sparse))
    result = sp.optimize(proto, verify=mode)
    assert operators(result.proto) == {"Odd": 1, "Deep": 1, "Add": 1}
    (kept,) = (n for n in result.proto.graph.node if n.op_type == "Odd")
    assert list(kept.attribute) == list(odd.attribute)
    assert list(kept.input) == ["x", "", "k"] and list(kept.output) == ["c", "d"]
    assert result.custom_operators == {"org.example.Odd": 1, "org.example.Deep": 1}


QDQ = """g (float[1,4,6,6] x) => (float[1,4,6,6] y) {
    i = Identity(x)
    xq = QuantizeLinear(i, s, z) xd = DequantizeLinear(xq, s, z)
    wd = DequantizeLinear(w, ws, wz) bd = DequantizeLinear(b, bs)
    c = Conv<pads = [1, 1, 1, 1]>(xd, wd, bd)
    r = Relu(c)
    rq = QuantizeLinear(r, s, z) rd = DequantizeLinear(rq, s, z)
    vd = DequantizeLinear(w, ws, wz)
    e = Conv<pads = [1, 1, 1, 1]>(rd, vd)
    n = Neg(e) m = Neg(n)
    yq = QuantizeLinear(m, s, z) y = DequantizeLinear(yq, s, z)
}"""


@MODES
def test_a_model_of_quantize_and_dequantize_pairs_keeps_them(mode: str) -> None:
    weights = np.random.default_rng(0).integers(-100, 100, (4, 4, 3, 3)).astype(np.int8)
    proto = model(
        QDQ, s=np.float32(0.05), z=np.int8(0), w=weights, ws=np.float32(0.01), wz=np.int8(0),
        b=np.int32([1, 2, 3, 4]), bs=np.float32(5e-4),
    )  # fmt: skip
    found = optimized(proto, mode, {"x": floats(1, 4, 6, 6)})
    assert operators(found) == {"QuantizeLinear": 3, "DequantizeLinear": 6, "Conv": 2, "Relu": 1}
    held = {t.name: t for t in found.graph.initializer}
    assert all(held[t.name] == t for t in proto.graph.initializer)
    read = {name for node in found.graph.node if node.op_type == "Conv" for name in node.input}
    made = {node.output[0]: node.op_type for node in found.graph.node}
    assert {made[name] for name in read} == {"DequantizeLinear"}


@MODES
def test_quantised_operators_keep_their_weights(mode: str) -> None:
    proto = model(
        """g (float[2,4] x) => (float[2,4] y) {
            a = Neg(x) b = Neg(a)
            q, s, z = DynamicQuantizeLinear(b)
            i = MatMulInteger(q, w, z, wz)
            f = Cast<to = 1>(i) k = Mul(s, ws) y = Mul(f, k)
        }""",
        w=np.arange(16, dtype=np.int8).reshape(4, 4), wz=np.int8(1), ws=np.float32(0.5),
    )  # fmt: skip
    found = optimized(proto, mode, {"x": floats(2, 4)})
    assert operators(found)["MatMulInteger"] == 1 and operators(found)["Neg"] == 0
    (kept,) = (t for t in found.graph.initializer if t.name == "w")
    assert kept == proto.graph.initializer[0]


TRAINING = [
    ("BatchNormalization", "y, m2, v2 = BatchNormalization<training_mode = 1>(c, s, s, s, s)"),
    ("Dropout", "y, k = Dropout(c, half, yes)"),
]


@MODES
@pytest.mark.parametrize(("op", "text"), TRAINING)
def test_training_stays_training(op: str, text: str, mode: str) -> None:
    """Behind a Conv that would take it in, and with a neighbour that goes."""
    proto = model(
        f"g (float[2,4,5,5] x) => (float[2,4,5,5] y) {{ n = Neg(x) p = Neg(n) c = Conv(p, w) {text} }}",
        w=floats(4, 4, 1, 1), s=np.abs(floats(4)), half=np.float32(0.5), yes=np.array(True),
    )  # fmt: skip
    found = optimized(proto, mode)
    assert operators(found) == {"Conv": 1, op: 1}
    before, after = (next(n for n in p.graph.node if n.op_type == op) for p in (proto, found))
    assert list(before.attribute) == list(after.attribute) and len(after.output) == len(before.output)
