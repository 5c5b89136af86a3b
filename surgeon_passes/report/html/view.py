"""What the page shows, from a record: figures, tables cut to a size that opens quickly, drawings of regions."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from surgeon_passes.decisions import APPLIED, UNDONE
from surgeon_passes.report.html.figures import figures, sizes, verdict
from surgeon_passes.report.html.regions import Names, drawing_of, is_drawable, type_text
from surgeon_passes.report.html.times import latency_table, stage_table
from surgeon_passes.report.reasons import kind_of

Record = Mapping[str, Any]

MATCHES_BYTES = 3_500_000
"""JSON of matches that the page holds; the record has all."""
DRAWINGS_BYTES = 1_200_000
REASONS = 60
PLACES = 30
"""Places that are listed of each reason."""
ALWAYS = ("rule", "pass", "root", "status")
LISTED = 50
"""Rows of the tables of what is dynamic, of what is left, and of findings."""
NAMED = 12
"""Nodes or tensors that a row names; a match of more names the first."""


def view_of(record: Record) -> dict[str, Any]:
    """The data of the page; see ``main.js`` for what is done with each part."""
    names = Names()
    matches, drawings, counts = _matches(record["matches"], names)
    declined = _declined(record["near_misses"])
    return {
        "title": PurePath(record["source"]["path"]).name or record["source"]["path"],
        "created": record["created"].replace("T", " ").replace("+00:00", " UTC"),
        "facts": _facts(record),
        "verdict": verdict(record),
        "figures": figures(record),
        "removed": _removed(record["matches"]),
        "operators": _operators(record),
        "matches": matches,
        "drawings": drawings,
        "names": names.found,
        **counts,
        "declined": declined[:REASONS],
        "declined_more": sum(group["times"] for group in declined[REASONS:]),
        "dynamic": _dynamic(record["dynamic"]),
        "health": [_finding(found) for found in record["health"][:LISTED]],
        "blocks": _blocks(record["blocks"]),
        "latency": latency_table(record["latency"]),
        "stages": stage_table(record["stages"]),
        "passes": _passes(record["passes"]),
        "rounds": _rounds(record["run"]),
        "notes": [*record["settings"], *record["notes"]],
        "origin": _origin(record),
        "pipeline": record["options"]["pipeline"] or "",
        "footer": f"Written by surgeon-passes {record['tools'].get('surgeon-passes', '')}. The JSON record of the run has "
        "all of this, and what is cut short here.",
    }


# --- matches ---------------------------------------------------------------------------------------------------------


def _matches(found: Sequence[Record], names: Names) -> tuple[list[Any], list[Any], dict[str, int]]:
    """Rows, drawings, and how many there were; what was undone comes first where not all fit."""
    ordered = sorted(found, key=lambda match: match["status"] != UNDONE)
    rows: list[tuple[int, dict[str, Any]]] = []
    canvas = _Canvas(names)
    room = MATCHES_BYTES
    for match in ordered:
        row = _without_drawn(match, {**_row(match), **canvas.draw(match["region"])})
        room -= _size(row)
        if room < 0:
            break
        rows.append((match["number"], row))
    drawable = sum(is_drawable(match["region"]) for match in found)
    counts = {"matches_more": len(found) - len(rows), "drawn": len(canvas.drawings), "drawable": drawable}
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])], canvas.drawings, counts


def _without_drawn(match: Record, row: dict[str, Any]) -> dict[str, Any]:
    """The row less the labels that its drawing has."""
    if "drawing" in row:
        row.pop("made", None)
        if sorted(match["nodes"]) == sorted(node["label"] for node in _nodes(match["region"]["removed"])):
            row.pop("nodes", None)
    return row


class _Canvas:
    """Draws regions as long as there is room for them."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.drawings: list[dict[str, Any]] = []
        self._room = DRAWINGS_BYTES

    def draw(self, region: Record | None) -> dict[str, Any]:
        """What a match's row says of its drawing; where there is none it names the tensors itself."""
        if region is None:
            return {}
        if not is_drawable(region):
            return {"undrawn": "Not drawn, for its size: the JSON record has the region.", **_boundary(region)}
        held = len(self.names.found)
        drawing = drawing_of(region, self.names)
        self._room -= _size(drawing) + _size(self.names.found[held:])
        if self._room < 0:
            self.names.forget(held)
            return {
                "undrawn": "Not drawn, to keep this file small: the JSON record has the region.",
                **_boundary(region),
            }
        self.drawings.append(drawing)
        return {"drawing": len(self.drawings) - 1}


