"""``df.writeTo(name)``: the second interface for writing tables of the catalogue, for tables of ours.

Spark plans such writes against its catalogue, which hands a Python source no place to write to.  After
:func:`take_over_tables`, those that say ``using("delta")`` or name a table of ours go the way of :func:`trilake.write`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql.readwriter import DataFrameWriterV2

from trilake.delta.log.log import DeltaLog
from trilake.errors import InvalidArgumentError, TableExistsError, TableNotFoundError
from trilake.spark.delta.catalogue import default_location
from trilake.spark.front.dataframe_writer import NAMED, SAVERS, SaveRequest, our_location, rename, translated
from trilake.spark.native.columns import column_sql, read_condition
from trilake.storage import open_store

_DONE = "_trilake_writer"
_STATE = "_trilake_told"


class _Told:
    """What a chain of calls has said so far."""

    def __init__(self, df: DataFrame, table: str) -> None:
        self.df, self.table = df, table
        self.provider: str | None = None
        self.options: dict[str, str] = {}
        self.properties: dict[str, str] = {}
        self.partition_by: tuple[str, ...] | None = None
        self.cluster_by: tuple[str, ...] | None = None


def take_over_tables() -> None:
    """Teach ``df.writeTo`` of this process the tables that are ours; doing it again changes nothing."""
    cls: Any = DataFrameWriterV2
    if getattr(cls, _DONE, False):
        return
    setattr(cls, _DONE, True)
    for name, note in _NOTES.items():
        if not hasattr(cls, name):
            continue  # clusterBy is newer than the others
        setattr(cls, name, _noting(getattr(cls, name), note))
    for name, act in _ACTIONS.items():
        setattr(cls, name, _acting(getattr(cls, name), act))


def _told(writer: Any) -> _Told:
    found: _Told | None = writer.__dict__.get(_STATE)
    if found is None:
        raise InvalidArgumentError("the writer was made before trilake.register", help="call df.writeTo again")
    return found


def _noting(method: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        out = method(self, *args, **kwargs)
        note(self, *args, **kwargs)
        return out

    return call


def _begin(writer: Any, df: DataFrame, table: str) -> None:
    writer.__dict__[_STATE] = _Told(df, table)


def _using(writer: Any, provider: str) -> None:
    _told(writer).provider = provider.lower()


def _option(writer: Any, key: str, value: Any) -> None:
    _told(writer).options[key] = str(value).lower() if isinstance(value, bool) else str(value)


def _options(writer: Any, **options: Any) -> None:
    for key, value in options.items():
        _option(writer, key, value)


def _property(writer: Any, property: str, value: str) -> None:
    _told(writer).properties[property] = value


def _partitioned_by(writer: Any, col: Any, *cols: Any) -> None:
    _told(writer).partition_by = tuple(_name(c) for c in (col, *cols))


def _clustered_by(writer: Any, col: str, *cols: str) -> None:
    _told(writer).cluster_by = (col, *cols)


def _name(column: str | Column) -> str:
    text = column if isinstance(column, str) else column_sql(column)
    if text is None or "(" in text:
        raise InvalidArgumentError(
            f"a table is partitioned by columns, not by {column}", help="add a generated column, and name that"
        )
    return text


_NOTES: dict[str, Callable[..., None]] = {
    "__init__": _begin,
    "using": _using,
    "option": _option,
    "options": _options,
    "tableProperty": _property,
    "partitionedBy": _partitioned_by,
    "clusterBy": _clustered_by,
}


def _acting(method: Callable[..., Any], act: Callable[..., None]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Any, *args: Any) -> Any:
        told = self.__dict__.get(_STATE)
        if told is None:
            return method(self, *args)
        place = our_location(told.df.sparkSession, told.table)
        if (place is None and told.provider not in NAMED) or (told.provider is not None and told.provider not in NAMED):
            return method(self, *args)
        translated(lambda: act(told, place, *args))
        return None

    return call


def _create(told: _Told, place: str | None) -> None:
    if place is not None:
        raise TableExistsError(f"table {told.table} already exists", file=place)
    _save(told, told.options.get("path") or default_location(told.df.sparkSession, told.table), "error")


def _replace(told: _Told, place: str | None) -> None:
    _save(told, _known(told, place), "overwrite", overwriteSchema="true", partitionOverwriteMode="static")


def _create_or_replace(told: _Told, place: str | None) -> None:
    if place is None:
        _create(told, place)
    else:
        _replace(told, place)


def _append(told: _Told, place: str | None) -> None:
    _save(told, _known(told, place), "append")


def _overwrite(told: _Told, place: str | None, condition: Any) -> None:
    known = _known(told, place)
    schema = DeltaLog(open_store(known)).head().schema
    filter = read_condition(told.df.sparkSession, condition, schema).filter
    if filter is None:
        raise InvalidArgumentError(
            f"rows to be replaced cannot be chosen by {condition}", help="use comparisons of columns with values"
        )
    _save(told, known, "overwrite", replaceWhere=filter.text)


def _overwrite_partitions(told: _Told, place: str | None) -> None:
    _save(told, _known(told, place), "overwrite", partitionOverwriteMode="dynamic")


_ACTIONS: dict[str, Callable[..., None]] = {
    "create": _create,
    "replace": _replace,
    "createOrReplace": _create_or_replace,
    "append": _append,
    "overwrite": _overwrite,
    "overwritePartitions": _overwrite_partitions,
}


def _known(told: _Told, place: str | None) -> str:
    if place is None:
        raise TableNotFoundError(f"table {told.table} cannot be found", help="make it with create()")
    return place


def _save(told: _Told, place: str, mode: str, **more: str) -> None:
    options = {**told.options, **more}
    asked = SaveRequest(told.df, "delta", mode, options, told.partition_by, told.properties, told.cluster_by)
    SAVERS["delta"](asked, place)
    rename(told.df.sparkSession, told.table, place)
