"""The text report, from decisions alone."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

import surgeon_passes as sp
from surgeon_passes import demo
from surgeon_passes.decisions import APPLIED, CONFLICT, DECLINED, REFUTED, UNDONE, UNVERIFIED, VERIFIED, Decision
from surgeon_passes.report.dynamic import DataDependent, Dynamic, ShapeDependent, UnknownSize
from surgeon_passes.report.text import LISTED, REASONS
from surgeon_passes.verify import EndCheck


@pytest.fixture(scope="module")
def result() -> sp.Result:
    return sp.optimize(demo.build())


def report(result: sp.Result, **changes: Any) -> list[str]:
    return replace(result, **{"find_near_misses": list, **changes}).report().splitlines()


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
    lines = report(result, decided=decisions)
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
    lines = report(result, decided=decisions)
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
    lines = report(result, decided=decisions)
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


def rows(lines: list[str], title: str) -> list[list[str]]:
    """Cells of a table: they are two blanks or more apart."""
    return [re.split(r" {2,}", line) for line in section(lines, title)]


def test_counts_what_is_dynamic_before_and_after(result: sp.Result) -> None:
    assert rows(report(result), "dynamics") == [
        ["inputs", "1", "1"],
        ["outputs", "1", "1"],
        ["value_info", "0 of 0", "14 of 14"],
        ["Shape and Size nodes", "1", "0"],
        ["computed Reshape", "1", "0"],
    ]
    assert "static shapes       no: 15 tensors left, first 'stage0.add.out'" in report(result)
    fixed = sp.optimize(demo.build(), {"images": {"N": 2}}, verify="off").report().splitlines()
    assert "static shapes       yes" in fixed
    assert "initializers        71 -> 15" in fixed
    assert rows(fixed, "dynamics")[0] == ["inputs", "1", "0"]


def test_tells_data_from_sizes(result: sp.Result) -> None:
    dynamic = Dynamic(
        (DataDependent("NonZero 'nz'", "NonZero", "if_1/then_branch", "data decide", ("a", "b", "c", "d", "e")),),
        tuple(ShapeDependent(f"Shape 's{n}'", "Shape", "", f"needs N{n % 2}", ()) for n in range(3)),
        (UnknownSize("Own 'o'", "Own", "", "nobody knows", ("z",)),),
    )
    lines = report(result, dynamic=dynamic)
    found = rows(lines, "data-dependent")
    assert found == [["NonZero 'nz' in if_1/then_branch", "data decide", "a, b, c and 2 more"]]
    assert rows(lines, "shape-dependent") == [
        ["Shape", "2", "needs N0", "Shape 's0'"],
        ["Shape", "1", "needs N1", "Shape 's1'"],
    ]
    assert rows(lines, "unknown") == [["Own 'o'", "nobody knows", "z"]]


def test_a_table_of_what_is_dynamic_stays_short(result: sp.Result) -> None:
    many = tuple(DataDependent(f"NonZero '{n}'", "NonZero", "", "data", (f"t{n}",)) for n in range(LISTED + 2))
    lines = report(result, dynamic=Dynamic(many))
    assert len(rows(lines, "data-dependent")) == LISTED + 1
    assert "… and 2 more (see result.dynamic)" in lines


def test_reasons_that_differ_in_names_and_shapes_are_one(result: sp.Result) -> None:
    declined = [
        Decision("r", "", f"Conv '{n}'", DECLINED, reason=f"'w{n}' is also used by Add 'a{n}' [N, {n}]")
        for n in range(4)
    ]
    declined.append(Decision("r", "", "Conv 'x'", DECLINED, reason="'only' is not constant"))
    assert rows(report(result, decided=declined), "declined") == [
        ["r", "4", "'…' is also used by Add '…' […]", "Conv '0'"],
        ["r", "1", "'only' is not constant", "Conv 'x'"],
    ]


def test_brackets_are_no_markup(result: sp.Result) -> None:
    lines = report(result, decided=[Decision("r", "", "Reshape 'x'", DECLINED, reason="the target [B, S] is open")])
    assert rows(lines, "declined")[0][2] == "the target [B, S] is open"


def test_names_are_no_emoji(result: sp.Result) -> None:
    lines = report(result, decided=[Decision("r", "", "Conv ':smile:'", DECLINED, reason="it is :+1: here")])
    assert rows(lines, "declined") == [["r", "1", "it is :+1: here", "Conv ':smile:'"]]
