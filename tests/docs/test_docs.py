"""Every code block in the documentation runs, in page order, or says why not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import LANGUAGES, ROOT, SHOWN, blocks_of, blocks_to_run, name_of, pages, results

pytestmark = pytest.mark.long

#: The number of blocks per page that are not run; their fences give the reason.
NOT_RUN: dict[str, int] = {
    "docs/index.md": 1,
    "docs/report.md": 1,
    "docs/cli.md": 1,
    "docs/howto/catalogs.md": 1,
    "docs/howto/cluster.md": 2,
    "docs/howto/dbt-airflow.md": 1,
    "docs/howto/pipelines.md": 1,
    "docs/howto/sessions.md": 3,
    "README.md": 2,
}

RUNNING = [p for p in pages() if blocks_to_run(p)]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """All pages, run by one process with one Spark session, in an empty folder."""
    folder = tmp_path_factory.mktemp("pages")
    done = subprocess.run(
        [sys.executable, "-m", "tests.docs.blocks", "run", str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))), "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return results(iter(done.stdout.splitlines()))


@pytest.mark.timeout(900)  # the first one waits for all pages
@pytest.mark.parametrize("page", [name_of(p) for p in RUNNING])
def test_every_block_of_a_page_runs(ran: dict[str, dict[str, Any]], page: str) -> None:
    result = ran[page]
    assert result["error"] is None, result["error"]
    assert result["ran"] == len(blocks_to_run(ROOT / page))


def test_every_block_is_run_or_listed_as_not_run() -> None:
    blocks = [b for page in pages() for b in blocks_of(page)]
    strange = [(b.page, b.line, b.language, b.rest) for b in blocks if b.rest or b.language not in (*LANGUAGES, *SHOWN)]
    assert strange == []
    not_run: dict[str, int] = {}
    for b in blocks:
        if b.reason is not None:
            not_run[b.page] = not_run.get(b.page, 0) + 1
    assert not_run == NOT_RUN
    fences = sum(line.lstrip().startswith("```") for page in pages() for line in page.read_text().splitlines())
    assert fences == 2 * len(blocks)


def test_modules_that_pages_name_exist() -> None:
    folders = ("src", "tests", "bench", "scripts", "examples")
    modules = [path.as_posix() for folder in folders for path in (ROOT / folder).rglob("*.py")]
    named = [(page, name) for page in pages() for name in re.findall(r"`([\w/.-]+\.py)`", (ROOT / page).read_text())]
    missing = [(page, name) for page, name in named if not any(module.endswith(f"/{name}") for module in modules)]
    assert len(named) > 30
    assert not missing


def test_failing_block_reports_its_line(tmp_path: Path) -> None:
    from tests.docs.blocks import Block, run_block

    with pytest.raises(ZeroDivisionError) as e:
        run_block(Block("README.md", 7, "python", "x = 1\nx / 0\n", None, ""), {})
    assert e.traceback[-1].lineno + 1 == 9
    with pytest.raises(RuntimeError, match="exit code 3"):
        run_block(Block("README.md", 1, "sh", "exit 3", None, ""), {})
