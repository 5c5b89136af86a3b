"""Peak anonymous memory of one run, from load to saved output, on large generated models.

    python -m benchmarks.memory --inline 60 --external 120

Each model is made by streaming, optimised and saved in a process of its own, which this process watches: RssAnon of
/proc/PID/status (Linux), sampled every two milliseconds, less what the process held before it loaded the model. Mapped
files are not anonymous: the kernel drops their pages when memory is short.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from surgeon_passes import memory
from surgeon_passes.model.elements import raw_bytes
from surgeon_passes.model.wire import pieces, point

CHANNELS = 512
WIDTH = 4096
SEED = 5
PERIOD = 0.002
ALIGNMENT = 4096


class Blocks:
    """Nodes and weights of about ``megabytes``: a tenth in Conv + BatchNormalization (which become one Conv), a tenth in
    Conv + Relu, the rest in MatMul + Add and LayerNormalizations in nine nodes, whose weights stay as they are."""

    def __init__(self, megabytes: float) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, tuple[int, ...]] = {}
        small = megabytes < 300
        self.channels, self.width = (CHANNELS // 4, WIDTH // 4) if small else (CHANNELS, WIDTH)
        total = megabytes * 1e6
        convs = max(1, round(total / 10 / (self.channels**2 * 36)))
        linears = max(1, round(total * 8 / 10 / (self.width**2 * 4)))
        x = "x"
        for number in range(convs):
            x = self.conv(x, f"fused_{number}", normalized=True)
        for number in range(convs):
            x = self.conv(x, f"plain_{number}", normalized=False)
        x = self.node("GlobalAveragePool", "pool", x)
        x = self.node("Flatten", "flat", x)
        x = self.linear(x, "into", self.channels, self.width)
        for number in range(linears):
            x = self.linear(self.layer_norm(x, f"norm_{number}"), f"linear_{number}", self.width, self.width)
        self.nodes[-1].output[0] = "y"

    def node(self, op: str, name: str, *inputs: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [f"{name}.out"], name, **attributes))
        return f"{name}.out"

    def weight(self, name: str, *dims: int) -> str:
        self.weights[name] = dims
        return name

    def conv(self, x: str, name: str, normalized: bool) -> str:
        kernel = self.weight(f"{name}.weight", self.channels, self.channels, 3, 3)
        y = self.node("Conv", name, x, kernel, pads=[1, 1, 1, 1])
        if normalized:
            parts = [self.weight(f"{name}.{part}", self.channels) for part in ("gamma", "beta", "mean", "var")]
            y = self.node("BatchNormalization", f"{name}.bn", y, *parts)
        return self.node("Relu", f"{name}.relu", y)

    def linear(self, x: str, name: str, size: int, features: int) -> str:
        y = self.node("MatMul", name, x, self.weight(f"{name}.weight", size, features))
        return self.node("Add", f"{name}.add", y, self.weight(f"{name}.bias", features))

    def layer_norm(self, x: str, name: str) -> str:
        mean = self.node("ReduceMean", f"{name}.mean", x, axes=[-1])
        centred = self.node("Sub", f"{name}.sub", x, mean)
        square = self.node("Pow", f"{name}.pow", centred, "two")
        variance = self.node("ReduceMean", f"{name}.var", square, axes=[-1])
        spread = self.node("Sqrt", f"{name}.sqrt", self.node("Add", f"{name}.eps", variance, "epsilon"))
        y = self.node(
            "Mul", f"{name}.mul", self.node("Div", f"{name}.div", centred, spread), self.weight(f"{name}.g", self.width)
        )
        return self.node("Add", f"{name}.shift", y, self.weight(f"{name}.b", self.width))


def values(name: str, dims: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """float32 weights that keep activations near one; no two tensors are alike."""
    random = np.random.default_rng([SEED, *name.encode()])
    if len(dims) > 1:
        fan = int(np.prod(dims)) // dims[0]
        return random.standard_normal(dims, dtype=np.float32) * np.float32(np.sqrt(2 / fan))
    middle = 1.0 if name.endswith((".gamma", ".var", ".g")) else 0.0
    return (middle + random.uniform(-0.1, 0.1, dims)).astype(np.float32)


def write_model(path: Path, megabytes: float, external: bool) -> int:
    """Write a model weight by weight; gives the bytes of its files."""
    blocks = Blocks(megabytes)
    spatial = [1, blocks.channels, 8, 8]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, spatial)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, blocks.width])
    two, epsilon = (helper.make_tensor(n, TensorProto.FLOAT, [], [v]) for n, v in (("two", 2.0), ("epsilon", 1e-5)))
    graph = helper.make_graph(blocks.nodes, "large", [x], [y], [two, epsilon])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    weights = [
        model.graph.initializer.add(name=name, dims=dims, data_type=TensorProto.FLOAT)
        for name, dims in blocks.weights.items()
    ]
    if external:
        return _write_external(model, weights, path)
    lengths = {k: raw_bytes(t) for k, t in enumerate(model.graph.initializer) if t.name in blocks.weights}
    with path.open("wb") as stream:
        for piece in pieces(model, lengths, lambda place: _values_of(model.graph.initializer[place])):
            stream.write(piece)
    return path.stat().st_size


def _write_external(model: onnx.ModelProto, weights: Sequence[TensorProto], path: Path) -> int:
    data = path.with_name(path.name + ".data")
    with data.open("wb") as stream:
        for tensor in weights:
            stream.write(b"\0" * (-stream.tell() % ALIGNMENT))
            offset = stream.tell()
            stream.write(_values_of(tensor))
            point(tensor, data.name, offset, stream.tell() - offset)
    path.write_bytes(model.SerializeToString())
    return path.stat().st_size + data.stat().st_size


def _values_of(tensor: TensorProto) -> memoryview:
    return values(tensor.name, tuple(tensor.dims)).data


# --- measuring -----------------------------------------------------------------------------------------------------------


def anonymous(pid: int | str = "self") -> int:
    """RssAnon of a process in bytes; 0 once it has ended."""
    return memory.status(pid).get(memory.ANON, 0)


def run_here(source: str, target: str, verify: str) -> dict[str, Any]:
    """Load, optimise and save in this process; says "ready" on standard output when everything is imported."""
    import surgeon_passes as sp
    from surgeon_passes import demo

    sp.optimize(demo.build(), verify=verify)
    print(json.dumps({"before": anonymous()}), flush=True)
    began = time.process_time()
    result = sp.optimize(source, verify=verify)
    result.save(target)
    status = "off" if result.check is None else result.check.status
    return {
        "seconds": round(time.process_time() - began, 2),
        "nodes": [result.before.nodes, result.after.nodes],
        "applied": len(result.applied),
        "end_check": status,
    }


def run_apart(source: Path, target: Path, verify: str = "strict") -> dict[str, Any]:
    """The same in a process of its own: ``peak`` is its anonymous memory above what it held before, in bytes."""
    command = [sys.executable, "-m", "benchmarks.memory", "--one", str(source), str(target), "--verify", verify]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        before = json.loads(child.stdout.readline())["before"]
        peak, done = before, threading.Event()

        def watch() -> None:
            nonlocal peak
            while not done.wait(PERIOD):
                peak = max(peak, anonymous(child.pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        told = child.stdout.readline()
        done.set()
        watcher.join()
    if child.returncode:
        raise RuntimeError(f"the run of {source} ended with exit code {child.returncode}")
    return {**json.loads(told), "peak": peak - before}


def measure(megabytes: float, external: bool, verify: str, folder: str | None = None) -> dict[str, Any]:
    """Make a model, run it apart, remove it."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        path = Path(place) / "large.onnx"
        size = write_model(path, megabytes, external)
        row = run_apart(path, Path(place) / "optimised.onnx", verify)
        saved = sum(p.stat().st_size for p in Path(place).glob("optimised*"))
    return {
        "weights": "external" if external else "inline",
        "bytes": size,
        "saved": saved,
        **row,
        "ratio": round(row["peak"] / size, 3),
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--inline", type=float, nargs="*", metavar="MB", help="sizes of models in one file")
    parser.add_argument("--external", type=float, nargs="*", metavar="MB", help="sizes of models with external data")
    parser.add_argument("--verify", choices=["strict", "available", "off"], default="strict")
    parser.add_argument("--folder", help="where the models are made (the system's temporary folder)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.one:
        print(json.dumps(run_here(*given.one, given.verify)))
        return 0
    if given.inline is None and given.external is None:
        given.inline, given.external = [600], [2500]
    if given.folder is not None and not Path(given.folder).is_dir():
        parser.error(f"there is no folder {given.folder}")
    rows = []
    for external, sizes in ((False, given.inline), (True, given.external)):
        for size in sizes or ():
            rows.append(measure(size, external, given.verify, given.folder))
            if not given.json:
                _print(rows[-1], first=len(rows) == 1)
    if given.json:
        print(json.dumps(rows, indent=2))
    return 0


def _print(row: dict[str, Any], first: bool) -> None:
    if first:
        print(f"{'weights':9} {'MB':>7} {'peak MB':>8} {'ratio':>6} {'CPU s':>6}  nodes       end check")
    nodes = "{} -> {}".format(*row["nodes"])
    print(
        f"{row['weights']:9} {row['bytes'] / 1e6:7.0f} {row['peak'] / 1e6:8.0f} {row['ratio']:6.2f} {row['seconds']:6.1f}"
        f"  {nodes:10}  {row['end_check']}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
