"""``LanceScanner`` and ``ScannerBuilder``: describe and run a scan."""

from __future__ import annotations

import os
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset

from trilake.common.arguments import count, flag
from trilake.errors import InvalidArgumentError
from trilake.expr import Expression
from trilake.lance.commands.open_dataset import OpenDataset
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.scan import scan, search
from trilake.lance.scan.blob_bytes import BlobFile
from trilake.lance.scan.fragment_reader import ROW_ADDRESS, ROW_ID, FragmentReader
from trilake.lance.scan.ordering import ColumnOrdering, Orderings, ordered, ordered_found, orderings_of
from trilake.lance.scan.parse_sql import PylanceSql
from trilake.lance.scan.projection import ColumnsLike, Part, Projection, Selection
from trilake.lance.scan.scan import ScanPlan, limit_bytes, regroup
from trilake.lance.scan.search import Nearest
from trilake.table.table import FilterLike

if TYPE_CHECKING:
    import pandas


#: Options of a scan, as in ``LanceDataset.scanner``.
SCAN_OPTIONS = (
    *("columns", "filter", "limit", "offset", "nearest", "batch_size", "batch_size_bytes", "batch_readahead"),
    *("fragment_readahead", "scan_in_order", "fragments", "prefilter", "with_row_id", "with_row_address", "use_stats"),
    *("use_scalar_index", "include_deleted_rows", "strict_batch_size", "order_by", "disable_scoring_autoprojection"),
    *("blob_handling", "fast_search"),
)
#: Hints of pylance without effect.
LANCE_HINTS = frozenset(("io_buffer_size", "late_materialization"))
HINTS = LANCE_HINTS | {"use_threads", "memory_pool", "fragment_scan_options", "cache_metadata"}
#: All accepted options of a scan.
OF_SCANS = HINTS.union(SCAN_OPTIONS)
#: Options of ``take``: hints of pyarrow scans, and ``sorted`` of old pylance releases, without effect.
OF_ROWS = HINTS | {
    *("with_row_id", "with_row_address", "sorted"),
    *("batch_size", "batch_readahead", "fragment_readahead", "scan_in_order"),
}
#: Unsupported options of newer pylance releases, each with an explanation.
_BEYOND = {
    "full_text_query": "full text search is not supported; filters such as contains(text, 'word') scan all rows",
    "index_segments": "a search uses all segments of an index",
    "scan_stats_callback": "scans collect no statistics; analyze_plan() shows some",
    **dict.fromkeys(["row_addr_allowlist", "row_addr_blocklist"], "use a filter on _rowaddr"),
}
#: Options of a nearest neighbor search, see :class:`~trilake.lance.scan.search.Nearest`.
_SEARCH = (
    *("column", "q", "k", "metric", "nprobes", "refine_factor", "use_index", "distance_range"),
    *("minimum_nprobes", "maximum_nprobes"),
)
#: Accepted hints: options of unsupported index kinds, and the number of threads.
_SEARCH_HINTS = ("ef", "query_parallelism", "approx_mode", "search_effort")


def check_names(options: Mapping[str, Any], allowed: frozenset[str] = OF_SCANS) -> dict[str, Any]:
    """Check option names, and return the options without unsupported ones that are not set.

    Raises ``WrongTypeError`` for an unknown option.
    """
    explicit = {n: v for n, v in options.items() if not (n in _BEYOND and (v is None or v is False))}
    unknown = explicit.keys() - allowed
    if unknown:
        name = min(unknown)
        raise WrongTypeError(
            f"unknown scan option {name!r}", help=_BEYOND.get(name, f"options are {', '.join(SCAN_OPTIONS)}")
        )
    return explicit


