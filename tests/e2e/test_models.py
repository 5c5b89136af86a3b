"""Files of real exporters, in the folder that SURGEON_MODELS names."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from benchmarks.entries import Entry, data, exported

from .holds import assert_as_lean, assert_equal_at_more_sizes, assert_holds, norms_behind, operators, optimize

ENTRIES = {entry["name"]: entry for entry in exported()}
TRAINING = "bn_mobilenet_v1_training_mode"
"""Its BatchNormalizations train: every batch changes its outputs, and it must stay as it is."""

MERGED = {
    **dict.fromkeys((f"rep_repvgg_groups__{form}" for form in ("raw", "rawdyn", "dynamo", "dynraw")), (13, 5)),
    **dict.fromkeys((f"rep_acnet__{form}" for form in ("raw", "rawdyn", "dynamo")), (9, 3)),
    "rep_qarepvgg__raw": (13, 5),
    **dict.fromkeys((f"rep_dbb_simple__{form}" for form in ("raw", "dynraw")), (9, 3)),
    **dict.fromkeys((f"rep_dbb_official__{form}" for form in ("raw", "dynamo")), (9, 3)),
    "rep_ecbsr__dynamo": (7, 3),
    "rep_linear_chain__raw": (12, 5),
    "timm_repghostnet_050__raw": (177, 95),
    "timm_mobileone_s0__raw": (89, None),
}
"""nodes and Conv nodes of the deploy form"""

LEFT = {
    "dyn_interpolate__dyn": 21,  # four sizes of Resize, none of them a fixed multiple of another
    "dyn_interpolate__dynamodyn": 21,
    "dyn_pad_expand__dyn": 38,  # coordinates of every pixel are computed from height and width
    "dyn_script_if_loop__dyn": 20,  # an If on height > width, and what its two branches give
}
"""Nodes of models whose sizes decide values, not shapes: they stay above 1.2 times the static count."""


def entry_of(name: str, models: Path) -> tuple[Entry, Path]:
    assert models.is_dir()
    return ENTRIES[name], models / ENTRIES[name]["file"]


def names(*starts: str) -> list[str]:
    return [name for name in ENTRIES if name.startswith(starts)]


@pytest.mark.parametrize("name", names(""))
def test_holds_with_the_dims_of_the_file(name: str, models: Path, tmp_path: Path) -> None:
    entry, path = entry_of(name, models)
    result = assert_holds(path, tmp_path, data(entry))
    assert result.exit_code == 0
    assert result.before.nodes == entry["nodes"]["before"]
    if entry["dynamic"]:
        assert_equal_at_more_sizes(path, result, entry)
        assert result.after.nodes <= min(entry["nodes"]["dynamic"], LEFT.get(name, 1.2 * entry["nodes"]["static"]))


@pytest.mark.parametrize("name", [n for n in names("") if ENTRIES[n]["dynamic"]])
def test_holds_with_fixed_shapes(name: str, models: Path, tmp_path: Path) -> None:
    entry, path = entry_of(name, models)
    result = assert_holds(path, tmp_path, data(entry, static=True), shapes=entry["static_inputs"])
    assert result.dynamic_inputs == []
    assert result.exit_code in (0, 3)
    assert_as_lean(result, entry)


@pytest.mark.parametrize("name", [n for n in MERGED if n in ENTRIES])
def test_merges_to_the_deploy_form(name: str, models: Path) -> None:
    entry, path = entry_of(name, models)
    result = optimize(path, data(entry))
    nodes, convs = MERGED[name]
    assert result.after.nodes == nodes, result.report()
    assert convs is None or result.after.operators["Conv"] == convs
    assert result.applied
    assert {d.verdict for d in result.applied} == {"verified"}
    assert result.check.status == "equal"


@pytest.mark.parametrize("name", names("rep_dbb_padafter"))
def test_merges_only_what_is_exact(name: str, models: Path) -> None:
    """Both blocks pad with zeros after a shift: nothing but their BatchNormalizations can go."""
    entry, path = entry_of(name, models)
    result = optimize(path, data(entry))
    assert result.after.operators == {"Conv": 10, "BatchNormalization": 4, "AveragePool": 4, "Add": 6, "Relu": 2}
    reasons = [block.reason for block in result.blocks]
    assert len(reasons) == 2
    assert all("zeros where the convolution before it would give its bias" in reason for reason in reasons)
    assert all("averages fewer elements at the border" in reason for reason in reasons)


@pytest.mark.parametrize("name", [n for n in names(TRAINING)])
def test_training_batch_normalizations_stay(name: str, models: Path) -> None:
    entry, path = entry_of(name, models)
    result = optimize(path, data(entry))
    assert result.after.nodes == 42
    assert result.after.operators == operators(onnx.load(path))
    assert result.after.operators["BatchNormalization"] > 0
    assert any("training" in d.reason for d in result.decisions if d.status == "declined")


@pytest.mark.parametrize("name", names("bn_edge_cases__", "rep_dbb_padafter__raw"))
def test_traps_stay_equal(name: str, models: Path) -> None:
    entry, path = entry_of(name, models)
    result = optimize(path, data(entry))
    assert result.check.status == "equal"
    assert result.undone == []


@pytest.mark.parametrize("name", names("bn_mobilenet_v1__raw", "bn_conv", "mobilenet_v1_inits"))
def test_no_batch_normalization_is_left_behind_a_linear_operator(name: str, models: Path) -> None:
    entry, path = entry_of(name, models)
    assert norms_behind(onnx.load(path))
    assert norms_behind(optimize(path, data(entry)).proto) == []


QUANTISED = (
    "QLinearConv",
    "QLinearAdd",
    "QGemm",
    "MatMulInteger",
    "ConvInteger",
    "DynamicQuantizeLinear",
    "QuantizeLinear",
)


@pytest.mark.parametrize("name", names("mobilenet_v1_qoperator", "bert_tiny_dynquant"))
def test_quantised_models_stay_quantised(name: str, models: Path) -> None:
    """As many quantised operators, and the weights that they read byte by byte."""
    entry, path = entry_of(name, models)
    before, after = onnx.load(path), optimize(path, data(entry)).proto
    counts = [{op: n for op, n in operators(m).items() if op in QUANTISED} for m in (before, after)]
    assert counts[0] == counts[1] and sum(counts[0].values()) > 10
    weights = [_quantised_weights(m) for m in (before, after)]
    assert weights[0] == weights[1] and len(weights[0]) > 10


def _quantised_weights(model: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    read = {name for node in model.graph.node if node.op_type in QUANTISED for name in node.input}
    return {t.name: t for t in model.graph.initializer if t.name in read and len(t.dims) > 1}
