"""``surgeon-passes pass``: one pass on a model."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
import pytest

from surgeon_passes.passes import PASSES
from tests.cli.conftest import Call
from tests.models import model

TEXT = """
g (float[N,2] x) => (float[N,2] y)
{
    [k] k = Constant <value_floats = [1.0, 2.0]> ()
    [t] t = Add (k, k)
    [a] a = Add (x, t)
    [i] b = Identity (a)
    [y] y = Relu (b)
}"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    onnx.save(model(TEXT), tmp_path / "model.onnx")
    return "model.onnx"


def names(path: str) -> list[str]:
    return [n.name for n in onnx.load(path).graph.node]


def test_list_shows_each_pass_with_its_options(call: Call) -> None:
    outcome = call("pass", "list")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == [kind.name for kind in PASSES]
    assert "cleanup     Dead nodes; constants and functions that nothing reads or calls any more" in lines
    fold = lines.index(next(line for line in lines if line.startswith("fold ")))
    assert lines[fold + 1].split() == ["max_bytes", "=", "'1MiB'"]
    rewrite = lines.index(next(line for line in lines if line.startswith("rewrite ")))
    following = [line.strip() for line in lines[rewrite + 1 : rewrite + 7]]
    assert "allow_lossy_casts = False" in following
    assert "after fold" in following


def test_what_a_pass_needs_runs_before_it(call: Call, path: str) -> None:
    outcome = call("pass", "run", "rewrite", path, "-o", "out.onnx")
    assert outcome.code == 0
    assert outcome.out.splitlines()[0] == "before it: fold"
    assert outcome.out.splitlines()[1] == "rewrite: nodes 3 -> 2; 1 removed, 0 added, 1 changed, end check equal"
    assert names("out.onnx") == ["a", "y"]


def test_alone_it_finds_what_is_there(call: Call, path: str) -> None:
    outcome = call("pass", "run", "rewrite", path, "--alone", "-o", "out.onnx")
    assert outcome.out.splitlines()[0].startswith("rewrite: nodes 4 -> 3")
    assert names("out.onnx") == ["k", "t", "a", "y"]


def test_repeated_it_says_whether_anything_changed_again(call: Call, path: str) -> None:
    lines = call("pass", "run", "fold", path, "--repeat", "3").out.splitlines()
    assert lines[0].startswith("fold, run 1: nodes 4 -> 3")
    assert lines[1:] == ["fold, run 2: nothing changed", "fold, run 3: nothing changed"]
    assert os.listdir() == [path]


def test_diff_shows_nodes_and_initializers(call: Call, path: str) -> None:
    assert call("pass", "run", "rewrite", path, "--diff").out.splitlines()[2:] == [
        "- Identity 'i' ('a') -> 'b'",
        "~ Relu 'y': input 0: 'b' -> 'a'",
    ]
    lines = call("pass", "run", "fold", path, "--diff").out.splitlines()[1:]
    assert lines == [
        "- Constant 'k' () -> 'k' <value_floats=[1.0, 2.0]>",
        "- Add 't' ('k', 'k') -> 't'",
        "+ initializer 't' float[2]",
    ]


def test_the_opset_is_an_option(call: Call, path: str) -> None:
    outcome = call("pass", "run", "opset", path, "--opset", "20", "-o", "out.onnx")
    assert outcome.code == 0 and onnx.load("out.onnx").opset_import[0].version == 20
    assert call("pass", "run", "opset", path).err == "error: opset: say which one, --opset N\n"


def test_functions_are_inlined_by_a_pass(call: Call, tmp_path: Path) -> None:
    text = """
        <ir_version: 8, opset_import: ["" : 17, "pkg" : 1]>
        g (float[N] x) => (float[N] y) { y = pkg.Twice(x) }
        <domain: "pkg", opset_import: ["" : 17]> Twice (x) => (y) { y = Add(x, x) }
    """
    onnx.save(onnx.parser.parse_model(text), tmp_path / "f.onnx")
    assert call("pass", "run", "inline", "f.onnx", "-o", "out.onnx").code == 0
    assert not onnx.load("out.onnx").functions


def test_with_fixed_shapes(call: Call, path: str) -> None:
    assert call("pass", "run", "specialize", path, "-i", "x=N:3", "-o", "out.onnx").code == 0
    (value,) = onnx.load("out.onnx").graph.input
    assert [d.dim_value for d in value.type.tensor_type.shape.dim] == [3, 2]
    assert names("out.onnx") == ["k", "t", "a", "i", "y"]
    assert call("pass", "run", "rewrite", path, "-i", "x=N:3").out.startswith("before it: specialize, fold\n")
    assert call("pass", "run", "rewrite", path, "-i", "x=N:3", "--alone").out.startswith("before it: specialize\n")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("fodl", "model.onnx"), 2, "no pass is called 'fodl' (did you mean 'fold'?)"),
        (("fold", "no.onnx"), 6, "no.onnx: cannot be read"),
        (("fold", "model.onnx", "-i", "z=1,2"), 2, "the model has no input 'z'"),
        (("fold", "model.onnx", "-o", "missing/out.onnx"), 6, "cannot be written"),
        (("fold", "model.onnx", "-i", "x"), 2, "write NAME="),
    ],
)
def test_errors(call: Call, path: str, arguments: tuple[str, ...], code: int, says: str) -> None:
    outcome = call("pass", "run", *arguments)
    assert outcome.code == code
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1
    assert says in outcome.err
    assert outcome.out == ""
    assert os.listdir() == [path]


def test_repeat_is_at_least_one(call: Call, path: str) -> None:
    assert call("pass", "run", "fold", path, "--repeat", "0").code == 2
