"""What the page is given, against the record that it comes from."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from surgeon_passes import demo
from surgeon_passes.report.html import view
from surgeon_passes.report.html.figures import figures, sizes, verdict
from surgeon_passes.report.html.view import view_of

from .records import Record, many, of_demo


@pytest.fixture(scope="module")
def record() -> Record:
    return of_demo()


FEWER = sum(
    cout * cin * 9 + cout
    for cin, cout, _ in demo.STAGES  # a 3x3 convolution and its bias for each block
) + (64 * 64 + 64 + 64 * demo.CLASSES + demo.CLASSES)  # the neck's 1x1, and the head

SIDES = (32, 32, 16, 16, 16)
LESS = (
    sum(cout * cin * 9 * side**2 for (cin, cout, _), side in zip(demo.STAGES, SIDES, strict=True))
    + 64 * 64 * SIDES[-1] ** 2
    + 64 * demo.CLASSES
)


def changed(record: Record, **parts: Any) -> Record:
    return {**copy.deepcopy(record), **parts}


def test_headline_figures(record: Record) -> None:
    found = {f["name"]: (f["before"], f["after"]) for f in figures(record)}
    assert found["Nodes"] == (47, 15)
    assert found["File size"] == (record["source"]["bytes"], record["result"]["bytes"])
    assert found["Parameters"] == (121290, FEWER)
    assert found["MACs"] == (38732416, LESS)
    assert "Latency" not in found
    timed = changed(record, latency={"before_ms": 2.0, "after_ms": 1.5, "rounds": 9, "shapes": {}, "reason": ""})
    assert figures(timed)[-1] == {"name": "Latency", "kind": "ms", "before": 2.0, "after": 1.5}
    failed = changed(record, latency={"before_ms": 0.0, "after_ms": 0.0, "rounds": 0, "shapes": {}, "reason": "no"})
    assert [f["name"] for f in figures(failed)] == ["Nodes", "File size", "Parameters", "MACs"]


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (10, 5, (10, 5, "")),
        ("10*N", "5*N", (10, 5, "N")),
        ("N", "5*N", (1, 5, "N")),
        ("3*H*W", 0, (3, 0, "H*W")),
        ("10*N", "5*M", None),
        ("10*N", 5, None),
        ("10*N + 4", "5*N", None),
        ("7*floordiv(N, 2)", "7*floordiv(N, 2)", None),
        (None, 5, None),
        (None, None, None),
    ],
)
def test_sizes_with_dims(before: Any, after: Any, found: Any) -> None:
    assert sizes(before, after) == found


def test_macs_that_are_not_known_are_told_so(record: Record) -> None:
    odd = changed(record)
    for side in ("before", "after"):
        odd[side]["macs_at"] = {"sizes": {"N": 2}, "macs": None}
    odd["before"].update(macs=None, macs_unknown=["Loop 'l'"])
    assert figures(odd)[3]["text"] == "not known of Loop 'l'"
    odd["before"].update(macs="N + M", macs_unknown=[])
    odd["after"].update(macs="N + M")
    assert figures(odd)[3]["text"] == "by the sizes of inputs, as before"
    odd["before"]["macs_at"] = {"sizes": {"N": 2, "M": 3}, "macs": 5}
    odd["after"]["macs_at"] = {"sizes": {"N": 2, "M": 3}, "macs": 4}
    found = figures(odd)[3]
    assert ("Sizes of the end check", "N = 2, M = 3") in view_of(odd)["origin"]
    assert (found["before"], found["after"], found["text"]) == (5, 4, "at the end check's sizes")


END = {"status": "equal", "error": 2e-7, "noise": None, "output": "y", "reason": ""}


@pytest.mark.parametrize(
    ("checks", "tone", "title", "text"),
    [
        ({}, "good", "Equal", "Largest error 2e-07 at 'y'; 3 rewrites verified."),
        ({"refuted": 2}, "good", "Equal", "Largest error 2e-07 at 'y'; 3 rewrites verified, 2 refuted and undone."),
        ({"checker": "no name"}, "bad", "Not valid", "The ONNX checker: no name"),
        ({"mode": "off"}, "warn", "Not verified", "Verification was switched off."),
        ({"end": {**END, "status": "off"}}, "warn", "No end check", None),
        ({"end": {**END, "status": "different", "error": "nan"}}, "bad", "Different", None),
        ({"end": {**END, "status": "not run", "error": None, "reason": "no inputs"}}, "warn", "Not run", None),
        ({"end": {**END, "status": "inconclusive"}}, "warn", "Inconclusive", None),
    ],
)
def test_verdicts(record: Record, checks: Record, tone: str, title: str, text: str | None) -> None:
    usual = {"mode": "strict", "end": END, "checker": "", "verdicts": {"verified": 3}, "refuted": 0}
    found = verdict(changed(record, checks={**usual, **checks}))
    assert (found["tone"], found["title"]) == (tone, title)
    assert text is None or found["text"] == text


def test_nodes_removed_by_rule_are_those_that_are_gone(record: Record) -> None:
    shown = view_of(record)
    assert shown["removed"] == [
        ("merge_parallel_branches", 16, 5),
        ("fold_batch_norm_into_conv", 11, 11),
        ("drop_identity", 1, 1),
        ("drop_dropout", 1, 1),
    ]
    folded = sum(p["nodes"] for p in shown["passes"]) + sum(gone for _, gone, _ in shown["removed"])
    assert sum(p["nodes"] for p in shown["passes"]) == 15 - 47
    assert folded == -3  # Shape, Gather and Concat, which nobody reads once the Reshape is static


def test_what_is_undone_removes_nothing(record: Record) -> None:
    undone = changed(record)
    for match in undone["matches"]:
        match["status"] = "undone"
    assert view_of(undone)["removed"] == []


def test_operators_before_and_after(record: Record) -> None:
    rows = {op: (before, after) for op, before, after in view_of(record)["operators"]}
    assert rows["BatchNormalization"] == (14, 0)
    assert rows["Conv"] == (11, 6)
    assert rows["GlobalAveragePool"] == (1, 1)
    assert next(iter(rows)) == "BatchNormalization"


def test_declined_places_are_grouped_by_reason(record: Record) -> None:
    miss = {"rule": "r", "root": "Conv 'c'", "graph": "", "reason": "'a' is read by [1]"}
    misses = [{**miss, "root": f"Conv '{n}'", "reason": f"'w{n}' is read by [{n}]"} for n in range(view.PLACES + 3)]
    shown = view_of(changed(record, near_misses=[*misses, {**miss, "reason": "once"}]))
    first, second = shown["declined"]
    assert (first["times"], first["reason"], first["more"]) == (view.PLACES + 3, "'…' is read by […]", 3)
    assert first["places"][1] == ["Conv '1'", "'w1' is read by [1]"]
    assert (second["times"], second["reason"], second["places"]) == (1, "once", [["Conv 'c'", ""]])
    many_reasons = [{**miss, "reason": f"reason {chr(97 + n % 26)}{n}"} for n in range(view.REASONS + 5)]
    shown = view_of(changed(record, near_misses=many_reasons))
    assert (len(shown["declined"]), shown["declined_more"]) == (view.REASONS, 5)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> int:
    """Room for some of a thousand matches only."""
    monkeypatch.setattr(view, "MATCHES_BYTES", 150_000)
    monkeypatch.setattr(view, "DRAWINGS_BYTES", 50_000)
    return 1000


def test_a_large_run_is_cut_to_a_size_that_opens(record: Record, small: int) -> None:
    shown = view_of(many(record, small))
    for part, most in ((shown["matches"], 150_000), ([shown["drawings"], shown["names"]], 50_000)):
        size = len(json.dumps(part, separators=(",", ":")))
        assert most * 0.8 < size <= most * 1.02
    assert shown["matches_more"] == small - len(shown["matches"]) > 0
    assert 0 < shown["drawn"] == len(shown["drawings"]) < shown["drawable"] <= small
    without = [m for m in shown["matches"] if "undrawn" in m]
    assert without and all("drawing" not in m for m in without)
    last = max(pair[1] for m in shown["drawings"] for pair in m["outputs"])
    assert last < len(shown["names"])


def test_what_was_undone_is_kept_where_not_all_fit(record: Record, small: int) -> None:
    large = many(record, small)
    large["matches"][-1].update(status="undone", verdict="refuted")
    shown = view_of(large)
    assert [m["status"] for m in shown["matches"]].count("undone") == 1
    assert "drawing" in shown["matches"][-1]


def test_a_region_of_many_nodes_is_not_drawn(record: Record) -> None:
    wide = changed(record)
    region = wide["matches"][3]["region"]
    region["removed"] = region["removed"][:1] * 61
    shown = view_of(wide)
    assert "drawing" not in shown["matches"][3]
    assert shown["matches"][3]["undrawn"].startswith("Not drawn, for its size")
    assert "undrawn" not in shown["matches"][2]
