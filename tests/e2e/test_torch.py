"""Networks in training form out of torch's own exporters reach their authors' deploy form. Needs the extra ``torch``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

import surgeon_passes as sp

torch = pytest.importorskip("torch")

from benchmarks import published  # noqa: E402  (they need torch)
from benchmarks.entries import Unavailable  # noqa: E402
from benchmarks.zoo import Network, export  # noqa: E402
from benchmarks.zoo.reparam import AS_TRAINED, BUILT, CONVOLUTIONS, NETWORKS  # noqa: E402

FOLDED = {"training": torch.onnx.TrainingMode.EVAL, "do_constant_folding": True}
FORMS = [
    ("script", 17, FOLDED),
    ("script", 17, {**FOLDED, "do_constant_folding": False}),
    ("script", 17, AS_TRAINED),
    ("dynamo", 18, {}),
    ("dynamo", 18, {"optimize": False}),
]
"""Exporter, opset and options: BatchNormalizations folded by the exporter, and kept."""


def optimized(path: Path) -> sp.Result:
    result = sp.optimize(path)
    assert not result.undone and {d.verdict for d in result.applied} == {"verified"}
    assert result.check.status == "equal"
    return result


@pytest.mark.parametrize("name", BUILT)
@pytest.mark.parametrize(("exporter", "opset", "options"), FORMS)
def test_reaches_the_deploy_form(name: str, exporter: str, opset: int, options: dict[str, Any], tmp_path: Path) -> None:
    build, channels, convolutions = BUILT[name]
    path = tmp_path / f"{name}.onnx"
    export(Network(name, build, ((1, channels, 24, 24),), opset=opset, options=options), exporter, path)
    result = optimized(path)
    assert result.after.operators["Conv"] == convolutions, result.report()
    assert set(result.after.operators) <= {"Conv", "ConvTranspose", "Relu"}
    assert result.blocks == ()


@pytest.mark.parametrize("name", [n.name for n in NETWORKS if n.name not in CONVOLUTIONS and "_kept" not in n.name])
@pytest.mark.parametrize("exporter", ["script", "dynamo"])
def test_linear_layers_become_one(name: str, exporter: str) -> None:
    network = next(n for n in NETWORKS if n.name == name)
    result = optimized(network.file(exporter))
    layers = result.after.operators["Gemm"] + result.after.operators["MatMul"]
    assert layers == (1 if "adapter" in name else 2), result.report()
    assert result.after.operators["Concat"] == 0 and result.blocks == ()


@pytest.mark.parametrize("name", published.NAMES)
def test_as_lean_as_timm_makes_it(name: str) -> None:
    """No more nodes than timm's own reparameterize_model, exported and simplified by onnxsim."""
    pytest.importorskip("onnxsim")
    try:
        trained, deploy = published.forms(name)
    except Unavailable as reason:
        pytest.skip(str(reason))
    result = optimized(trained)
    nodes = onnx.load(deploy).graph.node
    assert result.after.nodes <= sum(node.op_type != "Constant" for node in nodes), result.report()
    assert all(block.reason for block in result.blocks)
