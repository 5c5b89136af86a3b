"""Blocks of parallel branches that are left, and what is said of them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import surgeon_passes as sp
from surgeon_passes.report.blocks import Block

from .patterns.harness import Builder
from .patterns.test_reparam import total


def blocks(model: onnx.ModelProto, *passes: sp.Rewrite) -> tuple[Block, ...]:
    pipeline = sp.Pipeline(sp.Fold(), *(passes or (sp.Rewrite(),)), sp.Cleanup())
    return pipeline.run(model, verify="off").blocks


def test_a_merged_block_is_none() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H"])
    assert blocks(b.model(total(b, b.conv(x, 2, 2, [3], pads=[1, 1]), b.conv(x, 2, 2, [1]), x))) == ()


def test_the_rule_says_why() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H", "W"])
    crossed = [b.conv(x, 2, 3, k, pads=p) for k, p in (([1, 3], [0, 1, 0, 1]), ([3, 1], [1, 0, 1, 0]))]
    (left,) = blocks(b.model(total(b, *crossed)))
    assert left.node == "Add 'node2'" and left.graph == "" and left.tensor == "x"
    assert left.branches == ("Conv", "Conv")
    assert left.reason == "merged they would cost 1.5x (36 to 54 weights)"


def test_sequences_are_branches() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H"])
    inner = b.conv(b.conv(x, 2, 2, [1], bias=True), 2, 2, [3], pads=[1, 1])
    (left,) = blocks(b.model(total(b, inner, x)))
    assert left.branches == ("Conv, Conv", "")
    assert "its padding puts zeros" in left.reason


def test_a_sequence_that_no_rule_has() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H"])
    inner = b.conv(b.node("AveragePool", b.conv(x, 2, 2, [1], bias=True), kernel_shape=[1]), 2, 2, [1])
    (left,) = blocks(b.model(total(b, inner, x)))
    assert left.branches == ("Conv, AveragePool, Conv", "")
    assert left.reason == "no rule that was applied merges such branches"


def test_a_branch_that_is_read_elsewhere_is_the_reason() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H"])
    first = b.conv(x, 2, 2, [1])
    model = b.model(total(b, first, b.conv(x, 2, 2, [3], pads=[1, 1])), b.node("Relu", first))
    (left,) = blocks(model)
    assert left.reason == f"'{first}' is used elsewhere, too"


def test_an_output_inside_is_the_reason() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H"])
    first = b.conv(x, 2, 2, [1])
    (left,) = blocks(b.model(total(b, first, b.conv(x, 2, 2, [3], pads=[1, 1])), first))
    assert left.reason == f"'{first}' is a graph output"


def test_rules_that_were_left_out() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H"])
    model = b.model(total(b, b.conv(x, 2, 2, [3], pads=[1, 1]), x))
    (left,) = blocks(model, sp.Rewrite("cleanup"))
    assert left.reason == "no rule that was applied merges such branches"


def test_refuted_and_undone_is_a_reason() -> None:
    @sp.rule(
        pattern="""
            branch(x) = Conv(x, w, b?) | x
            y = sum(branch(x)...)
        """,
        rewrite="y = Conv(x, W)<@geometry>",
    )
    def merge_wrongly(m: sp.Match) -> sp.Replacement:
        conv = next(leaf for leaf in m.branches if not leaf.is_bare)
        return sp.Replacement(W=np.asarray(conv.w), geometry={"pads": [1, 1]})

    b = Builder()
    x = b.input("x", ["N", 2, "H"])
    model = b.model(total(b, b.conv(x, 2, 2, [3], pads=[1, 1]), x))
    result = sp.Pipeline(sp.Fold(), sp.Rewrite(merge_wrongly), sp.Cleanup()).run(model)
    (left,) = result.blocks
    assert result.undone and left.reason == result.undone[0].reason


@pytest.mark.parametrize("kind", ["residual", "scales", "two inputs", "one branch"])
def test_what_is_no_block(kind: str) -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H"])
    y = {
        "residual": lambda: total(b, b.conv(b.node("Relu", b.conv(x, 2, 2, [1])), 2, 2, [1]), x),
        "scales": lambda: total(b, b.node("Mul", x, b.random(2, 1)), x),
        "two inputs": lambda: total(b, b.conv(x, 2, 2, [1]), b.conv(b.input("z", ["N", 2, "H"]), 2, 2, [1])),
        "one branch": lambda: total(b, b.conv(x, 2, 2, [1]), b.node("Relu", x)),
    }[kind]()
    assert blocks(b.model(y)) == ()


def test_linear_layers_are_branches() -> None:
    b = Builder()
    x = b.input("x", ["N", "H", 8])
    low = b.node("MatMul", b.node("MatMul", x, b.random(8, 2)), b.random(2, 8))
    (left,) = blocks(b.model(total(b, low, x)))
    assert left.branches == ("MatMul, MatMul", "")
    assert left.reason == "merged they would hold 2x the weights (32 to 64)"


def test_the_report_shows_them() -> None:
    b = Builder()
    x = b.input("x", ["N", 2, "H", "W"])
    crossed = [b.conv(x, 2, 3, k, pads=p) for k, p in (([1, 3], [0, 1, 0, 1]), ([3, 1], [1, 0, 1, 0]))]
    report = sp.optimize(b.model(total(b, *crossed)), verify="off").report()
    assert "1 multi-branch block left" in report
    line = next(line for line in report.splitlines() if line.startswith("Add 'node2'") and "Conv + Conv" in line)
    assert "merged they would cost 1.5x (36 to 54 weights)" in line
