"""Linear operators with scales and normalisations around them, and how matrices are multiplied."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.zoo import Network


class Preprocessed(nn.Module):
    """A network that normalises its images itself: bytes to [0, 1], mean and standard deviation of ImageNet."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1))
        self.stem = nn.Conv2d(3, 8, 4, stride=4)  # patches: no padding
        self.padded = nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        x = (image / 255.0 - self.mean) / self.std
        return self.stem(x).relu(), self.padded((image * 2.0 - 255.0) / 255.0 * 0.5).relu()


class FaceHead(nn.Module):
    """The output layer of an ArcFace network (InsightFace's iresnet): BN, dropout, flatten, linear, BN."""

    def __init__(self) -> None:
        super().__init__()
        self.bn2 = nn.BatchNorm2d(8)
        self.dropout = nn.Dropout(p=0.4)
        self.fc = nn.Linear(8 * 7 * 7, 32)
        self.features = nn.BatchNorm1d(32)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.flatten(self.dropout(self.bn2(x)), 1)
        return self.features(self.fc(x))


class PreActivation(nn.Module):
    """Normalisation in front of what it normalises for: pointwise convolution, decoder, pooled classifier, linear."""

    def __init__(self) -> None:
        super().__init__()
        self.pointwise = nn.Sequential(nn.BatchNorm2d(8), nn.Conv2d(8, 8, 1), nn.ReLU())
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.head = nn.BatchNorm2d(8)
        self.pool = nn.AvgPool2d(2)
        self.norm = nn.BatchNorm1d(8)
        self.fc = nn.Linear(8, 4, bias=False)
        self.norm2 = nn.BatchNorm1d(4)
        self.out = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.up(self.pointwise(x) * 0.70710678).relu()
        x = self.pool(self.head(x)).relu().mean((2, 3))
        return self.out(self.norm2(self.fc(self.norm(x)).relu()))


class Attention(nn.Module):
    """Self-attention of a ViT, queries scaled before the product; the same for a projection without bias."""

    def __init__(self, dim: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.scale = (dim // heads) ** -0.5
        self.q, self.k, self.v = nn.Linear(dim, dim), nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim)
        self.proj = nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.q(x) * self.scale, self.k(x) * self.scale, self.v(x)
        mixed = (q @ k.transpose(-2, -1)).softmax(-1) @ v
        return self.proj(mixed * 0.5)


class Contrastive(nn.Module):
    """CLIP's logits: similarities of two sets of embeddings, with a temperature."""

    def __init__(self) -> None:
        super().__init__()
        self.image, self.text = nn.Linear(16, 8), nn.Linear(12, 8)
        self.logit_scale = 14.285

    def forward(self, image: Tensor, text: Tensor) -> Tensor:
        a, b = self.image(image), self.text(text)
        a, b = a / a.norm(dim=-1, keepdim=True), b / b.norm(dim=-1, keepdim=True)
        return self.logit_scale * a @ b.t()


class Retrieval(nn.Module):
    """Scores of a two-tower model: similarities over a temperature, and a log prior that is given."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.item = nn.Linear(16, 8), nn.Linear(16, 8)

    def forward(self, query: Tensor, item: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.query(query) @ self.item(item).t()
        return scores / 0.07, self.item(query) @ self.query(item).t() + prior


class Covariance(nn.Module):
    """Second-order pooling of one map: features are multiplied with their own, transposed."""

    def forward(self, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        centred = x - x.mean(0, keepdim=True)
        return centred.t() @ centred, torch.addmm(bias, x.t(), x)


class Distilled(nn.Module):
    """A classifier with a temperature, whose features are pointwise-scaled on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(16, 16), nn.Linear(16, 4)
        self.register_buffer("gain", torch.rand(16) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.fc1(x).relu() * self.gain + 0.1
        return self.fc2(x) / 4.0


class Policy(nn.Module):
    """An actor of reinforcement learning: actions between bounds, in units of its robot."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 8), nn.Tanh())
        self.max_action = 2.0
        self.register_buffer("unit", torch.rand(8) + 0.5)

    def forward(self, state: Tensor) -> Tensor:
        return self.max_action * self.body(state) / self.unit


class Padded(nn.Module):
    """Convolutions and pools whose "same" padding is written out, as networks ported from TensorFlow do."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2)
        self.next = nn.Conv2d(8, 8, 3)

    def forward(self, x: Tensor) -> Tensor:
        pad = nn.functional.pad
        x = self.conv(pad(x, (0, 1, 0, 1))).relu()
        x = nn.functional.max_pool2d(pad(x, (0, 1, 0, 1)), 3, 2)
        x = self.next(pad(pad(x, (1, 1, 0, 0)), (0, 0, 1, 1)))
        x = nn.functional.max_pool2d(pad(x, (1, 1, 1, 1), value=float("-inf")), 3, 1)
        x = nn.functional.avg_pool2d(pad(x, (0, 1, 0, 1)), 2, 1)
        return pad(pad(x, (1, 1)), (0, 0, 1, 1)).softmax(-1)


RAW: dict[str, Any] = {"training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False}
"""The older exporter folds BatchNormalizations by itself unless told so."""

NETWORKS = (
    Network("linear_preprocessed", Preprocessed, ((1, 3, 16, 16),)),
    Network("linear_face_head", FaceHead, ((2, 8, 7, 7),), opset=18, exporters=("script",), options=RAW),
    Network("linear_face_head", FaceHead, ((2, 8, 7, 7),), opset=18, exporters=("dynamo",)),
    Network("linear_preactivation", PreActivation, ((2, 8, 8, 8),), opset=18, exporters=("script",), options=RAW),
    Network("linear_preactivation", PreActivation, ((2, 8, 8, 8),), opset=18, exporters=("dynamo",)),
    Network("linear_attention", Attention, ((2, 5, 16),)),
    Network("linear_contrastive", Contrastive, ((3, 16), (4, 12)), opset=18),
    Network("linear_retrieval", Retrieval, ((3, 16), (4, 16), (3, 4)), opset=18),
    Network("linear_covariance", Covariance, ((10, 4), (4, 4)), opset=18),
    Network("linear_distilled", Distilled, ((2, 16),)),
    Network("linear_policy", Policy, ((2, 16),)),
    Network("linear_padded", Padded, ((1, 3, 17, 17),)),
)
