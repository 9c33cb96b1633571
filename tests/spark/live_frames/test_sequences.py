"""Frames show the newest version after any sequence of commits."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from pyspark.sql import SparkSession

from tests.connect_session import ROOT
from tests.spark.live_frames.sequences import run


def test_frames_show_one_version_after_random_commits(sql: SparkSession) -> None:
    tried = run(sql, range(3), steps=3, frames=3)
    assert tried.uses == 27
    assert tried.longest_s < 60  # recursion into its own plan took minutes


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["classic", "connect"])
def test_frames_show_one_version_in_200_sequences(kind: str) -> None:
    command = [sys.executable, "-m", "tests.spark.live_frames.sequences", kind, "200", "6"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    assert json.loads(done.stdout.splitlines()[-1])["most_processor_s"] <= 3
