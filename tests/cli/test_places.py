"""Places that are full, closed or read-only: one line, the code for files, and nothing half-written."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from surgeon_passes import demo
from surgeon_passes.model.files import write_proto
from tests.cli.conftest import Run, assert_refused, files
from tests.models import model as parsed

HERE = Path(__file__).parents[2]


def command(
    folder: Path, *arguments: str, limit: int | None = None, **options: object
) -> subprocess.CompletedProcess[str]:
    """``surgeon-passes optimize``; no file that it writes may have more than ``limit`` bytes."""

    def bound() -> None:
        import resource

        if limit is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        [sys.executable, "-m", "surgeon_passes", "optimize", *arguments],
        cwd=folder,
        env=environment,
        preexec_fn=bound,
        check=False,
        text=True,
        **{"capture_output": True, **options},
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    onnx.save(demo.build(), tmp_path / "demo.onnx")
    return tmp_path


@pytest.mark.parametrize("external", [False, True])
def test_where_a_file_cannot_be_written_to_its_end(tmp_path: Path, external: bool) -> None:
    """As on a disk that is full: the older output, and its data, stay."""
    made = parsed(
        "g (float[N,64] x) => (float[N,64] y) { a = MatMul (x, w) y = Relu (a) }", w=np.eye(64, dtype=np.float32)
    )
    write_proto(made, tmp_path / "demo.onnx", external=external)
    held = {"out.onnx": b"older", "out.onnx.data": b"older data", "report.txt": b"older report"}
    for name, content in held.items():
        (tmp_path / name).write_bytes(content)
    before = sorted(os.listdir(tmp_path))
    done = command(tmp_path, "demo.onnx", "-o", "out.onnx", limit=8192)
    place = "out.onnx.data" if external else "out.onnx"
    assert done.returncode == 6 and done.stderr == f"error: {place}: cannot be written (File too large)\n"
    assert sorted(os.listdir(tmp_path)) == before
    assert all((tmp_path / name).read_bytes() == content for name, content in held.items())
    assert command(tmp_path, "demo.onnx", "--report", "report.txt", limit=16).returncode == 6
    assert (tmp_path / "report.txt").read_bytes() == b"older report" and sorted(os.listdir(tmp_path)) == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_where_standard_output_is_full(folder: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = command(folder, "demo.onnx", "-o", "out.onnx", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 6
    assert done.stderr == "error: standard output cannot be written (No space left on device)\n"
    assert os.listdir(folder) == ["demo.onnx"]


def test_where_nobody_reads_standard_output(folder: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    done = command(folder, "demo.onnx", "-o", "out.onnx", capture_output=False, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")
    onnx.checker.check_model(onnx.load(folder / "out.onnx"))


@pytest.mark.parametrize("place", ["/dev/full", "/dev/null", "/proc/nothing"])
def test_places_that_are_no_files(run: Run, model: str, place: str) -> None:
    for option in ("-o", "--report"):
        assert_refused(run, 6, model, option, place, says=f"{place}: cannot be written (")


def test_a_file_system_that_is_read_only(run: Run, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for who may write everywhere: what the system says is passed on."""
    write: Callable[..., int] = Path.write_bytes

    def refuses(path: Path, data: bytes) -> int:
        if path.name.endswith(".tmp"):
            raise OSError(30, os.strerror(30))
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", refuses)
    for option in ("-o", "--report"):
        assert_refused(run, 6, model, option, "out", says="out: cannot be written (Read-only file system)")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_may_not_be_written(run: Run, model: str) -> None:
    Path("out.onnx").write_bytes(b"older")
    Path("out.onnx").chmod(stat.S_IRUSR)
    before = files()
    assert_refused(run, 6, model, "-o", "out.onnx", says="out.onnx: cannot be written (permission denied)")
    assert files() == before and Path("out.onnx").read_bytes() == b"older"
