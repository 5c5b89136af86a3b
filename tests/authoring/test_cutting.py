"""A part of a model as a rule that fits where it came from."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import pytest

import surgeon_passes as sp
from surgeon_passes.authoring.cutting import cut, write_rule
from surgeon_passes.errors import UsageError
from surgeon_passes.index import node_label
from surgeon_passes.model import Model
from surgeon_passes.passes import State, Verify
from surgeon_passes.pipeline import load
from surgeon_passes.rules.matcher import Matcher
from surgeon_passes.rules.registry import Registry

REAL = (
    "rep_dbb_simple__raw",
    "hf_vit_tiny__dyn",
    "rnn_lstm_gru__rawdyn",
    "tv_shufflenet_v2_x0_5__rawdyn",
    "bn_edge_cases__raw",
)
CUTS = 6
BLOCK = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[1,4,6,6] x, float[1,4,6,6] other) => (float[1,4,6,6] y, float[1,4,6,6] aside)
    <float high = {6.0}>
    {
        c = Conv<pads = [1, 1, 1, 1], strides = [1, 1]>(x, w)
        k = Clip(c, , high)
        s = Add(k, other)
        aside = Abs(s)
        y = LeakyRelu<alpha = 0.2>(s)
    }"""


def block() -> onnx.ModelProto:
    model = onnx.parser.parse_model(BLOCK)
    weight = np.random.default_rng(0).standard_normal((4, 4, 3, 3)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    return model


def rule_of(text: str, folder: Path) -> sp.Rule:
    path = folder / "cut_rules.py"
    path.write_text(text)
    (rule,) = Registry().add_path(str(path))
    return rule


def matches(rule: sp.Rule, state: State, root: str) -> int:
    """Ways in which the pattern fits with its root there."""
    matcher = Matcher(rule.pattern, state.context)
    return sum(1 for n in state.index.nodes() if node_label(n) == root for _ in matcher.matches(n))


def test_the_pattern_says_what_is_there() -> None:
    found = cut(block(), ["x"], "s")
    lines = sp.rules.printer.unparse(found.pattern).splitlines()
    assert lines == [
        "conv = Conv(x, w: const)<pads=[1, 1, 1, 1]>",
        "clip = Clip(conv, min?, max: const)",
        "y = Add(clip, z)",
    ]


def test_only_what_lies_between_is_in_it() -> None:
    found = cut(block(), ["s"], "y")
    assert sp.rules.printer.unparse(found.pattern) == "y = LeakyRelu(x)<alpha=0.2>"


def test_the_printed_rule_fits_once_where_it_came_from_and_changes_nothing(tmp_path: Path) -> None:
    found = cut(block(), ["x", "other"], "s")
    rule = rule_of(write_rule(found, "my_block"), tmp_path)
    assert rule.name == "my_block"
    result = sp.Pipeline(sp.Rewrite(rule)).run(block(), registry=Registry())
    assert [(d.status, d.verdict) for d in result.decided] == [("applied", "verified")]
    assert [n.op_type for n in result.proto.graph.node].count("Conv") == 1


@pytest.mark.parametrize(
    ("begin", "end", "reason"),
    [
        (["x"], "z", "the model has no tensor 'z'"),
        (["othr"], "y", "the model has no tensor 'othr' (did you mean 'other'?)"),
        (["y"], "s", "there is no way from tensor 'y' to 's'"),
        (["other"], "k", "there is no way from tensor 'other' to 'k'"),
        (["x"], "y", "'s' leaves the part too: Abs -> 'aside' reads it; end the part there, or begin behind it"),
    ],
)
def test_what_is_no_part_is_told_in_a_line(begin: list[str], end: str, reason: str) -> None:
    with pytest.raises(UsageError) as error:
        cut(block(), begin, end)
    assert str(error.value).removeprefix("the model: ").endswith(reason) and "\n" not in str(error.value)


def test_a_graph_output_inside_leaves_the_part() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x) => (float[2] a, float[2] y) { a = Relu(x) y = Abs(a) }""")
    with pytest.raises(UsageError, match="'a' leaves the part too: it is a graph output"):
        cut(model, ["x"], "y")


def test_an_operator_that_holds_a_graph_is_named() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x, bool c) => (float[2] y) {
            r = Relu(x)
            i = If(c) <then_branch = a () => (float[2] p) { p = Abs(r) }, else_branch = b () => (float[2] q) { q = Neg(r) }>
            y = Abs(i)
        }""")
    with pytest.raises(UsageError, match=r"If .*holds a graph: a pattern cannot say what is inside"):
        cut(model, ["c"], "y")


@pytest.mark.parametrize("name", REAL)
def test_random_cuts_of_real_models_match_where_they_came_from(name: str, models: Path, tmp_path: Path) -> None:
    model = load(str(models / f"{name}.onnx"))
    state = State(model, Registry(), Verify("off"))
    matched = 0
    for begin, end in _cuts(model, state, random.Random(name)):
        try:
            found = cut(model, [begin], end)
        except UsageError as error:
            assert "leaves the part too" in str(error) or "holds a graph" in str(error)
            continue
        rule = rule_of(write_rule(found, "cut_rule"), tmp_path)
        assert matches(rule, state, found.root) >= 1, (begin, end)
        matched += 1
    assert matched >= CUTS // 2


def _cuts(model: Model, state: State, rng: random.Random) -> list[tuple[str, str]]:
    """From a tensor some steps behind a node's result to that result."""
    index = state.index
    nodes = [n for n in index.nodes() if n.op != "Constant" and not index.scope(n).path]
    found: list[tuple[str, str]] = []
    while len(found) < 2 * CUTS:
        end = node = rng.choice(nodes)
        begin = None
        for _ in range(rng.randint(1, 5)):
            data = [t for t in node.inputs if index.producer(t) is not None or index.is_graph_input(t)]
            if not data:
                break
            begin = rng.choice(data)
            node = index.producer(begin)
            if node is None:
                break
        if begin is not None:
            found.append((begin.name, end.outputs[0].name))
    return found
