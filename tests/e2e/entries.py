"""Entries of packages.json and of a manifest.json: what a model is, and inputs that are legal for it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

Entry: TypeAlias = dict[str, Any]
Feeds: TypeAlias = dict[str, Any]

DATA = Path(__file__).parent.parent / "data"
DTYPES = {
    "FLOAT": np.float32,
    "FLOAT16": np.float16,
    "DOUBLE": np.float64,
    "INT64": np.int64,
    "INT32": np.int32,
    "BOOL": np.bool_,
}


def packaged() -> list[Entry]:
    return list(json.loads((DATA / "packages.json").read_text()))


def exported() -> list[Entry]:
    """Entries of the folder that SURGEON_MODELS names; none where it is not set."""
    folder = os.environ.get("SURGEON_MODELS")
    return list(json.loads((Path(folder) / "manifest.json").read_text())) if folder else []


def feeds(entry: Entry, seed: int = 0, alt: bool = False) -> Feeds:
    """Inputs at ``static_inputs``, or at the second shapes."""
    shapes = entry["alt_static_inputs" if alt else "static_inputs"]
    kinds = (entry.get("alt_input_gen") if alt else None) or entry["input_gen"] or {}
    random = np.random.default_rng(seed)
    found = {}
    for given in entry["inputs"]:
        name, dtype = given["name"], DTYPES[given["dtype"]]
        if name in shapes:
            usual = {"kind": "normal", "scale": 0.5} if np.issubdtype(dtype, np.floating) else {"kind": "bits"}
            found[name] = np.asarray(_values(kinds.get(name, usual), shapes[name], random)).astype(dtype)
    return found


def data(entry: Entry, static: bool = False) -> Callable[[], list[Feeds]]:
    """For ``Verify(data=...)``: the first shapes and, where dims stay open, the second ones too."""
    second = [feeds(entry, 1, alt=True)] if "alt_static_inputs" in entry and not static else []
    return lambda: [feeds(entry, 0), *second]


def _values(kind: Entry, shape: list[int], random: np.random.Generator) -> Any:
    match kind["kind"]:
        case "normal":
            return random.standard_normal(shape) * kind.get("scale", 1.0)
        case "uniform":
            return random.uniform(kind["low"], kind["high"], shape)
        case "randint":
            return random.integers(kind["low"], kind["high"], shape)
        case "bits" | "bool":
            return random.integers(0, 2, shape)
        case "ones":
            return np.ones(shape)
        case "zeros":
            return np.zeros(shape)
        case "const":
            return np.full(shape, kind["value"])
    raise ValueError(f"unknown kind of input: {kind}")
