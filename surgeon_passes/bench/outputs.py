"""Files that measurements are written to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from surgeon_passes.bench import plot
from surgeon_passes.bench.records import Measured, to_json
from surgeon_passes.model.files import check_writable, write_bytes


def check(json_file: str | None, plot_folder: str | None) -> None:
    """Before any work is done. Raises ModelError where a file cannot be written, UsageError without matplotlib."""
    if json_file is not None:
        check_writable(json_file)
    if plot_folder is not None:
        plot.check_available()
        check_writable(Path(plot_folder) / plot.NAME)


def write(models: Sequence[Measured], about: dict[str, Any], json_file: str | None, plot_folder: str | None) -> None:
    """Whatever of the two was asked for."""
    if json_file is not None:
        write_bytes(json_file, to_json(models, about).encode())
    if plot_folder is not None:
        plot.write(models, Path(plot_folder))
