"""What counts as a node."""

from __future__ import annotations

from collections import Counter

from onnx import parser

from surgeon_passes.pipeline import load
from surgeon_passes.report.counts import count

MODEL = """
<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
g (float[4] x, bool c) => (float[4] y) <float[4] w = {1, 2, 3, 4}>
{
    k = Constant <value = float[2] {1, 2}> ()
    a = Add (x, w)
    s = own.twice (a)
    y = If (c) <
        then_branch = t () => (float[4] p) { one = Constant <value_float = 1.0> ()  p = Mul (s, one) },
        else_branch = e () => (float[4] q) { q = Neg (s) }
    >
}
<domain: "own", opset_import: ["" : 17]>
twice (z) => (r) { two = Constant <value_float = 2.0> ()  r = Mul (z, two) }
"""


def test_bodies_and_functions_count_and_constants_do_not() -> None:
    counts = count(load(parser.parse_model(MODEL)).graph)
    assert counts.operators == Counter({"Add": 1, "own.twice": 1, "If": 1, "Mul": 2, "Neg": 1})
    assert counts.nodes == 6


def test_a_shared_weight_counts_once() -> None:
    shared = parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[4] x) => (float[4] y) <float[4] w = {1, 2, 3, 4}> { a = Add (x, w)  y = Mul (a, w) }
    """)
    counts = count(load(shared).graph)
    assert (counts.constants, counts.bytes) == (1, 16)
