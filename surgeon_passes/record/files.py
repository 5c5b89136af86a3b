"""Records on disk."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from surgeon_passes.errors import ModelError
from surgeon_passes.model.files import write_bytes
from surgeon_passes.record.schema import problem, schema_of


def write_record(path: str | os.PathLike[str], record: Mapping[str, Any]) -> None:
    """Write a record as JSON, whole or not at all. Raises ModelError."""
    write_bytes(path, (json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8"))


def read_record(path: str | os.PathLike[str]) -> dict[str, Any]:
    """A decision record. Raises ModelError."""
    return read_json(path, "surgeon_passes.record", "a decision record")


def read_json(path: str | os.PathLike[str], package: str, what: str) -> dict[str, Any]:
    """What a file holds that the schema of ``package`` describes; ``what`` names that in messages.

    Raises ModelError in one line for a file that cannot be read, is of another kind or version, or is damaged.
    """
    name, schema = os.fspath(path), schema_of(package)
    form, version = (schema["properties"][field]["const"] for field in ("format", "version"))
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{name}: cannot be read ({error.strerror or error})") from None
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise ModelError(f"{name}: not {what}: {error}") from None
    if not isinstance(found, dict) or found.get("format") != form:
        raise ModelError(f"{name}: not {what} (its format is not '{form}')")
    if found.get("version") != version:
        raise ModelError(
            f"{name}: {what} of version {found.get('version')!r}, and this is of {version}; write it anew, or update"
        )
    fault = problem(found, schema)
    if fault:
        raise ModelError(f"{name}: {what} that is damaged: {fault}; write it anew")
    return found
