"""What the kernel says of a process's memory. Only Linux tells; elsewhere nothing is known."""

from __future__ import annotations

import contextlib
import ctypes
import gc
from pathlib import Path

ANON, RESIDENT, PEAK = "RssAnon", "VmRSS", "VmHWM"


def status(process: int | str = "self") -> dict[str, int]:
    """Bytes of RssAnon, VmRSS and VmHWM of a process; {} where they cannot be read."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        name, _, value = line.partition(":")
        if name in (ANON, RESIDENT, PEAK):
            found[name] = int(value.split()[0]) * 1024
    return found


def settle() -> dict[str, int]:
    """This process's :func:`status` once freed memory is given back; its VmHWM begins anew, where the kernel allows it."""
    gc.collect()
    with contextlib.suppress(
        OSError, AttributeError
    ):  # else what earlier calls freed would hide what the next one takes
        ctypes.CDLL(None).malloc_trim(0)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return status()
