"""Which tensor is which: by name, by values, by structure, through a record."""

from __future__ import annotations

import numpy as np
import pytest

import surgeon_passes as sp
from surgeon_passes import demo
from surgeon_passes.compare.mapping import told_by
from tests.models import floats, model

from .faults import renamed

W, V = floats(16, 16) * np.float32(0.3), floats(16, 16, seed=1) * np.float32(0.3)


def pairs(found: sp.Comparison) -> dict[str, tuple[str, str]]:
    return {p.a: (p.b, p.by) for p in found.pairs}


def net(lines: str, **constants: object) -> object:
    return model(f"g (float[N,16] x) => (float[N,16] y) {{ {lines} }}", **{"w": W, "v": V, **constants})


def test_names() -> None:
    found = sp.compare(net("h = MatMul(x, w)\n y = Relu(h)"), net("h = MatMul(x, w)\n y = Relu(h)"))
    assert pairs(found) == {"h": ("h", "name"), "y": ("y", "name")}


def test_values_where_names_are_gone() -> None:
    a = net("h = MatMul(x, w)\n r = Tanh(h)\n s = MatMul(r, v)\n y = Sigmoid(s)")
    found = sp.compare(a, renamed(a))
    assert [by for _, by in pairs(found).values()] == ["value"] * 3 + ["output"]
    assert [p.operators[0] == p.operators[1] for p in found.pairs] == [True] * 4 and found.exit_code == 0


def test_numbers_that_moved_mislead_nobody() -> None:
    """Both files call their tensors t1 to t3, and mean other ones."""
    a = net("t1 = MatMul(x, w)\n t2 = Tanh(t1)\n t3 = MatMul(t2, v)\n y = Sigmoid(t3)")
    b = net("t2 = MatMul(x, w)\n t3 = Tanh(t2)\n t1 = MatMul(t3, v)\n y = Sigmoid(t1)")
    found = sp.compare(a, b)
    assert {x: y for x, (y, _) in pairs(found).items()} == {"t1": "t2", "t2": "t3", "t3": "t1", "y": "y"}
    assert found.exit_code == 0


def test_names_are_believed_where_values_differ_from_there_on() -> None:
    a = net("h = MatMul(x, w)\n r = Tanh(h)\n s = MatMul(r, v)\n y = Sigmoid(s)")
    b = net("h = MatMul(x, w)\n r = Tanh(h)\n s = MatMul(r, v)\n y = Sigmoid(s)", w=-2 * W)
    found = sp.compare(a, b)
    assert {by for _, by in pairs(found).values()} == {"name"} and found.first is not None
    assert (found.first.a, [p.a for p in found.pairs if p.begins]) == ("h", ["h"])


def test_a_fused_side_has_fewer_tensors() -> None:
    """Conv and BatchNormalization on one side, a Conv on the other: what both give is the same tensor."""
    original = demo.build()
    result = renamed(sp.optimize(original, verify="off").proto)
    found = sp.compare(original, result)
    convolutions = {p.a: p.operators for p in found.pairs if p.operators[1] == "Conv"}
    assert convolutions["neck.bn.out"] == ("BatchNormalization", "Conv")
    assert convolutions["stage1.add_identity.out"] == ("Add", "Conv")
    assert "stage1.add.out" in found.unpaired[0] and found.unpaired[1] == []
    back = sp.compare(result, original)
    assert {(p.b, p.a) for p in back.pairs} == {(p.a, p.b) for p in found.pairs}


def test_equal_values_go_by_operator() -> None:
    """A Relu of what is positive anyway."""
    a = net("p = Exp(x)\n q = Relu(p)\n h = MatMul(q, w)\n y = Tanh(h)")
    found = pairs(sp.compare(a, net("t5 = Exp(x)\n t4 = Relu(t5)\n t9 = MatMul(t4, w)\n y = Tanh(t9)")))
    assert (found["p"][0], found["q"][0], found["h"][0]) == ("t5", "t4", "t9")


def test_what_differs_while_all_behind_it_agrees_is_another_tensor() -> None:
    """``h`` is x·w on one side, 2·x on the other."""
    a = net("h = MatMul(x, w)\n r = Tanh(h)\n y = MatMul(r, v)")
    b = net("h = Add(x, x)\n k = MatMul(h, half)\n r = Tanh(k)\n y = MatMul(r, v)", half=W / 2)
    found = sp.compare(a, b)
    assert (found.exit_code, found.first, pairs(found)["h"]) == (0, None, ("k", "value"))


