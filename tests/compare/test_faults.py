"""A layer that is off by one per cent is named first, after fusions and with all names gone; nothing else is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from onnx import ModelProto

import surgeon_passes as sp
from benchmarks.entries import Wheels, packaged
from surgeon_passes import demo

from .faults import assert_names, dummy, first_middle_last, layers, optimised, renamed, scaled

ENTRIES = {entry["name"]: entry for entry in packaged()}
SIZE = 64
"""Of images: as large as networks of stride 32 need."""
IMAGES = {"nudenet_320n": "images", "slanet_plus": "x"}


@pytest.fixture(scope="module", params=IMAGES)
def packaged_model(request: pytest.FixtureRequest, wheels: Wheels) -> tuple[Path, ModelProto, Any]:
    """A real model, its result without names, and data."""
    entry = ENTRIES[request.param]
    path = wheels.read(entry["package"], entry["path"])
    feeds = {IMAGES[request.param]: dummy(1, 3, SIZE, SIZE)}
    return path, optimised(path, verify=sp.Verify("off")), lambda: feeds


def test_a_result_does_not_drift(packaged_model: tuple[Path, ModelProto, Any]) -> None:
    path, result, data = packaged_model
    found = sp.compare(path, result, data=data)
    assert (found.exit_code, found.first, found.drifting, found.lost) == (0, None, [], [])
    convolutions = [p for p in found.pairs if p.operators[1] == "Conv"]
    assert len(convolutions) == sum(n.op_type == "Conv" for n in result.graph.node)
    assert max(p.own for p in convolutions if p.own is not None) < 1e-4


@pytest.mark.parametrize("place", range(3))
def test_the_layer_is_named(packaged_model: tuple[Path, ModelProto, Any], place: int) -> None:
    path, result, data = packaged_model
    layer = first_middle_last(layers(result))[place]
    assert_names(sp.compare(path, scaled(result, layer), data=data), result, layer)


@pytest.fixture(scope="module")
def merged() -> ModelProto:
    return optimised(demo.build())


@pytest.mark.parametrize("number", range(6))
def test_the_merged_layer_is_named(merged: ModelProto, number: int) -> None:
    """Each convolution of a RepVGG-style network stands for several branches of the original."""
    layer = layers(merged)[number]
    assert_names(sp.compare(demo.build(), scaled(merged, layer)), merged, layer)


def test_the_last_layer_is_named() -> None:
    model = optimised(demo.build())
    (layer,) = layers(model, ("Gemm",))
    assert_names(sp.compare(demo.build(), scaled(model, layer)), model, layer)


def test_the_optimised_one_may_be_the_reference(merged: ModelProto) -> None:
    """Then the fault lies in a part of the layer: several nodes stand for it, and the last of them is named."""
    broken = scaled(demo.build(), "stage2.dense.conv")
    found = sp.compare(merged, broken)
    first = found.first
    assert first is not None and first.b == "stage2.add.out" and first.operators == ("Conv", "Add")
    assert [p.b for p in found.pairs if p.begins] == ["stage2.add.out"]


def test_two_layers_are_both_named_the_first_one_first(merged: ModelProto) -> None:
    names = layers(merged)
    found = sp.compare(demo.build(), scaled(scaled(merged, names[4]), names[1]))
    assert [p.layers[1] for p in found.pairs if p.begins] == [names[1], names[4]]
    assert found.first is not None and found.first.layers[1] == names[1]


def test_a_layer_that_is_altogether_broken_is_named(merged: ModelProto) -> None:
    """Values tell nothing any more: it is known by where it stands."""
    layer = layers(merged)[2]
    found = sp.compare(demo.build(), scaled(merged, layer, -3.0))
    assert found.first is not None and found.first.layers[1] == layer and found.first.by == "structure"
    assert sum(p.begins for p in found.pairs) == 1


def test_names_that_stayed_are_used() -> None:
    result = sp.optimize(demo.build()).proto
    layer = layers(result)[3]
    found = sp.compare(demo.build(), scaled(result, layer))
    assert {p.by for p in found.pairs} == {"name", "value"} or {p.by for p in found.pairs} == {"name"}
    assert_names(found, result, layer)
    assert sp.compare(result, renamed(result)).exit_code == 0
