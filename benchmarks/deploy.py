"""How fast ONNX Runtime runs a training form, our result and the authors' deploy form: ``python -m benchmarks.deploy``.

Needs the extra ``torch`` and timm. All three take turns in one process, at ONNX Runtime's default optimisations.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks import published
from benchmarks.entries import table
from surgeon_passes.bench.latency import Runs, interleaved, ratio
from surgeon_passes.cli.common import guarded
from surgeon_passes.runtime import Session

HEAD = ("model", "nodes", "training ms", "ours ms", "deploy ms", "training/ours", "ours/deploy", "training/deploy")


def measured(name: str, seconds: float, threads: int, folder: Path) -> list[str]:
    """One line of the table; ratios are medians over rounds with their 95 % intervals."""
    import surgeon_passes as sp

    trained, deploy = published.forms(name)
    result = sp.optimize(trained)
    ours = folder / f"{name}.onnx"
    result.save(ours)
    paths = {"trained": trained, "ours": ours, "deploy": deploy}
    session = Session(trained)
    feeds = {next(iter(session.inputs)): np.random.default_rng(0).standard_normal(published.SHAPE).astype(np.float32)}

    def make() -> Runs:
        sessions = {form: Session(path, level="all", threads=threads) for form, path in paths.items()}
        return {form: (lambda s=s: s.run(feeds)) for form, s in sessions.items()}

    times = interleaved(make, seconds)
    ms = [f"{1e3 * median(t for block in times[form] for t in block):.2f}" for form in paths]
    pairs = (("trained", "ours"), ("ours", "deploy"), ("trained", "deploy"))
    return [name, str(result.after.nodes), *ms, *(str(ratio(times[a], times[b])) for a, b in pairs)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", default=published.NAMES, help="a network's name in timm")
    parser.add_argument("--seconds", type=float, default=30.0, help="for each model")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    lines: list[list[str]] = [list(HEAD)]
    with tempfile.TemporaryDirectory() as folder:
        for name in given.names:
            lines.append(measured(name, given.seconds, given.threads, Path(folder)))
            print(table([HEAD, lines[-1]]), flush=True)
    print(table(lines))
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main, debug=False))
