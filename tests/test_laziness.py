"""Nothing is loaded before it is used: each promise of a module's comment about what it costs to import."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

import trilake

#: Libraries that a table which is opened does not need.
HEAVY = ("sqlglot", "duckdb", "numba", "pyspark", "fastavro", "google.protobuf", "polars", "torch", "rich")

#: Makes a process one where pandas is not installed.
BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path, target=None):
        if name == "pandas":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocked())
"""


def loaded(code: str) -> set[str]:
    """The modules that a process has after running some code."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print('\\n'.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return set(done.stdout.split())


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = str(tmp_path_factory.mktemp("lazy") / "t")
    trilake.write(pa.table({"n": [1, 2, 3]}), place)
    trilake.write(pa.table({"n": [4]}), place, mode="append")
    return place


def test_the_package_alone_loads_nothing() -> None:
    modules = loaded("import trilake")
    assert not {"pyarrow", "numpy", "pandas", *HEAVY} & modules
    assert {m for m in modules if m.startswith("trilake")} == {"trilake", "trilake.version"}


@pytest.mark.parametrize("what", ["version", "schema", "protocol", "metadata"])
def test_opening_a_table_loads_no_engine_of_expressions_or_frames(table: str, what: str) -> None:
    modules = loaded(f"import trilake; trilake.open({table!r}).{what}")
    assert not set(HEAVY) & modules
    assert not {m for m in modules if m.startswith(("trilake.delta.commands", "trilake.spark", "trilake.lance."))}


def test_a_table_opens_where_pandas_is_not_there(table: str) -> None:
    """pyarrow (26) loads pandas with the first Python value that becomes Arrow, where pandas is installed; our modules
    do not, and need none."""
    assert not {"pandas"} & loaded("import trilake; trilake.open")
    code = f"{BLOCKED}import trilake; assert trilake.open({table!r}).count() == 4"
    assert "pandas.core" not in loaded(code)


def test_a_table_is_read_whole_without_an_engine_of_expressions(table: str) -> None:
    assert not {"sqlglot", "duckdb", "numba", "pyspark"} & loaded(f"import trilake; trilake.open({table!r}).to_arrow()")


def test_a_read_through_sparks_source_loads_nothing_that_writes() -> None:
    """Spark imports the source in a new process for each step of a read, which takes longer than the rest of it."""
    modules = loaded("import trilake.spark.delta.source")
    assert not {"sqlglot", "duckdb", "numba", "pandas"} & modules
    assert not {m for m in modules if m.startswith(("trilake.delta.commands", "trilake.lance.", "trilake.trevni."))}


def test_a_filter_loads_what_reads_expressions_and_statistics(table: str) -> None:
    modules = loaded(f"import trilake; assert trilake.open({table!r}).to_arrow(filter='n > 1').num_rows == 3")
    assert {"sqlglot", "duckdb"} <= modules
    assert not {"numba", "pyspark"} & modules
