"""Reports on disk: what kind of report a file is to hold, by the ending of its name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from surgeon_passes.errors import UsageError
from surgeon_passes.model.files import write_bytes

if TYPE_CHECKING:
    from surgeon_passes.result import Result

Path_ = str | os.PathLike[str]


def writer_of(path: Path_) -> Callable[[Result], bytes]:
    """What makes the report that ``path`` is to hold. Raises UsageError for another ending than .txt, .json, .html and .pdf,
    and where a PDF is asked for without the extra that draws it."""
    ending = Path(path).suffix.lower()
    if ending == ".pdf":
        import surgeon_passes.report.pdf  # noqa: F401 - so that what is missing is said before the work is done
    found = _WRITERS.get(ending)
    if found is None:
        said = f"ends with '{ending}'" if ending else "has no ending"
        raise UsageError(f"{os.fspath(path)}: a report is .txt, .json, .html or .pdf, and this {said}")
    return found


def needs_record(path: Path_) -> bool:
    """Whether the report is made of the decision record: a run that is told so from the start need not be done again."""
    return Path(path).suffix.lower() != ".txt"


def write_report(path: Path_, result: Result) -> None:
    """Write the report whole or not at all. Raises UsageError as :func:`writer_of`, ModelError where it cannot be written."""
    write_bytes(path, writer_of(path)(result))


def _text(result: Result) -> bytes:
    return result.report().encode("utf-8", "backslashreplace")


def _json(result: Result) -> bytes:
    from surgeon_passes.record.files import encoded

    return encoded(result.record())


def _html(result: Result) -> bytes:
    from surgeon_passes.report.html.page import assemble
    from surgeon_passes.report.html.view import view_of

    return assemble(view_of(result.record())).encode("utf-8")


def _pdf(result: Result) -> bytes:
    from surgeon_passes.report.pdf import render_pdf

    return render_pdf(result.record())


_WRITERS: dict[str, Callable[[Result], bytes]] = {".txt": _text, ".json": _json, ".html": _html, ".pdf": _pdf}
