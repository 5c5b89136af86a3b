"""How the time of ``sp.optimize``, verification on, grows with the nodes of a model.

    python -m benchmarks.growth --kind chain sum --sizes 1000 10000 100000

Each size of each kind (:mod:`benchmarks.scale`) is optimised in a process of its own. CPU seconds count, so that a busy
machine disturbs less.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.phases import RUNTIME, watched
from benchmarks.scale import KINDS, shuffled

SIZES = (1000, 10_000, 100_000)
ROOT = Path(__file__).parent.parent
HEADER = f"{'kind':9} {'order':9} {'nodes':>6} {'cpu s':>8} {'us/node':>8} {'ratio':>6} {'own':>8} {'ratio':>6}  {'after':>6}"


def measure(kind: str, nodes: int, order: str, verify: str) -> dict[str, Any]:
    """Optimise one model in this process."""
    import surgeon_passes as sp

    sp.optimize(KINDS["chain"](4))
    model = KINDS[kind](nodes)
    model = shuffled(model) if order == "shuffled" else model
    cpu, wall = time.process_time(), time.perf_counter()
    with watched() as phases:
        result = sp.optimize(model, verify=verify)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    own = cpu - phases.cpu[RUNTIME]
    return {
        "kind": kind,
        "order": order,
        "nodes": result.before.nodes,
        "cpu": round(cpu, 3),
        "wall": round(wall, 3),
        "own": round(own, 3),
        "per_node_us": round(1e6 * cpu / result.before.nodes, 1),
        "own_per_node_us": round(1e6 * own / result.before.nodes, 1),
        "nodes_after": result.after.nodes,
        "verified": sum(d.verdict == "verified" for d in result.applied),
        "end_check": result.check.status if result.check is not None else "off",
        "exit_code": result.exit_code,
        "phases": {name: round(seconds, 3) for name, seconds in phases.cpu.items()},
    }


def measure_apart(kind: str, nodes: int, order: str, verify: str) -> dict[str, Any]:
    """The same in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.growth", "--one", "--kind", kind, "--sizes", str(nodes)]
    command += ["--order", order, "--verify", verify]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=list(KINDS), nargs="+", default=["chain"], help="what the models are made of")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="nodes of the models")
    parser.add_argument("--order", choices=["both", "ordered", "shuffled"], default="ordered", help="of the nodes")
    parser.add_argument("--verify", choices=["strict", "off"], default="strict")
    parser.add_argument("--phases", action="store_true", help="print what each part of a run takes, too")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.one:
        print(json.dumps(measure(given.kind[0], given.sizes[0], given.order, given.verify)))
        return 0
    orders = ["ordered", "shuffled"] if given.order == "both" else [given.order]
    if not given.json:
        print(f"{HEADER}  end check")
    rows = [row for kind in given.kind for order in orders for row in _series(kind, order, given)]
    if given.json:
        print(json.dumps(rows, indent=2))
    return 0


def _series(kind: str, order: str, given: argparse.Namespace) -> list[dict[str, Any]]:
    """One row a size; ratios are the time per node over that of the first size, in all and without ONNX Runtime's."""
    rows: list[dict[str, Any]] = []
    for nodes in given.sizes:
        row = measure_apart(kind, nodes, order, given.verify)
        rows.append(row)
        row["ratio"] = round(row["per_node_us"] / rows[0]["per_node_us"], 2)
        row["own_ratio"] = round(row["own_per_node_us"] / rows[0]["own_per_node_us"], 2)
        if not given.json:
            print(
                f"{kind:9} {order:9} {row['nodes']:6} {row['cpu']:8.2f} {row['per_node_us']:8.1f} {row['ratio']:6.2f}"
                f" {row['own_per_node_us']:8.1f} {row['own_ratio']:6.2f}  {row['nodes_after']:6}  {row['end_check']}",
                flush=True,
            )
        if given.phases and not given.json:
            for name, seconds in sorted(row["phases"].items(), key=lambda pair: -pair[1]):
                print(f"  {name:16} {seconds:8.3f} s {1e6 * seconds / row['nodes']:8.1f} us/node")
    return rows


if __name__ == "__main__":
    sys.exit(main())
