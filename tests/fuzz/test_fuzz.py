"""Random graphs: the result is the same function, with the same face, and its own fixed point."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from benchmarks.entries import exported

from .cases import Case, case, cases
from .choices import Seeded
from .judge import Finding, judge
from .real import real_case

SEEDS = 40
GRAPHS = 10
"""graphs of a seed"""
SMALL = (
    "bert_tiny_dynquant",
    "bn_edge_cases__dynraw",
    "dyn_script_if_loop__dyn",
    "dyn_view_flatten__rawdyn",
    "rep_acnet__rawdyn",
    "rep_dbb_simple__dynraw",
    "rep_repvgg_groups_fp16_raw",
    "rnn_lstm_gru__rawdyn",
    "skl_rf_zipmap",
)


def assert_sound(one: Case, found: Finding) -> None:
    assert not found.faults, "\n".join([*found.faults, repr(one)])


@pytest.mark.parametrize("seed", range(SEEDS))
def test_seeded_graphs(seed: int) -> None:
    """Some of what ``python -m tests.fuzz`` looks at; at least four of ten are rewritten, and nearly all run."""
    rewritten = run = 0
    for number in range(seed * GRAPHS, (seed + 1) * GRAPHS):
        one = case(Seeded(number))
        found = judge(one, strict=number % 4 == 0, twice=number % 2 == 0)
        assert_sound(one, found)
        run += not found.refused
        rewritten += bool(found.fired)
    assert run >= 0.6 * GRAPHS and rewritten >= 0.4 * run


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases())
def test_drawn_graphs(one: Case) -> None:
    """Here hypothesis draws, and makes smaller what fails."""
    assert_sound(one, judge(one))


def test_a_seed_is_one_graph() -> None:
    first, second = (case(Seeded(5)) for _ in range(2))
    assert first.model.SerializeToString(deterministic=True) == second.model.SerializeToString(deterministic=True)
    assert case(Seeded(6)).model.SerializeToString() != first.model.SerializeToString()


@pytest.mark.parametrize("name", SMALL)
def test_real_models_in_another_dress(name: str, models: Path) -> None:
    entry = next(e for e in exported() if e["name"] == name)
    one = real_case(Seeded(len(name)), entry, models / entry["file"])
    found = judge(one, strict=False)
    assert not found.refused
    assert_sound(one, found)
