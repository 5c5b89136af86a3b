from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from surgeon_passes import runtime
from surgeon_passes.runtime import RuntimeFailure, Session, external_stub


def matmul(weight: np.ndarray | TensorProto) -> ModelProto:
    held = weight if isinstance(weight, TensorProto) else numpy_helper.from_array(weight, "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")], "g",
        [helper.make_tensor_value_info("x", 1, [None, held.dims[0]])], [helper.make_tensor_value_info("y", 1, None)], [held],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


WEIGHT = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_importing_the_package_does_not_load_onnx_runtime() -> None:
    code = "import sys, surgeon_passes.verify, surgeon_passes.runtime; sys.exit('onnxruntime' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_run() -> None:
    assert runtime.run(matmul(WEIGHT), {"x": np.float32([[1, 1]])})["y"].tolist() == [[3, 5, 7]]


def test_external_initializers_are_not_copied_into_the_model() -> None:
    made = matmul(external_stub("w", WEIGHT.shape, TensorProto.FLOAT))
    session = Session(made, external={"w": WEIGHT})
    assert session.run({"x": np.float32([[1, 1]])})["y"].tolist() == [[3, 5, 7]]


def test_weights_too_large_for_one_piece_go_in_beside_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "_PIECE_LIMIT", 10)
    monkeypatch.setattr(runtime, "_EXTERNAL_BYTES", 8)
    made = matmul(WEIGHT)
    slim, arrays = runtime._without_large_weights(made)
    assert arrays["w"].tolist() == WEIGHT.tolist() and not slim.graph.initializer[0].raw_data
    assert runtime.run(made, {"x": np.float32([[1, 1]])})["y"].tolist() == [[3, 5, 7]]


def test_failures_are_one_line_with_onnx_runtimes_reason() -> None:
    with pytest.raises(RuntimeFailure) as found:
        runtime.run(matmul(WEIGHT), {"x": np.float32([[1, 1, 1]])})
    assert str(found.value).startswith("Got invalid dimensions for input: x") and "\n" not in str(found.value)
    assert found.value.code == "INVALID_ARGUMENT"
    made = matmul(WEIGHT)
    made.graph.node[0].op_type = "Nothing"
    with pytest.raises(RuntimeFailure, match="No Op registered for Nothing"):
        Session(made)
    with pytest.raises(RuntimeFailure):
        Session("no_such_file.onnx")