def _boundary(region: Record) -> dict[str, Any]:
    return {
        "inputs": [[t["name"], type_text(t)] for t in region["inputs"][:NAMED]],
        "outputs": [[pair["after"]["name"], type_text(pair["after"])] for pair in region["outputs"][:NAMED]],
    }


def _size(value: object) -> int:
    return len(json.dumps(value, separators=(",", ":")))


def _row(match: Record) -> dict[str, Any]:
    """What is said of a match, less what there is nothing to say of."""
    region, place = match["region"], match["place"]
    row = {
        "rule": match["rule"],
        "pass": match["pass"],
        "graph": match["graph"],
        "root": match["root"],
        "status": match["status"],
        "verdict": match["verdict"],
        "reason": match["reason"],
        "nodes": _some(match["nodes"]),
        "error": _rounded(match["max_error"]),
        "mean": _rounded(match["mean_error"]),
        "tensor": match["tensor"],
        "seconds": _rounded(match["seconds"]),
        "depth": None if place is None else place["depth"],
    }
    whole = row if region is None else {**row, **_changes(region)}
    return {key: value for key, value in whole.items() if key in ALWAYS or value not in (None, "", [])}


def _changes(region: Record) -> dict[str, Any]:
    before, after = _nodes(region["removed"]), _nodes(region["added"])
    macs = sizes(region["macs_before"], region["macs_after"])
    is_same = region["macs_before"] is not None and region["macs_before"] == region["macs_after"]
    return {
        "made": _some([node["label"] for node in after]),
        "before": len(before),
        "after": len(after),
        "macs": macs,
        "cost": 0 if is_same else None,
        "parameters": [region["parameters_before"], region["parameters_after"]],
        "folds": _folds(region),
    }


def _rounded(number: float | str | None) -> float | str | None:
    return float(f"{number:.3g}") if isinstance(number, (int, float)) else number


def _nodes(nodes: Iterable[Record]) -> list[Record]:
    return [node for node in nodes if node["op"] != "Constant"]


def _folds(region: Record) -> list[tuple[str, str]]:
    """(name, what is told) of each weight that is new, and of the whole fold."""
    found = []
    for weight in region["weights"][:NAMED]:
        text = " is new"
        if isinstance(weight["distance"], float) and isinstance(weight["norm"], float):
            text = f": L2 distance {weight['distance']:.4g} from one of norm {weight['norm']:.4g}"
        found.append((weight["tensor"], text))
    settings = [f"{key} {region[key]:.4g}" for key in ("epsilon", "group") if region[key] is not None]
    return [*found, ("", ", ".join(settings))] if found and settings else found


def _removed(matches: Iterable[Record]) -> list[tuple[str, int, int]]:
    """(rule, nodes that it removed, matches), most first."""
    gone: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for match in matches:
        region = match["region"]
        if match["status"] == APPLIED and region is not None:
            gone[match["rule"]] += len(_nodes(region["removed"])) - len(_nodes(region["added"]))
            times[match["rule"]] += 1
    return [(rule, number, times[rule]) for rule, number in gone.most_common() if number > 0]


def _operators(record: Record) -> list[tuple[str, int, int]]:
    before, after = record["before"]["operators"], record["after"]["operators"]
    rows = [(op, before.get(op, 0), after.get(op, 0)) for op in {**before, **after}]
    return sorted(rows, key=lambda row: (-max(row[1:]), row[0]))


