"""Blocks of published networks whose operators torch's exporters write out."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarks.zoo import Network

# --- activations ---------------------------------------------------------------------------------------------------------


class HSwish(nn.Module):
    """MobileNetV3 as first published: ReLU6 of x + 3."""

    def __init__(self, times_first: bool) -> None:
        super().__init__()
        self.relu6 = nn.ReLU6()
        self.times_first = times_first

    def forward(self, x: Tensor) -> Tensor:
        if self.times_first:
            return x * self.relu6(x + 3) / 6
        return x * (self.relu6(x + 3) / 6)


class SqueezeExcite(nn.Module):
    """MobileNetV3's gate: the mean over space, and a hard sigmoid."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc1 = nn.Conv2d(channels, channels // 4, 1)
        self.fc2 = nn.Conv2d(channels // 4, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        scale = x.mean((2, 3), keepdim=True)
        return x * (F.relu6(self.fc2(F.relu(self.fc1(scale))) + 3) / 6)


class MobileBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.expand = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), HSwish(False))
        self.depth = nn.Sequential(
            nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False), nn.BatchNorm2d(16), HSwish(True)
        )
        self.gate = SqueezeExcite(16)

    def forward(self, x: Tensor) -> Tensor:
        return self.gate(self.depth(self.expand(x)))


class WrittenMish(nn.Module):
    """YOLOv4's Mish, before torch had one; ``exact`` writes Softplus out, too."""

    def __init__(self, exact: bool) -> None:
        super().__init__()
        self.exact = exact

    def forward(self, x: Tensor) -> Tensor:
        softplus = torch.log(1 + torch.exp(x)) if self.exact else F.softplus(x, threshold=math.inf)
        return x * torch.tanh(softplus)


class NewGelu(nn.Module):
    """GPT-2's Gelu, and BERT's."""

    def forward(self, x: Tensor) -> Tensor:
        tanh = 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))
        return tanh * 0.5 * (1.0 + torch.erf(tanh / math.sqrt(2.0)))


class Rectifiers(nn.Module):
    """Rectifiers by hand: DarkNet's leaky one, ArcFace's PReLU, an Elu, a Softsign, a threshold."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(4, 4, 1) for _ in range(6))
        self.slope = nn.Parameter(torch.rand(4, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.convs[0](x)
        x = torch.max(x, 0.1 * x)
        x = self.convs[1](x)
        x = F.relu(x) - self.slope * F.relu(-x)
        x = self.convs[2](x)
        x = torch.where(x > 0, x, 1.5 * (torch.exp(x) - 1))
        x = self.convs[3](x)
        x = x / (1 + torch.abs(x))
        x = self.convs[4](x)
        x = torch.where(x > 0.25, x, torch.zeros(()))
        return self.convs[5](x)


class Clamps(nn.Module):
    """Ranges by hand: what a decoder does to boxes and colours."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(4, 4, 1) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.convs[0](x).relu().clamp(max=6.0)
        x = self.convs[1](x).clamp(-1.0, 1.0).relu()
        return torch.maximum(torch.minimum(self.convs[2](x), torch.tensor(1.0)), torch.tensor(0.0))


# --- normalizations ------------------------------------------------------------------------------------------------------


class OpenAINorm(nn.Module):
    """LayerNorm as the authors of BERT in PyTorch wrote it."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.rand(size)), nn.Parameter(torch.rand(size))

    def forward(self, x: Tensor) -> Tensor:
        u = x.mean(-1, keepdim=True)
        s = (x - u).pow(2).mean(-1, keepdim=True)
        x = (x - u) / torch.sqrt(s + 1e-12)
        return self.weight * x + self.bias


class LlamaNorm(nn.Module):
    """LLaMA's RMSNorm, through float32 where the model is of half precision."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(size))

    def forward(self, hidden: Tensor) -> Tensor:
        dtype = hidden.dtype
        hidden = hidden.to(torch.float32)
        variance = hidden.pow(2).mean(-1, keepdim=True)
        hidden = hidden * torch.rsqrt(variance + 1e-6)
        return self.weight * hidden.to(dtype)


class UnitVectors(nn.Module):
    """An encoder's head: standardised, and of length one (as sentence embeddings are); and the length itself."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(16, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        d = x - x.mean(dim=(0, 1), keepdim=True)
        x = self.fc(d / torch.sqrt((d * d).mean(dim=(0, 1), keepdim=True)))
        length = torch.sqrt(torch.sum(x * x, dim=-1, keepdim=True))
        return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min(1e-12), length


class Pooled(nn.Module):
    """A classifier's head that pools by mean and by maximum."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.GroupNorm(4, 8)
        nn.init.uniform_(self.norm.weight)
        nn.init.uniform_(self.norm.bias)
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x)).relu()
        both = x.mean((2, 3), keepdim=True) + x.amax((2, 3), keepdim=True)
        logits = self.fc(both.flatten(1))
        return torch.log(torch.softmax(logits, -1))


