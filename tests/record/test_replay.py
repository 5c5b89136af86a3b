"""Records done again: on the recorded file to the same bytes, on another by structure."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import surgeon_passes as sp
from surgeon_passes import demo
from surgeon_passes.record.diff import diff
from surgeon_passes.record.files import read_record
from surgeon_passes.record.replay import replay
from surgeon_passes.record.show import show, show_replay

from ..models import floats, model
from .renamed import renamed

optimize = partial(sp.optimize, record=True)

Record = dict[str, Any]
NAME = "model.onnx"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(demo.build(), NAME)
    return tmp_path / NAME


@pytest.fixture(scope="module")
def recorded() -> Record:
    return optimize(demo.build()).record()


def retrained() -> onnx.ModelProto:
    """The network with other weights."""
    return demo.build(seed=1)


def without_neck() -> onnx.ModelProto:
    """The network without its neck's BatchNormalization."""
    made = demo.build()
    (norm,) = (n for n in made.graph.node if n.name == "neck.bn")
    made.graph.node.remove(norm)
    (relu,) = (n for n in made.graph.node if n.name == "neck.relu")
    relu.input[0] = norm.input[0]
    return made


def with_stride(name: str, stride: int) -> onnx.ModelProto:
    made = demo.build()
    (conv,) = (n for n in made.graph.node if n.name == name)
    (attribute,) = (a for a in conv.attribute if a.name == "strides")
    attribute.ints[:] = [stride, stride]
    return made


# --- the same file ---------------------------------------------------------------------------------------------------


def test_the_same_file_gives_the_same_bytes(path: Path) -> None:
    shapes = {"images": {"N": 2}}
    first = optimize(path, shapes, skip=["drop_dropout"], keep=["stage1.*"], sets=["ort"], verify=sp.Verify(seed=5))
    first.save("out.onnx")
    first.save_record("d.json")
    again = replay(read_record("d.json"), path)
    again.result.save("again.onnx")
    assert again.same_file and again.reproduced and not again.differs
    assert Path("again.onnx").read_bytes() == Path("out.onnx").read_bytes()
    assert show_replay(again) == "the recorded file, and the recorded result, byte for byte\n"
    assert again.result.record()["options"] == first.record()["options"]


def test_weights_beside_the_model(path: Path) -> None:
    onnx.save(demo.build(), NAME, save_as_external_data=True, location="w.bin", size_threshold=64)
    result = optimize(path)
    result.save("out.onnx")
    assert Path("out.onnx.data").exists()
    again = replay(result.record(), path)
    assert again.same_file and again.reproduced
    held = path.read_bytes()
    Path("w.bin").unlink()
    onnx.save(demo.build(seed=1), NAME, save_as_external_data=True, location="w.bin", size_threshold=64)
    assert path.read_bytes() == held
    other = replay(result.record(), path)
    assert not other.same_file and not other.reproduced and not other.differs


def test_a_result_that_is_another_is_told(path: Path) -> None:
    record = optimize(path).record()
    record["tools"]["onnxruntime"] = "1.0.0"
    record["result"]["sha256"] = "0" * 64
    again = replay(record, path)
    assert again.same_file and again.differs
    assert show_replay(again).startswith("the recorded file, but another result\nonnxruntime: 1.0.0 -> ")


def test_a_model_that_came_as_an_object(recorded: Record) -> None:
    assert replay(recorded, demo.build()).reproduced


def test_rules_of_ones_own_are_asked_for(path: Path) -> None:
    @sp.rule(pattern="y = Relu(Relu(x))", rewrite="y = Relu(x)", name="relu_once", exactness="exact")
    def relu_once(m: sp.Match) -> None:
        return None

    record = optimize(path, rules=[relu_once]).record()
    assert record["options"]["passes"][1]["rules"] == ["relu_once"]
    with pytest.raises(sp.UsageError, match="relu_once"):
        replay(record, path)
    assert replay(record, path, rules=[relu_once]).reproduced


def test_inputs_from_a_function_have_to_be_given_again(path: Path) -> None:
    feeds = {"images": np.zeros((1, 3, 64, 64), np.float32)}
    record = optimize(path, verify=sp.Verify(data=lambda: feeds)).record()
    with pytest.raises(sp.UsageError, match="cannot be replayed: inputs come from a function"):
        replay(record, path)
    assert replay(record, path, data=lambda: feeds).reproduced


# --- another file ----------------------------------------------------------------------------------------------------


def test_a_rename_of_everything_changes_nothing(path: Path) -> None:
    np.savez("data.npz", images=floats(1, 3, 64, 64))
    first = optimize(path, {"images": {"N": 1}}, verify=sp.Verify(data="data.npz"))
    other = renamed(onnx.load(path))
    assert not {v.name for v in other.graph.input} & {"images"}
    again = replay(first.record(), other)
    assert not again.same_file and not again.reproduced and not again.differs
    assert again.result.after == first.after
    assert [t.shape[0] for t in again.result.graph.inputs] == [1]


def test_other_weights_change_nothing(recorded: Record) -> None:
    again = replay(recorded, retrained())
    assert not again.same_file and not again.differs
    assert len(again.diff.same) == len(recorded["matches"])


def test_what_the_record_does_not_hold_is_left_alone() -> None:
    """A record of the network without its neck's BatchNormalization, on one whose neck has a stride besides."""
    again = replay(optimize(without_neck()).record(), renamed(with_stride("neck.conv", 2)))
    assert [m["rule"] for m in again.left] == ["fold_batch_norm_into_conv"]
    assert again.differs
    assert again.result.after.operators["BatchNormalization"] == 1
    assert again.result.check.status == "equal"
    assert "the record holds none of this structure; left alone" in show_replay(again)


