"""Re-parameterisable networks in training form: what their authors' ``switch_to_deploy`` turns into plain convolutions.

Every network is a few blocks and activations; ``CONVOLUTIONS`` says how many Convs its deploy form has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.zoo import Network


def conv_bn(cin: int, cout: int, kernel: Any, stride: int = 1, groups: int = 1, dilation: int = 1) -> nn.Sequential:
    """A convolution that keeps the size, and its BatchNormalization."""
    size = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    padding = tuple(dilation * (k // 2) for k in size)
    conv = nn.Conv2d(cin, cout, size, stride, padding, dilation, groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(cout))


class Branches(nn.Module):
    """A sum of branches."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        out = self.branches[0](x)
        for branch in self.branches[1:]:
            out = out + branch(x)
        return out


# --- RepVGG, QARepVGG, MobileOne -----------------------------------------------------------------------------------------


def rep_vgg(cin: int, cout: int, stride: int = 1, groups: int = 1) -> nn.Module:
    """3x3 + 1x1 + BatchNormalization of the input, where sizes allow one."""
    branches = [conv_bn(cin, cout, 3, stride, groups), conv_bn(cin, cout, 1, stride, groups)]
    if cin == cout and stride == 1:
        branches.append(nn.BatchNorm2d(cin))
    return Branches(*branches)


class QARepVGG(nn.Module):
    """RepVGG for quantisation: a 1x1 without BatchNormalization, the bare input, and one BatchNormalization of the sum."""

    def __init__(self, cin: int, cout: int, stride: int = 1) -> None:
        super().__init__()
        self.dense = conv_bn(cin, cout, 3, stride)
        self.one = nn.Conv2d(cin, cout, 1, stride, bias=False)
        self.identity = nn.Identity() if cin == cout and stride == 1 else None
        self.bn = nn.BatchNorm2d(cout)

    def forward(self, x: Tensor) -> Tensor:
        out = self.dense(x) + self.one(x)
        return self.bn(out if self.identity is None else out + self.identity(x))


def mobile_one(cin: int, cout: int, stride: int = 1, branches: int = 4) -> nn.Module:
    """A depthwise and a pointwise stage, each of several convolutions, a scale branch and a skip."""

    def stage(a: int, b: int, kernel: int, step: int, groups: int) -> nn.Module:
        convs = [conv_bn(a, b, kernel, step, groups) for _ in range(branches)]
        scale = [conv_bn(a, b, 1, step, groups)] if kernel > 1 else []
        skip = [nn.BatchNorm2d(a)] if a == b and step == 1 else []
        return Branches(*convs, *scale, *skip)

    return nn.Sequential(stage(cin, cin, 3, stride, cin), nn.ReLU(), stage(cin, cout, 1, 1, 1))


# --- ACNet, DBB, ECB -----------------------------------------------------------------------------------------------------


def asymmetric(cin: int, cout: int, stride: int = 1) -> nn.Module:
    """ACNet: 3x3 + 3x1 + 1x3."""
    return Branches(*(conv_bn(cin, cout, kernel, stride) for kernel in ((3, 3), (3, 1), (1, 3))))


class BNAndPad(nn.Module):
    """DBB's: pads with what BatchNormalization makes of zero, written as borders."""

    def __init__(self, pad: int, channels: int) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(channels)
        self.pad = pad

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn(x)
        if self.pad > 0:
            scale = self.bn.weight.detach() / torch.sqrt(self.bn.running_var + self.bn.eps)
            values = (self.bn.bias.detach() - self.bn.running_mean * scale).view(1, -1, 1, 1)
            out = functional.pad(out, [self.pad] * 4)
            out[:, :, 0 : self.pad, :] = values
            out[:, :, -self.pad :, :] = values
            out[:, :, :, 0 : self.pad] = values
            out[:, :, :, -self.pad :] = values
        return out


def diverse(cin: int, cout: int, stride: int = 1, groups: int = 1, kernel: int = 3) -> nn.Module:
    """DBB: kxk + 1x1 + 1x1-kxk + 1x1-average, each with BatchNormalizations."""
    pad = kernel // 2
    one = nn.Conv2d(cin, cin, 1, groups=groups, bias=False)
    large = nn.Conv2d(cin, cout, kernel, stride, groups=groups, bias=False)
    average = nn.Conv2d(cin, cout, 1, groups=groups, bias=False)
    return Branches(
        conv_bn(cin, cout, kernel, stride, groups),
        conv_bn(cin, cout, 1, stride, groups),
        nn.Sequential(one, BNAndPad(pad, cin), large, nn.BatchNorm2d(cout)),
        nn.Sequential(average, BNAndPad(pad, cout), nn.AvgPool2d(kernel, stride), nn.BatchNorm2d(cout)),
    )


