"""Optimised and opened: ``surgeon_passes.ort.session("model.onnx")`` gives an ``onnxruntime.InferenceSession``."""

from __future__ import annotations

import logging
import os
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from surgeon_passes.cache import MODEL, Cache, default_folder
from surgeon_passes.errors import ModelError, UsageError
from surgeon_passes.fingerprint import NoKey, of_data, of_model, of_run
from surgeon_passes.model import Model, Weights, export_light
from surgeon_passes.model.files import write_proto
from surgeon_passes.model.nested import every_node
from surgeon_passes.passes import Verify
from surgeon_passes.passes.specialize import Shape
from surgeon_passes.pipeline import Pipeline, Source, default_passes, load
from surgeon_passes.rules.registry import Registry

log = logging.getLogger(__name__)
_OF_PASSES = ("rules", "allow_lossy_casts", "sets", "opset", "inline_functions", "onnxsim")
"""Options of optimize that say which passes run."""


def session(
    source: Source,
    shapes: Mapping[str, Shape] | None = None,
    *,
    pipeline: Pipeline | None = None,
    cache: str | os.PathLike[str] | bool = True,
    sess_options: Any = None,
    providers: Sequence[Any] | None = None,
    provider_options: Sequence[Any] | None = None,
    **options: Any,
) -> Any:
    """An InferenceSession of the optimised model: of a path, a ModelProto or a gs.Graph, which stays as it is.

    ``shapes`` and ``options`` are those of :func:`surgeon_passes.optimize`, or, with a ``pipeline``, those of
    :meth:`Pipeline.run`. A result that is not shown equal is not used: the session is of the model as it was, with a warning.

    Results are kept in ``cache`` (a folder; True: :func:`surgeon_passes.cache.default_folder`; False: nowhere) under a key of
    the model's content, external data included, the source of rules and passes, the options, and all versions. Where one of
    these cannot be told (a rule that is written in no file, data from a function) nothing is kept. Raises SurgeonError, and
    whatever ONNX Runtime raises for its own options.
    """
    model = load(source)
    original = (model.proto, model.weights) if model.proto is not None else export_light(model)
    registry = options.pop("registry", None) or Registry.installed()
    if pipeline is not None and (shapes or any(name in options for name in _OF_PASSES)):
        raise UsageError("a pipeline says itself which shapes, rules and sets it has: give them to its passes")
    pipeline = pipeline or _pipeline(shapes, options)
    with tempfile.TemporaryDirectory() as place:
        try:
            store = None if cache is False else Cache(default_folder() if cache is True else cache)
            key = None if store is None else _key(original, pipeline, registry, options)
            found = None if store is None or key is None else store.find(key)
            path = found or _saved(model, pipeline, registry, options, store, key, Path(place) / MODEL)
        except _NotEqual as error:
            warnings.warn(f"{model.source}: the optimised model was not used ({error}); the original is", stacklevel=2)
            path = Path(place) / MODEL
            write_proto(original[0], path, original[1], model.external)
        libraries = verify.custom_ops if isinstance(verify := options.get("verify"), Verify) else ()
        return _open(path, libraries, sess_options, providers=providers, provider_options=provider_options)


class _NotEqual(Exception):
    """The result was not shown equal, or is not valid."""


def _pipeline(shapes: Mapping[str, Shape] | None, options: dict[str, Any]) -> Pipeline:
    """The default one, by the ``options`` that are about passes, which are taken out."""
    of_passes = {name: options.pop(name) for name in _OF_PASSES if name in options}
    rounds = {name: options.pop(name) for name in ("max_iterations",) if name in options}
    return Pipeline(*default_passes(shapes, **of_passes), **rounds)


def _key(
    original: tuple[onnx.ModelProto, Weights], pipeline: Pipeline, registry: Registry, options: Mapping[str, Any]
) -> str | None:
    """None where a change of what the result depends on would go unnoticed."""
    verify = options.get("verify")
    try:
        held = (verify.data, *verify.custom_ops) if isinstance(verify, Verify) else ()
        data = " ".join(map(of_data, held))
        every = (original[0].graph.node, *(f.node for f in original[0].functions))
        operators = {(n.domain, n.op_type) for nodes in every for n in every_node(nodes) if n.domain}
        told = {**options, "max_iterations": pipeline.max_iterations, "held data": data}
        run = of_run(pipeline.passes, registry, told, operators)
    except NoKey as reason:
        log.info("not kept in the cache: %s", reason)
        return None
    return f"{of_model(*original)[:32]}-{run[:32]}"


def _saved(
    model: Model,
    pipeline: Pipeline,
    registry: Registry,
    options: Mapping[str, Any],
    store: Cache | None,
    key: str | None,
    otherwise: Path,
) -> Path:
    """Where the result is: an entry of the cache, or ``otherwise``. Raises _NotEqual."""
    result = pipeline.run(model, registry=registry, **options)
    if result.exit_code in (4, 5):
        check = result.check
        raise _NotEqual(result.checker_error or f"{check.status}: {check.reason or check.error}")
    if store is not None and key is not None:
        try:
            return store.put(key, result.save)
        except ModelError as error:
            warnings.warn(f"{error}: the optimised model is not kept", stacklevel=3)
    result.save(otherwise)
    return otherwise


def _open(path: Path, libraries: Sequence[str], sess_options: Any, **how: Any) -> Any:
    import onnxruntime

    if libraries and sess_options is None:
        sess_options = onnxruntime.SessionOptions()
        for library in libraries:
            sess_options.register_custom_ops_library(library)
    return onnxruntime.InferenceSession(os.fspath(path), sess_options, **how)


__all__ = ["session"]
