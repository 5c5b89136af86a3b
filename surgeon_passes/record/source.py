"""What a run was given and what it gave, by bytes: versions, options, files and their digests."""

from __future__ import annotations

import dataclasses
import os
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import onnx

from surgeon_passes.errors import UsageError
from surgeon_passes.fingerprint import PACKAGES
from surgeon_passes.model.elements import stated_dims
from surgeon_passes.model.files import digest_of_model
from surgeon_passes.model.weights import Weights
from surgeon_passes.ops.schema import opsets_of
from surgeon_passes.passes import Pass, Rewrite
from surgeon_passes.passes.text import as_options
from surgeon_passes.passes.toml import dumps

if TYPE_CHECKING:
    from surgeon_passes.result import Result


def tools() -> dict[str, str]:
    """Versions of whatever has a part in a result."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for name in ("surgeon-passes", *PACKAGES):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def options_record(result: Result) -> dict[str, Any]:
    """What has to be said to run it again; ``not_replayable`` is why that cannot be said, or ""."""
    verify, ran = result.verify, result.ran
    passes = () if ran.pipeline is None else ran.pipeline.passes
    toml, reason = None, ""
    try:
        toml = dumps(map(_without_rules, passes), ran.pipeline.max_iterations) if passes else None
    except UsageError as error:
        reason = str(error)
    data = verify.data
    if not reason and data is not None and not isinstance(data, (str, os.PathLike)):
        reason = "inputs come from a function, which no file can hold"
    return {
        "pipeline": toml,
        "passes": [_pass(step) for step in passes],
        "skip": list(ran.skip),
        "keep": list(ran.keep),
        "only": ran.only,
        "verify": {
            "mode": verify.mode,
            "end_check": verify.end_check,
            "data": os.fspath(data) if isinstance(data, (str, os.PathLike)) else None,
            "tolerances": dataclasses.asdict(verify.tolerances),
            "custom_ops": [os.fspath(path) for path in verify.custom_ops],
        },
        "not_replayable": reason,
    }


def _pass(step: Pass) -> dict[str, Any]:
    try:
        options = as_options(_without_rules(step))
    except UsageError:
        options = {}
    if isinstance(step, Rewrite):
        options["sets"] = list(step.sets)
    own = [rule.name for rule in step.rules] if isinstance(step, Rewrite) else []
    return {"name": step.name, "options": {name: _plain(value) for name, value in options.items()}, "rules": own}


def _without_rules(step: Pass) -> Pass:
    """The pass less the rules that were given as objects."""
    if not isinstance(step, Rewrite) or not step.rules:
        return step
    return Rewrite(*step.sets, skip=step.skip, approximate=step.approximate, allow_lossy_casts=step.allow_lossy_casts)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def source_record(result: Result) -> dict[str, Any]:
    """``sha256`` is of the file, or of the model as a file where it came as an object; ``data_sha256`` where weights lie
    beside it, of the same model in one file."""
    proto = result.original
    sha256, size = result.source_digest
    return {
        "path": result.source,
        "sha256": sha256,
        "data_sha256": data_digest(proto, result.weights, result.external),
        "bytes": size,
        **(proto_record(proto) if proto is not None else proto_record(result.light)),
    }


def data_digest(proto: onnx.ModelProto | None, weights: Weights, external: bool) -> str | None:
    """Of a model with all its weights, where some lie in other files; else None. Raises ModelError where one is missing."""
    return digest_of_model(proto, weights)[0] if external and proto is not None else None


def result_record(result: Result) -> dict[str, Any]:
    """``sha256`` is of the file that ``save`` writes; where weights lie beside it, of the same model in one file."""
    sha256, size = digest_of_model(vars(result).get("proto", result.light), result.weights)
    return {"sha256": sha256, "bytes": size, "external_data": result.external, **proto_record(result.light)}


def proto_record(proto: onnx.ModelProto) -> dict[str, Any]:
    """Where a model comes from, and its interface."""
    held = {t.name for t in proto.graph.initializer}
    return {
        "producer": proto.producer_name,
        "producer_version": proto.producer_version,
        "ir_version": proto.ir_version,
        "opsets": opsets_of(proto.opset_import),
        "inputs": _values(v for v in proto.graph.input if v.name not in held),
        "outputs": _values(proto.graph.output),
    }


def _values(values: Iterable[onnx.ValueInfoProto]) -> list[dict[str, Any]]:
    return [value_record(value) for value in values]


def value_record(value: onnx.ValueInfoProto) -> dict[str, Any]:
    """An input or output: dims are numbers, names, or None; ``shape`` None where the rank is not said."""
    kind = value.type.WhichOneof("value") or "tensor_type"
    if kind != "tensor_type":
        return {"name": value.name, "dtype": kind.removesuffix("_type"), "shape": None}
    tensor = value.type.tensor_type
    dtype = onnx.TensorProto.DataType.Name(tensor.elem_type).lower() if tensor.elem_type else None
    return {
        "name": value.name,
        "dtype": dtype,
        "shape": stated_dims(tensor.shape) if tensor.HasField("shape") else None,
    }
