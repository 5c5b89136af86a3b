"""In how many layers a fault of one per cent is named, alone and first: ``python -m tests.compare [NAME]... [--every]``.

Each model is optimised, all its names are taken away, and the weights of one Conv, ConvTranspose, Gemm or MatMul at a time
are scaled by 1.01: of the first, a middle and the last, or with ``--every`` of every one.
"""

from __future__ import annotations

import argparse
import sys
import time

import surgeon_passes as sp
from benchmarks.entries import data, models, table

from .faults import WEIGHTED, first_middle_last, layers, node_of, optimised, scaled


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.compare")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--every", action="store_true")
    options = parser.parse_args(arguments)
    rows: list[list[object]] = []
    for entry, path in models(options.names):
        row = measured(entry, path, options.every)
        rows.append(row)
        print(*row, file=sys.stderr, flush=True)
    total = [sum(int(str(row[k])) for row in rows) for k in (2, 3)]
    print(table([["model", "pairs", "faults", "named", "s a fault", "not named"], *rows]))
    print(f"{total[1]} of {total[0]} faults are named first and alone, in {len(rows)} models")
    return 0 if total[0] == total[1] else 5


def measured(entry: dict[str, object], path: object, every: bool) -> list[object]:
    given = data(entry)
    result = optimised(path, verify=sp.Verify("off"))  # type: ignore[arg-type]
    clean = sp.compare(path, result, data=given)  # type: ignore[arg-type]
    names = layers(result, WEIGHTED)
    wanted = names if every or not names else list(dict.fromkeys(first_middle_last(names)))
    missed = [] if clean.exit_code == 0 else ["(no fault)"]
    began = time.perf_counter()
    for name in wanted:
        found = sp.compare(path, scaled(result, name), data=given)  # type: ignore[arg-type]
        begins = [p.b for p in found.pairs if p.begins]
        first = found.first
        if first is None or first.layers[1] != name or begins != [first.b]:
            got = "nothing" if first is None else first.layers[1]
            missed.append(f"{node_of(result, name).op_type} {name}: {got} of {len(begins)}")
    took = (time.perf_counter() - began) / max(1, len(wanted))
    missed_faults = len([m for m in missed if m != "(no fault)"])
    return [entry["name"], len(clean.pairs), len(wanted), len(wanted) - missed_faults, f"{took:.2f}", "; ".join(missed)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
