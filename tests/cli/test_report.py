"""report: an HTML page for a table of every format."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import run


@pytest.mark.parametrize("place", ["delta", "lance", "trevni"])
def test_report_is_written_to_the_given_path(request: pytest.FixtureRequest, tmp_path: Path, place: str) -> None:
    page = tmp_path / "page.html"
    done = run("report", request.getfixturevalue(place), "-o", page, "--json")
    assert done.code == 0, done.err
    assert done.json["file"] == str(page)
    assert done.json["size"] == page.stat().st_size
    assert run("report", request.getfixturevalue(place), "-o", tmp_path / "none" / "page.html").code == 2