def test_what_the_record_holds_is_done_wherever_it_fits() -> None:
    """The neck's convolution is like the 1x1 branches of the last two stages: its fold comes, and is told."""
    again = replay(optimize(without_neck()).record(), renamed(demo.build()))
    assert not again.left and again.differs
    (come,) = again.diff.come
    assert (come.match["rule"], come.why) == ("fold_batch_norm_into_conv", "nothing there comes near")
    assert again.result.after.operators["BatchNormalization"] == 0


def test_what_is_no_longer_there_is_told(recorded: Record) -> None:
    again = replay(recorded, renamed(without_neck()))
    assert [m.match["root"] for m in again.diff.gone] == ["BatchNormalization 'neck.bn'"]
    assert not again.diff.changed and not again.diff.come and again.differs


def test_names_that_confine_must_be_there(path: Path) -> None:
    record = optimize(path, keep=["neck.conv"]).record()
    with pytest.raises(sp.UsageError, match=r"neck\.conv"):
        replay(record, renamed(demo.build()))


# --- records against each other --------------------------------------------------------------------------------------


def test_equal_runs_do_not_differ(recorded: Record) -> None:
    found = diff(recorded, optimize(renamed(retrained())).record())
    assert found.is_empty and len(found.same) == len(recorded["matches"])
    assert {a["rule"] for a, b in found.same if a["rule"] != b["rule"]} == set()


def test_each_match_is_found_at_its_own_place(recorded: Record) -> None:
    """Stages 3 and 4 have equal structure: places tell them apart."""
    new = optimize(renamed(demo.build())).record()
    places = [(a["place"], b["place"]) for a, b in diff(recorded, new).same]
    assert all(a == b for a, b in places)


def test_a_rule_that_was_left_out(recorded: Record) -> None:
    new = optimize(renamed(demo.build()), skip=["drop_identity"]).record()
    found = diff(recorded, new)
    (gone,) = found.gone
    assert (gone.match["rule"], gone.why) == ("drop_identity", "the rule was left out")
    (come,) = diff(new, recorded).come
    assert come.match["rule"] == "drop_identity"
    assert "other options: skip" in found.facts
    assert "  drop_identity: 1 -> 0 times" in show(found)
    assert show(found).endswith("- drop_identity at Identity 'input': now the rule was left out\n")


def test_a_match_that_is_declined_now_says_why(recorded: Record) -> None:
    """The neck's convolution is read a second time: it cannot be folded any more."""
    made = demo.build()
    made.graph.output.append(onnx.helper.make_tensor_value_info("neck.conv.out", 1, None))
    found = diff(recorded, optimize(renamed(made)).record())
    (gone,) = found.gone
    assert gone.match["root"] == "BatchNormalization 'neck.bn'"
    assert gone.why.startswith("declined at ") and "is a graph output" in gone.why


def test_a_changed_stride_is_told_at_its_place(recorded: Record) -> None:
    found = diff(recorded, optimize(renamed(with_stride("neck.conv", 2))).record())
    assert not found.gone and not found.come
    (changed,) = found.changed
    assert changed.old["root"] == "BatchNormalization 'neck.bn'"
    assert changed.what == ("Conv: strides [1, 1] -> [2, 2]",)


def test_another_width_is_told_by_shapes(recorded: Record) -> None:
    old, new = (
        optimize(
            model(
                "g (float[1,4,8,8] x) => (float[1,K,8,8] y) { c = Conv(x, w)  y = BatchNormalization(c, s, s, s, s) }",
                w=floats(width, 4, 1, 1),
                s=np.ones(width, np.float32),
            )
        ).record()
        for width in (6, 8)
    )
    (changed,) = diff(old, new).changed
    assert "Conv: input 1 float[6, 4, 1, 1] -> float[8, 4, 1, 1]" in changed.what
    assert "BatchNormalization: input 1 float[6] -> float[8]" in changed.what


def test_many_of_one_rule_are_told_in_short(recorded: Record) -> None:
    lines = show(diff(recorded, optimize(demo.build(), skip=["fold_batch_norm_into_conv"]).record())).splitlines()
    fold = sum(m["rule"] == "fold_batch_norm_into_conv" for m in recorded["matches"])
    told = [line for line in lines if line.startswith("- fold_batch_norm_into_conv")]
    assert len(told) == 4
    assert told[-1] == f"- fold_batch_norm_into_conv at {fold - 3} more places: now the rule was left out"


def test_facts_beside_the_matches(recorded: Record) -> None:
    other = copy.deepcopy(recorded)
    other["source"].update(producer="pytorch", producer_version="2.9", opsets={"": 20}, sha256="1" * 64)
    other["source"]["inputs"][0].update(name="x", shape=["M", 3, 64, None])
    other["before"]["operators"]["Relu"] += 1
    assert list(diff(recorded, other).facts) == [
        "the source is another file",
        "producer: surgeon_passes.demo -> pytorch",
        "producer_version:  -> 2.9",
        "opset ai.onnx: 17 -> 20",
        "input 0: float['N', 3, 64, 64] -> float['M', 3, 64, None]",
        "Relu: 6 -> 7",
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not a decision record"),
        ("[1]", "its format is not 'surgeon-passes decisions'"),
        ('{"format": "surgeon-passes decisions", "version": 9}', "of version 9, and this is of 1"),
        ('{"format": "surgeon-passes baseline", "version": 1}', "its format is not"),
        (b"\xff", "not a decision record"),
        (None, "cannot be read"),
    ],
)
def test_what_is_no_record_is_one_line(text: str | bytes | None, says: str, tmp_path: Path) -> None:
    place = tmp_path / "d.json"
    if text is not None:
        place.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(sp.ModelError, match=says) as error:
        read_record(place)
    assert str(place) in str(error.value) and "\n" not in str(error.value)
