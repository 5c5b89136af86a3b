"""Real models: out of wheels that are brought once, and out of the folder that SURGEON_MODELS names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import settings

from benchmarks.entries import Unavailable, Wheels, cache

settings.register_profile("fixed", derandomize=True)
"""The same drawn examples in every run: what decides whether a change lands must not depend on luck."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all-mutants", action="store_true", help="hold every mutant against the verifier, not some of each"
    )


collect_ignore = ["example"]
"""A package of its own, whose tests tests/test_example.py runs."""

IN_CI = os.environ.get("CI", "").lower() in ("1", "true")


def missing(reason: str) -> NoReturn:
    """Skip a test that lacks something from outside; in CI that is a failure."""
    if IN_CI:
        pytest.fail(f"{reason} (a failure in CI)", pytrace=False)
    pytest.skip(reason)


class SkippingWheels(Wheels):
    """Skips the test where a wheel cannot be brought; in CI that is a failure."""

    def read(self, requirement: str, inside: str) -> Path:
        try:
            return super().read(requirement, inside)
        except Unavailable as unavailable:
            missing(str(unavailable))


@pytest.fixture(scope="session")
def wheels() -> Wheels:
    return SkippingWheels(cache())


@pytest.fixture(scope="session")
def models() -> Path:
    """The folder of exporters' files, with its manifest.json."""
    folder = os.environ.get("SURGEON_MODELS")
    if not folder:
        pytest.skip("SURGEON_MODELS names no folder")
    return Path(folder).resolve()
