"""The text report, from decisions alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import surgeon_passes as sp
from surgeon_passes import demo
from surgeon_passes.decisions import APPLIED, CONFLICT, DECLINED, REFUTED, UNDONE, UNVERIFIED, VERIFIED, Decision
from surgeon_passes.report.text import REASONS
from surgeon_passes.verify import EndCheck


@pytest.fixture(scope="module")
def result() -> sp.Result:
    return sp.optimize(demo.build())


def report(result: sp.Result, **changes: Any) -> list[str]:
    return replace(result, **changes).report().splitlines()


def section(lines: list[str], title: str) -> list[str]:
    """Lines of a table, its head left out."""
    start = next(n for n, line in enumerate(lines) if line.split()[:1] == [title])
    end = next((n for n, line in enumerate(lines) if n > start and not line), len(lines))
    return lines[start + 1 : end]


def test_starts_with_what_was_read(result: sp.Result) -> None:
    assert report(result)[0] == "the model"
    off = report(result, verify=sp.Verify(mode="off"), check=None)
    assert off[0].startswith("NOT VERIFIED")
    assert off[1] == "the model"
    assert "verification        off" in off
    assert "end check           off" in off


def test_has_no_colors_and_no_trailing_blanks(result: sp.Result) -> None:
    lines = report(result)
    assert not any("\x1b" in line or line != line.rstrip() for line in lines)


def test_lists_operators_whose_number_changed(result: sp.Result) -> None:
    rows = {line.split()[0]: line.split()[1:] for line in section(report(result), "operator")}
    assert rows["Conv"] == ["11", "6"]
    assert rows["BatchNormalization"] == ["14", "0"]
    assert "Relu" not in rows


def test_groups_what_was_applied(result: sp.Result) -> None:
    decisions = [
        Decision("b", "", f"Conv '{n}'", APPLIED, VERIFIED, metrics={"max_error": error})
        for n, error in enumerate((1e-7, 2e-6, None))
    ]
    decisions.append(Decision("b", "", "Conv 'x'", APPLIED, UNVERIFIED))
    lines = report(result, decisions=decisions)
    assert [line.split() for line in section(lines, "applied")] == [
        ["b", "3", "verified", "2e-06"],
        ["b", "1", "unverified"],
    ]
    assert "verification        3 rewrites verified, 1 rewrites unverified" in lines


def test_names_what_was_undone(result: sp.Result) -> None:
    metrics = {"max_error": 0.0125, "tensor": "y7"}
    decisions = [
        Decision("wrong", "", "Conv 'c'", UNDONE, REFUTED, reason="too far", metrics=metrics),
        Decision("late", "", "Add 'a'", CONFLICT, reason="tried again"),
    ]
    lines = report(result, decisions=decisions)
    wrong, late = section(lines, "undone")
    for part in ("wrong", "Conv 'c'", "refuted", "0.0125", "y7", "too far"):
        assert part in wrong
    assert "late" in late
    assert "conflict" in late
    assert "verification        1 refuted and undone" in lines


def test_lists_the_most_frequent_reasons(result: sp.Result) -> None:
    decisions = [
        Decision("r", "", f"Conv '{reason}{n}'", DECLINED, reason=f"reason {reason}")
        for reason in range(REASONS + 3)
        for n in range(reason + 1)
    ]
    lines = report(result, decisions=decisions)
    listed = section(lines, "declined")
    assert listed[0].split() == ["r", str(REASONS + 3), "reason", str(REASONS + 2), "Conv", f"'{REASONS + 2}0'"]
    assert "… and 3 more reasons (see the decisions)" in lines


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (EndCheck("equal", 1.5e-7, "y"), "equal, largest error 1.5e-07 at 'y'"),
        (EndCheck("not run", reason="no inputs"), "not run: no inputs"),
        (EndCheck("different", 0.5, "y", "too far", 1e-6), "different, largest error 0.5 at 'y', noise 1e-06: too far"),
    ],
)
def test_tells_the_end_check(result: sp.Result, check: EndCheck, text: str) -> None:
    assert f"end check           {text}" in report(result, check=check)


def test_ends_with_notes(result: sp.Result) -> None:
    assert report(result, notes=["left for its size"])[-1] == "note: left for its size"