def checked_search(nearest: Any) -> dict[str, Any]:
    """Check the options of a search, and drop hints.  Raises ``WrongTypeError``."""
    if not isinstance(nearest, Mapping):
        raise WrongTypeError(
            f"nearest must be a mapping, got {nearest!r}", help='pass {"column": ..., "q": ..., "k": ...}'
        )
    for name in nearest:
        if name not in _SEARCH and name not in _SEARCH_HINTS:
            raise WrongTypeError(f"unknown search option {name!r}", help=f"options are {', '.join(_SEARCH)}")
    for name in _SEARCH[:2]:
        if name not in nearest:
            raise WrongTypeError(f"nearest must have {name!r}", help='pass {"column": ..., "q": ..., "k": ...}')
    if nearest.get("query_parallelism") is not None:
        count("query_parallelism", nearest["query_parallelism"], least=-1, other_type=WrongTypeError)
    if nearest.get("approx_mode", "normal") not in ("fast", "normal", "accurate"):
        raise InvalidArgumentError(f"approx_mode must be fast, normal or accurate, got {nearest['approx_mode']!r}")
    return {name: value for name, value in nearest.items() if name in _SEARCH}


@dataclass
class ScannerBuilder:
    """Builder of a scan; see :meth:`trilake.lance.pylance.lance_dataset.LanceDataset.scanner` for the options."""

    ds: OpenDataset
    _columns: ColumnsLike | None = None
    _filter: FilterLike | None = None
    _limit: int | None = None
    _offset: int = 0
    _nearest: Nearest | None = None
    _has_k: bool = True
    _batch_size: int | None = None
    _readahead: int | None = None
    _readers: tuple[FragmentReader, ...] | None = None
    _prefilter: bool = False
    _with_row_id: bool = False
    _with_row_address: bool = False
    _use_stats: bool = True
    _use_scalar_index: bool = True
    _include_deleted: bool = False
    _strict_batch_size: bool = False
    _batch_bytes: int | None = None
    _order_by: Orderings = ()
    _scored: bool = True
    _fast_search: bool = False
    _blob_bytes: bool = False
    _in_order: bool = field(default=True, repr=False)

    def _with(self, **fields: Any) -> Self:
        vars(self).update(fields)
        return self

    def columns(self, cols: ColumnsLike | None = None) -> Self:
        """Select columns by name, or SQL expressions by new name; see ``LanceDataset.scanner``."""
        if isinstance(cols, str):
            raise WrongTypeError(f"columns must be a list of names, got {cols!r}", help=f"pass [{cols!r}]")
        return self._with(_columns=None if cols is None else dict(cols) if isinstance(cols, Mapping) else list(cols))

    def filter(self, filter: FilterLike | None) -> Self:
        """Keep rows that match a condition."""
        return self._with(_filter=PylanceSql.of(filter))

    def limit(self, n: int | None = None) -> Self:
        """Set the maximum number of rows to return."""
        return self._with(_limit=None if n is None else _not_negative("Limit", n))

    def offset(self, n: int | None = None) -> Self:
        """Set the number of rows to skip."""
        return self._with(_offset=0 if n is None else _not_negative("Offset", n))

    def batch_size(self, batch_size: int | None) -> Self:
        """Set the maximum number of rows in a batch."""
        return self._with(_batch_size=None if batch_size is None else _count("batch_size", batch_size, least=1))

    def batch_readahead(self, nbatches: int | None = None) -> Self:
        """Set the number of batches to read ahead, a hint."""
        return self._with(_readahead=None if nbatches is None else _count("batch_readahead", nbatches))

    def fragment_readahead(self, nfragments: int | None = None) -> Self:
        """Accepted for compatibility: chunks are read ahead across fragments."""
        if nfragments is not None:
            _count("fragment_readahead", nfragments)
        return self

    def io_buffer_size(self, io_buffer_size: int) -> Self:
        """Accepted for compatibility: trilake has no such buffer."""
        _count("io_buffer_size", io_buffer_size)
        return self

    def late_materialization(self, late_materialization: bool | list[str]) -> Self:
        """Accepted for compatibility: trilake decides which columns to read after a filter."""
        return self

    def scan_in_order(self, scan_in_order: bool = True) -> Self:
        """Accepted for compatibility: rows are always returned in order."""
        return self._with(_in_order=flag("scan_in_order", scan_in_order))

    def prefilter(self, prefilter: bool = True) -> Self:
        """Set whether to filter before a search."""
        return self._with(_prefilter=flag("prefilter", prefilter))

    def with_row_id(self, with_row_id: bool = True) -> Self:
        """Add a column ``_rowid``."""
        return self._with(_with_row_id=flag("with_row_id", with_row_id))

    def with_row_address(self, with_row_address: bool = True) -> Self:
        """Add a column ``_rowaddr``, which equals ``_rowid`` unless row ids are stable."""
        return self._with(_with_row_address=flag("with_row_address", with_row_address))

    def use_stats(self, use_stats: bool = True) -> Self:
        """Set whether to skip row groups by statistics."""
        return self._with(_use_stats=flag("use_stats", use_stats))

    def use_scalar_index(self, use_scalar_index: bool = True) -> Self:
        """Set whether filters may use scalar indices."""
        return self._with(_use_scalar_index=flag("use_scalar_index", use_scalar_index))

    def include_deleted_rows(self, include: bool = True) -> Self:
        """Return deleted rows that are still in the files; needs ``_rowid``, which is null for them."""
        return self._with(_include_deleted=flag("include_deleted_rows", include))

    def strict_batch_size(self, strict_batch_size: bool = False) -> Self:
        """Set whether all batches except the last have exactly ``batch_size`` rows (default 8,192)."""
        return self._with(_strict_batch_size=flag("strict_batch_size", strict_batch_size))

    def batch_size_bytes(self, batch_size_bytes: int | None) -> Self:
        """Set the maximum size of a batch in bytes, but at least one row; not allowed with ``strict_batch_size``."""
        size = None if batch_size_bytes is None else _count("batch_size_bytes", batch_size_bytes, least=1)
        return self._with(_batch_bytes=size)

    def order_by(self, orderings: Iterable[str | ColumnOrdering] | None) -> Self:
        """Sort by columns, given by name or as ``ColumnOrdering``, before the limit."""
        return self._with(_order_by=orderings_of(orderings))

    def disable_scoring_autoprojection(self, disable: bool = True) -> Self:
        """Omit ``_distance`` from search results unless it is selected."""
        return self._with(_scored=not flag("disable_scoring_autoprojection", disable))

    def fast_search(self, flag_: bool = True) -> Self:
        """Skip rows of fragments that are not indexed."""
        return self._with(_fast_search=flag("fast_search", flag_))

    def blob_handling(self, blob_handling: str | None) -> Self:
        """Set whether to return blobs as bytes (``"all_binary"``) or as descriptors of their position."""
        if blob_handling not in (None, "all_binary", "blobs_descriptions", "all_descriptions"):
            raise InvalidArgumentError(
                f"blob_handling must be all_binary, blobs_descriptions or all_descriptions, got {blob_handling!r}"
            )
        return self._with(_blob_bytes=blob_handling == "all_binary")

    def apply_defaults(self, default_opts: Mapping[str, Any]) -> Self:
        """Set options by name, except those that are ``None``.  Raises ``WrongTypeError`` for an unknown option."""
        for name, value in check_names(default_opts).items():
            if value is None or name in HINTS:
                continue
            if name == "nearest":
                self.nearest(**checked_search(value))
            else:
                getattr(self, "with_fragments" if name == "fragments" else name)(value)
        return self

    def with_fragments(self, fragments: Iterable[Any] | None) -> Self:
        """Scan only these fragments, in this order."""
        if fragments is None:
            return self._with(_readers=None)
        candidates = list(fragments)
        wrong = [f for f in candidates if not isinstance(f, pa.dataset.Fragment) or not hasattr(f, "_fragment")]
        if wrong:
            raise WrongTypeError(f"fragments must be an iterable of LanceFragment. Got {type(wrong[0])} instead")
        return self._with(_readers=tuple(f._fragment for f in candidates))

    def nearest(
        self,
        column: str,
        q: Any,
        k: int | None = None,
        metric: str | None = None,
        nprobes: int | None = None,
        refine_factor: int | None = None,
        use_index: bool = True,
        distance_range: tuple[float | None, float | None] | None = None,
        minimum_nprobes: int | None = None,
        maximum_nprobes: int | None = None,
    ) -> Self:
        """Return the ``k`` rows nearest to a vector, by default the limit, or 10; see ``LanceDataset.scanner``."""
        named = locals()
        del named["self"]
        self._has_k, self._nearest = k is not None, Nearest.of(self.ds.snapshot, **named)
        return self

    def to_scanner(self) -> LanceScanner:
        """Build the scanner.  Raises ``InvalidArgumentError`` and ``FilterError``."""
        snapshot = self.ds.snapshot
        columns = self._columns
        nearest = self._nearest
        scores: tuple[pa.Field, ...] = () if nearest is None else (search.DISTANCE_FIELD,)
        if nearest is not None and nearest.batch is not None:
            if search.QUERY_INDEX_FIELD.name in snapshot.view.schema.names:
                raise InvalidArgumentError(
                    "a search for several vectors adds a column 'query_index', which the dataset already has",
                    help="search for one vector at a time, or rename the column",
                )
            scores = (search.QUERY_INDEX_FIELD, *scores)
        if nearest is not None and not self._has_k and self._limit is not None:
            nearest = replace(nearest, k=max(self._limit + self._offset, 1))
        view = replace(snapshot.view, blob_bytes=True) if self._blob_bytes else snapshot.view
        selection = Selection.of(
            view,
            columns,
            with_row_id=self._with_row_id,
            with_row_address=self._with_row_address,
            scores=scores,
            scored=self._scored,
        )
        batch_size = self._batch_size or _default_batch_size()
        plan = ScanPlan(
            view,
            selection.columns,
            snapshot.filter(self._filter),
            self._limit,
            self._offset,
            batch_size,
            selection.row_metadata,
            self._use_stats,
            self._use_scalar_index,
            self._include_deleted,
            joined=selection.projection is not None,  # evaluating an expression takes about 1 ms per batch
        )
        if self._strict_batch_size and self._batch_bytes is not None:
            raise InvalidArgumentError("strict_batch_size and batch_size_bytes cannot be used together")
        _check_deleted(plan, alone=nearest is None and not self._order_by)
        readers = self._readers
        if self._fast_search:
            readers = search.indexed_readers(snapshot, plan, nearest, readers)
        return LanceScanner(copy(self), plan, readers, nearest, selection.projection)


