"""``-p``, ``--pipeline`` and ``surgeon-passes pipeline show``."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import surgeon_passes as sp
from tests.cli.conftest import Call, assert_refused


def test_the_pipeline_that_is_shown_is_the_one_that_is_run(call: Call, model: str) -> None:
    shown = call("pipeline", "show", "--set", "npu", "-i", "images=N:1", "--max-bytes", "4KiB", "--max-iterations", "3")
    assert shown.code == 0
    Path("own.toml").write_text(shown.out)
    rewrite = sp.Rewrite("cleanup", "shape", "fusion", "reparam", "user", "npu")
    assert sp.Pipeline.from_toml("own.toml") == sp.Pipeline(
        sp.Specialize({"images": {"N": 1}}),
        sp.Fold("4KiB"),
        rewrite,
        sp.Sizes(),
        sp.Duplicates(),
        sp.Cleanup(),
        sp.Constants(),
        max_iterations=3,
    )
    assert call("optimize", model, "--pipeline", "own.toml", "-o", "out.onnx").code == 0
    assert [n.op_type for n in onnx.load("out.onnx").graph.node] == ["Conv"]
    assert onnx.load("out.onnx").graph.input[0].type.tensor_type.shape.dim[0].dim_value == 1


def test_passes_are_named_in_one_line(call: Call, model: str) -> None:
    assert call("optimize", model, "-p", "fold,cleanup", "-o", "left.onnx").code == 0
    assert len(onnx.load("left.onnx").graph.node) == 2
    assert (
        call("optimize", model, "-p", "specialize,rewrite{sets=fusion}", "-i", "images=N:2", "-o", "out.onnx").code == 0
    )
    assert [n.op_type for n in onnx.load("out.onnx").graph.node] == ["Conv"]
    assert onnx.load("out.onnx").graph.input[0].type.tensor_type.shape.dim[0].dim_value == 2


def test_shapes_of_the_command_line_come_before_those_of_the_file(call: Call, model: str) -> None:
    Path("own.toml").write_text('[[pass]]\nname = "specialize"\nshapes = {images = {N = 5}}\n')
    assert call("optimize", model, "--pipeline", "own.toml", "-o", "five.onnx").code == 0
    assert onnx.load("five.onnx").graph.input[0].type.tensor_type.shape.dim[0].dim_value == 5
    assert call("optimize", model, "--pipeline", "own.toml", "-i", "images=N:7", "-o", "seven.onnx").code == 0
    assert onnx.load("seven.onnx").graph.input[0].type.tensor_type.shape.dim[0].dim_value == 7


def test_a_pass_alone_takes_its_options(call: Call, model: str) -> None:
    assert call("pass", "run", "rewrite{skip=fusion}", model, "-o", "left.onnx").code == 0
    assert len(onnx.load("left.onnx").graph.node) == 2
    assert_refused(call, 2, "pass", "run", "fold,rewrite", model, says="pass run takes one pass, not 2")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("-p", "fold", "--pipeline", "x.toml"), "-p and --pipeline both say which passes run"),
        (
            ("-p", "fold", "--set", "npu"),
            "--set is for the default pipeline; with -p or --pipeline write rewrite{sets=…}",
        ),
        (("-p", "fold", "--max-bytes", "1KiB"), "--max-bytes is for the default pipeline"),
        (("-p", "fold", "-i", "images=N:1"), "the pipeline has no pass specialize to do it"),
        (("-p", "specialize,fold"), "the pass specialize is not told any shape; give -i NAME=SIZES"),
        (("-p", "rewrite{sets=shpe}"), "no rule or set of rules is called 'shpe' (did you mean 'shape'?)"),
        (("-p", "fold{max_bytes=lots}"), "max_bytes is 'lots', not a number of bytes"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    call: Call, model: str, options: tuple[str, ...], says: str
) -> None:
    assert_refused(call, 2, "optimize", model, *options, "-o", "out.onnx", says=says)


def test_own_rules_must_be_run_by_some_pass(call: Call, model: str) -> None:
    rule = "Rule.from_text('mine', 'y = Neg(Neg(x))', 'y = x', sets='own', exactness='exact')"
    Path("own.py").write_text(f"from surgeon_passes import Rule\n\nMINE = {rule}\n")
    says = "--rules: no pass of the pipeline runs mine; name it, as in rewrite{sets=own}"
    assert_refused(call, 2, "optimize", model, "-p", "fold,rewrite", "--rules", "own.py", says=says)
    assert call("optimize", model, "-p", "fold,rewrite{sets=own}", "--rules", "own.py").code == 0


def test_a_pipeline_file_that_is_not_there_is_refused(call: Call, model: str) -> None:
    assert_refused(call, 6, "optimize", model, "--pipeline", "none.toml", says="none.toml: cannot be read")
