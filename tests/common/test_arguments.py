"""Arguments of the wrong type are rejected at the public API, before anything is written."""

from __future__ import annotations

import collections.abc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import trilake
from trilake.common.arguments import checked, checked_methods
from trilake.errors import ExpressionError, InvalidArgumentError, SchemaMismatchError
from trilake.storage import open_store

#: The public API without static types, for wrong calls.
ANY: Any = trilake
ROWS = pa.table({"a": [1, 2], "b": ["x", "y"]})


@pytest.fixture
def table(tmp_path: Path) -> str:
    trilake.write(ROWS, tmp_path / "t")
    return str(tmp_path / "t")


@checked
def _call(
    name: str,
    flag: bool = False,
    *more: str,
    columns: list[str] | None = None,
    names: str | Sequence[str] | None = None,
) -> Any:
    return name, flag, more, columns, names


def test_valid_arguments_are_passed_on() -> None:
    on: Any = np.bool_(True)
    assert _call("a", on, "x", "y", columns=["c"], names=["d"]) == ("a", True, ("x", "y"), ["c"], ("d",))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: _call(None),  # type: ignore[arg-type]
        lambda: _call("a", "yes"),  # type: ignore[arg-type]
        lambda: _call("a", False, "x", 5),  # type: ignore[arg-type]
        lambda: _call(name=b"a"),  # type: ignore[arg-type]
    ],
)
def test_invalid_argument_is_named(wrong: Callable[[], Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^\[INVALID_ARGUMENT\] (name|flag|more) must be "):
        wrong()


def test_checked_methods() -> None:
    @checked_methods
    class Thing:
        def rename(self, name: str) -> str:
            return name

        def _hidden(self, name: str) -> str:
            return name

    assert Thing().rename("a") == "a"
    with pytest.raises(InvalidArgumentError, match="name must be a string, got 1"):
        Thing().rename(1)  # type: ignore[arg-type]
    assert Thing()._hidden(1) == 1  # type: ignore[arg-type, comparison-overlap]


@pytest.mark.parametrize(
    "mistake",
    [
        lambda t: ANY.write(ROWS, t, mode=None),
        lambda t: ANY.write(ROWS, t, mode="append", txn="nightly"),
        lambda t: ANY.write(ROWS, t, mode="append", txn=("nightly", "7")),
        lambda t: ANY.write(ROWS, t, mode="append", txn=("nightly", True)),
        lambda t: ANY.write(ROWS, t, mode="append", txn=("nightly", 1 << 64)),
        lambda t: ANY.write(ROWS, t, mode="append", user_metadata={"by": "me"}),
        lambda t: ANY.write(ROWS, t, mode="append", max_records_per_file="5"),
        lambda t: ANY.write(pl.Series("a", [1]), t, mode="append"),
        lambda t: ANY.create(f"{t}-new", {"a": int}),
        lambda t: ANY.create(f"{t}-new", None),
        lambda t: ANY.create(f"{t}-new", pl.DataFrame({"a": [1]}).dtypes),
        lambda t: ANY.create(f"{t}-new", {"a": "bigint"}, identity={"a": 5}),
        lambda t: ANY.create(f"{t}-new", {"a": "bigint"}, identity=5),
        lambda t: ANY.create(f"{t}-new", {"a": "bigint"}, comment={"a": 1}),
        lambda t: ANY.open(t).to_arrow([1]),
        lambda t: ANY.open(t).to_arrow(ROWS.schema),
        lambda t: ANY.open(t).update([("a", "1")]),
        lambda t: ANY.open(t).delete("a = 1", user_metadata={"by": "me"}),
        lambda t: ANY.open(t).optimize(target_size="1g"),
        lambda t: ANY.open(t).vacuum(1 << 70),
        lambda t: ANY.open(t).merge(ROWS, "t.a = s.a", None, "t"),
        lambda t: ANY.open(t).merge(ROWS, "t.a = s.a", "s", "t").when_matched_update_all(except_cols=[1]),
        lambda t: ANY.alter(t).set_properties([("a", "b")]),
        lambda t: ANY.alter(t).unset_properties(1),
        lambda t: ANY.alter(t).add_constraint("c", None),
        lambda t: ANY.alter(t).set_not_null(5),
        lambda t: ANY.alter(t).comment("x", [1]),
        lambda t: ANY.alter(t).upgrade_protocol("3", 7),
        lambda t: ANY.alter(t).replace_columns([5]),
        lambda t: ANY.alter(t).replace_columns({"a.x": "int"}),
        lambda t: ANY.convert_to_delta(t, [1]),
        lambda t: ANY.convert(t, f"{t}-new", format=None),
        lambda t: ANY.verify(t, format=5),
    ],
)
def test_invalid_arguments_change_nothing(mistake: Callable[[str], Any], table: str) -> None:
    before = sorted(p for p in Path(table).parent.rglob("*") if p.is_file())
    with pytest.raises(InvalidArgumentError):
        mistake(table)
    assert sorted(p for p in Path(table).parent.rglob("*") if p.is_file()) == before


def test_application_version_may_be_a_numpy_integer(table: str) -> None:
    for _ in range(2):
        ANY.write(ROWS, table, mode="append", txn=("nightly", np.int64(7)))
    assert trilake.open(table).count() == 4


def test_identity_columns_may_be_one_name(tmp_path: Path) -> None:
    trilake.create(tmp_path / "i", {"key": "bigint", "a": "bigint"}, identity="key")
    trilake.write(ROWS.select(["a"]), tmp_path / "i", mode="append")
    assert sorted(trilake.open(tmp_path / "i").to_arrow(["key"])["key"].to_pylist()) == [1, 2]


def test_column_names_come_in_any_iterable(table: str) -> None:
    t = ANY.open(table)
    for names in (("b", "a"), pa.array(["b", "a"]).to_pandas(), (n for n in ["b", "a"])):
        assert t.to_arrow(names).column_names == ["b", "a"]


def test_replace_columns_with_types_by_name(tmp_path: Path) -> None:
    trilake.write(ROWS, tmp_path / "t", properties={"delta.columnMapping.mode": "name"})
    trilake.alter(tmp_path / "t").replace_columns({"b": "string", "c": "int"})
    assert trilake.open(tmp_path / "t").to_arrow().sort_by("b").to_pylist() == [
        {"b": "x", "c": None},
        {"b": "y", "c": None},
    ]


def test_run_end_encoded_columns_and_empty_structs(tmp_path: Path) -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["x", None]))
    trilake.write(pa.table({"r": runs, "s": [{"r": 1}, None, {"r": 2}]}), tmp_path / "r")
    assert trilake.open(tmp_path / "r").to_arrow()["r"].to_pylist() == ["x", "x", None]
    with pytest.raises(SchemaMismatchError, match="without fields"):
        trilake.write(pa.table({"s": pa.array([{}], pa.struct([]))}), tmp_path / "e")
    assert not (tmp_path / "e").exists() or not any((tmp_path / "e").iterdir())


