"""A process that answers one JSON line with another, and what is said where it does not."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from surgeon_passes.bench import memory
from surgeon_passes.errors import SurgeonError

Reply: TypeAlias = dict[str, Any]
Sample: TypeAlias = Callable[[float, dict[str, int]], None]
"""Told monotonic seconds, and the child's memory."""
SAMPLED_EVERY = 0.004
"""Seconds between two looks at a process's memory."""
WAITED_AT_ONCE = 3600.0
"""Seconds; the system refuses to wait for too many in one call."""
PR_SET_PDEATHSIG = 1
REASON = 160
"""Characters of a reason."""


class Stopped(Exception):
    """A child gave no answer. ``status``: "failed" (it said why), "timeout" or "crashed"; ``str()`` is one line."""

    def __init__(self, status: str, reason: str) -> None:
        reason = " ".join(reason.split())
        super().__init__(reason if len(reason) <= REASON else reason[: REASON - 1] + "…")
        self.status = status


class Child:
    """``python -m MODULE`` with ``job`` as its argument. It starts at once; :meth:`begin` waits until it is ready."""

    def __init__(self, module: str, job: dict[str, Any]) -> None:
        command = [sys.executable, "-P", "-m", module, json.dumps(job)]
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._complaints, env=_environment()
        )
        self._said = bytearray()

    def begin(self, timeout: float) -> None:
        """Raises Stopped where it cannot begin."""
        self._answer(timeout, None)

    def ask(self, timeout: float, sample: Sample | None = None, **command: Any) -> Reply:
        """The answer to ``command``; ``sample`` is called again and again while it is waited for. Raises Stopped."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise self._crashed() from None
        return self._answer(timeout, sample)

    def _answer(self, timeout: float, sample: Sample | None) -> Reply:
        assert self._process.stdout is not None
        stream = self._process.stdout.fileno()
        end = time.monotonic() + timeout
        while b"\n" not in self._said:
            left = end - time.monotonic()
            if left <= 0:
                raise Stopped("timeout", f"no result after {timeout:g} s")
            ready, _, _ = select.select([stream], [], [], min(left, SAMPLED_EVERY if sample else WAITED_AT_ONCE))
            if sample is not None:
                sample(time.monotonic(), memory.status(self._process.pid))
            if ready:
                more = os.read(stream, 1 << 16)
                if not more:
                    raise self._crashed()
                self._said += more
        line, _, rest = bytes(self._said).partition(b"\n")
        self._said = bytearray(rest)
        reply: Reply = json.loads(line)
        if "failed" in reply:
            raise Stopped("failed", reply["failed"])
        return reply

    def _crashed(self) -> Stopped:
        code = self._process.wait()
        self._complaints.seek(0)
        lines = self._complaints.read().decode(errors="replace").strip().splitlines()
        if code < 0:
            return Stopped("crashed", f"killed by {signal.Signals(-code).name}")
        return Stopped("crashed", f"exit code {code}: {lines[-1] if lines else 'it said nothing'}")

    def close(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._complaints):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]


def _environment() -> dict[str, str]:
    """This package is found by the child as it is here."""
    import surgeon_passes

    here = str(Path(surgeon_passes.__file__).parent.parent)
    paths = [here, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def serve(prepare: Callable[[], Callable[[Reply], Reply]]) -> None:
    """The child's side: ``prepare`` the answering function, say that it is ready, answer line by line.

    What libraries print goes nowhere. The process ends with its parent, also in the midst of a call (Linux).
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    protocol = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    def say(reply: Reply) -> None:
        protocol.write(json.dumps(reply) + "\n")
        protocol.flush()

    try:
        answer = prepare()
    except Exception as error:
        say(_failed(error))
        return
    say({})
    for line in sys.stdin:
        try:
            reply = answer(json.loads(line))
        except Exception as error:
            reply = _failed(error)
        say(reply)


def _failed(error: Exception) -> Reply:
    return {"failed": str(error) if isinstance(error, SurgeonError) else f"{type(error).__name__}: {error}"}
