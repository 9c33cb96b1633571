"""NaN is the greatest value in Spark but in no bound, so files and row groups with NaN must not be skipped."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import trilake
from trilake.delta.engine import Engine
from trilake.delta.files.file_plan import FilePlan
from trilake.delta.files.write_files import write_files
from trilake.delta.protocol.schema import from_arrow
from trilake.storage import open_store


def has_bounds(file: Path, column: int) -> bool:
    statistics = pq.ParquetFile(file).metadata.row_group(0).column(column).statistics
    return statistics is not None and statistics.has_min_max


def test_column_with_nan_has_no_bounds_in_the_file(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    trilake.write(pa.table({"x": [1.0, float("nan")], "s": [{"y": 2.0}, {"y": 3.0}]}), path)
    (file,) = Path(path).glob("*.parquet")
    assert not has_bounds(file, 0)
    assert has_bounds(file, 1)
    table = trilake.open(path)
    assert table.count("x > 100") == 1
    assert table.count("s.y > 100") == 0
    assert "maxValues" not in table.files()["stats"][0].as_py() or '"x"' not in table.files()["stats"][0].as_py()


def test_first_nan_starts_another_file(tmp_path: Path) -> None:
    schema = pa.schema([("x", pa.float64())])
    plan = FilePlan(from_arrow(schema), (), "job", Engine(), buffer_size=0)
    batches = [pa.record_batch({"x": [v]}) for v in (1.0, 2.0, float("nan"), float("nan"), 3.0)]
    store = open_store(str(tmp_path))
    adds = write_files(store, plan, batches).actions
    rows = [pq.read_table(tmp_path / a["path"])["x"].to_pylist() for a in adds]
    assert [len(r) for r in rows] == [2, 3]
    assert [has_bounds(tmp_path / a["path"], 0) for a in adds] == [True, False]
