"""ONNX's own suite, every model of it: the default pipeline without verification, since then nothing puts a wrong rewrite
right, on every fourth also with it, and one pass alone by turns. ``python -m tests.conformance`` runs each through all.
"""

from __future__ import annotations

import pytest

from .cases import KINDS, SIZES, Variant, cases, variants
from .check import PIPELINES, Judged, faults, judged
from .judge import NotRun, Runtime
from .skips import recorded, unexpected

SHARDS = 16
MODELS, BY_REFERENCE, BY_NONE = 5435, 389, 24
ALONE = [name for name in PIPELINES if name != "default"]
STRICT = 4


def test_the_suite_is_whole() -> None:
    """Each of 2,033 cases as it is, most also with frozen inputs; ONNX Runtime runs all but those that are recorded."""
    found = {kind: cases(kind) for kind in KINDS}
    assert tuple(map(len, found.values())) == SIZES
    assert sum(1 for kind in KINDS for case in found[kind] for _ in variants(case)) == MODELS
    judges = [judge for judge, _ in recorded()[1].values()]
    assert (judges.count("the reference"), judges.count("-")) == (BY_REFERENCE, BY_NONE)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_node(shard: int) -> None:
    check([v for case in cases("node")[shard::SHARDS] for v in variants(case)], shard)


@pytest.mark.parametrize("kind", ["simple", "pytorch-converted", "pytorch-operator"])
def test_small(kind: str) -> None:
    check([v for case in cases(kind) for v in variants(case)])


@pytest.mark.parametrize("case", cases("light"), ids=lambda case: case.name)
def test_light(case) -> None:
    (given, *_) = map(judged, variants(case))
    assert faults(given, "default", "off") == ([], True)


def check(chosen: list[Variant], turn: int = 0) -> None:
    """All of ``chosen``; ``turn`` moves which model gets which pass."""
    runs: dict[str, Judged] = {}
    others: dict[str, str] = {}
    for variant in chosen:
        try:
            runs[variant.name] = given = judged(variant)
            if not isinstance(given.judge, Runtime):
                others[variant.name] = given.judge.name
        except NotRun:
            others[variant.name] = "-"
    assert "\n".join(unexpected(others, {variant.name for variant in chosen})) == ""
    found = [line for number, given in enumerate(runs.values(), turn) for line in _faults(given, number)]
    assert "\n".join(found) == ""


def _faults(given: Judged, number: int) -> list[str]:
    """By the default pipeline, strictly for one model of four, and by one pass."""
    tried = [("default", "off"), *[("default", "strict")] * (number % STRICT == 0), (ALONE[number % len(ALONE)], "off")]
    return [
        f"{given.variant.name}, {name} {mode}: {line}" for name, mode in tried for line in faults(given, name, mode)[0]
    ]
