"""Networks that timm publishes in two forms: as they are trained, and as their authors deploy them."""

from __future__ import annotations

import hashlib
import os
import warnings
from pathlib import Path
from typing import Any

from benchmarks.entries import Unavailable, cache
from benchmarks.zoo import randomize

NAMES = ("repvgg_a0", "mobileone_s0", "repghostnet_050", "fastvit_t8", "repvit_m0_9")
SHAPE = (1, 3, 224, 224)
OPSET = 17


def forms(name: str) -> tuple[Path, Path]:
    """Two files with the same random weights: the training form as torch exports it, and the form that timm's
    ``reparameterize_model`` makes, exported and simplified by onnxsim. Input float32 [1, 3, 224, 224].

    They are kept in the cache. Raises Unavailable where timm cannot be imported.
    """
    folder = cache() / "published" / _key()
    trained, deploy = folder / f"{name}.onnx", folder / f"{name}__deploy.onnx"
    if not deploy.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        _make(name, trained, deploy)
    return trained, deploy


def _key() -> str:
    try:
        import timm
        import torch
    except Exception as error:  # torchvision that does not fit torch raises anything
        raise Unavailable(f"timm cannot be imported: {error}") from error
    source = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    return f"timm-{timm.__version__}-torch-{torch.__version__}-{source}"


def _make(name: str, trained: Path, deploy: Path) -> None:
    import onnx
    import onnxsim
    import timm
    import torch
    from timm.utils.model import reparameterize_model

    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False)
    randomize(model)
    model.eval()
    temporary = deploy.with_name(f"{name}.{os.getpid()}.tmp")
    _export(model, temporary)
    os.replace(temporary, trained)
    _export(reparameterize_model(model), temporary)
    simplified, _ = onnxsim.simplify(onnx.load(temporary))
    onnx.save(simplified, temporary)
    os.replace(temporary, deploy)


def _export(model: Any, path: Path) -> None:
    import torch

    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        names: Any = {"input_names": ["images"], "output_names": ["logits"]}
        torch.onnx.export(model, torch.randn(SHAPE), str(path), opset_version=OPSET, dynamo=False, **names)
