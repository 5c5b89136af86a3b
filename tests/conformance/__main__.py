"""The whole matrix: every model of onnx's suite through the default pipeline and through each pass alone.

python -m tests.conformance --jobs 2 [--mode off|strict] [--pipeline NAME] [--kind KIND] [--case PART] [--record]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from .cases import KINDS, Variant, cases, variants
from .check import PIPELINES, faults, judged
from .judge import NotRun
from .skips import write


class Line(NamedTuple):
    """What came of one model, by one pipeline; ``judge`` is "" where nothing runs it."""

    name: str
    judge: str
    pipeline: str
    faults: list[str]
    changed: bool
    reason: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--mode", default="off", choices=["off", "strict"])
    parser.add_argument("--pipeline", action="append", choices=list(PIPELINES))
    parser.add_argument("--kind", action="append", choices=KINDS)
    parser.add_argument("--case", default="")
    parser.add_argument("--record", action="store_true", help="write which models ONNX Runtime does not run")
    options = parser.parse_args()
    began = time.time()
    shards = 8 * options.jobs
    arguments = [
        (k, shards, options.mode, options.pipeline or list(PIPELINES), options.kind or KINDS, options.case)
        for k in range(shards)
    ]
    lines: list[Line] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for number, found in enumerate(pool.map(_shard, arguments), 1):
            lines += found
            bad = sum(bool(line.faults) for line in lines)
            print(f"{number} of {shards} shards, {len(lines)} runs, {bad} with faults", file=sys.stderr, flush=True)
    if options.record:
        write({line.name: (line.judge or "-", line.reason) for line in lines if line.reason})
    return tell(lines, time.time() - began)


def _shard(argument: tuple[int, int, str, list[str], list[str], str]) -> list[Line]:
    shard, shards, mode, pipelines, kinds, part = argument
    chosen = [v for kind in kinds for case in cases(kind)[shard::shards] for v in variants(case) if part in v.name]
    return [line for variant in chosen for line in _lines(variant, pipelines, mode)]


def _lines(variant: Variant, pipelines: list[str], mode: str) -> Iterator[Line]:
    try:
        given = judged(variant)
    except NotRun as reason:
        yield Line(variant.name, "", "", [], False, str(reason))
        return
    for name in pipelines:
        found, changed = faults(given, name, mode)
        yield Line(variant.name, given.judge.name, name, found, changed, given.reason)


def tell(lines: list[Line], seconds: float) -> int:
    for line in lines:
        if line.faults:
            print(f"FAULT {line.pipeline} {line.name}: {'; '.join(line.faults)}")
    for line in lines:
        if not line.judge:
            print(f"not run: {line.name}: {line.reason[:300]}", file=sys.stderr)
    print(f"models: {len({line.name for line in lines})}, not run: {sum(not line.judge for line in lines)}")
    for judge in ("ONNX Runtime", "the reference"):
        for name in PIPELINES:
            found = [line for line in lines if (line.judge, line.pipeline) == (judge, name)]
            if found:
                bad, changed = sum(bool(line.faults) for line in found), sum(line.changed for line in found)
                print(f"{name} ({judge}): {len(found)} models, {changed} changed, {bad} with faults")
    print(f"{seconds:.0f} s")
    return int(any(line.faults for line in lines))


if __name__ == "__main__":
    sys.exit(main())
