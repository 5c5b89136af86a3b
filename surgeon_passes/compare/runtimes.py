"""What a side runs in. Others plug in by the entry-point group ``surgeon_passes.runtimes``.

An entry point is called by its name, as in ``--b-runtime name:options``. It loads to a callable that is given what stands
behind the colon ("" where there is none) and returns a :class:`Runtime`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from typing import Any, Protocol, TypeAlias

from onnx import ModelProto

from surgeon_passes.errors import RuntimeFailure, SurgeonError, UsageError, did_you_mean
from surgeon_passes.model import Weights
from surgeon_passes.model.files import with_weights
from surgeon_passes.model.order import sorted_nodes
from surgeon_passes.runtime import Value

GROUP = "surgeon_passes.runtimes"
DEFAULT = "ort:off"
LEVELS = ("off", "basic", "extended", "all")


class Runner(Protocol):
    """A loaded model."""

    def run(self, feeds: Mapping[str, Value], outputs: Iterable[str] | None = None) -> dict[str, Value]:
        """Values of ``outputs`` by name, numpy arrays (lists of them for sequences). Raises RuntimeFailure."""


class Runtime(Protocol):
    """Something that runs models."""

    def open(self, model: ModelProto, weights: Weights) -> Runner:
        """``model`` is not to be changed. It may refer to weights in files: :func:`whole` gives it with all of them inside.
        Outputs without a type are interior tensors that are asked for. Raises RuntimeFailure where it cannot be loaded."""


class OnnxRuntime:
    """ONNX Runtime at an optimisation level: what is observed is not fused away."""

    def __init__(self, level: str = "off") -> None:
        if level not in LEVELS:
            raise UsageError(f"runtime 'ort:{level}': the level is one of {', '.join(LEVELS)}")
        self.level = level

    def open(self, model: ModelProto, weights: Weights) -> Runner:
        from surgeon_passes.verify.segments import open_model

        return open_model((model, weights), level=self.level)


class Reference:
    """onnx.reference: slow, and in numpy; of the standard's operators alone."""

    def __init__(self, options: str = "") -> None:
        if options:
            raise UsageError(f"runtime 'reference:{options}': onnx.reference takes no options")

    def open(self, model: ModelProto, weights: Weights) -> Runner:
        from surgeon_passes.verify.reference import ReferenceSession

        found = ModelProto()
        found.CopyFrom(whole(model, weights))
        known = {t.name for t in found.graph.initializer} | {v.name for v in found.graph.input}
        nodes = sorted_nodes(list(found.graph.node), known, "the model")
        del found.graph.node[:]
        found.graph.node.extend(nodes)
        return ReferenceSession(found, {})


Factory: TypeAlias = Any
_BUILTIN: Mapping[str, Factory] = {
    "ort": lambda options: OnnxRuntime(options or "off"),
    "reference": Reference,
}


def whole(model: ModelProto, weights: Weights) -> ModelProto:
    """``model`` with its weights inside; the same object where they are. Raises RuntimeFailure where one is missing."""
    try:
        return with_weights(model, weights)
    except SurgeonError as error:
        raise RuntimeFailure(str(error)) from error


def runtime(text: str) -> Runtime:
    """The runtime that ``ort:basic``, ``ort``, ``reference`` or a plugin's name asks for. Raises UsageError."""
    name, _, options = text.partition(":")
    factory = _BUILTIN.get(name) or _plugin(name)
    try:
        made = factory(options)
    except SurgeonError:
        raise
    except Exception as error:
        raise UsageError(f"runtime '{text}' cannot be made: {type(error).__name__}: {error}") from error
    if not callable(getattr(made, "open", None)):
        raise UsageError(f"runtime '{text}': its entry point gives {type(made).__name__}, which has no method 'open'")
    return made  # type: ignore[no-any-return]


def _plugin(name: str) -> Factory:
    found = [entry for entry in entry_points(group=GROUP) if entry.name == name]
    if not found:
        known = sorted({*_BUILTIN, *(entry.name for entry in entry_points(group=GROUP))})
        raise UsageError(f"no runtime is called '{name}'{did_you_mean(name, known)}; there are {', '.join(known)}")
    if len(found) > 1:
        raise UsageError(f"two packages offer a runtime called '{name}': {', '.join(e.value for e in found)}")
    try:
        return found[0].load()
    except Exception as error:
        raise UsageError(f"runtime '{name}' ({found[0].value}) cannot be loaded: {error}") from error
