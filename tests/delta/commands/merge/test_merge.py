"""MERGE without Spark: documented examples, table rules, files read, and errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.dataset as pds
import pyarrow.parquet as pq
import pytest

import trilake
from tests.delta.commands.merge.merge_tables import FEED, KINDS, SOURCE, VECTORS, info, letters, pairs, rows, table
from tests.delta.tables import new_uri, opened
from trilake.delta.commands.merge import match as merge_match
from trilake.delta.commands.merge.source import materialized
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.scan.scan import FileTask, ReadPlan
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import (
    AmbiguousMergeError,
    ConcurrentAppendError,
    ConcurrentDeleteReadError,
    ConstraintViolatedError,
    InvalidArgumentError,
    SchemaMismatchError,
)
from trilake.storage.base import Store

# --- documented examples ---------------------------------------------------------------------------------------------


@KINDS
def test_upsert(properties: Mapping[str, str]) -> None:
    t = letters(properties)
    merge = t.merge(SOURCE, "key = k").when_matched_update({"value": "v"})
    result = merge.when_not_matched_insert({"key": "k", "value": "v"}).execute()
    assert pairs(t) == [("a", -1), ("b", 0), ("c", 3), ("d", 4), ("e", -5), ("f", -6)]
    assert (result.num_affected_rows, result.num_updated_rows, result.num_inserted_rows) == (4, 2, 2)
    assert (result.operation, result.version, result.rows) == ("MERGE", 1, 4)


def test_insert_only_merge_rewrites_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    t = letters()
    before = set(t.files()["path"].to_pylist())
    t.merge(SOURCE, "key = k").when_not_matched_insert({"key": "k", "value": "v"}).execute()
    assert before < set(t.refresh().files()["path"].to_pylist())
    assert pairs(t)[4:] == [("e", -5), ("f", -6)]
    metrics = info(t)["operationMetrics"]
    assert (metrics["numTargetFilesAdded"], metrics["numTargetFilesRemoved"]) == ("1", "0")
    assert t.merge(SOURCE, "key = k").when_not_matched_insert({"key": "k"}).execute().committed is False


def test_slowly_changing_dimension() -> None:
    customers = pa.table(
        {
            "id": [1, 2],
            "address": ["old", "same"],
            "current": [True, True],
            "since": [2000, 2001],
            "until": [None, None],
        },
        schema=pa.schema(
            {"id": pa.int64(), "address": pa.string(), "current": pa.bool_(), "since": pa.int64(), "until": pa.int64()}
        ),
    )
    t = table(customers)
    # A changed customer appears twice: by key to end the old row, and with a null key to be inserted.
    updates = pa.table(
        {"merge_key": [1, None, 3], "id": [1, 1, 3], "address": ["new", "new", "third"], "year": [2024] * 3}
    )
    (
        t.merge(updates, "target.id = merge_key")
        .when_matched_update(
            {"current": "false", "until": "year"}, "target.current AND target.address <> source.address"
        )
        .when_not_matched_insert({"id": "id", "address": "address", "current": "true", "since": "year"})
        .execute()
    )
    result = [(r["id"], r["address"], r["current"], r["until"]) for r in rows(t, "since")]
    assert result == [
        (1, "old", False, 2024),
        (2, "same", True, None),
        (1, "new", True, None),
        (3, "third", True, None),
    ]


@KINDS
def test_change_data_with_deletes_is_applied(properties: Mapping[str, str]) -> None:
    t = letters(properties)
    changes = pa.table({"key": ["a", "b", "e"], "value": [10, None, 50], "deleted": [False, True, False]})
    (
        t.merge(changes, "t.key = s.key", "s", "t")
        .when_matched_delete("s.deleted = true")
        .when_matched_update({"value": "s.value"})
        .when_not_matched_insert({"key": "s.key", "value": "s.value"}, "NOT s.deleted")
        .execute()
    )
    assert pairs(t) == [("a", 10), ("c", 3), ("d", 4), ("e", 50)]


@KINDS
def test_rows_not_matched_by_source(properties: Mapping[str, str]) -> None:
    t = letters(properties)
    (
        t.merge(SOURCE, "key = k")
        .when_not_matched_by_source_update({"value": "value * 10"}, "key = 'c'")
        .when_not_matched_by_source_delete()
        .execute()
    )
    assert pairs(t) == [("a", 1), ("b", 2), ("c", 30)]
    assert info(t)["operationMetrics"]["numTargetRowsNotMatchedBySourceDeleted"] == "1"


def test_commit_records_the_merge_clauses() -> None:
    t = letters(VECTORS)
    merge = t.merge(SOURCE, "key = k").when_matched_update({"value": "v"}, "k = 'a'").when_matched_delete()
    merge.when_not_matched_insert_all(except_cols=["key", "value"]).execute(user_metadata="why")
    result = info(t)
    assert (result["operation"], result["userMetadata"]) == ("MERGE", "why")
    parameters = {k: orjson.loads(v) for k, v in result["operationParameters"].items()}
    assert parameters == {
        "predicate": ["key = k"],
        "matchedPredicates": [{"predicate": "k = 'a'", "actionType": "update"}, {"actionType": "delete"}],
        "notMatchedPredicates": [{"actionType": "insert"}],
        "notMatchedBySourcePredicates": [],
    }
    metrics = {k: int(v) for k, v in result["operationMetrics"].items()}
    assert metrics["numSourceRows"] == 4
    assert metrics["numTargetRowsMatchedUpdated"] == metrics["numTargetRowsMatchedDeleted"] == 1
    assert (metrics["numTargetRowsInserted"], metrics["numOutputRows"]) == (2, 3)
    assert (metrics["numTargetDeletionVectorsAdded"], metrics["numTargetFilesRemoved"]) == (1, 0)
    assert metrics["numTargetRowsCopied"] == 0


# --- sources ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["table", "batch", "reader", "dataset", "pandas", "delta"])
def test_any_arrow_data_is_a_source(kind: str, tmp_path: Path) -> None:
    given: Any = {
        "table": lambda: SOURCE,
        "batch": lambda: SOURCE.to_batches()[0],
        "reader": SOURCE.to_reader,
        "dataset": lambda: _dataset(tmp_path),
        "pandas": lambda: SOURCE.to_pandas().sort_values("v"),  # with row labels, which are not a column
        "delta": lambda: table(SOURCE),
    }[kind]()
    t = letters()
    t.merge(given, "key = k").when_matched_update({"value": "v"}).execute()
    assert pairs(t) == [("a", -1), ("b", 0), ("c", 3), ("d", 4)]


def _dataset(folder: Path) -> pds.Dataset:
    pq.write_table(SOURCE, folder / "s.parquet")
    return pds.dataset(folder)


def test_long_stream_is_spilled_to_a_file() -> None:
    with materialized(pa.table({"n": range(1000)}).to_reader(max_chunksize=10), limit=100) as result:
        assert result["n"].to_pylist() == list(range(1000))
    with pytest.raises(InvalidArgumentError, match="source of a merge"), materialized(1):
        pass


# --- files read ------------------------------------------------------------------------------------------------------


def _reads(monkeypatch: pytest.MonkeyPatch, store: Store) -> list[str]:
    seen: list[str] = []
    real = type(store).open_input

    def spy(self: Store, key: str) -> pa.NativeFile:
        seen.append(key)
        return real(self, key)

    monkeypatch.setattr(type(store), "open_input", spy)
    return seen


@pytest.mark.parametrize("on", ["t.id = s.id", "s.id <=> t.id AND true", "t.id = s.id AND t.p = 'b'", "t.p = s.p"])
def test_only_files_that_can_match_are_opened(on: str, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = new_uri()
    for p, ids in (("a", [1, 2]), ("b", [11, 12]), ("c", [21, 22])):
        trilake.write(pa.table({"id": ids, "p": [p, p]}), uri, mode="append", partition_by=["p"])
    t = opened(uri)
    seen = _reads(monkeypatch, t.log.store)
    t.merge(pa.table({"id": [12], "p": ["b"]}), on, "s", "t").when_matched_update({"id": "100"}).execute()
    assert {key.split("/")[0] for key in seen} == {"p=b"}
    assert max(t.refresh().to_arrow()["id"].to_pylist()) == 100


def test_only_keys_are_read_of_replaced_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    t = table(pa.table({"id": range(100), "a": range(100), "b": range(100)}), VECTORS)
    read: list[list[str]] = []
    real = merge_match.read_together

    def spy(store: Any, files: Sequence[FileTask], plan: ReadPlan) -> Any:
        read.extend([f.name for f in plan.fields] for _ in files)
        return real(store, files, plan)

    monkeypatch.setattr(merge_match, "read_together", spy)
    source = pa.table({"id": [5, 200], "a": [0, 0], "b": [0, 0]})
    t.merge(source, "target.id = source.id").when_matched_update_all().when_not_matched_insert_all().execute()
    assert read == [["id"]]
    t.refresh().merge(source, "target.id = source.id").when_matched_update({"a": "source.b + 1"}).execute()
    # One of the two candidate files has the key, and only its kept column is read.
    assert read[1:] == [["id"], ["id"], ["id", "b"]]


def test_only_overlapping_concurrent_commits_conflict(tmp_path: Path) -> None:
    def begin() -> ArrowDeltaTable:
        uri = new_uri()
        for p in ("a", "b"):
            trilake.write(pa.table({"id": [1], "p": [p]}), uri, mode="append", partition_by=["p"])
        return opened(uri)

    def racing(other: Any, on: str = "t.id = s.id AND t.p = 'a'") -> ArrowDeltaTable:
        t = begin()
        builder = t.merge(pa.table({"id": [1, 2]}), on, "s", "t").when_matched_update({"id": "s.id + 10"})
        real = DeltaLog.update
        calls: list[int] = []

        def late(self: DeltaLog, old: Snapshot) -> Any:
            result = real(self, old)
            if not calls:
                calls.append(1)
                other(t.uri)
            return result

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DeltaLog, "update", late)
            builder.execute()
        return t

    def change(where: str) -> Any:
        def run(uri: str) -> None:
            opened(uri).merge(pa.table({"x": [1]}), f"p = {where}").when_matched_update({"id": "50"}).execute()

        return run

    t = racing(lambda uri: trilake.write(pa.table({"id": [7], "p": ["a"]}), uri, mode="append"))
    assert t.refresh().version == 3  # a blind append can be ordered later
    t = racing(change("'b'"))
    assert sorted(t.refresh().to_arrow()["id"].to_pylist()) == [11, 50]
    with pytest.raises((ConcurrentDeleteReadError, ConcurrentAppendError)):
        racing(change("'a'"))
    with pytest.raises((ConcurrentDeleteReadError, ConcurrentAppendError)):
        racing(change("'b'"), on="t.id = s.id")


# --- matches ---------------------------------------------------------------------------------------------------------


def test_ambiguous_matches_are_shown() -> None:
    t = letters()
    twice = pa.table({"k": ["a", "a"], "v": [7, 8]})
    with pytest.raises(AmbiguousMergeError, match=r"multiple source rows matched .*'v': 7.*'v': 8"):
        t.merge(twice, "key = k").when_matched_update({"value": "v"}).execute()
    with pytest.raises(AmbiguousMergeError):
        t.merge(twice, "key = k").when_matched_delete("v > 0").execute()
    # Only one of them changes the row, or all of them delete it.
    t.merge(twice, "key = k").when_matched_update({"value": "v"}, "v > 7").execute()
    assert pairs(t)[0] == ("a", 8)
    assert t.refresh().merge(twice, "key = k").when_matched_delete().execute().num_deleted_rows == 1


def test_null_keys_match_only_with_null_safe_equality() -> None:
    t = table(pa.table({"key": ["a", None], "value": [1, 2]}))
    source = pa.table({"k": pa.array([None, "b"]), "v": [5, 6]})
    t.merge(source, "key = k").when_matched_update({"value": "v"}).execute()
    assert t.refresh().version == 0
    t.merge(source, "key <=> k").when_matched_update({"value": "v"}).execute()
    assert {r["key"]: r["value"] for r in rows(t, "value")} == {"a": 1, None: 5}


def test_doubles_match_like_in_spark() -> None:
    t = table(pa.table({"x": [0.0, float("nan"), 1.5], "n": [1, 2, 3]}))
    t.merge(pa.table({"y": [-0.0, float("nan")]}), "x = y").when_matched_update({"n": "0"}).execute()
    assert sorted(t.refresh().to_arrow()["n"].to_pylist()) == [0, 0, 3]


@pytest.mark.parametrize("on", ["id > lo AND id < hi", "id BETWEEN lo AND hi", "id % 5 = lo", "id + 1 = hi OR id = lo"])
def test_any_condition_can_join(on: str) -> None:
    t = table(pa.table({"id": range(10)}))
    t.merge(pa.table({"lo": [2], "hi": [5]}), on).when_matched_delete().execute()
    expected = {
        "id > lo AND id < hi": {3, 4},
        "id BETWEEN lo AND hi": {2, 3, 4, 5},
        "id % 5 = lo": {2, 7},
        "id + 1 = hi OR id = lo": {2, 4},
    }[on]
    assert set(t.refresh().to_arrow()["id"].to_pylist()) == set(range(10)) - expected


# --- the table's rules -----------------------------------------------------------------------------------------------


def test_table_rules_apply_to_new_rows() -> None:
    uri = new_uri()
    trilake.create(
        uri,
        {
            "id": "bigint",
            "key": "string",
            "day": "date",
            "year": "int",
            "kind": "string",
            "code": "varchar(3)",
        },
        identity=["id"],
        generated={"year": "year(day)"},
        defaults={"kind": "'new'"},
        properties=VECTORS,
    )
    trilake.alter(uri).add_constraint("short", "key IS NOT NULL AND length(key) < 5")
    trilake.write(pa.table({"key": ["a", "b"], "day": ["2020-01-01", "2021-01-01"]}).cast(_days()), uri, mode="append")
    t = opened(uri)
    source = pa.table({"key": ["a", "c", "d"], "day": ["2024-05-05"] * 3}).cast(_days())
    merge = t.merge(source, "t.key = s.key", "s", "t").when_matched_update({"day": "s.day"})
    merge.when_not_matched_insert({"key": "s.key", "day": "s.day"}).execute()
    result = rows(t, "key")
    assert [(r["key"], r["year"], r["kind"]) for r in result] == [
        ("a", 2024, "new"),
        ("b", 2021, "new"),
        ("c", 2024, "new"),
        ("d", 2024, "new"),
    ]
    ids = [r["id"] for r in result]
    assert ids[:2] == [1, 2]
    assert len(set(ids)) == 4
    for values, error in (
        ({"key": "'too long'"}, ConstraintViolatedError),
        ({"key": "NULL"}, ConstraintViolatedError),
        ({"code": "'long'"}, ConstraintViolatedError),
        ({"year": "1"}, ConstraintViolatedError),
        ({"id": "5"}, SchemaMismatchError),
        ({"year": "'text'"}, Exception),
    ):
        with pytest.raises(error):
            t.merge(source, "t.key = s.key", "s", "t").when_matched_update(values).execute()
    assert t.refresh().version == 3


def _days() -> pa.Schema:
    return pa.schema({"key": pa.string(), "day": pa.date32()})


def test_rows_move_between_partitions() -> None:
    t = table(pa.table({"id": [1, 2, 3], "p": ["a", "a", "b"]}), FEED, partition_by=["p"])
    t.merge(pa.table({"id": [1, 3]}), "target.id = source.id").when_matched_update({"p": "'c'"}).execute()
    assert [(r["id"], r["p"]) for r in rows(t, "id")] == [(1, "c"), (2, "a"), (3, "c")]
    changes = t.refresh().changes(1).sort_by([("id", "ascending"), ("_change_type", "descending")])
    assert list(zip(changes["_change_type"].to_pylist(), changes["p"].to_pylist(), strict=True)) == [
        ("update_preimage", "a"),
        ("update_postimage", "c"),
        ("update_preimage", "b"),
        ("update_postimage", "c"),
    ]


@KINDS
def test_rows_keep_their_row_ids(properties: Mapping[str, str]) -> None:
    t = letters({**properties, "delta.enableRowTracking": "true"})
    before = {row["key"]: i for i, row in enumerate(t.to_arrow().to_pylist())}
    for n in (5, 6):
        t.merge(pa.table({"k": ["c"], "v": [n]}), "key = k").when_matched_update({"value": "v"}).execute()
    t.merge(pa.table({"k": ["x"], "v": [n]}), "key = k").when_not_matched_insert({"key": "k"}).execute()
    name = t.metadata.configuration["delta.rowTracking.materializedRowIdColumnName"]
    result: dict[str, int] = {}
    for action in t.refresh().snapshot.adds.to_pylist():
        with t.log.store.open_input(action["path"]) as file:
            data = pq.read_table(file)
        vector = action["deletionVector"]
        for i, row in enumerate(data.to_pylist()):
            if vector is None or (row["key"], row["value"]) != ("c", 3):
                kept = row.get(name)
                result[row["key"]] = kept if kept is not None else action["baseRowId"] + i
    assert before.items() <= result.items()
    assert len(set(result.values())) == len(result) == 5


@KINDS
def test_mapped_columns(properties: Mapping[str, str]) -> None:
    t = letters({**properties, **FEED, "delta.columnMapping.mode": "name"})
    trilake.alter(t.uri).rename_column("value", "amount")
    merge = t.merge(SOURCE, "key = k").when_matched_update({"amount": "amount + v"})
    merge.when_not_matched_insert({"key": "k", "amount": "v"}).execute()
    assert {r["key"]: r["amount"] for r in rows(t, "key")} == {"a": 0, "b": 2, "c": 3, "d": 4, "e": -5, "f": -6}


def test_append_only_table_accepts_inserts() -> None:
    t = letters({"delta.appendOnly": "true"})
    t.merge(SOURCE, "key = k").when_not_matched_insert({"key": "k"}).execute()
    with pytest.raises(InvalidArgumentError, match="only allow appends"):
        t.merge(SOURCE, "key = k").when_matched_delete().execute()


@pytest.mark.parametrize("constraint", [None, "key <> 'z'"])
def test_insert_without_a_required_column_fails_only_for_rows(constraint: str | None) -> None:
    """The clause was an error even if it inserted nothing."""
    t = letters()
    trilake.alter(t.uri).set_not_null("value")
    if constraint is not None:
        trilake.alter(t.uri).add_constraint("c", constraint)
    merge = trilake.open(t.uri).merge(SOURCE, "key = k").when_matched_update({"value": "v"})
    merge.when_not_matched_insert({"key": "k"}, "v > 0").execute()
    assert pairs(t) == [("a", -1), ("b", 0), ("c", 3), ("d", 4)]
    with pytest.raises(ConstraintViolatedError, match="NOT NULL constraint violated for column: value"):
        trilake.open(t.uri).merge(SOURCE, "key = k").when_not_matched_insert({"key": "k"}).execute()


# --- nested values ---------------------------------------------------------------------------------------------------

PAIR = pa.struct([("a", pa.int64()), ("b", pa.string())])


def _nested(struct: pa.DataType, value: Mapping[str, Any]) -> pa.Table:
    columns = {
        "s": pa.array([value], struct),
        "l": pa.array([[value]], pa.list_(struct)),
        "m": pa.array([[("k", value)]], pa.map_(pa.string(), struct)),
    }
    return pa.table({"id": [1], **columns})


@pytest.mark.parametrize("column", ["s", "l", "m"])
@pytest.mark.parametrize("text", ["q.{}", "coalesce(q.{}, q.{})"])
def test_nested_values_are_matched_by_name(column: str, text: str) -> None:
    swapped = pa.struct([("B", pa.string()), ("A", pa.int64())])
    t = table(_nested(PAIR, {"a": 1, "b": "x"}))
    t.merge(
        _nested(swapped, {"A": 5, "B": "q"}), "t.id = q.id", source_alias="q", target_alias="t"
    ).when_matched_update({column: text.format(column, column)}).execute()
    assert t.refresh().to_arrow()[column].to_pylist() == _nested(PAIR, {"a": 5, "b": "q"})[column].to_pylist()


@pytest.mark.parametrize("column", ["s", "l", "m"])
@pytest.mark.parametrize("text", ["q.{}", "coalesce(q.{}, q.{})"])
@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"a": 5, "b": "q", "z": 9}, "has a field z, which the column lacks"),
        ({"x": 5, "y": "q"}, "has a field x, which the column lacks"),
        ({"a": 5}, "has no field b, which the column has"),
    ],
)
def test_nested_values_with_other_fields_are_rejected(
    column: str, text: str, value: Mapping[str, Any], problem: str
) -> None:
    struct = pa.struct([(n, pa.string() if n in "by" else pa.int64()) for n in value])
    t = table(_nested(PAIR, {"a": 1, "b": "x"}))
    merge = t.merge(_nested(struct, value), "t.id = q.id", source_alias="q", target_alias="t")
    expression = text.format(column, column)
    for clauses in (
        merge.when_matched_update({column: expression}),
        merge.when_not_matched_insert({"id": "q.id", column: expression}),
    ):
        with pytest.raises(SchemaMismatchError, match=rf"the struct for column {column}.* {problem}"):
            clauses.execute()
    assert t.refresh().version == 0


def test_schema_evolution_accepts_other_nested_fields() -> None:
    t = table(_nested(PAIR, {"a": 1, "b": "x"}))
    struct = pa.struct([("z", pa.int64()), ("a", pa.int64())])
    merge = t.merge(_nested(struct, {"a": 5, "z": 9}), "t.id = q.id", source_alias="q", target_alias="t")
    merge.with_schema_evolution().when_matched_update({c: f"q.{c}" for c in "slm"}).execute()
    new = {"a": 5, "b": None, "z": 9}
    assert t.refresh().to_arrow().to_pylist() == [{"id": 1, "s": new, "l": [new], "m": [("k", new)]}]
