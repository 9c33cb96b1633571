"""UPDATE by copying unchanged column chunks: the same table as a full rewrite, and no damage is copied."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import deltalake
import duckdb
import orjson
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trilake
from tests.delta.tables import parquet, protocol, rows, table_of
from trilake.delta.commands.write.spliced_update import Splicing
from trilake.delta.files.spliced_file import OldStatistics
from trilake.delta.scan.statistics import NAN_TAG
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import ConstraintViolatedError, CorruptFileError, MissingFileError, SchemaMismatchError
from trilake.storage.memory import MemoryStore
from trilake.storage.reader import ObjectFile, WindowReader

ROWS = 1000
START = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)


class Spied:
    """Records whether each file was spliced."""

    def __init__(self) -> None:
        self.seen: list[bool] = []
        self.on = True


@pytest.fixture
def spied(monkeypatch: pytest.MonkeyPatch) -> Spied:
    spied, update = Spied(), Splicing.update

    def note(self: Splicing, *args: Any) -> Any:
        done = update(self, *args) if spied.on else None
        spied.seen.append(done is not None)
        return done

    monkeypatch.setattr(Splicing, "update", note)
    return spied


def _stats(table: pa.Table, **more: Any) -> dict[str, Any]:
    """The ``stats`` field of an action with row and null counts but no bounds."""
    nulls = {f.name: table[f.name].null_count for f in table.schema if not pa.types.is_nested(f.type)}
    return {"stats": orjson.dumps({"numRecords": table.num_rows, "nullCount": nulls, **more}).decode()}


def _table(*tables: pa.Table, files: Mapping[str, Any] | None = None, **options: Any) -> ArrowDeltaTable:
    """A table with one file per input, written with the options ``files``."""
    data = [parquet(t, **{"write_page_checksum": True, **(files or {})}) for t in tables]
    fields = [_stats(t) for t in tables]
    return table_of(*data, **{"fields": fields, "schema": tables[0].schema, **options})


def _numbers(count: int = ROWS) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "s": [f"text {i % 90}" for i in range(count)],
            "n": pa.array([None if i % 7 == 0 else i for i in range(count)], pa.int32()),
            "l": [[i] for i in range(count)],
        }
    )


def _add(table: ArrowDeltaTable) -> dict[str, Any]:
    [add] = table.snapshot.adds.to_pylist()
    return dict(add)


# --- same table as a full rewrite ------------------------------------------------------------------------------------

_TYPES: dict[str, pa.DataType] = {
    "long": pa.int64(), "int": pa.int32(), "short": pa.int16(), "double": pa.float64(), "float": pa.float32(),
    "string": pa.string(), "few": pa.string(), "boolean": pa.bool_(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"), "ntz": pa.timestamp("us"), "decimal": pa.decimal128(12, 2),
    "large": pa.decimal128(30, 5), "binary": pa.binary(), "list": pa.list_(pa.int64()),
    "struct": pa.struct([("x", pa.int32()), ("y", pa.string())]),
}  # fmt: skip
_SETS: dict[str, list[str]] = {
    "long": ["{c} + 1", "7", "NULL"], "int": ["{c} + 1", "NULL"], "short": ["3"],
    "double": ["{c} * 2", "cast('NaN' as double)", "0.5"], "float": ["{c}", "2.5"],
    "string": ["concat({c}, 'x')", "'new'", "cast(id as string)", "NULL"], "few": ["'AIR'", "concat({c}, '!')"],
    "boolean": ["not {c}"], "date": ["date_add({c}, 3)", "date'2024-01-01'"], "timestamp": ["{c}"], "ntz": ["{c}"],
    "decimal": ["{c} + 1", "1.25"], "large": ["{c} + 1"], "binary": ["{c}"],
}  # fmt: skip


def _value(random: Random, kind: str) -> Any:
    second = dt.timedelta(seconds=random.randrange(10**9), microseconds=random.randrange(10**6))
    small, large = random.randrange(-100, 100), random.randrange(-(10**18), 10**18)
    return {
        "long": large, "int": small, "short": small,
        "double": random.choice([small / 8, 0.0, -0.0, math.nan, math.inf]),
        "float": small / 4, "string": random.choice(["", "a", "ß" * 40, str(large)]),
        "few": random.choice(["AIR", "SHIP"]),
        "boolean": small > 0, "date": (START + second).date(), "timestamp": START + second,
        "ntz": (START + second).replace(tzinfo=None), "decimal": Decimal(small).scaleb(-2),
        "large": Decimal(large).scaleb(-5), "binary": bytes([small & 255]), "list": [small] * (small & 3),
        "struct": {"x": small, "y": None},
    }[kind]  # fmt: skip


def _random_table(random: Random) -> pa.Table:
    count = random.choice([1, 40, 700])
    columns: dict[str, pa.Array] = {"id": pa.array(range(count), pa.int64())}
    for i in range(random.randrange(2, 7)):
        kind, nulls = random.choice(list(_TYPES)), random.choice([0, 0, 0.2, 1])
        values = [None if random.random() < nulls else _value(random, kind) for _ in range(count)]
        columns[f"c{i}_{kind}"] = pa.array(values, _TYPES[kind])
    return pa.table(columns)


def _random_set(random: Random, data: pa.Table) -> dict[str, str]:
    kinds = [(name, name.split("_")[1]) for name in data.schema.names[1:]]
    assignable = [(name, kind) for name, kind in kinds if kind in _SETS]
    chosen = random.sample(assignable, min(len(assignable), random.randrange(1, 3)))
    return {name: random.choice(_SETS[kind]).format(c=name) for name, kind in chosen} or {"id": "id + 1"}


def _files(random: Random) -> dict[str, Any]:
    return {
        "row_group_size": random.choice([1000, 250, 100]),
        "compression": random.choice(["zstd", "snappy", "none"]),
        "use_dictionary": random.random() < 0.5,
        "data_page_version": random.choice(["1.0", "2.0"]),
        "data_page_size": random.choice([1 << 20, 500]),
        "write_page_checksum": random.random() < 0.5,
        "write_page_index": random.random() < 0.5,
        "store_decimal_as_integer": random.random() < 0.5,
    }


@pytest.mark.parametrize("seed", range(25))
def test_spliced_update_matches_a_full_rewrite(seed: int, spied: Spied) -> None:
    random = Random(seed)
    data, files, feed = _random_table(random), _files(random), random.random() < 0.3
    values = _random_set(random, data)
    where = random.choice([None, "id % 7 = 3", "id >= 0", "id < 30"])
    configuration = {"delta.enableChangeDataFeed": "true"} if feed else {}
    features = protocol(3, 7, readerFeatures=["timestampNtz"], writerFeatures=["timestampNtz", "changeDataFeed"])
    done: list[tuple[Any, ...]] = []
    for spied.on in (True, False):
        table = _table(data, files=files, configuration=configuration, protocol_action=features)
        result = table.update(values, where)
        metrics = {k: v for k, v in result.metrics.items() if not k.endswith(("Ms", "Bytes"))}
        table = table.refresh()
        after = table.to_arrow()
        changes = []
        if feed and result.committed:
            changes = rows(table.changes(1).drop_columns(["_commit_timestamp"]))
        findings = trilake.verify(table)
        assert findings.ok, [(f.code, f.message) for f in findings.errors]
        done.append((metrics, after.schema, str(rows(after)), str(changes), set(orjson.loads(_add(table)["stats"]))))
        if spied.on:
            assert after["id"].to_pylist() == list(range(data.num_rows)) or "id" in values  # rows keep their order
    assert done[0] == done[1]
    if done[0][0]["numUpdatedRows"]:
        assert spied.seen == [True, False]


@pytest.mark.parametrize("mode", ["name", "id"])
def test_spliced_update_with_column_mapping(mode: str, tmp_path: Path, spied: Spied) -> None:
    path = str(tmp_path / "t")
    trilake.write(_numbers(), path, properties={"delta.columnMapping.mode": mode})
    trilake.open(path).update({"s": "upper(s)"}, "id = 4")
    assert spied.seen == [True]
    assert trilake.open(path).to_arrow(filter="id = 4")["s"].to_pylist() == ["TEXT 4"]
    assert trilake.verify(path).ok


def test_spliced_update_keeps_partitions(tmp_path: Path, spied: Spied) -> None:
    data = pa.table({"p": [None, "a/b", "a/b"], "d": pa.array([1, 1, 2], pa.date32()), "n": [1, 2, 3], "m": [1, 2, 3]})
    trilake.write(data, str(tmp_path), partition_by=["p", "d"])
    trilake.open(str(tmp_path)).update({"n": "n + m"})
    assert spied.seen
    assert all(spied.seen)
    assert rows(trilake.open(str(tmp_path)).to_arrow()) == rows(data.set_column(2, "n", pa.array([2, 4, 6])))


def test_other_engines_read_the_spliced_file(tmp_path: Path, spied: Spied) -> None:
    path = str(tmp_path / "t")
    deltalake.write_deltalake(path, _numbers())
    trilake.open(path).update({"s": "concat(s, '!')", "n": "n + 1"}, "id % 2 = 0")
    assert spied.seen == [True]
    table = trilake.open(path)
    expected = table.to_arrow()
    [file] = [f"{path}/{p}" for p in table.snapshot.adds["path"].to_pylist()]
    read = [
        pl.read_parquet(file).to_arrow(),
        duckdb.read_parquet(file).to_arrow_table(),
        deltalake.DeltaTable(path).to_pyarrow_table(),
        pq.ParquetFile(file, page_checksum_verification=True).read(),
    ]
    assert [t.cast(expected.schema).sort_by("id").to_pylist() for t in read] == [expected.sort_by("id").to_pylist()] * 4


def test_files_with_unmatched_row_groups_are_spliced(spied: Spied) -> None:
    data = _numbers()
    table = _table(data, data, files={"row_group_size": 90})
    table.update({"s": "'x'", "n": "1"}, "id = 5 OR id = 501")
    table = table.refresh()
    assert spied.seen == [True, True]
    result = table.to_arrow(filter="s = 'x'")
    assert sorted(result["id"].to_pylist()) == [5, 5, 501, 501]
    assert table.to_arrow().num_rows == 2 * ROWS


def test_required_columns_of_the_file_stay_required(spied: Spied) -> None:
    data = pa.table({"id": range(10), "n": range(10), "s": ["few"] * 10, "x": [0.5] * 10})
    required = data.cast(pa.schema([f.with_nullable(False) for f in data.schema]))
    table = table_of(parquet(required), schema=data.schema, fields=[_stats(data)])
    table.update({"n": "n + 10", "s": "'new'", "x": "2.5"}, "id = 4")
    assert spied.seen == [True]
    table = table.refresh()
    assert table.to_arrow(filter="id = 4").to_pylist() == [{"id": 4, "n": 14, "s": "new", "x": 2.5}]
    [path] = table.snapshot.adds["path"].to_pylist()
    schema = pq.read_schema(pa.BufferReader(table.log.store.read(path)))
    assert not any(f.nullable for f in schema)


def test_strings_with_few_values_stay_dictionaries(spied: Spied) -> None:
    data = pa.table({"id": range(5000), "s": ["AIR" if i % 3 else "SHIP" for i in range(5000)]})
    table = _table(data, files={"row_group_size": 2000})
    table.update({"s": "'RAIL'"}, "id % 10 = 0")
    table = table.refresh()
    assert spied.seen == [True]
    expected = ["RAIL" if i % 10 == 0 else s for i, s in enumerate(data["s"].to_pylist())]
    assert table.to_arrow()["s"].to_pylist() == expected
    assert orjson.loads(_add(table)["stats"])["minValues"]["s"] == "AIR"


# --- file metadata ---------------------------------------------------------------------------------------------------


def test_statistics_of_other_columns_are_kept_verbatim(spied: Spied) -> None:
    data = pa.table({"id": [1, 2], "d": pa.array([Decimal(1), Decimal(2)], pa.decimal128(38, 2)), "n": [1, 2]})
    low = '"minValues":{"id":1,"d":-123456789012345678901234567890.12,"n":1}'
    rest = '"maxValues":{"n":2},"nullCount":{"n":0,"d":0},"tightBounds":false,"more":1e2'
    stats = f'{{"numRecords":2,{low},{rest}}}'
    table = _table(data, fields=[{"stats": stats}])
    table.update({"n": "n + 10"}, "id = 2")
    assert spied.seen == [True]
    text = _add(table.refresh())["stats"]
    assert '"d":-123456789012345678901234567890.12' in text
    assert '"more":1e2' in text
    assert '"tightBounds":false' in text
    assert '"maxValues":{"n":12}' in text


@pytest.mark.parametrize("tag", [None, "true", "statistics"])
def test_nan_tag_is_copied_from_the_old_file(tag: str | None, spied: Spied) -> None:
    data = pa.table({"id": [1, 2, 3], "x": [1.0, 2.0, math.nan], "y": [1.0, 2.0, 3.0]})
    fields = {**_stats(data), **({} if tag is None else {"tags": {NAN_TAG: tag}})}
    table = _table(data, fields=[fields])
    table.update({"y": "cast('NaN' as double)"}, "id = 2")
    table = table.refresh()
    assert spied.seen == [True]
    assert dict(_add(table)["tags"] or ()) == ({} if tag is None else {NAN_TAG: tag})
    assert "y" not in orjson.loads(_add(table)["stats"])["maxValues"]
    assert table.to_arrow(filter="y > 100")["id"].to_pylist() == [2]
    [path] = table.snapshot.adds["path"].to_pylist()
    group = pq.read_metadata(pa.BufferReader(table.log.store.read(path))).row_group(0)
    assert group.column(2).statistics is None or not group.column(2).statistics.has_min_max


def test_file_metadata_is_kept(spied: Spied) -> None:
    data = _numbers(10).replace_schema_metadata({"org.apache.spark.version": "4.0.0", "k": "v"})
    table = _table(data, files={})
    table.update({"n": "0"}, "id = 1")
    assert spied.seen == [True]
    [path] = table.refresh().snapshot.adds["path"].to_pylist()
    notes = pq.read_metadata(pa.BufferReader(table.log.store.read(path))).metadata
    assert (notes[b"k"], notes[b"org.apache.spark.version"]) == (b"v", b"4.0.0")


def test_old_calendar_dates_are_kept(spied: Spied) -> None:
    data = pa.table({"id": [1, 2], "n": [1, 2], "d": pa.array([-141428, 0], pa.date32())})
    old = data.replace_schema_metadata({"org.apache.spark.version": "2.4.8"})
    before = _table(old, files={}).to_arrow()["d"].to_pylist()
    for values, spliced in [({"n": "n + 1"}, True), ({"d": "date_add(d, 0)"}, False)]:
        table = _table(old, files={})
        spied.seen.clear()
        table.update(values, "id > 0")
        assert spied.seen == [spliced]
        assert sorted(table.refresh().to_arrow()["d"].to_pylist()) == sorted(before)


# --- fallback to a full rewrite --------------------------------------------------------------------------------------


def _widened() -> ArrowDeltaTable:
    data = pa.table({"id": pa.array([1, 2], pa.int32()), "n": pa.array([1, 2], pa.int32())})
    wider = pa.schema({"id": pa.int64(), "n": pa.int64()})
    return _table(data, schema=wider)


def _other_columns(names: pa.Schema) -> ArrowDeltaTable:
    return _table(pa.table({"id": [1, 2], "n": [1, 2], "m": [1, 2]}), schema=names)


def _required(table: pa.Table) -> pa.Table:
    return table.cast(pa.schema([f.with_nullable(f.name != "n") for f in table.schema]))


SMALL = pa.table({"id": [1, 2], "n": [1, 2]})
CASES: dict[str, tuple[Any, dict[str, str]]] = {
    "no statistics": (lambda: _table(SMALL, fields=[{}]), {"n": "5"}),
    "statistics of no one": (lambda: _table(SMALL, fields=[{"stats": '{"numRecords":2,"minValues":3}'}]), {"n": "5"}),
    "NaN in statistics": (lambda: _table(SMALL, fields=[{"stats": '{"numRecords":2,"x":NaN}'}]), {"n": "5"}),
    "another number of rows": (lambda: _table(SMALL, fields=[{"stats": '{"numRecords":3}'}]), {"n": "5"}),
    "widened": (_widened, {"n": "5"}),
    "more columns": (lambda: _other_columns(SMALL.schema), {"n": "5"}),
    "fewer columns": (lambda: _other_columns(pa.schema({n: pa.int64() for n in ("id", "n", "m", "o")})), {"n": "5"}),
    "other case": (lambda: _table(SMALL, schema=pa.schema({"ID": pa.int64(), "N": pa.int64()})), {"n": "5"}),
    "nested": (lambda: _table(SMALL.append_column("l", pa.array([[1], [2]]))), {"l": "CASE WHEN n > 0 THEN l END"}),
    "int96": (
        lambda: _table(
            SMALL.append_column("t", pa.array([1, 2], pa.timestamp("us", "UTC"))),
            files={"use_deprecated_int96_timestamps": True},
        ),
        {"t": "timestamp'2020-01-01 00:00:00'"},
    ),
    "no place for a null": (lambda: _table(_required(SMALL), schema=SMALL.schema), {"n": "NULL"}),
    "target size": (lambda: _table(SMALL, configuration={"delta.targetFileSize": "100"}), {"n": "5"}),
}


@pytest.mark.parametrize("case", CASES)
def test_unsuitable_files_are_rewritten(case: str, spied: Spied) -> None:
    make, values = CASES[case]
    done = []
    for spied.on in (True, False):
        table = make()
        table.update(values, "id > 1")
        table = table.refresh()
        done.append(str(rows(table.to_arrow())))
        assert len(list(table.log.store.list())) == 4  # two commits, the old file and the new one
    assert done[0] == done[1]
    assert not any(spied.seen)


def test_deleted_rows_do_not_reappear(tmp_path: Path, spied: Spied) -> None:
    path = str(tmp_path / "t")
    trilake.write(_numbers(10), path, properties={"delta.enableDeletionVectors": "true"})
    trilake.open(path).delete("id = 4")
    trilake.alter(path).set_properties({"delta.enableDeletionVectors": "false"})
    trilake.open(path).update({"n": "0"}, "id > 2")
    assert spied.seen == [False]
    assert sorted(trilake.open(path).to_arrow()["id"].to_pylist()) == [0, 1, 2, 3, 5, 6, 7, 8, 9]


def test_required_column_without_statistics_is_spliced(spied: Spied) -> None:
    data = pa.table({"id": [1, 2], "n": [1, 2]}).cast(pa.schema([pa.field(n, pa.int64(), False) for n in ("id", "n")]))
    table = _table(data, files={"write_statistics": False})
    table.update({"n": "5"}, "id = 2")
    assert spied.seen == [True]


@pytest.mark.parametrize("nulls", [0, 1])
def test_not_null_columns_are_checked(nulls: int, spied: Spied) -> None:
    data = pa.table({"id": [1, 2], "n": [1, None if nulls else 2], "m": [1, 2]})
    schema = pa.schema([f.with_nullable(f.name != "n") for f in data.schema])
    table = _table(data, schema=schema)
    if nulls:
        with pytest.raises(ConstraintViolatedError, match="NOT NULL constraint violated for column: n"):
            table.update({"m": "5"}, "id = 2")
    table.update({"m": "5"}, "id = 1")
    assert spied.seen == ([False, False] if nulls else [True])
    with pytest.raises(ConstraintViolatedError, match="NOT NULL constraint violated for column: n"):
        table.update({"n": "NULL"}, "id = 1")


def test_constraints_are_checked_for_changed_rows(spied: Spied) -> None:
    table = _table(_numbers(20), configuration={"delta.constraints.c": "id + n < 30"})
    before = [m.key for m in table.log.store.list()]
    errors = []
    for spied.on in (True, False):
        with pytest.raises(ConstraintViolatedError) as e:
            table.update({"n": "n + 20"}, "id > 3")
        errors.append(str(e.value))
    assert errors[0] == errors[1]
    assert [m.key for m in table.log.store.list()] == before
    spied.on = True
    spied.seen.clear()
    table.update({"n": "n + 20"}, "id = 3")
    assert spied.seen == [True]


def test_char_and_varchar_lengths_are_checked(tmp_path: Path, spied: Spied) -> None:
    path = str(tmp_path / "t")
    trilake.sql(f"CREATE TABLE delta.`{path}` (id BIGINT, c CHAR(4), v VARCHAR(3)) USING delta")
    trilake.sql(f"INSERT INTO delta.`{path}` VALUES (1, 'a', 'b')")
    table = trilake.open(path)
    table.update({"id": "2"})
    assert not any(spied.seen)
    with pytest.raises(SchemaMismatchError):
        table.update({"c": "'x'", "v": "'much'"})
    spied.seen.clear()
    table.update({"c": "'x'", "v": "'y'"})
    assert spied.seen == [True]
    assert rows(trilake.open(path).to_arrow()) == [{"id": 2, "c": "x   ", "v": "y"}]


def test_spliced_update_raises_the_same_errors(spied: Spied) -> None:
    for values in ({"n": "cast(id as int) * 1000000000"}, {"n": "cast(concat(s, 'x') as int)"}):
        errors = []
        for spied.on in (True, False):
            table = _table(_numbers(20))
            with pytest.raises(trilake.TrilakeError) as e:
                table.update(values, "id > 3")
            errors.append(str(e.value))
            assert table.refresh().version == 0
        assert errors[0] == errors[1]


# --- damage ----------------------------------------------------------------------------------------------------------


def _damaged(column: int, **files: Any) -> ArrowDeltaTable:
    """A table whose file has a flipped bit in a column of the second row group."""
    data = _numbers()
    content = bytearray(
        parquet(data, **{"row_group_size": 400, "write_page_checksum": True, "compression": "none", **files})
    )
    chunk = pq.read_metadata(pa.BufferReader(bytes(content))).row_group(1).column(column)
    content[(chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size - 3] ^= 1
    return table_of(bytes(content), schema=data.schema, fields=[_stats(data)])


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("column", [0, 1, 2, 3], ids=["id", "s", "n", "l"])
def test_damaged_column_is_not_copied(column: int, version: str, spied: Spied) -> None:
    table = _damaged(column, data_page_version=version)
    before = [m.key for m in table.log.store.list()]
    with pytest.raises(CorruptFileError, match=r"f0|checksum"):
        table.update({"n": "0"}, "id < 3")
    assert [m.key for m in table.log.store.list()] == before


def test_missing_file_is_reported(spied: Spied) -> None:
    table = _table(_numbers())
    table.log.store.delete(["f0"])
    with pytest.raises(MissingFileError):
        table.update({"n": "0"})


class Ranges(MemoryStore):
    """A store that reads objects by range, like an object store."""

    def open_input(self, key: str) -> pa.NativeFile:
        self.fetched: list[tuple[int, int]] = []

        def fetch(ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
            self.fetched += ranges
            return [self.read_range(key, *r) for r in ranges]

        return ObjectFile(WindowReader(fetch, self.head(key).size))


def test_row_group_is_fetched_with_one_request(spied: Spied) -> None:
    store, random = Ranges(), Random(1)
    strings = ["".join(random.choices("abcdefgh", k=300)) for _ in range(2 * ROWS)]
    data = pa.table({"id": range(2 * ROWS), "s": strings, "t": strings, "n": range(2 * ROWS)})
    table = _table(data, files={"row_group_size": ROWS, "use_dictionary": False}, store=store)
    before = table.to_arrow()
    table.update({"n": "0"}, "id < 3")
    assert spied.seen == [True]
    assert len(store.fetched) <= 5
    after = table.refresh().to_arrow()
    assert after.drop_columns(["n"]).equals(before.drop_columns(["n"]))
    assert after["n"].to_pylist()[:4] == [0, 0, 0, 3]


def test_statistics_numbers_are_not_parsed_as_doubles() -> None:
    stated = OldStatistics.of('{"numRecords":3}', [(NAN_TAG, "true"), ("x", "y")])
    assert (stated.records(), stated.nan_tag) == (3, "true")
    assert OldStatistics.of('{"numRecords":3.0}', None).records() is None
