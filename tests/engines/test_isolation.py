"""Sessions in a process of their own."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, parser

from surgeon_passes import runtime
from surgeon_passes.engines import Isolate, isolated, isolation
from surgeon_passes.engines.isolation import Isolation
from surgeon_passes.errors import UsageError
from surgeon_passes.runtime import RuntimeFailure, Session, external_stub
from tests.engines.hostile import boundless, crashing, endless

IMAGE = np.zeros((1, 2, 4, 4), np.float32)
LARGE = np.arange(4096, dtype=np.float32)


@pytest.fixture
def apart() -> Iterator[Isolation]:
    with isolated(Isolate(timeout=60)):
        found = isolation.current()
        assert found is not None
        yield found


def text(body: str) -> ModelProto:
    return parser.parse_model(f'<ir_version: 9, opset_import: ["" : 19]> {body}')


def test_a_crash_is_a_failure_and_other_sessions_live_on(apart: Isolation) -> None:
    good, bad = Session(text("g (float[4] x) => (float[4] y) { y = Neg (x) }")), Session(crashing())
    x = np.float32([1, 2, 3, 4])
    for crashes in (1, 2):
        with pytest.raises(RuntimeFailure, match=r"^ONNX Runtime crashed \(SIG[A-Z]+\)$") as failed:
            bad.run({"x": IMAGE})
        assert failed.value.code == "CRASHED" and failed.value.is_fatal
        np.testing.assert_array_equal(good.run({"x": x})["y"], -x)
        assert apart.generation == crashes + 1


def test_a_run_that_does_not_end_is_ended() -> None:
    with isolated(Isolate(timeout=2)):
        session = Session(endless())
        with pytest.raises(RuntimeFailure, match=r"^ONNX Runtime timed out after 2 s$") as failed:
            session.run({"x": LARGE[:4]})
        assert failed.value.code == "TIMED_OUT" and failed.value.is_fatal


def test_what_asks_for_too_much_memory_is_refused() -> None:
    ten_gigabytes = boundless(10 << 28)
    with isolated(Isolate(memory="1GiB")):
        held = isolation.current()
        session = Session(ten_gigabytes)
        with pytest.raises(RuntimeFailure) as failed:
            session.run({"more": np.int64([1])})
        assert not failed.value.is_fatal, failed.value
        assert session.run({"more": np.int64([1 - (10 << 28)])})["y"] == 0
        assert held is not None and held.generation == 1


def test_after_many_crashes_it_is_not_asked_again(apart: Isolation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "MAX_LOST", 1)
    bad = Session(crashing())
    for says in ("ONNX Runtime crashed (SIG", "crashed or timed out 1 times: it is not asked again"):
        with pytest.raises(RuntimeFailure) as failed:
            bad.run({"x": IMAGE})
        assert says in str(failed.value) and failed.value.is_fatal


def test_a_refusal_says_what_it_says_in_this_process() -> None:
    model = text("g (float[N] x) => (float[N] y) { y = Reshape (x, t) }")
    model.graph.initializer.append(helper.make_tensor("t", TensorProto.INT64, [1], [3]))
    said = []
    for apart in (False, True):
        with isolated(apart), pytest.raises(RuntimeFailure) as failed:
            Session(model).run({"x": LARGE[:4]})
        said.append((str(failed.value), failed.value.code))
    assert said[0] == said[1] and "reshape" in said[0][0].lower()


def test_external_and_fed_weights_arrive(apart: Isolation, monkeypatch: pytest.MonkeyPatch) -> None:
    model = text("g (float[4096] x) => (float[4096] y) { y = Add (x, w) }")
    model.graph.initializer.append(external_stub("w", LARGE.shape, TensorProto.FLOAT))
    for fed in (1 << 30, 0):
        monkeypatch.setattr(runtime, "_FED_BYTES", fed)
        session = Session(model, external={"w": LARGE})
        assert bool(session._fed) == (fed == 0) and list(session.inputs) == ["x"]
        np.testing.assert_array_equal(session.run({"x": LARGE})["y"], 2 * LARGE)


def test_weights_of_types_that_numpy_lacks_arrive(apart: Isolation) -> None:
    model = text("g () => (float[3] y) { y = Cast <to = 1> (w) }")
    model.graph.initializer.append(external_stub("w", [3], TensorProto.BFLOAT16))
    got = Session(model, external={"w": np.array([1, -2, 0.5], ml_dtypes.bfloat16)}).run({})
    np.testing.assert_array_equal(got["y"], np.float32([1, -2, 0.5]))


def test_sequences_and_text_come_and_go(apart: Isolation) -> None:
    model = text(
        "g (string[2] t, float[2] x) => (string[2] u, seq(float[2]) s) { u = Identity (t) s = SequenceConstruct (x, x) }"
    )
    got = Session(model).run({"t": np.array(["α", ""], dtype=object), "x": LARGE[:2]})
    assert got["u"].tolist() == ["α", ""]
    assert [v.tolist() for v in got["s"]] == [[0, 1], [0, 1]]


def test_sessions_end_with_the_block() -> None:
    with isolated(True):
        session = Session(text("g (float[4] x) => (float[4] y) { y = Neg (x) }"))
        child = session._engine._isolation._child  # type: ignore[attr-defined]
        assert child._process.poll() is None
    assert child._process.poll() is not None
    assert isolation.current() is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (Isolate(timeout=0), "a timeout of 0 seconds leaves no time"),
        (Isolate(memory="lots"), "the limit of memory is 'lots', not a number of bytes such as 4096, 64KiB or 1MiB"),
    ],
)
def test_options_that_are_wrong(options: Isolate, says: str) -> None:
    with pytest.raises(UsageError) as error, isolated(options):
        pass
    assert str(error.value) == says
