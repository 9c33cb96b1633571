"""``V2File``: read some columns of a fragment from a file of version 2.0 to 2.3, by range or by row.

A local file is memory-mapped.  An object in a store is read in ranges: its end on open, then the chunk metadata, then
the chunks that contain the rows, for all columns together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from trilake.common.lru_cache import LruCache
from trilake.errors import CorruptFileError, TrilakeError, UnsupportedProtocolError
from trilake.lance.file import extensions
from trilake.lance.file.interfaces import DataFileReader
from trilake.lance.file.schema import Field, LanceSchema
from trilake.lance.file.sources import Job, MappedSource, open_source, together
from trilake.lance.file.types import DESCRIPTION, DESCRIPTION_V2, fixed_width
from trilake.lance.v2.column import AlikeColumns, Column, group_alike
from trilake.lance.v2.container import MAX_ROWS, Container, JoinedColumns, Page
from trilake.lance.v2.decode_v20 import read_array
from trilake.lance.v2.layers import Rows
from trilake.lance.v2.nesting import Leaf, Node, assemble, tree
from trilake.lance.v2.values import DamagedPage, UnsupportedPage
from trilake.storage.base import Store
from trilake.table.data_files import no_columns

#: Alignment of files that are joined, which is that of buffers in a file.
_ALIGN = 64
#: Most groups of columns that stay open, and most columns in them.
_ALIKE = 256, 1 << 16


class V2File(DataFileReader):
    """An open data file; see :meth:`open`."""

    def __init__(
        self, container: Container, schema: LanceSchema, columns: Mapping[int, int], joined: JoinedColumns | None = None
    ) -> None:
        self._stored = joined or container
        super().__init__(self._stored.source)
        #: The metadata of the file, or of the first of joined files.
        self.container = container
        #: The file column of each field that has one, by field id.
        self.columns = columns
        self._description = DESCRIPTION_V2 if container.version >= (2, 2) else DESCRIPTION
        #: Version of the file format, major and minor.
        self.version: tuple[int, int] = container.version
        trees = [tree(field, columns, self._description, schema) for field in schema.fields]
        nodes = [node for node in trees if node is not None]
        self._nodes = {node.field.id: node for node in nodes}
        self.schema = LanceSchema(tuple(node.field for node in nodes), schema.metadata)
        rows = self._count(nodes)
        self.batch_offsets = np.array([0, rows][: 1 + bool(rows)], np.int64)
        #: Columns by number and type, and those that are read together by their numbers.
        self._opened: dict[tuple[int, pa.DataType], Column] = {}
        self._opened_alike = LruCache(*_ALIKE)
        self._last: _Projection | None = None

    @classmethod
    def open(
        cls,
        store: Store,
        key: str,
        schema: LanceSchema | None = None,
        field_ids: Sequence[int] | None = None,
        column_indices: Sequence[int] | None = None,
    ) -> V2File:
        """Open a data file.  Raises ``MissingFileError``, ``CorruptFileError`` and ``UnsupportedProtocolError``.

        ``schema`` is that of the dataset, by default that of the file.  ``column_indices`` are the columns of
        ``field_ids`` in the manifest, negative for none; by default they follow the schema in the file.
        """
        container = Container(open_source(store, key))
        if schema is not None and field_ids is not None and column_indices is not None:
            if len(field_ids) != len(column_indices):
                raise container.fail(f"{len(field_ids)} fields have {len(column_indices)} columns")
            return cls(container, schema, _columns(field_ids, column_indices))
        found, file = container.schema, container.source.file
        stored = LanceSchema.from_proto(found.fields, dict(found.metadata), damaged=CorruptFileError, file=file)
        columns = {field.id: number for number, field in enumerate(stored.columns(parents=container.version == (2, 0)))}
        return cls(container, stored if schema is None else schema, columns)

    @classmethod
    def join(
        cls,
        files: Sequence[tuple[str, pa.Buffer, int]],
        schema: LanceSchema,
        field_ids: Sequence[int],
        column_indices: Sequence[int],
    ) -> V2File:
        """Open several small files as one; all have the same version and columns.

        ``files`` are the name, content and number of rows of each, the other parameters those of :meth:`open`.  The
        errors of reading name the first file.  Raises ``CorruptFileError`` and ``UnsupportedProtocolError``.
        """
        starts = np.cumsum([0, *(-(-content.size // _ALIGN) * _ALIGN for _, content, _ in files)])
        data = pa.allocate_buffer(int(starts[-1]))
        everything = np.frombuffer(data, np.uint8)
        parts = []
        for (name, content, rows), start in zip(files, starts.tolist(), strict=False):
            everything[start : start + content.size] = np.frombuffer(content, np.uint8)
            part = Container(MappedSource(name, data.slice(start, content.size)))
            if part.length not in (None, rows):
                raise part.fail(f"the file has {part.length} rows, not {rows}")
            parts.append(part)
        if len({part.version for part in parts}) > 1:
            raise parts[0].fail("files of different versions cannot be joined")
        source = MappedSource(files[0][0], data)
        joined = JoinedColumns(parts, source, starts.tolist()[:-1], [rows for *_, rows in files])
        return cls(parts[0], schema, _columns(field_ids, column_indices), joined)

    def _count(self, nodes: Sequence[Node]) -> int:
        """The number of rows that the file states, else that of its first column."""
        rows = self._stored.length
        if rows is None and nodes:
            rows = self._stored.column(nodes[0].leaves[0].column or 0).end
        if (rows or 0) > MAX_ROWS:
            raise self.container.fail(f"the file claims {rows} rows")
        return rows or 0

    def column_bytes(self, number: int) -> int:
        """Bytes of a column's pages."""
        return self._stored.column(number).size

    def stored_bytes(self, columns: LanceSchema) -> int:
        if columns.has_blobs:  # their bytes may be read as well
            return self.size
        projection = self._project(columns)
        numbers = [leaf.column for node in projection.nodes for leaf in node.leaves]
        stored = sum(self.column_bytes(number) for number in numbers if number is not None)
        return max(stored, self.num_rows * sum(fixed_width(kind) for kind in projection.arrow.types))

    def read_rows(self, start: int, stop: int, columns: LanceSchema | None = None) -> pa.RecordBatch:
        """Read rows, see :meth:`DataFileReader.read_rows`.  Blobs are returned as descriptions."""
        self._check_rows(start, stop)
        return self._take(range(start, stop), columns)

    def _project(self, columns: LanceSchema | None) -> _Projection:
        columns = columns or self.schema
        last = self._last
        if last is not None and last.columns is columns:  # by identity: read after read passes the same object
            return last
        nodes = [node for field in columns.fields if (node := self._node(field)) is not None]
        arrow = pa.schema([node.arrow for node in nodes], dict(columns.metadata) or None)
        has_extensions = LanceSchema(tuple(node.field for node in nodes)).has_extensions
        groups = [] if self.version == (2, 0) else self._groups(nodes)
        self._last = projection = _Projection(columns, nodes, groups, arrow, has_extensions)
        return projection

    def _node(self, field: Field) -> Node | None:
        known = self._nodes.get(field.id)
        if known is not None and known.field is field:
            return known
        return tree(field, self.columns, self._description, self.schema)

    def _groups(self, nodes: Sequence[Node]) -> list[list[_Leaf]]:
        """The leaves of some fields, those of equal layout together."""
        leaves = [_Leaf(node, leaf, node.items[leaf.column or 0]) for node in nodes for leaf in node.leaves]
        columns = [(each.leaf.stored, each.items, self._stored.column(each.leaf.column or 0)) for each in leaves]
        return [[leaves[i] for i in group] for group in group_alike(columns, self.num_rows)]

    def _take(self, rows: Rows, columns: LanceSchema | None) -> pa.RecordBatch:
        projection = self._project(columns)
        count = len(rows)
        if not projection.nodes:
            return no_columns(count)
        if not count:
            return pa.RecordBatch.from_pylist([], projection.arrow)
        arrays = self._source.run(self._arrays(projection, rows))
        batch = pa.RecordBatch.from_arrays(arrays, schema=projection.arrow)
        return extensions.restore_batch(batch) if projection.has_extensions else batch

    def _arrays(self, projection: _Projection, rows: Rows) -> Job[list[pa.Array]]:
        if self.version == (2, 0):
            return (yield from together([self._array_v20(node, rows) for node in projection.nodes]))
        groups = projection.groups
        read = yield from together([self._leaves(group, rows) for group in groups])
        parts = {
            one.leaf.column: leaf
            for group, leaves in zip(groups, read, strict=True)
            for one, leaf in zip(group, leaves, strict=True)
        }
        arrays, node = [], projection.nodes[0]
        try:
            for node in projection.nodes:
                arrays.append(assemble(node, [parts[leaf.column] for leaf in node.leaves], len(rows)))
        except (DamagedPage, OverflowError) as e:
            raise self._fail(e, node) from e
        return arrays

    def _array_v20(self, node: Node, rows: Rows) -> Job[pa.Array]:
        try:
            return (yield from read_array(node, rows, self._pages))
        except (DamagedPage, OverflowError) as e:
            raise self._fail(e, node) from e

    def _leaves(self, group: Sequence[_Leaf], rows: Rows) -> Job[list[Leaf]]:
        first = group[0]
        if len(group) == 1:
            try:
                return [(yield from self._column(first).read(rows, first.items))]
            except (DamagedPage, OverflowError) as e:
                raise self._fail(e, first.node) from e
        try:
            return (yield from self._columns(group).read(rows, first.items))
        except (DamagedPage, OverflowError):  # reading each alone finds the damaged one
            alone = yield from together([self._leaves([one], rows) for one in group])
            return [leaf for (leaf,) in alone]

    def _columns(self, group: Sequence[_Leaf]) -> AlikeColumns:
        numbers = tuple(one.leaf.column or 0 for one in group)
        columns: AlikeColumns | None = self._opened_alike.get(numbers)
        if columns is None:
            columns = AlikeColumns(group[0].leaf.stored, [self._stored.column(number) for number in numbers])
            self._opened_alike.put(numbers, columns, len(numbers))
        return columns

    def _column(self, one: _Leaf) -> Column:
        number, stored = one.leaf.column or 0, one.leaf.stored
        column = self._opened.get((number, stored))
        if column is None:
            pages, count, _ = self._stored.column(number)
            if isinstance(self._stored, JoinedColumns) and count != (values := self.num_rows * one.items):
                raise self._stored.fail(f"a column has {count} values, not {values}", column=number)
            column = self._opened[number, stored] = Column(stored, pages)
        return column

    def _pages(self, number: int) -> Sequence[Page]:
        return self._stored.column(number).pages

    def _fail(self, error: DamagedPage | OverflowError, node: Node) -> TrilakeError:
        """The error for damaged pages of a field."""
        if isinstance(error, OverflowError):
            error = DamagedPage(f"a number in the description of a page is too large: {error}")
        kind = UnsupportedProtocolError if isinstance(error, UnsupportedPage) else CorruptFileError
        return kind(str(error), file=self.file, column=node.field.name)


class _Leaf(NamedTuple):
    """A leaf of the field ``node``, with ``items`` entries per row."""

    node: Node
    leaf: Node
    items: int


@dataclass(frozen=True, slots=True)
class _Projection:
    """Requested columns, resolved to nodes and an Arrow schema; ``groups`` are the leaves that are read together."""

    columns: LanceSchema
    nodes: list[Node]
    groups: list[list[_Leaf]]
    arrow: pa.Schema
    has_extensions: bool


def _columns(field_ids: Sequence[int], column_indices: Sequence[int]) -> dict[int, int]:
    pairs = zip(field_ids, column_indices, strict=True)
    return {field: column for field, column in pairs if field >= 0 and column >= 0}
