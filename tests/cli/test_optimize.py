"""The command line: exit codes, one line for whatever is wrong, and no file that was not asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper, parser

import surgeon_passes as sp
from surgeon_passes import demo
from surgeon_passes.cli import main, parse_shape, parse_shapes
from tests.cli.conftest import Call, Outcome

PLAIN = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,3,H,W] images) => (float[N,2,H,W] y)
<float[2,3,1,1] w = {1,2,3,4,5,6}, float[2] s = {1,2}, float[2] b = {1,2}, float[2] m = {1,2}, float[2] v = {1,2}>
{
    c = Conv (images, w)
    y = BatchNormalization (c, s, b, m, v)
}
"""
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
CUSTOM = """
<ir_version: 8, opset_import: ["" : 17, "some.custom" : 1]>
g (float[4] x) => (float[4] y) { a = Identity (x)  y = some.custom.Own <level = 3> (a) }
"""
UNKNOWN_ATTRIBUTE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[4] x) => (float[4] y) { y = Relu <colour = 3> (x) }
"""
NAMED = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,3] x) => (float[N,3] y) { y = Relu (x) }
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


Run = Call


@pytest.fixture
def run(call: Call) -> Run:
    """``surgeon-passes optimize`` with some arguments, in a folder of its own."""
    return lambda *arguments: call("optimize", *arguments)


@pytest.fixture
def model(tmp_path: Path) -> str:
    return write(tmp_path, PLAIN)


def write(folder: Path, text: str, name: str = "model.onnx") -> str:
    onnx.save(parser.parse_model(text), folder / name)
    return name


def files() -> list[str]:
    return sorted(os.listdir())


def assert_refused(run: Run, code: int, *arguments: str, says: str, lines: int = 1) -> Outcome:
    """One line on stderr (or ``lines``), nothing on stdout, nothing in the folder that was not there before."""
    before = files()
    outcome = run(*arguments)
    assert outcome.code == code, outcome
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == lines, outcome.err
    assert says in outcome.err
    assert outcome.out == ""
    assert files() == before
    return outcome


# --- what works ----------------------------------------------------------------------------------------------------------


def test_writes_a_smaller_model_and_reports(run: Run, model: str) -> None:
    outcome = run(model, "-o", "out.onnx")
    assert outcome.code == 0
    assert "nodes               2 -> 1" in outcome.out
    assert "1 rewrites verified" in outcome.out
    assert files() == ["model.onnx", "out.onnx"]
    assert [n.op_type for n in onnx.load("out.onnx").graph.node] == ["Conv"]


def test_without_output_it_only_reports(run: Run, model: str) -> None:
    assert "nodes               2 -> 1" in run(model).out
    assert files() == ["model.onnx"]


def test_without_model_it_shows_itself_on_the_embedded_one(run: Run) -> None:
    outcome = run("-o", "out.onnx")
    assert outcome.code == 0
    assert outcome.out.startswith("the embedded model\n")
    for line in ("nodes ", "verification ", "end check           equal", "latency ", " faster)"):
        assert line in outcome.out or line == " faster)"
    onnx.checker.check_model(onnx.load("out.onnx"), full_check=True)


def test_latency_is_measured_on_request(run: Run, model: str) -> None:
    assert "latency" not in run(model).out
    assert "latency  " in run(model, "--latency").out
    assert "latency" not in run("--no-latency").out


@pytest.mark.parametrize("sizes", ["images=1,3,8,8", "images=N:1,H:8,W:8", "images= 1, 3, 8, 8"])
def test_fixes_input_shapes(run: Run, model: str, sizes: str) -> None:
    assert run(model, "-i", sizes, "-o", "out.onnx").code == 0
    fixed = onnx.load("out.onnx").graph
    for value, channels in ((fixed.input[0], 3), (fixed.output[0], 2)):
        assert [d.dim_value for d in value.type.tensor_type.shape.dim] == [1, channels, 8, 8]


def test_fixes_some_dims(run: Run, model: str) -> None:
    assert run(model, "-i", "images=H:8,W:8", "-o", "out.onnx").code == 0
    dims = onnx.load("out.onnx").graph.input[0].type.tensor_type.shape.dim
    assert [d.dim_param or d.dim_value for d in dims] == ["N", 3, 8, 8]


@pytest.mark.parametrize(
    ("text", "name", "sizes"),
    [
        ("images=1,3,640,640", "images", [1, 3, 640, 640]),
        ("images=N:1,H:640,W:640", "images", {"N": 1, "H": 640, "W": 640}),
        ("serving:0=1,3", "serving:0", [1, 3]),
        ("a=b:0=2", "a=b:0", [2]),
        ("a=b=N:1", "a=b", {"N": 1}),
        ("x=a:b:3", "x", {"a:b": 3}),
        ("x=0", "x", [0]),
    ],
)
def test_shapes_are_split_at_the_last_equals_sign(text: str, name: str, sizes: object) -> None:
    assert parse_shape(text) == (name, sizes)


@pytest.mark.parametrize("name", ["serving:0", "a=b", "scope/x:0=1"])
def test_input_names_may_hold_colons_and_equals_signs(run: Run, tmp_path: Path, name: str) -> None:
    proto = parser.parse_model(NAMED)
    proto.graph.input[0].name = proto.graph.node[0].input[0] = name
    onnx.save(proto, tmp_path / "named.onnx")
    assert run("named.onnx", "-i", f"{name}=2,3", "-o", "out.onnx").code == 0
    assert run("named.onnx", "-i", f"{name}=N:2", "-o", "other.onnx").code == 0
    assert Path("out.onnx").read_bytes() == Path("other.onnx").read_bytes()


def test_dry_run_writes_nothing(run: Run, model: str) -> None:
    outcome = run(model, "--dry-run", "-o", "out.onnx", "--report", "report.txt")
    assert outcome.code == 0
    assert "nodes               2 -> 1" in outcome.out
    assert files() == ["model.onnx"]


def test_dry_run_may_name_a_place_that_cannot_be_written(run: Run, model: str) -> None:
    assert run(model, "--dry-run", "-o", "nowhere/out.onnx").code == 0


def test_report_is_written_with_and_without_a_model_file(run: Run, model: str) -> None:
    outcome = run(model, "--report", "report.txt")
    assert Path("report.txt").read_text() == outcome.out
    outcome = run(model, "--report", "other.txt", "-o", "out.onnx")
    assert Path("other.txt").read_text() == outcome.out


def test_output_may_be_the_input(run: Run, model: str) -> None:
    assert run(model, "-o", model).code == 0
    assert [n.op_type for n in onnx.load(model).graph.node] == ["Conv"]
    assert files() == ["model.onnx"]


def test_adds_rules_of_a_file(run: Run, tmp_path: Path) -> None:
    write(tmp_path, NAMED)
    (tmp_path / "own.py").write_text(
        "from surgeon_passes import Rule\n"
        "positive = Rule.from_text('drop_abs_of_relu', 'y = Abs(Relu(x))', 'y = Relu(x)', exactness='exact')\n"
    )
    proto = parser.parse_model(NAMED.replace("y = Relu (x)", "a = Relu (x)  y = Abs (a)"))
    onnx.save(proto, tmp_path / "abs.onnx")
    outcome = run("abs.onnx", "--rules", "own.py", "-o", "out.onnx")
    assert outcome.code == 0
    assert "drop_abs_of_relu" in outcome.out
    assert [n.op_type for n in onnx.load("out.onnx").graph.node] == ["Relu"]
    assert files() == ["abs.onnx", "model.onnx", "out.onnx", "own.py"]


def test_leaves_rules_out(run: Run, model: str) -> None:
    assert "nodes               2 -> 2" in run(model, "--skip", "fold_batch_norm_into_conv").out


# --- target sets, opset, functions ---------------------------------------------------------------------------------------

SWISH = """
<ir_version: 8, opset_import: ["" : 14]>
g (float[N,3] x) => (float[N,3] y) { y = HardSwish (x) }
"""
CALLS = """
<ir_version: 8, opset_import: ["" : 17, "pkg" : 1]>
g (float[N,3] x) => (float[N,3] y) { a = pkg.Twice (x)  y = pkg.Half (a) }
<domain: "pkg", opset_import: ["" : 17]> Twice (x) => (y) { y = Add (x, x) }
<domain: "pkg", opset_import: ["" : 17]> Half (x) => (y) { two = Constant <value = float {2.0}> ()  y = Div (x, two) }
"""


def test_adds_sets_of_rules(run: Run, tmp_path: Path) -> None:
    outcome = run(write(tmp_path, SWISH), "--set", "npu", "--set", "ort", "-o", "out.onnx")
    assert outcome.code == 0 and "sets npu, ort" in outcome.out
    assert "HardSwish" not in {n.op_type for n in onnx.load("out.onnx").graph.node}


def test_2_an_unknown_set(run: Run, tmp_path: Path) -> None:
    name = write(tmp_path, SWISH)
    assert_refused(run, 2, name, "--set", "npi", "-o", "out.onnx", says="called 'npi' (did you mean 'npu'?)")


def test_upgrades_the_opset(run: Run, tmp_path: Path) -> None:
    outcome = run(write(tmp_path, SWISH), "--opset", "18", "-o", "out.onnx")
    assert outcome.code == 0 and "convert_opset" in outcome.out
    assert onnx.load("out.onnx").opset_import[0].version == 18


@pytest.mark.parametrize(("opset", "says"), [("13", "models are only upgraded"), ("99", "knows opsets up to")])
def test_2_an_opset_that_cannot_be(run: Run, tmp_path: Path, opset: str, says: str) -> None:
    assert_refused(run, 2, write(tmp_path, SWISH), "--opset", opset, "-o", "out.onnx", says=says)


@pytest.mark.parametrize(
    ("options", "left"), [([], 2), (["--inline-functions"], 0), (["--inline", "pkg.H*"], 1), (["--inline", "pkg.*"], 0)]
)
def test_inlines_functions(run: Run, tmp_path: Path, options: list[str], left: int) -> None:
    outcome = run(write(tmp_path, CALLS), *options, "-o", "out.onnx")
    assert outcome.code == 0 and len(onnx.load("out.onnx").functions) == left


def test_2_a_function_that_is_not_there(run: Run, tmp_path: Path) -> None:
    name = write(tmp_path, CALLS)
    assert_refused(run, 2, name, "--inline", "pkg.Twise", "-o", "out.onnx", says="(did you mean 'pkg.Twice'?)")


def test_says_in_the_first_line_that_verification_is_off(run: Run, model: str) -> None:
    assert run(model, "--verify", "off").out.startswith("NOT VERIFIED")


def test_checks_with_real_inputs(run: Run, model: str) -> None:
    np.savez("real.npz", images=np.ones((2, 3, 5, 5), np.float32))
    outcome = run(model, "--data", "real.npz")
    assert outcome.code == 0
    assert "end check           equal" in outcome.out


def test_custom_operators_pass_through_and_are_listed(run: Run, tmp_path: Path) -> None:
    write(tmp_path, CUSTOM)
    outcome = run("model.onnx", "-o", "out.onnx")
    assert outcome.code == 0
    assert "some.custom.Own (1): passed through" in outcome.out
    left = [n for n in onnx.load("out.onnx").graph.node if n.domain == "some.custom"]
    assert [(n.op_type, helper.get_attribute_value(n.attribute[0])) for n in left] == [("Own", 3)]


# --- other codes than 0 --------------------------------------------------------------------------------------------------


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
    assert_refused(run, 6, model, "-o", "locked/out.onnx", says="permission denied")


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


def test_debug_adds_the_traceback(model: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "surgeon_passes", "optimize", "no.onnx", "--debug"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 6
    assert done.stderr.startswith("error: no.onnx")
    assert "Traceback" in done.stderr


# --- the process ---------------------------------------------------------------------------------------------------------


def call(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "surgeon_passes", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_runs_as_a_module_and_is_silent_in_a_pipe(model: str, tmp_path: Path) -> None:
    done = call("optimize", model, "-o", "out.onnx", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert "\r" not in done.stdout
    assert done.stdout.startswith("model.onnx\n")


def test_help_and_version_load_no_heavy_module(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from surgeon_passes.cli import main\n"
        "try:\n"
        "    main(sys.argv[1:], prog_name='surgeon-passes')\n"
        "except SystemExit as stop:\n"
        "    assert not stop.code\n"
        "heavy = {'onnxruntime', 'onnx', 'onnx_graphsurgeon', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    for arguments in (["--help"], ["--version"], ["optimize", "--help"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_help_lists_the_exit_codes(run: Run) -> None:
    text = run("--help").out
    for code in (0, 2, 3, 4, 5, 6, 7):
        assert f"  {code}  " in text


def test_the_console_script_is_installed(model: str, tmp_path: Path) -> None:
    script = Path(sys.executable).with_name("surgeon-passes")
    done = subprocess.run([script, "optimize", model], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "nodes               2 -> 1" in done.stdout


def test_version() -> None:
    done = call("--version", cwd=Path.cwd())
    assert sp.__version__ in done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_shows_progress_on_a_terminal(model: str, tmp_path: Path) -> None:
    import pty

    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "surgeon_passes", "optimize", model]
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=theirs, env=env, text=True) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:
                break
            if not part:
                break
            shown += part
        assert process.stdout is not None
        printed = process.stdout.read()
    os.close(ours)
    assert process.returncode == 0
    assert b"\x1b[" in shown
    assert any(name in shown for name in (b"load", b"fold", b"rewrite", b"end check"))
    assert "\x1b" not in printed
    assert "nodes               2 -> 1" in printed


def test_2_where_the_report_would_overwrite_a_model(tmp_path: Path) -> None:
    place = tmp_path / "model.onnx"
    onnx.save(demo.build(), place)
    held = place.read_bytes()
    for arguments in (["--report", str(place)], ["-o", str(tmp_path / "a"), "--report", str(tmp_path / "a")]):
        done = CliRunner().invoke(main, ["optimize", str(place), *arguments])
        assert done.exit_code == 2 and "give the report a file of its own" in done.output
    assert place.read_bytes() == held and not (tmp_path / "a").exists()
