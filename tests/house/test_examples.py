"""The examples run as written; ``make demo`` runs the flights example."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trilake.spark.session.compat import RELEASE

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.timeout(600)
@pytest.mark.skipif(RELEASE < (4, 1), reason="Spark has no pipelines before 4.1")
def test_spark_pipeline_reads_and_writes_all_formats() -> None:
    done = subprocess.run(
        [sys.executable, "examples/pipeline/run.py"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "1,000 orders are in the Lance dataset, 200 large ones" in " ".join(done.stdout.split())
