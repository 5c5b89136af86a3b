"""The command line: what ends with another code than 0, one line for it, and no file that was not asked for."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

from surgeon_passes import demo
from surgeon_passes.cli import main, parse_shapes
from surgeon_passes.cli.common import guarded
from surgeon_passes.model.files import _replace
from tests.cli.conftest import Run, assert_refused, files, write

DYNAMIC = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[4] x) => (int64[1,K] y) { y = NonZero (x) }
"""
CYCLIC = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[4] x) => (float[4] y) { a = Add (x, b)  b = Relu (a)  y = Relu (b) }
"""
UNKNOWN = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[4] x) => (float[4] y) { [odd] y = Relux (x) }
"""
TOO_NEW = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[4] x) => (float[4] y) { [early] y = Gelu (x) }
"""
UNKNOWN_ATTRIBUTE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[4] x) => (float[4] y) { y = Relu <colour = 3> (x) }
"""
BROKEN_RULE = '''
from surgeon_passes import Replacement, rule

@rule(pattern="y = BatchNormalization(c, s: const, b: const, m: const, v: const)",
      rewrite="y = BatchNormalization(c, s, B, m, v)<@y>")
def move_bias(m):
    """Wrong on purpose."""
    return Replacement(B=m.b + 1)
'''
RULE_WITH_CARET = """
from surgeon_passes import Replacement, rule

@rule(pattern="y = Conv(x, w: const)<stride=@s>", rewrite="y = Conv(x, w)<@y>")
def misspelt(m):
    return Replacement()
"""


def test_3_where_dynamic_items_remain_and_the_file_is_written(run: Run, tmp_path: Path) -> None:
    write(tmp_path, DYNAMIC)
    assert run("model.onnx").code == 0
    outcome = run("model.onnx", "-i", "x=4", "-o", "out.onnx")
    assert outcome.code == 3
    assert "first 'y'" in outcome.out
    assert files() == ["model.onnx", "out.onnx"]


def test_4_where_the_checker_fails_and_nothing_is_written(run: Run, tmp_path: Path) -> None:
    write(tmp_path, UNKNOWN_ATTRIBUTE)
    outcome = run("model.onnx", "-o", "out.onnx")
    assert outcome.code == 4
    assert "colour" in outcome.out
    assert outcome.err == "not written: out.onnx (--force writes it all the same)\n"
    assert files() == ["model.onnx"]


def test_5_where_the_result_is_not_shown_equal_and_nothing_is_written(run: Run, tmp_path: Path) -> None:
    sequence = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    zero = helper.make_tensor("zero", TensorProto.INT64, [], [0])
    graph = helper.make_graph([helper.make_node("SequenceAt", ["s", "zero"], ["y"])], "g", [sequence], [y], [zero])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "model.onnx")
    outcome = run("model.onnx", "-o", "out.onnx")
    assert outcome.code == 5
    assert "give --data" in outcome.out
    assert "not written: out.onnx" in outcome.err
    assert files() == ["model.onnx"]
    assert run("model.onnx", "-o", "out.onnx", "--force").code == 5
    assert files() == ["model.onnx", "out.onnx"]


def test_7_where_a_rewrite_is_undone_and_the_file_is_good(run: Run, model: str) -> None:
    Path("own.py").write_text(BROKEN_RULE)
    outcome = run(model, "--rules", "own.py", "--skip", "fold_batch_norm_into_conv", "-o", "out.onnx")
    assert outcome.code == 7
    assert "move_bias" in outcome.out
    assert "refuted" in outcome.out
    assert run(model, "--skip", "fold_batch_norm_into_conv", "-o", "plain.onnx").code == 0
    assert Path("out.onnx").read_bytes() == Path("plain.onnx").read_bytes()


# --- 6: files ------------------------------------------------------------------------------------------------------------


def test_6_a_file_that_is_not_there(run: Run) -> None:
    assert_refused(run, 6, "no.onnx", "-o", "out.onnx", says="no.onnx: cannot be read (No such file or directory)")


def test_6_a_folder(run: Run) -> None:
    Path("folder.onnx").mkdir()
    assert_refused(run, 6, "folder.onnx", "-o", "out.onnx", says="folder.onnx: cannot be read")


