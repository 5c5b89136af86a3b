from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, numpy_helper, parser

from surgeon_passes.verify import end_check, endcheck, generate_feeds
from surgeon_passes.verify.endcheck import output_gap


def model(body: str, interface: str = "(float[2, 4] x) => (float[2, 4] y)", **weights: np.ndarray) -> ModelProto:
    made = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {interface} {{ {body} }}')
    made.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in weights.items())
    return made


FEED = [{"x": np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)}]
RELU = "y = Relu(x)"


def test_equal_models() -> None:
    found = end_check(model(RELU), model("y = Max(x, z)", z=np.float32(0)), FEED)
    assert (found.status, found.error, found.noise) == ("equal", 0.0, None)


def test_a_difference_is_found_on_any_of_the_feeds() -> None:
    feeds = [{"x": np.abs(FEED[0]["x"])}, {"x": -np.abs(FEED[0]["x"])}]
    found = end_check(model(RELU), model("y = Abs(x)"), feeds)
    assert (found.status, found.output) == ("different", "y")
    small = end_check(model(RELU), model("a = Relu(x)\ny = Mul(a, k)", k=np.float32(1.001)), feeds)
    assert small.status == "different" and small.error == pytest.approx(1e-3, rel=0.01)
    assert small.noise is not None and small.noise < 1e-6


def test_files_and_protos_are_one(tmp_path: Path) -> None:
    weight = np.ones((4, 4), np.float32)
    made = model("y = MatMul(x, w)", w=weight)
    copy = ModelProto()
    copy.CopyFrom(made)
    onnx.save(copy, tmp_path / "a.onnx", save_as_external_data=True, location="a.data", size_threshold=0)
    assert end_check(tmp_path / "a.onnx", made, FEED).status == "equal"
    assert end_check(made, str(tmp_path / "a.onnx"), generate_feeds(tmp_path / "a.onnx")).status == "equal"


def test_noise_excuses_what_rounding_does_alone() -> None:
    """exp(30 x) amplifies one ulp of its input about 30 times per |x|: a result off by that much is no error."""
    amplify = "a = Mul(x, k)\nb = Sin(a)\ny = Identity(b)"
    k = np.float32(2e3)
    feeds = [{"x": np.float32([[1, 2, 3, 4], [5, 6, 7, 8]])}]
    same = model("a = Mul(x, k)\nc = Add(a, d)\nb = Sin(c)\ny = Identity(b)", k=k, d=np.float32(3e-4))
    found = end_check(model(amplify, k=k), same, feeds)
    assert found.status == "equal" and found.noise is not None and found.noise > 1e-4
    assert "rounding alone" in found.reason
    off = model("a = Mul(x, k)\nc = Add(a, d)\nb = Sin(c)\ny = Identity(b)", k=k, d=np.float32(0.1))
    assert end_check(model(amplify, k=k), off, feeds).status == "different"


def test_noise_beyond_ten_tolerances_is_inconclusive() -> None:
    feeds = [{"x": np.float32([[1, 2, 3, 4], [5, 6, 7, 8]])}]
    body = "a = Mul(x, k)\nc = Add(a, d)\nb = Sin(c)\ny = Identity(b)"
    k = np.float32(1e6)
    found = end_check(model(body, k=k, d=np.float32(0)), model(body, k=k, d=np.float32(0.5)), feeds)
    assert found.status == "inconclusive" and found.noise is not None and found.noise > 1e-3


def test_discrete_outputs_are_excused_only_where_noise_flips_the_same_elements() -> None:
    interface = "(float[2, 4] x) => (bool[2, 4] y)"
    edge = np.float32([[1.0, 2, 3, 4], [5, 6, 7, 8]])
    body = "a = Sub(x, k)\nb = Mul(a, a)\ny = Less(b, t)"
    at_edge = model(body, interface, k=edge, t=np.float32(1e-20))
    flipped = model("a = Sub(x, k)\nb = Mul(a, a)\nn = Less(b, t)\ny = Not(n)", interface, k=edge, t=np.float32(1e-20))
    assert end_check(at_edge, flipped, [{"x": edge}]).status == "equal"
    calm = model(body, interface, k=edge, t=np.float32(0.25))
    wrong = model(body, interface, k=edge + np.float32([[1, 0, 0, 0], [0, 0, 0, 0]]), t=np.float32(0.25))
    found = end_check(calm, wrong, [{"x": edge}])
    assert (found.status, found.reason) == ("different", "1 of 8 elements differ")


def test_models_that_do_not_run() -> None:
    broken = model("y = Reshape(x, s)", s=np.array([3, 3]))
    first = end_check(broken, model(RELU), FEED)
    assert first.status == "not run" and "Reshape" in first.reason
    second = end_check(model(RELU), broken, FEED)
    assert second.status == "different" and "the result does not run" in second.reason
    assert end_check(model(RELU), model(RELU), []).status == "not run"


def test_what_the_original_gives_may_be_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is run again only where the result seems to differ: a seeded draw depends on what was drawn before it."""
    opened: list[ModelProto] = []
    real = endcheck.open_model
    monkeypatch.setattr(endcheck, "open_model", lambda m, **k: (opened.append(m), real(m, **k))[1])
    seeded = model("r = RandomNormalLike<seed: float = 1.0>(x)\ny = Add(x, r)")
    runner = real(seeded)
    first, second = runner.run(FEED[0]), runner.run(FEED[0])
    assert end_check(seeded, seeded, FEED, expected=[first]).status == "equal" and len(opened) == 1
    assert end_check(seeded, seeded, FEED, expected=[second]).status == "equal" and len(opened) == 3


def test_random_models_are_inconclusive() -> None:
    made = model("r = RandomNormalLike(x)\ny = Add(x, r)")
    found = end_check(made, model("r = RandomNormalLike(x)\ny = Sub(x, r)"), FEED)
    assert found.status == "inconclusive" and "run again" in found.reason


def test_outputs_that_do_not_depend_on_inputs_are_compared() -> None:
    one = model("y = Identity(k)", k=np.ones((2, 4), np.float32))
    two = model("y = Identity(k)", k=np.full((2, 4), 2, np.float32))
    assert end_check(one, two, FEED).status == "different"
    assert end_check(one, one, FEED).status == "equal"


def test_gaps_of_single_outputs() -> None:
    nan = np.float32([np.nan, 1])
    assert output_gap(nan, nan.copy()).error == 0
    assert output_gap(nan, np.float32([1, 1])).reason.startswith("NaN or Inf differ in 1 of 2")
    assert output_gap(np.float32([4, 0]), np.float32([4, 1])).error == 0.25
    assert output_gap(np.float32([0]), np.float32([1])).error == np.inf
    assert output_gap(np.float32([0]), np.float32([2e-12])).error == np.inf
    assert output_gap(np.float32([0]), np.float32([4e-17])).error == 0  # log(1 + exp(-38)) is 0, softplus is not
    assert output_gap(np.float32([0]), np.float64([0])).reason == "float64[1] instead of float32[1]"
    assert output_gap([np.float32([1])], []).reason == "sequences of different lengths"
