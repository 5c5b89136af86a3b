"""Many random models: ``python -m tests.fuzz --graphs 20000 --seed 1 --jobs 2``."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx

from tests.patterns.test_examples import RULES

from .cases import case
from .choices import Seeded
from .judge import judge

CHUNK = 100
"""graphs of a piece of work"""
SPAN = 1_000_000
"""graphs of a seed"""


@dataclass
class Tally:
    graphs: int = 0
    rewritten: int = 0
    rounding: int = 0
    faults: list[str] = field(default_factory=list)
    fired: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    opsets: Counter[str] = field(default_factory=Counter)
    unverified: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def add(self, other: Tally) -> None:
        for name, value in vars(other).items():
            mine = getattr(self, name)
            if isinstance(mine, Counter):
                mine.update(value)
            else:
                setattr(self, name, mine + value)


def chunk(number: int, folder: str) -> Tally:
    """Graphs ``number`` times :data:`CHUNK` and on; models that fail are written to ``folder``."""
    tally = Tally()
    began = time.process_time()
    for at in range(number * CHUNK, (number + 1) * CHUNK):
        _one(at, folder, tally)
    tally.seconds = time.process_time() - began
    return tally


def _one(number: int, folder: str, tally: Tally) -> None:
    drawn = case(Seeded(number))
    found = judge(drawn, strict=number % 4 == 0, again=number % 2 == 0)
    if found.refused:
        tally.refused[found.refused[:80]] += 1
        return
    tally.graphs += 1
    tally.rewritten += bool(found.fired)
    tally.rounding += found.rounding
    tally.fired.update(found.fired.keys())
    tally.opsets[str(drawn.model.opset_import[0].version)] += 1
    tally.unverified.update(found.unverified)
    for fault in found.faults:
        path = Path(folder) / f"graph_{number}.onnx"
        onnx.save(drawn.model, path)
        tally.faults.append(f"{number} {drawn.sets} {drawn.options}: {fault}")


def report(tally: Tally) -> Iterator[str]:
    total = max(tally.graphs, 1)
    yield f"graphs {tally.graphs}, rewritten {tally.rewritten} ({tally.rewritten / total:.0%}),"
    yield f"disagreements {len(tally.faults)}, rounding {tally.rounding}, {tally.seconds:.0f} s of processor time"
    yield f"drawn and not run: {sum(tally.refused.values())}"
    yield f"by opset: {dict(sorted(tally.opsets.items(), key=lambda i: int(i[0])))}"
    yield "rules by the number of graphs in which they fired:"
    yield from (f"  {count:6} {rule}" for rule, count in tally.fired.most_common())
    yield f"rules never reached: {sorted(RULES.keys() - tally.fired.keys())}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--graphs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1, help="each stands for other graphs")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--failures", default="fuzz-failures", help="folder for models that fail")
    options = parser.parse_args(argv)
    Path(options.failures).mkdir(exist_ok=True, parents=True)
    first = options.seed * SPAN // CHUNK
    pieces = range(first, first + -(-options.graphs // CHUNK))
    tally = Tally()
    with ProcessPoolExecutor(options.jobs) as workers:
        for found in workers.map(chunk, pieces, [options.failures] * len(pieces)):
            tally.add(found)
            for fault in found.faults:
                print(fault, flush=True)
            _note(options.failures, tally)
    print("\n".join(report(tally)))
    return 1 if tally.faults else 0


def _note(folder: str, tally: Tally) -> None:
    held: Any = {k: dict(v) if isinstance(v, Counter) else v for k, v in vars(tally).items()}
    (Path(folder) / "tally.json").write_text(json.dumps(held, indent=1))


if __name__ == "__main__":
    raise SystemExit(main())
