"""Original and result in turn: batches, threads, and a result that is slower."""

from __future__ import annotations

import pytest

import surgeon_passes as sp
from surgeon_passes import demo
from surgeon_passes.timing.interleaved import Ratio
from surgeon_passes.timing.latency import Latency, Times
from tests.cli.conftest import Call, assert_refused
from tests.cli.conftest import call as call  # noqa: PLC0414


def test_one_measurement_for_each_batch() -> None:
    result = sp.optimize(demo.build(), verify="off")
    latency = result.measure_latency(batches=(1, 4), threads=2)
    shapes = [one.shapes for one in latency.all]
    assert shapes == [{"images": (1, 3, demo.SIZE, demo.SIZE)}, {"images": (4, 3, demo.SIZE, demo.SIZE)}]
    assert [(one.batch, one.threads) for one in latency.all] == [(1, 2), (4, 2)]
    for one in latency.all:
        assert one.sides is not None and one.ratio is not None
        assert all(side.p99 >= side.median > 0 and side.spread >= 0 for side in one.sides)
        assert one.ratio.low <= one.ratio.median <= one.ratio.high
    assert "latency, batch 4 " in result.report() and latency.details.endswith(" rounds, 2 threads")


def test_times_of_samples() -> None:
    found = Times.of([[0.001, 0.002, 0.003], [0.004, 0.005]])
    assert (found.median, found.spread) == (pytest.approx(3), pytest.approx(2))
    assert found.p99 == pytest.approx(4.96)


@pytest.mark.parametrize(("low", "slower"), [(1.03, True), (1.01, False)])
def test_a_result_that_is_slower_is_told_plainly(low: float, slower: bool) -> None:
    result = sp.optimize(demo.build(), verify="off")
    side = Times(1.0, 1.2, 0.1)
    result.latency = Latency(1.0, 1.1, 9, {"x": (1,)}, sides=(side, side), ratio=Ratio(1.1, low, 1.2))
    assert result.latency.is_slower is slower
    assert ("THE RESULT IS SLOWER" in result.report()) is slower


def test_a_batch_wants_an_open_dim(call: Call) -> None:
    assert_refused(
        call, 2, "optimize", "-i", "images=1,3,64,64", "--batch", "2", says="no input of the result has an open"
    )
    outcome = call("optimize", "--batch", "2", "--threads", "1")
    assert outcome.code == 0 and "latency, batch 2 " in outcome.out and "images=2,3,64,64" in outcome.out
