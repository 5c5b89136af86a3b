"""Many random models: ``python -m tests.fuzz --graphs 20000 --seed 1 --jobs 2``."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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

CHUNK = 250
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
    """Graphs ``number`` times :data:`CHUNK` and on, in a process of its own: ONNX Runtime dies of some.

    Models that fail are written to ``folder``. Where it dies of an original, that is one more that cannot be run; where it
    dies later, a fault.
    """
    tally = Tally()
    first, end = number * CHUNK, (number + 1) * CHUNK
    while first < end:
        told = Path(folder) / f"piece_{number}.json"
        command = [sys.executable, "-m", "tests.fuzz", "--piece", str(first), str(end), "--failures", folder]
        died = subprocess.run([*command, "--told", str(told)], check=False).returncode
        made = json.loads(told.read_text())
        told.unlink()
        tally.add(Tally(**{k: Counter(v) if isinstance(v, dict) else v for k, v in made["tally"].items()}))
        first = made["at"] + 1
        if not died:
            break
        if made["step"] == "draw":
            tally.refused["ONNX Runtime dies of it"] += 1
        else:
            tally.faults.append(f"{made['at']}: the process ended with {died} while it was judged")
    return tally


def piece(first: int, end: int, folder: str, told: Path) -> None:
    """Graphs ``first`` to ``end``; how far it has come is written down before each step."""
    tally = Tally()
    began = time.process_time()

    def note(at: int, step: str) -> None:
        tally.seconds = time.process_time() - began
        told.write_text(json.dumps({"at": at, "step": step, "tally": vars(tally)}))

    for number in range(first, end):
        note(number, "draw")
        drawn = case(Seeded(number))
        note(number, "judge")
        _count(str(number), drawn, judge(drawn, strict=number % 4 == 0, twice=number % 2 == 0), folder, tally)
    note(end, "done")


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
    parser.add_argument("--piece", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--told", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.piece:
        piece(*options.piece, options.failures, options.told)
        return 0
    Path(options.failures).mkdir(exist_ok=True, parents=True)
    tally = Tally()
    with ThreadPoolExecutor(options.jobs) as workers:
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
    (Path(folder) / "tally.json").write_text(json.dumps(vars(tally), indent=1))


if __name__ == "__main__":
    raise SystemExit(main())
