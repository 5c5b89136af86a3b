"""What each rule makes of a graph, and what it declines."""

import pytest
from acme_rules import fold_channel_scale, fuse_acme_swish, merge_scaled_branches

from surgeon_passes.testing import assert_declined, assert_rule


def test_swish():
    before = "g (float[N,4] x) => (float[N,4] y) { s = Sigmoid(x) y = Mul(s, x) }"
    assert_rule(fuse_acme_swish, before, "g (float[N,4] x) => (float[N,4] y) { y = acme.Swish(x) }")
    assert_declined(fuse_acme_swish, before.replace("float[", "double["), "'x' is not float32")


def test_scaled_branches():
    k = "<float two = {2}, float three = {3}>"
    head = "g (float[N,4] x) => (float[N,4] y)"
    before = f"{head} {k} {{ a = Mul(x, two) b = Mul(three, x) c = Add(a, x) y = Add(b, c) }}"
    assert_rule(merge_scaled_branches, before, f"{head} <float six = {{6}}> {{ y = Mul(x, six) }}")


def test_other_operands_of_the_sum_stay():
    head = "g (float[N,4] x, float[N,4] z) => (float[N,4] y)"
    before = f"{head} <float two = {{2}}> {{ a = Mul(x, two) r = Relu(z) c = Add(a, r) y = Add(c, x) }}"
    after = f"{head} <float three = {{3}}> {{ r = Relu(z) m = Mul(x, three) y = Add(m, r) }}"
    assert_rule(merge_scaled_branches, before, after)


def test_scaled_branches_of_integers():
    head = "g (int64[N,4] x) => (int64[N,4] y)"
    before = f"{head} <int64 k = {{3}}> {{ a = Mul(x, k) y = Add(a, x) }}"
    assert_rule(merge_scaled_branches, before, f"{head} <int64 k = {{4}}> {{ y = Mul(x, k) }}")


def test_scales_that_are_no_numbers_are_declined():
    before = "g (float[N,2] x) => (float[N,2] y) <float[2] k = {2, 3}> { a = Mul(x, k) y = Add(a, x) }"
    assert_declined(merge_scaled_branches, before, "'k' is not one number")
    before = "g (float[N,2] x, float[N,2] z) => (float[N,2] y) <float k = {2}> { a = Mul(x, k) y = Add(a, z) }"
    assert_declined(merge_scaled_branches, before, "no two operands of the sum are branches of one tensor")


CONV = """g (float[N,1,H,W] x) => (float[N,2,H,W] y)
    <float[2,1,1,1] w = {{1, 2}}, float[2] b = {{3, 4}}, float[{shape}] s = {{2, 3}}>
    {{ c = Conv(x, w{bias}) y = Mul(c, s) }}"""


@pytest.mark.parametrize("shape", ["2,1,1", "1,2,1,1"])
def test_channel_scale(shape):
    after = """g (float[N,1,H,W] x) => (float[N,2,H,W] y) <float[2,1,1,1] w = {2, 6}, float[2] b = {6, 12}>
        { y = Conv(x, w, b) }"""
    assert_rule(fold_channel_scale, CONV.format(shape=shape, bias=", b"), after)
    assert_rule(fold_channel_scale, CONV.format(shape=shape, bias=""), after.replace("w, b)", "w)"))


def test_another_scale_is_declined():
    before = CONV.format(shape="1,1,2", bias=", b").replace("H,W", "H,2")
    assert_declined(fold_channel_scale, before, "is not one number a channel")
