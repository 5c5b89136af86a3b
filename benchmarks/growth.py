"""How the time of ``sp.optimize``, verification on, grows with the nodes of a model.

    python benchmarks/growth.py --sizes 4000 8000 16000 40000

Each size is optimised in a process of its own: a chain of Conv, BatchNormalization, Relu and Identity, its nodes in
order and shuffled.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZES = (4000, 8000, 16000, 40000)
CHANNELS = 4
BLOCK = ("Conv", "BatchNormalization", "Relu", "Identity")


def chain(nodes: int, shuffled: bool = False, seed: int = 0) -> onnx.ModelProto:
    """A chain of ``nodes`` nodes, every Conv and BatchNormalization with weights of its own; input float[N, 4, 8, 8]."""
    random = np.random.default_rng(seed)
    made: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def constant(name: str, array: Any) -> str:
        weights.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    def operands(op: str, name: str) -> list[str]:
        if op == "Conv":
            kernel = random.standard_normal((CHANNELS, CHANNELS, 3, 3)) * np.sqrt(2 / (9 * CHANNELS))
            return [constant(f"{name}.weight", kernel)]
        if op != "BatchNormalization":
            return []
        parts = {"gamma": (0.8, 1.2), "beta": (-0.1, 0.1), "mean": (-0.1, 0.1), "var": (0.8, 1.2)}
        return [constant(f"{name}.{part}", random.uniform(*span, CHANNELS)) for part, span in parts.items()]

    x = "x"
    for number in range(nodes):
        op = BLOCK[number % len(BLOCK)]
        name = f"{op.lower()}_{number}"
        result = "y" if number == nodes - 1 else f"{name}.out"
        attributes = {"pads": [1, 1, 1, 1]} if op == "Conv" else {}
        made.append(helper.make_node(op, [x, *operands(op, name)], [result], name, **attributes))
        x = result
    if shuffled:
        made = [made[i] for i in random.permutation(len(made))]
    x_info, y_info = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", CHANNELS, 8, 8]) for n in ("x", "y"))
    graph = helper.make_graph(made, "chain", [x_info], [y_info], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def measure(nodes: int, shuffled: bool) -> dict[str, Any]:
    """Optimise one chain in this process."""
    import surgeon_passes as sp

    model = chain(nodes, shuffled)
    sp.optimize(chain(len(BLOCK)))
    began = time.perf_counter()
    result = sp.optimize(model)
    seconds = time.perf_counter() - began
    return {
        "nodes": nodes,
        "order": "shuffled" if shuffled else "ordered",
        "seconds": round(seconds, 3),
        "per_node_us": round(1e6 * seconds / nodes, 1),
        "nodes_after": result.after.nodes,
        "verified": sum(d.verdict == "verified" for d in result.applied),
        "end_check": result.check.status,
        "exit_code": result.exit_code,
    }


def measure_apart(nodes: int, shuffled: bool) -> dict[str, Any]:
    """The same in a fresh process."""
    command = [sys.executable, __file__, "--one", str(nodes), "--order", "shuffled" if shuffled else "ordered"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="nodes of the chains")
    parser.add_argument("--order", choices=["both", "ordered", "shuffled"], default="both")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.one:
        print(json.dumps(measure(given.one, given.order == "shuffled")))
        return 0
    orders = [False, True] if given.order == "both" else [given.order == "shuffled"]
    rows = [row for shuffled in orders for row in _series(given.sizes, shuffled, quiet=given.json)]
    if given.json:
        print(json.dumps(rows, indent=2))
    return 0


def _series(sizes: list[int], shuffled: bool, quiet: bool) -> list[dict[str, Any]]:
    """One row a size; ``ratio`` is the time per node over that of the first size."""
    rows: list[dict[str, Any]] = []
    if not quiet:
        print(
            f"{'order':9} {'nodes':>6} {'seconds':>8} {'us/node':>8} {'ratio':>6}  {'after':>6} {'verified':>8}  end check"
        )
    for nodes in sizes:
        row = measure_apart(nodes, shuffled)
        rows.append(row)
        row["ratio"] = round(row["per_node_us"] / rows[0]["per_node_us"], 2)
        if not quiet:
            print(
                f"{row['order']:9} {row['nodes']:6} {row['seconds']:8.2f} {row['per_node_us']:8.1f} {row['ratio']:6.2f}"
                f"  {row['nodes_after']:6} {row['verified']:8}  {row['end_check']}",
                flush=True,
            )
    return rows


if __name__ == "__main__":
    sys.exit(main())
