"""Exit codes in their order, and what is still dynamic."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

import surgeon_passes as sp
from surgeon_passes import demo
from surgeon_passes.decisions import APPLIED, REFUTED, UNDONE, UNVERIFIED, VERIFIED, Decision
from surgeon_passes.verify import EndCheck

UNDONE_ONE = Decision("r", "", "Conv 'c'", UNDONE, REFUTED)
SOUND = Decision("r", "", "Conv 'd'", APPLIED, VERIFIED)
UNSURE = Decision("r", "", "Conv 'e'", APPLIED, UNVERIFIED)


@pytest.fixture(scope="module")
def plain() -> sp.Result:
    return sp.optimize(demo.build())


@pytest.fixture(scope="module")
def fixed() -> sp.Result:
    return sp.optimize(demo.build(), shapes={"images": {"N": 2}})


def code(result: sp.Result, checker_error: str = "", **changes: Any) -> int:
    changed = replace(result, **changes)
    vars(changed)["checker_error"] = checker_error
    return changed.exit_code


def test_all_well(plain: sp.Result, fixed: sp.Result) -> None:
    assert plain.exit_code == fixed.exit_code == 0
    assert not plain.is_static
    assert plain.dynamic_inputs == ["images"]
    assert fixed.is_static


@pytest.mark.parametrize(
    ("status", "decisions", "expected"),
    [
        ("equal", [SOUND], 0),
        ("equal", [UNDONE_ONE], 7),
        ("different", [SOUND], 5),
        ("different", [UNDONE_ONE], 5),
        ("not run", [SOUND], 5),
        ("inconclusive", [SOUND], 0),
        ("inconclusive", [SOUND, UNSURE], 5),
        ("inconclusive", [SOUND, UNDONE_ONE], 7),
    ],
)
def test_of_the_end_check(plain: sp.Result, status: str, decisions: list[Decision], expected: int) -> None:
    assert code(plain, check=EndCheck(status), decided=decisions) == expected


def test_the_first_that_holds(fixed: sp.Result) -> None:
    vague = onnx.ModelProto()
    vague.CopyFrom(fixed.proto)
    del vague.graph.value_info[:]
    bad: dict[str, Any] = {"check": EndCheck("different"), "decided": [UNDONE_ONE], "light": vague}
    assert code(fixed, "wrong", **bad) == 4
    assert code(fixed, **bad) == 5
    assert code(fixed, **{**bad, "check": EndCheck("equal")}) == 3
    assert code(fixed, check=EndCheck("equal"), decided=[UNDONE_ONE]) == 7


def test_without_shapes_dynamic_items_are_no_failure(plain: sp.Result) -> None:
    assert plain.dynamic_items
    assert plain.exit_code == 0


def test_saves_what_it_holds(fixed: sp.Result, tmp_path: Path) -> None:
    fixed.save(tmp_path / "out.onnx")
    assert onnx.load(tmp_path / "out.onnx") == fixed.proto
    assert [p.name for p in tmp_path.iterdir()] == ["out.onnx"]


def test_saving_where_there_is_no_folder(fixed: sp.Result, tmp_path: Path) -> None:
    with pytest.raises(sp.ModelError, match="cannot be written"):
        fixed.save(tmp_path / "missing" / "out.onnx")
