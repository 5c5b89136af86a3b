"""``surgeon-passes groups`` and ``value``, and the switches of ``optimize``."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from tests.cli.conftest import Call
from tests.models import model

TEXT = """
g (float[N,4] x, int64[1] n) => (float[N,2,2] y, float[M] z)
{
    [/body/shape] s = Shape <end = 1> (x)
    [/body/rest] r = Constant <value_ints = [2, 2]> ()
    [/body/join] t = Concat <axis = 0> (s, r)
    [/body/out] v = Reshape (x, t)
    [/tail/drop] w = Identity (v)
    [/tail/out] y = Relu (w)
    [grow] e = ConstantOfShape (n)
    [more] z = Exp (e)
}"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    onnx.save(model(TEXT), tmp_path / "model.onnx")
    return "model.onnx"


def test_groups_lists_names_and_tensors(call: Call, path: str) -> None:
    outcome = call("groups", path)
    assert outcome.code == 0
    rows = [line.split() for line in outcome.out.splitlines()]
    assert rows[0] == ["module", "/body", "3", "nodes", "x", "->", "v"]
    assert rows[1] == ["module", "/tail", "2", "nodes", "v", "->", "y"]
    assert {row[0] for row in rows} == {"module", "region"}
    assert all(line.startswith("module") for line in call("groups", path, "--kind", "module").out.splitlines())


def test_groups_of_a_model_without_any(call: Call) -> None:
    onnx.save(model("g (float[2] x) => (float[2] y) { y = Relu (x) }"), "plain.onnx")
    assert call("groups", "plain.onnx").out.startswith("no groups: ")
    assert call("groups", "no.onnx").code == 6


def value(call: Call, *arguments: str) -> dict[str, str]:
    outcome = call("value", *arguments)
    assert outcome.code == 0
    return {line[:9].strip(): line[9:] for line in outcome.out.splitlines()}


def test_a_value_that_is_known_in_part(call: Call, path: str) -> None:
    assert value(call, path, "t") == {
        "tensor": "t",
        "made by": "Concat '/body/join'",
        "dtype": "int64",
        "shape": "[3]",
        "value": "partial [N, 2, 2]",
        "because": "it depends on N of input 'x'",
        "from": "Shape '/body/shape', Constant '/body/rest', Concat '/body/join'",
    }


def test_a_value_that_is_known_in_full_at_fixed_sizes(call: Call, path: str) -> None:
    found = value(call, path, "t", "-i", "x=N:5")
    assert found["value"] == "full [5, 2, 2]"
    assert "because" not in found


def test_values_that_are_not_known(call: Call, path: str) -> None:
    assert value(call, path, "y")["shape"] == "[N, 2, 2]"
    assert value(call, path, "y")["because"] == "it comes from data (input 'x')"
    assert value(call, path, "z")["because"] == "it comes from data (input 'n')"
    assert value(call, path, "z")["shape"] == "[?]"
    found = value(call, path, "x")
    assert (found["made by"], found["because"]) == ("input", "it is given when the model runs")


def test_a_constant_and_an_operator_that_nobody_evaluates(call: Call) -> None:
    text = "g (float[N] x) => (float[1] y) { s = Shape (x) f = Cast <to = 1> (s) e = Exp (f) y = Mul (e, w) }"
    onnx.save(model(text, w=[2.0]), "exp.onnx")
    assert value(call, "exp.onnx", "w") == {
        "tensor": "w", "made by": "initializer", "dtype": "double", "shape": "[1]", "value": "full [2.]",
    }  # fmt: skip
    assert value(call, "exp.onnx", "e")["because"] == "it depends on N of input 'x'"


def test_errors_of_value(call: Call, path: str) -> None:
    onnx.save(model("g (float[2] long_name) => (float[2] y) { y = Relu (long_name) }"), "named.onnx")
    outcome = call("value", "named.onnx", "long_nme")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == "error: the model has no tensor 'long_nme' (did you mean 'long_name'?)\n"
    assert call("value", path, "t", "-i", "q=1").code == 2


# --- switches of optimize ------------------------------------------------------------------------------------------------


def names(path: str = "out.onnx") -> list[str]:
    return [n.name for n in onnx.load(path).graph.node]


def test_keep_only_and_skip(call: Call, path: str) -> None:
    assert call("optimize", path, "-o", "out.onnx").code == 0
    assert "/tail/drop" not in names()
    assert call("optimize", path, "-o", "out.onnx", "--keep", "/tail/d*", "--keep", "grow").code == 0
    assert "/tail/drop" in names()
    assert call("optimize", path, "-o", "out.onnx", "--only", "group:/body").code == 0
    assert "/tail/drop" in names()
    assert "/body/shape" not in names()
    assert call("optimize", path, "-o", "out.onnx", "--only", "from:v to:y").code == 0
    assert "/tail/drop" not in names()
    assert "/body/shape" in names()
    assert call("optimize", path, "-o", "out.onnx", "--skip", "rewrite").code == 0
    assert "/tail/drop" in names()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--keep", "nothing*"), "keep 'nothing*' matches no node and no tensor"),
        (("--keep", "v", "--keep", "/tail/dorp"), "(did you mean '/tail/drop'?)"),
        (("--only", "group:/bodi"), "the model has no group '/bodi' (did you mean '/body'?)"),
        (("--only", "from:y to:x"), "does not depend on"),
        (("--only", ""), "only is empty"),
        (("--skip", "flod"), "nor a pass (did you mean 'fold'?)"),
    ],
)
def test_switches_that_match_nothing(call: Call, path: str, arguments: tuple[str, ...], says: str) -> None:
    outcome = call("optimize", path, *arguments, "-o", "out.onnx")
    assert outcome.code == 2
    assert says in outcome.err
    assert outcome.err.count("\n") == 1
    assert not Path("out.onnx").exists()


def test_lossy_casts_are_off_unless_allowed(call: Call) -> None:
    assert "--allow-lossy-casts" in call("optimize", "--help").out