def test_unknown_excluded_column_is_rejected(table: str) -> None:
    merge = trilake.open(table).merge(ROWS, "t.a = s.a", "s", "t")
    with pytest.raises(InvalidArgumentError, match="excludes bb"):
        merge.when_matched_update_all(except_cols=["bb"]).execute()
    assert merge.when_matched_update_all(except_cols=["B"]).execute().version == 1


Text: TypeAlias = str
Options: TypeAlias = Mapping[str, int] | None


@checked
def _by_types(
    name: Text, options: Options = None, names: collections.abc.Sequence[str] | str | None = None, many: int = 0
) -> Any:
    return name, options, names, many


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: _by_types(1),  # type: ignore[arg-type]
        lambda: _by_types("a", options=[1]),  # type: ignore[arg-type]
        lambda: _by_types("a", options={1: 1}),  # type: ignore[dict-item]
        lambda: _by_types("a", names=[1]),  # type: ignore[list-item]
    ],
)
def test_type_checks_support_every_annotation(wrong: Callable[[], Any]) -> None:
    assert _by_types("a", {"b": 1}, ["c"], 2) == ("a", {"b": 1}, ("c",), 2)
    with pytest.raises(InvalidArgumentError, match="must"):
        wrong()


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (lambda t: t.to_arrow(where="a = 1"), "filter"),
        (lambda t: t.to_pandas(predicate="a = 1"), "filter"),
        (lambda t: t.count(condition="a = 1"), "filter"),
        (lambda t: t.delete(filter="a = 1"), "where"),
        (lambda t: t.update({"a": 1}, filter="a = 1"), "where"),
        (lambda t: t.merge(ROWS, condition="target.a = source.a"), "on"),
        (lambda t: t.vacuum(retention_hour=1), "retention_hours"),
    ],
)
def test_misnamed_argument_suggests_the_name(table: str, call: Callable[[Any], Any], meant: str) -> None:
    with pytest.raises(TypeError, match=f"use '{meant}'"):
        call(ANY.open(table))


