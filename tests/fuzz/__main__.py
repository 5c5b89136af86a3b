"""Many random models: ``python -m tests.fuzz --graphs 20000 --seed 1 --jobs 2``."""

from __future__ import annotations

import argparse
import json
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx

from benchmarks.entries import Entry, models
from tests.patterns.test_examples import RULES

from .cases import Case, case
from .choices import Seeded
from .judge import Finding, judge
from .real import real_case

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
    _count(str(number), drawn, judge(drawn, strict=number % 4 == 0, twice=number % 2 == 0), folder, tally)


def _count(name: str, drawn: Case, found: Finding, folder: str, tally: Tally) -> None:
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
        onnx.save(drawn.model, Path(folder) / f"{name}.onnx")
        tally.faults.append(f"{name} {drawn.sets} {drawn.options} {drawn.skip}: {fault}")


def real(seed: int, folder: str, entry: Entry, path: Path) -> Tally:
    """One real model in the dress that the seed draws."""
    tally = Tally()
    began = time.process_time()
    name = f"{entry['name']}_{seed}"
    drawn = real_case(Seeded(seed * SPAN + zlib.crc32(entry["name"].encode())), entry, path)
    _count(name, drawn, judge(drawn), folder, tally)
    tally.seconds = time.process_time() - began
    return tally


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
    parser.add_argument(
        "--real", type=int, metavar="TIMES", help="real models, each so often in another dress, instead"
    )
    parser.add_argument("--failures", default="fuzz-failures", help="folder for models that fail")
    options = parser.parse_args(argv)
    Path(options.failures).mkdir(exist_ok=True, parents=True)
    tally = Tally()
    with ProcessPoolExecutor(options.jobs) as workers:
        for waiting in [workers.submit(*work) for work in _work(options)]:
            found = waiting.result()
            tally.add(found)
            for fault in found.faults:
                print(fault, flush=True)
            _note(options.failures, tally)
    print("\n".join(report(tally)))
    return 1 if tally.faults else 0


def _work(options: argparse.Namespace) -> Iterator[tuple[Any, ...]]:
    if options.real:
        for turn in range(options.real):
            yield from ((real, options.seed + turn, options.failures, entry, path) for entry, path in models())
        return
    first = options.seed * SPAN // CHUNK
    for piece in range(first, first + -(-options.graphs // CHUNK)):
        yield (chunk, piece, options.failures)


def _note(folder: str, tally: Tally) -> None:
    held: Any = {k: dict(v) if isinstance(v, Counter) else v for k, v in vars(tally).items()}
    (Path(folder) / "tally.json").write_text(json.dumps(held, indent=1))


if __name__ == "__main__":
    raise SystemExit(main())