class EdgeFilter(nn.Module):
    """ECB's 1x1, then a fixed filter with a scale and a bias for each channel; the border is the first's bias."""

    def __init__(self, channels: int, mask: list[list[float]]) -> None:
        super().__init__()
        self.one = nn.Conv2d(channels, channels, 1)
        self.scale = nn.Parameter(torch.randn(channels, 1, 1, 1))
        self.bias = nn.Parameter(torch.randn(channels))
        self.register_buffer("mask", torch.tensor(mask).expand(channels, 1, 3, 3).clone())

    def forward(self, x: Tensor) -> Tensor:
        inner = functional.pad(self.one(x), (1, 1, 1, 1), "constant", 0)
        border = self.one.bias.view(1, -1, 1, 1)
        inner[:, :, 0:1, :] = border
        inner[:, :, -1:, :] = border
        inner[:, :, :, 0:1] = border
        inner[:, :, :, -1:] = border
        return functional.conv2d(inner, self.scale * self.mask, self.bias, groups=inner.shape[1])


def edge_oriented(channels: int) -> nn.Module:
    """ECB: 3x3, Sobel in both directions, Laplacian, the input."""
    sobel = [[1.0, 0.0, -1.0], [2.0, 0.0, -2.0], [1.0, 0.0, -1.0]]
    laplacian = [[0.0, 1.0, 0.0], [1.0, -4.0, 1.0], [0.0, 1.0, 0.0]]
    filters = [
        EdgeFilter(channels, mask) for mask in (sobel, [list(row) for row in zip(*sobel, strict=True)], laplacian)
    ]
    return Branches(nn.Conv2d(channels, channels, 3, padding=1), *filters, nn.Identity())


# --- large kernels -------------------------------------------------------------------------------------------------------


def large_kernel(channels: int, kernel: int = 13, small: int = 5) -> nn.Module:
    """RepLKNet: a large depthwise kernel and a small one."""
    return Branches(*(conv_bn(channels, channels, k, groups=channels) for k in (kernel, small)))


def dilated_kernel(channels: int, kernel: int = 9) -> nn.Module:
    """UniRepLKNet's dilated block: BatchNormalized depthwise kernels whose taps all lie in the large one."""
    shapes = ((kernel, 1), (5, 1), (5, 2), (3, 3), (3, 4))
    return Branches(*(conv_bn(channels, channels, k, groups=channels, dilation=r) for k, r in shapes))


class RepMixer(nn.Module):
    """FastViT's token mixer: x + gamma·(mixer(x) - norm(x))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        stages = (conv_bn(channels, channels, k, groups=channels) for k in (3, 1))
        self.mixer = Branches(*stages, nn.BatchNorm2d(channels))
        self.gamma = nn.Parameter(torch.rand(channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.gamma * (self.mixer(x) - self.norm(x))


# --- rows and stacks of linear operators ---------------------------------------------------------------------------------


class Collapsible(nn.Module):
    """SESR's linear block: many channels between two convolutions, and a skip."""

    def __init__(self, channels: int, wide: int = 64) -> None:
        super().__init__()
        self.expand = nn.Conv2d(channels, wide, 3, padding=1, bias=False)
        self.squeeze = nn.Conv2d(wide, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.squeeze(self.expand(x))


class Residual1x1(nn.Module):
    """RRRB of FMEN: 1x1, 3x3, 1x1 without activations, two skips; padded by a 1x1 without bias."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.expand = nn.Conv2d(channels, 2 * channels, 1, bias=False)
        self.inner = nn.Conv2d(2 * channels, 2 * channels, 3, padding=1, bias=False)
        self.squeeze = nn.Conv2d(2 * channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        wide = self.expand(x)
        return x + self.squeeze(wide + self.inner(wide))


class Heads(nn.Module):
    """Predictions for boxes, classes and masks side by side, as detection heads make them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Conv2d(channels, n, 1) for n in (4, 3, 8))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([head(x) for head in self.heads], 1)