def test_a_layer_that_makes_up_for_another_is_told() -> None:
    """Twice the weights here, half of them there: the function is the same, the tensor between them is not."""
    found = sp.compare(
        net("h = MatMul(x, w)\n y = MatMul(h, v)"), net("h = MatMul(x, w)\n y = MatMul(h, v)", w=2 * W, v=V / 2)
    )
    assert [(p.b, p.begins, p.verdict) for p in found.pairs] == [("h", True, "drift"), ("y", True, "equal")]


def test_inputs_go_by_name_or_by_place() -> None:
    one = model("g (float[N,4] a, float[N,4] b) => (float[N,4] y) { y = Sub(a, b) }")
    assert sp.compare(one, model("g (float[N,4] b, float[N,4] a) => (float[N,4] y) { y = Sub(a, b) }")).exit_code == 0
    assert sp.compare(one, model("g (float[N,4] p, float[N,4] q) => (float[N,4] r) { r = Sub(p, q) }")).exit_code == 0
    assert sp.compare(one, model("g (float[N,4] p, float[N,4] q) => (float[N,4] r) { r = Sub(q, p) }")).exit_code == 5


def test_a_record_tells_what_became_of_a_tensor() -> None:
    result = sp.optimize(demo.build())
    told = told_by(result.record())
    made = {t for n in result.proto.graph.node for t in n.output}
    left = {a: b for a, b in told.pairs if b in made}  # what was rewritten again is told, too
    assert left["neck.bn.out"] == "neck.bn.out" and len(left) >= 6
    assert told.rules["neck.bn.out"] == ("fold_batch_norm_into_conv",)
    assert told.rules["stage1.add_identity.out"] == ("merge_parallel_branches",)
    found = sp.compare(demo.build(), result.proto, record=result.record())
    assert {p.a: p.rules for p in found.pairs}["neck.bn.out"] == ("fold_batch_norm_into_conv",)
    assert {p.by for p in found.pairs} == {"name", "map"}


def test_a_record_of_rewrites_that_follow_one_another() -> None:
    def match(before: str, after: str, **more: object) -> dict[str, object]:
        tensors = [{"name": name, "constant": False} for name in (before, after)]
        region = {"outputs": [{"before": tensors[0], "after": tensors[1]}]}
        return {"rule": f"{before}_{after}", "status": "applied", "graph": "", "region": region, **more}

    matches = [match("a", "b"), match("b", "c"), match("p", "q", status="undone"), match("r", "s", graph="loop/body")]
    told = told_by({"format": "surgeon-passes decisions", "version": 1, "matches": matches})
    assert dict(told.pairs) == {"a": "c", "b": "c"}
    assert told.rules["a"] == ("a_b", "b_c")


def test_what_is_no_record_is_refused() -> None:
    with pytest.raises(sp.UsageError, match="no decision record of version 1"):
        told_by({"format": "something else"})


def test_what_differs_in_shape_alone_is_a_pair() -> None:
    """A linear layer has lost the Reshapes around it: inside, [1, 3, 16] is [3, 16]."""
    wide = model(
        "g (float[1,3,16] x) => (float[1,3,16] y) { h = MatMul(x, w)\n r = Tanh(h)\n y = MatMul(r, v) }", w=W, v=V
    )
    flat = """g (float[1,3,16] x) => (float[1,3,16] y) {
        p = Reshape(x, s)
        q = Gemm(p, w)
        t = Tanh(q)
        u = Gemm(t, v)
        y = Reshape(u, z)
    }"""
    sizes = {"s": np.array([3, 16]), "z": np.array([1, 3, 16])}
    assert sp.compare(wide, model(flat, w=W, v=V, **sizes)).exit_code == 0
    found = sp.compare(wide, model(flat, w=W, v=V * np.float32(1.01), **sizes))
    assert {x: y for x, (y, _) in pairs(found).items()} == {"h": "q", "r": "t", "y": "y"}
    assert found.first is not None and found.first.operators[1] == "Gemm" and found.first.layers[1] == "u"
    assert sum(p.begins for p in found.pairs) == 1


def test_an_output_of_another_shape_is_another_output() -> None:
    found = sp.compare(
        model("g (float[2,3] x) => (float[2,3] y) { y = Exp(x) }"),
        model("g (float[2,3] x) => (float[3,2] y) { h = Exp(x)\n y = Reshape(h, s) }", s=np.array([3, 2])),
    )
    assert (found.exit_code, found.pairs[-1].reason) == (5, "shape [3, 2] instead of [2, 3]")
