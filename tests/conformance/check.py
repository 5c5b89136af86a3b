"""One model of the suite through one pipeline: what must hold of the result, and what does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

import surgeon_passes as sp
from surgeon_passes.model.nested import every_node
from surgeon_passes.ops.traits import RANDOM
from tests.e2e.holds import assert_same_interface

from .cases import Variant
from .judge import NotRun, Reference, Runtime, Values, differences

OPSET = 24
"""what the pass ConvertOpset upgrades older models to"""

OLDEST = 7
"""the first opset that ONNX Runtime promises to run"""
ELSEWHERE = ("rewrite:npu", "rewrite:compact")
"""sets whose operators ONNX Runtime may lack for a type (MatMul of bfloat16), or altogether (Swish)"""
HINTS = "runs only without value_info"
"""An If stays whose condition is known: a branch that is never taken does not fit the sizes that are known by then, which
ONNX Runtime minds. The end check, which is off here, says so."""
HINTED = ("test_affine_grid_3d_align_corners_expanded", "test_affine_grid_3d_expanded")
"""models to which that happens by passes that do not inline the If"""

Pipelines = dict[str, Callable[[Variant], sp.Pipeline]]


@dataclass(frozen=True, eq=False)
class Judged:
    """A model with what it gives, and who says so."""

    variant: Variant
    judge: Runtime | Reference
    wanted: Values
    random: bool
    reason: str = ""
    """why ONNX Runtime is not the judge"""


def judged(variant: Variant) -> Judged:
    """Raises NotRun with both reasons."""
    reasons = []
    for judge in (Runtime(), Reference()):
        try:
            wanted = judge.run(variant.model, variant.feeds)
        except NotRun as reason:
            reasons.append(f"{judge.name}: {' '.join(str(reason).split())[:100]}")
            continue
        return Judged(variant, judge, wanted, _is_random(variant.model), "; ".join(reasons))
    raise NotRun("; ".join(reasons))


def _is_random(model: onnx.ModelProto) -> bool:
    return any(node.op_type in RANDOM or _drops(node) for node in every_node(model.graph.node))


def _drops(node: onnx.NodeProto) -> bool:
    """Whether a Dropout may drop at random: its third input says that it trains."""
    return node.op_type == "Dropout" and len(node.input) == 3


def faults(given: Judged, name: str, mode: str) -> tuple[list[str], bool]:
    """What is wrong with the result of the pipeline called ``name``, in words, and whether it is another model."""
    variant = given.variant
    before = variant.model.SerializeToString(deterministic=True)
    try:
        result = PIPELINES[name](variant).run(variant.model, verify=sp.Verify(mode=mode, end_check=False))
    except Exception as error:
        return [f"{type(error).__name__}: {error}"], True
    found = list(_sound(variant, result, fixed=name == "specialize"))
    if variant.model.SerializeToString(deterministic=True) != before:
        found.append("the model that was given is changed")
    if not result.applied and not found and same_nodes(variant.model, result.proto):
        return [], False
    found += [line for line in _outputs(given, name, result.proto) if line != HINTS or _family(variant) not in HINTED]
    return [*found, *(f"rules {sorted({d.rule for d in result.applied})}" for _ in found[:1])], True


def _outputs(given: Judged, name: str, model: onnx.ModelProto) -> list[str]:
    """What differs in a run of ``model``. What ONNX Runtime lacks (below opset 7, or of other targets) the reference runs."""
    variant, wanted = given.variant, given.wanted
    try:
        found = given.judge.run(model, variant.feeds)
    except NotRun as reason:
        if _runs_without_hints(given, model):
            return [HINTS]
        lacks = str(reason).startswith("NOT_IMPLEMENTED") and (opset_of(model) < OLDEST or name in ELSEWHERE)
        if not lacks:
            return [f"the result does not run: {reason}"]
        wanted, found = (Reference().run(m, variant.feeds) for m in (variant.model, model))
    return differences(wanted, found, given.random)


def _family(variant: Variant) -> str:
    return variant.name.partition("/")[0]


def _runs_without_hints(given: Judged, model: onnx.ModelProto) -> bool:
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.graph.value_info[:]
    try:
        return not differences(given.wanted, given.judge.run(bare, given.variant.feeds), given.random)
    except NotRun:
        return False


def opset_of(model: onnx.ModelProto) -> int:
    return next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), OLDEST)


def same_nodes(a: onnx.ModelProto, b: onnx.ModelProto) -> bool:
    """Whether nodes, initializers, inputs and versions are the very same: then two runs give the same."""
    return a.opset_import == b.opset_import and all(
        getattr(a.graph, name) == getattr(b.graph, name)
        for name in ("node", "initializer", "sparse_initializer", "input")
    )


def _sound(variant: Variant, result: sp.Result, fixed: bool) -> Iterator[str]:
    try:
        onnx.checker.check_model(result.proto)
    except Exception as error:
        yield f"checker: {' '.join(str(error).split())[:200]}"
    try:
        assert_same_interface(variant.model, result.proto, fixed=fixed)
    except AssertionError as error:
        yield f"interface: {str(error)[:200]}"
    for decision in result.undone:
        yield f"refuted and undone: {decision.rule} at {decision.root}: {decision.reason}"
    if not result.converged:
        yield "not converged"


def shapes_of(variant: Variant) -> dict[str, Any]:
    return {name: list(value.shape) for name, value in variant.feeds.items() if isinstance(value, np.ndarray)}


def _set(name: str) -> Callable[[Variant], sp.Pipeline]:
    return lambda _: sp.Pipeline(sp.Rewrite(name))


PIPELINES: Pipelines = {
    "default": lambda _: sp.Pipeline(),
    "inline_functions": lambda _: sp.Pipeline(sp.InlineFunctions()),
    "opset": lambda v: sp.Pipeline(sp.ConvertOpset(max(OPSET, opset_of(v.model)))),
    "specialize": lambda v: sp.Pipeline(sp.Specialize(shapes_of(v))),
    "fold": lambda _: sp.Pipeline(sp.Fold()),
    "rewrite": lambda _: sp.Pipeline(sp.Rewrite()),
    "sizes": lambda _: sp.Pipeline(sp.Sizes()),
    "duplicates": lambda _: sp.Pipeline(sp.Duplicates()),
    "cleanup": lambda _: sp.Pipeline(sp.Cleanup()),
    "constants": lambda _: sp.Pipeline(sp.Constants()),
    **{f"rewrite:{name}": _set(name) for name in ("npu", "ort", "compact", "batch_norm")},
}
"""The default pipeline, each pass alone, and each set of rules that is off by default."""
