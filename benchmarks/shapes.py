"""Dynamic to static, model by model: nodes left and what still computes sizes, with the file's dims and with fixed ones.

    python -m benchmarks.shapes [NAME …]

Models: the wheels of packages.json, and the folder that SURGEON_MODELS names. Beside each count stands the fewest that a
peer leaves with equal outputs, as their manifests say it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.entries import Entry, check_of, is_dynamic, models, optimized, some, table
from surgeon_passes.cli.common import guarded, say

Row = dict[str, Any]
COLUMNS = ("model", "before", "dynamic", "peer", "sizes", "args", "check", "static", "peer", "sizes", "args", "check")


def measure(entry: Entry, path: Path, verify: str) -> Row:
    row: Row = {"model": entry["name"], "before": entry["nodes"]["before"]}
    for kind in ("dynamic", "static"):
        row[kind] = side(entry, path, kind == "static", verify)
        row[kind]["peer"] = entry["nodes"].get(kind)
    return row


def side(entry: Entry, path: Path, static: bool, verify: str) -> Row:
    """One run. ``sizes``: Shape and Size nodes left; ``args``: nodes left with a computed size argument."""
    from surgeon_passes.report.dynamic import count_file

    began = time.perf_counter()
    result = optimized(entry, path, static, verify)
    left = count_file(result.proto)
    return {
        "nodes": result.after.nodes,
        "sizes": left.shape_nodes,
        "args": left.computed.total(),
        "data_dependent": [f"{d.op} '{d.node}': {d.reason}" for d in result.dynamic.data_dependent],
        "check": check_of(result),
        "seconds": round(time.perf_counter() - began, 2),
    }


def lines(rows: list[Row]) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = [COLUMNS]
    for row in rows:
        cells: list[object] = [row["model"], row["before"]]
        for kind in ("dynamic", "static"):
            one = row[kind]
            cells += [one["nodes"], one["peer"], one["sizes"], one["args"], one["check"]]
        found.append(tuple(cells))
    return found


def summary(rows: list[Row]) -> str:
    known = [r for r in rows if r["static"]["peer"]]
    fewer = sum(r["static"]["nodes"] < r["static"]["peer"] for r in known)
    more = [r["model"] for r in rows for k in ("dynamic", "static") if r[k]["nodes"] > (r[k]["peer"] or r[k]["nodes"])]
    text = f"{len(rows)} models; static: fewer nodes than the leanest peer on {fewer} of {len(known)}"
    return f"{text}; more nodes: {', '.join(more) or 'none'}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="part of a model's name")
    parser.add_argument("--verify", choices=("strict", "off"), default="strict")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="rows as JSON, with what is data-dependent")
    options = parser.parse_args()
    tasks = some(((e, p, options.verify) for e, p in models(options.names) if is_dynamic(e)), options.names)
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        rows = pool.starmap(measure, tasks, chunksize=1)
    say(json.dumps(rows, indent=1) if options.json else f"{table(lines(rows))}\n{summary(rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main, debug=False))
