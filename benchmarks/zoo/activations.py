"""Activations as torch has them."""

from __future__ import annotations

from torch import nn

from benchmarks.zoo import Network


def block(activation: type[nn.Module]) -> nn.Module:
    """Convolution, BatchNormalization and the activation, as in most mobile networks."""
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), activation())


NETWORKS = tuple(
    Network(f"activation_{activation.__name__.lower()}", lambda a=activation: block(a), ((1, 3, 16, 16),), opset=opset)
    for activation, opset in ((nn.GELU, 20), (nn.Hardswish, 17), (nn.Mish, 18), (nn.SiLU, 20))
)
