"""A headless Chromium, Debian's or whoever's is installed, and pages in it."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from surgeon_passes.report.html.page import assemble
from surgeon_passes.report.html.view import view_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
SIZES = (1280, 390)
SCHEMES = ("light", "dark")

Open = Callable[..., "AbstractContextManager[Page]"]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if importlib.util.find_spec("playwright") is None or importlib.util.find_spec("axe_playwright_python") is None:
        pytest.skip("the extra 'browser' is not installed")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("there is no Chromium (Debian's package 'chromium')")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Open:
    """Opens the page of a record, at a size and in a scheme; what it says on the console, or asks the network for, fails."""

    @contextmanager
    def go(record: dict[str, Any], width: int = 1280, scheme: str = "light") -> Iterator[Page]:
        path = tmp_path / "report.html"
        path.write_text(assemble(view_of(record)), "utf-8")
        context: Any = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page = context.new_page()
        said: list[str] = []
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(f"error: {error}"))
        page.on("request", lambda request: said.extend([request.url] * (request.url != path.as_uri())))
        page.goto(path.as_uri())
        yield page
        context.close()
        assert said == []

    return go