#: Default batch size with ``strict_batch_size``.
_BATCH_ROWS = 8192


def _default_batch_size() -> int | None:
    """Return the batch size in the environment, as in pylance; ``None`` without one."""
    size = os.environ.get("LANCE_DEFAULT_BATCH_SIZE")
    if size is None:
        return None
    if not re.fullmatch(r"[1-9]\d{0,9}", size):
        raise InvalidArgumentError(
            f"LANCE_DEFAULT_BATCH_SIZE must be a number of rows above 0, got {size!r}",
            help="set it to 8192, or unset it",
        )
    return int(size)


def _check_deleted(plan: ScanPlan, *, alone: bool) -> None:
    if plan.include_deleted and ROW_ID not in plan.row_metadata:
        raise InvalidArgumentError(
            "include_deleted_rows is set, but with_row_id is false",
            help="pass with_row_id=True: the row id of a deleted row is null",
        )
    if plan.include_deleted and not alone:
        raise InvalidArgumentError(
            "Cannot include deleted rows with nearest or order_by", help="scan without them, and sort the table"
        )


def _count(name: str, value: Any, *, least: int = 0) -> int:
    return count(name, value, least=least, other_type=WrongTypeError)


def _not_negative(name: str, value: Any) -> int:
    number = count(name, value, least=-sys.maxsize, other_type=WrongTypeError)
    if number < 0:
        raise InvalidArgumentError(f"{name} must be non-negative, got {number}")
    return number


