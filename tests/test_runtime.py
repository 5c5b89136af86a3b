"""Sessions of ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, parser

from surgeon_passes.runtime import Session, external_stub

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
