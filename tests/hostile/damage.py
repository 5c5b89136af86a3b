"""Files that are cut short, or have bits flipped: each ends in one clear line, or in a result that is right.

``python -m tests.hostile.damage --count 1000 --seed 1`` prints what became of so many of each kind.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import onnx

import surgeon_passes as sp
from surgeon_passes import demo
from surgeon_passes.engines import Isolate, isolated
from surgeon_passes.pipeline import load
from surgeon_passes.runtime import RuntimeFailure
from surgeon_passes.verify import EndCheck, end_check, generate_feeds

MEMORY = 4 << 30
"""bytes of address space, this process and ONNX Runtime's each"""
SECONDS = 60
"""for one file"""
REAL = (
    "dyn_script_if_loop__dyn",
    "bn_before_conv__raw",
    "skl_knn",
    "dyn_split_chunk__dyn",
    "bn_edge_cases__raw",
    "mobilenet_v1_qoperator",
    "dyn_pad_expand__dyn",
)
CONVERTED = ("test_GLU_dim", "test_PixelShuffle", "test_BatchNorm1d_3d_input_eval", "test_Conv2d_groups")
STRICT_EVERY = 5


class TooLong(BaseException):
    """Nothing of the package may catch it."""


def originals() -> dict[str, bytes]:
    """Small models of exporters: those of onnx's own suite, the embedded one, and what SURGEON_MODELS holds."""
    data = Path(onnx.__file__).parent / "backend" / "test" / "data" / "pytorch-converted"
    found = {name: (data / name / "model.onnx").read_bytes() for name in CONVERTED}
    found["demo"] = demo.build().SerializeToString()
    folder = os.environ.get("SURGEON_MODELS")
    for name in REAL if folder else ():
        found[name] = (Path(str(folder)) / f"{name}.onnx").read_bytes()
    return found


def cut(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data))]


def flipped(data: bytes, draw: random.Random) -> bytes:
    """One to eight bits, within a stretch of the file or all over it."""
    changed = bytearray(data)
    start = draw.choice((0, draw.randrange(len(data))))
    end = draw.choice((len(data), min(len(data), start + 64)))
    for _ in range(draw.choice((1, 1, 1, 2, 8))):
        changed[draw.randrange(start, end)] ^= 1 << draw.randrange(8)
    return bytes(changed)


KINDS = {"cut": cut, "flipped": flipped}


def outcome(path: Path, out: Path, strict: bool) -> str:
    """What became of a file. Whatever it raises, AssertionError too, is a fault of ours."""
    try:
        result = sp.optimize(path, verify="strict" if strict else sp.Verify("off"))
        code = result.exit_code
        if code in (4, 5):
            return f"result of exit code {code}"
        result.save(out)
    except sp.SurgeonError as error:
        text = str(error)
        assert text and "\n" not in text and len(text) < 1000, text
        assert not out.exists(), "a partial output"
        return f"{type(error).__name__}"
    if strict:
        return f"result of exit code {code}"
    check = judged(path, out)
    assert check.status != "different", check
    return f"result is {check.status}"


def judged(path: Path, out: Path) -> EndCheck:
    """The written result against the file that was given."""
    files = [(model.proto, model.weights) for model in map(load, (path, out))]
    try:
        return end_check(files[0], files[1], generate_feeds(files[0]))  # type: ignore[arg-type]
    except RuntimeFailure as failure:
        return EndCheck("not run", reason=str(failure))


def outcomes(count: int, seed: int, folder: Path, keep: Path | None) -> Iterator[tuple[str, str]]:
    """(kind, what became of it) of ``count`` files of each kind."""
    models = originals()
    out = folder / "out.onnx"
    for kind, damage in KINDS.items():
        for number in range(count):
            name = list(models)[number % len(models)]
            draw = random.Random(f"{seed} {kind} {number}")
            path = folder / f"{kind}-{number}-{name}.onnx"
            path.write_bytes(damage(models[name], draw))
            print(path, file=sys.stderr, flush=True)  # the last line of a process that dies
            signal.alarm(SECONDS)
            try:
                found = outcome(path, out, number // len(models) % STRICT_EVERY == 0)
            except (Exception, TooLong) as error:
                found = f"WRONG: {path.name}: {type(error).__name__}: {error}"
            signal.alarm(0)
            out.unlink(missing_ok=True)
            if [p.name for p in folder.iterdir()] != [path.name]:
                found = f"WRONG: {path.name} leaves files behind"
            if keep is not None and found.startswith("WRONG"):
                path.rename(keep / path.name)
            else:
                path.unlink()
            yield kind, found


def _too_long(*_: object) -> None:
    raise TooLong(f"more than {SECONDS} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="A folder for the files that go wrong.")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, _too_long)
    with tempfile.TemporaryDirectory() as name, isolated(Isolate(timeout=SECONDS / 3, memory=MEMORY)):
        counted = Counter(outcomes(options.count, options.seed, Path(name), options.keep))
    for (kind, found), times in sorted(counted.items()):
        print(f"{times:5}  {kind}: {found}")
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10:5}  MB of memory at most")


if __name__ == "__main__":
    main()
