from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from surgeon_passes.region import Exactness
from surgeon_passes.verify import Activations, check

from .regions import FLOAT, graph_of, region, typed
from .test_endcheck import model

MODEL = model(
    "h = Relu(x)\nt = Add(n, k)\ny = Reshape(h, t)",
    "(float[2, 6] x, int64[2] n) => (float[a, b] y)", k=np.array([0, 0]),
)  # fmt: skip
FEEDS = [{"x": np.arange(12, dtype=np.float32).reshape(2, 6), "n": np.array([3, 4])}]
TYPES = typed(h=(FLOAT, [2, 6]), t=(TensorProto.INT64, [2]))


def test_values_of_inner_tensors_inputs_and_outputs() -> None:
    real = Activations(MODEL, FEEDS)
    (found,) = real.of(["t", "x", "y", "unknown"])
    assert found["t"].tolist() == [3, 4] and found["y"].shape == (3, 4) and "unknown" not in found
    assert real.has_data and real.failure == ""


def reshape(good: bool) -> object:
    after = "y2 = Reshape(h, t)" if good else "g = Neg(h)\ny2 = Reshape(g, t)"
    return region("a = Identity(h)\ny = Reshape(a, t)", after, exactness=Exactness.EXACT)


def test_illegal_integers_are_taken_from_the_original() -> None:
    regions = [reshape(True), reshape(False)]
    assert [v.status for v in check(regions, TYPES, graph_of())] == ["unverified"] * 2  # type: ignore[arg-type]
    found = check(regions, TYPES, graph_of(), activations=Activations(MODEL, FEEDS))  # type: ignore[arg-type]
    assert [v.status for v in found] == ["verified", "refuted"]


def test_where_the_original_does_not_run_the_region_is_unverified() -> None:
    stuck = model(
        "t = Add(n, k)\ny = Reshape(x, t)", "(float[2, 6] x, int64[2] n) => (float[a, b] y)", k=np.array([7, 7])
    )
    (found,) = check([reshape(True)], TYPES, graph_of(), activations=Activations(stuck))  # type: ignore[list-item]
    assert found.status == "unverified"
    assert "the original does not run" in found.reason and found.reason.endswith("give --data")


def test_given_data_reaches_every_boundary() -> None:
    """Equal for all made-up inputs, different at 1e30: only real data shows it."""
    one = region("y = Relu(h)", "y2 = Clip(h, lo, hi)", constants={"lo": np.float32(0), "hi": np.float32(1e6)})
    assert check([one], TYPES, graph_of())[0].status == "verified"
    feeds = [{**FEEDS[0], "x": FEEDS[0]["x"] * np.float32(1e20)}]
    found = check([one], TYPES, graph_of(), activations=Activations(MODEL, feeds))[0]
    assert found.status == "refuted" and found.reason.startswith("data inputs")


def test_one_run_serves_all_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    from surgeon_passes.verify import activations as module

    opened: list[int] = []
    real = module.open_model
    monkeypatch.setattr(module, "open_model", lambda *a, **k: (opened.append(1), real(*a, **k))[1])
    types = typed(**{n: (FLOAT, [2, 6]) for n in ("h",)}, t=(TensorProto.INT64, [2]))
    regions = [
        region(f"a = {op}(h)\ny = Reshape(a, t)", f"a2 = {op}(h)\ny2 = Reshape(a2, t)")
        for op in ("Relu", "Neg", "Abs", "Exp")
    ]
    found = check(regions, types, graph_of(), activations=Activations(MODEL, FEEDS))
    assert {v.status for v in found} == {"verified"}
    assert len(opened) <= 2


@pytest.mark.parametrize(("before", "status"), [("Trilu<upper: int = 0>(h)", "verified"), ("Neg(h)", "refuted")])
def test_where_loses_the_sign_of_a_zero_in_onnx_runtime(before: str, status: str) -> None:
    """What is exact by the specification is not refuted for that; a sign that anything else loses counts."""
    whole = model("h = Neg(x)\ny = Relu(h)", "(float[4, 4] x) => (float[4, 4] y)")
    real = Activations(whole, [{"x": np.zeros((4, 4), np.float32)}])
    after = "y2 = Where(mask, h, zero)" if status == "verified" else "n = Neg(h)\ny2 = Abs(n)"
    held = {"mask": np.tril(np.ones((4, 4), bool)), "zero": np.array(0, np.float32)}
    constants = held if status == "verified" else {}
    one = region(f"y = {before}", after, constants=constants, exactness=Exactness.EXACT)
    (found,) = check([one], typed(h=(FLOAT, [4, 4])), graph_of(), activations=real)  # type: ignore[arg-type]
    assert found.status == status, found
