"""The page in a headless browser: what it shows, how it is used, and what it withstands."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import surgeon_passes as sp
from benchmarks.entries import Wheels, packaged

from .conftest import SCHEMES, SIZES, Open
from .records import NASTY, Record, many, of_demo, of_nasty_names

expect = pytest.importorskip("playwright.sync_api", reason="the extra 'browser' is not installed").expect

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

NORMAL_TEXT, LARGE_PARTS = 4.5, 3.0
"""Contrast that WCAG 2 AA asks for of text, and of what else carries meaning."""
TEXTS = (
    ("ink", "paper surface sunken accent-soft"),
    ("soft", "paper surface sunken"),
    ("accent", "paper surface accent-soft"),
    ("good", "good-soft"),
    ("warn", "warn-soft"),
    ("bad", "bad-soft"),
)
PARTS = (("edge", "surface paper"), ("accent", "surface paper"), ("bad", "surface"), ("focus", "surface paper"))


@pytest.fixture(scope="module")
def record() -> Record:
    return of_demo()


@pytest.fixture(scope="module")
def nasty() -> Record:
    return of_nasty_names()


def rows(page: Page) -> Locator:
    return page.locator("#matches tbody tr:not(.detail)")


def shown(page: Page) -> list[list[str]]:
    """Texts of the cells of the matches that are shown."""
    texts: list[list[str]] = rows(page).evaluate_all("trs => trs.map(tr => [...tr.cells].map(c => c.textContent))")
    return texts


def status(page: Page) -> str:
    return page.get_by_role("status").inner_text()


def violations(page: Page) -> list[tuple[str, Any]]:
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [(rule["id"], [node["target"] for node in rule["nodes"]]) for rule in found]


def overflow(page: Page) -> int:
    """Pixels by which the document is wider than the window."""
    wider: int = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    return wider


# --- what it looks like ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", SIZES)
def test_nothing_is_wrong_for_whoever_reads_it(record: Record, opened: Open, width: int, scheme: str) -> None:
    odd = copy.deepcopy(record)
    odd["health"] = [{"kind": "k", "severity": s, "text": "odd", "where": ["a" * 90]} for s in ("warning", "note")]
    odd["blocks"] = [{"node": "Add 'a'", "graph": "", "tensor": "x" * 90, "branches": ["Conv", ""], "reason": "why"}]
    odd["matches"][0].update(status="undone", verdict="refuted", reason="too far")
    odd["matches"][1].update(verdict="unverified", status="conflict")
    odd["notes"] = ["a note " + "n" * 200]
    with opened(odd, width, scheme) as page:
        rows(page).nth(3).get_by_role("button").click()
        page.locator("summary").first.click()
        assert page.locator("#matches svg").count() == 2
        assert overflow(page) <= 0
        assert violations(page) == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_colours_differ_enough(record: Record, opened: Open, scheme: str) -> None:
    """Where axe cannot tell: texts in drawings, bars, lines and the focus ring."""
    with opened(record, scheme=scheme) as page:
        styles = "getComputedStyle(document.documentElement)"
        colours = {n: page.evaluate(f"{styles}.getPropertyValue('--{n}').trim()") for n in _colours()}
    for pairs, least in ((TEXTS, NORMAL_TEXT), (PARTS, LARGE_PARTS)):
        for front, backs in pairs:
            for back in backs.split():
                assert contrast(colours[front], colours[back]) >= least, (front, back)


def test_light_and_dark_are_two_looks(record: Record, opened: Open) -> None:
    backs = []
    for scheme in SCHEMES:
        with opened(record, scheme=scheme) as page:
            backs.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(set(backs)) == 2


def _colours() -> set[str]:
    return {name for front, backs in (*TEXTS, *PARTS) for name in (front, *backs.split())}


def contrast(first: str, second: str) -> float:
    """Of two colours like #1b1c22, as WCAG 2 defines it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(first), luminance(second)))
    return (light + 0.05) / (dark + 0.05)


# --- what it says ----------------------------------------------------------------------------------------------------


