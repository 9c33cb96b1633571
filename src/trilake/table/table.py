"""``Table``: an open table of any format, without Spark.

Each format has a subclass of :class:`Table` and an entry in :mod:`trilake.table.registry`; everything is columnar and
lazy, so that a table of a million files costs a listing and not a million objects.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from trilake.common.arguments import checked_methods, count, resolve_columns
from trilake.common.compute import pc
from trilake.common.display import PublicNames, table_of, text_of
from trilake.common.extras import load
from trilake.errors import SchemaMismatchError, TableNotFoundError, masked
from trilake.table.explanation import Explanation
from trilake.table.relations.parquet import parquet_relation

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars

    from trilake.table.comparison.result import TableDiff
    from trilake.table.relations.dataset import TableDataset
    from trilake.table.report_page import Report

#: A condition on the table's columns: Spark SQL, or a pyarrow expression.
FilterLike: TypeAlias = "str | pc.Expression"


#: Columns of :meth:`Table.files`, whose deletion vectors are strings that identify them.
FILES = pa.schema(
    [
        ("path", pa.string()),
        ("partition_values", pa.map_(pa.string(), pa.string())),
        ("size", pa.int64()),
        ("num_records", pa.int64()),
        ("stats", pa.string()),
        ("deletion_vector", pa.string()),
    ]
)

#: Imported by name, because it depends on this module.
_REPORTING = "trilake.tools.report"


def table_gone(uri: str) -> TableNotFoundError:
    """The error for a table that disappeared during a write.

    >>> table_gone("/lake/t").code
    'TABLE_NOT_FOUND'
    """
    return TableNotFoundError(
        "the table was dropped or renamed during the write; no rows were written",
        help="write to the table's new name; a stream into a recreated table needs a new checkpoint to write all rows",
        file=uri,
    )


def projected(schema: pa.Schema, columns: Sequence[str] | None, uri: str) -> pa.Schema:
    """Return :meth:`Table.projected_schema` for a table of a schema at ``uri``."""
    names = resolve_columns(schema.names, columns, uri)
    return schema if columns is None else pa.schema([schema.field(n) for n in names], metadata=schema.metadata)


@checked_methods
class Table(PublicNames, ABC):
    """An open table at one version.  Instances are immutable: open the location again to see newer versions.

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
        """The version of this object; ``None`` for formats without versions."""

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
        """One row per data file: ``path`` (decoded), ``partition_values``, ``size`` in bytes, ``num_records``,
        ``stats`` (JSON) and ``deletion_vector``.

        Parameters
        ----------
        filter: Spark SQL or a pyarrow expression: only files that can hold a matching row.

        Raises ``FilterError`` for a filter that does not fit the table.

        >>> import trilake
        >>> _ = trilake.write({"n": [1, 2]}, "memory://doc-table-files", mode="append")
        >>> _ = trilake.write({"n": [3]}, "memory://doc-table-files", mode="append")
        >>> sorted(trilake.open("memory://doc-table-files").files()["num_records"].to_pylist())
        [1, 2]
        >>> trilake.open("memory://doc-table-files").files("n > 2").num_rows
        1
        """

    @abstractmethod
    def to_batches(
        self, columns: Sequence[str] | None = None, filter: FilterLike | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read the rows as a stream of batches, in parallel with bounded memory; the order of rows is undefined.

        Parameters
        ----------
        columns: the columns to read, ignoring case; all by default.
        filter: Spark SQL or a pyarrow expression: only rows for which it is true.

        Raises ``InvalidArgumentError`` for an unknown column, ``FilterError`` for a filter that does not fit the table
        or fails on a row; during iteration, ``MissingFileError`` and ``CorruptFileError``.

        >>> import trilake
        >>> _ = trilake.write({"n": [1, 2, 3]}, "memory://doc-to-batches")
        >>> for batch in trilake.open("memory://doc-to-batches").to_batches(filter="n > 1"):
        ...     print(batch.num_rows)
        2
        """

    def to_arrow(self, columns: Sequence[str] | None = None, filter: FilterLike | None = None) -> pa.Table:
        """Read the rows as one Arrow table.  Parameters and errors are those of :meth:`to_batches`.

        >>> import trilake
        >>> _ = trilake.write({"id": [1, 2, 3], "s": ["a", "b", "c"]}, "memory://doc-to-arrow")
        >>> trilake.open("memory://doc-to-arrow").to_arrow(["s"], "id >= 2").to_pydict()
        {'s': ['b', 'c']}
        """
        schema = self.projected_schema(columns)
        return pa.Table.from_batches(self.to_batches(columns, filter), schema=schema)

    def to_reader(self, columns: Sequence[str] | None = None, filter: FilterLike | None = None) -> pa.RecordBatchReader:
        """The rows as an Arrow reader, which duckdb, polars and pandas accept.

        Parameters and errors are those of :meth:`to_batches`.

        >>> import trilake
        >>> _ = trilake.write({"n": [1, 2, 3]}, "memory://doc-to-reader")
        >>> reader = trilake.open("memory://doc-to-reader").to_reader(["n"])
        >>> reader.schema.names, reader.read_all().num_rows
        (['n'], 3)
        """
        schema = self.projected_schema(columns)
        return pa.RecordBatchReader.from_batches(schema, self.to_batches(columns, filter))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def limit(self, rows: int, columns: Sequence[str] | None = None, filter: FilterLike | None = None) -> pa.Table:
        """Read at most ``rows`` rows, in undefined order, and no more files than needed.

        Parameters
        ----------
        rows: the maximum number of rows.
        columns, filter: those of :meth:`to_batches`.

        Raises ``InvalidArgumentError`` for a negative number, and the errors of :meth:`to_batches`.

        >>> import trilake
        >>> _ = trilake.write({"n": [1, 2, 3]}, "memory://doc-limit")
        >>> trilake.open("memory://doc-limit").limit(2, filter="n < 3").num_rows
        2
        """
        remaining = min(count("rows", rows), 2**62)
        schema = self.projected_schema(columns)
        head_batches: list[pa.RecordBatch] = []
        if remaining:
            for batch in self.to_batches(columns, filter):
                head_batches.append(batch.slice(0, remaining))
                remaining -= head_batches[-1].num_rows
                if not remaining:
                    break
        return pa.Table.from_batches(head_batches, schema=schema)

    def head(self, rows: int = 5, columns: Sequence[str] | None = None) -> pa.Table:
        """Read ``rows`` rows of ``columns`` (all by default), in undefined order.  Raises the errors of :meth:`limit`.

        >>> import trilake
        >>> _ = trilake.write({"n": [1, 2, 3]}, "memory://doc-head")
        >>> trilake.open("memory://doc-head").head(1).to_pylist()
        [{'n': 1}]
        """
        return self.limit(rows, columns)

    def to_pyarrow_dataset(self) -> TableDataset:
        """The rows as a ``pyarrow.dataset.Dataset``, which reads only the columns and files that a query needs.

        >>> import pyarrow.compute as pc, trilake
        >>> _ = trilake.write({"n": [1, 2, 3]}, "memory://doc-dataset")
        >>> trilake.open("memory://doc-dataset").to_pyarrow_dataset().to_table(filter=pc.field("n") > 1).num_rows
        2
        """
        from trilake.table.relations.dataset import TableDataset  # loads pyarrow.dataset, which loads pandas

        return TableDataset(self)

    def plain_files(self) -> list[str] | None:
        """The paths of local Parquet files with exactly the table's rows.

        ``None`` if there are none: then use :meth:`to_batches`.

        >>> import tempfile, trilake
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = trilake.write({"n": [1, 2]}, folder)
        ...     table = trilake.open(folder)
        ...     _ = table.count(), print(len(table.plain_files()))
        1
        """
        return None

    def to_pandas(
        self, columns: Sequence[str] | None = None, filter: FilterLike | None = None, **how: Any
    ) -> pandas.DataFrame:
        """The rows as a pandas frame.

        Parameters are those of :meth:`to_arrow`; ``how`` those of ``pyarrow.Table.to_pandas``, such as
        ``types_mapper``.  Raises ``MissingDependencyError`` if pandas is not installed, ``SchemaMismatchError`` for
        a column that pandas cannot hold, and the errors of :meth:`to_batches`.

        >>> import trilake
        >>> _ = trilake.write({"n": [1, 2, 3]}, "memory://doc-to-pandas")
        >>> int(trilake.open("memory://doc-to-pandas").to_pandas()["n"].sum())
        6
        """
        load("pandas", "pandas frames")
        rows = self.to_arrow(columns, filter)
        frame: pandas.DataFrame = _frame("pandas", rows, lambda some: some.to_pandas(**how))
        return frame

    def to_polars(self, columns: Sequence[str] | None = None, filter: FilterLike | None = None) -> polars.DataFrame:
        """The rows as a polars frame.

        Parameters are those of :meth:`to_arrow`.  For a lazy frame, use
        ``polars.scan_pyarrow_dataset(table.to_pyarrow_dataset())``.  Raises ``MissingDependencyError`` if polars is
        not installed, ``SchemaMismatchError`` for a column that polars cannot hold, and the errors of
        :meth:`to_batches`.

        >>> import trilake
        >>> _ = trilake.write({"n": [1, 2, 3]}, "memory://doc-to-polars")
        >>> trilake.open("memory://doc-to-polars").to_polars()["n"].sum()
        6
        """
        from_arrow = load("polars", "polars frames").from_arrow
        frame: polars.DataFrame = _frame("polars", self.to_arrow(columns, filter), from_arrow)
        return frame

    def to_duckdb(
        self, connection: duckdb.DuckDBPyConnection | None = None, filter: FilterLike | None = None
    ) -> duckdb.DuckDBPyRelation:
        """The rows as a duckdb relation, which reads the columns and files that its query needs.

        Parameters
        ----------
        connection: the relation's connection; by default duckdb's default connection.
        filter: the rows to keep: Spark SQL or a pyarrow expression.

        Raises ``FilterError`` for a filter that does not fit the table.

        >>> import trilake
        >>> _ = trilake.write({"n": [1, 2, 3]}, "memory://doc-to-duckdb")
        >>> trilake.open("memory://doc-to-duckdb").to_duckdb().sum("n").fetchall()
        [(6,)]
        """
        import duckdb  # late: opening a table loads no engine

        from trilake.table.relations.dataset import TableDataset, WatchedRows, duckdb_rows

        db = duckdb.default_connection() if connection is None else connection
        if filter is not None:
            return db.from_arrow(duckdb_rows(self.to_arrow(None, filter)))
        with suppress(duckdb.Error):  # the connection must not open files, or the scan below reports a damaged one
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
        """Compare this table with a newer one, ``other``.

        Rows are compared by value, with bounded memory, whatever the two formats are.

        Parameters
        ----------
        other: any open table: another version of this one, or another table.
        key: columns that identify a row on each side: with it, a row whose other columns differ is *changed*.
        columns: the columns to compare; by default, all that both tables have.
        filter: compare only the rows for which it is true.
        rows: whether rows are compared; schema, properties and files always are.
        limit: the maximum number of rows of each kind to return.

        Raises ``InvalidArgumentError`` for columns that one table lacks, and for a key that is not unique.

        >>> import pyarrow as pa, trilake
        >>> _ = trilake.write(pa.table({"id": [1, 2], "n": [1, 2]}), "memory://doc-diff", mode="overwrite")
        >>> old = trilake.open("memory://doc-diff")
        >>> _ = old.update({"n": "n + 1"}, "id = 2")
        >>> difference = old.diff(trilake.open("memory://doc-diff"), key="id")
        >>> difference.rows.changed, difference.rows.same
        (1, 1)
        """
        from trilake.table.comparison.compare import compare

        return compare(self, other, key=key, columns=columns, filter=filter, rows=rows, limit=limit)

    def report(self, path: str | PathLike[str] | None = None, *, verify: bool | None = None) -> Report:
        """Create a report of this version on one HTML page: description, health and advice.

        Parameters
        ----------
        path: a local file to write the page to.
        verify: whether to verify the metadata; by default for tables of at most 20,000 files.

        Changes nothing and runs no job.  Raises the errors of :func:`trilake.report`.

        >>> import trilake
        >>> _ = trilake.write({"n": [1, 2, 3]}, "memory://doc-table-report")
        >>> trilake.open("memory://doc-table-report").report().advice
        ()
        """
        report: Report = import_module(_REPORTING).report_of(self, path, verify=verify)
        return report

    def __dir__(self) -> list[str]:
        return sorted([*super().__dir__(), "uri"])

    def __repr__(self) -> str:
        at = "" if self.version is None else f" version {self.version}"
        columns = ", ".join(f"{f.name}: {f.type}" for f in self.schema)
        return f"<{self.format.title()} table {self.uri}{at}; {columns}>"

    def _repr_html_(self) -> str:
        at = "" if self.version is None else f" &middot; version {self.version}"
        columns = table_of(("column", "type"), ((f.name, f.type) for f in self.schema))
        return f"<div><b>{self.format.title()} table</b> <code>{text_of(masked(self.uri))}</code>{at}{columns}</div>"

    def projected_schema(self, columns: Sequence[str] | None) -> pa.Schema:
        """The schema of ``columns``, of all columns for ``None``; names are resolved ignoring case and keep the table's
        spelling.

        Raises ``InvalidArgumentError`` for an unknown column.

        >>> import trilake
        >>> _ = trilake.write({"Id": [1], "s": ["a"]}, "memory://doc-projected")
        >>> trilake.open("memory://doc-projected").projected_schema(["id"]).names
        ['Id']
        """
        return projected(self.schema, columns, self.uri)

    @abstractmethod
    def count(self, filter: FilterLike | None = None) -> int:
        """The number of rows for which ``filter`` is true; from the metadata alone where that is exact.

        Raises ``FilterError`` for a filter that does not fit the table.

        >>> import trilake
        >>> _ = trilake.write({"n": [1, 2, 3]}, "memory://doc-count")
        >>> trilake.open("memory://doc-count").count(), trilake.open("memory://doc-count").count("n > 1")
        (3, 2)
        """

    @abstractmethod
    def history(self, limit: int | None = None) -> pa.Table:
        """One row per version, newest first, at most ``limit``; empty for formats without versions.

        >>> import trilake
        >>> for n in range(2):
        ...     _ = trilake.write({"n": [n]}, "memory://doc-history", mode="append")
        >>> trilake.open("memory://doc-history").history()["version"].to_pylist()
        [1, 0]
        """

    @abstractmethod
    def explain(self, filter: FilterLike | None = None) -> Explanation:
        """Which files ``filter`` keeps and which it skips, and why.

        Raises ``FilterError`` for a filter that does not fit the table.

        >>> import trilake
        >>> _ = trilake.write({"n": [1, 2]}, "memory://doc-explain", mode="append")
        >>> _ = trilake.write({"n": [3, 4]}, "memory://doc-explain", mode="append")
        >>> plan = trilake.open("memory://doc-explain").explain("n > 2")
        >>> len(plan.kept), len(plan.skipped)
        (1, 1)
        """


def _frame(library: str, rows: pa.Table, make: Callable[[pa.Table], Any]) -> Any:
    """Call ``make`` on rows; ``SchemaMismatchError`` names the column that the library cannot hold."""
    made = _made_or_error(make, rows)
    if not isinstance(made, BaseException):
        return made
    for name in rows.column_names:
        if isinstance(cause := _made_or_error(make, rows.select([name])), BaseException):
            raise SchemaMismatchError(
                f"{library} does not support column {name!r} of type {rows.schema.field(name).type}: {cause}",
                help="leave it out with columns=, or read it with to_arrow",
                column=name,
            ) from cause
    raise made


def _made_or_error(make: Callable[[pa.Table], Any], rows: pa.Table) -> Any:
    """What ``make`` returns, or its error if values or types cause it."""
    try:
        return make(rows)
    except (MemoryError, TypeError):
        raise
    except Exception as e:  # noqa: BLE001 - each library has its errors
        return e
    except BaseException as e:
        if type(e).__name__ != "PanicException":  # polars, for unsupported Arrow types
            raise
        return e
