"""What the kernel says of memory, and bounds of it. Only Linux tells; elsewhere nothing is known."""

from __future__ import annotations

import contextlib
import ctypes
import gc
from pathlib import Path

from surgeon_passes.errors import UsageError

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


def available() -> int | None:
    """Bytes that new processes may take without others being swapped out; None where they cannot be told."""
    return _of_machine("MemAvailable")


def total() -> int | None:
    """Bytes of memory and swap of the machine; None where they cannot be told."""
    held, swap = _of_machine("MemTotal"), _of_machine("SwapTotal")
    return None if held is None else held + (swap or 0)


def _of_machine(name: str) -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), None)


def bound(limit: int | None) -> None:
    """Let this process hold at most ``limit`` bytes of its own, where the system can do that: allocations beyond fail.

    Code and files that are mapped do not count.
    """
    if limit is None:
        return
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        soft = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def parse_bytes(size: int | str, what: str) -> int:
    """Bytes of 4096, "64KiB", "1MiB", "2GB". Raises UsageError, naming ``what``, for anything else."""
    try:
        found = size if isinstance(size, int) else _parse(size.strip())
        if found < 0 or isinstance(size, bool):
            raise ValueError(size)
        return found
    except (ValueError, OverflowError, AttributeError):
        raise UsageError(f"{what} is '{size}', not a number of bytes such as 4096, 64KiB or 1MiB") from None


def _parse(text: str) -> int:
    units = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
    for unit in sorted(units, key=len, reverse=True):
        if text.endswith(unit):
            return int(float(text.removesuffix(unit)) * units[unit])
    return int(text)
