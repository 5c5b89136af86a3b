"""The optimisers that are compared, each with its default options."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import onnx

import surgeon_passes
from surgeon_passes.errors import UsageError, did_you_mean

Call: TypeAlias = Callable[[onnx.ModelProto, Path], "onnx.ModelProto | None"]
"""A model in, the optimised one out; None where the tool wrote it to the path itself."""
FileCall: TypeAlias = Callable[[Path, Path], None]
"""From a file to a file."""

OURS, OFF, ONNXSIM = "surgeon_passes", "surgeon_passes (verify off)", "onnxsim"
_OWN = "surgeon-passes"
INLINE_LIMIT = 1_900_000_000


@dataclass(frozen=True)
class Tool:
    """``prepare`` imports the tool and gives its call; ``distribution`` is the package that holds it.

    ``prepare_file`` gives the call from file to file where the tool has one of its own for large models.
    """

    name: str
    distribution: str
    prepare: Callable[[str | None], Call]
    prepare_file: Callable[[str | None], FileCall] | None = None

    @property
    def version(self) -> str | None:
        """Of the installed package; None where it is not installed."""
        if self.distribution == _OWN:
            return surgeon_passes.__version__
        try:
            return importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return None

    def file_call(self, data: str | None) -> FileCall:
        """Load, optimise, save."""
        if self.prepare_file is not None:
            return self.prepare_file(data)
        call = self.prepare(data)

        def through_memory(source: Path, target: Path) -> None:
            made = call(onnx.load(source), target)
            if made is not None:
                save(made, target)

        return through_memory


def save(proto: onnx.ModelProto, path: Path) -> None:
    """Write a model, its weights beside it where it is too large for one piece."""
    large = proto.ByteSize() > INLINE_LIMIT
    onnx.save(proto, path, save_as_external_data=large, location=f"{path.name}.data" if large else None)


def _onnxsim(_: str | None) -> Call:
    onnxsim: Any = importlib.import_module("onnxsim")
    return lambda model, _: onnxsim.simplify(model)[0]


def _onnxsim_file(_: str | None) -> FileCall:
    onnxsim: Any = importlib.import_module("onnxsim")
    writes = "output_path" in inspect.signature(onnxsim.simplify).parameters  # older ones give the model back

    def call(source: Path, target: Path) -> None:
        if writes:
            onnxsim.simplify(str(source), output_path=str(target))
        else:
            save(onnxsim.simplify(onnx.load(source))[0], target)

    return call


def _onnxslim(_: str | None) -> Call:
    onnxslim: Any = importlib.import_module("onnxslim")
    return lambda model, _: onnxslim.slim(model)


def _onnxscript(_: str | None) -> Call:
    """Optimizer and rewriter, converted to onnxscript's own form once."""
    ir: Any = importlib.import_module("onnxscript").ir
    optimizer: Any = importlib.import_module("onnxscript.optimizer")
    rewriter: Any = importlib.import_module("onnxscript.rewriter")

    def call(model: onnx.ModelProto, _: Path) -> onnx.ModelProto:
        made = rewriter.rewrite(optimizer.optimize(ir.from_proto(model)))
        return ir.to_proto(made)  # type: ignore[no-any-return]

    return call


def _onnxoptimizer(_: str | None) -> Call:
    onnxoptimizer: Any = importlib.import_module("onnxoptimizer")
    return lambda model, _: onnxoptimizer.optimize(model)


def _graphsurgeon(_: str | None) -> Call:
    gs: Any = importlib.import_module("onnx_graphsurgeon")

    def call(model: onnx.ModelProto, _: Path) -> onnx.ModelProto:
        return gs.export_onnx(gs.import_onnx(model).fold_constants().cleanup())  # type: ignore[no-any-return]

    return call


def _session(source: str | bytes, target: Path, beside: bool = False) -> None:
    """ONNX Runtime writes what its BASIC optimisations make of a model; ``beside``: weights into a file of their own."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(target)
    options.log_severity_level = 4
    if beside:
        options.add_session_config_entry(f"{_WEIGHTS}_file_name", f"{target.name}.data")
        options.add_session_config_entry(f"{_WEIGHTS}_min_size_in_bytes", "1024")
    ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


_WEIGHTS = "session.optimized_model_external_initializers"


def _onnxruntime(_: str | None) -> Call:
    importlib.import_module("onnxruntime")
    return lambda model, target: _session(model.SerializeToString(), target)


def _onnxruntime_file(_: str | None) -> FileCall:
    importlib.import_module("onnxruntime")
    return lambda source, target: _session(str(source), target, beside=True)


def _ours(mode: str) -> Callable[[str | None], Call]:
    def prepare(data: str | None) -> Call:
        import surgeon_passes as sp

        options = sp.Verify(mode=mode, data=data)
        return lambda model, _: sp.optimize(model, verify=options).proto

    return prepare


def _ours_file(mode: str) -> Callable[[str | None], FileCall]:
    def prepare(data: str | None) -> FileCall:
        import surgeon_passes as sp

        options = sp.Verify(mode=mode, data=data)
        return lambda source, target: sp.optimize(source, verify=options).save(target)

    return prepare


TOOLS = (
    Tool(OURS, _OWN, _ours("strict"), _ours_file("strict")),
    Tool(OFF, _OWN, _ours("off"), _ours_file("off")),
    Tool(ONNXSIM, "onnxsim", _onnxsim, _onnxsim_file),
    Tool("onnxslim", "onnxslim", _onnxslim),
    Tool("onnxscript", "onnxscript", _onnxscript),
    Tool("onnxoptimizer", "onnxoptimizer", _onnxoptimizer),
    Tool("graphsurgeon", "onnx-graphsurgeon", _graphsurgeon),
    Tool("onnxruntime (basic)", "onnxruntime", _onnxruntime, _onnxruntime_file),
)
BY_NAME = {tool.name: tool for tool in TOOLS}


def installed() -> list[Tool]:
    return [tool for tool in TOOLS if tool.version is not None]


def missing() -> list[str]:
    """Packages of tools that are not installed."""
    return [tool.distribution for tool in TOOLS if tool.version is None]


def chosen(names: Sequence[str] = ()) -> list[Tool]:
    """The tools of these names, all that are installed where there are none. A name may be cut before its bracket: both
    tools of that package. Raises UsageError for a tool that is unknown or not installed."""
    if not names:
        return installed()
    wanted: dict[str, Tool] = {}
    for name in names:
        found = [tool for tool in TOOLS if name in (tool.name, tool.name.partition(" ")[0])]
        if not found:
            near = did_you_mean(name, {tool.name.partition(" ")[0] for tool in TOOLS})
            raise UsageError(f"no tool is called '{name}'{near}; tools: {', '.join(tool.name for tool in TOOLS)}")
        wanted |= {tool.name: tool for tool in found}
    for tool in wanted.values():
        if tool.version is None:
            raise UsageError(f"{tool.name} is not installed: pip install {tool.distribution}")
    return [tool for tool in TOOLS if tool.name in wanted]
