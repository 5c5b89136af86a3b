"""The report as a PDF: what its pages say."""

from __future__ import annotations

import copy
import importlib
import io
import sys
from typing import Any

import pytest

from surgeon_passes.errors import UsageError

from .html.records import NASTY, Record, many, of_demo, of_nasty_names

pytest.importorskip("reportlab", reason="the extra 'pdf' is not installed")
pypdf = pytest.importorskip("pypdf", reason="pypdf, which reads what was written, is not installed")


def text_of(record: Record) -> str:
    from surgeon_passes.report.pdf import render_pdf

    reader = pypdf.PdfReader(io.BytesIO(render_pdf(record)))
    return "\n".join(page.extract_text() for page in reader.pages)


@pytest.fixture(scope="module")
def record() -> Record:
    return of_demo()


def test_says_what_the_page_says(record: Record) -> None:
    text = text_of(record)
    for part in (
        "Nodes removed by rule",
        "Error by depth",
        "Health",
        "Declined, by reason",
        "Dynamic shapes",
        "Provenance",
    ):
        assert part in text
    for part in ("was 47, -68 %", "16 in 5", "14 -> 0", record["source"]["sha256"], 'name = "fold"'):
        assert part in text
    assert text.count("fold_batch_norm_into_conv") >= 11


def test_names_are_told_whatever_they_hold() -> None:
    text = " ".join(text_of(of_nasty_names()).split())
    for part in (
        "<img src=x onerror=",
        "bell\\x07 tab\\t line\\nend\\x00",
        "\\u202e",
        "\\u05d0\\u05d1\\u05d2",
        "&lt;b&gt;",
    ):
        assert part in text.replace(" ", "") or part in text, part
    assert NASTY[0].split(">")[0] in text


def test_the_same_record_gives_the_same_bytes(record: Record) -> None:
    from surgeon_passes.report.pdf import render_pdf

    assert render_pdf(record) == render_pdf(copy.deepcopy(record))


def test_a_large_run_is_cut(record: Record) -> None:
    from surgeon_passes.report import pdf

    text = text_of(many(record, pdf.MATCHES + 100))
    assert "… and 100 more in the JSON record" in text


def test_without_the_extra_one_line_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "surgeon_passes.report.pdf", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "reportlab"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "reportlab", None)
    with pytest.raises(UsageError, match=r"^a PDF needs reportlab: pip install 'surgeon-passes\[pdf\]'"):
        importlib.import_module("surgeon_passes.report.pdf")


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (0, "count", "0"),
        (1234567, "count", "1,234,567"),
        (999, "bytes", "999 B"),
        (1234, "bytes", "1.23 kB"),
        (5e12, "big", "5.00 T"),
    ],
)
def test_amounts(value: Any, kind: str, text: str) -> None:
    from surgeon_passes.report.pdf import amount

    assert amount(value, kind) == text