def _declined(misses: Iterable[Record]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for miss in misses:
        groups[miss["rule"], kind_of(miss["reason"])].append(miss)
    found = []
    for (rule, kind), group in sorted(groups.items(), key=lambda item: -len(item[1])):
        is_same = len({miss["reason"] for miss in group}) == 1
        found.append(
            {
                "rule": rule,
                "reason": group[0]["reason"] if is_same else kind,
                "times": len(group),
                "places": [[_at(m["root"], m["graph"]), "" if is_same else m["reason"]] for m in group[:PLACES]],
                "more": max(0, len(group) - PLACES),
            }
        )
    return found


# --- the model -------------------------------------------------------------------------------------------------------


def _dynamic(dynamic: Record) -> dict[str, Any]:
    if dynamic["is_static"]:
        text = "Nothing: every tensor has a fixed shape."
    else:
        parts = [f"inputs {_listed(dynamic['inputs'])}"] if dynamic["inputs"] else []
        left = len(dynamic["items"])
        parts += [f"{left} tensor{'s' * (left != 1)}, of which the first is '{dynamic['items'][0]}'"] if left else []
        text = f"Not fixed: {'; '.join(parts)}."
    sources = (("Data-dependent operators", "data_dependent"), ("Operators of unknown size", "unknown"))
    tables = [
        _table(title, ("Operator", "Why", "Makes dynamic"), [_dynamic_row(s, s["tensors"]) for s in dynamic[key]])
        for title, key in sources
    ]
    sizes = [_dynamic_row(s, s["needs"]) for s in dynamic["shape_dependent"]]
    tables.append(_table("Nodes that compute with sizes", ("Node", "Why", "Needs"), sizes))
    return {"text": text, "tables": [table for table in tables if table["rows"]]}


def _dynamic_row(source: Record, listed: Sequence[str]) -> list[str]:
    return [_at(source["node"], source["graph"]), source["reason"], _listed(listed)]


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[str, Any]:
    return {"title": title, "columns": list(columns), "rows": rows[:LISTED], "more": max(0, len(rows) - LISTED)}


def _blocks(blocks: Sequence[Record]) -> dict[str, Any]:
    rows = [
        [
            _at(b["node"], b["graph"]),
            b["tensor"],
            " + ".join(way or b["tensor"] for way in b["branches"]),
            b["reason"],
        ]
        for b in blocks
    ]
    return _table("Multi-branch blocks that are left", ("Sum", "On", "Branches", "Why"), rows)


def _finding(found: Record) -> dict[str, Any]:
    return {**found, "where": found["where"][:NAMED], "more": max(0, len(found["where"]) - NAMED)}


def _at(node: str, graph: str) -> str:
    return f"{node} in {graph}" if graph else node


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _some(names: Sequence[str]) -> list[str]:
    more = [f"… and {len(names) - NAMED} more"] if len(names) > NAMED else []
    return [*names[:NAMED], *more]


# --- the run ---------------------------------------------------------------------------------------------------------


def _facts(record: Record) -> list[tuple[str, str]]:
    source = record["source"]
    producer = f"{source['producer']} {source['producer_version']}".strip()
    facts = [("Producer", producer or "not said"), ("Opset", _opsets(source["opsets"])), ("IR", source["ir_version"])]
    return [*((label, str(value)) for label, value in facts), ("SHA-256", (source["sha256"] or "not known")[:12])]


def _opsets(opsets: Mapping[str, int]) -> str:
    return ", ".join(f"{domain} {number}".strip() for domain, number in opsets.items())


def _passes(steps: Sequence[Record]) -> list[dict[str, Any]]:
    """One row a pass, in the order of their first runs."""
    by_name: dict[str, list[Record]] = defaultdict(list)
    for step in steps:
        by_name[step["name"]].append(step)
    return [
        {
            "name": name,
            "runs": len(group),
            "active": sum(step["activated"] for step in group),
            "nodes": sum(step["nodes_after"] - step["nodes_before"] for step in group),
            "seconds": sum(step["seconds"] for step in group),
        }
        for name, group in by_name.items()
    ]


def _rounds(run: Record) -> str:
    ended = "converged after" if run["converged"] else "stopped, without converging, after"
    return f"{ended} {run['iterations']} round{'s' * (run['iterations'] != 1)}"


def _origin(record: Record) -> list[tuple[str, str]]:
    source, result, options = record["source"], record["result"], record["options"]
    rows = [
        ("Model", source["path"]),
        ("SHA-256", source["sha256"]),
        ("SHA-256 of the result", result["sha256"]),
        ("Inputs", _signature(source["inputs"])),
        ("Outputs", _signature(source["outputs"])),
        ("Sizes of the end check", ", ".join(f"{dim} = {n}" for dim, n in record["after"]["macs_at"]["sizes"].items())),
        ("Verification", options["verify"]["mode"]),
        ("Skipped", ", ".join(options["skip"])),
        ("Kept", ", ".join(options["keep"])),
        ("Only", options["only"]),
        ("Random seed", str(record["seed"])),
        ("Seconds", f"{record['run']['seconds']:.2f}"),
        ("Versions", ", ".join(f"{name} {number}" for name, number in record["tools"].items())),
    ]
    return [(term, value) for term, value in rows if value]


def _signature(values: Iterable[Record]) -> str:
    return "; ".join(f"{v['name']}: {type_text(v)}".rstrip(": ") for v in values)
