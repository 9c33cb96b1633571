"""Nulls that the format cannot store: rejected, kept in companion columns, or dropped on request."""

from __future__ import annotations

from typing import Any

import lance as pylance
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trilake import lance
from trilake.errors import SchemaMismatchError
from trilake.lance.file.null_masks import NULLS_OF

_count = iter(range(10**6))


def uri() -> str:
    return f"memory://null-masks-{next(_count)}"


def write_dataset(*args: Any, **options: Any) -> lance.LanceDataset:
    """Only for the legacy format: files of 2.x store nulls."""
    return lance.write_dataset(*args, data_storage_version="legacy", **options)


def struct(*fields: tuple[str, pa.DataType]) -> pa.DataType:
    return pa.struct(list(fields))


LOST: list[tuple[pa.DataType, list[Any], str]] = [
    (pa.int32(), [1, None], "c"),
    (pa.bool_(), [True, None], "c"),
    (pa.float64(), [1.5, None], "c"),
    (pa.timestamp("us"), [1, None], "c"),
    (pa.list_(pa.int8()), [[1], None], "c"),
    (pa.list_(pa.int8()), [[1, None]], "c.item"),
    (pa.list_(pa.float32(), 2), [[1, 2], None], "c"),
    (pa.list_(pa.float32(), 2), [[1, None]], "c.item"),
    (struct(("x", pa.int8())), [{"x": 1}, None], "c"),
    (struct(("x", pa.int8()), ("y", pa.string())), [{"x": None, "y": None}], "c.x"),
    (struct(("l", pa.list_(struct(("z", pa.bool_()))))), [{"l": [{"z": None}]}], "c.l.item.z"),
    (pa.dictionary(pa.int8(), pa.string()), ["a", None], "c"),
]


@pytest.mark.parametrize(("kind", "values", "path"), LOST)
def test_null_that_would_be_lost_is_rejected(kind: pa.DataType, values: list[Any], path: str) -> None:
    rows = pa.table({"k": pa.array(range(len(values)), pa.int64()), "c": _array(values, kind)})
    where = uri()
    with pytest.raises(SchemaMismatchError, match="null would be lost") as caught:
        write_dataset(rows, where)
    assert caught.value.context["column"] == path
    assert 'nulls="zero"' in str(caught.value)
    dataset = write_dataset(rows, where, nulls="zero")
    assert dataset.count_rows() == len(values)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode().cast(kind)
    return pa.array(values, kind)


@pytest.mark.parametrize(("kind", "values", "path"), [case for case in LOST if case[2] == "c"])
def test_companion_columns_keep_nulls(kind: pa.DataType, values: list[Any], path: str) -> None:
    rows = pa.table({"c": _array(values, kind), "n": [None, ""][: len(values)]})
    dataset = write_dataset(rows, uri(), nulls="mask", max_rows_per_group=2)
    assert dataset.schema.names == ["c", "n"]
    assert dataset.to_table().to_pydict() == rows.to_pydict()
    assert dataset.take([1, 0]).to_pylist() == rows.take([1, 0]).to_pylist()
    assert dataset.count_rows("c IS NULL") == rows["c"].null_count
    assert dataset.count_rows("n IS NULL") == rows["n"].null_count


def test_nulls_that_the_format_stores_are_accepted() -> None:
    rows = pa.table({"s": ["a", None, ""], "b": [b"x", None, b"y"], "z": pa.nulls(3)})
    dataset = write_dataset(rows, uri())
    assert dataset.to_table()["s"].to_pylist() == ["a", None, None]
    strict = pa.schema([pa.field("s", pa.string(), nullable=False)])
    dataset = write_dataset(pa.table([["a", ""]], schema=strict), uri())
    assert dataset.to_table()["s"].to_pylist() == ["a", ""]


ROWS = pa.table({"a": [1, None, 3, None], "s": ["x", None, "", "y"]})


def test_every_command_keeps_nulls() -> None:
    ds = write_dataset(ROWS, uri(), nulls="mask")
    ds = write_dataset(ROWS, ds.uri, mode="append")
    assert ds.to_table().to_pydict() == {k: v * 2 for k, v in ROWS.to_pydict().items()}
    ds.delete("s = 'y'")
    ds.update({"a": "CASE WHEN a = 1 THEN NULL ELSE 7 END"}, "s = 'x'")
    assert ds.to_table()["a"].to_pylist() == [None, 3, None, 3, None, None]
    ds.optimize.compact_files()
    assert ds.to_table()["a"].to_pylist() == [None, 3, None, 3, None, None]
    assert ds.to_table(columns=["s"], filter="a IS NOT NULL")["s"].to_pylist() == ["", ""]
    done = ds.merge_insert("s").when_matched_update_all().execute(pa.table({"a": [None], "s": ["x"]}).cast(ds.schema))
    assert done["num_updated_rows"] == 2
    ds.drop_columns(["a"])
    assert ds.snapshot.manifest.schema.names == ["s", "s__is_null"]
    with pytest.raises(SchemaMismatchError, match="null would be lost"):
        ds.merge(pa.table({"s": ["x"], "w": [1]}), "s")
    masked = lance.dataset(ds.uri, nulls="mask")
    masked.merge(pa.table({"s": ["x"], "w": [1]}), "s")
    assert sorted(map(str, masked.to_table()["w"].to_pylist())) == ["1", "1"] + ["None"] * 4


