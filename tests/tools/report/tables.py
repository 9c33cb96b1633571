"""Tables for reports: one with many features, an empty one, one with many files, one with hostile names."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import numpy as np
import pyarrow as pa

import trilake
from trilake.delta.log.log import DeltaLog
from trilake.storage import open_store

#: Strings that would be markup, URLs or reversed text if they were not escaped.
HOSTILE = (
    "<script>alert(1)</script>",
    "</title><img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "x' onmouseover='alert(1)",
    "]]></style><style>*{display:none}</style>",
    "{{ 7*7 }}{% raw %}&amp;&lt;",
    "https://example.invalid/x.js",
    "a\u202eb\u2066c\u0007",
)


def demo(place: Path) -> str:
    """A table with partitions, small files, deletion vectors, a stream, new columns and removed files."""
    uri, rng = str(place), np.random.default_rng(7)
    properties = {"delta.enableDeletionVectors": "true", "delta.deletedFileRetentionDuration": "interval 0 seconds"}
    for day in range(12):
        rows = int(200 + 300 * rng.random())
        table = pa.table(
            {
                "id": np.arange(day * 1000, day * 1000 + rows),
                "customer": rng.integers(0, 500, rows),
                "amount": rng.normal(50, 20, rows).round(2),
                "note": [f"order {i} of {day}" for i in range(rows)],
                "day": pa.array([dt.date(2026, 3, 1 + day)] * rows),
                "country": rng.choice(["AT", "DE", "FR", "IT", "PL"], rows),
            }
        )
        trilake.write(
            table,
            uri,
            mode="append",
            partition_by=["day", "country"],
            properties=properties if day == 0 else None,
            txn=("orders-stream", day),
        )
    trilake.open(uri).delete("id % 7 = 0")
    trilake.open(uri).update({"amount": "amount + 1"}, "customer < 20")
    trilake.alter(uri).add_columns({"channel": "string"})
    trilake.open(uri).delete("day = '2026-03-02'")
    return uri


def empty(place: Path) -> str:
    """A table without rows."""
    trilake.create(str(place), {"id": "bigint", "name": "string"})
    return str(place)


def hostile(place: Path) -> str:
    """A table with every hostile string in column names, values, properties and history."""
    uri = str(place / "<img src=x onerror=alert(2)>")
    columns = [*HOSTILE, "part"]
    properties = {"delta.columnMapping.mode": "name", **{f"owner.{i}": t for i, t in enumerate(HOSTILE)}}
    for i in range(3):
        table = pa.table({**{c: [f"{HOSTILE[i]}{k}" for k in range(8)] for c in HOSTILE}, "part": list(HOSTILE)})
        trilake.write(
            table.select(columns),
            uri,
            mode="append",
            partition_by="part",
            properties=properties if i == 0 else None,
            txn=(HOSTILE[i], i),
            user_metadata=HOSTILE[0],
        )
    _rename_operation(place / "<img src=x onerror=alert(2)>")
    return uri


def _rename_operation(place: Path) -> None:
    """Give commits hostile operations and users."""
    for i, commit in enumerate(sorted((place / "_delta_log").glob("*.json"))):
        lines = [json.loads(line) for line in commit.read_text().splitlines()]
        for line in lines:
            if "commitInfo" in line:
                info = {"operation": HOSTILE[i], "userName": HOSTILE[1], "operationMetrics": {"numFiles": HOSTILE[2]}}
                line["commitInfo"] |= info
        commit.write_text("\n".join(json.dumps(line) for line in lines) + "\n")


def many_files(place: Path, files: int) -> str:
    """A table whose log lists ``count`` files that do not exist: a report reads no rows."""
    uri = str(place)
    trilake.create(uri, {"id": "bigint", "at": "timestamp", "who": "string", "day": "int"}, partition_by="day")
    rng = np.random.default_rng(3)
    low = np.arange(files) * 100
    who = rng.integers(0, 26**4, (files, 2))
    lines = [
        json.dumps(
            {
                "add": {
                    "path": f"day={i % 90}/part-{i:06d}.parquet",
                    "partitionValues": {"day": str(i % 90)},
                    "size": int(size),
                    "modificationTime": 1_700_000_000_000,
                    "dataChange": True,
                    "stats": json.dumps(
                        {
                            "numRecords": 100,
                            "minValues": {
                                "id": int(low[i]),
                                "at": f"2026-01-01T00:00:{i % 60:02d}.000Z",
                                "who": f"{a:07d}",
                            },
                            "maxValues": {"id": int(low[i]) + 99, "at": "2026-12-31T00:00:00.000Z", "who": f"{b:07d}"},
                            "nullCount": {"id": 0, "at": 0, "who": 1},
                        }
                    ),
                }
            }
        )
        for i, size, a, b in zip(
            range(files), rng.lognormal(14, 2, files), who.min(axis=1), who.max(axis=1), strict=True
        )
    ]
    (place / "_delta_log" / f"{1:020d}.json").write_text("\n".join(lines) + "\n")
    return uri


def lance(place: Path) -> str:
    """A dataset of several versions, with deleted rows."""
    uri = str(place)
    for i in range(4):
        rows = pa.table({"n": range(i * 100, i * 100 + 100), "text": ["some words"] * 100})
        trilake.write(rows, uri, format="lance", mode="append" if i else "error")
    trilake.lance.dataset(uri).delete("n % 3 = 0")
    return uri


def trevni(place: Path) -> str:
    """Files in partition folders."""
    uri = str(place)
    rows = pa.table({"n": range(100), "text": ["some words"] * 100, "p": ["a", "b"] * 50})
    trilake.write(rows, uri, format="trevni", partition_by="p")
    return uri


def log_of(uri: str) -> DeltaLog:
    """The log of a Delta table."""
    return DeltaLog(open_store(uri))
