"""Fixtures for the tests of MERGE on Spark."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[str], Callable[[], list[str]]]:
    """Log messages that contain a string, each time since the last call."""
    caplog.set_level(logging.INFO, "trilake.spark")

    def of(part: str) -> Callable[[], list[str]]:
        def matches() -> list[str]:
            found = [m for r in caplog.records if part in (m := r.getMessage())]
            caplog.clear()
            return found

        return matches

    return of