def test_figures_bars_and_sections(record: Record, opened: Open) -> None:
    with opened(record) as page:
        assert page.title() == "the model – surgeon-passes"
        assert page.locator(".figure").first.inner_text().split() == ["Nodes", "15", "was", "47", "−68", "%"]
        widths = page.locator(".figure").first.locator(".bar").evaluate_all("bars => bars.map(b => b.style.width)")
        assert [round(float(w.rstrip("%"))) for w in widths] == [100, 32]
        first = page.locator("#removed li").first.inner_text().split("\n")
        assert first == ["merge_parallel_branches", "16 in 5"]
        assert page.locator("#operators li").first.inner_text().split("\n") == ["BatchNormalization", "14 → 0"]
        heads = page.locator("section h2").all_inner_texts()
        assert heads == page.locator("nav a").all_inner_texts()
        assert {"Error by depth", "Declined", "Health", "Dynamic shapes", "Passes", "Provenance"} <= set(heads)
        assert record["source"]["sha256"] in page.locator("#origin").inner_text()


def test_the_rest_of_a_long_list_is_shown_on_request(record: Record, opened: Open) -> None:
    with opened(record) as page:
        operators = page.locator("#operators li")
        assert operators.count() == 10
        page.get_by_role("button", name="Show 2 more operators").click()
        assert operators.count() == 12
        assert page.get_by_role("button", name="more operators").count() == 0


def test_each_error_is_a_point_that_opens_its_match(record: Record, opened: Open) -> None:
    measured = [m for m in record["matches"] if m["max_error"] is not None and m["place"] is not None]
    with opened(record) as page:
        points = page.locator("#depth circle")
        assert points.count() == len(measured) > 10
        page.get_by_label("Status", exact=True).select_option("=applied")
        points.nth(5).click()
        title = points.nth(5).locator("title").text_content() or ""
        opened_row = page.locator("#matches tr.open th").inner_text()
        assert title.startswith(f"{opened_row} at ")
        assert page.get_by_label("Status", exact=True).input_value() == ""


# --- how it is used --------------------------------------------------------------------------------------------------


def test_filters(record: Record, opened: Open) -> None:
    folds = [m for m in record["matches"] if m["rule"] == "fold_batch_norm_into_conv"]
    odd = copy.deepcopy(record)
    odd["matches"][2]["status"] = "undone"
    total = len(odd["matches"])
    with opened(odd) as page:
        assert status(page) == f"1–{total} of {total} matches"
        page.get_by_label("Rule", exact=True).select_option("=fold_batch_norm_into_conv")
        assert {row[0] for row in shown(page)} == {"fold_batch_norm_into_conv"}
        assert status(page) == f"1–{len(folds)} of {len(folds)} matches (of {total})"
        page.get_by_label("Status", exact=True).select_option("=undone")
        assert len(shown(page)) == 1
        page.get_by_label("Rule", exact=True).select_option("=drop_identity")
        assert (shown(page), status(page)) == ([], "No match has all of this")
        page.get_by_label("Rule", exact=True).select_option("")
        page.get_by_label("Status", exact=True).select_option("")
        assert len(shown(page)) == total


def test_search(record: Record, opened: Open) -> None:
    with opened(record) as page:
        page.get_by_label("Search", exact=True).fill("STAGE3.identity")
        expect(page.get_by_role("status")).to_have_text("1–1 of 1 matches (of 19)")
        found = shown(page)
        assert [row[:2] for row in found] == [["merge_parallel_branches", "Add 'stage3.add_identity'"]]
        page.get_by_label("Search", exact=True).fill("nothing is called so")
        expect(rows(page)).to_have_count(0)


def test_order(record: Record, opened: Open) -> None:
    errors = sorted((m["max_error"] for m in record["matches"] if m["max_error"] is not None), reverse=True)
    with opened(record) as page:
        head = page.get_by_role("columnheader", name="Largest error")
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") == "descending"
        assert [row[4] for row in shown(page)][:3] == [f"{e:.1e}".replace("e-0", "e−") for e in errors[:3]]
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") == "ascending"
        assert next(row[4] for row in shown(page)) == "0"


def test_a_match_is_drawn_before_and_after(record: Record, opened: Open) -> None:
    number = next(n for n, m in enumerate(record["matches"]) if len(m["region"]["removed"]) == 5)
    region = record["matches"][number]["region"]
    with opened(record) as page:
        row = rows(page).nth(number)
        row.get_by_role("button").click()
        before, after = page.locator("#matches figure").all()
        assert before.inner_text().startswith("Before, 5 nodes")
        drawn = before.locator("g:has(rect.operator) text:nth-of-type(1)").all_text_contents()
        assert sorted(drawn) == sorted(node["op"] for node in region["removed"])
        assert after.locator("rect.operator").count() == len(region["added"]) == 1
        assert before.locator("path.edge").count() == 8  # x to three branches, those to two Adds, and out
        assert after.locator("path.edge").count() == 2
        boxes = before.locator("rect").evaluate_all(
            "rects => rects.map(r => r.getBBox()).map(b => [b.x, b.y, b.width, b.height])"
        )
        assert not any(overlap(a, b) for i, a in enumerate(boxes) for b in boxes[:i])
        row.get_by_role("button").click()
        assert page.locator("#matches figure").count() == 0


