"""Which models of the suite are not run by ONNX Runtime, as recorded: by the reference instead, or by neither."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import onnx
import onnxruntime

FILE = Path(__file__).with_name("skips.txt")
SURROUNDINGS = ("Locale", "Pillow")
"""What reasons speak of that a machine may have or lack."""


def versions() -> str:
    return f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}"


@cache
def recorded() -> tuple[str, dict[str, tuple[str, str]]]:
    """The versions, and per model who judges it ("-" for nobody) and why ONNX Runtime does not."""
    first, *lines = FILE.read_text().splitlines()
    return first, {name: (judge, reason) for judge, name, reason in (line.split("\t") for line in lines)}


def write(found: dict[str, tuple[str, str]]) -> None:
    lines = [versions(), *("\t".join((judge, name, reason)) for name, (judge, reason) in sorted(found.items()))]
    FILE.write_text("\n".join(lines) + "\n")


def unexpected(found: dict[str, str], names: set[str]) -> list[str]:
    """What differs from the record: ``found`` are the judges of models that ONNX Runtime does not run, of all ``names``."""
    version, listed = recorded()
    wanted = {name: judge for name, (judge, _) in listed.items() if name in names}
    loose = {name for name in wanted if any(word in listed[name][1] for word in SURROUNDINGS)}
    if version != versions():  # other versions run more or fewer
        loose |= {*wanted, *found}
    return [
        f"{name}: judged by {found.get(name, 'ONNX Runtime')}, recorded is {wanted.get(name, 'ONNX Runtime')}"
        for name in sorted({*wanted, *found} - loose)
        if wanted.get(name) != found.get(name)
    ]
