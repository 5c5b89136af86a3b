"""Data movement as people write it: views back and forth, masks, crops, tensors that are expanded to fit."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.zoo import Network


class ChannelAttention(nn.Module):
    """ECA: a convolution over channels, weights expanded over the map."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(1, 1, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.adaptive_avg_pool2d(x, 1)
        y = self.conv(y.squeeze(-1).transpose(-1, -2)).transpose(-1, -2).unsqueeze(-1)
        return x * torch.sigmoid(y).expand_as(x)


class ChannelsLast(nn.Module):
    """A ConvNeXt-like block that works on the last axis, its permutations around each step."""

    def __init__(self) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.rand(8))
        self.bias = nn.Parameter(torch.rand(8))
        self.conv = nn.Conv2d(8, 8, 3, padding=1)
        self.drop_path = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x).permute(0, 2, 3, 1)
        y = functional.relu(y).permute(0, 3, 1, 2)
        z = self.conv(y).permute(0, 2, 3, 1)
        z = self.drop_path(z + self.bias).permute(0, 3, 1, 2).permute(0, 2, 3, 1).permute(0, 3, 1, 2)
        both = self.conv(z).permute(0, 2, 3, 1) * torch.sigmoid(y).permute(0, 2, 3, 1)
        return functional.avg_pool2d(both.permute(0, 1, 2, 3), 2)


class Views(nn.Module):
    """Heads that squeeze and view more than once, with functions in between."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        pooled = functional.adaptive_avg_pool2d(x, 1)
        flat = pooled.squeeze(3).squeeze(2)
        again = functional.relu(x.flatten(2)).view(x.shape[0], 8, 6, 6)
        gate = pooled.squeeze(2).unsqueeze(2) * y
        lifted = y.unsqueeze(1).squeeze(1) + 1
        context = torch.cat((x, pooled.expand(-1, -1, 6, 1).expand(-1, -1, 6, 6)), 1)
        return flat.sigmoid(), again, gate, lifted, context


class Selected(nn.Module):
    """What a mask selects, viewed back and forth: how many rows there are, only the data say."""

    def forward(self, x: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        chosen = x[keep]
        return chosen.squeeze(1).unsqueeze(1) * 2, chosen.unsqueeze(2).squeeze(2) + 1


class Branches(nn.Module):
    """Groups, splits and branches whose number is one, or that have nothing to do (FasterNet's PConv without its Conv)."""

    def __init__(self, groups: int = 1) -> None:
        super().__init__()
        self.groups = groups
        self.branches = nn.ModuleList(nn.Conv2d(8 // groups, 8 // groups, 1) for _ in range(groups))
        self.partial = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        parts = x.chunk(self.groups, 1)
        x = torch.cat([functional.relu6(b(p)) for b, p in zip(self.branches, parts, strict=True)], 1)
        first, rest = torch.split(x, [2, 6], 1)
        return torch.cat((self.partial(first), rest), 1).clamp(0, 4)


class Tidy(nn.Module):
    """What is left when options are off: padding by nothing, a resize to the same size, activations twice, masks."""

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        y = functional.relu(functional.relu(functional.pad(x, (0, 0, 0, 0))))
        y = functional.interpolate(y, size=x.shape[2:], mode="bilinear", align_corners=False)
        attention = functional.relu(torch.softmax(y, -1))
        everywhere = torch.ones_like(mask, dtype=torch.bool)
        kept = torch.where(everywhere, attention, torch.zeros_like(attention))
        bias = (~(~mask)).to(x.dtype)
        return torch.neg(torch.neg(kept)), torch.floor(torch.round(x * 8)), bias


class Masks(nn.Module):
    """Masks and embeddings of an encoder, with sizes that are only known when it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 8)
        self.types = nn.Embedding(2, 8)

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        batch, length = ids.shape
        kinds = torch.zeros(batch, length, dtype=torch.long)
        x = self.words(ids) + self.types(kinds)
        wide = mask[:, None, None, :].expand(batch, 1, length, length).to(x.dtype)
        return x, (1.0 - wide) * -1e4


class Grouped(nn.Module):
    """Llama's repeated keys, a causal convolution's chomp, and an upsampling to twice the size."""

    def __init__(self) -> None:
        super().__init__()
        self.causal = nn.Conv1d(8, 8, 3, padding=2)
        self.key = nn.Linear(8, 8)

    def forward(self, x: Tensor, image: Tensor) -> tuple[Tensor, ...]:
        batch, length, _ = x.shape
        key = self.key(x).view(batch, length, 2, 4).transpose(1, 2)
        repeated = key[:, :, None].expand(batch, 2, 3, length, 4)
        y = self.causal(x.transpose(1, 2))
        y = y[:, :, : y.shape[2] - 2]
        up = functional.interpolate(image, size=(image.shape[2] * 2, image.shape[3] * 2), mode="nearest")
        wide = image.mean((2, 3), keepdim=True).expand(image.shape[0], 3, image.shape[2], 1)
        return repeated, y, up, wide.expand(-1, -1, -1, image.shape[3])


class Mixed(nn.Module):
    """A layer that works in half precision and hands on single, as autocast leaves it."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.exp(x.half().float()).half().float() * 2


TOKENS = {0: {0: "batch", 1: "length"}, 1: {0: "batch", 1: "length"}}
RAW: dict[str, Any] = {"optimize": False}


def tokens() -> tuple[Tensor, ...]:
    return torch.randint(0, 20, (2, 5)), torch.ones(2, 5, dtype=torch.bool)


def masked() -> tuple[Tensor, ...]:
    return torch.randn(1, 8, 6, 6), torch.rand(1, 8, 6, 6) > 0.5


def selected() -> tuple[Tensor, ...]:
    return torch.randn(6, 1, 5), torch.tensor([True, False, True, True, False, True])


NETWORKS = (
    Network("movement_channel_attention", ChannelAttention, ((1, 8, 6, 6),), opset=18),
    Network("movement_channels_last", ChannelsLast, ((1, 8, 6, 6),), opset=18),
    Network("movement_channels_last_raw", ChannelsLast, ((1, 8, 6, 6),), opset=18, exporters=("dynamo",), options=RAW),
    Network("movement_views", Views, ((2, 8, 6, 6), (2, 8, 1, 1)), opset=18),
    Network("movement_views_raw", Views, ((2, 8, 6, 6), (2, 8, 1, 1)), opset=18, exporters=("dynamo",), options=RAW),
    Network("movement_branches", Branches, ((1, 8, 6, 6),), opset=18),
    Network("movement_tidy", Tidy, opset=18, sample=masked),
    Network("movement_tidy_raw", Tidy, opset=18, sample=masked, exporters=("dynamo",), options=RAW),
    Network("movement_masks", Masks, opset=18, sample=tokens, dynamic=TOKENS),
    Network(
        "movement_grouped",
        Grouped,
        ((2, 5, 8), (2, 3, 8, 8)),
        opset=18,
        dynamic={0: {0: "batch", 1: "length"}, 1: {0: "batch", 2: "height", 3: "width"}},
    ),
    Network(
        "movement_selected",
        Selected,
        opset=18,
        sample=selected,
        dynamic={0: {0: "rows", 2: "length"}, 1: {0: "rows"}},
    ),
    Network("movement_mixed", Mixed, ((2, 8),), opset=18),
)
