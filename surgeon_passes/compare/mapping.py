"""What a decision record tells of two models' tensors: what one became in the other, and by which rules."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from surgeon_passes.errors import UsageError
from surgeon_passes.record.build import FORMAT, VERSION
from surgeon_passes.record.files import read_record


@dataclass(frozen=True, slots=True)
class Told:
    """``pairs``: tensors of A and what they are called in B. ``rules``: by tensor of A, what made it anew."""

    pairs: tuple[tuple[str, str], ...] = ()
    rules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def told_by(record: str | os.PathLike[str] | Mapping[str, Any] | None) -> Told:
    """What a record, or the file of one, tells. Raises ModelError for a file that is none, UsageError for a mapping."""
    if record is None:
        return Told()
    if isinstance(record, Mapping):
        if record.get("format") != FORMAT or record.get("version") != VERSION:
            raise UsageError(f"the mapping is no decision record of version {VERSION}; give what Result.record() gives")
        return _told(record)
    return _told(read_record(record))


def _told(record: Mapping[str, Any]) -> Told:
    """Rewrites follow one another: what one made, a later one may have made anew."""
    now: dict[str, str] = {}
    rules: dict[str, list[str]] = {}
    for match in record["matches"]:
        region = match["region"]
        if match["status"] != "applied" or match["graph"] or region is None:
            continue
        for output in region["outputs"]:
            before, after = output["before"], output["after"]
            if after["constant"] or not before["name"] or not after["name"]:
                continue
            for name in {n for n, current in now.items() if current == before["name"]} | {before["name"]}:
                now[name] = after["name"]
                rules.setdefault(name, []).append(match["rule"])
    return Told(tuple(now.items()), {name: tuple(dict.fromkeys(found)) for name, found in rules.items()})