class GroupsByInstance(nn.Module):
    """GroupNorm through instance_norm, as before torch had one."""

    def __init__(self, groups: int, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, channels, 3)
        self.groups = groups
        self.weight, self.bias = nn.Parameter(torch.rand(channels, 1, 1)), nn.Parameter(torch.rand(channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        y = F.instance_norm(x.view(x.shape[0], self.groups, -1))
        return torch.sigmoid(y.view(x.shape) * self.weight + self.bias)


class StableSoftmax(nn.Module):
    """Softmax by hand, as in kernels that are checked against it: over classes, or over the channels of an image."""

    def __init__(self, log: bool, image: bool = False) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 5, 1) if image else nn.Linear(8, 5)
        self.log, self.axis = log, 1 if image else -1

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x)
        x = x - x.amax(self.axis, keepdim=True)
        e = torch.exp(x)
        total = e.sum(self.axis, keepdim=True)
        return x - torch.log(total) if self.log else e / total


# --- blocks of pixels ----------------------------------------------------------------------------------------------------


class Focus(nn.Module):
    """YOLOv5's first layer; ``rows_first`` takes the places row by row and is read by more than one."""

    def __init__(self, rows_first: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(12, 8, 3, padding=1)
        self.skip = nn.Conv2d(12, 8, 1)
        self.rows_first = rows_first

    def forward(self, x: Tensor) -> Tensor:
        if self.rows_first:
            y = torch.cat([x[..., ::2, ::2], x[..., ::2, 1::2], x[..., 1::2, ::2], x[..., 1::2, 1::2]], 1)
            return self.conv(y) + torch.sigmoid(self.skip(y))
        return F.silu(
            self.conv(torch.cat([x[..., ::2, ::2], x[..., 1::2, ::2], x[..., ::2, 1::2], x[..., 1::2, 1::2]], 1))
        )


class Shuffle(nn.Module):
    """Real-ESRGAN on the way in (PixelUnshuffle) and a decoder on the way out, with views as ESPCN and TResNet have them."""

    def __init__(self) -> None:
        super().__init__()
        self.unshuffle = nn.PixelUnshuffle(2)
        self.head = nn.Conv2d(12, 12, 3, padding=1)
        self.mid = nn.Conv2d(48, 12, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.head(self.unshuffle(x))
        n, c, h, w = x.shape
        x = x.view(n, c, h // 2, 2, w // 2, 2).permute(0, 3, 5, 1, 2, 4).contiguous().view(n, c * 4, h // 2, w // 2)
        x = self.mid(x)
        n, c, h, w = x.shape
        return x.view(n, c // 4, 2, 2, h, w).permute(0, 1, 4, 2, 5, 3).reshape(n, c // 4, h * 2, w * 2)


# --- transformers --------------------------------------------------------------------------------------------------------


def rotate_half(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def rotate_pairs(x: Tensor) -> Tensor:
    return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).reshape(x.shape)


class Attention(nn.Module):
    """LLaMA's attention: rotary positions, a causal mask. ``angles``: given "ids", or tables of "halves" or "pairs"."""

    def __init__(self, angles: str, size: int = 32, heads: int = 4, rows: int = 6) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(size, size, bias=False) for _ in range(4))
        self.norm = LlamaNorm(size)
        self.angles, self.heads, self.size = angles, heads, size // heads
        frequencies = 1.0 / (10000 ** (torch.arange(0, self.size, 2).float() / self.size))
        self.register_buffer("frequencies", frequencies)
        table = torch.arange(rows).float()[:, None] * frequencies
        whole = table.repeat_interleave(2, -1) if angles == "pairs" else torch.cat((table, table), -1)
        self.register_buffer("cos", whole.cos())
        self.register_buffer("sin", whole.sin())

    def rotary(self, x: Tensor, positions: Tensor | None) -> tuple[Tensor, Tensor]:
        if positions is None:
            return self.cos, self.sin
        inverse = self.frequencies[None, :, None].expand(positions.shape[0], -1, 1)
        angles = (inverse @ positions[:, None, :].float()).transpose(1, 2)
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().unsqueeze(1), angles.sin().unsqueeze(1)

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        batch, rows, size = x.shape
        hidden = self.norm(x)
        q, k, v = (f(hidden).view(batch, rows, self.heads, self.size).transpose(1, 2) for f in (self.q, self.k, self.v))
        cos, sin = self.rotary(x, positions)
        rotate = rotate_pairs if self.angles == "pairs" else rotate_half
        q, k = q * cos + rotate(q) * sin, k * cos + rotate(k) * sin
        scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(self.size)
        mask = torch.full((rows, rows), torch.finfo(scores.dtype).min).triu(1)
        weights = F.softmax(scores + mask, dim=-1)
        return x + self.o(torch.matmul(weights, v).transpose(1, 2).reshape(batch, rows, size))


class VitBlock(nn.Module):
    """timm's block without its fused attention."""

    def __init__(self, size: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.norm1, self.norm2 = OpenAINorm(size), OpenAINorm(size)
        self.qkv, self.proj = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.fc1, self.fc2 = nn.Linear(size, 2 * size), nn.Linear(2 * size, size)
        self.heads, self.scale = heads, (size // heads) ** -0.5
        self.act = NewGelu()

    def forward(self, x: Tensor) -> Tensor:
        batch, rows, size = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(batch, rows, 3, self.heads, size // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        weights = ((q * self.scale) @ k.transpose(-2, -1)).softmax(dim=-1)
        x = x + self.proj((weights @ v).transpose(1, 2).reshape(batch, rows, size))
        return x + self.fc2(self.act(self.fc1(self.norm2(x))))


def tokens_and_positions() -> tuple[Any, ...]:
    return torch.randn(2, 6, 32), torch.arange(6)[None].repeat(2, 1)


def half(size: int) -> nn.Module:
    return nn.Sequential(LlamaNorm(size), nn.Linear(size, size)).half()


def half_sample() -> tuple[Any, ...]:
    return (torch.randn(2, 6, 32).half(),)


IMAGE = ((1, 3, 16, 16),)
TOKENS = ((1, 6, 32),)
NEW = {"opset": 24, "exporters": ("dynamo",)}
"""The dynamo exporter writes models of opset 18 and converts them: nothing newer is in them but where rules put it."""

NETWORKS = (
    Network("hard_swish_block", MobileBlock, IMAGE),
    Network("mish_written_out", lambda: nn.Sequential(nn.Conv2d(3, 8, 3), WrittenMish(False)), IMAGE, opset=18),
    Network("softplus_written_out", lambda: nn.Sequential(nn.Conv2d(3, 8, 3), WrittenMish(True)), IMAGE, opset=18),
    Network("silu_block", lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.SiLU(), nn.Conv2d(8, 8, 3)), IMAGE, **NEW),
    Network("gelus_written_out", lambda: nn.Sequential(nn.Linear(32, 32), NewGelu()), TOKENS, opset=20),
    Network("rectifiers", Rectifiers, ((1, 4, 8, 8),)),
    Network("clamps", Clamps, ((1, 4, 8, 8),)),
    Network("layer_norm_written_out", lambda: nn.Sequential(nn.Linear(32, 32), OpenAINorm(32)), TOKENS),
    Network("rms_norm_half", lambda: half(32), sample=half_sample, **NEW),
    Network("unit_vectors", UnitVectors, ((2, 6, 16),), opset=18),
    Network("unit_vectors_new", UnitVectors, ((2, 6, 16),), **NEW),
    Network("pooled_groups", Pooled, IMAGE),
    Network("pooled_groups_new", Pooled, IMAGE, **NEW),
    Network("groups_by_instance", lambda: GroupsByInstance(4, 8), IMAGE, **NEW),
    Network("torch_softplus", lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.Softplus()), IMAGE, opset=18),
    Network("softmax_written_out", lambda: StableSoftmax(False), ((3, 8),)),
    Network("log_softmax_written_out", lambda: StableSoftmax(True), ((3, 8),)),
    Network("softmax_over_channels", lambda: StableSoftmax(False, image=True), IMAGE, opset=18, exporters=("script",)),
    Network(
        "log_softmax_over_channels", lambda: StableSoftmax(True, image=True), IMAGE, opset=18, exporters=("script",)
    ),
    Network("focus", lambda: Focus(False), IMAGE),
    Network("focus_by_rows", lambda: Focus(True), IMAGE),
    Network("shuffles", Shuffle, IMAGE),
    Network("llama_attention", lambda: Attention("ids"), sample=tokens_and_positions, **NEW),
    Network("rotary_tables", lambda: Attention("halves"), TOKENS, **NEW),
    Network("rotary_pairs", lambda: Attention("pairs"), TOKENS, **NEW),
    Network("vit_block", VitBlock, TOKENS),
    Network("vit_block_new", VitBlock, TOKENS, **NEW),
)
