"""Blocks as their authors write them, whose exports hold what the set `ort` makes one and `npu` takes apart."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.zoo import Network


class BasicBlock(nn.Module):
    """The residual block of ResNet-18."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        out = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(out)) + x)


class Encoder(nn.Module):
    """A post-norm transformer layer as in BERT, attention written out, with the given activation."""

    def __init__(
        self, activation: nn.Module, norm: type[nn.Module] = nn.LayerNorm, size: int = 16, heads: int = 2
    ) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(size, size) for _ in range(3))
        self.project = nn.Linear(size, size)
        self.norm1, self.norm2 = norm(size), norm(size)
        self.up, self.down = nn.Linear(size, 2 * size), nn.Linear(2 * size, size)
        self.activation = activation

    def split(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (self.split(part(x)) for part in (self.query, self.key, self.value))
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(x.shape)
        x = self.norm1(x + self.project(mixed))
        return self.norm2(x + self.down(self.activation(self.up(x))))


class QuickGelu(nn.Module):
    """The activation of CLIP."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


class ChannelAttention(nn.Module):
    """Cross-covariance attention of XCiT: keys times queries over the tokens."""

    def __init__(self, size: int = 8) -> None:
        super().__init__()
        self.qkv = nn.Linear(size, 3 * size)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(x).chunk(3, -1)
        return value @ (query.transpose(-1, -2) @ key).softmax(-1)


class TokenAttention(nn.Module):
    """Self-attention of one head, as in SAGAN."""

    def __init__(self, size: int = 8) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(size, size) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        scores = self.query(x) @ self.key(x).transpose(-1, -2)
        return x + scores.softmax(-1) @ self.value(x)


class Head(nn.Module):
    """A classifier of two fully connected layers, as in AlexNet and VGG."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(48, 16), nn.ReLU(), nn.Linear(16, 4), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class EinsumAttention(nn.Module):
    """Attention in equations, as in the Performer and in AlphaFold's modules."""

    def __init__(self, heads: int = 2, size: int = 4) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.randn(heads, size))
        self.project = nn.Parameter(torch.randn(size, 3))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        weights = torch.einsum("bqhd,bkhd->bhqk", q, k).softmax(-1)
        mixed = torch.einsum("bhqk,bkhd->bqhd", weights, v)
        total = torch.einsum("bqhd,bk->bqhd", mixed, weight)
        moved = torch.einsum("bqhd->bdhq", mixed)
        return total, moved, torch.einsum("bqhd,hd,de->bqe", mixed, self.gate, self.project)


class Assignment(nn.Module):
    """Writes a stretch of its input, as caches of keys and YOLO's decoders do, and reads points of it."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.clone()
        y[:, 1:3] = x[:, 1:3] * 2
        return y, x[torch.tensor([0, 0]), torch.tensor([1, 3])]


class Rotary(nn.Module):
    """RotaryEmbedding as torch's own ONNX operator."""

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return torch.onnx.ops.rotary_embedding(x, cos, sin)


class ByName(nn.Module):
    """Operators that torch's exporters write only when they are asked for by name."""

    def forward(self, x: Tensor) -> Tensor:
        symbolic = torch.onnx.ops.symbolic
        batch, channels, height, width = x.shape
        folded = (batch, 4 * channels, height // 2, width // 2)
        x = symbolic("SpaceToDepth", (x,), {"blocksize": 2}, dtype=x.dtype, shape=folded)
        x = symbolic("Swish", (x,), {"alpha": 1.5}, dtype=x.dtype, shape=folded)
        return symbolic("LpNormalization", (x,), {"axis": 1, "p": 2}, dtype=x.dtype, shape=folded)


class ScaledDotProduct(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v)


class Causal(nn.Module):
    """The mask of a decoder that is made when it runs, and a guard against what is not a number."""

    def forward(self, scores: Tensor) -> Tensor:
        scores = torch.where(torch.isnan(scores), torch.zeros_like(scores), scores)
        return torch.tril(scores)


def activations() -> nn.Module:
    """Self-normalising and hard activations, one after the other."""
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.SELU(), nn.Conv2d(4, 4, 1), nn.CELU(), nn.Conv2d(4, 4, 1), nn.Hardsigmoid()
    )


def clipped() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU6(), nn.Conv2d(4, 4, 1), nn.LeakyReLU(0.1)
    )


def upscaler() -> nn.Module:
    """The end of ESPCN, and the start of a network on unshuffled pixels."""
    return nn.Sequential(nn.PixelUnshuffle(2), nn.Conv2d(12, 12, 3, padding=1), nn.PixelShuffle(2))


def grouped() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 4, 1))


QKV: tuple[Any, ...] = ((1, 2, 5, 8),) * 3
TOKENS = ((1, 5, 16),)
NETWORKS = (
    Network("target_basic_block", BasicBlock, ((1, 8, 8, 8),)),
    Network("target_encoder_gelu", lambda: Encoder(nn.GELU()), TOKENS),
    Network("target_encoder_gelu_20", lambda: Encoder(nn.GELU()), TOKENS, opset=20, exporters=("dynamo",)),
    Network("target_encoder_gelu_tanh", lambda: Encoder(nn.GELU(approximate="tanh")), TOKENS),
    Network("target_encoder_quick_gelu", lambda: Encoder(QuickGelu()), TOKENS),
    Network("target_encoder_rms", lambda: Encoder(nn.SiLU(), nn.RMSNorm), TOKENS, opset=23, exporters=("dynamo",)),
    Network("target_channel_attention", ChannelAttention, ((1, 6, 8),)),
    Network("target_token_attention", TokenAttention, ((1, 6, 8),)),
    Network("target_head", Head, ((2, 3, 4, 4),)),
    Network("target_einsum", EinsumAttention, (*(((2, 5, 2, 4),) * 3), (2, 5)), exporters=("script",)),
    Network("target_assignment", Assignment, ((2, 5, 3),)),
    Network("target_rotary", Rotary, ((1, 2, 5, 8), (1, 5, 4), (1, 5, 4)), opset=23, exporters=("dynamo",)),
    Network("target_by_name", ByName, ((1, 3, 8, 8),), opset=24, exporters=("dynamo",)),
    Network("target_attention", ScaledDotProduct, QKV, opset=23, exporters=("dynamo",)),
    Network("target_causal", Causal, ((2, 5, 5),)),
    Network("target_activations", activations, ((1, 3, 8, 8),)),
    Network("target_clipped", clipped, ((1, 3, 8, 8),)),
    Network("target_upscaler", upscaler, ((1, 3, 8, 8),)),
    Network("target_grouped", grouped, ((1, 3, 8, 8),), opset=21, exporters=("dynamo",)),
    Network("target_mish", lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.Mish()), ((1, 3, 8, 8),), opset=18),
    Network("target_hard_swish", lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.Hardswish()), ((1, 3, 8, 8),)),
)
