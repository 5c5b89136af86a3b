"""Many regions at once: what they share, and what is each one's own."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import pytest

from surgeon_passes.region import Exactness, Region
from surgeon_passes.values.symbols import Poly
from surgeon_passes.verify import batches
from surgeon_passes.verify.batches import check

from .regions import (
    FLOAT,
    IMAGE,
    conv_bn,
    drop_mean_of_one,
    flip_border_tap,
    flip_weak_channel,
    graph_of,
    region,
    typed,
)


def test_one_bad_region_costs_no_other_its_verdict() -> None:
    unknown = region("y = Foo(x)", "y2 = Identity(x)", domains={"my.ops": 1})
    unloadable = region("y = Relu(x)", "y2 = Bar(x)")
    regions = [conv_bn(seed=s) for s in range(5)]
    regions[2:2] = [unknown, unloadable, region("y = Relu(x)", "y2 = Abs(x)")]
    found = check(regions, IMAGE, graph_of())
    expected = ["verified"] * 2 + ["unverified", "refuted", "refuted"] + ["verified"] * 3
    assert [v.status for v in found] == expected
    assert "Foo" in found[2].reason
    assert "does not load" in found[3].reason and "Bar" in found[3].reason


def test_a_run_that_fails_is_charged_to_its_region() -> None:
    shape = np.array([3, 5], np.int64)
    bad = region("y = Relu(x)", "y2 = Reshape(x, s)", constants={"s": shape})
    good = region("y = Relu(x)", "y2 = Max(x, z)", constants={"z": np.zeros(1, np.float32)}, exactness=Exactness.EXACT)
    both_fail = region("y = Reshape(x, s)", "y2 = Reshape(x, s)", constants={"s": shape})
    found = check([good, bad, both_fail, good], typed(x=(FLOAT, [2, 4])), graph_of())
    assert [v.status for v in found] == ["verified", "refuted", "unverified", "verified"]
    assert "give --data" in found[2].reason
    assert "'x'" in found[2].reason or "Reshape" in found[2].reason
    assert "r1~" not in found[2].reason


def test_equal_regions_share_one_check(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    real = batches._Checker.trials

    def count(self: batches._Checker, sides: batches.Sides, structure: Hashable) -> list[batches.Trial]:
        counted.append(1)
        return real(self, sides, structure)

    monkeypatch.setattr(batches._Checker, "trials", count)
    same = [region("y = Identity(x)", "", [("y", "x")], exactness=Exactness.EXACT) for _ in range(100)]
    other = region("y = Neg(x)", "", [("y", "x")], exactness=Exactness.EXACT)
    found = check([*same, other, conv_bn(), conv_bn(), conv_bn(flip_border_tap)], IMAGE, graph_of())
    assert [v.status for v in found] == ["verified"] * 100 + ["refuted", "verified", "verified", "refuted"]
    assert len(counted) == 4


def test_equal_regions_share_a_verdict_and_not_the_names_of_its_tensors() -> None:
    found = check([region(f"{y} = Abs(x)", "", [(y, "x")], exactness=Exactness.EXACT) for y in "pq"], IMAGE, graph_of())
    assert [(v.status, v.tensor) for v in found] == [("refuted", "p"), ("refuted", "q")]


def test_opsets_do_not_mix() -> None:
    old = region("y = Clip<min: float = 0.0>(x)", "y2 = Relu(x)", opset=10)
    new = region("y = Clip(x, z)", "y2 = Relu(x)", constants={"z": np.float32(0)}, opset=17)
    assert [v.status for v in check([old, new, old], IMAGE, graph_of())] == ["verified"] * 3


def test_verdicts_are_deterministic_and_do_not_depend_on_the_batch() -> None:
    regions = [conv_bn(seed=s) for s in range(12)] + [conv_bn(drop_mean_of_one, seed=s) for s in range(3)]
    whole = check(regions, IMAGE, graph_of())
    assert check(regions, IMAGE, graph_of(), batch=1) == whole
    assert check(list(reversed(regions)), IMAGE, graph_of(), batch=4) == whole[::-1]


def test_of_many_equal_regions_the_one_that_is_wrong_is_refuted() -> None:
    regions = [conv_bn(flip_weak_channel if seed == 17 else None, seed=seed) for seed in range(40)]
    found = check(regions, IMAGE, graph_of())
    assert [n for n, v in enumerate(found) if v.status != "verified"] == [17]
    alone = [check([one], IMAGE, graph_of())[0] for one in (regions[3], regions[17])]
    assert [found[3], found[17]] == alone


def test_regions_of_one_structure_share_their_sizes_whatever_their_weights_are(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    real = batches.candidates
    monkeypatch.setattr(batches, "candidates", lambda *given: [made.append(1), real(*given)][1])
    regions = [conv_bn(seed=0), conv_bn(seed=1), conv_bn(seed=2, group=2)]
    assert [v.status for v in check(regions, IMAGE, graph_of())] == ["verified"] * 3
    assert len(made) == 2


def test_a_dim_whose_name_reads_like_a_size_is_no_size() -> None:
    def reshaped(name: str, before: list[int]) -> Region:
        sizes = {"b": np.array(before, np.int64), "t": np.array([2, 4], np.int64)}
        texts = (f"y = Reshape({name}, b)", f"y2 = Reshape({name}, t)")
        return region(*texts, constants=sizes, exactness=Exactness.EXACT)

    types = typed(x=(FLOAT, [2, 4]), z=(FLOAT, [Poly.symbol("2"), 4]))
    found = check([reshaped("x", [2, -1]), reshaped("z", [-1, 4])], types, graph_of())
    assert [v.status for v in found] == ["verified", "refuted"]
    found = check([reshaped("x", [-1, 4]), reshaped("z", [-1, 4])], types, graph_of())
    assert [v.status for v in found] == ["verified", "refuted"]


def test_a_tensor_with_two_in_its_place_is_held_against_both() -> None:
    def twice(number: int) -> Region:
        factors = {"c": np.float32(2 + number), "d": np.float32(3 + number)}
        return region("y = Mul(x, c)", "a = Mul(x, d)\nb = Mul(x, c)", [("y", "a"), ("y", "b")], constants=factors)

    found = check([twice(n) for n in range(8)], typed(x=(FLOAT, [32, 8])), graph_of())
    assert [v.status for v in found] == ["refuted"] * 8