def overlap(a: list[float], b: list[float]) -> bool:
    return a[0] < b[0] + b[2] and b[0] < a[0] + a[2] and a[1] < b[1] + b[3] and b[1] < a[1] + a[3]


def test_keys_do_what_the_mouse_does(record: Record, opened: Open) -> None:
    with opened(record) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
        page.get_by_label("Verdict", exact=True).focus()
        for _ in range(7):  # the heads of the columns, then the first match
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        assert rows(page).first.get_by_role("button").get_attribute("aria-expanded") == "true"
        page.locator("summary").first.focus()
        page.keyboard.press("Enter")
        assert page.locator("details").first.get_attribute("open") is not None


# --- what it withstands ----------------------------------------------------------------------------------------------


def test_names_are_never_markup(nasty: Record, opened: Open) -> None:
    with opened(nasty, 390) as page:
        assert page.evaluate("window.hit") is None
        assert page.locator("img").count() == 0
        assert page.locator("script").count() == 2
        places = page.locator("#matches tbody td:nth-child(2)").all_inner_texts()
        assert any(NASTY[0] in place for place in places)
        assert any("bell\\x07 tab\\t line\\nend\\x00" in place for place in places)
        assert any("right \\u202e to left \u05d0\u05d1\u05d2" in place for place in places)
        assert any("\u4e2d\u6587 {data} &lt;b&gt; \\u003c" in place for place in places)
        for number in range(4):
            rows(page).nth(number).get_by_role("button").click()
        assert page.locator("#matches figure").count() == 2
        assert overflow(page) <= 0


def test_a_large_run_is_paged(record: Record, opened: Open, tmp_path: Path) -> None:
    large = many(record, 5000)
    with opened(large) as page:
        assert (tmp_path / "report.html").stat().st_size < 5_000_000
        assert status(page) == "1–50 of 5,000 matches"
        assert page.evaluate("document.querySelectorAll('*').length") < 10_000
        page.get_by_role("button", name="Next", exact=True).click()
        assert status(page) == "51–100 of 5,000 matches"
        page.get_by_label("Search", exact=True).fill("stage4986.")
        expect(rows(page)).to_have_count(1)
        assert page.get_by_role("button", name="Next", exact=True).is_disabled()


def test_a_run_that_changed_nothing(record: Record, opened: Open) -> None:
    empty = {**record, "matches": [], "near_misses": [], "passes": [], "after": record["before"]}
    with opened(empty) as page:
        assert page.locator("#removed").inner_text().endswith("No rule removed a node.")
        assert page.locator("#matches").count() == page.locator("#depth").count() == 0
        assert violations(page) == []


# --- real models -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nudenet_320n", "slanet_plus"])
def test_models_of_packages(name: str, wheels: Wheels, opened: Open) -> None:
    entry = next(entry for entry in packaged() if entry["name"] == name)
    path = wheels.read(entry["package"], entry["path"])
    assert_clean(sp.optimize(path, verify=sp.Verify(end_check=False), record=True), opened)


def test_an_export_of_repvgg(models: Path, opened: Open) -> None:
    result = sp.optimize(models / "rep_repvgg_groups__raw.onnx", record=True)
    assert_clean(result, opened)


def assert_clean(result: sp.Result, opened: Open) -> None:
    """Counts are the record's, and nothing is wrong in either size; the narrow one is read out, too."""
    record = result.record()
    for width, scheme in zip(SIZES, SCHEMES, strict=True):
        with opened(record, width, scheme) as page:
            assert page.locator(".figure .now").first.inner_text() == f"{result.after.nodes:,}"
            assert status(page).split(" of ")[1].startswith(f"{len(record['matches']):,} match")
            drawable = next(n for n, m in enumerate(record["matches"]) if m["region"] is not None)
            if drawable < rows(page).count():
                rows(page).nth(drawable).get_by_role("button").click()
                assert page.locator("#matches figure").count() == 2
            assert overflow(page) <= 0
            assert width > 390 or violations(page) == []
