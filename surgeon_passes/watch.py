"""What is being done that may crash or never end, told to a process that watches.

Without such a process, as in a library, nothing is told and nothing is bounded.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import signal
import struct
import time
from typing import NamedTuple

SECONDS = 120.0
"""What one call of foreign code (ONNX Runtime, a rule) may take, unless somebody says otherwise."""

_HEAD = struct.Struct("ddH")
"""monotonic seconds of its end, seconds that it may take, bytes of its name"""
_SIZE = 4096
_PR_SET_PDEATHSIG = 1


class Task(NamedTuple):
    """``what`` is being done, "" for nothing that is watched; it may take ``seconds``, until ``end`` (monotonic)."""

    what: str = ""
    seconds: float = 0.0
    end: float = 0.0

    @property
    def is_over(self) -> bool:
        return bool(self.what) and time.monotonic() > self.end


class Watch:
    """Memory that two processes share: one says what it does, the other looks. Made before the second is forked."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, _SIZE)
        self.seconds = SECONDS

    def say(self, what: str) -> None:
        text = what.encode(errors="replace")[: _SIZE - _HEAD.size]
        self._shared[_HEAD.size : _HEAD.size + len(text)] = text
        self._shared[: _HEAD.size] = _HEAD.pack(time.monotonic() + self.seconds, self.seconds, len(text))

    def task(self) -> Task:
        """What was said last. Who acts on it looks twice: nothing keeps it from being half said."""
        end, seconds, size = _HEAD.unpack_from(self._shared, 0)
        text = self._shared[_HEAD.size : _HEAD.size + size]
        return Task(text.decode(errors="replace"), seconds, end)


class within:  # noqa: N801
    """A block in which ``what`` is done: ``with within("ONNX Runtime"): …``."""

    __slots__ = ("_outer", "_what")
    _watch: Watch | None = None
    _now = ""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        if within._watch is not None:
            self._outer = within._now
            within._now = self._what
            within._watch.say(self._what)

    def __exit__(self, *_: object) -> None:
        if within._watch is not None:
            within._now = self._outer
            within._watch.say(self._outer)


def tell(watch: Watch | None) -> None:
    """From now on ``watch`` is told; None: nobody is."""
    within._watch = watch


def allow(seconds: float) -> None:
    """What one call may take from now on, where somebody watches."""
    if within._watch is not None:
        within._watch.seconds = seconds


def end_with_parent() -> None:
    """This process ends with its parent, also in the midst of a call (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
