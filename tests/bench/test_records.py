"""What counts, what is ranked, and ratios."""

from __future__ import annotations

import pytest

from surgeon_passes.bench.records import Measured, Row, from_json, shares, to_json
from surgeon_passes.bench.table import model_table, seconds, share_table, size, summary
from surgeon_passes.bench.tools import OFF, ONNXSIM, OURS
from surgeon_passes.errors import ModelError
from surgeon_passes.timing.interleaved import Ratio


def row(tool: str, best: float = 1.0, nodes: int = 5, check: str = "equal", **more: object) -> Row:
    return Row(tool, "1", seconds=[best + 1, best], cpu=[best], nodes=nodes, bytes=100, check=check, **more)  # type: ignore[arg-type]


def model(*rows: Row, **more: object) -> Measured:
    return Measured("m", 10, 1000, list(rows), **more)  # type: ignore[arg-type]


def test_the_byte_budget() -> None:
    assert model().budget(int(1.1 * 1000 + 64 * 1024)) and not model().budget(int(1.1 * 1000 + 64 * 1024) + 1)


def test_results_that_do_not_count_stand_behind_and_show_no_number() -> None:
    measured = model(
        row("wrong", nodes=1, check="different", check_reason="error 0.5"),
        row("large", nodes=1, is_too_big=True),
        row("late", nodes=0, status="timeout", reason="no result after 1 s"),
        row("six", nodes=6),
        row("five", nodes=5, ratio=Ratio(0.5, 0.4, 0.6), ms=2.0),
    )
    assert [r.tool for r in measured.ranked] == ["five", "six", "wrong", "large", "late"]
    lines = model_table(measured).splitlines()
    assert lines[0] == "m: 10 nodes, 1 kB"
    cells = [" ".join(line.split()) for line in lines]
    assert cells[2] == "five 1 1.000 1.500 - - 5 100 B equal 2 ms 0.50 [0.40, 0.60]"
    assert cells[4] == "wrong 1 1.000 1.500 - - - - differs - -"
    assert lines[7:] == ["wrong: error 0.5", "large: 100 B, beyond the byte budget", "late: no result after 1 s"]


def test_the_summary_is_of_results_that_count() -> None:
    one = model(row(OURS, 2, 5), row(ONNXSIM, 4, 8))
    two = model(row(OURS, 3, 1, check="different"), row(ONNXSIM, 1, 8))
    three = model(row(OURS, 1, 2, ratio=Ratio(1.1, 1.03, 1.2)), row(ONNXSIM, 1, 8, check="inconclusive"))
    ours, sim = summary([one, two, three]).splitlines()[2:4]
    assert ours.split() == [OURS, "1", "2", "of", "3", "1.500", "0.50", "-", "35%", "10%", "1.10", "1"]
    assert sim.split() == [ONNXSIM, "1", "2", "of", "3", "2.500", "1.00", "-", "80%", "10%", "-", "-"]


def test_shares() -> None:
    measured = model(row(OURS, 4.0), row(OFF, 1.0), row(ONNXSIM, 2.0), runtime=3.0, runtime_cpu=2.0)
    found = shares(measured)
    assert found is not None
    assert (found.strict, found.less_runtime, found.off, found.verification) == (2.0, 0.5, 0.5, 0.75)
    assert (shares(measured, cpu=True) or found).less_runtime == 1.0
    assert shares(model(row(OURS), row(OFF))) is None
    assert share_table([model(row(OURS), row(OFF))]) == ""
    lines = share_table([measured, model(row(OURS, 1.0), row(OFF, 1.0), row(ONNXSIM, 1.0))]).splitlines()
    assert lines[-2].split() == ["median", "1.50", "0.50", "0.75", "38%"]
    assert lines[-1].split() == ["largest", "2.00", "0.50"]


def test_json_and_back() -> None:
    measured = [
        model(
            row("a", ratio=Ratio(1, 0.9, 1.1), ours=Ratio(2, 1.9, 2.1)), row("b", status="failed", reason="x"), ms=3.0
        )
    ]
    text = to_json(measured, {"machine": {"cpus": 2}})
    assert from_json(text, "b.json") == measured


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "no measurements"),
        ("[]", "no measurements"),
        ('{"format": 0, "models": []}', "format 0, not 1"),
        ('{"format": 1, "models": [{"name": "x"}]}', "no measurements"),
        ('{"format": 1, "models": [{"odd": 1, "rows": []}]}', "no measurements"),
    ],
)
def test_a_file_that_holds_something_else(text: str, says: str) -> None:
    with pytest.raises(ModelError, match=f"b.json: .*{says}"):
        from_json(text, "b.json")


def test_numbers_as_text() -> None:
    assert [size(n) for n in (999, 1000, 65_536, 21_779_764, 2.5e9)] == [
        "999 B",
        "1 kB",
        "65.5 kB",
        "21.8 MB",
        "2.5 GB",
    ]
    assert [seconds(s) for s in (0.0123, 9.9999, 45.04)] == ["0.012", "10.000", "45.0"]
