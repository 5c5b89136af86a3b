"""Every optimiser that is installed, on sets of models: ``python -m benchmarks.peers [NAME …]``.

python -m benchmarks.peers --json peers.json --plot .        real models: wheels, and the folder SURGEON_MODELS names
python -m benchmarks.peers --set scale --sizes 1000 10000    generated models of so many nodes
python -m benchmarks.peers --set large                       0.6 GB in one file, 2.5 GB with external data
python -m benchmarks.peers --set deploy                      timm's networks, and the forms that their authors deploy
python -m benchmarks.peers --from peers.json --plot .        tables and plot again, without measuring
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx

from benchmarks.entries import data, is_wanted, models, some
from benchmarks.scale import KINDS as GENERATED
from surgeon_passes.bench import outputs, plot, table, tools
from surgeon_passes.bench.measure import Options, about, measure
from surgeon_passes.bench.records import Measured, from_json
from surgeon_passes.errors import ModelError, SurgeonError
from surgeon_passes.model.files import write_bytes

KINDS = ("chain", "repvgg", "soup")
SIZES = (1000, 10_000, 100_000)
ROOT = Path(__file__).parent.parent
MARKS = ("<!-- benchmarks.peers -->\n", "<!-- end -->\n")
"""What the README's table stands between."""
LARGE = {"large_600mb_inline": (600, False), "large_2500mb_external": (2500, True)}
"""Megabytes, and whether the weights lie beside the file."""

Task = tuple[str, Path, Options]


def real(given: argparse.Namespace, options: Options, folder: Path) -> Iterator[Task]:
    """Models of packages.json and of SURGEON_MODELS, small ones first, on inputs that are legal for them."""
    for entry, path in sorted(models(given.names), key=lambda found: found[1].stat().st_size):
        place = folder / entry["name"]
        place.mkdir()
        for number, feeds in enumerate(data(entry)()):
            np.savez(place / f"{number}.npz", **feeds)
        held = str(place)
        yield entry["name"], path, replace(options, legal=held, data=held if given.with_data else None)


def scale(given: argparse.Namespace, options: Options, folder: Path) -> Iterator[Task]:
    """Generated models of ``--sizes`` nodes."""
    for kind in given.kinds:
        for size in given.sizes:
            name = f"{kind}_{size}"
            if is_wanted(name, given.names):
                path = folder / f"{name}.onnx"
                onnx.save(GENERATED[kind](size), path)
                yield name, path, options
                path.unlink()


def large(given: argparse.Namespace, options: Options, folder: Path) -> Iterator[Task]:
    """Large weights, from file to file: one call, no latency."""
    from benchmarks.memory import write_model

    for name, (megabytes, external) in LARGE.items():
        if is_wanted(name, given.names):
            path = folder / f"{name}.onnx"
            write_model(path, megabytes, external)
            yield name, path, replace(options, span="file", calls=1, latency=0.0, runtime=False)
            for left in folder.glob(f"{name}*"):
                left.unlink()


def deploy(given: argparse.Namespace, options: Options, folder: Path) -> Iterator[Task]:
    """Networks of timm in training form, the authors' deploy form beside the results. Raises Unavailable without timm."""
    from benchmarks import published

    for name in published.NAMES:
        if is_wanted(name, given.names):
            trained, deployed = published.forms(name)
            yield name, trained, replace(options, also=(str(deployed),))


SETS = {"real": real, "scale": scale, "large": large, "deploy": deploy}


def run(given: argparse.Namespace) -> list[Measured]:
    """Measure model by model; each is printed, and the JSON written anew, as soon as it is there."""
    chosen = tools.chosen(given.tool)
    options = Options(given.calls, given.timeout, latency=given.latency, threads=given.threads, runtime=True)
    outputs.check(given.json, given.plot)
    found: list[Measured] = []
    with _folder(given.folder) as folder:
        for kind in given.set:
            for name, path, its_options in SETS[kind](given, options, folder):
                found.append(measure(path, name, chosen, its_options))
                print(table.model_table(found[-1]), flush=True)
                outputs.write(found, about(options), given.json, None)
    return some(found, given.names)


def read(path: str) -> list[Measured]:
    """Measurements of an earlier run. Raises ModelError."""
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path}: cannot be read ({error})") from None
    return from_json(text, path)


def with_table(text: str, found: list[Measured]) -> str:
    """``text`` with the summary of ``found`` between the marks."""
    before, _, rest = text.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    shown = f"\nMedians over {len(found)} models:\n\n{table.summary_markdown(found)}\n"
    return f"{before}{MARKS[0]}{shown}{MARKS[1]}{after}"


def write_readme(found: list[Measured]) -> None:
    """Table and plot of the project's README anew."""
    plot.write(found, ROOT / "benchmarks")
    readme = ROOT / "README.md"
    write_bytes(readme, with_table(readme.read_text(), found).encode())


@contextmanager
def _folder(parent: str | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=parent, prefix="surgeon-peers-") as folder:
        yield Path(folder)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="part of a model's name")
    parser.add_argument("--set", choices=list(SETS), nargs="+", default=["real"], help="which models")
    parser.add_argument("--kinds", choices=list(GENERATED), nargs="+", default=KINDS, help="of generated models")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="nodes of generated models")
    parser.add_argument("--tool", action="append", default=[], help="only these tools")
    parser.add_argument("-k", "--calls", type=int, default=3, help="of each tool")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds a call may take")
    parser.add_argument("--latency", type=float, default=1.0, help="seconds of latency a result; 0 for none")
    parser.add_argument("--threads", type=int, default=1, help="of ONNX Runtime where latency is measured")
    parser.add_argument("--with-data", action="store_true", help="give ours the legal inputs, too")
    parser.add_argument("--folder", help="where models are made (the system's temporary folder)")
    parser.add_argument("--json", help="write all measurements here")
    parser.add_argument("--plot", metavar="FOLDER", help="write bench.png there")
    parser.add_argument("--readme", action="store_true", help="write the README's table and plot anew")
    parser.add_argument("--from", dest="source", metavar="JSON", help="show these measurements; measure nothing")
    given = parser.parse_args(arguments)
    try:
        found = read(given.source) if given.source else run(given)
        outputs.write(found, {}, None, given.plot)
        if given.readme:
            write_readme(found)
    except SurgeonError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        kept = f"; {given.json} holds the models that were measured" if given.json and not given.source else ""
        print(f"interrupted{kept}", file=sys.stderr)
        return 130
    print(table.summary(found))
    for cpu in (False, True):
        print(table.share_table(found, cpu))
    return 0


if __name__ == "__main__":
    sys.exit(main())
