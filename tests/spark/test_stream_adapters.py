"""Stream readers and writers of the data sources, called like by Spark, but without Spark.

Spark pickles the source after reading its schema, creates readers in one process for offsets and in another for rows,
and creates a new writer for each batch and another for its commit.
"""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import types as T
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxFiles

import trilake
from trilake.errors import InvalidArgumentError, MissingFileError, SchemaMismatchError, TrilakeError
from trilake.spark.delta.source import DeltaDataSource
from trilake.spark.lance.source import LanceDataSource
from trilake.spark.trevni.source import TrevniDataSource

SOURCES: dict[str, Any] = {"delta": DeltaDataSource, "lance": LanceDataSource, "trevni": TrevniDataSource}


def rows(first: int, many: int = 3) -> pa.Table:
    ids = range(first, first + many)
    return pa.table({"id": pa.array(ids, pa.int64()), "s": [str(i) for i in ids]})


def travelled(value: Any) -> Any:
    return cloudpickle.loads(cloudpickle.dumps(value))


class Query:
    """A simulated Spark query from one folder to another, in micro-batches."""

    def __init__(self, format: str, folder: Path, **options: str) -> None:
        self.format, self.folder, self.options = format, folder, options
        self.checkpoint = folder / "checkpoint"
        self.offsets: list[tuple[Any, Any]] = []
        self.commits = 0
        self.checkpoint.mkdir(parents=True, exist_ok=True)
        (self.checkpoint / "metadata").write_bytes(orjson.dumps({"id": "5e14070a-2218"}))

    def run(self, mode: str = "append", *, forget: bool = False, **sink: str) -> list[int]:
        """Run until the source is drained; rows by batch.  ``forget``: the last batch has no commit entry."""
        found = SOURCES[self.format]({"path": str(self.folder / "in"), **self.options})
        schema = found.schema()
        found = travelled(found)
        reader, out = found.streamReader(schema), []
        if forget:
            self.commits -= 1
        reader.prepareForTriggerAvailableNow()
        while True:
            if self.commits == len(self.offsets):
                start = self.offsets[-1][1] if self.offsets else spoken(reader.initialOffset())
                end = spoken(reader.latestOffset(start, reader.getDefaultReadLimit()))
                if end == start and self.offsets:
                    return out
                self.offsets.append((start, end))
            start, end = self.offsets[-1]
            partitions = travelled(reader.partitions(start, end))
            elsewhere = travelled(travelled(found).streamReader(schema))
            out.append(self.write([list(elsewhere.read(p)) for p in partitions], schema, mode, sink))
            self.commits += 1

    def write(self, tasks: list[list[pa.RecordBatch]], schema: T.StructType, mode: str, sink: dict[str, str]) -> int:
        options = {"path": str(self.folder / "out"), "checkpointlocation": str(self.checkpoint), **sink}
        writer = travelled(SOURCES[self.format](dict(options)).streamWriter(schema, mode == "complete"))
        messages = [travelled(writer.write(iter(batches))) for batches in tasks]
        again = travelled(SOURCES[self.format](dict(options))).streamWriter(schema, mode == "complete")
        again.commit(messages, len(self.offsets) - 1)
        again.abort([], 0)
        return sum(b.num_rows for batches in tasks for b in batches)

    def ids(self) -> list[int]:
        return sorted(trilake.open(self.folder / "out").to_arrow(["id"])["id"].to_pylist())

    def grow(self, first: int, **fields: Any) -> None:
        trilake.write(rows(first), self.folder / "in", mode="append", format=self.format, **fields)


def spoken(offset: dict[str, Any]) -> Any:
    """An offset after passing through Spark as a string."""
    return json.loads(json.dumps(offset))


