"""Counting what is dynamic in a file."""

from __future__ import annotations

from collections import Counter

from surgeon_passes.report.dynamic import count_file
from tests.models import model

TEXT = """g (float[N,4] x, float[2,4] z, int64[2] n) => (float[P,Q] y, float[2,4] w)
<int64[2] two = {4, 2}, float[N,4] a, float[2,4] b>
{
    a = Abs (x)
    b = Abs (z)
    k = Constant <value_ints = [2, 4]> ()
    r = Reshape (b, two)
    q = Reshape (r, k)
    s = Shape (x)
    e = Reshape (x, s)
    y = Expand (e, n)
    c = Constant <value = bool {1}> ()
    w = If (c) <
        then_branch = t () => (float[2,4] p) { i = Size (x)  j = Reshape (z, two)  p = Reshape (j, k) },
        else_branch = f () => (float[2,4] u) { u = Reshape (z, n) }
    >
}"""


def test_counts_bodies_and_tells_constants_from_computed_sizes() -> None:
    counts = count_file(model(TEXT))
    assert counts.inputs == 1
    assert counts.outputs == 1
    assert (counts.value_info, counts.stated) == (1, 2)
    assert counts.shape_nodes == 2
    assert counts.computed == Counter({"Reshape": 2, "Expand": 1})
    assert counts.initializers == 1


def test_an_initializer_that_callers_may_override_is_computed_and_no_input() -> None:
    text = "g (float[4] x, int64[1] s = {4}) => (float[4] y) { y = Reshape (x, s) }"
    assert count_file(model(text)).computed == Counter({"Reshape": 1})
    assert count_file(model(text)).inputs == 0
    assert count_file(model(text, ir=3)).computed == Counter()


def test_a_scalar_is_static_and_an_unknown_rank_is_not() -> None:
    proto = model("g (float x) => (float y) { y = Relu (x) }")
    assert count_file(proto).inputs == 0
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    assert count_file(proto).inputs == 1
