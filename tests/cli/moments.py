"""Runs of the command that are told to end at random moments, and what they leave: ``python -m tests.cli.moments 50``.

Each is a fork of a process that has loaded everything already: the moments fall into the work, not into imports.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import onnx

from surgeon_passes import demo
from surgeon_passes.cli import entry
from surgeon_passes.pipeline import Registry, optimize

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
OLDER = b"older"


def command(folder: Path) -> int:
    """The process of ``surgeon-passes optimize``, started in ``folder``."""
    held = signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)
    process = os.fork()
    if process:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
        return process
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # else it would raise where nothing catches it yet
    signal.pthread_sigmask(signal.SIG_SETMASK, held)
    os.chdir(folder)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.argv = ["surgeon-passes", "optimize", "demo.onnx", "--no-latency", "-o", "out.onnx"]
    code = 1
    try:
        entry()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        os._exit(code)


def code_of(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def outcomes(count: int, seed: int) -> Iterator[str]:
    """One word or two of each run. Raises AssertionError where something is lost, half-written or left over."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        given, out = folder / "demo.onnx", folder / "out.onnx"
        onnx.save(demo.build(), given)
        held = given.read_bytes()
        for _ in range(2):
            began = time.monotonic()
            assert code_of(command(folder)) == 0
            whole = time.monotonic() - began
        made = out.read_bytes()
        for _ in range(count):
            out.write_bytes(OLDER)
            number = draw.choice(NUMBERS)
            process = command(folder)
            time.sleep(draw.uniform(0, 1.1 * whole))
            os.kill(process, number)
            code = code_of(process)
            now = out.read_bytes()
            assert code in (0, 128 + number, -number), code
            assert now in (OLDER, made) and (now == made or code), (code, len(now))
            assert given.read_bytes() == held and {p.name for p in folder.iterdir()} == {"demo.onnx", "out.onnx"}
            yield f"{'written' if now == made else 'as it was'}, {'ended' if code else 'done'}"


def main() -> None:
    count, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    Registry.installed()
    optimize(demo.build(), verify="off")
    import onnxruntime  # noqa: F401  loaded, not used: no thread of it must exist where this process forks

    for words, times in sorted(Counter(outcomes(count, seed)).items()):
        print(f"{times:5}  {words}")


if __name__ == "__main__":
    main()
