"""The import contracts: each can be broken, and the one about pyspark lists every layer left of ``spark``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.test_house import PROJECT, ROOT, SOURCES


def lint_imports(house: Path) -> subprocess.CompletedProcess[str]:
    lint = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": str(house / "src")}
    return subprocess.run(lint, cwd=house, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def empty_house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same package tree with empty modules, which breaks no contract."""
    house = tmp_path_factory.mktemp("house")
    for source in SOURCES:
        copy = house / source.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text("")
    shutil.copy(ROOT / "pyproject.toml", house)
    good = lint_imports(house)
    assert good.returncode == 0, good.stdout + good.stderr
    return house


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("storage/bad.py", "import trilake.table.table", "Layers point one way; formats do not know each other"),
        ("storage/bad.py", "import pyspark.sql", "Nothing left of spark imports pyspark"),
        ("spark/session/java.py", "import pyspark", "The choice of Java needs no pyspark"),
        ("misplaced.py", "", "Layers point one way; formats do not know each other"),
        ("delta/log/bad.py", "import trilake.delta.scan.scan", "The folders of delta import only from their left"),
        ("delta/misplaced.py", "", "The folders of delta import only from their left"),
        (
            "delta/commands/rows/bad.py",
            "import trilake.delta.commands.merge.merge",
            "The commands of delta import only from their left",
        ),
        (
            "spark/lance/bad.py",
            "import trilake.spark.delta.table",
            "The folders of spark import only from their left; its formats do not know each other",
        ),
        ("spark/delta/reading/read.py", "import trilake.spark.delta.table", "Spark's names of Delta stand on its jobs"),
    ],
)
def test_contract_violation_is_reported(empty_house: Path, module: str, line: str, contract: str) -> None:
    """A contract that cannot be broken checks nothing."""
    bad = empty_house / "src" / "trilake" / module
    before = bad.read_text() if bad.exists() else None
    bad.write_text(line + "\n")
    done = lint_imports(empty_house)
    if before is None:
        bad.unlink()
    else:
        bad.write_text(before)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{contract} BROKEN" in " ".join(done.stdout.split())


def test_pyspark_contract_lists_all_layers_left_of_spark() -> None:
    contracts = {c["name"]: c for c in PROJECT["tool"]["importlinter"]["contracts"]}
    layers = contracts["Layers point one way; formats do not know each other"]["layers"]
    left = layers[layers.index("(spark)") + 1 :]
    names = [f"trilake.{name.strip(' ()')}" for layer in left for name in layer.split("|")]
    contract = contracts["Nothing left of spark imports pyspark"]
    assert contract["source_modules"] == names
    assert "ignore_imports" not in contract
