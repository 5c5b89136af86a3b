"""What a model imports: the domains that it did, and ai.onnx where it had no operator of it and has got one."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

import surgeon_passes as sp
from tests.models import run, same

ENCODE = "e = ai.onnx.ml.LabelEncoder<keys_int64s = [1, 2], values_int64s = [10, 20]>"


def encoder(inputs: str, body: str, ir: int = 8) -> onnx.ModelProto:
    proto = onnx.parser.parse_model(f"""
        <ir_version: {ir}, opset_import: ["ai.onnx.ml" : 2]>
        g ({inputs}) => (int64[2] e) <int64[2] k = {{2, 1}}> {{ {body} }}""")
    onnx.checker.check_model(proto)
    return proto


def imported(proto: onnx.ModelProto) -> dict[str, int]:
    return {entry.domain: entry.version for entry in proto.opset_import}


@pytest.mark.parametrize(("ir", "opset"), [(3, 9), (4, 9), (7, 12), (8, 15), (10, 21)])
def test_a_constant_brings_its_opset(ir: int, opset: int) -> None:
    """The result is an output and so a Constant node; the opset is the first of the model's IR version."""
    listed = "int64[2] k" if ir < 4 else ""
    proto = encoder(listed, f"{ENCODE}(k)", ir)
    result = sp.optimize(proto)
    assert [node.op_type for node in result.proto.graph.node] == ["Constant"]
    assert imported(result.proto) == {"ai.onnx.ml": 2, "": opset}
    assert result.checker_error == ""
    assert run(result.proto)["e"].tolist() == [20, 10]


def test_nothing_is_imported_that_is_not_needed() -> None:
    proto = encoder("int64[2] x", f"{ENCODE}(x)")
    result = sp.optimize(proto)
    assert imported(result.proto) == {"ai.onnx.ml": 2}
    same(run(proto, x=np.int64([1, 2])), run(result.proto, x=np.int64([1, 2])))


def test_in_a_function_that_imports_its_own() -> None:
    proto = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["local" : 1]>
        g (int64[2] x) => (int64[2] y, int64[2] z) {{ y, z = local.F(x) }}
        <domain: "local", opset_import: ["ai.onnx.ml" : 2, "" : 17]>
        F (x) => (y, z) {{
            k = Constant<value = int64[2] {{2, 1}}>()
            {ENCODE}(k)
            y = Add(x, e)
            z = Add(e, x)
        }}""")
    result = sp.optimize(proto)
    assert imported(result.proto) == {"local": 1}
    assert result.checker_error == ""
    same(run(proto, x=np.int64([1, 2])), run(result.proto, x=np.int64([1, 2])))
