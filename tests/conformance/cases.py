"""ONNX's own suite as models with feeds: each case as it is, with all inputs but the first frozen, and with all frozen."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "light")
SIZES = (1884, 23, 82, 35, 9)
"""how many cases of each kind onnx brings"""


@dataclass(frozen=True, eq=False)
class Case:
    """``feeds`` are values of all inputs that have no initializer: arrays, lists of arrays for sequences, None."""

    kind: str
    name: str
    model: onnx.ModelProto
    feeds: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Variant:
    """A model that is handed to a pipeline; ``feeds`` are those of the inputs that it still has."""

    name: str
    model: onnx.ModelProto
    feeds: dict[str, Any] = field(repr=False)


@cache
def cases(kind: str) -> list[Case]:
    """All cases of a kind, by name."""
    found = {"node": _nodes, "light": _light}.get(kind, lambda: _folders(kind))()
    return sorted(found, key=lambda case: case.name)


@cache
def node_cases() -> list[Any]:
    """onnx's own objects of the kind node: 1,884 of them are made, which takes seconds."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(collect_testcases(None))


def variants(case: Case) -> Iterator[Variant]:
    """As it is, with all inputs but the first frozen, with all frozen; each only where it differs from the one before."""
    yield Variant(case.name, case.model, case.feeds)
    freezable = [name for name in case.feeds if _as_tensor(case.feeds[name], name) is not None]
    if len(freezable) > 1 or (freezable and len(case.feeds) > 1 and freezable[0] != next(iter(case.feeds))):
        first = next(iter(case.feeds))
        yield _frozen(case, f"{case.name}/but_first", [name for name in freezable if name != first])
    if freezable:
        yield _frozen(case, f"{case.name}/frozen", freezable)


def _frozen(case: Case, name: str, names: list[str]) -> Variant:
    """The model in which ``names`` are initializers and no inputs."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    model.ir_version = max(model.ir_version, 4)  # before, initializers had to be inputs
    kept = [value for value in model.graph.input if value.name not in names]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.initializer.extend(_as_tensor(case.feeds[held], held) for held in names)
    return Variant(name, model, {held: value for held, value in case.feeds.items() if held not in names})


def _as_tensor(value: Any, name: str) -> TensorProto | None:
    return numpy_helper.from_array(value, name) if isinstance(value, np.ndarray) else None


def _nodes() -> Iterator[Case]:
    for case in node_cases():
        given = case.data_sets[0][0]
        feeds = {value.name: _value(held) for value, held in zip(case.model.graph.input, given, strict=True)}
        yield Case("node", case.name, case.model, feeds)


def _value(held: Any) -> Any:
    if isinstance(held, TensorProto):
        return numpy_helper.to_array(held)
    return held if held is None or isinstance(held, list) else np.asarray(held)


def _folders(kind: str) -> Iterator[Case]:
    for folder in (DATA / kind).iterdir():
        model = onnx.load(folder / "model.onnx")
        held = {tensor.name for tensor in model.graph.initializer}
        wanted = [value for value in model.graph.input if value.name not in held]
        files = sorted((folder / "test_data_set_0").glob("input_*.pb"), key=lambda p: int(p.stem.split("_")[1]))
        feeds = {value.name: _read(path, value) for value, path in zip(wanted, files, strict=True)}
        yield Case(kind, folder.name, model, feeds)


def _read(path: Path, value: onnx.ValueInfoProto) -> Any:
    if value.type.HasField("sequence_type"):
        sequence = onnx.SequenceProto()
        sequence.ParseFromString(path.read_bytes())
        return numpy_helper.to_list(sequence)
    return numpy_helper.to_array(onnx.load_tensor(path))


def _light() -> Iterator[Case]:
    """Weights are ConstantOfShape nodes whose sizes are initializers; the images are not given."""
    for path in (DATA / "light").glob("*.onnx"):
        model = onnx.load(path)
        held = {tensor.name for tensor in model.graph.initializer}
        random = np.random.default_rng(0)
        feeds = {
            value.name: random.standard_normal([d.dim_value for d in value.type.tensor_type.shape.dim]).astype(
                np.float32
            )
            for value in model.graph.input
            if value.name not in held
        }
        yield Case("light", path.stem, model, feeds)
