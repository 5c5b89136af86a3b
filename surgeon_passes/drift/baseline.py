"""The baseline of a model: what it is made of, and what rules make of it. No weights, and no names but the interface's."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
from onnx import TensorProto

from surgeon_passes.decisions import APPLIED
from surgeon_passes.model.files import all_tensors
from surgeon_passes.ops.macs import parameters
from surgeon_passes.record.files import read_json, write_record
from surgeon_passes.record.source import options_record, proto_record, tools
from surgeon_passes.region import TensorType

if TYPE_CHECKING:
    from surgeon_passes.result import Result

FORMAT = "surgeon-passes baseline"
VERSION = 1
SUFFIX = ".baseline.json"


def baseline_of(result: Result) -> dict[str, Any]:
    """The baseline of the model that ``result`` was made of, as data that JSON holds; ``schema.json`` beside this file
    describes it."""
    proto = result.original if result.original is not None else result.light
    matches = Counter(d.rule for d in result.decided if d.status == APPLIED and d.rule in result.ran.known)
    return {
        "format": FORMAT,
        "version": VERSION,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "tools": tools(),
        "model": os.path.basename(result.source),
        **proto_record(proto),
        "nodes": result.before.nodes,
        "operators": dict(sorted(result.before.operators.items())),
        "weights": [
            {"dtype": dtype, "shape": list(shape), "count": count}
            for (dtype, shape), count in sorted(Counter(_weights(proto)).items())
        ],
        "matches": dict(sorted(matches.items())),
        "options": {name: value for name, value in options_record(result).items() if name in OPTIONS},
    }


OPTIONS = ("pipeline", "skip", "keep", "only")
"""What decides which rules match: matches of runs that were told otherwise are not compared."""


def _weights(proto: onnx.ModelProto) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Element type and shape of each constant that holds parameters, in initializers and Constant nodes alike."""
    for tensor in all_tensors(proto):
        if tensor.dims and parameters(TensorType(tensor.data_type, tuple(tensor.dims))):
            yield TensorProto.DataType.Name(tensor.data_type).lower(), tuple(tensor.dims)


def path_beside(model: str | os.PathLike[str]) -> Path:
    """Where the baseline of a model lies: ``model.baseline.json`` beside ``model.onnx``."""
    return Path(model).with_suffix(SUFFIX)


def write_baseline(path: str | os.PathLike[str], baseline: Mapping[str, Any]) -> None:
    """Raises ModelError where the place cannot be written."""
    write_record(path, baseline)


def read_baseline(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Raises ModelError, naming the file, for what is no baseline."""
    return read_json(path, "surgeon_passes.drift", "a baseline")
