"""The command line: what it does, what it writes, and what it shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, parser

import surgeon_passes as sp
from surgeon_passes.cli import parse_shape
from tests.cli.conftest import Run, assert_refused, files, write

CUSTOM = """
<ir_version: 8, opset_import: ["" : 17, "some.custom" : 1]>
g (float[4] x) => (float[4] y) { a = Identity (x)  y = some.custom.Own <level = 3> (a) }
"""
NAMED = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,3] x) => (float[N,3] y) { y = Relu (x) }
"""


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
