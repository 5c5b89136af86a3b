"""A process that answers one message with another, and what is said where it does not."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, TypeAlias

from surgeon_passes import memory
from surgeon_passes.errors import SurgeonError
from surgeon_passes.messages import Message, decode, encode
from surgeon_passes.watch import end_with_parent

Reply: TypeAlias = Message
Sample: TypeAlias = Callable[[float, dict[str, int]], None]
"""Told monotonic seconds, and the child's memory."""
SAMPLED_EVERY = 0.004
"""Seconds between two looks at a process's memory."""
WAITED_AT_ONCE = 3600.0
"""Seconds; the system refuses to wait for too many in one call."""
REASON = 160
"""Characters of a reason."""
_CHUNK = 1 << 20


class Stopped(Exception):
    """A child gave no answer. ``status``: "failed" (it said why), "timeout" or "crashed"; ``str()`` is one line.

    ``signal`` is the name of the signal that ended it, or "".
    """

    def __init__(self, status: str, reason: str, signal_name: str = "") -> None:
        reason = " ".join(reason.split())
        super().__init__(reason if len(reason) <= REASON else reason[: REASON - 1] + "…")
        self.status = status
        self.signal = signal_name


class Child:
    """``python -m MODULE`` with ``job`` as its argument. It starts at once; :meth:`begin` waits until it is ready."""

    def __init__(self, module: str, job: Mapping[str, Any]) -> None:
        command = [sys.executable, "-P", "-m", module, json.dumps(job)]
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._complaints, env=_environment()
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._to, False)
        self._said = bytearray()

    def begin(self, timeout: float) -> None:
        """Raises Stopped where it cannot begin."""
        self._answer(time.monotonic() + timeout, timeout, None)

    def ask(self, timeout: float, sample: Sample | None = None, **command: Any) -> Reply:
        """The answer to ``command``; ``sample`` is called again and again while it is waited for. Raises Stopped."""
        end = time.monotonic() + timeout
        try:
            for piece in encode(command):
                self._write(memoryview(piece).cast("B"), end, timeout)
        except OSError:
            raise self._crashed() from None
        return self._answer(end, timeout, sample)

    def _write(self, piece: memoryview, end: float, timeout: float) -> None:
        while piece:
            self._wait((), (self._to,), end, timeout, None)
            with contextlib.suppress(BlockingIOError):
                piece = piece[os.write(self._to, piece[:_CHUNK]) :]

    def _answer(self, end: float, timeout: float, sample: Sample | None) -> Reply:
        while b"\n" not in self._said:
            self._wait((self._from,), (), end, timeout, sample)
            more = os.read(self._from, _CHUNK)
            if not more:
                raise self._crashed()
            self._said += more
        line, _, rest = bytes(self._said).partition(b"\n")
        self._said = bytearray(rest)
        reply = decode(line, lambda size: self._read(size, end, timeout))
        if "failed" in reply:
            raise Stopped("failed", reply["failed"])
        return reply

    def _read(self, size: int, end: float, timeout: float) -> bytearray:
        found = self._said[:size]
        del self._said[:size]
        have = len(found)
        found.extend(bytes(size - have))
        while have < size:
            self._wait((self._from,), (), end, timeout, None)
            more = os.readv(self._from, [memoryview(found)[have:]])
            if not more:
                raise self._crashed()
            have += more
        return found

    def _wait(
        self, reads: tuple[int, ...], writes: tuple[int, ...], end: float, timeout: float, sample: Sample | None
    ) -> None:
        """Until one of these is ready. Raises Stopped when the time is over."""
        while True:
            left = end - time.monotonic()
            if left <= 0:
                raise Stopped("timeout", f"no result after {timeout:g} s")
            some = select.select(reads, writes, [], min(left, SAMPLED_EVERY if sample else WAITED_AT_ONCE))
            if sample is not None:
                sample(time.monotonic(), memory.status(self._process.pid))
            if any(some):
                return

    def _crashed(self) -> Stopped:
        code = self._process.wait()
        self._complaints.seek(0)
        lines = self._complaints.read().decode(errors="replace").strip().splitlines()
        if code < 0:
            name = signal.Signals(-code).name
            return Stopped("crashed", f"killed by {name}", name)
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
    """The child's side: ``prepare`` the answering function, say that it is ready, answer message by message.

    What libraries print goes nowhere. The process ends with its parent; whether it is interrupted is its parent's business.
    """
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    protocol = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    def say(reply: Reply) -> None:
        for piece in encode(reply):
            protocol.write(piece)
        protocol.flush()

    try:
        answer = prepare()
    except Exception as error:
        say(_failed(error))
        return
    say({})
    stream = sys.stdin.buffer
    for line in iter(stream.readline, b""):
        try:
            reply = answer(decode(line, lambda size: _exactly(stream, size)))
        except Exception as error:
            reply = _failed(error)
        say(reply)


def _exactly(stream: IO[bytes], size: int) -> bytearray:
    found = bytearray(size)
    have = 0
    while have < size:
        more = stream.readinto(memoryview(found)[have:])  # type: ignore[attr-defined]
        if not more:
            raise EOFError("the message is cut short")
        have += more
    return found


def _failed(error: Exception) -> Reply:
    return {"failed": str(error) if isinstance(error, SurgeonError) else f"{type(error).__name__}: {error}"}
