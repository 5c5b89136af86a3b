"""Headline figures, and the verdict in one line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Record = Mapping[str, Any]

Size = int | str | None

_TERM = re.compile(r"(?:(?P<factor>\d+)\*)?(?P<dims>[^\W\d]\w*(?:\*[^\W\d]\w*)*)")
"""A size that is a number times some dims."""


def figures(record: Record) -> list[dict[str, Any]]:
    """{"name", "kind", "before", "after"} each; "text" in the place of what is not known, or of the sizes at which
    it was counted; "per" names dims that both are to be multiplied by."""
    before, after = record["before"], record["after"]
    found = [
        _figure("Nodes", "count", before["nodes"], after["nodes"]),
        _figure("File size", "bytes", record["source"]["bytes"], record["result"]["bytes"]),
        _figure("Parameters", "big", before["parameters"], after["parameters"]),
        _macs(before, after),
    ]
    latency = record["latency"]
    if latency is not None and not latency["reason"]:
        found.append(_figure("Latency", "ms", latency["before_ms"], latency["after_ms"]))
    return found


def _figure(name: str, kind: str, before: Any, after: Any, **more: str) -> dict[str, Any]:
    return {"name": name, "kind": kind, "before": before, "after": after, **more}


def _macs(before: Record, after: Record) -> dict[str, Any]:
    found = sizes(before["macs"], after["macs"])
    if found is not None:
        first, second, per = found
        return _figure("MACs", "big", first, second, **({"per": per} if per else {}))
    at = [side["macs_at"] for side in (before, after)]
    if at[0]["sizes"] == at[1]["sizes"] and None not in (at[0]["macs"], at[1]["macs"]):
        return _figure("MACs", "big", at[0]["macs"], at[1]["macs"], text="at the end check's sizes")
    unknown = [side["macs_unknown"] for side in (before, after) if side["macs"] is None]
    if unknown:
        return _figure("MACs", "big", None, None, text=f"not known of {unknown[0][0]}" if unknown[0] else "not known")
    same = ", as before" if before["macs"] == after["macs"] else ""
    return _figure("MACs", "big", None, None, text=f"by the sizes of inputs{same}")


def sizes(before: Size, after: Size) -> tuple[int, int, str] | None:
    """Two sizes as numbers, and the dims that both are to be multiplied by ("" where none); None where they have no such
    form in common."""
    terms = _term(before), _term(after)
    if terms[0][0] is None or terms[1][0] is None:
        return None
    found = {per for factor, per in terms if factor != 0}
    if len(found) > 1:
        return None
    return terms[0][0], terms[1][0], found.pop() if found else ""


def _term(size: Size) -> tuple[int | None, str]:
    """(factor, dims) of a size; (None, "") of a sum, and of what is not known."""
    if isinstance(size, int):
        return size, ""
    found = None if size is None else _TERM.fullmatch(size)
    return (int(found["factor"] or 1), found["dims"]) if found else (None, "")


def verdict(record: Record) -> dict[str, str]:
    """{"tone", "title", "text"}: what the checks say of the result."""
    checks = record["checks"]
    end, verdicts = checks["end"], checks["verdicts"]
    rewrites = [f"{number} rewrite{'s' * (number != 1)} {name}" for name, number in verdicts.items() if name != "none"]
    if checks["refuted"]:
        rewrites.append(f"{checks['refuted']} refuted and undone")
    tail = ", ".join(rewrites) or "nothing was rewritten"
    if checks["checker"]:
        return {"tone": "bad", "title": "Not valid", "text": f"The ONNX checker: {checks['checker']}"}
    if checks["mode"] == "off":
        return {"tone": "warn", "title": "Not verified", "text": "Verification was switched off."}
    if end["status"] == "off":
        return {
            "tone": "warn",
            "title": "No end check",
            "text": f"Original and result were not run as a whole; {tail}.",
        }
    error = "" if end["error"] is None else f"largest error {_short(end['error'])}"
    error += f" at '{end['output']}'" if error and end["output"] else ""
    said = "; ".join(filter(None, (error, end["reason"], tail)))
    tone = {"equal": "good", "different": "bad"}.get(end["status"], "warn")
    title = {"equal": "Equal", "different": "Different", "not run": "Not run"}.get(end["status"], "Inconclusive")
    return {"tone": tone, "title": title, "text": f"{said[:1].upper()}{said[1:]}."}


def _short(error: float | str) -> str:
    return error if isinstance(error, str) else f"{error:.3g}"
