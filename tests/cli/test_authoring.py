"""``surgeon-passes rules check`` and ``rules new``."""

from __future__ import annotations

from pathlib import Path

import onnx

from tests.cli.conftest import Call

RIGHT = """
from surgeon_passes import Rule

drop_abs = Rule.from_text("drop_abs", "y = Abs(Relu(x))", "y = Relu(x)", exactness="exact")
"""
WRONG = (
    RIGHT
    + """
drop_relu = Rule.from_text("drop_relu", "y = Relu(Neg(x))", "y = Neg(x)", exactness="exact")
"""
)
MISSPELT = RIGHT.replace("Relu(x))", "Rleu(x))")


def test_check_of_a_right_rule(call: Call, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(RIGHT)
    outcome = call("rules", "check", "mine.py", "--graphs", "6")
    assert outcome.code == 0
    first, second, *_, last = outcome.out.splitlines()
    assert first == "drop_abs: ok"
    assert second.startswith("    6 graphs tried, 6 valid, 6 matched, ") and second.endswith("; verification: verified")
    assert last == "1 rules: 1 fired on generated graphs; none failed"


def test_check_of_a_wrong_rule_shows_a_graph_that_can_be_read_back(call: Call, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(WRONG)
    outcome = call("rules", "check", "mine.py", "--graphs", "6", "--seed", "3")
    assert outcome.code == 2
    assert "drop_relu: FAILED, " in outcome.out and outcome.out.splitlines()[-1].endswith("; 1 failed: drop_relu")
    text = outcome.out.partition("smallest such graph:\n")[2].rpartition("\n2 rules")[0].rpartition("}")[0] + "}"
    assert [n.op_type for n in onnx.parser.parse_model(text).graph.node][:2] == ["Neg", "Relu"]


def test_check_shows_where_a_definition_is_wrong(call: Call, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MISSPELT)
    outcome = call("rules", "check", "mine.py")
    assert outcome.code == 2
    assert "Rleu" in outcome.err and "(did you mean 'Relu'?)" in outcome.err and "^^^^" in outcome.err


def test_check_takes_names_and_folders(call: Call, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mine.py").write_text(RIGHT)
    outcome = call("rules", "check", "own", "drop_zero_pad", "--graphs", "3")
    assert [line.split(":")[0] for line in outcome.out.splitlines() if line[0] != " "] == [
        "drop_abs",
        "drop_zero_pad",
        "2 rules",
    ]
    outcome = call("rules", "check", "drop_zero_pda")
    assert outcome.code == 2
    assert "no rule, set, family or file is called 'drop_zero_pda' (did you mean 'drop_zero_pad'?)" in outcome.err


def test_new_prints_a_file_that_check_takes(call: Call, tmp_path: Path) -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[2,3] x) => (float[2,3] y) { a = Sigmoid(x) b = Mul(x, a) y = Relu(b) }""")
    onnx.save(model, tmp_path / "m.onnx")
    outcome = call("rules", "new", "m.onnx", "--from", "x", "--to", "b", "--name", "my_swish")
    assert outcome.code == 0
    (tmp_path / "swish.py").write_text(outcome.out)
    assert "sigmoid_1" not in outcome.out and "y = Mul(x, " in outcome.out
    checked = call("rules", "check", "swish.py", "--graphs", "4")
    assert checked.code == 0 and checked.out.startswith("my_swish: ok\n")
    assert call("rules", "new", "m.onnx", "--from", "y", "--to", "b").code == 2
    assert call("rules", "new", "none.onnx", "--from", "y", "--to", "b").code == 6
