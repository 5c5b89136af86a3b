"""Nodes left of every model, with its own dims and with fixed ones, beside the best peer and the authors' deploy form.

    python -m benchmarks.nodes [NAME …]

Models: the wheels of packages.json, and the folder that SURGEON_MODELS names. ``peer`` is the fewest that a peer leaves with
equal outputs, ``deploy`` what the network's authors reach with their own re-parameterisation, as the manifests say it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.entries import Entry, check_of, is_dynamic, models, optimized, some, table
from surgeon_passes.cli.common import guarded, say

Row = dict[str, Any]
COLUMNS = ("model", "before", "ours", "peer", "deploy", "check", "static", "peer", "check")


def measure(entry: Entry, path: Path, verify: str) -> Row:
    counts = entry["nodes"]
    row: Row = {"model": entry["name"], "before": counts["before"], "deploy": counts.get("deploy")}
    row["dynamic"] = {"peer": counts.get("dynamic"), **run(entry, path, False, verify)}
    row["static"] = {"peer": counts.get("static"), **run(entry, path, True, verify)} if is_dynamic(entry) else None
    return row


def run(entry: Entry, path: Path, static: bool, verify: str) -> Row:
    result = optimized(entry, path, static, verify)
    return {"nodes": result.after.nodes, "check": check_of(result)}


def lines(rows: Sequence[Row]) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = [COLUMNS]
    for row in rows:
        one, two = row["dynamic"], row["static"] or {}
        cells = [row["model"], row["before"], one["nodes"], one["peer"], row["deploy"], one["check"]]
        cells += [two.get("nodes"), two.get("peer"), two.get("check")]
        found.append(tuple(cells))
    return found


def summary(rows: Sequence[Row]) -> str:
    """What the counts add up to: against the best peer of each model, and against the deploy forms."""
    sides = [(row["model"], row[kind]) for row in rows for kind in ("dynamic", "static") if row[kind]]
    known = [(model, side) for model, side in sides if side["peer"]]
    ours, peers = sum(side["nodes"] for _, side in known), sum(side["peer"] for _, side in known)
    more = sorted({model for model, side in known if side["nodes"] > side["peer"]})
    short = [row["model"] for row in rows if row["deploy"] and row["dynamic"]["nodes"] > row["deploy"]]
    return "\n".join(
        (
            f"{len(rows)} models; nodes in sum: {ours}, the best peer of each model: {peers}"
            f" ({100 * (1 - ours / peers):.1f} % fewer)"
            if peers
            else f"{len(rows)} models",
            f"more nodes than a peer: {', '.join(more) or 'none'}",
            f"more nodes than the deploy form: {', '.join(short) or 'none'}",
        )
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="part of a model's name")
    parser.add_argument("--verify", choices=("strict", "off"), default="strict")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    tasks = some(((e, p, options.verify) for e, p in models(options.names)), options.names)
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        rows = pool.starmap(measure, tasks, chunksize=1)
    say(json.dumps(rows, indent=1) if options.json else f"{table(lines(rows))}\n{summary(rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main, debug=False))
