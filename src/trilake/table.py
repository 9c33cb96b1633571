"""``Table``: what every format offers once it is opened, without Spark.

A format is one folder that subclasses :class:`Table` and one row in :mod:`trilake.api`; everything here is columnar and
lazy, so that a table of a million files costs a listing and not a million objects.
"""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

#: A predicate over the table's columns: Spark SQL text, or a pyarrow expression.
FilterLike: TypeAlias = str | pc.Expression


@dataclass(frozen=True)
class Explanation:
    """Which files a filter keeps and which it skips, and why: the result of :meth:`Table.explain`.

    ``files`` has one row a file: ``path`` (string), ``kept`` (bool) and ``reason`` (string).  ``notes`` says how the
    table would be read.
    """

    filter: str | None
    files: pa.Table
    notes: tuple[str, ...] = ()

    @property
    def kept(self) -> list[str]:
        """Paths of the files that must be read."""
        return self._paths(True)

    @property
    def skipped(self) -> list[str]:
        """Paths of the files that cannot hold a matching row."""
        return self._paths(False)

    def _paths(self, kept: bool) -> list[str]:
        mask = self.files["kept"] if kept else pc.invert(self.files["kept"])
        paths: list[str] = self.files.filter(mask)["path"].to_pylist()
        return paths

    def __str__(self) -> str:
        total = self.files.num_rows
        kept = pc.sum(self.files["kept"]).as_py() or 0
        lines = [f"filter: {self.filter or 'none'}", f"files:  {kept} of {total} kept, {total - kept} skipped"]
        reasons = self.files.group_by(["kept", "reason"]).aggregate([("path", "count"), ("path", "min")])
        for row in reasons.sort_by([("kept", "descending"), ("path_count", "descending")]).to_pylist():
            mark = "keep" if row["kept"] else "skip"
            lines.append(f"  {mark} {row['path_count']:>6} x {row['reason']}  e.g. {row['path_min']}")
        return "\n".join([*lines, *(f"note:   {n}" for n in self.notes)])


class Table(ABC):
    """An open table at one version.  Instances do not change: open the location again to see newer versions."""

    #: Name of the format: ``"delta"``, ``"lance"`` or ``"trevni"``.
    format: str
    #: Root of the table as a URI.
    uri: str

    @property
    @abstractmethod
    def version(self) -> int | None:
        """The version this object shows; ``None`` for formats without versions."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The schema of the rows, as :meth:`to_arrow` returns them."""

    @abstractmethod
    def files(self, filter: FilterLike | None = None) -> pa.Table:
        """One row a data file: ``path`` (decoded), ``partition_values``, ``size`` in bytes, ``num_records``, ``stats``
        (JSON text) and ``deletion_vector``.  With a filter, only files that can hold a matching row."""

    @abstractmethod
    def to_batches(
        self,
        columns: Sequence[str] | None = None,
        filter: FilterLike | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows as a stream of batches, read in parallel with bounded memory; the order of rows is not defined."""

    def to_arrow(self, columns: Sequence[str] | None = None, filter: FilterLike | None = None) -> pa.Table:
        """The rows as one Arrow table, projected to ``columns`` and restricted to those for which ``filter`` is
        true."""
        schema = self.schema if columns is None else self.projected_schema(columns)
        return pa.Table.from_batches(self.to_batches(columns, filter), schema=schema)

    def to_reader(self, columns: Sequence[str] | None = None, filter: FilterLike | None = None) -> pa.RecordBatchReader:
        """The rows as an Arrow reader, which duckdb, polars and pandas take as it is."""
        schema = self.schema if columns is None else self.projected_schema(columns)
        return pa.RecordBatchReader.from_batches(schema, self.to_batches(columns, filter))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        at = "" if self.version is None else f" version {self.version}"
        columns = ", ".join(f"{f.name}: {f.type}" for f in self.schema)
        return f"<{self.format.title()} table {self.uri}{at}; {columns}>"

    def _repr_html_(self) -> str:
        at = "" if self.version is None else f" &middot; version {self.version}"
        rows = "".join(
            f"<tr><td>{html.escape(f.name)}</td><td>{html.escape(str(f.type))}</td></tr>" for f in self.schema
        )
        return (
            f"<div><b>{self.format.title()} table</b> <code>{html.escape(self.uri)}</code>{at}"
            f"<table><thead><tr><th>column</th><th>type</th></tr></thead><tbody>{rows}</tbody></table></div>"
        )

    def projected_schema(self, columns: Sequence[str]) -> pa.Schema:
        """The schema of ``columns``; names are resolved without regard to case and keep the table's spelling."""
        from trilake.errors import InvalidArgumentError

        by_name = {f.name.lower(): f for f in self.schema}
        unknown = [c for c in columns if c.lower() not in by_name]
        if unknown:
            raise InvalidArgumentError(
                f"the table has no column {', '.join(map(repr, unknown))}",
                help=f"it has {', '.join(self.schema.names)}",
                file=self.uri,
            )
        return pa.schema([by_name[c.lower()] for c in columns], metadata=self.schema.metadata)

    @abstractmethod
    def count(self, filter: FilterLike | None = None) -> int:
        """Number of rows for which ``filter`` is true; from the metadata alone where that is exact."""

    @abstractmethod
    def history(self, limit: int | None = None) -> pa.Table:
        """One row a version, newest first; empty for formats without versions."""

    @abstractmethod
    def explain(self, filter: FilterLike | None = None) -> Explanation:
        """Which files a filter keeps and which it skips, and why."""
