"""Errors carry delta-spark's condition without Spark as well."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import trilake
from trilake.delta.stream.options import StreamOptions
from trilake.errors import AmbiguousMergeError, ConcurrentAppendError, TrilakeError, stating

_ROWS = pa.table({"id": [1, 2], "p": ["a", "b"]})


def _append(rows: pa.Table, **how: Any) -> Callable[[str], Any]:
    return lambda uri: trilake.write(rows, uri, mode="append", **how)


_REJECTED: dict[str, tuple[str, Callable[[str], Any]]] = {
    "new column": ("DELTA_METADATA_MISMATCH", _append(pa.table({"id": [1], "p": ["a"], "x": [1]}))),
    "another type": ("DELTA_FAILED_TO_MERGE_FIELDS", _append(pa.table({"id": ["x"], "p": ["a"]}))),
    "merged types": (
        "DELTA_FAILED_TO_MERGE_FIELDS",
        _append(pa.table({"id": [[1]], "p": ["a"]}), schema_mode="merge"),
    ),
    "there already": ("DELTA_PATH_EXISTS", lambda uri: trilake.write(_ROWS, uri)),
    "other partitions": ("DELTA_METADATA_MISMATCH", _append(_ROWS, partition_by=["p"])),
    "rows beside replace_where": (
        "DELTA_REPLACE_WHERE_MISMATCH",
        lambda uri: trilake.write(_ROWS, uri, mode="overwrite", replace_where="id = 1"),
    ),
    "no such version": ("DELTA_VERSION_NOT_FOUND", lambda uri: trilake.open(uri, version=9).to_arrow()),
    "before the table": (
        "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION",
        lambda uri: trilake.open(uri, timestamp="1999-01-01").to_arrow(),
    ),
    "restored version": ("DELTA_CANNOT_RESTORE_TABLE_VERSION", lambda uri: trilake.open(uri).restore(9)),
    "constraint": (
        "DELTA_NEW_CHECK_CONSTRAINT_VIOLATION",
        lambda uri: trilake.alter(uri).add_constraint("one", "id = 1"),
    ),
    "no constraint": ("DELTA_CONSTRAINT_DOES_NOT_EXIST", lambda uri: trilake.alter(uri).drop_constraint("none")),
    "no column": ("UNRESOLVED_COLUMN.WITH_SUGGESTION", lambda uri: trilake.open(uri).delete("nope = 1")),
    "update of no column": (
        "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        lambda uri: trilake.open(uri).update({"nope": "1"}),
    ),
    "twice in SQL": ("DELTA_CONFLICT_SET_COLUMN", lambda uri: trilake.sql(f"UPDATE delta.`{uri}` SET id = 1, id = 2")),
    "an option of a stream": ("DELTA_ILLEGAL_OPTION", lambda uri: StreamOptions.parse({"ignoreDeletes": "maybe"})),
    "two starts of a stream": (
        "DELTA_STARTING_VERSION_AND_TIMESTAMP_BOTH_SET",
        lambda uri: StreamOptions.parse({"startingVersion": "1", "startingTimestamp": "2020-01-01"}),
    ),
}


@pytest.mark.parametrize("mistake", _REJECTED)
def test_error_has_the_delta_spark_condition(mistake: str, tmp_path: Path) -> None:
    uri = f"{tmp_path}/t"
    trilake.write(_ROWS, uri)
    condition, call = _REJECTED[mistake]
    with pytest.raises(TrilakeError) as error:
        call(uri)
    assert error.value.condition == condition
    assert sorted(trilake.open(uri).to_arrow()["id"].to_pylist()) == [1, 2]


def test_condition_of_class_and_call() -> None:
    assert ConcurrentAppendError("no").condition == "DELTA_CONCURRENT_APPEND"
    assert AmbiguousMergeError("no").condition == "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"
    for known, expected in (({"DELTA_A": "DELTA_B"}, "DELTA_B"), ({None: "DELTA_B"}, "DELTA_A")):
        with pytest.raises(TrilakeError) as error, stating(known):  # type: ignore[arg-type]
            raise TrilakeError("no", condition="DELTA_A")
        assert error.value.condition == expected
