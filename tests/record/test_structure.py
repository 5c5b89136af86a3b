"""Keys by structure: what they tell apart, and what they do not."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest

import surgeon_passes as sp
from surgeon_passes.pipeline import load
from surgeon_passes.record.places import Place, Places
from surgeon_passes.record.structure import structure_of
from surgeon_passes.region import TensorType
from surgeon_passes.traces import NodeTrace, TensorTrace, Trace

from ..models import floats, model
from .renamed import renamed

optimize = partial(sp.optimize, record=True)

TEXT = """
    g (float[1,4,8,8] x) => (float[1,6,H,W] y) {
        c = Conv<STRIDES>(x, w)
        y = BatchNormalization(c, s, s, s, v)
    }
"""


def structure(text: str = TEXT, strides: str = "strides = [1, 1]", kernel: int = 3, **options: Any) -> str:
    constants = {"w": floats(6, 4, kernel, kernel), "s": floats(6, seed=1), "v": np.ones(6, np.float32), **options}
    record = optimize(model(text.replace("STRIDES", strides), **constants)).record()
    (match,) = [m for m in record["matches"] if m["rule"] == "fold_batch_norm_into_conv"]
    return str(match["region"]["structure"])


def test_values_names_and_sizes_do_not_count() -> None:
    plain = structure()
    assert structure(w=floats(6, 4, 3, 3, seed=9)) == plain
    assert structure(TEXT.replace("c = ", "other = ").replace("(c,", "(other,")) == plain
    assert structure(TEXT.replace("[1,4,8,8]", "[2,4,9,12]").replace("[1,6,H,W]", "[2,6,H,W]")) == plain


def test_an_attribute_that_is_left_out_is_its_default() -> None:
    assert structure(strides="dilations = [1, 1]") == structure(strides="kernel_shape = [3, 3]") == structure()


@pytest.mark.parametrize(
    "changed",
    [
        {"strides": "strides = [2, 2]"},
        {"strides": "pads = [1, 1, 1, 1]"},
        {"kernel": 1},
        {"text": TEXT.replace("Normalization(", "Normalization<epsilon = 0.5>(")},
    ],
)
def test_attributes_and_shapes_of_weights_count(changed: dict[str, Any]) -> None:
    assert structure(**changed) != structure()


def test_operands_of_commutative_operators_may_change_places() -> None:
    text = """
        g (float[1,4,8,8] x) => (float[1,4,8,8] y) {
            c = Conv(x, w)
            d = BatchNormalization(x, s, s, s, s)
            y = Add(ORDER)
        }
    """
    keys = set()
    for order in ("c, d", "d, c"):
        made = model(text.replace("ORDER", order), w=floats(4, 4, 1, 1), s=np.ones(4, np.float32))
        (match,) = optimize(made).record()["matches"]
        keys.add(match["region"]["structure"])
    assert len(keys) == 1


def test_a_sum_of_thousands_of_nodes_has_a_key_whatever_their_order() -> None:
    number = 3000
    found = TensorType(1, (2,))
    tensors = [TensorTrace(f"t{k}", found, False, k) for k in range(number + 1)]
    nodes = [NodeTrace(f"n{k}", "Add", "", 17, {}, (tensors[k], tensors[0]), (tensors[k + 1],)) for k in range(number)]
    key = structure_of("r", Trace(tuple(nodes)))
    assert key == structure_of("r", Trace(tuple(reversed(nodes))))
    assert key != structure_of("r", Trace(tuple(nodes[1:])))
    assert key != structure_of("s", Trace(tuple(nodes)))


# --- places ------------------------------------------------------------------------------------------------------------

CHAIN = """
    g (float[N,4] x) => (float[N,4] y) {
        [a] a = Relu(x)
        [b] b = Relu(a)
        [c] c = MIDDLE
        [d] d = Relu(c)
        [e] y = Relu(d)
    }
"""


def places(proto: onnx.ModelProto) -> dict[str, Place]:
    found = Places(load(proto))
    return {label: place for (_, label), place in found._found.items()}


def test_equal_nodes_have_places_of_their_own() -> None:
    found = places(model(CHAIN.replace("MIDDLE", "Sigmoid(b)")))
    assert len({(p.above, p.below) for p in found.values()}) == len(found) == 5
    assert [found[f"Relu '{n}'"].depth for n in "abde"] == [0.2, 0.4, 0.8, 1.0]


def test_a_change_in_the_middle_leaves_what_is_above_and_what_is_below() -> None:
    old, new = (places(model(CHAIN.replace("MIDDLE", middle))) for middle in ("Sigmoid(b)", "Tanh(b)"))
    for name in "ab":
        assert old[f"Relu '{name}'"].above == new[f"Relu '{name}'"].above
        assert old[f"Relu '{name}'"].below != new[f"Relu '{name}'"].below
    for name in "de":
        assert old[f"Relu '{name}'"].above != new[f"Relu '{name}'"].above
        assert old[f"Relu '{name}'"].below == new[f"Relu '{name}'"].below


def test_names_change_no_place() -> None:
    made = model(CHAIN.replace("MIDDLE", "Sigmoid(b)"))
    assert sorted(map(repr, places(made).values())) == sorted(map(repr, places(renamed(made)).values()))