class Adapter(nn.Module):
    """LoRA: a frozen linear layer and a low-rank update."""

    def __init__(self, features: int, rank: int = 4) -> None:
        super().__init__()
        self.base = nn.Linear(features, features)
        self.down = nn.Linear(features, rank, bias=False)
        self.up = nn.Linear(rank, features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + 0.5 * self.up(self.down(x))


class Factorised(nn.Module):
    """An embedding in two linear layers (ALBERT's factorisation turned round), then query, key and value together."""

    def __init__(self, features: int, with_bias: bool) -> None:
        super().__init__()
        self.first = nn.Linear(features, 4 * features, bias=with_bias)
        self.second = nn.Linear(4 * features, features, bias=with_bias)
        self.parts = nn.ModuleList(nn.Linear(features, features, bias=with_bias) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.second(self.first(x)))
        return torch.cat([part(hidden) for part in self.parts], -1)


class Upsampler(Branches):
    """Deconvolutions of several kernel sizes on one tensor, as multi-scale decoders have them."""

    def __init__(self, channels: int) -> None:
        forms = ((2, 0), (4, 1), (6, 2))
        super().__init__(*(nn.ConvTranspose2d(channels, channels, k, 2, p) for k, p in forms))


# --- networks ------------------------------------------------------------------------------------------------------------


def network(*blocks: nn.Module) -> nn.Module:
    """Blocks, an activation after each."""
    return nn.Sequential(*(layer for block in blocks for layer in (block, nn.ReLU())))


BUILT: dict[str, tuple[Callable[[], nn.Module], int, int]] = {
    "repvgg": (lambda: network(rep_vgg(4, 8, 2), rep_vgg(8, 8), rep_vgg(8, 8, groups=2)), 4, 3),
    "qarepvgg": (lambda: network(QARepVGG(4, 8, 2), QARepVGG(8, 8)), 4, 2),
    "mobileone": (lambda: network(mobile_one(4, 8, 2), mobile_one(8, 8)), 4, 4),
    "acnet": (lambda: network(asymmetric(4, 8, 2), asymmetric(8, 8)), 4, 2),
    "dbb": (lambda: network(diverse(4, 8, 2), diverse(8, 8, groups=2), diverse(8, 8, kernel=5)), 4, 3),
    "ecb": (lambda: network(edge_oriented(4), edge_oriented(4)), 4, 2),
    "replk": (lambda: network(large_kernel(8), large_kernel(8, 31)), 8, 2),
    "unireplk": (lambda: network(dilated_kernel(8)), 8, 1),
    "repmixer": (lambda: network(RepMixer(8), RepMixer(8)), 8, 2),
    "sesr": (lambda: network(Collapsible(8), Collapsible(8)), 8, 2),
    "rrrb": (lambda: network(Residual1x1(8), Residual1x1(8)), 8, 2),
    "heads": (lambda: network(conv_bn(4, 8, 3), Heads(8)), 4, 2),
    "upsampler": (lambda: network(Upsampler(4)), 4, 0),
}
"""How each is built, the channels that it reads, and the Convs of its deploy form."""

CONVOLUTIONS = {f"rep_{name}": convolutions for name, (_, _, convolutions) in BUILT.items()}
AS_TRAINED = {"training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False}
"""Options with which the script exporter keeps every BatchNormalization."""


def _convolutional() -> Iterator[Network]:
    for name, (build, channels, _) in BUILT.items():
        shapes = ((1, channels, 24, 24),)
        yield Network(f"rep_{name}", build, shapes, opset=18)
        yield Network(f"rep_{name}_kept", build, shapes, opset=17, exporters=("script",), options=AS_TRAINED)


NETWORKS = (
    *_convolutional(),
    Network("rep_adapter", lambda: nn.Sequential(Adapter(32), nn.GELU()), ((2, 7, 32),), opset=18),
    Network("rep_adapter_rows", lambda: nn.Sequential(Adapter(32), nn.GELU()), ((7, 32),), opset=18),
    Network("rep_factorised", lambda: Factorised(16, with_bias=False), ((2, 7, 16),), opset=18),
    Network("rep_factorised_biased", lambda: Factorised(16, with_bias=True), ((2, 7, 16),), opset=18),
    Network("rep_factorised_rows", lambda: Factorised(16, with_bias=True), ((7, 16),), opset=18),
)
