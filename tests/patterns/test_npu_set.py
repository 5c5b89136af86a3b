"""The set "npu" with all default sets: it comes to rest, verified, and nothing that it decomposes is left."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import surgeon_passes as sp
from surgeon_passes import Rule, patterns
from surgeon_passes.rules.registry import rules_of

from .npu import REJECTED, RULES, one_node

F = np.float32
X = np.ones((2, 4, 6, 6), F)
IMAGE = ["N", 4, 6, 6]
CASES: list[tuple[str, int, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ("HardSwish", 17, {"x": X}, {"x": IMAGE}, {}),
    ("HardSigmoid", 17, {"x": X}, {"x": IMAGE}, {"alpha": 1 / 6}),
    ("HardSigmoid", 10, {"x": X}, {"x": IMAGE}, {}),
    ("Gelu", 20, {"x": X}, {"x": IMAGE}, {}),
    ("Gelu", 20, {"x": X}, {"x": IMAGE}, {"approximate": "tanh"}),
    ("Mish", 18, {"x": X}, {"x": IMAGE}, {}),
    ("Swish", 24, {"x": X}, {"x": IMAGE}, {}),
    ("Celu", 17, {"x": X}, {"x": IMAGE}, {}),
    ("Celu", 17, {"x": X}, {"x": IMAGE}, {"alpha": 0.5}),
    ("Selu", 17, {"x": X}, {"x": IMAGE}, {}),
    ("IsNaN", 17, {"x": X}, {"x": IMAGE}, {}),
    ("LayerNormalization", 17, {"x": X, "k": np.ones(6, F), "kb": np.ones(6, F)}, {"x": IMAGE}, {}),
    ("LayerNormalization", 17, {"x": X, "s": np.ones((6, 6), F)}, {"x": IMAGE}, {"axis": -2}),
    ("LayerNormalization", 20, {"x": X, "s": np.ones(6, F)}, {"x": IMAGE}, {}),
    ("RMSNormalization", 23, {"x": X, "k": np.ones(6, F)}, {"x": IMAGE}, {}),
    ("GroupNormalization", 21, {"x": X, "k": np.ones(4, F), "kb": np.ones(4, F)}, {"x": IMAGE}, {"num_groups": 2}),
    ("LpNormalization", 17, {"x": X}, {"x": IMAGE}, {"axis": 1}),
    ("Einsum", 17, {"x": X, "b": X}, {"x": IMAGE, "b": ["N", 4, 6, 6]}, {"equation": "bqhd,bkhd->bhqk"}),
    ("Einsum", 17, {"x": np.ones((3, 4), F), "b": np.ones(4, F)}, {}, {"equation": "ij,j->ij"}),
    ("Einsum", 17, {"x": X}, {"x": IMAGE}, {"equation": "nchw->nhc"}),
    ("Einsum", 17, {c: np.ones((3, 3), F) for c in "xbc"}, {}, {"equation": "ij,jk,kl->il"}),
    ("GatherND", 17, {"x": X, "k": np.array([[0, 1], [1, 2]])}, {}, {}),
    ("ScatterND", 17, {"x": X, "k": np.array([[1]]), "u": X[:1]}, {}, {}),
    ("DepthToSpace", 17, {"x": X}, {"x": IMAGE}, {"blocksize": 2}),
    ("DepthToSpace", 17, {"x": X}, {"x": IMAGE}, {"blocksize": 2, "mode": "CRD"}),
    ("SpaceToDepth", 17, {"x": X}, {"x": IMAGE}, {"blocksize": 2}),
    ("Trilu", 17, {"x": X}, {"x": IMAGE}, {}),
    ("Attention", 23, {"x": X, "b": X, "c": X}, {}, {}),
    ("RotaryEmbedding", 23, {"x": X, "b": np.ones((2, 6, 3), F), "c": np.ones((2, 6, 3), F)}, {}, {}),
]


@functools.cache
def builtin() -> dict[str, Rule]:
    return {rule.name: rule for rule in rules_of(patterns)}


def test_every_operator_has_a_case() -> None:
    assert {op for op, *_ in CASES} == REJECTED


@pytest.mark.parametrize(
    ("op", "opset", "feeds", "dims", "attrs"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)]
)
def test_comes_to_rest_without_the_operator(
    op: str, opset: int, feeds: dict[str, Any], dims: dict[str, Any], attrs: dict[str, Any]
) -> None:
    result = sp.optimize(one_node(op, feeds, opset, dims, **attrs), sets=["npu"])
    assert result.converged and result.check.status == "equal"
    assert not REJECTED & set(result.after.operators), result.after.operators
    assert not result.undone and {d.verdict for d in result.applied} == {"verified"}
    again = sp.optimize(result.proto, sets=["npu"])
    assert again.proto.graph.node == result.proto.graph.node


def test_all_at_once() -> None:
    text = """
    <ir_version: 9, opset_import: ["" : 20]>
    g (float[N,4,8,8] x, float[8] s, float[8] b) => (float[N,A,B,C] y) {
        a = HardSwish(x)
        l = LayerNormalization(a, s, b)
        h = Gelu(l)
        d = SpaceToDepth<blocksize = 2>(h)
        m = Mish(d)
        y = DepthToSpace<blocksize = 2>(m)
    }
    """
    result = sp.optimize(onnx.parser.parse_model(text), sets="npu")
    assert result.converged and result.check.status == "equal" and not REJECTED & set(result.after.operators)
    fused = sp.optimize(result.proto)  # and back: without the set, what is written out is one operator again
    assert {"LayerNormalization", "Gelu"} <= set(fused.after.operators)


def test_rules_that_are_opposed_exist() -> None:
    for rule in builtin().values():
        unknown = [name for name in rule.opposes if name not in builtin()]
        assert not unknown, f"{rule.name} opposes {unknown}, which are no rules"


def test_every_fusing_rule_is_opposed() -> None:
    """A rule that emits what the set decomposes would never come to rest with it."""
    opposed = {name for rule in RULES for name in rule.opposes}
    for rule in builtin().values():
        texts = [rewrite.text for rewrite in rule.rewrites.values()]
        made = {op for op in REJECTED for text in texts if re.search(rf"(?<![\w.]){op}\(", text)}
        assert not made or "npu" in rule.sets or rule.name in opposed, f"{rule.name} makes {made}; nothing opposes it"


def test_sets_are_named_in_the_report_with_what_stands_back() -> None:
    result = sp.optimize(one_node("HardSwish", {"x": X}, 17), sets=["npu"])
    report = " ".join(result.report().split())
    assert "settings sets npu; left out as others do the opposite: " in report and "fuse_gelu" in report
    assert "settings" not in sp.optimize(one_node("HardSwish", {"x": X}, 17)).report()


def test_an_unknown_set() -> None:
    with pytest.raises(sp.UsageError, match=r"called 'npx' \(did you mean 'npu'"):
        sp.optimize(one_node("HardSwish", {"x": X}, 17), sets=["npx"])


def test_without_the_set_the_operators_stay() -> None:
    assert sp.optimize(one_node("HardSwish", {"x": X}, 17)).after.operators == {"HardSwish": 1}


def test_the_runtime_is_one_that_has_all_of_them() -> None:
    assert tuple(map(int, onnxruntime.__version__.split(".")[:2])) >= (1, 25)
