"""The detail row of a table."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa

from tests.delta.tables import fixed_runtime, with_runtime, write
from trilake.delta.commands.write.create import TableDescription, create_table
from trilake.delta.log.descriptions import DETAIL, detail
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.schema import from_arrow
from trilake.delta.standard import standard_engine
from trilake.storage.memory import MemoryStore


def test_detail_has_all_columns() -> None:
    log = DeltaLog(MemoryStore(clock=lambda: 1_700_000_000_123), standard_engine())
    rows = pa.table({"a.b": [1], "s": pa.array([{"x": 1}], pa.struct([("x", pa.int32())]))})
    described = TableDescription(
        from_arrow(rows.schema),
        properties={"owner": "me", "delta.enableDeletionVectors": "true"},
        comment="what it is",
        cluster_by=(("s", "x"), ("a.b",)),
        name="db.t",
    )
    create_table(with_runtime(log, fixed_runtime()), described)
    write(log, rows)
    snapshot = log.snapshot()
    result = detail(log, snapshot)
    assert result.schema.equals(DETAIL)
    (row,) = result.to_pylist()
    assert row["clusteringColumns"] == ["s.x", "`a.b`"]
    assert (row["format"], row["name"], row["description"], row["id"]) == (
        "delta",
        "db.t",
        "what it is",
        snapshot.metadata.id,
    )
    assert row["location"] == log.store.uri
    assert row["lastModified"] == dt.datetime.fromtimestamp(1_700_000_000.124, dt.UTC), "times of commits grow"
    assert row["createdAt"] < row["lastModified"]
    assert (row["numFiles"], row["sizeInBytes"]) == (1, snapshot.adds["size"][0].as_py())
    assert dict(row["properties"]) == {"owner": "me", "delta.enableDeletionVectors": "true"}
    assert (row["minReaderVersion"], row["minWriterVersion"], row["partitionColumns"]) == (3, 7, [])
    assert row["tableFeatures"] == ["appendOnly", "clustering", "deletionVectors", "domainMetadata", "invariants"]


def test_detail_of_an_older_version() -> None:
    log = DeltaLog(MemoryStore(), standard_engine())
    table = pa.table({"p": [1, 2], "n": [1, 2]})
    for mode in ("append", "overwrite"):
        write(log, table, mode, partition_by=("p",))
        table = table.slice(1)
    assert [detail(log, log.snapshot(v))["numFiles"].to_pylist() for v in (0, 1)] == [[2], [1]]
    assert detail(log, log.snapshot())["partitionColumns"].to_pylist() == [["p"]]
