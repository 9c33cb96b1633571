"""Log state x features x layout x operation through the real write path, read back by every API and by peers."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pytest

import trilake
from tests.conftest import SOAK
from tests.delta.tables import rows
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.log_compaction import compact_log
from trilake.delta.standard import standard_engine
from trilake.storage import open_store

pytestmark = pytest.mark.long

Row = dict[str, Any]
SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string()), ("p", pa.string()), ("x", pa.float64())])


def _rows(start: int, count: int, p: str = "a") -> list[Row]:
    return [{"id": i, "s": f"s{i}", "p": p, "x": i / 2} for i in range(start, start + count)]


def _table(data: list[Row], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist(data, schema=schema)


@dataclass(frozen=True)
class Feature:
    """Settings of a new table; ``polars`` and ``deltalake`` tell whether those peers read such tables."""

    properties: Mapping[str, str] = field(default_factory=dict)
    deltalake: bool = True
    polars: bool = True
    change_feed: bool = False
    #: Operations on the table with its first rows.
    then: Callable[[str], Any] = lambda _: None
    #: Operations that such a table rejects.
    without: tuple[str, ...] = ()


def _renamed(uri: str) -> None:
    """Rename columns and rename them back, so that physical and display names differ."""
    for old, new in (("s", "t"), ("id", "s"), ("s", "id"), ("t", "s")):
        trilake.alter(uri).rename_column(old, new)


FEATURES: dict[str, Feature] = {
    "plain": Feature(),
    "deletion vectors": Feature({"delta.enableDeletionVectors": "true"}, deltalake=False, polars=False),
    "change feed": Feature({"delta.enableChangeDataFeed": "true"}, change_feed=True),
    "change feed and vectors": Feature(
        {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"},
        deltalake=False,
        polars=False,
        change_feed=True,
    ),
    "names mapped": Feature({"delta.columnMapping.mode": "name"}, deltalake=False, polars=False),
    "ids mapped": Feature({"delta.columnMapping.mode": "id"}, deltalake=False, polars=False),
    "row tracking": Feature({"delta.enableRowTracking": "true"}, deltalake=False, polars=False),
    "in-commit timestamps": Feature({"delta.enableInCommitTimestamps": "true"}, deltalake=False, polars=False),
    "v2 checkpoints": Feature({"delta.checkpointPolicy": "v2"}, deltalake=False, polars=False),
    "struct statistics": Feature(
        {"delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpoint.writeStatsAsJson": "false"}
    ),
    "serializable": Feature({"delta.isolationLevel": "Serializable"}),
    "constraint": Feature(
        polars=False,
        then=lambda uri: trilake.alter(uri).add_constraint("c", "id >= 0 and length(s) < 50"),
        without=("overwrite schema",),  # the condition needs the columns
    ),
    "not null": Feature(then=lambda uri: trilake.alter(uri).set_not_null("id"), polars=False),
    "default": Feature(
        {"delta.feature.allowColumnDefaults": "supported"},
        deltalake=False,
        polars=False,
        then=lambda uri: trilake.alter(uri).set_default("s", "'none'"),
    ),
    "renamed": Feature(
        {"delta.columnMapping.mode": "name", "delta.enableChangeDataFeed": "true"},
        deltalake=False,
        polars=False,
        change_feed=True,
        then=_renamed,
    ),
    "widening": Feature({"delta.enableTypeWidening": "true"}, deltalake=False, polars=False),
}


def _append(uri: str, old: list[Row]) -> list[Row]:
    new = _rows(100, 3, "b")
    trilake.write(_table(new), uri, mode="append")
    return old + new


def _overwrite(uri: str, old: list[Row]) -> list[Row]:
    new = _rows(200, 2, "c")
    trilake.write(_table(new), uri, mode="overwrite")
    return new


def _replace_some(uri: str, old: list[Row]) -> list[Row]:
    new = [{**r, "s": "new"} for r in _rows(2, 4, "b")]
    trilake.write(_table(new), uri, mode="overwrite", replace_where="id >= 2 and id < 7")
    return [r for r in old if not 2 <= r["id"] < 7] + new


def _replace_partition(uri: str, old: list[Row]) -> list[Row]:
    new = _rows(300, 2, "a")
    trilake.write(_table(new), uri, mode="overwrite", replace_where="p = 'a'")
    return [r for r in old if r["p"] != "a"] + new


def _replace_with_nothing(uri: str, old: list[Row]) -> list[Row]:
    trilake.write(_table([]), uri, mode="overwrite", replace_where="id = 3")
    return [r for r in old if r["id"] != 3]


def _dynamic(uri: str, old: list[Row]) -> list[Row]:
    new = _rows(400, 2, "b")
    trilake.write(_table(new), uri, mode="overwrite", partition_overwrite="dynamic")
    partitioned = bool(trilake.open(uri).metadata.partition_columns)  # type: ignore[attr-defined]
    return [r for r in old if partitioned and r["p"] != "b"] + new


def _merge_schema(uri: str, old: list[Row]) -> list[Row]:
    wider = SCHEMA.append(pa.field("extra", pa.struct([("n", pa.int32())])))
    new = [{**r, "extra": {"n": 1}} for r in _rows(500, 2, "b")]
    trilake.write(_table(new, wider), uri, mode="append", schema_mode="merge")
    return [{**r, "extra": None} for r in old] + new


def _overwrite_schema(uri: str, old: list[Row]) -> list[Row]:
    new = [{"other": 1, "p": "z"}]
    trilake.write(pa.Table.from_pylist(new), uri, mode="overwrite", schema_mode="overwrite")
    return new


def _idempotent_append(uri: str, old: list[Row]) -> list[Row]:
    new = _rows(600, 1, "b")
    for _ in range(2):
        trilake.write(_table(new), uri, mode="append", txn=("job", 5))
    trilake.write(_table(_rows(700, 1)), uri, mode="append", txn=("job", 4))
    return old + new


OPERATIONS: dict[str, Callable[[str, list[Row]], list[Row]]] = {
    "append": _append,
    "overwrite": _overwrite,
    "replace where rows": _replace_some,
    "replace where partition": _replace_partition,
    "replace by nothing": _replace_with_nothing,
    "dynamic": _dynamic,
    "merge schema": _merge_schema,
    "overwrite schema": _overwrite_schema,
    "once": _idempotent_append,
}


def _commits_only(uri: str) -> None:
    pass


def _checkpointed(uri: str) -> None:
    for i in range(10):
        trilake.write(_table(_rows(1000 + i, 1, "b")), uri, mode="append")


def _compacted(uri: str) -> None:
    for i in range(4):
        trilake.write(_table(_rows(1000 + i, 1, "b")), uri, mode="append")
    log = DeltaLog(open_store(uri), standard_engine())
    compact_log(log, 1, log.snapshot().version)


STATES: dict[str, Callable[[str], None]] = {
    "commits": _commits_only,
    "checkpoint": _checkpointed,
    "compacted": _compacted,
}


def _changed(table: Any, version: int, before: list[Row]) -> list[str]:
    """Apply the change feed of ``version`` to ``before``."""
    out = [repr(r) for r in before]
    changes = table.changes(version, version)
    for change in changes.to_pylist():
        row = {k: v for k, v in change.items() if not k.startswith("_")}
        match change["_change_type"]:
            case "insert" | "update_postimage":
                out.append(repr(row))
            case _:
                out.remove(repr(row))
    return sorted(out)


def _from_json_alone(uri: str, copy: Path) -> list[Row]:
    """Read the rows from a copy of the table without checkpoints."""
    shutil.copytree(uri, copy)
    for path in (copy / "_delta_log").glob("*"):
        if not path.name[:20].isdigit() or path.name.count(".") > 1 or not path.name.endswith(".json"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return rows(trilake.open(copy).to_arrow())


def _tables() -> list[Any]:
    """Return features with and without partitions, in alternating states; the soak returns all combinations."""
    return [
        pytest.param(
            feature,
            partitioned,
            [state for i, state in enumerate(STATES) if SOAK or i == n % 3],
            id=f"{'partitioned' if partitioned else 'flat'}-{feature}",
        )
        for n, feature in enumerate(FEATURES)
        for partitioned in (False, True)
        if SOAK or n % 2 == partitioned
    ]


@pytest.mark.parametrize(("feature", "partitioned", "states"), _tables())
def test_every_operation_on_every_table(feature: str, partitioned: bool, states: list[str], tmp_path: Path) -> None:
    kind = FEATURES[feature]
    for state in states:
        start = tmp_path / state
        first = _rows(0, 4, "a") + _rows(4, 4, "b")
        trilake.write(_table(first), start, properties=dict(kind.properties), partition_by="p" if partitioned else None)
        kind.then(str(start))
        STATES[state](str(start))
        old = trilake.open(start).to_arrow().to_pylist()
        for name, operation in OPERATIONS.items():
            if name in kind.without:
                continue
            case = f"{name} on {state}"
            place = f"{state}-{name.replace(' ', '-')}"  # polars does not find files below a folder with a space
            uri = str(tmp_path / place)
            shutil.copytree(start, uri)
            before = trilake.open(uri)
            expected = sorted(operation(uri, old), key=repr)
            table = trilake.open(uri)
            assert table.version == (before.version or 0) + 1, case
            assert rows(table.to_arrow()) == expected, case
            assert table.count() == len(expected), case
            assert rows(before.refresh().to_arrow()) == expected, case  # type: ignore[attr-defined]
            assert rows(trilake.open(uri, version=before.version).to_arrow()) == sorted(old, key=repr), case
            assert _from_json_alone(uri, tmp_path / f"json-{place}") == expected, case
            if kind.change_feed and name not in ("merge schema", "overwrite schema"):
                assert _changed(table, table.version or 0, old) == sorted(map(repr, expected)), case
            if kind.deltalake:
                assert rows(pa.table(deltalake.DeltaTable(uri).to_pyarrow_table())) == expected, case
            if kind.polars:
                assert rows(pl.read_delta(uri).to_arrow().cast(table.schema)) == expected, case
