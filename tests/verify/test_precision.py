"""Half and double precision, and types that ONNX Runtime or numpy has in part."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from surgeon_passes.region import Exactness, Region

from .regions import (
    Known,
    conv_bn,
    flip_border_tap,
    flip_weak_channel,
    region,
    shift_kernel,
    typed,
    verdict,
)


def test_an_unknown_element_type_is_unverified() -> None:
    found = verdict(region("y = Relu(x)", "y2 = Relu(x)"), Known({}))
    assert (found.status, found.reason) == ("unverified", "the element type of 'x' is unknown")


@pytest.mark.parametrize("dtype", [TensorProto.STRING, TensorProto.BOOL, TensorProto.UINT8, TensorProto.BFLOAT16])
def test_other_element_types(dtype: int) -> None:
    one = region("a = Identity(x)\ny = Identity(a)", "", [("y", "x")], exactness=Exactness.EXACT)
    assert verdict(one, typed(x=(dtype, [4, 3]), y=(dtype, [4, 3]))).status == "verified"
    wrong = region("y = Concat<axis: int = 0>(x, z)", "y2 = Concat<axis: int = 0>(z, x)", exactness=Exactness.EXACT)
    if dtype != TensorProto.BFLOAT16:
        assert verdict(wrong, typed(x=(dtype, [4, 3]), z=(dtype, [4, 3]))).status == "refuted"


def test_half_precision_folds() -> None:
    types = typed(x=(TensorProto.FLOAT16, [1, 8, 20, 20]))
    assert verdict(conv_bn(dtype=np.float16), types).status == "verified"
    assert verdict(conv_bn(flip_weak_channel, dtype=np.float16), types).status == "refuted"
    assert verdict(conv_bn(shift_kernel, dtype=np.float16), types).status == "refuted"


def test_half_precision_without_new_constants_is_held_to_the_float_bound() -> None:
    types = typed(x=(TensorProto.FLOAT16, [1, 8, 20, 20]))
    k = {"k": np.float16([1.0005])}
    assert verdict(region("y = Mul(x, k)", "y2 = Mul(k, x)", constants=k), types).status == "verified"
    assert verdict(region("y = Identity(x)", "y2 = Mul(k, x)", constants=k), types).status == "verified"
    near = region("a = Mul(x, k)\ny = Div(a, k)", "y2 = Mul(x, k)", constants={"k": np.float16([1.001])})
    assert verdict(near, types).status == "refuted"


@pytest.mark.parametrize("cast", ["Cast<to: int = 10>(f)", "CastLike(f, x)"])
def test_a_cast_to_half_precision_rounds(cast: str) -> None:
    """ONNX Runtime computes the product in float32, and by itself would go on with f as it was before the Cast."""
    types = typed(x=(TensorProto.FLOAT16, [64]), f=(1, []), h=(10, []), y=(10, [64]), y2=(10, [64]))
    f = np.float32(0.59460354)
    before = f"h = {cast}\ny = Mul(x, h)"

    def of(value: np.ndarray) -> Region:
        constants = {"f": f, "k": value}
        return region(before, "y2 = Mul(x, k)", constants=constants, exactness=Exactness.EXACT)

    found = verdict(of(np.float16(f)), types)
    assert found.status == "verified", found
    assert verdict(of(np.nextafter(np.float16(f), np.float16(1))), types).status == "refuted"


@pytest.mark.parametrize(("root", "status"), [(2**0.5, "verified"), (1.5, "refuted")])
def test_a_half_constant_that_goes_was_rounded(root: float, status: str) -> None:
    """float16 has the root of 2 to 1e-4; what is written out with it differs from Gelu by as much."""
    k = {"root": np.float16(root), "one": np.float16(1), "half": np.float16(0.5)}
    text = "d = Div(x, root)\ne = Erf(d)\ns = Add(e, one)\nh = Mul(s, half)\ny = Mul(x, h)"
    types = typed(x=(TensorProto.FLOAT16, [2, 4, 6, 6]))
    assert verdict(region(text, "y2 = Gelu(x)", constants=k, opset=20), types).status == status
    bits = {name: int(value.view(np.uint16)) for name, value in k.items()}  # in a function constants stay nodes
    nodes = "\n".join(f"{name} = Constant<value: tensor = float16 {{{held}}}>()" for name, held in bits.items())
    assert verdict(region(f"{nodes}\n{text}", "y2 = Gelu(x)", opset=20), types).status == status


def test_double_convolutions_are_computed_by_the_reference() -> None:
    types = typed(x=(TensorProto.DOUBLE, [1, 8, 6, 6]))
    found = verdict(conv_bn(dtype=np.float64), types)
    assert found.status == "verified" and found.error is not None and found.error < 1e-12
    assert "onnx.reference" in found.reason
    assert verdict(conv_bn(flip_border_tap, dtype=np.float64), types).status == "refuted"
