"""onnxsim before everything else: its result is taken only where it is shown equal to the original."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, ClassVar

import onnx

from surgeon_passes.decisions import APPLIED, REFUTED
from surgeon_passes.errors import UsageError
from surgeon_passes.model.fields import copy_fields
from surgeon_passes.model.files import LIMIT, weight_bytes
from surgeon_passes.model.nested import count_nodes
from surgeon_passes.passes.prepare import Draft, Preparation, reason_of

RULE = "onnxsim"
_HELD = ("metadata_props", "doc_string", "producer_name", "producer_version", "domain", "model_version")
_HELD_IN_GRAPH = ("name", "doc_string", "input", "output", "metadata_props", "quantization_annotation")


@dataclass(frozen=True)
class Onnxsim(Preparation):
    """Simplify the model by onnxsim: once, before it is imported.

    Interface, metadata and what else onnxsim would drop stay those of the model. Its result is held against the original by
    the end check, and discarded where they differ, unless ``keep_different``; ``skipped_optimizers`` is onnxsim's own option.
    Raises UsageError where onnxsim is not installed.
    """

    name: ClassVar[str] = "onnxsim"
    makes: ClassVar[tuple[str, ...]] = (RULE,)
    skipped_optimizers: tuple[str, ...] = ()
    keep_different: bool = False

    def prepare(self, draft: Draft) -> None:
        tool = _tool()
        root = f"onnxsim {tool.__version__}"
        if draft.confined:
            draft.decline(
                RULE, root, "keep or only confine what may change, and onnxsim knows of neither: run it by itself"
            )
            return
        if weight_bytes(draft.proto) > LIMIT:
            draft.decline(
                RULE, root, f"its weights are more than {LIMIT} bytes, and onnxsim takes a model in one piece"
            )
            return
        try:
            made, _ = tool.simplify(draft.whole(), check_n=0, skipped_optimizers=list(self.skipped_optimizers) or None)
            found = _grafted(draft.proto, made)
        except Exception as error:  # it raises whatever comes to its mind
            draft.decline(RULE, root, f"onnxsim failed: {reason_of(error)}")
            return
        before = draft.proto
        taken = draft.propose(RULE, root, found)
        decision = draft.decisions[-1]
        decision.metrics = {
            **decision.metrics,
            "nodes_before": count_nodes(before),
            "nodes_after": count_nodes(found),
        }
        if not taken and decision.verdict == REFUTED:
            decision.reason = f"what onnxsim gives differs from the original: {decision.reason}"
            if self.keep_different:
                draft.proto, decision.status = found, APPLIED


def _tool() -> Any:
    try:
        return importlib.import_module("onnxsim")
    except ImportError as error:
        raise UsageError(f"onnxsim cannot be imported ({error}): pip install 'surgeon-passes[onnxsim]'") from None


def _grafted(proto: onnx.ModelProto, made: onnx.ModelProto) -> onnx.ModelProto:
    """``proto`` with the nodes and weights of ``made``. Raises ValueError where that has another interface."""
    for side in ("input", "output"):
        held, now = ([v.name for v in getattr(m.graph, side)] for m in (proto, made))
        if held != now:
            raise ValueError(f"it changed the {side}s from {held} to {now}")
    found = onnx.ModelProto()
    copy_fields(made, found, lambda field: field.name not in (*_HELD, "graph"))
    copy_fields(proto, found, lambda field: field.name in _HELD)
    copy_fields(made.graph, found.graph, lambda field: field.name not in _HELD_IN_GRAPH)
    copy_fields(proto.graph, found.graph, lambda field: field.name in _HELD_IN_GRAPH)
    return found
