"""Write one data file that copies unchanged columns from an older one."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import IO, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from trilake.delta.files.file_plan import FilePlan
from trilake.delta.files.file_statistics import file_statistics, stated_columns
from trilake.delta.files.file_writer import (
    dictionary_columns,
    file_action,
    float_paths,
    has_nan,
    nested_columns,
    parquet_writer,
    without_empty,
)
from trilake.delta.scan.statistics import NAN_TAG
from trilake.parquet.splice import NotSpliceable, Parts, SpliceWriter

#: The statistics per column.
_BY_COLUMN = ("minValues", "maxValues", "nullCount")


@dataclass(frozen=True)
class OldStatistics:
    """The statistics of the older file in its action: its ``stats``, and the tag about NaN."""

    stats: str | None
    nan_tag: str | None

    @classmethod
    def of(cls, stats: str | None, tags: Collection[tuple[str, str]] | None) -> OldStatistics:
        return cls(stats, dict(tags or ()).get(NAN_TAG))

    def parsed(self) -> dict[str, Any]:
        """The statistics, with numbers as strings: a double would truncate decimals.

        Raises :class:`~trilake.parquet.splice.NotSpliceable` without statistics.
        """
        try:
            stats = json.loads(
                self.stats or "", parse_float=orjson.Fragment, parse_int=orjson.Fragment, parse_constant=_reject
            )
        except ValueError as e:
            raise NotSpliceable("the file has no statistics") from e
        if not isinstance(stats, dict) or not all(isinstance(stats.get(k, {}), dict) for k in _BY_COLUMN):
            raise NotSpliceable("the file's statistics are invalid")
        return stats

    def records(self) -> int | None:
        """The number of rows."""
        self.parsed()
        count = orjson.loads(self.stats or "").get("numRecords")
        return count if isinstance(count, int) else None


def _reject(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


class SplicedFile:
    """One Parquet file; :meth:`write_group` takes the new columns of each row group of the file ``old``.

    ``schema`` is that of the whole file.  ``stated`` are the statistics of the older file; its NaN tag is kept, or
    dropped if floating-point columns are copied.
    """

    def __init__(
        self,
        sink: IO[bytes],
        key: str,
        partition: Mapping[str, str | None],
        schema: pa.Schema,
        plan: FilePlan,
        old: Parts,
        stated: OldStatistics,
    ) -> None:
        self.sink, self.key, self.partition, self.schema, self.plan = sink, key, partition, schema, plan
        self.stated = stated
        self.splice = SpliceWriter(sink, old)
        self.footer: pq.FileMetaData | None = None
        self.new: pa.Schema = pa.schema([])
        self.with_nan: frozenset[tuple[str, ...]] = frozenset()

    @property
    def size(self) -> int:
        return self.splice.size

    def accepts(self, table: pa.Table) -> bool:
        """Whether rows can be added to this file: never, since it has exactly the rows of the older one."""
        return False

    def write(self, table: pa.Table) -> None:
        raise AssertionError("a spliced file cannot have more rows")

    def write_group(self, table: pa.Table, schema: pa.Schema, *, decimals_as_integers: bool) -> None:
        """Write the next row group: ``table`` has the new columns, the same in each call, ``schema`` their file schema.

        ``decimals_as_integers`` says how the older file stores decimals.  Raises ``NotSpliceable`` if the older file
        stores the columns differently.
        """
        with_nan = {p for p in float_paths(schema) if p in self.plan.unbounded or has_nan(table, p)}
        footer: list[pq.FileMetaData] = []
        out = pa.BufferOutputStream()
        options = {"decimals_as_integers": decimals_as_integers}
        pairs = zip(schema, table.schema.types, strict=True)
        file_schema = pa.schema([f.with_type(t) if pa.types.is_dictionary(t) else f for f, t in pairs])
        dictionaries = without_empty(dictionary_columns(table), table.select(nested_columns(schema)), file_schema)
        try:
            with parquet_writer(out, file_schema, self.plan, dictionaries, with_nan, footer, **options) as writer:
                writer.write_table(table.unify_dictionaries(), row_group_size=max(table.num_rows, 1))
        except pa.ArrowInvalid as e:
            raise NotSpliceable(f"the new columns cannot be written: {e}") from e
        self.splice.write_group(out.getvalue())
        self.new, self.with_nan = schema, self.with_nan | with_nan
        if self.footer is None:
            self.footer = footer[0]
        else:
            self.footer.append_row_groups(footer[0])

    def close(self, now_ms: int) -> dict[str, Any]:
        try:
            size = self.splice.close()
        except NotSpliceable:
            self.discard()
            raise
        self.sink.close()
        action = file_action(self.plan, self.key, self.partition, size, now_ms, self._statistics)
        tags = dict(self.plan.tags)
        has_kept_floats = any(p[0] not in self.new.names for p in float_paths(self.schema))
        if NAN_TAG in tags and has_kept_floats:  # the older file determines how NaN counts in those columns
            del tags[NAN_TAG]
            if self.stated.nan_tag is not None:
                tags[NAN_TAG] = self.stated.nan_tag
        action.pop("tags", None)
        return {**action, **({"tags": tags} if tags else {})}

    def _statistics(self) -> str:
        stats = self.stated.parsed()
        new: dict[str, Any] = {}
        if self.footer is not None:
            paths = [p for p in self.plan.statistics.indexed(self.schema) if p is not None and p[0] in self.new.names]
            which = replace(self.plan.statistics, paths=tuple(paths))
            stated = file_statistics(self.footer, stated_columns(self.new, which), self.with_nan)
            new = OldStatistics(stated, None).parsed()
        for kind in _BY_COLUMN:
            unchanged = {name: v for name, v in stats.get(kind, {}).items() if name not in self.new.names}
            stats[kind] = {**unchanged, **new.get(kind, {})}
        return orjson.dumps(stats).decode()

    def discard(self) -> None:
        """Discard the file; the store's writer drops it when its ``with`` block ends with an error."""
        self.sink.__exit__(RuntimeError, RuntimeError("write aborted"), None)
