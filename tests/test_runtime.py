"""Sessions of ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, parser

from surgeon_passes import runtime
from surgeon_passes.runtime import RuntimeFailure, Session, external_stub

LARGE = np.arange(4096, dtype=np.float32)


@pytest.fixture
def model() -> ModelProto:
    made = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[4096] x) => (float[4096] y) { y = Add (x, w) }'
    )
    made.graph.initializer.append(external_stub("w", LARGE.shape, 1))
    return made


def test_reads_external_arrays_in_place(model: ModelProto) -> None:
    got = Session(model, external={"w": LARGE}).run({"x": LARGE})
    np.testing.assert_array_equal(got["y"], 2 * LARGE)


@pytest.mark.parametrize("level", ["off", "all"])
def test_external_arrays_that_nothing_reads_do_no_harm(model: ModelProto, level: str) -> None:
    model.graph.initializer.append(external_stub("unused", LARGE.shape, 1))
    got = Session(model, level=level, external={"w": LARGE, "unused": LARGE}).run({"x": LARGE})
    np.testing.assert_array_equal(got["y"], 2 * LARGE)


def test_external_arrays_that_only_a_body_reads() -> None:
    model = parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (bool c) => (float[4096] y) {
            y = If (c) <
                then_branch = t () => (float[4096] a) { a = Identity (w) },
                else_branch = e () => (float[4096] b) { b = Neg (w) }
            >
        }
    """)
    model.graph.initializer.append(external_stub("w", LARGE.shape, 1))
    np.testing.assert_array_equal(Session(model, external={"w": LARGE}).run({"c": np.asarray(False)})["y"], -LARGE)


# --- large weights are fed -----------------------------------------------------------------------------------------------


@pytest.fixture
def fed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "_FED_BYTES", 0)


def test_large_weights_are_fed_and_are_no_inputs(model: ModelProto, fed: None) -> None:
    model.graph.initializer.append(external_stub("unused", LARGE.shape, 1))
    session = Session(model, external={"w": LARGE, "unused": LARGE})
    assert session._fed["w"] is LARGE and list(session._fed) == ["w"]
    assert list(session.inputs) == ["x"]
    np.testing.assert_array_equal(session.run({"x": LARGE})["y"], 2 * LARGE)


def test_weights_that_callers_see_are_not_fed(model: ModelProto, fed: None) -> None:
    model.graph.output.add(name="w")
    session = Session(model, external={"w": LARGE})
    assert not session._fed
    np.testing.assert_array_equal(session.run({"x": LARGE})["w"], LARGE)


def test_bodies_read_fed_weights(fed: None) -> None:
    model = parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (bool c) => (float[4096] y) {
            y = If (c) <
                then_branch = t () => (float[4096] a) { a = Neg (w) },
                else_branch = f () => (float[4096] b) { b = Identity (w) }
            >
        }
    """)
    model.graph.initializer.append(external_stub("w", LARGE.shape, 1))
    session = Session(model, external={"w": LARGE})
    assert list(session._fed) == ["w"]
    np.testing.assert_array_equal(session.run({"c": np.array(True)})["y"], -LARGE)


def test_weights_at_odd_addresses_are_copied(model: ModelProto, fed: None) -> None:
    odd = np.frombuffer(b"." + LARGE.tobytes(), np.uint8)[1:].view(np.float32)
    session = Session(model, external={"w": odd})
    assert not odd.flags.aligned and session._fed["w"].flags.aligned
    np.testing.assert_array_equal(session.run({"x": LARGE})["y"], 2 * LARGE)


def test_where_feeding_fails_weights_are_constants(
    model: ModelProto, fed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the session is made, and when it is run."""
    monkeypatch.setattr(runtime, "_with_fed_weights", lambda *_: (ModelProto(), {"w": LARGE}))
    np.testing.assert_array_equal(Session(model, external={"w": LARGE}).run({"x": LARGE})["y"], 2 * LARGE)
    monkeypatch.undo()
    monkeypatch.setattr(runtime, "_FED_BYTES", 0)
    session = Session(model, external={"w": LARGE})
    session._fed["w"] = LARGE[:5]
    np.testing.assert_array_equal(session.run({"x": LARGE})["y"], 2 * LARGE)
    with pytest.raises(RuntimeFailure):
        session.run({"x": LARGE[:7]})


@pytest.mark.parametrize("level", ["basic", "all"])
def test_optimised_sessions_are_not_fed(model: ModelProto, fed: None, level: str) -> None:
    session = Session(model, external={"w": LARGE}, level=level)
    assert not session._fed
    np.testing.assert_array_equal(session.run({"x": LARGE})["y"], 2 * LARGE)