def test_empty_strings_match_after_compaction() -> None:
    """Compaction copies stored values, in which null and the empty string are equal."""
    rows = pa.table({"t": ["", "b", None] * 4, "b": pa.array([b"x", None, b""] * 4, pa.large_binary())})
    ds = write_dataset(rows, uri(), max_rows_per_file=5, max_rows_per_group=5, nulls="mask")
    filters = ("t = ''", "t <= ''", "t IN ('', 'z')", "t IS NULL", "b = X''", "b < X'01'", "t > 'a'")
    before = [ds.count_rows(f) for f in filters]
    assert before == [4, 4, 4, 4, 4, 4, 4]
    ds.optimize.compact_files()
    assert len(ds.get_fragments()) == 1
    assert [ds.count_rows(f) for f in filters] == before
    assert ds.to_table() == rows


def test_distributed_fragments_keep_nulls() -> None:
    """Also when committed with the user-visible schema, which has no companions."""
    rows = pa.table({"a": [1, None, 3], "s": ["x", None, ""], "b": [True, None, False]})
    where = uri()
    write_dataset(rows, where, nulls="mask")
    some = lance.LanceFragment.create(where, rows.select(["b", "s", "a"]))
    ds = lance.LanceDataset.commit(where, lance.LanceOperation.Append([some]), read_version=1)
    assert ds.to_table().to_pylist() == rows.to_pylist() * 2

    merged, schema = zip(*(f.merge(pa.table({"a": [1, 3], "z": ["p", "q"]}), "a") for f in ds.get_fragments()))
    ds = lance.LanceDataset.commit(where, lance.LanceOperation.Merge(list(merged), schema[0]), read_version=2)
    assert ds.to_table() == pa.concat_tables([rows, rows]).append_column("z", pa.array(["p", None, "q"] * 2))

    twice = [f.add_columns(lambda b: pa.record_batch({"c": b["a"]}), ["a"], nulls="mask") for f in ds.get_fragments()]
    schema = ds.schema.append(pa.field("c", pa.int64()))
    ds = lance.LanceDataset.commit(where, lance.LanceOperation.Merge(twice, schema), read_version=3)
    assert ds.to_table()["c"].to_pylist() == [1, None, 3] * 2

    ds.drop_columns(["s"])
    left = [f.delete("a = 1") for f in ds.get_fragments()]
    ds = lance.LanceDataset.commit(where, lance.LanceOperation.Overwrite(ds.schema, left))
    kept = {"a": None, "b": None, "z": None, "c": None}, {"a": 3, "b": False, "z": "q", "c": 3}
    assert ds.to_table().to_pylist() == [*kept] * 2


def test_fragments_of_a_new_dataset_keep_nulls() -> None:
    rows = pa.table({"a": [1, None], "s": ["", None]})
    where = uri()
    dataset = [lance.LanceFragment.create(where, rows, nulls="mask", data_storage_version="legacy") for _ in range(2)]
    ds = lance.LanceDataset.commit(where, lance.LanceOperation.Overwrite(rows.schema, dataset))
    assert ds.to_table().to_pylist() == rows.to_pylist() * 2


def test_other_readers_see_the_companion_column(tmp_path: Any) -> None:
    path = str(tmp_path / "t")
    write_dataset(ROWS, path, nulls="mask")
    theirs = pylance.dataset(path)
    assert theirs.schema.names == ["a", "a__is_null", "s", "s__is_null"]
    assert theirs.schema.field("a__is_null").metadata == {NULLS_OF: b"a"}
    assert theirs.to_table(columns=["a__is_null"]).to_pydict() == {"a__is_null": [False, True, False, True]}
    theirs.delete("a = 3")
    assert lance.dataset(path).to_table()["a"].to_pylist() == [1, None, None]


@settings(max_examples=40)
@given(st.data())
def test_random_rows_round_trip(data: st.DataObject) -> None:
    scalar = st.sampled_from([pa.int8(), pa.bool_(), pa.float32(), pa.string(), pa.binary(), pa.date32()])
    kind = data.draw(scalar)
    value = {
        pa.int8(): st.integers(-128, 127),
        pa.bool_(): st.booleans(),
        pa.float32(): st.floats(width=32, allow_nan=False),
        pa.string(): st.text(max_size=3),
        pa.binary(): st.binary(max_size=3),
        pa.date32(): st.integers(0, 9).map(lambda d: __import__("datetime").date(2020, 1, 1 + d)),
    }[kind]
    values = data.draw(st.lists(st.none() | value, min_size=1, max_size=30))
    deep = data.draw(st.booleans())
    array = pa.array(values, kind)
    if deep:
        rows = pa.table({"c": pa.array([None if v is None else [v] for v in values], pa.list_(kind))})
        if kind in (pa.string(), pa.binary()) and any(v in ("", b"") for v in values):
            return  # an empty string in a list is read as null: companions mark columns, not list items
    else:
        rows = pa.table({"c": array})
    dataset = write_dataset(rows, uri(), nulls="mask", max_rows_per_group=7, max_rows_per_file=11)
    assert dataset.to_table().to_pydict() == rows.to_pydict()