@pytest.fixture(params=list(SOURCES))
def query(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Query:
    tasks = count()  # Spark gives tasks different ids
    monkeypatch.setattr("trilake.spark.trevni.source.task_name", lambda: (f"{next(tasks):05d}", "0"))
    return Query(request.param, tmp_path, maxfilespertrigger="2")


def test_batches_restarts_and_repeated_batches(query: Query) -> None:
    for i in range(3):
        query.grow(3 * i)
    assert query.run() == [6, 3]
    assert query.ids() == list(range(9))
    assert query.run(forget=True) == [3]
    assert query.ids() == list(range(9))
    query.grow(9)
    assert query.run() == [3]
    assert query.ids() == list(range(12))
    assert query.run() == []


def test_complete_mode_replaces_all_rows(query: Query) -> None:
    query.grow(0)
    query.run("complete")
    query.grow(3)
    query.run("complete")
    query.run("complete", forget=True)
    assert query.ids() == [3, 4, 5]


def test_progress_reports_and_limits(query: Query) -> None:
    query.grow(0)
    found = SOURCES[query.format]({"path": str(query.folder / "in")})
    reader = found.streamReader(found.schema())
    assert reader.getDefaultReadLimit() == ReadMaxFiles(1000)
    start = spoken(reader.initialOffset())
    end = spoken(reader.latestOffset(start, ReadAllAvailable()))
    newest = reader.reportLatestOffset()
    if query.format == "delta":
        assert newest["reservoirVersion"] == end["reservoirVersion"] == 1
    elif query.format == "lance":
        assert newest["version"] == end["version"] == 2
    assert reader.partitions(end, end) == []
    reader.commit(end)
    reader.stop()


def test_sink_without_a_checkpoint_is_rejected(query: Query) -> None:
    query.grow(0)
    found = SOURCES[query.format]({"path": str(query.folder / "in")})
    with pytest.raises(InvalidArgumentError, match="checkpoint"):
        SOURCES[query.format]({"path": str(query.folder / "out")}).streamWriter(found.schema(), False)


def test_unknown_options_are_rejected(query: Query) -> None:
    query.grow(0)
    found = SOURCES[query.format]({"path": str(query.folder / "in"), "maxfilespertriger": "1"})
    with pytest.raises(TrilakeError, match="maxfilespertriger"):
        found.schema()


# --- Delta only -------------------------------------------------------------------------------------------------------


def test_delta_bytes_partitions_new_columns_and_properties(tmp_path: Path) -> None:
    query = Query("delta", tmp_path, maxbytespertrigger="1")
    for i in range(2):
        query.grow(3 * i)
    found = DeltaDataSource({"path": str(tmp_path / "in"), "maxbytespertrigger": "9"})
    assert found.streamReader(found.schema()).getDefaultReadLimit() == ReadMaxBytes(9)
    assert query.run(partitionby="s", **{"delta.appendOnly": "true"}) == [3, 3]
    table = trilake.open(tmp_path / "out")
    assert table.metadata.partition_columns == ("s",)  # type: ignore[attr-defined]
    wider = rows(6).append_column("n", pa.array([1, 2, 3]))
    trilake.write(wider, tmp_path / "in", mode="append", schema_mode="merge")
    with pytest.raises(SchemaMismatchError):
        query.run()
    assert query.run(mergeschema="true") == [3]
    assert trilake.open(tmp_path / "out").count("n > 0") == 3


def test_delta_selected_columns_and_missing_files(tmp_path: Path) -> None:
    query = Query("delta", tmp_path)
    query.grow(0)
    query.grow(3)
    found = DeltaDataSource({"path": str(tmp_path / "in"), "failondataloss": "true"})
    schema = T.StructType([T.StructField("S", T.StringType())])
    reader = found.streamReader(schema)
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    assert sum(b.num_rows for p in parts for b in reader.read(p)) == 6
    assert {n for p in parts for b in reader.read(p) for n in b.schema.names} == {"S"}
    reader = found.streamReader(T.StructType([T.StructField("s", T.StringType())]))
    assert sum(b.num_rows for p in parts for b in reader.read(p)) == 6
    gone = trilake.open(tmp_path / "in").files()["path"][0].as_py()
    (tmp_path / "in" / gone).unlink()
    with pytest.raises(TrilakeError, match="was deleted before") as e:
        [b for p in parts for b in reader.read(p)]
    assert e.value.code == "STREAM_DATA_LOSS"
    assert isinstance(e.value.__cause__, MissingFileError)
    lenient = DeltaDataSource({"path": str(tmp_path / "in"), "failondataloss": "false"})
    reader = lenient.streamReader(T.StructType([T.StructField("s", T.StringType())]))
    assert sum(b.num_rows for p in parts for b in reader.read(p)) == 3
    with pytest.raises(InvalidArgumentError, match="no column 'nothing'"):
        found.streamReader(T.StructType([T.StructField("nothing", T.StringType())])).initialOffset()


def test_delta_invalid_sink_options(tmp_path: Path) -> None:
    query = Query("delta", tmp_path)
    query.grow(0)
    for wrong in ({"txnappid": "a", "txnversion": "1"}, {"optimizewrite": "true"}):
        with pytest.raises(InvalidArgumentError):
            query.run(**wrong)


def test_delta_source_after_optimize_vacuum_change_and_restore(tmp_path: Path) -> None:
    query = Query("delta", tmp_path)
    for i in range(3):
        query.grow(3 * i)
    query.run()
    trilake.open(tmp_path / "in").optimize()  # type: ignore[attr-defined]
    assert query.run() == []
    trilake.open(tmp_path / "in").vacuum(0, dry_run=False, enforce_retention=False)  # type: ignore[attr-defined]
    query.grow(9)
    assert query.run() == [3]
    fresh = Query("delta", tmp_path / "fresh")  # starts with the existing files
    (tmp_path / "fresh" / "in").symlink_to(tmp_path / "in")
    assert fresh.run() == [12]
    late = Query("delta", tmp_path / "late", startingversion="0")
    (tmp_path / "late" / "in").symlink_to(tmp_path / "in")
    with pytest.raises(TrilakeError, match="was deleted before") as gone:
        late.run()
    assert gone.value.code == "STREAM_DATA_LOSS"
    version = trilake.open(tmp_path / "in").version
    trilake.open(tmp_path / "in").delete("id = 9")  # type: ignore[attr-defined]
    with pytest.raises(TrilakeError, match="skipChangeCommits") as changed:
        query.run()
    assert changed.value.code == "STREAM_ROWS_CHANGED"
    query.options["skipchangecommits"] = "true"
    query.run()
    trilake.open(tmp_path / "in").restore(version)  # type: ignore[attr-defined]
    query.grow(12)
    query.run()
    assert query.ids() == list(range(15))
    assert late.offsets


def test_delta_change_feed(tmp_path: Path) -> None:
    query = Query("delta", tmp_path, readchangefeed="true", startingversion="0")
    query.grow(0, properties={"delta.enableChangeDataFeed": "true"})
    query.grow(3)
    trilake.open(tmp_path / "in").delete("id = 4")  # type: ignore[attr-defined]
    query.run()
    found = trilake.open(tmp_path / "out").to_arrow(["_change_type", "_commit_version"]).to_pylist()
    counts = sorted((r["_commit_version"], r["_change_type"]) for r in found)
    assert counts == [*[(0, "insert")] * 3, *[(1, "insert")] * 3, (2, "delete")]
    now = Query("delta", tmp_path / "now", readchangefeed="true")
    (tmp_path / "now" / "in").symlink_to(tmp_path / "in")
    now.run()
    assert trilake.open(tmp_path / "now" / "out").count("_change_type = 'insert' AND _commit_version = 2") == 5


def test_delta_mapped_columns_and_deletion_vectors(tmp_path: Path) -> None:
    query = Query("delta", tmp_path)
    query.grow(0, properties={"delta.enableDeletionVectors": "true", "delta.columnMapping.mode": "name"})
    trilake.open(tmp_path / "in").delete("id = 1")  # type: ignore[attr-defined]
    assert trilake.open(tmp_path / "in").files()["deletion_vector"].null_count == 0
    trilake.alter(tmp_path / "in").rename_column("s", "renamed")
    query.run()
    assert query.ids() == [0, 2]
    assert trilake.open(tmp_path / "out").schema.names == ["id", "renamed"]
