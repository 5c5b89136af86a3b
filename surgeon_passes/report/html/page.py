"""The page: its template with style, script and data in it.

The data is JSON and the script draws it, rather than markup made in Python: what comes out of a model's file then is never
markup at any step, thousands of matches are paged without being in the document, and drawings are laid out only when they
are looked at. A policy in the page allows this one script and this one style, by their hashes, and nothing from elsewhere.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from surgeon_passes.errors import visible

SCRIPTS = ("dom.js", "charts.js", "drawing.js", "matches.js", "main.js")


def assemble(view: Mapping[str, Any]) -> str:
    """The page that shows ``view``; see :mod:`surgeon_passes.report.html.view`."""
    page, style, script = _parts()
    parts = {
        "title": html.escape(f"{visible(view['title'])} – surgeon-passes"),
        "style": style,
        "script": script,
        "style_hash": _policy_hash(style),
        "script_hash": _policy_hash(script),
        "data": embedded(view),
    }
    pieces = page.split("{")
    found = [pieces[0]]
    for piece in pieces[1:]:  # not str.format: no value is looked into for the next placeholder
        name, _, rest = piece.partition("}")
        found.append(parts[name] + rest)
    return "".join(found)


def embedded(value: object) -> str:
    """JSON that no parser of HTML takes for the end of the script or for a comment. NaN and infinity
    raise ValueError."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _parts() -> tuple[str, str, str]:
    folder = files(__package__)
    scripts = "\n".join((folder / name).read_text("utf-8") for name in SCRIPTS)
    script = f'"use strict";\n(() => {{\n{scripts}\n}})();\n'
    return (folder / "page.html").read_text("utf-8"), (folder / "style.css").read_text("utf-8"), script


def _policy_hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
