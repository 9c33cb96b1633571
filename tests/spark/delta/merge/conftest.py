"""What the tests of MERGE on Spark share."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[str], Callable[[], list[str]]]:
    """Gives, for a part of a message, what asks for such messages since it was asked last."""
    caplog.set_level(logging.INFO, "trilake.spark")

    def of(part: str) -> Callable[[], list[str]]:
        def told() -> list[str]:
            found = [m for r in caplog.records if part in (m := r.getMessage())]
            caplog.clear()
            return found

        return told

    return of