def test_deltalake_argument_names_are_suggested(table: str) -> None:
    opened: Any = trilake.open(table)
    assert opened.update(updates={"b": "'z'"}, predicate="a = 1").rows == 1
    assert opened.delete(predicate="a = 1").rows == 1
    merge = opened.merge(source=ROWS, predicate="t.a = s.a", source_alias="s", target_alias="t")
    assert merge.when_not_matched_insert_all().execute().num_inserted_rows == 1
    with pytest.raises(TypeError, match="the same argument"):
        opened.delete(predicate="a = 1", where="a = 1")


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.update({"b": "Rome"}),
        lambda t: t.update({"b": "New York"}, where="a = 1"),
        lambda t: t.merge(ROWS, "target.a = source.a").when_matched_update({"b": "Rome"}).execute(),
    ],
)
def test_unquoted_sql_string_is_shown_quoted(table: str, change: Callable[[Any], Any]) -> None:
    with pytest.raises(ExpressionError) as e:
        change(trilake.open(table))
    assert e.value.help is not None
    assert "for the string, write \"'Rome'\"" in e.value.help.replace("New York", "Rome")


@pytest.mark.parametrize("on", ["a", "`a`", "A"])
def test_column_name_is_not_a_merge_condition(table: str, on: str) -> None:
    with pytest.raises(InvalidArgumentError, match="write on='t") as e:
        trilake.open(table).merge(ROWS, on, "s", "t")
    assert f"t.{on} = s.{on}" in (e.value.help or "")


def test_vacuum_lists_and_deletes_on_request(table: str) -> None:
    trilake.write(ROWS, table, mode="overwrite")
    opened = trilake.open(table)
    assert opened.vacuum(0, enforce_retention=False).files.num_rows == 1
    assert len(list(Path(table).glob("*.parquet"))) == 2
    assert opened.vacuum(0, dry_run=False, enforce_retention=False).files.num_rows == 1
    assert len(list(Path(table).glob("*.parquet"))) == 1


def test_transaction_accepts_a_location(table: str) -> None:
    for place in (table, Path(table), open_store(table)):
        assert trilake.Transaction(place).read().num_rows >= 1


@pytest.mark.parametrize(
    ("make", "shown", "hidden"),
    [
        (ANY.open, {"to_arrow", "merge", "uri", "version"}, {"log"}),
        (lambda t: ANY.open(t).merge(ROWS, "target.a = source.a"), {"execute"}, {"known", "log", "request", "source"}),
        (ANY.alter, {"add_columns"}, {"find_violation", "judge", "lenient", "log", "run", "runtime", "zoned"}),
    ],
    ids=["table", "merge", "alter"],
)
def test_dir_shows_public_methods(table: str, make: Callable[[str], Any], shown: set[str], hidden: set[str]) -> None:
    names = set(dir(make(table)))
    assert shown <= names
    assert not hidden & names
