"""A sound Delta table with many features, and faults injected into copies of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

import trilake
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.log_compaction import compact_log
from trilake.delta.protocol.deletion_vectors import store_vectors
from trilake.storage import open_store

Action = dict[str, Any]
_LOG = "_delta_log"


def build(folder: Path) -> None:
    """Versions 0 to 7: a table, a constraint, five appends, a delete by a vector; checkpoint 4, compaction 5 to 7."""
    uri = str(folder)
    trilake.create(
        uri,
        {"id": "bigint", "n": "bigint", "s": "string", "g": "bigint", "p": "string"},
        identity=["id"],
        partition_by="p",
        generated={"g": "n * 2"},
        properties={
            "delta.enableDeletionVectors": "true",
            "delta.enableRowTracking": "true",
            "delta.enableInCommitTimestamps": "true",
            "delta.checkpointInterval": "4",
        },
    )
    trilake.alter(uri).add_constraint("positive", "n > 0")
    for i in range(5):
        rows = {"n": [10 * i + 1, 10 * i + 2, 10 * i + 3], "s": ["a", "b", None], "p": ["x", "x", "y"]}
        trilake.write(pa.table(rows), uri, mode="append")
    trilake.open(uri).delete("n = 12")
    compact_log(DeltaLog(open_store(uri)), 5, 7)


def build_mapped(folder: Path) -> None:
    """A table whose columns have ids and physical names."""
    properties = {"delta.columnMapping.mode": "name"}
    trilake.write(pa.table({"a": [1, 2], "b": ["x", "y"]}), str(folder), properties=properties)


def build_uniform(folder: Path) -> None:
    """A table that is an Iceberg table too."""
    properties = {"delta.enableIcebergCompatV2": "true", "delta.universalFormat.enabledFormats": "iceberg"}
    trilake.write(pa.table({"a": [1, 2]}), str(folder), properties=properties)
    trilake.write(pa.table({"a": [3]}), str(folder), mode="append")


# --- edits ------------------------------------------------------------------------------------------------------------


def commit(folder: Path, version: int) -> Path:
    return folder / _LOG / f"{version:020d}.json"


def edit(folder: Path, version: int, change: Callable[[Action], Action | None]) -> None:
    """Change the actions of a commit; ``None`` removes one."""
    file = commit(folder, version)
    actions = [change(orjson.loads(line)) for line in file.read_bytes().splitlines()]
    file.write_bytes(b"\n".join(orjson.dumps(a) for a in actions if a is not None) + b"\n")


def edit_all(folder: Path, change: Callable[[Action], Action | None]) -> None:
    strip(folder)
    for version in range(len(list((folder / _LOG).glob("*.json")))):
        edit(folder, version, change)


def strip(folder: Path) -> None:
    """Remove redundant log files, so that readers see an edited commit."""
    for file in (folder / _LOG).iterdir():
        if "checkpoint" in file.name or "compacted" in file.name or file.suffix == ".crc":
            file.unlink()


def live(folder: Path, change: Callable[[Action], None]) -> None:
    """Change the first file that version 6 adds."""
    strip(folder)
    seen: list[str] = []

    def apply(action: Action) -> Action:
        if "add" in action and not seen:
            seen.append(action["add"]["path"])
            change(action["add"])
        return action

    edit(folder, 6, apply)
    assert seen


def stats(folder: Path, change: Callable[[Action], None]) -> None:
    def apply(add: Action) -> None:
        found = orjson.loads(add["stats"])
        change(found)
        add["stats"] = orjson.dumps(found).decode()

    live(folder, apply)


def vector(folder: Path, change: Callable[[Action], None]) -> None:
    """Change the deletion vector that version 7 adds."""
    strip(folder)

    def apply(action: Action) -> Action:
        if "add" in action:
            change(action["add"]["deletionVector"])
        return action

    edit(folder, 7, apply)


def metadata(folder: Path, change: Callable[[Action], None]) -> None:
    def apply(action: Action) -> Action:
        if "metaData" in action:
            change(action["metaData"])
        return action

    edit_all(folder, apply)


def schema(folder: Path, column: str, change: Callable[[Action], None]) -> None:
    def apply(data: Action) -> None:
        found = orjson.loads(data["schemaString"])
        change(next(f for f in found["fields"] if f["name"] == column))
        data["schemaString"] = orjson.dumps(found).decode()

    metadata(folder, apply)


def data_file(folder: Path) -> Path:
    return min(folder.glob("p=x/*.parquet"))


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 0xFF
    file.write_bytes(data)


# --- faults -----------------------------------------------------------------------------------------------------------


def gap(folder: Path) -> None:
    strip(folder)
    commit(folder, 3).unlink()


def no_protocol(folder: Path) -> None:
    edit_all(folder, lambda a: None if "protocol" in a else a)


def cut_checkpoint(folder: Path) -> None:
    (file,) = (folder / _LOG).glob("*.checkpoint.parquet")
    file.write_bytes(file.read_bytes()[:200])


def lost_part(folder: Path) -> None:
    (file,) = (folder / _LOG).glob("*.checkpoint.parquet")
    shutil.copy(file, folder / _LOG / f"{4:020d}.checkpoint.{1:010d}.{2:010d}.parquet")


def other_checkpoint(folder: Path) -> None:
    (file,) = (folder / _LOG).glob("*.checkpoint.parquet")
    rows = pq.read_table(file)
    adds = rows["add"].is_valid().to_pylist()
    gone = adds.index(True)
    pq.write_table(rows.take([i for i in range(len(rows)) if i != gone]), file)
    (folder / _LOG / "_last_checkpoint").unlink()
    (folder / _LOG / f"{4:020d}.crc").unlink()


def wrong_hint(folder: Path) -> None:
    (folder / _LOG / "_last_checkpoint").write_bytes(orjson.dumps({"version": 4, "size": 9, "numOfAddFiles": 999}))


def false_compaction(folder: Path) -> None:
    (file,) = (folder / _LOG).glob("*.compacted.json")
    lines = file.read_bytes().splitlines()
    at = next(i for i, line in enumerate(lines) if b'"add"' in line)
    file.write_bytes(b"\n".join(lines[:at] + lines[at + 1 :]) + b"\n")


def false_checksum(folder: Path) -> None:
    (file,) = (folder / _LOG).glob("*.crc")
    file.write_bytes(orjson.dumps(orjson.loads(file.read_bytes()) | {"numFiles": 99}))


def time_runs_back(folder: Path) -> None:
    def change(action: Action) -> Action:
        if "commitInfo" in action:
            action["commitInfo"]["inCommitTimestamp"] = 1
        return action

    edit(folder, 3, change)


def without_feature(folder: Path) -> None:
    def change(action: Action) -> Action:
        for lists in ("readerFeatures", "writerFeatures"):
            if lists in action.get("protocol", {}):
                kept = [f for f in action["protocol"][lists] if f != "deletionVectors"]
                action["protocol"][lists] = kept
        return action

    edit_all(folder, change)


def two_of_one_id(folder: Path) -> None:
    schema(folder, "b", lambda f: f["metadata"].update({"delta.columnMapping.id": 1}))


def twice(folder: Path) -> None:
    strip(folder)
    adds = [orjson.loads(line) for line in commit(folder, 6).read_bytes().splitlines()]
    again = next(a for a in adds if "add" in a)
    again["add"]["path"] = f"file://{folder}/{again['add']['path']}"
    with commit(folder, 6).open("ab") as file:
        file.write(orjson.dumps(again) + b"\n")


def mark_of_rows(folder: Path) -> None:
    def change(action: Action) -> Action:
        if "domainMetadata" in action:
            action["domainMetadata"]["configuration"] = '{"rowIdHighWaterMark":0}'
        return action

    edit_all(folder, change)


def vector_far_out(folder: Path) -> None:
    (new,) = store_vectors(open_store(str(folder)), [BitMap64([1000])], lambda: "00000000-0000-4000-8000-000000000001")
    vector(folder, lambda v: v.update(new))


def damaged_vector(folder: Path) -> None:
    (file,) = folder.glob("deletion_vector_*.bin")
    flip(file, 20)


def cut_end(folder: Path) -> None:
    file = data_file(folder)
    file.write_bytes(file.read_bytes()[:-8] + b"\0" * 8)


@dataclass(frozen=True)
class Fault:
    name: str
    code: str
    inject: Callable[[Path], None]
    base: Callable[[Path], None] = build


def behind_in_iceberg(folder: Path) -> None:
    trilake.sync_iceberg(str(folder))
    (folder / "metadata/v3.metadata.json").unlink()


def without_manifests(folder: Path) -> None:
    trilake.sync_iceberg(str(folder))
    for file in (folder / "metadata").glob("*-m0.avro"):
        file.unlink()


FAULTS = (
    Fault("a commit is gone", "delta.log-gap", gap),
    Fault(
        "a commit is not JSON", "delta.commit-unreadable", lambda f: commit(f, 3).write_bytes(b"{not json\n") and None
    ),
    Fault("no protocol action", "delta.version-unreadable", no_protocol),
    Fault("a checkpoint is cut off", "delta.checkpoint-unreadable", cut_checkpoint),
    Fault("a part of a checkpoint is gone", "delta.checkpoint-incomplete", lost_part),
    Fault("a checkpoint lacks a file", "delta.checkpoint-differs", other_checkpoint),
    Fault("the hint counts wrongly", "delta.last-checkpoint-wrong", wrong_hint),
    Fault("a compaction lacks a file", "delta.compaction-differs", false_compaction),
    Fault("a checksum counts wrongly", "delta.checksum-differs", false_checksum),
    Fault("time runs back", "delta.in-commit-timestamp-wrong", time_runs_back),
    Fault("a feature is not listed", "delta.protocol-lacks-feature", without_feature),
    Fault("Iceberg metadata is of an older version", "delta.iceberg-behind", behind_in_iceberg, build_uniform),
    Fault("an Iceberg manifest is lost", "delta.iceberg-differs", without_manifests, build_uniform),
    Fault("two columns of one id", "delta.column-mapping-wrong", two_of_one_id, build_mapped),
    Fault("a file is there twice", "delta.file-twice", twice),
    Fault(
        "no partition value", "delta.partition-values-wrong", lambda f: live(f, lambda a: a.update(partitionValues={}))
    ),
    Fault(
        "a folder of another value",
        "delta.partition-path-differs",
        lambda f: live(f, lambda a: a.update(partitionValues={"p": "z"})),
    ),
    Fault("no row ids", "delta.row-ids-missing", lambda f: live(f, lambda a: a.pop("baseRowId"))),
    Fault("row ids of another file", "delta.row-ids-overlap", lambda f: live(f, lambda a: a.update(baseRowId=0))),
    Fault("the mark of row ids is behind", "delta.row-id-mark-behind", mark_of_rows),
    Fault(
        "the mark of an identity is behind",
        "delta.identity-mark-behind",
        lambda f: schema(f, "id", lambda c: c["metadata"].update({"delta.identity.highWaterMark": 1})),
    ),
    Fault("statistics are not JSON", "delta.statistics-malformed", lambda f: live(f, lambda a: a.update(stats="{"))),
    Fault("a data file is gone", "delta.file-missing", lambda f: data_file(f).unlink()),
    Fault("a data file of another size", "delta.file-size", lambda f: live(f, lambda a: a.update(size=a["size"] + 1))),
    Fault("a data file without its end", "delta.file-unreadable", cut_end),
    Fault(
        "statistics of more rows",
        "delta.statistics-num-records",
        lambda f: stats(f, lambda s: s.update(numRecords=99)),
    ),
    Fault("a vector with a damaged byte", "delta.deletion-vector-unreadable", damaged_vector),
    Fault(
        "a vector of more rows",
        "delta.deletion-vector-cardinality",
        lambda f: vector(f, lambda v: v.update(cardinality=2)),
    ),
    Fault("a vector beyond its file", "delta.deletion-vector-position", vector_far_out),
    Fault("a page with a damaged byte", "delta.rows-unreadable", lambda f: flip(data_file(f), 50)),
    Fault(
        "a bound above a value",
        "delta.statistics-bounds",
        lambda f: stats(f, lambda s: s["minValues"].update(n=1000)),
    ),
    Fault("nulls that are none", "delta.statistics-nulls", lambda f: stats(f, lambda s: s["nullCount"].update(s=1))),
    Fault(
        "a row breaks a constraint",
        "delta.constraint-violated",
        lambda f: metadata(
            f,
            lambda m: (
                m["configuration"].update({"delta.constraints.positive": "n > 30"})
                if "delta.constraints.positive" in m["configuration"]
                else None
            ),
        ),
    ),
    Fault(
        "a null that may not be",
        "delta.constraint-violated",
        lambda f: schema(f, "s", lambda c: c.update(nullable=False)),
    ),
    Fault(
        "a generated value of another formula",
        "delta.constraint-violated",
        lambda f: schema(f, "g", lambda c: c["metadata"].update({"delta.generationExpression": "n * 3"})),
    ),
)
