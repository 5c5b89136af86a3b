"""What was measured, as data; JSON and back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from surgeon_passes.bench.tools import OFF, ONNXSIM, OURS
from surgeon_passes.errors import ModelError
from surgeon_passes.timing.interleaved import Ratio

FORMAT = 1
BYTES_FACTOR, BYTES_MORE = 1.1, 64 * 1024
"""A result may have this many times the bytes of the original, and this many more."""


@dataclass
class Row:
    """One tool on one model, or another form of the model that was given as a file."""

    tool: str
    """its name; that of the file"""
    version: str
    status: str = "ok"
    """ok, failed (with an error), crashed, timeout"""
    reason: str = ""
    seconds: list[float] = field(default_factory=list)
    """of each call; imports, and in span "call" reading the file, not counted"""
    cpu: list[float] = field(default_factory=list)
    peak: int | None = None
    """bytes of VmHWM during the first call, above VmRSS before it; None where the system does not tell"""
    anon: int | None = None
    """the same of RssAnon, sampled"""
    nodes: int | None = None
    bytes: int | None = None
    check: str = ""
    """of the result: equal, different, inconclusive, not run, crashed, timeout"""
    check_reason: str = ""
    error: float | None = None
    is_too_big: bool = False
    ms: float | None = None
    """median of one run at ONNX Runtime's default level"""
    ratio: Ratio | None = None
    """of that over the original's"""
    ours: Ratio | None = None
    """of our result's over that"""

    @property
    def counts(self) -> bool:
        """Whether there is a result that was shown equal and is within the byte budget: no other is ranked."""
        return self.status == "ok" and self.check == "equal" and not self.is_too_big

    @property
    def best(self) -> float | None:
        return min(self.seconds, default=None)

    @property
    def median(self) -> float | None:
        return median(self.seconds) if self.seconds else None

    @property
    def outcome(self) -> str:
        """In a word what became of it."""
        if self.status != "ok":
            return self.status
        if self.check == "equal" and self.is_too_big:
            return "too big"
        return {"different": "differs", "not run": "not checked"}.get(self.check, self.check)


@dataclass
class Measured:
    """One model; ``rows`` in the order of the tools."""

    name: str
    nodes: int
    bytes: int
    rows: list[Row] = field(default_factory=list)
    ms: float | None = None
    latency_reason: str = ""
    """why no latency was measured"""
    runtime: float | None = None
    """seconds that ONNX Runtime needs to load original and our result and to run each once, where that was asked for"""
    runtime_cpu: float | None = None

    def row(self, tool: str) -> Row | None:
        return next((row for row in self.rows if row.tool == tool), None)

    @property
    def ranked(self) -> list[Row]:
        """Rows that count, fewest nodes first, then fewest bytes; behind them the others."""
        return sorted(self.rows, key=lambda r: (not r.counts, (r.nodes or 0, r.bytes or 0) if r.counts else ()))

    def budget(self, size: int) -> bool:
        return size <= BYTES_FACTOR * self.bytes + BYTES_MORE


@dataclass(frozen=True)
class Shares:
    """Ratios of seconds on one model: ours over onnxsim's, and what of ours is verification."""

    strict: float
    less_runtime: float | None
    """strict less what ONNX Runtime needs to load and run original and result once"""
    off: float
    verification: float
    """(strict - off) / strict"""


def shares(measured: Measured, cpu: bool = False) -> Shares | None:
    """None unless onnxsim and both of ours gave a result. Best calls; ``cpu`` takes CPU seconds."""
    rows = [measured.row(name) for name in (OURS, OFF, ONNXSIM)]
    times = [
        min(row.cpu if cpu else row.seconds, default=0.0) for row in rows if row is not None and row.status == "ok"
    ]
    if len(times) < 3 or not all(times):
        return None
    strict, off, sim = times
    runtime = measured.runtime_cpu if cpu else measured.runtime
    less = None if runtime is None else (strict - runtime) / sim
    return Shares(strict / sim, less, off / sim, (strict - off) / strict)


def every_row(models: Sequence[Measured], tool: str) -> Iterator[tuple[Measured, Row]]:
    """A tool's rows on all models that it was tried on."""
    for measured in models:
        row = measured.row(tool)
        if row is not None:
            yield measured, row


def to_json(models: Sequence[Measured], about: dict[str, Any]) -> str:
    """``about``: what the reader should know of the machine and of the options."""
    return json.dumps({"format": FORMAT, **about, "models": [asdict(m) for m in models]}, indent=1)


def from_json(text: str, name: str) -> list[Measured]:
    """Raises ModelError where ``text`` is not what :func:`to_json` writes."""
    try:
        held = json.loads(text)
        if held["format"] != FORMAT:
            raise ModelError(f"{name}: measurements of format {held['format']}, not {FORMAT}")
        return [_measured(one) for one in held["models"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{name}: no measurements of this program ({type(error).__name__}: {error})") from None


def _measured(held: dict[str, Any]) -> Measured:
    return Measured(**{**held, "rows": [_row(row) for row in held["rows"]]})


def _row(held: dict[str, Any]) -> Row:
    return Row(**{**held, **{name: Ratio(**held[name]) if held.get(name) else None for name in ("ratio", "ours")}})
