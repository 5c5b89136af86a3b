"""What a comparison says of two models: verdicts, exit codes, and one line for what does not fit."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from onnx import ModelProto, TensorProto, helper

import surgeon_passes as sp
from surgeon_passes import demo
from tests.models import floats, model

RELU = "g (float[N,4] x) => (float[N,4] y) { y = Relu(x) }"
W = floats(4, 4)


def test_a_model_does_not_differ_from_itself(tmp_path: Path) -> None:
    path = tmp_path / "demo.onnx"
    onnx.save(demo.build(), path)
    for other in (path, demo.build(), gs.import_onnx(demo.build())):
        found = sp.compare(path, other)
        assert (found.exit_code, found.first, found.unpaired) == (0, None, ([], []))
        assert {p.error for p in found.pairs} == {0.0} and found.operators[0].mean == 0.0
    assert found.sources == (str(path), "model b") or found.sources[1] == "repvgg_demo"


def test_a_drift_is_told_once_and_handed_on() -> None:
    text = "g (float[N,4] x) => (float[N,4] y) { h = MatMul(x, w)\n r = Tanh(h)\n y = Add(r, r) }"
    found = sp.compare(model(text, w=W), model(text, w=W * np.float32(1.01)))
    assert [(p.b, p.verdict, p.begins) for p in found.pairs] == [
        ("h", "drift", True),
        ("r", "drift", False),
        ("y", "drift", False),
    ]
    assert found.exit_code == 5 and found.first is not None
    assert found.first.error == found.first.own == pytest.approx(0.01, rel=0.2)
    assert found.first.distance is not None
    assert found.first.distance.sqnr == pytest.approx(40, abs=0.1)  # a hundredth: 20 dB for each factor of ten
    assert [p.own for p in found.pairs[1:]] == [0.0, 0.0]
    assert (found.operators[0].operator, found.operators[0].count) == ("MatMul", 1)


def test_the_tolerance_decides() -> None:
    text = "g (float[N,4] x) => (float[N,4] y) { y = MatMul(x, w) }"
    pair = model(text, w=W), model(text, w=W * np.float32(1.01))
    assert sp.compare(*pair, tolerance=0.05).exit_code == 0
    assert sp.compare(*pair, tolerance=0.001).exit_code == 5


def test_rounding_that_adds_up_is_no_drift() -> None:
    """Each step doubles what rounding does; both models are the same but for the order of a sum."""
    steps = "\n".join(f"h{k + 1} = Sub(h{k}, m{k})\n m{k} = ReduceMean<axes=[1]>(h{k})" for k in range(0))
    grow = "\n".join(f"h{k + 1} = Sin(g{k})\n g{k} = Mul(h{k}, s)" for k in range(6))
    text = f"g (float[N,64] x) => (float[N,64] y) {{ h0 = MatMul(x, w)\n {steps}{grow}\n y = Identity(h6) }}"
    weights = floats(64, 64)
    order = np.random.default_rng(0).permutation(64)
    turned = text.replace("h0 = MatMul(x, w)", "p = Gather<axis=1>(x, k)\n h0 = MatMul(p, v)")
    found = sp.compare(
        model(text, w=weights, s=np.float32(40)),
        model(turned, v=weights[order], k=order, s=np.float32(40)),
        data=lambda: {"x": floats(2, 64)},
    )
    last = found.pairs[-1]
    assert last.error > 1e-4 and last.own == 0.0, "rounding does nothing here: this test shows nothing"
    assert {p.verdict for p in found.pairs} == {"equal", "noise"} and found.exit_code == 0


def test_what_adds_up_beyond_rounding_drifts_though_no_layer_does() -> None:
    """Each layer is off by a tenth of the tolerance."""
    lines = "\n".join(f"h{k + 1} = Mul(h{k}, s)" for k in range(60))
    text = f"g (float[N,4] h0) => (float[N,4] h60) {{ {lines} }}"
    found = sp.compare(model(text, s=np.float32(1)), model(text, s=np.float32(1 + 1e-5)))
    assert found.exit_code == 5 and not any(p.begins for p in found.pairs)
    first = found.first
    assert first is not None and 9e-5 < first.error < 1.2e-4 and first.own is not None and first.own < 2e-5
    assert "within the tolerance: it adds up" in found.report()


def nets() -> dict[str, tuple[ModelProto, ModelProto]]:
    loop = """g (float[N,4] x, int64 n) => (float[N,4] y) {
        h = Mul(x, x)
        c = Constant<value = bool {1}>()
        y = Loop(n, c, h)<body = b (int64 i, bool k, float[N,4] s) => (bool l, float[N,4] t) { l = Identity(k)\n t = OP(s) }>
    }"""
    branch = """g (float[N,4] x) => (float[N,4] y) {
        h = Mul(x, x)
        m = ReduceMax<keepdims=0>(h)
        c = Greater(m, zero)
        y = If(c)<then_branch = t () => (float[N,4] p) { p = OP(h) }, else_branch = e () => (float[N,4] q) { q = Neg(h) }>
    }"""
    zero = {"zero": np.float32(0)}
    quantised = """g (float[N,4] x) => (float[N,4] y) {
        q = QuantizeLinear(x, s, z)
        d = DequantizeLinear(q, s, z)
        h = MatMul(d, w)
        y = Relu(h)
    }"""
    plain = model("g (float[N,4] x) => (float[N,4] y) { h = MatMul(x, w)\n y = Relu(h) }", w=W)
    logs = "g (float[N,4] x) => (float[N,4] y) { a = OP(x)\n h = Log(a)\n y = Relu(h) }"
    draws = "g (float[N,4] x) => (float[N,4] y) { r = RandomNormalLike(x)\n y = Add(x, r) }"
    return {
        "loop": (model(loop.replace("OP", "Sqrt")), model(loop.replace("OP", "Neg"))),
        "if": (model(branch.replace("OP", "Exp"), **zero), model(branch.replace("OP", "Relu"), **zero)),
        "quantised": (plain, model(quantised, w=W, s=np.float32(0.05), z=np.uint8(128))),
        "nan": (model(logs.replace("OP", "Identity")), model(logs.replace("OP", "Abs"))),
        "random": (model(draws), model(draws)),
    }


@pytest.mark.parametrize(("name", "first"), [("loop", "y"), ("if", "y"), ("quantised", "h"), ("nan", "a")])
def test_what_drifts_in_models_of_all_kinds(name: str, first: str) -> None:
    found = sp.compare(*nets()[name])
    assert found.first is not None and (found.first.b, found.first.begins, found.exit_code) == (first, True, 5)
    json.dumps(found.as_dict(), allow_nan=False)
    assert found.report() and found.report(None)


def test_what_is_drawn_is_no_drift() -> None:
    found = sp.compare(*nets()["random"])
    assert found.exit_code == 0 and [p.own for p in found.pairs] == [None, 0.0]


def test_nan_on_one_side_is_told_with_its_place() -> None:
    text = "g (float[N,4] x) => (float[N,4] y) { y = OP(x) }"
    found = sp.compare(
        model(text.replace("OP", "Sqrt")),
        model(text.replace("OP", "Abs")),
        data=lambda: {"x": -np.ones((1, 4), np.float32)},
    )
    (pair,) = found.pairs
    assert math.isinf(pair.error) and pair.reason.startswith("NaN on one side only: 1.0 instead of nan at [0, 0]")
    assert [s.nan for s in pair.summaries if s is not None] == [4, 0] and pair.distance is None


@pytest.mark.parametrize("side", ["seq", "tensor"])
def test_sequences(side: str) -> None:
    split = "g (float[N,4] x) => (seq(float[N,2]) s) { s = SplitToSequence<axis=1>(x, k) }"
    same = model(split, k=np.array([2, 2]))
    assert sp.compare(same, same).exit_code == 0
    other = same if side == "seq" else model("g (float[N,4] x) => (float[N,4] s) { s = Relu(x) }")
    found = sp.compare(
        model(split.replace("(x, k)", "(n, k)").replace("{", "{ n = Neg(x)\n"), k=np.array([2, 2])), other
    )
    assert found.exit_code == 5 and found.first is not None and found.first.distance is None


def test_half_precision_has_a_tolerance_of_its_own() -> None:
    half = "g (float16[N,4] x) => (float16[N,4] y) { y = MatMul(x, w) }"
    whole = "g (float[N,4] x) => (float[N,4] y) { y = MatMul(x, w) }"
    assert sp.compare(model(whole, w=W), model(half, w=W.astype(np.float16))).exit_code == 0
    assert sp.compare(model(whole, w=W), model(half, w=(W * 1.02).astype(np.float16))).exit_code == 5


def test_an_output_without_a_partner_is_lost() -> None:
    two = "g (float[N,4] x) => (float[N,4] y, int64[2] z) { y = Relu(x)\n z = Shape(x) }"
    found = sp.compare(model(two), model(RELU))
    assert (found.lost, found.exit_code) == (["z"], 5)
    assert "outputs without a partner: 'z'" in found.report()
    assert sp.compare(model(RELU), model(two)).exit_code == 0


def test_outputs_that_nothing_computes() -> None:
    held = "g (float[N,4] x) => (float[N,4] y, float[4,4] w) { y = Relu(x) }"
    assert sp.compare(model(held, w=W), model(held, w=W)).exit_code == 0
    found = sp.compare(model(held, w=W), model(held, w=W * 2))
    assert found.first is not None and (found.first.b, found.first.error, found.first.own) == ("w", 1.0, None)
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    graph = helper.make_graph([], "g", [value], [value])
    through = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert (sp.compare(through, through).exit_code, len(sp.compare(through, through).pairs)) == (0, 0)


def test_sizes_come_from_the_side_that_fixes_them() -> None:
    fixed = model("g (float[3,4] x) => (float[3,4] y) { y = Relu(x) }")
    for a, b in ((model(RELU), fixed), (fixed, model(RELU))):
        (pair,) = sp.compare(a, b).pairs
        assert pair.summaries[0] is not None and pair.summaries[0].shape == (3, 4)
    (pair,) = sp.compare(model(RELU), model(RELU), shapes={"x": {"N": 5}}).pairs
    assert pair.summaries[1] is not None and pair.summaries[1].shape == (5, 4)


def test_real_data_is_used(tmp_path: Path) -> None:
    """What differs shows on these alone."""
    high = "g (float[N,4] x) => (float[N,4] y) { y = Clip(x, low, high) }"
    a, b = (model(high, low=np.float32(-1e6), high=np.float32(v)) for v in (1e6, 1e3))
    assert sp.compare(a, b).exit_code == 0
    np.savez(tmp_path / "x.npz", x=np.full((1, 4), 5e3, np.float32))
    assert sp.compare(a, b, data=tmp_path / "x.npz").exit_code == 5


Broken = Callable[[], Any]
REFUSED: dict[str, tuple[Broken, type[sp.SurgeonError], str]] = {
    "no file": (lambda: sp.compare("absent.onnx", model(RELU)), sp.ModelError, "absent.onnx: cannot be read"),
    "other inputs": (
        lambda: sp.compare(model(RELU), model(RELU.replace("float[N,4] x", "float[N,4] x, float[N,4] z"))),
        sp.UsageError,
        "the models' inputs differ: model a reads 'x', model b reads 'x', 'z'; they must be the same, or have the same num",
    ),
    "other rank": (
        lambda: sp.compare(model(RELU), model("g (float[N] x) => (float[N] y) { y = Relu(x) }")),
        sp.UsageError,
        "model a reads 'x', a tensor of rank 2; model b 'x', a tensor of rank 1",
    ),
    "other sizes": (
        lambda: sp.compare(model(RELU), model("g (float[N,5] x) => (float[N,5] y) { y = Relu(x) }")),
        sp.UsageError,
        "the models' inputs differ: model a reads ['N', 4] as 'x', model b reads ['N', 5]",
    ),
    "other type": (
        lambda: sp.compare(model(RELU), model("g (int64[N,4] x) => (int64[N,4] y) { y = Abs(x) }")),
        sp.UsageError,
        "'x' is int64 in one of them, float32 in the other",
    ),
    "no output in common": (
        lambda: sp.compare(
            model(RELU), model("g (float[N,4] x) => (int64[2] p, float[4,N] q) { p = Shape(x)\n q = Transpose(x) }")
        ),
        sp.UsageError,
        "the models have no output in common: model a gives y, model b gives p, q",
    ),
    "a does not run": (
        lambda: sp.compare(
            model("g (float[N,4] x) => (float[A,B] y) { y = Reshape(x, s) }", s=np.array([7, 5])), model(RELU)
        ),
        sp.SurgeonError,
        "model a: no inputs could be made up: ",
    ),
    "b does not run": (
        lambda: sp.compare(
            model(RELU), model("g (float[N,4] x) => (float[A,B] y) { y = Reshape(x, s) }", s=np.array([7, 5]))
        ),
        sp.SurgeonError,
        "model b does not run: ",
    ),
    "tolerance": (lambda: sp.compare(model(RELU), model(RELU), tolerance=0.0), sp.UsageError, "it must be above 0"),
    "budget": (
        lambda: sp.compare(model(RELU), model(RELU), max_bytes="much"),
        sp.UsageError,
        "max_bytes is 'much', not a number of bytes",
    ),
    "shape of nothing": (
        lambda: sp.compare(model(RELU), model(RELU), shapes={"z": [1, 4]}),
        sp.UsageError,
        "model a has no input 'z' (its inputs: x)",
    ),
    "data of other names": (
        lambda: sp.compare(model(RELU), model(RELU), data=lambda: {"z": W}),
        sp.UsageError,
        "the data names 'z'; the model's inputs are 'x'",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_told_in_one_line(name: str) -> None:
    call, kind, says = REFUSED[name]
    with pytest.raises(kind) as error:
        call()
    assert says in str(error.value) and "\n" not in str(error.value)
