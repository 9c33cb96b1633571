"""Delta logs of any length without data files, to measure snapshot loading alone.

They are written with pyarrow and json, so that no contender reads its own output.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": type_, "nullable": True, "metadata": {}}
            for name, type_ in (("a", "long"), ("s", "string"), ("month", "integer"))
        ],
    }
)
_PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}
_METADATA: dict[str, Any] = {
    "id": "3935a07c-416b-4344-ad97-2a38342ee2fc",
    "format": {"provider": "parquet", "options": {}},
    "schemaString": _SCHEMA,
    "partitionColumns": ["month"],
    "configuration": {},
    "createdTime": 1_700_000_000_000,
}
_ROWS, _TIME = 1000, 1_700_000_000_000
#: Files per row group of a checkpoint.
_GROUP = 1 << 20
_MAP = pa.map_(pa.string(), pa.string())
_STRINGS = pa.list_(pa.string())
_BOUNDS = pa.struct([("a", pa.int64()), ("s", pa.string())])
_PARSED = [
    pa.field("partitionValues_parsed", pa.struct([("month", pa.int32())])),
    pa.field(
        "stats_parsed",
        pa.struct(
            [
                ("numRecords", pa.int64()),
                ("minValues", _BOUNDS),
                ("maxValues", _BOUNDS),
                ("nullCount", pa.struct([("a", pa.int64()), ("s", pa.int64())])),
            ]
        ),
    ),
]
#: Files per row group of a checkpoint with typed statistics.
_PARSED_GROUP = 1 << 16
_CHECKPOINT = pa.schema(
    [
        (
            "add",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("partitionValues", _MAP),
                    ("size", pa.int64()),
                    ("modificationTime", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("stats", pa.string()),
                ]
            ),
        ),
        ("remove", pa.struct([("path", pa.string()), ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_())])),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("format", pa.struct([("provider", pa.string()), ("options", _MAP)])),
                    ("schemaString", pa.string()),
                    ("partitionColumns", _STRINGS),
                    ("configuration", _MAP),
                    ("createdTime", pa.int64()),
                ]
            ),
        ),
        ("protocol", pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])),
    ]
)


def long_table(
    folder: Path, *, files: int, commits: int, added: int, step: int = 1, months: int = 12, parsed: bool = False
) -> None:
    """A log whose checkpoint at version 0 has ``files`` minus those of the later ``commits``, ``added`` each.

    File ``i`` starts with the value ``i * step`` of the column ``a``, has a thousand values, and is in the
    partition ``i % months`` of ``month``.  With ``parsed`` the checkpoint also has typed statistics, as with
    ``delta.checkpoint.writeStatsAsStruct``.
    """
    schema = _with_parsed(_CHECKPOINT) if parsed else _CHECKPOINT
    size = _PARSED_GROUP if parsed else _GROUP
    log = folder / "_delta_log"
    log.mkdir()
    kept = files - commits * added
    target = log / f"{0:020d}.checkpoint.parquet"
    with pq.ParquetWriter(target, schema, compression="snappy", use_dictionary=False, store_schema=False) as writer:
        begin = [_few({"protocol": _PROTOCOL}, schema), _few({"metaData": _METADATA}, schema)]
        for first in range(0, kept, size):
            group = pa.concat_tables([*begin, _adds(first, min(size, kept - first), schema, step, months)])
            writer.write_table(group, row_group_size=group.num_rows)
            begin = []
    hint = {"version": 0, "size": kept + 2, "sizeInBytes": target.stat().st_size, "numOfAddFiles": kept}
    (log / "_last_checkpoint").write_text(json.dumps(hint))
    _commit(log, 0, [{"protocol": _PROTOCOL}, {"metaData": _METADATA}])
    for version in range(1, commits + 1):
        _commit(log, version, _lines(kept + (version - 1) * added, added, step, months))


def young_table(folder: Path, *, commits: int, added: int) -> None:
    """A log of ``commits`` that add ``added`` files each, and no checkpoint."""
    log = folder / "_delta_log"
    log.mkdir()
    for version in range(commits):
        start = [{"protocol": _PROTOCOL}, {"metaData": _METADATA}] if version == 0 else []
        _commit(log, version, [*start, *_lines(version * added, added)])


def _commit(log: Path, version: int, actions: list[dict[str, Any]] | Iterator[dict[str, Any]]) -> None:
    info = {"commitInfo": {"timestamp": _TIME + version, "operation": "WRITE", "operationParameters": {}}}
    text = "\n".join(json.dumps(a, separators=(",", ":")) for a in (info, *actions))
    (log / f"{version:020d}.json").write_text(text + "\n")


def _lines(first: int, count: int, step: int = 1, months: int = 12) -> Iterator[dict[str, Any]]:
    for i in range(first, first + count):
        stats = {
            "numRecords": _ROWS,
            "minValues": {"a": i * step, "s": "abcdef"},
            "maxValues": {"a": i * step + _ROWS - (step > 1), "s": "xyz"},
            "nullCount": {"a": 0, "s": 0},
        }
        yield {
            "add": {
                "path": f"month={i % months}/part-{i:010d}-3935a07c-416b-4344-ad97-2a38342ee2fc.c000.snappy.parquet",
                "partitionValues": {"month": str(i % months)},
                "size": _ROWS + i,
                "modificationTime": _TIME,
                "dataChange": True,
                "stats": json.dumps(stats, separators=(",", ":")),
            }
        }


def _with_parsed(schema: pa.Schema) -> pa.Schema:
    add = pa.struct([*schema.field("add").type, *_PARSED])
    return schema.set(schema.get_field_index("add"), pa.field("add", add))


def _few(row: dict[str, Any], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist([row], schema)


def _adds(first: int, count: int, schema: pa.Schema, step: int, months: int) -> pa.Table:
    """Checkpoint rows of ``count`` files from ``first`` on, equal to those of :func:`_lines`."""
    type_ = schema.field("add").type
    i = pa.array(np.arange(first, first + count))
    number, month = i.cast(pa.string()), pa.array(np.arange(first, first + count) % months).cast(pa.string())
    low = pc.multiply(i, step)
    high = pc.add(low, _ROWS - (step > 1))
    padded = pc.utf8_lpad(number, 10, "0")
    name = pc.binary_join_element_wise(
        "month=", month, "/part-", padded, "-3935a07c-416b-4344-ad97-2a38342ee2fc.c000.snappy.parquet", ""
    )
    stats = pc.binary_join_element_wise(
        f'{{"numRecords":{_ROWS},"minValues":{{"a":',
        low.cast(pa.string()),
        ',"s":"abcdef"},"maxValues":{"a":',
        high.cast(pa.string()),
        ',"s":"xyz"},"nullCount":{"a":0,"s":0}}',
        "",
    )
    add = pa.StructArray.from_arrays(
        [
            name,
            pa.MapArray.from_arrays(pa.array(np.arange(count + 1, dtype=np.int32)), pa.array(["month"] * count), month),
            pc.add(i, _ROWS),
            pa.repeat(_TIME, count),
            pa.repeat(True, count),
            stats,
            *([_months(month), _typed(low, high, count)] if type_.num_fields > 6 else []),
        ],
        fields=list(type_),
    )
    columns = [add if f.name == "add" else pa.nulls(count, f.type) for f in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _months(month: pa.Array) -> pa.StructArray:
    type_ = _PARSED[0].type
    return pa.StructArray.from_arrays([month.cast(pa.int32())], fields=list(type_))


def _typed(low: pa.Array, high: pa.Array, count: int) -> pa.StructArray:
    type_ = _PARSED[1].type
    none = pa.repeat(pa.scalar(0, pa.int64()), count)
    bounds = [
        pa.StructArray.from_arrays([low, pa.repeat("abcdef", count)], fields=list(_BOUNDS)),
        pa.StructArray.from_arrays([high, pa.repeat("xyz", count)], fields=list(_BOUNDS)),
    ]
    nulls = pa.StructArray.from_arrays([none, none], fields=list(type_.field("nullCount").type))
    records = pa.repeat(pa.scalar(_ROWS, pa.int64()), count)
    return pa.StructArray.from_arrays([records, *bounds, nulls], fields=list(type_))


# --- many commits ----------------------------------------------------------------------------------------------------

#: Files of each version of :func:`busy_table`, and the number of commits whose data files exist.
_LIVE, _WITH_DATA = 100, 300
#: Milliseconds between two commits.
BETWEEN = 60_000
_FEED = {"delta.enableChangeDataFeed": "true"}
_STATED = {**_FEED, "delta.enableInCommitTimestamps": "true"}
_FEATURES = ["inCommitTimestamp", "changeDataFeed"]


def busy_table(folder: Path, *, commits: int, interval: int, stated: bool) -> None:
    """A log of ``commits`` with checkpoints; each commit adds a file and removes that of a hundred commits before.

    Parameters
    ----------
    folder: the location.
    commits: how many versions; version ``v`` is ``BETWEEN * v`` ms after the first, also by its file time.
    interval: versions between two checkpoints.
    stated: whether commits state their times themselves (in-commit timestamps).

    The files of the last 300 commits exist, with a row each.
    """
    log = folder / "_delta_log"
    log.mkdir()
    configuration = _STATED if stated else _FEED
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": _FEATURES} if stated else _PROTOCOL
    protocol = protocol if stated else {**_PROTOCOL, "minWriterVersion": 4}
    metadata = {**_METADATA, "partitionColumns": [], "configuration": configuration}
    schema = _plain_checkpoint(protocol)
    for version in range(commits):
        now = commit_time(version)
        info: dict[str, Any] = {"timestamp": now, "operation": "WRITE", "operationParameters": {}}
        if stated:
            info = {"inCommitTimestamp": now, **info}
        actions = [{"commitInfo": info}]
        if version == 0:
            actions += [{"protocol": protocol}, {"metaData": metadata}]
        actions.append({"add": _file(version)})
        if version >= _LIVE:
            actions.append({"remove": {**_removed(version - _LIVE), "deletionTimestamp": now}})
        text = "\n".join(json.dumps(a, separators=(",", ":")) for a in actions)
        target = log / f"{version:020d}.json"
        target.write_text(text + "\n")
        os.utime(target, (now / 1000, now / 1000))
        if version and version % interval == 0:
            live = [{"add": _file(v)} for v in range(max(0, version - _LIVE + 1), version + 1)]
            rows = [{"protocol": protocol}, {"metaData": metadata}, *live]
            target = log / f"{version:020d}.checkpoint.parquet"
            pq.write_table(pa.Table.from_pylist(rows, schema), target, compression="snappy", store_schema=False)
            os.utime(target, (now / 1000, now / 1000))
            hint = {"version": version, "size": len(rows), "sizeInBytes": target.stat().st_size}
            (log / "_last_checkpoint").write_text(json.dumps({**hint, "numOfAddFiles": len(live)}))
    for version in range(max(0, commits - _WITH_DATA), commits):
        (folder / _file(version)["path"]).write_bytes(_row())


def commit_time(version: int) -> int:
    """When a version of :func:`busy_table` was committed, in ms since the epoch."""
    return _TIME + version * BETWEEN


def append_commit(folder: Path, version: int) -> None:
    """Commit another version of :func:`busy_table`, which only adds a file."""
    now = commit_time(version)
    info = {"inCommitTimestamp": now, "timestamp": now, "operation": "WRITE", "operationParameters": {}}
    text = "\n".join(json.dumps(a) for a in ({"commitInfo": info}, {"add": _file(version)}))
    (folder / "_delta_log" / f"{version:020d}.json").write_text(text + "\n")


def _plain_checkpoint(protocol: dict[str, Any]) -> pa.Schema:
    names = [("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())]
    features = [("writerFeatures", _STRINGS)] if "writerFeatures" in protocol else []
    at = _CHECKPOINT.get_field_index("protocol")
    return _CHECKPOINT.set(at, pa.field("protocol", pa.struct([*names, *features])))


@cache
def _row() -> bytes:
    """A data file of one row."""
    sink = pa.BufferOutputStream()
    row = pa.table({"a": pa.array([1], pa.int64()), "s": ["x"], "month": pa.array([1], pa.int32())})
    pq.write_table(row, sink)
    return bytes(sink.getvalue())


def _removed(version: int) -> dict[str, Any]:
    file = {name: _file(version)[name] for name in ("path", "dataChange", "partitionValues", "size")}
    return {**file, "extendedFileMetadata": True}


def _file(version: int) -> dict[str, Any]:
    stats = {"numRecords": 1, "minValues": {"a": 1}, "maxValues": {"a": 1}, "nullCount": {"a": 0}}
    return {
        "path": f"part-{version:010d}-3935a07c-416b-4344-ad97-2a38342ee2fc.c000.snappy.parquet",
        "partitionValues": {},
        "size": len(_row()),
        "modificationTime": commit_time(version),
        "dataChange": True,
        "stats": json.dumps(stats, separators=(",", ":")),
    }
