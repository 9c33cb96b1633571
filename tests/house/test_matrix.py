"""The script that runs the matrix of Spark releases: its environments and its table."""

from __future__ import annotations

import json
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def matrix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The script as a module, with its own page and results."""
    monkeypatch.setattr("sys.dont_write_bytecode", True)  # nothing beside the script
    loader = SourceFileLoader("matrix_script", str(ROOT / "scripts" / "matrix"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(__import__("sys").modules, loader.name, module)
    loader.exec_module(module)
    page = tmp_path / "compatibility.md"
    page.write_text(f"# Page\n\n{module._BEGIN}\n\nold\n\n{module._END}\n\nEnd.\n")
    calls = tmp_path / "calls"
    calls.mkdir()
    titles = ("read", "write", "limit", "scripts")
    (calls / "test_calls.py").write_text("".join(f'def test_{t}():\n    """{t}"""\n\n\n' for t in titles))
    for name, value in {"ROOT": tmp_path, "TABLE": page, "RESULTS": tmp_path, "CALLS": calls}.items():
        monkeypatch.setattr(module, name, value)
    return module


def test_packages_locked_in_several_versions_keep_their_markers(matrix: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip was given the NumPy of Python 3.12 on Python 3.11, and the environment could not be created."""
    monkeypatch.setattr(matrix, "ROOT", ROOT)
    expected = [Requirement(line) for line in matrix.requirements(matrix.ENVIRONMENTS[0]).splitlines()]
    for python in ("3.11.9", "3.12.1", "3.13.0"):
        system = {"python_full_version": python, "python_version": python.rpartition(".")[0], "sys_platform": "linux"}
        names = [r.name for r in expected if r.marker is None or r.marker.evaluate(system)]
        assert {"pyspark", "numpy", "pyarrow", "pytest"} <= set(names)
        assert len(names) == len(set(names)), python


def test_no_environment_installs_torch(matrix: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its wheels are larger than everything else together, and no call of the suite needs it."""
    monkeypatch.setattr(matrix, "ROOT", ROOT)
    for environment in matrix.ENVIRONMENTS:
        names = [Requirement(line).name for line in matrix.requirements(environment).splitlines()]
        assert "torch" not in names, environment.name
        assert names.count("pyspark") == 1
        assert {"numba", "protobuf", "pyarrow"} <= set(names)


def test_newest_result_wins_and_one_failure_fails_the_row(matrix: Any, tmp_path: Path) -> None:
    """Repeated calls add lines to the results; variants of a call share a row of the table."""

    def results(mode: str, *entries: tuple[str, str, str]) -> None:
        lines = [json.dumps({"test": t, "title": title, "mode": mode, "result": r}) for t, title, r in entries]
        (tmp_path / f"spark-3.5.{mode}.jsonl").write_text("\n".join(lines) + "\n")

    versions = {"python": "3.11.7", "pyspark": "3.5.9", "pyarrow": "26"}
    (tmp_path / "spark-3.5.json").write_text(json.dumps(versions))
    first = [
        ("a", "read", "failed"),
        ("b[x]", "write", "failed"),
        ("b[y]", "write", "works"),
        ("c", "limit", "rejected"),
    ]
    results("classic", *first, ("a", "read", "works"), ("b[y]", "write", "works"))
    results("connect", ("a", "read", "works"), ("a", "read", "failed"))
    matrix.write_table()
    assert (tmp_path / "compatibility.md").read_text().split("\n\n")[2].splitlines() == [
        "| call | 3.5.9<br>classic<br>Python 3.11 | 3.5.9<br>connect, served by 4.0.5<br>Python 3.11 |",
        "|---|:-:|:-:|",
        "| read | yes | **fails** |",
        "| write | **fails** |  |",
        "| limit | no |  |",
    ]


def test_columns_without_new_results_stay_on_the_page(matrix: Any, tmp_path: Path) -> None:
    """Results are not in the repository: running one column in a new checkout removed all others from the page."""
    page = tmp_path / "compatibility.md"
    table = [
        "| call | 3.5.9<br>classic<br>Python 3.11 | 4.3.0<br>classic<br>Python 3.13 |",
        "|---|:-:|:-:|",
        "| read | yes | yes |",
        "| limit | no | **fails** |",
        "| a title that no call has any more | yes | yes |",
    ]
    page.write_text(f"{matrix._BEGIN}\n\n" + "\n".join(table) + f"\n\n{matrix._END}\n")
    (tmp_path / "spark-4.0.json").write_text(json.dumps({"python": "3.12.1", "pyspark": "4.0.5", "pyarrow": "26"}))
    line = {"test": "a", "title": "read", "mode": "connect", "result": "works"}
    (tmp_path / "spark-4.0.connect.jsonl").write_text(json.dumps(line) + "\n")
    matrix.write_table()
    heads = [("3.5.9<br>classic", 1), ("4.0.5<br>connect", 2), ("4.3.0<br>classic", 3)]
    assert page.read_text().split("\n\n")[1].splitlines() == [
        f"| call | {' | '.join(f'{head}<br>Python 3.1{minor}' for head, minor in heads)} |",
        "|---|:-:|:-:|:-:|",
        "| read | yes | yes | yes |",
        "| limit | no |  | **fails** |",
    ]


def test_corpus_cases_are_counted_and_merged_into_the_column(matrix: Any, tmp_path: Path) -> None:
    page = tmp_path / "compatibility.md"
    table = [
        "| call | 3.5.9<br>classic<br>Python 3.11 | 4.3.0<br>classic<br>Python 3.13 |",
        "|---|:-:|:-:|",
        "| read | yes | no |",
        "| scripts |  | 87 of 87 |",
    ]
    page.write_text(f"{matrix._BEGIN}\n\n" + "\n".join(table) + f"\n\n{matrix._END}\n")

    def again(*results: str) -> str:
        lines = [{"test": f"s[{i}]", "title": "scripts", "result": r, "cases": 3} for i, r in enumerate(results)]
        (tmp_path / "spark-3.5.classic.again").write_text("\n".join(map(json.dumps, lines)) + "\n")
        matrix.write_table()
        return page.read_text().split("\n\n")[1]

    assert again("works", "rejected", "works").splitlines() == [*table[:3], "| scripts | 2 of 3 | 87 of 87 |"]
    # A single case or an unfinished run says nothing about all cases.
    assert again("works").splitlines() == [*table[:3], "| scripts | 2 of 3 | 87 of 87 |"]
    assert again("works", "rejected", "failed").splitlines() == [*table[:3], "| scripts | **fails** | 87 of 87 |"]
