"""``Table``: what every format offers once it is opened, without Spark.

A format is one folder that subclasses :class:`Table` and one row in :mod:`trilake.api`; everything here is columnar and
lazy, so that a table of a million files costs a listing and not a million objects.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.arguments import checked_methods
from trilake.display import text_of
from trilake.errors import InvalidArgumentError, SchemaMismatchError, TableNotFoundError, masked
from trilake.extras import load
from trilake.relations.parquet import parquet_relation

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars

    from trilake.comparison.result import TableDiff
    from trilake.relations.dataset import TableDataset
    from trilake.report_page import Report

#: A predicate over the table's columns: Spark SQL text, or a pyarrow expression.
FilterLike: TypeAlias = str | pc.Expression


#: The room that makes reports of tables.  It is right of this one, which knows it by name alone.
_REPORTING = "trilake.reporting"
#: Files that a notebook shows of an explanation.
_SHOWN = 20


def table_gone(uri: str) -> TableNotFoundError:
    """The error for a table that was there when a query that writes into it began.

    >>> table_gone("/lake/t").code
    'TABLE_NOT_FOUND'
    """
    return TableNotFoundError(
        "the table was dropped, or got another name, while rows were on their way into it: they are not written",
        help="write to the name that the table has now; a stream into one that was made anew has all rows with a new"
        " checkpoint",
        file=uri,
    )


def as_version(version: object) -> int | None:
    """A version that a caller passed, as a number; ``None`` for the newest.

    Raises ``InvalidArgumentError`` for what is no whole number: a text, a fraction, a truth value.

    >>> as_version(3), as_version(None)
    (3, None)
    """
    if version is None:
        return None
    if isinstance(version, int | np.integer) and not isinstance(version, bool | np.bool_):
        return int(version)
    raise InvalidArgumentError(
        f"version={version!r:.80} is no version of a table",
        help="pass a whole number; a time goes into timestamp",
    )


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

    def _paths(self, needed: bool) -> list[str]:
        mask = self.files["kept"] if needed else pc.invert(self.files["kept"])
        paths: list[str] = self.files.filter(mask)["path"].to_pylist()
        return paths

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{'keep' if r['kept'] else 'skip'}</td><td>{text_of(r['path'])}</td>"
            f"<td>{text_of(r['reason'])}</td></tr>"
            for r in self.files.slice(0, _SHOWN).to_pylist()
        )
        more = self.files.num_rows - _SHOWN
        rows += f"<tr><td></td><td>and {more:,} more</td><td></td></tr>" if more > 0 else ""
        total, needed = self.files.num_rows, pc.sum(self.files["kept"]).as_py() or 0
        notes = "".join(f"<p>{text_of(n)}</p>" for n in self.notes)
        return (
            f"<div><b>filter</b> <code>{text_of(self.filter or 'none')}</code> &middot; {needed:,} of {total:,} files"
            f"<table><thead><tr><th></th><th>file</th><th>reason</th></tr></thead><tbody>{rows}</tbody></table>{notes}</div>"
        )

    def __str__(self) -> str:
        total = self.files.num_rows
        needed = pc.sum(self.files["kept"]).as_py() or 0
        lines = [f"filter: {self.filter or 'none'}", f"files:  {needed} of {total} kept, {total - needed} skipped"]
        reasons = self.files.group_by(["kept", "reason"]).aggregate([("path", "count"), ("path", "min")])
        for row in reasons.sort_by([("kept", "descending"), ("path_count", "descending")]).to_pylist():
            mark = "keep" if row["kept"] else "skip"
            lines.append(f"  {mark} {row['path_count']:>6} x {row['reason']}  e.g. {row['path_min']}")
        return "\n".join([*lines, *(f"note:   {n}" for n in self.notes)])


@checked_methods
class Table(ABC):
    """An open table at one version.  Instances do not change: open the location again to see newer versions.

    >>> import pyarrow as pa, trilake
    >>> _ = trilake.write(pa.table({"id": [1, 2, 3], "s": ["a", "b", "c"]}), "memory://doc-table", mode="overwrite")
    >>> table = trilake.open("memory://doc-table")
    >>> table.version, table.count(), table.count("s > 'a'"), table.files().num_rows
    (0, 3, 2, 1)
    >>> table.to_arrow(["s"], "id >= 2").to_pydict()
    {'s': ['b', 'c']}
    >>> sum(batch.num_rows for batch in table.to_batches(filter="id < 3"))
    2
    """

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

    @property
    def properties(self) -> Mapping[str, str]:
        """Table properties by name; empty for formats and tables without."""
        return {}

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

    def limit(self, rows: int, columns: Sequence[str] | None = None, filter: FilterLike | None = None) -> pa.Table:
        """At most so many rows, which ones is not defined; no more files are read than that takes.

        Raises ``InvalidArgumentError`` for a negative number.
        """
        if type(rows) is not int or rows < 0:
            raise InvalidArgumentError(f"{rows!r} is no number of rows", help="pass a whole number from 0 on")
        schema = self.schema if columns is None else self.projected_schema(columns)
        taken: list[pa.RecordBatch] = []
        left = min(rows, 2**62)
        if left:
            for batch in self.to_batches(columns, filter):
                taken.append(batch.slice(0, left))
                left -= taken[-1].num_rows
                if not left:
                    break
        return pa.Table.from_batches(taken, schema=schema)

    def head(self, rows: int = 5, columns: Sequence[str] | None = None) -> pa.Table:
        """A few rows to look at."""
        return self.limit(rows, columns)

    def to_pyarrow_dataset(self) -> TableDataset:
        """The rows as a ``pyarrow.dataset.Dataset``: an engine that scans it reads the columns and files it needs."""
        from trilake.relations.dataset import TableDataset  # loads pyarrow.dataset, which loads pandas

        return TableDataset(self)

    def plain_files(self) -> list[str] | None:
        """The paths of local Parquet files whose rows, all of them and as they are, are the table's.

        ``None`` where there are none: the rows are then those of :meth:`to_batches` alone.
        """
        return None

    def to_pandas(
        self, columns: Sequence[str] | None = None, filter: FilterLike | None = None, **how: Any
    ) -> pandas.DataFrame:
        """The rows as a pandas frame.

        Parameters are those of :meth:`to_arrow`; ``how`` those of ``pyarrow.Table.to_pandas``, such as
        ``types_mapper``.  Raises ``MissingDependencyError`` where pandas is not installed, ``SchemaMismatchError`` for
        a column that pandas cannot hold.
        """
        load("pandas", "frames of pandas")
        rows = self.to_arrow(columns, filter)
        frame: pandas.DataFrame = _frame("pandas", rows, lambda some: some.to_pandas(**how))
        return frame

    def to_polars(self, columns: Sequence[str] | None = None, filter: FilterLike | None = None) -> polars.DataFrame:
        """The rows as a polars frame.

        Parameters are those of :meth:`to_arrow`.  ``polars.scan_pyarrow_dataset(table.to_pyarrow_dataset())`` is the
        lazy way.  Raises ``MissingDependencyError`` where polars is not installed, ``SchemaMismatchError`` for a column
        that polars cannot hold.
        """
        from_arrow = load("polars", "frames of polars").from_arrow
        frame: polars.DataFrame = _frame("polars", self.to_arrow(columns, filter), from_arrow)
        return frame

    def to_duckdb(
        self, connection: duckdb.DuckDBPyConnection | None = None, filter: FilterLike | None = None
    ) -> duckdb.DuckDBPyRelation:
        """The rows as a duckdb relation, which reads the columns and files that its query needs.

        Parameters
        ----------
        connection: where the relation is to live; duckdb's default connection otherwise.
        filter: leave out rows.
        """
        import duckdb  # late: opening a table loads no engine

        from trilake.relations.dataset import TableDataset
        from trilake.relations.duckdb_rows import WatchedRows, duckdb_rows

        db = duckdb.default_connection() if connection is None else connection
        if filter is not None:
            return db.from_arrow(duckdb_rows(self.to_arrow(None, filter)))
        with suppress(duckdb.Error):  # a connection that may open no files, or a file about which the scan says more
            query = parquet_relation(db, self.plain_files() or (), self.schema)
            if query is not None:
                return db.sql(query)
        return db.from_arrow(TableDataset(WatchedRows(self, [])))

    def diff(
        self,
        other: Table,
        *,
        key: str | Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        filter: FilterLike | None = None,
        rows: bool = True,
        limit: int = 20,
    ) -> TableDiff:
        """What differs between this table and ``other``, which is taken to be the newer one.

        Rows are compared by what they hold, with bounded memory, whatever the two formats are.

        Parameters
        ----------
        other: any open table: another version of this one, or another table.
        key: columns that no two rows of a side have in common: with it, a row whose other columns differ is *changed*.
        columns: what is compared of the rows; by default, all columns that both tables have.
        filter: compare only the rows for which it is true.
        rows: whether rows are compared; schema, properties and files always are.
        limit: how many rows of each kind are shown.

        Raises ``InvalidArgumentError`` for columns that not both tables have, and for a key that is none.

        >>> import pyarrow as pa, trilake
        >>> _ = trilake.write(pa.table({"id": [1, 2], "n": [1, 2]}), "memory://doc-diff", mode="overwrite")
        >>> old = trilake.open("memory://doc-diff")
        >>> _ = old.update({"n": "n + 1"}, "id = 2")
        >>> difference = old.diff(trilake.open("memory://doc-diff"), key="id")
        >>> difference.rows.changed, difference.rows.same
        (1, 1)
        """
        from trilake.comparison.compare import compare

        return compare(self, other, key=key, columns=columns, filter=filter, rows=rows, limit=limit)

    def report(self, path: str | PathLike[str] | None = None, *, verify: bool | None = None) -> Report:
        """A report of this version on one page of HTML: what the table is, how it does and what to do about it.

        Parameters
        ----------
        path: a local file that gets the page.
        verify: whether the metadata are verified; by default where the table has at most 20,000 files.

        Nothing is changed and no job is run.  Raises as :func:`trilake.report`.
        """
        report: Report = import_module(_REPORTING).report_of(self, path, verify=verify)
        return report

    def __repr__(self) -> str:
        at = "" if self.version is None else f" version {self.version}"
        columns = ", ".join(f"{f.name}: {f.type}" for f in self.schema)
        return f"<{self.format.title()} table {self.uri}{at}; {columns}>"

    def _repr_html_(self) -> str:
        at = "" if self.version is None else f" &middot; version {self.version}"
        rows = "".join(f"<tr><td>{text_of(f.name)}</td><td>{text_of(f.type)}</td></tr>" for f in self.schema)
        return (
            f"<div><b>{self.format.title()} table</b> <code>{text_of(masked(self.uri))}</code>{at}"
            f"<table><thead><tr><th>column</th><th>type</th></tr></thead><tbody>{rows}</tbody></table></div>"
        )

    def projected_schema(self, columns: Sequence[str]) -> pa.Schema:
        """The schema of ``columns``; names are resolved without regard to case and keep the table's spelling."""
        by_name = {f.name.lower(): f for f in self.schema}
        unknown = [c for c in columns if c.lower() not in by_name]
        if unknown:
            raise InvalidArgumentError(
                f"the table has no column {', '.join(map(repr, unknown))}",
                help=f"it has {', '.join(self.schema.names)}",
                file=self.uri,
                condition="UNRESOLVED_COLUMN.WITH_SUGGESTION",
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


def _frame(library: str, rows: pa.Table, make: Callable[[pa.Table], Any]) -> Any:
    """What ``make`` makes of rows; ``SchemaMismatchError`` names the column that the library cannot hold."""
    problem = _problem(make, rows)
    if not isinstance(problem, BaseException):
        return problem
    for name in rows.column_names:
        if isinstance(cause := _problem(make, rows.select([name])), BaseException):
            raise SchemaMismatchError(
                f"{library} cannot hold column {name!r} of type {rows.schema.field(name).type}: {cause}",
                help="leave it out with columns=, or read it with to_arrow",
                column=name,
            ) from cause
    raise problem


def _problem(make: Callable[[pa.Table], Any], rows: pa.Table) -> Any:
    """What is made of the rows, or the error where values or types are to blame."""
    try:
        return make(rows)
    except (MemoryError, TypeError):
        raise
    except Exception as e:  # noqa: BLE001 - each library has errors of its own
        return e
    except BaseException as e:
        if type(e).__name__ != "PanicException":  # of polars, for types of Arrow that it does not know
            raise
        return e
