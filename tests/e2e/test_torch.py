"""Networks in training form out of torch's own exporters reach their authors' deploy form. Needs the extra ``torch``."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import onnx
import pytest

import surgeon_passes as sp

torch = pytest.importorskip("torch")

from benchmarks.zoo import Network, export, randomize  # noqa: E402  (they need torch)
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


TIMM = ("repvgg_a0", "mobileone_s0", "repghostnet_050", "fastvit_t8", "repvit_m0_9")


@pytest.mark.parametrize("name", TIMM)
def test_as_lean_as_timm_makes_it(name: str, tmp_path: Path) -> None:
    """No more nodes than timm's own reparameterize_model, exported and simplified by onnxsim."""
    onnxsim = pytest.importorskip("onnxsim")
    try:
        import timm
        from timm.utils.model import reparameterize_model
    except Exception as error:  # torchvision that does not fit torch raises anything
        pytest.skip(f"timm cannot be imported: {error}")
    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False)
    randomize(model)
    model.eval()
    path = tmp_path / "trained.onnx"
    _export(model, path)
    _export(reparameterize_model(model), tmp_path / "deploy.onnx")
    deploy, _ = onnxsim.simplify(onnx.load(tmp_path / "deploy.onnx"))
    result = optimized(path)
    assert result.after.nodes <= sum(node.op_type != "Constant" for node in deploy.graph.node), result.report()
    assert all(block.reason for block in result.blocks)


def _export(model: Any, path: Path) -> None:
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, torch.randn(1, 3, 224, 224), str(path), opset_version=17, dynamo=False)
