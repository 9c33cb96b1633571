"""Delta tables need none of the extras; what does need one names it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

_BLOCK = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"numba", "llvmlite", "fastavro"} or name.startswith("google.protobuf"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Block())
import pyarrow as pa
import pytest
import trilake
from trilake.errors import MissingDependencyError
rows, place = pa.table({"n": [1, 2]}), sys.argv[1]
"""


def _run(script: str, folder: Path) -> None:
    text = _BLOCK + textwrap.dedent(script)
    done = subprocess.run([sys.executable, "-c", text, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_delta_tables_need_no_extra(tmp_path: Path) -> None:
    _run(
        """
        trilake.write(rows, place + "/t", properties={"delta.enableDeletionVectors": "true"})
        trilake.alter(place + "/t").add_constraint("positive", "n > 0")
        table = trilake.open(place + "/t")
        assert table.to_arrow(filter="n > 1").num_rows == 1
        trilake.convert(place + "/t", place + "/p", format="parquet")
        with pytest.raises(trilake.TrilakeError, match="TABLE_NOT_FOUND"):
            trilake.open(place + "/none")
        """,
        tmp_path,
    )


def test_a_format_without_its_libraries_says_what_to_install(tmp_path: Path) -> None:
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
        trilake.write(rows, place + "/tr", format="trevni")  # slower without numba, and the same
        assert trilake.open(place + "/tr").count() == 2
        """,
        tmp_path,
    )


def test_sessions_register_without_the_libraries_of_lance(tmp_path: Path) -> None:
    _run(
        """
        from trilake.spark.front.data_sources import SOURCES
        import trilake.spark.front.savers
        lance = next(s for s in SOURCES if s.name() == "lance")
        with pytest.raises(MissingDependencyError, match="lance"):
            lance({})
        """,
        tmp_path,
    )


def test_spark_names_without_pyspark_say_what_to_install(tmp_path: Path) -> None:
    _run(
        """
        class NoSpark:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] in {"pyspark", "py4j"}:
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)

        sys.meta_path.insert(0, NoSpark())
        wanted = r'pip install "trilake\\[spark\\]"'
        with pytest.raises(MissingDependencyError, match=wanted):
            trilake.session()
        with pytest.raises(MissingDependencyError, match=wanted):
            trilake.register(None)
        with pytest.raises(MissingDependencyError, match=wanted):
            trilake.DeltaTable
        trilake.write(rows, place + "/t")
        assert trilake.open(place + "/t").count() == 2
        """,
        tmp_path,
    )
