"""The verifier is tested by mutation: rules with one mistake each are refuted by their region, the end check off.

Each rule is spoilt on its own example, in the values that its function computes and in the text of its rewrite. A mutant
counts where it moves an output of its model by more than ten times the tolerance, measured apart from the verifier.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

import surgeon_passes as sp
from surgeon_passes import Match, Registry, Replacement, Rule
from surgeon_passes.errors import SurgeonError
from surgeon_passes.runtime import Array, Session
from tests.patterns.harness import feeds_for, graph_model
from tests.patterns.test_examples import RULES, example, options, section

from .mutants import text_mutants, value_mutants

SIZES: tuple[dict[str, int], ...] = ({}, {"N": 3, "H": 7, "W": 9, "T": 2})
TIMES = 10
MOST = 4
"""mutants that are held against the verifier for each rule in the build; ``--all-mutants`` takes all"""
CARELESS: dict[str, tuple[str, str, dict[str, None]]] = {
    "drop_zero_state": ("OfShape(size)", "OfShape<value = float[1] {0.5}>(size)", {}),
    "drop_zero_lstm_state": ("{0.0}", "{0.5}", {"H": None, "C": None}),
    "drop_neutral_operand": ("{1.0}", "{1.5}", {}),
}
"""rules that look at a number, what else could stand there in their example, and what they would give"""


def rewritten(rule: Rule, model: onnx.ModelProto, mode: str, needs: dict[str, bool]) -> sp.Result:
    steps = (sp.Rewrite(rule, **needs), sp.Cleanup())
    return sp.Pipeline(*steps).run(model, verify=sp.Verify(mode=mode, end_check=False), registry=Registry())


def values_of(rule: Rule, model: onnx.ModelProto) -> list[str]:
    """What the rule's function gives on its example."""
    names: dict[str, None] = {}

    def function(m: Match) -> Replacement | None:
        found = rule.function(m) if rule.function is not None else None
        names.update(dict.fromkeys(found.values if found is not None else ()))
        return found

    if rule.function is not None:
        rewritten(replace(rule, function=function), model, "off", options(rule))
    return list(names)


def shift(before: dict[str, Array], after: dict[str, Array]) -> float:
    """The largest difference over the scale of its channel."""
    return max(_shift(value, after[name]) for name, value in before.items())


def _shift(a: Array, b: Array) -> float:
    if a.shape != b.shape or a.dtype != b.dtype or a.dtype.kind != "f":
        return 0.0 if a.dtype == b.dtype and np.array_equal(a, b) else np.inf
    a, b = a.astype(np.float64), b.astype(np.float64)
    if (np.isfinite(a) != np.isfinite(b)).any():
        return np.inf
    axes = tuple(k for k in range(a.ndim) if k != 1) if a.ndim > 1 else None
    scale = np.maximum(np.abs(a).max(axis=axes, keepdims=True, initial=0), 1e-6)
    return float(np.nan_to_num(np.abs(a - b) / scale).max(initial=0))


def tolerance(rule: Rule, model: onnx.ModelProto) -> float:
    limits = sp.Tolerances()
    half = any(v.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16 for v in model.graph.input)
    if rule.exactness is sp.Exactness.APPROXIMATE:
        return limits.approximate
    return limits.half if half else limits.rounding


def mutants(rule: Rule, model: onnx.ModelProto) -> list[Rule]:
    """Those that apply to the example, run, and move it by enough; in turn of a value and of the text."""
    feeds = [feeds_for(model, sizes, seed=number) for number, sizes in enumerate(SIZES)]
    session = Session(model)
    expected = [session.run(f) for f in feeds]
    found = []
    for mutant in (*value_mutants(rule, values_of(rule, model)), *text_mutants(rule)):
        try:
            result = rewritten(mutant, model, "off", options(rule))
            if result.applied:
                other = Session(result.proto)
                moved = max(shift(a, other.run(f)) for a, f in zip(expected, feeds, strict=True))
                found += [mutant] if moved > TIMES * tolerance(rule, model) else []
        except (SurgeonError, TypeError, ValueError):
            continue  # no rule, or no model
    return found


def spread(found: list[Rule], most: int) -> list[Rule]:
    return found if len(found) <= most else [found[k * len(found) // most] for k in range(most)]


@pytest.mark.parametrize("name", RULES)
def test_mutants_of_a_rule_are_refuted(name: str, request: pytest.FixtureRequest) -> None:
    rule = RULES[name]
    model, _ = example(rule)
    found = mutants(rule, model)
    assert found or name in CARELESS
    chosen = found if request.config.getoption("--all-mutants") else spread(found, MOST)
    survivors = []
    for mutant in chosen:
        result = rewritten(mutant, model, "strict", options(rule))
        if result.applied or {d.verdict for d in result.undone} != {"refuted"}:
            survivors.append((mutant.name, [(d.status, d.verdict, d.reason) for d in result.decisions]))
    assert not survivors


@pytest.mark.parametrize("name", CARELESS)
def test_a_rule_that_does_not_look_is_refuted(name: str) -> None:
    rule = RULES[name]
    right, wrong, values = CARELESS[name]
    text = section(rule, "Example")
    before = text[text.index("before:\n") : text.index("after:\n")].removeprefix("before:\n")
    assert right in before
    careless = replace(rule, function=lambda m: Replacement(**values), guard=None)
    result = rewritten(careless, graph_model(before.replace(right, wrong)), "strict", options(rule))
    assert [(d.rule, d.verdict) for d in result.undone] == [(name, "refuted")]
