"""A comparison as text."""

from __future__ import annotations

import numpy as np

import surgeon_passes as sp
from surgeon_passes.report.comparison import WIDTH
from tests.models import floats, model

CHAIN = "g (float[N,4] x) => (float[N,4] y) { h0 = MatMul(x, w)\n BODY y = Identity(h30) }"
LONG = CHAIN.replace("BODY", "\n".join(f"h{k + 1} = Mul(h{k}, s)\n" for k in range(30)))


def drifting(limit: int | None = 20) -> str:
    w, s = floats(4, 4), np.float32(1.1)
    return sp.compare(model(LONG, w=w, s=s), model(LONG, w=w * np.float32(1.01), s=s)).report(limit)


def test_the_head_says_where_drift_begins() -> None:
    lines = drifting().splitlines()
    assert lines[0] == "a             model a (ort:off)" and lines[2] == "tensors       32 paired (32 by name)"
    assert "drift begins  MatMul 'h0' of b, tensor 'h0' (a: 'h0'): error 0.01, by itself 0.01" in lines
    assert "by operator   MatMul drifts most: on average 0.01, at most 0.01, of 1" in lines
    assert "result        32 of 32 tensors drift" in lines


def test_statistics_of_the_first_one_stand_side_by_side() -> None:
    rows = {line.split("  ")[0]: line.split() for line in drifting().splitlines()}
    assert rows["shape"][-2:] == rows["shape"][1:3] and rows["dtype"] == ["dtype", "float32", "float32"]
    a, b = map(float, rows["50 %"][-2:])
    assert abs(b / a - 1.01) < 1e-3
    assert float(rows["max |x|"][-1]) / float(rows["max |x|"][-2]) - 1.01 < 1e-3


def test_a_list_that_is_cut_says_so() -> None:
    assert "… and 12 more (--all lists every tensor)" in drifting()
    assert "… and" not in drifting(None) and drifting(None).count("Mul ") >= 30


def test_lines_fit_and_names_do_no_harm() -> None:
    proto = model("g (float[N,4] x) => (float[N,4] y) { h = Exp(x)\n y = Neg(h) }")
    other = model("g (float[N,4] x) => (float[N,4] y) { h = Sin(x)\n y = Neg(h) }")
    for one in (proto, other):
        one.graph.node[0].output[0] = one.graph.node[1].input[0] = "\x1b[2J[bold]h\n" + "long" * 40
    text = sp.compare(proto, other).report(None)
    assert "\x1b" not in text and "[bold]h" in text
    assert all(len(line) <= WIDTH for line in text.splitlines() if not line.startswith(("drift begins", "apart:")))


def test_nothing_to_tell() -> None:
    same = model("g (float[N,4] x) => (float[N,4] y) { y = Exp(x) }")
    text = sp.compare(same, same).report()
    assert "drift begins  nowhere" in text and "by operator   none drifts" in text and "no tensor drifts" in text
