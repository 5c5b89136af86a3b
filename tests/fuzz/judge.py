"""What must hold of a case."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import onnx

import surgeon_passes as sp
from surgeon_passes.passes import Rewrite
from surgeon_passes.pipeline import default_passes
from surgeon_passes.runtime import RuntimeFailure, Session
from surgeon_passes.verify import end_check
from surgeon_passes.verify.endcheck import output_gap
from tests.e2e.holds import assert_same_interface

from .cases import Case
from .dress import graphs_of
from .exact import exact_output, has_extremes, is_beyond_numbers, is_noise, is_rounding
from .fragment import Array


@dataclass
class Finding:
    """``refused``: ONNX Runtime or the checker does not take the original. ``faults`` is empty where all is well."""

    fired: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    refused: str = ""
    rounding: bool = False
    """outputs differ, but in double precision the result is about as near to what is exact as the original"""
    unverified: Counter[str] = field(default_factory=Counter)


def judge(case: Case, strict: bool = True, twice: bool = True) -> Finding:
    """Optimise, unchecked and, if ``strict``, checked; compare; optimise the result if ``twice``."""
    finding = Finding()
    if not case.model.graph.node:
        finding.refused = "no node"
        return finding
    try:
        check(case.model)
        session = Session(case.model)
        expected = [session.run(f) for f in case.feeds]
        again = [Session(case.model).run(f) for f in case.feeds]
    except (RuntimeFailure, onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        finding.refused = str(error)
        return finding
    if not all(output_gap(a[n], b[n]).error == 0 for a, b in zip(expected, again, strict=True) for n in a):
        finding.refused = "it gives other values when it is run again"
        return finding
    for mode in ("off", *(("strict",) if strict else ())):
        try:
            _judge_mode(case, mode, expected, finding, twice and mode == "off")
        except AssertionError as error:
            finding.faults.append(f"{mode}: {error}")
        except Exception:
            finding.faults.append(f"{mode}: {traceback.format_exc()[-1500:]}")
    return finding


def optimized(case: Case, model: onnx.ModelProto, verify: str) -> sp.Result:
    passes = default_passes(sets=case.sets)
    passes = tuple(_with_options(p, case) for p in passes)
    data = (lambda: case.feeds) if case.is_real else None
    return sp.Pipeline(*passes).run(model, verify=sp.Verify(mode=verify, data=data))


def _with_options(step: sp.Pass, case: Case) -> sp.Pass:
    if not isinstance(step, Rewrite):
        return step
    return Rewrite(*step.sets, skip=case.skip, **case.options)


def _judge_mode(case: Case, mode: str, expected: Sequence[dict[str, Array]], finding: Finding, again: bool) -> None:
    given = case.model.SerializeToString(deterministic=True)
    result = optimized(case, case.model, mode)
    assert case.model.SerializeToString(deterministic=True) == given, "the model that was given has changed"
    finding.fired.update(d.rule for d in result.applied)
    check(result.proto)
    assert_same_interface(case.model, result.proto, {})
    assert result.converged, "does not converge"
    refuted = [d for d in result.undone if d.verdict == "refuted" and not _is_overflow(case, finding, d)]
    assert not refuted, f"refuted: {[(d.rule, d.root, d.reason) for d in refuted]}"
    if mode == "strict":
        finding.unverified.update(f"{d.rule}: {d.reason}" for d in result.decisions if d.verdict == "unverified")
        assert result.check is not None
        assert result.check.status != "different" or finding.rounding, f"end check: {result.check}"
    end = end_check(case.model, result.proto, case.feeds, tolerances(case), expected)
    if end.status != "equal":
        finding.rounding |= is_all_rounding(case, result.proto, expected)
        assert finding.rounding, f"{end.output}: {end.reason or end}"
    if again:
        second = optimized(case, result.proto, mode)
        same = _bytes(second.proto) == _bytes(result.proto)
        assert same, f"a second run changes the result: {[(d.rule, d.root) for d in second.applied]}"


def _is_overflow(case: Case, finding: Finding, undone: sp.Decision) -> bool:
    """Whether a sound rewrite was rightly taken back: it overflows, or is the noise of half precision."""
    if ("NaN" in undone.reason or "Inf" in undone.reason) and has_extremes(case.model):
        return True
    return undone.reason.startswith("the end check failed") and finding.rounding  # it knows the noise of inputs alone


def _bytes(model: onnx.ModelProto) -> bytes:
    """Of bodies and local functions onnx infers more where a file states types: declared dims may be more the second time."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graphs = list(graphs_of(made))
    if made.functions or len(graphs) > 1:
        for graph in graphs:
            del graph.value_info[:]
            for value in graph.output:
                value.type.tensor_type.ClearField("shape")
    return made.SerializeToString(deterministic=True)


def is_all_rounding(case: Case, result: onnx.ModelProto, expected: Sequence[dict[str, Array]]) -> bool:
    """Whether what differs beyond the tolerance does so by what rounding and overflow do to the original, too."""
    session = Session(result)
    for feeds, before in zip(case.feeds, expected, strict=True):
        after = session.run(feeds)
        for name, value in before.items():
            gap = output_gap(value, after[name])
            if (gap.reason or gap.error > tolerances(case).end) and not _is_excused(case, feeds, name, value, after):
                return False
    return True


def _is_excused(case: Case, feeds: dict[str, Array], name: str, a: Array, after: dict[str, Array]) -> bool:
    b = after[name]
    exact = exact_output(case.model, feeds, name)
    if exact is not None and is_rounding(a, b, exact):
        return True
    return is_noise(case.model, feeds, name, a, b) or is_beyond_numbers(case.model, feeds, name, a, b)


def check(model: onnx.ModelProto) -> None:
    """Below opset 9 Constant nodes of integers are written by everybody, and taken; only inference minds."""
    onnx.checker.check_model(model, full_check=model.opset_import[0].version >= 9)


def tolerances(case: Case) -> sp.Tolerances:
    """Rules that promise only to be close are held to what they promise."""
    usual = sp.Tolerances()
    return replace(usual, end=usual.approximate) if case.options.get("approximate") else usual
