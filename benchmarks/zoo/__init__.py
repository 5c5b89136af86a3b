"""Small torch networks, written as their authors write them, through torch's own exporters.

A file holds the networks of one subject in ``NETWORKS``. Torch is needed (the extra ``torch``); files are exported once and
kept in the cache, by the source that they came from.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import pkgutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.entries import cache

EXPORTERS = ("script", "dynamo")
"""torch.onnx.export with dynamo=False, and with dynamo=True."""


@dataclass(frozen=True)
class Network:
    """How one network is made and exported.

    ``build`` makes the torch module; ``shapes`` are those of its float32 inputs, drawn from a normal distribution, or
    ``sample`` makes the inputs. ``dynamic`` names dims of inputs by position, e.g. ``{0: {0: "N"}}``. ``options`` go to
    ``torch.onnx.export`` as they are. BatchNormalizations get random statistics and, like weights, come from a fixed seed.
    """

    name: str
    build: Callable[[], Any]
    shapes: tuple[tuple[int, ...], ...] = ()
    opset: int = 17
    exporters: tuple[str, ...] = EXPORTERS
    sample: Callable[[], tuple[Any, ...]] | None = None
    dynamic: Mapping[int, Mapping[int, str]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def module(self) -> Any:
        """The module in evaluation mode."""
        import torch

        torch.manual_seed(0)
        made = self.build()
        randomize(made)
        return made.eval()

    def arguments(self) -> tuple[Any, ...]:
        import torch

        torch.manual_seed(1)
        return self.sample() if self.sample is not None else tuple(torch.randn(shape) for shape in self.shapes)

    def file(self, exporter: str) -> Path:
        """The exported file, made where the cache does not have it."""
        source = inspect.getsource(importlib.import_module(self.build.__module__)) + inspect.getsource(Network)
        key = hashlib.sha256(source.encode()).hexdigest()[:12]
        kept = cache() / "zoo" / key / f"{self.name}__{exporter}.onnx"
        if not kept.is_file():
            kept.parent.mkdir(parents=True, exist_ok=True)
            temporary = kept.with_name(f"{kept.name}.{os.getpid()}.tmp")
            export(self, exporter, temporary)
            os.replace(temporary, kept)
        return kept


def export(network: Network, exporter: str, path: Path) -> None:
    """Write the network as ``exporter`` writes it, weights inside the file."""
    import torch

    module, arguments = network.module(), network.arguments()
    names = [f"x{k}" for k in range(len(arguments))]
    options: dict[str, Any] = {"input_names": names, "opset_version": network.opset, **network.options}
    if exporter == "dynamo":
        options |= {"dynamo": True, "external_data": False, "verbose": False}
        if network.dynamic:
            dims = {n: torch.export.Dim(n) for axes in network.dynamic.values() for n in axes.values()}
            options["dynamic_shapes"] = tuple(
                {a: dims[n] for a, n in network.dynamic.get(k, {}).items()} for k in range(len(arguments))
            )
    else:
        options["dynamo"] = False
        if network.dynamic:
            options["dynamic_axes"] = {names[k]: dict(axes) for k, axes in network.dynamic.items()}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, arguments, str(path), **options)


def randomize(module: Any) -> None:
    """Statistics and scales of every BatchNormalization as training leaves them, not as they begin."""
    import torch

    for part in module.modules():
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
            for tensor, low, high in (
                (part.weight, 0.5, 1.5),
                (part.bias, -0.5, 0.5),
                (part.running_mean, -0.5, 0.5),
                (part.running_var, 0.5, 1.5),
            ):
                if tensor is not None:
                    torch.nn.init.uniform_(tensor, low, high)


def networks() -> Iterator[Network]:
    """All of them, file by file. Raises ModuleNotFoundError where torch is not installed."""
    for found in pkgutil.iter_modules(__path__):
        if not found.name.startswith("_"):
            yield from importlib.import_module(f"{__name__}.{found.name}").NETWORKS


def files(names: list[str] | None = None) -> Iterator[tuple[str, Path]]:
    """Name and file of every export whose name holds one of ``names`` (all where there are none)."""
    for network in networks():
        for exporter in network.exporters:
            label = f"{network.name}__{exporter}"
            if not names or any(n in label for n in names):
                yield label, network.file(exporter)