def test_6_a_file_that_must_not_be_read(run: Run, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As any other that cannot be read: not as an option that is wrong."""

    def denied(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(Path, "read_bytes", denied)
    assert_refused(run, 6, model, says="model.onnx: cannot be read (Permission denied)")


@pytest.mark.parametrize("content", [b"", b"this is text\n", b"\x89PNG\r\n\x1a\n\0\0", bytes(range(256)), b"\x08\x07"])
def test_6_a_file_that_is_not_onnx(run: Run, content: bytes) -> None:
    Path("model.onnx").write_bytes(content)
    assert_refused(run, 6, "model.onnx", "-o", "out.onnx", says="model.onnx: not an ONNX model")


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9, 0.99])
def test_6_a_truncated_file(run: Run, model: str, share: float) -> None:
    whole = Path(model).read_bytes()
    Path("cut.onnx").write_bytes(whole[: int(len(whole) * share)])
    assert_refused(run, 6, "cut.onnx", "-o", "out.onnx", says="cut.onnx: ")


def test_6_a_cycle(run: Run, tmp_path: Path) -> None:
    write(tmp_path, CYCLIC)
    outcome = assert_refused(run, 6, "model.onnx", "-o", "out.onnx", says="has a cycle through node '")
    assert "model.onnx" in outcome.err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (UNKNOWN, "node 'odd': opset 17 has no operator 'Relux' (did you mean 'Relu'?)"),
        (TOO_NEW, "node 'early': opset 17 has no operator 'Gelu'"),
    ],
)
def test_6_an_unknown_standard_operator(run: Run, tmp_path: Path, text: str, says: str) -> None:
    write(tmp_path, text)
    assert_refused(run, 6, "model.onnx", "-o", "out.onnx", says=says)


def test_6_external_data_that_is_missing(run: Run, model: str) -> None:
    proto = onnx.load(model)
    for tensor in proto.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))
    onnx.save(proto, "split.onnx", save_as_external_data=True, location="split.data", size_threshold=0)
    Path("split.data").unlink()
    assert_refused(run, 6, "split.onnx", "-o", "out.onnx", says="split.data")


@pytest.mark.parametrize("option", ["-o", "--report"])
@pytest.mark.parametrize(("place", "says"), [("folder", "it is a folder"), ("missing/out", "there is no folder")])
def test_6_a_place_that_cannot_be_written(run: Run, model: str, option: str, place: str, says: str) -> None:
    Path("folder").mkdir()
    assert_refused(run, 6, model, option, place, says=f"cannot be written ({says}")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_6_a_folder_without_permission(run: Run, model: str) -> None:
    Path("locked").mkdir(mode=0o500)
    assert_refused(run, 6, model, "-o", "locked/out.onnx", says="cannot be written (Permission denied)")


# --- 2: usage ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shapes", "says"),
    [
        (["image=1,3,8,8"], "the model has no input 'image' (its inputs: images)"),
        (["images=1,3,8"], "input 'images' has rank 4 [N, 3, H, W] in the model; 3 sizes were given (1,3,8)"),
        (["images=1,4,8,8"], "dim 1 is 3 in the model, 4 was asked for"),
        (["images=B:1"], "input 'images' has no dim 'B' (its dims: [N, 3, H, W])"),
        (["images=N:1,3,8,8"], "mixes dim names and plain sizes"),
        (["images=1,3,8,8", "images=2,3,8,8"], "input 'images' is given twice"),
        (["images"], "write NAME=1,3,640,640 or NAME=N:1,H:640"),
        (["images="], "write NAME=1,3,640,640 or NAME=N:1,H:640"),
        (["=1,3"], "write NAME=1,3,640,640 or NAME=N:1,H:640"),
        (["images=1,3,8,x"], "sizes are whole numbers"),
        (["images=1,3,8.5,8"], "sizes are whole numbers"),
        (["images=N:one"], "sizes are whole numbers"),
        (["images=1,3,-8,8"], "-8 is not a size"),
        (["images=N:1,N:2"], "dim 'N' is given twice"),
    ],
)
def test_2_a_wrong_shape(run: Run, model: str, shapes: list[str], says: str) -> None:
    options = [part for shape in shapes for part in ("-i", shape)]
    assert_refused(run, 2, model, *options, "-o", "out.onnx", says=says)


def test_shapes_of_several_inputs() -> None:
    assert parse_shapes(("a=1,2", "b=N:3")) == {"a": [1, 2], "b": {"N": 3}}


def test_2_a_rules_file_that_is_missing(run: Run, model: str) -> None:
    assert_refused(run, 2, model, "--rules", "no.py", "-o", "out.onnx", says="no.py: no such rules file or folder")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("def broken(:\n", "own.py: SyntaxError"),
        ("import no_such_module\n", "own.py: ModuleNotFoundError: No module named 'no_such_module'"),
        ("1 / 0\n", "own.py: ZeroDivisionError"),
        ("x = 1\n", "own.py: defines no rule"),
        ("", "own.py: defines no rule"),
    ],
)
def test_2_a_rules_file_with_an_error(run: Run, model: str, content: str, says: str) -> None:
    Path("own.py").write_text(content)
    assert_refused(run, 2, model, "--rules", "own.py", "-o", "out.onnx", says=says)


def test_2_a_rule_with_an_error_is_shown_with_a_caret(run: Run, model: str) -> None:
    Path("own.py").write_text(RULE_WITH_CARET)
    outcome = run(model, "--rules", "own.py", "-o", "out.onnx")
    assert outcome.code == 2
    first, source, caret = outcome.err.splitlines()
    assert first.startswith("error: own.py: misspelt, pattern line 1: ")
    assert "did you mean 'strides'" in first
    start = source.index("stride")
    assert caret.index("^") == start
    assert caret.strip() == "^" * len("stride")
    assert files() == ["model.onnx", "own.py"]


def test_2_a_rule_that_is_called_as_a_built_in_one(run: Run, model: str) -> None:
    Path("own.py").write_text(BROKEN_RULE.replace("move_bias", "fold_batch_norm_into_conv"))
    says = "two rules are called 'fold_batch_norm_into_conv'"
    assert_refused(run, 2, model, "--rules", "own.py", "-o", "out.onnx", says=says)


def test_2_an_unknown_rule_to_skip(run: Run, model: str) -> None:
    assert_refused(run, 2, model, "--skip", "no_such_rule", says="no rule or set of rules is called 'no_such_rule'")


def test_2_a_size_that_is_none(run: Run, model: str) -> None:
    assert_refused(run, 2, model, "--max-bytes", "lots", says="lots")


@pytest.mark.parametrize("data", ["no.npz", "own.txt", "empty"])
def test_2_data_that_cannot_be_read(run: Run, model: str, data: str) -> None:
    Path("empty").mkdir()
    Path("own.txt").write_text("1")
    assert_refused(run, 2, model, "--data", data, "-o", "out.onnx", says=data)


@pytest.mark.parametrize("held", [{"x": [1.0]}, {"images": [1.0]}, {"images": [[[["a"]]]]}])
def test_2_data_that_does_not_fit(run: Run, model: str, held: dict[str, object]) -> None:
    np.savez("data.npz", **{name: np.asarray(value) for name, value in held.items()})
    assert_refused(run, 2, model, "--data", "data.npz", "-o", "out.onnx", says="the data")


def test_2_an_unknown_option(run: Run, model: str) -> None:
    outcome = run(model, "--colour")
    assert outcome.code == 2
    assert "No such option" in outcome.err


def test_2_where_the_report_would_overwrite_a_model(tmp_path: Path) -> None:
    place = tmp_path / "model.onnx"
    onnx.save(demo.build(), place)
    held = place.read_bytes()
    for arguments in (["--report", str(place)], ["-o", str(tmp_path / "a"), "--report", str(tmp_path / "a")]):
        done = CliRunner().invoke(main, ["optimize", str(place), *arguments])
        assert done.exit_code == 2 and "give it a file of its own" in done.output
    assert place.read_bytes() == held and not (tmp_path / "a").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_request_to_end_unwinds(tmp_path: Path, number: signal.Signals) -> None:
    def saves() -> int:
        def write(stream: Path) -> None:
            stream.write_bytes(b"half")
            os.kill(os.getpid(), number)

        _replace((tmp_path / "out.onnx", write))
        return 0

    held = signal.getsignal(number)
    signal.signal(number, signal.SIG_DFL)
    try:
        assert (guarded(saves, debug=False), list(tmp_path.iterdir())) == (128 + number, [])
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, held)
