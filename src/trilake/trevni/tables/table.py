"""``TrevniTable``: a file, folder, glob or partition folders of Trevni files as one table."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.arguments import checked_methods
from trilake.common.parallel import map_ahead
from trilake.errors import SchemaMismatchError
from trilake.expr import Filter, parse_filter
from trilake.storage import Store
from trilake.table.explanation import Explanation
from trilake.table.folders import DataFile, partition_fields
from trilake.table.table import FILES, FilterLike, Table
from trilake.trevni.file.file import TrevniFile
from trilake.trevni.tables.dataset import Split, candidate_rows, find_files, read_split, skip_files, split_file

#: Number of splits to read in parallel, and stored bytes of each.
_THREADS = min(4, os.cpu_count() or 1)
_READ_SPLIT = 1 << 24


@checked_methods
class TrevniTable(Table):
    """A table of Trevni files.

    Parameters
    ----------
    location: a file, a folder (with or without ``key=value`` folders) or a glob.
    schema: schema of reads, by default that of the first file and the partition folders.
    options: options of the store.
    trusted: see :class:`trilake.trevni.TrevniFile`.

    Missing columns of a file are null.  Raises ``TableNotFoundError`` if there are no files; the property ``schema``
    raises ``SchemaMismatchError`` for duplicate names in the first file.

    >>> import pyarrow as pa
    >>> import trilake
    >>> rows = pa.table({"day": ["mon", "mon", "tue"], "n": [1, 2, 3]})
    >>> _ = trilake.write(rows, "memory://doc-trevni", format="trevni", partition_by="day")
    >>> table = TrevniTable("memory://doc-trevni")
    >>> table.count("day = 'mon'"), len(table.splits("day = 'tue'"))
    (2, 1)
    >>> table.file(table.files("day = 'tue'")["path"][0].as_py()).read().to_pydict()
    {'n': [3]}
    >>> table.under(pa.schema([("n", pa.float64())])).to_arrow().sort_by("n").to_pydict()
    {'n': [1.0, 2.0, 3.0]}
    """

    format = "trevni"

    def __init__(
        self,
        location: str | os.PathLike[str],
        *,
        schema: pa.Schema | None = None,
        options: Mapping[str, str] | None = None,
        trusted: bool = False,
    ) -> None:
        self._trusted = trusted
        self._store: Store
        self._store, self._files = find_files(location, options)
        self.uri = os.fspath(location)
        self._partitions = partition_fields(self._files)
        self._requested_schema: pa.Schema | None = None
        if schema is not None:
            self._use(schema)

    def _use(self, schema: pa.Schema) -> None:
        types = {f.name: f for f in schema}
        self._partitions = [types.get(f.name, f) for f in self._partitions]
        self._requested_schema = schema

    @property
    def storage_options(self) -> Mapping[str, str]:
        """The options of the store."""
        return self._store.options

    def under(self, schema: pa.Schema) -> TrevniTable:
        """Return a table of the same files with another ``schema``, without listing them again."""
        other = copy.copy(self)
        other.__dict__.pop("_schema", None)
        other._use(schema)
        return other

    @property
    def version(self) -> int | None:
        """``None``: Trevni files have no versions."""
        return None

    @property
    def partition_names(self) -> list[str]:
        """Names of the partition columns."""
        return [f.name for f in self._partitions]

    @cached_property
    def _first(self) -> pa.Schema:
        return self.file(self._files[0].key).schema

    @cached_property
    def _schema(self) -> pa.Schema:
        if self._requested_schema is not None:
            return self._requested_schema
        names = self._first.names
        twice = sorted(name for name in set(names) - set(self.partition_names) if names.count(name) > 1)
        if twice:
            raise SchemaMismatchError(
                f"the file has duplicate column names {', '.join(map(repr, twice))}",
                help="read the file by column number with TrevniFile, or pass a schema to read the last "
                "column of each name",
                file=f"{self._store.uri}/{self._files[0].key}",
            )
        return self.found_schema

    @property
    def found_schema(self) -> pa.Schema:
        """Columns of the first file (of duplicate names the last one), and partition columns."""
        partitions = set(self.partition_names)
        columns = {f.name: f for f in self._first if f.name not in partitions}
        return pa.schema([*columns.values(), *self._partitions], metadata=self._first.metadata)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the files, then partition columns."""
        return self._schema

    def _bound(self, filter: FilterLike | None) -> Filter | None:
        return parse_filter(filter, self.schema)

    def _needed_files(self, filter: Filter | None) -> list[DataFile]:
        keep = skip_files(filter, self._files, self._partitions).keep
        return [file for file, needed in zip(self._files, keep.tolist(), strict=True) if needed]

    def splits(self, filter: FilterLike | None = None, *, size: int | None = None) -> list[Split]:
        """Return the files that may have rows matching ``filter``, in parts of ``size`` stored bytes.  Raises
        ``FilterError``.
        """
        options = {} if size is None else {"size": size}
        return [
            split
            for file in self._needed_files(self._bound(filter))
            for split in split_file(self._store, file, trusted=self._trusted, **options)
        ]

    def files(self, filter: FilterLike | None = None) -> pa.Table:
        """Return one row per file; ``stats`` has the number of records."""
        files = self._needed_files(self._bound(filter))
        counts = [self.file(file.key).row_count for file in files]
        return pa.table(
            [
                [file.key for file in files],
                [list(file.partition) for file in files],
                [file.size for file in files],
                counts,
                [json.dumps({"numRecords": count}) for count in counts],
                [None] * len(files),
            ],
            schema=FILES,
        )

    def file(self, key: str) -> TrevniFile:
        """Open a file of the table by ``key``, its ``path`` in :meth:`files`."""
        return TrevniFile((self._store, key), trusted=self._trusted)

    def to_batches(
        self, columns: Sequence[str] | None = None, filter: FilterLike | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows as batches; a few splits are read in parallel, and only these are in memory."""
        schema = self.schema
        bound = self._bound(filter)
        names = self.projected_schema(columns).names
        splits = self.splits(filter, size=_READ_SPLIT)

        def read(split: Split) -> list[pa.RecordBatch]:
            return list(read_split(split, schema, names, bound))

        with ThreadPoolExecutor(_THREADS, thread_name_prefix="trevni") as pool:
            yield from chain.from_iterable(map_ahead(pool, read, splits, _THREADS))

    def count(self, filter: FilterLike | None = None) -> int:
        """Return the number of matching rows; without a filter, from the file headers."""
        if filter is None or self._bound(filter) is None:
            return sum(self.file(file.key).row_count for file in self._files)
        return sum(batch.num_rows for batch in self.to_batches([], filter))

    def history(self, limit: int | None = None) -> pa.Table:
        """Return an empty table, as there are no versions; ``limit`` has no effect."""
        return pa.table({"version": pa.array([], pa.int64()), "timestamp": pa.array([], pa.timestamp("ms", "UTC"))})

    def explain(self, filter: FilterLike | None = None) -> Explanation:
        """Explain which files and blocks may match a filter."""
        bound = self._bound(filter)
        skipping = skip_files(bound, self._files, self._partitions)
        reasons = pc.fill_null(skipping.reason_strings(), "it may contain matching rows")
        keys = [file.key for file in self._files]
        table = pa.table({"path": keys, "kept": pa.array(skipping.keep), "reason": reasons})
        notes = [f"{len(self.splits(filter))} splits"]
        if bound is not None:
            total = candidates = 0
            for file in self._needed_files(bound):
                opened = self.file(file.key)
                total += opened.row_count
                candidates += sum(b - a for a, b in candidate_rows(opened, bound, 0, opened.row_count))
            notes.append(f"{candidates} of {total} rows of the kept files are in blocks that may match")
        return Explanation(None if bound is None else str(bound), table, tuple(notes))