_BLOB_MODES = ("lazy", "bytes", "descriptions")


def _with_file(value: Any, inside: tuple[str, ...], file: BlobFile | None) -> Any:
    """Replace the blob at a path of nested fields in ``value`` with a file object."""
    if not inside:
        return file
    return value if value is None else {**value, inside[0]: _with_file(value[inside[0]], inside[1:], file)}


class LanceScanner(pa.dataset.Scanner):
    """A scan of a dataset; each call that returns rows runs it again."""

    def __init__(
        self,
        builder: ScannerBuilder,
        plan: ScanPlan,
        readers: tuple[FragmentReader, ...] | None,
        nearest: Nearest | None,
        projection: Projection | None,
    ) -> None:
        self._builder, self._ds, self._plan = builder, builder.ds, plan
        self._nearest, self._projection = nearest, projection
        self._orderings, self._prefilter = builder._order_by, builder._prefilter
        self._readers = self._ds.snapshot.readers if readers is None else readers
        readahead = builder._readahead
        self._threads = None if readahead is None else max(1, min(readahead, scan.THREADS))

    @property
    def projected_schema(self) -> pa.Schema:
        """Schema of the result."""
        if self._projection is not None:
            return self._projection.schema
        return self._plan.schema if self._nearest is None else search.schema(self._plan, self._nearest)

    @property
    def dataset_schema(self) -> pa.Schema:
        """Schema of the dataset."""
        return self._ds.snapshot.schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Return the rows as batches."""
        if self._nearest is None and not self._orderings:
            batches = self._scanned(self._plan, self._readers, self._threads)
        else:
            batches = self._projected(self._table().to_batches(max_chunksize=self._plan.batch_size))
        if self._builder._batch_bytes is not None:
            return limit_bytes(batches, self._builder._batch_bytes)
        if self._builder._strict_batch_size:
            return regroup(batches, self._plan.batch_size or _BATCH_ROWS)
        return batches

    def _table(self) -> pa.Table:
        """Read the result of a search or sort."""
        snapshot, plan = self._ds.snapshot, self._plan
        if self._nearest is None:
            return ordered(snapshot, plan, self._readers, self._orderings, self._threads)
        if not self._orderings:
            return search.search(snapshot, plan, self._nearest, self._readers, prefilter=self._prefilter)
        with_ids = replace(plan, limit=None, offset=0, row_metadata=tuple(dict.fromkeys((*plan.row_metadata, ROW_ID))))
        matches = search.search(snapshot, with_ids, self._nearest, self._readers, prefilter=self._prefilter)
        rows = ordered_found(snapshot, matches, self._orderings).slice(plan.offset, plan.limit)
        return rows.select(search.schema(plan, self._nearest).names)

    def _scanned(
        self, plan: ScanPlan, readers: Iterable[FragmentReader], threads: int | None
    ) -> Iterator[pa.RecordBatch]:
        return self._projected(scan.scan(self._ds.snapshot.indexed(plan), readers, threads=threads))

    def _projected(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return iter(batches) if self._projection is None else map(self._projection.project, batches)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """Read all rows into a table."""
        return pa.Table.from_batches(self.to_batches(), schema=self.projected_schema)

    def to_pandas(self, *, blob_mode: str = "lazy", **options: Any) -> pandas.DataFrame:
        """Read all rows into a pandas DataFrame.

        Parameters
        ----------
        blob_mode: how to return blobs: file objects (``"lazy"``), ``"bytes"``, or ``"descriptions"`` of their position.
        options: options of ``pyarrow.Table.to_pandas``.
        """
        if blob_mode not in _BLOB_MODES:
            raise InvalidArgumentError(f"blob_mode must be one of {', '.join(_BLOB_MODES)}, got {blob_mode!r}")
        blobs = self._blobs() if blob_mode != "descriptions" else []
        frame: pandas.DataFrame
        if not blobs or blob_mode == "bytes":
            scanner = copy(self._builder).blob_handling("all_binary").to_scanner() if blobs else self
            frame = scanner.to_table().to_pandas(**options)
            return frame
        table = copy(self._builder).with_row_address().to_scanner().to_table()
        frame = table.select(self.projected_schema.names).to_pandas(**options)
        for column, inside, source in blobs:
            locations = self._ds.snapshot.blobs(table[ROW_ADDRESS].to_numpy(), source)
            files = [None if blob is None else BlobFile(blob) for blob in locations]
            values = [_with_file(value, inside, file) for value, file in zip(frame[column], files, strict=True)]
            cells = np.empty(len(values), object)
            cells[:] = values
            frame[column] = cells
        return frame

    def _blobs(self) -> list[tuple[str, tuple[str, ...], str]]:
        """List the blobs of the result by column, path of nested fields, and field name."""
        schema = self._ds.snapshot.view.schema
        columns: Mapping[str, Any] = {f.name: f for f in self._plan.columns.fields}
        columns = columns if self._projection is None else self._projection.columns
        entries = []
        for name, one in columns.items():
            if isinstance(one, Expression):
                continue
            way = one.path if isinstance(one, Part) else (one.name,)
            top = schema.find(way)
            blobs = [] if top is None else [f for f in top.walk() if f.is_blob]
            blobs = [f for f in blobs if all(one.logical_type == "struct" for one in schema.above(f))]
            entries += [(name, tuple(schema.path_of(f)[len(way) :]), schema.name_of(f)) for f in blobs]
        return entries

    def scan_batches(self) -> Iterator[pa.dataset.TaggedRecordBatch]:
        """Return the batches, each with its fragment."""
        if self._orderings or self._nearest is not None:
            raise InvalidArgumentError(
                "batches of a search or a sort do not belong to a single fragment", help="use to_batches"
            )
        plan = replace(self._plan, limit=None, offset=0)
        skip, remaining = self._plan.offset, self._plan.limit
        for reader in self._readers:
            fragment = self._ds.get_fragment(reader.fragment.id)
            for batch in self._scanned(plan, [reader], self._threads):
                rows = batch.slice(min(skip, batch.num_rows), remaining)
                skip = max(skip - batch.num_rows, 0)
                remaining = None if remaining is None else remaining - rows.num_rows
                if rows.num_rows:
                    yield pa.dataset.TaggedRecordBatch(rows, fragment)
                if remaining == 0:
                    return

    def head(self, num_rows: int) -> pa.Table:
        """Return the first rows."""
        if self._nearest is not None or self._orderings:
            return self.to_table().slice(0, num_rows)
        limit = num_rows if self._plan.limit is None else min(num_rows, self._plan.limit)
        batches = self._scanned(replace(self._plan, limit=limit), self._readers, 1)
        return pa.Table.from_batches(batches, schema=self.projected_schema)

    def take(self, indices: Any) -> pa.Table:
        """Return rows by their position in the result."""
        plan = self._plan
        whole = plan.filter is None and plan.limit is None and not plan.offset and not plan.include_deleted
        if whole and self._nearest is None and not self._orderings:
            ranks = np.asarray(indices, np.int64)
            if self._readers == self._ds.snapshot.readers:
                selection = Selection(plan.columns, plan.row_metadata, self._projection)
                return selection.show(self._ds.snapshot.take(ranks, plan.columns, row_metadata=plan.row_metadata))
        return self.to_table().take(indices)

    def count_rows(self) -> int:
        """Count the rows of the result."""
        if self._nearest is not None:
            return len(self.to_table())
        plan = replace(self._plan, columns=type(self._plan.columns)(()), row_metadata=())
        return scan.count(self._ds.snapshot.indexed(plan), self._readers)

    def explain_plan(self, verbose: bool = False) -> str:
        """Describe the plan, one line per step; ``verbose`` counts the rows to read."""
        plan, lines = self._plan, []
        if self._projection is not None:
            lines.append(f"ProjectionExec: expr=[{self._projection}]")
        if plan.limit is not None or plan.offset:
            lines.append(f"GlobalLimitExec: skip={plan.offset}, fetch={plan.limit}")
        if self._orderings:
            lines.append(f"SortExec: expr=[{', '.join(map(str, self._orderings))}]")
        filter, (index_steps, exact) = plan.filter, search.index_step(self._ds.snapshot, plan)
        if self._nearest is not None:
            lines += search.explain(self._ds.snapshot, plan, self._nearest, prefilter=self._prefilter)
            if not self._prefilter:
                filter, index_steps, exact = None, [], False
        read = dict.fromkeys([*plan.columns.names, *(() if filter is None else sorted(filter.columns))])
        options = {
            "uri": self._ds.uri,
            "projection": f"[{', '.join(read)}]",
            "num_fragments": len(self._readers),
            "row_id": str(ROW_ID in plan.row_metadata).lower(),
            "row_addr": str(ROW_ADDRESS in plan.row_metadata).lower(),
            "full_filter": filter or "--",
            "refine_filter": "--" if exact else filter or "--",
        }
        lines.append(f"LanceRead: {', '.join(f'{name}={value}' for name, value in options.items())}")
        lines += index_steps
        if verbose:
            lines.append(f"  rows to read: {self._rows_to_read()} of {sum(r.physical_rows for r in self._readers)}")
        return "\n".join(f"{'  ' * i}{line}" for i, line in enumerate(lines))

    def _rows_to_read(self) -> int:
        planned = scan.chunks(self._ds.snapshot.indexed(self._plan), self._readers)
        return sum(c.stop - c.start if c.rows is None else len(c.rows) for c in planned)

    def analyze_plan(self) -> str:
        """Run the scan, and return its plan with the numbers of rows and batches and the elapsed time."""
        clock = self._ds.snapshot.runtime.clock_ns
        began = clock()
        rows = batches = 0
        for batch in self.to_batches():
            rows, batches = rows + batch.num_rows, batches + 1
        head = f"AnalyzeExec: rows={rows}, batches={batches}, elapsed={(clock() - began) / 1e6:.3f} ms"
        metrics = f", metrics=[output_rows={rows}, output_batches={batches}, rows_scanned={self._rows_to_read()}]"
        lines = (f"{line}{metrics if 'LanceRead: ' in line else ''}" for line in self.explain_plan().splitlines())
        return "\n".join([head, *(f"  {line}" for line in lines)])

    @staticmethod
    def from_dataset(dataset: Any, **options: Any) -> Any:
        """Return a scanner of any pyarrow dataset."""
        return dataset.scanner(**options)

    @staticmethod
    def from_fragment(fragment: Any, **options: Any) -> Any:
        """Return a scanner of any pyarrow fragment."""
        return fragment.scanner(**options)

    @staticmethod
    def from_batches(source: Any, **options: Any) -> pa.dataset.Scanner:
        """Return a pyarrow scanner of batches."""
        return pa.dataset.Scanner.from_batches(source, **options)


class Scannable(ABC):
    """The methods that a dataset and a fragment share: reads of all rows with the options of a scan."""

    @abstractmethod
    def scanner(self, *args: Any, **more: Any) -> LanceScanner:
        """Return a scanner."""

    @property
    def partition_expression(self) -> pc.Expression:
        """Always true: Lance has no partitions."""
        return pc.scalar(True)

    def to_table(
        self,
        columns: ColumnsLike | None = None,
        filter: FilterLike | None = None,
        limit: int | None = None,
        offset: int | None = None,
        *args: Any,
        **more: Any,
    ) -> pa.Table:
        """Read the rows into a table.

        Parameters and errors are those of :meth:`scanner`, also for ``args`` and ``more``.
        """
        return self.scanner(columns, filter, limit, offset, *args, **more).to_table()

    def to_batches(
        self,
        columns: ColumnsLike | None = None,
        filter: FilterLike | None = None,
        limit: int | None = None,
        offset: int | None = None,
        *args: Any,
        **more: Any,
    ) -> Iterator[pa.RecordBatch]:
        """Read the rows as batches.

        Parameters and errors are those of :meth:`scanner`, also for ``args`` and ``more``.
        """
        return self.scanner(columns, filter, limit, offset, *args, **more).to_batches()

    def to_pandas(self, columns: ColumnsLike | None = None, **more: Any) -> pandas.DataFrame:
        """Read the rows into a pandas DataFrame.

        ``columns`` and ``more`` are parameters of :meth:`scanner` and of ``pyarrow.Table.to_pandas``.
        """
        options = {name: more.pop(name) for name in (*SCAN_OPTIONS, *LANCE_HINTS, *_BEYOND) if name in more}
        return self.scanner(columns, **options).to_pandas(**more)

    def head(self, num_rows: int, **more: Any) -> pa.Table:
        """Return the first ``num_rows`` rows; ``more`` are parameters of :meth:`scanner`."""
        if more.get("limit") is not None:
            raise WrongTypeError("num_rows and limit cannot be used together", help="leave limit out")
        return self.to_table(**{**more, "limit": num_rows})
