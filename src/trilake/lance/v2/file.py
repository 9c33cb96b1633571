"""``V2File``: some columns of a fragment in a file of version 2.0, 2.1 or 2.2, read by range or by row.

A file that is on this machine is mapped.  Of an object in a store only ranges are fetched: the end when it is opened,
then what pages say of their chunks, then the chunks that have the rows; those of all columns at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trilake.errors import CorruptFileError, InvalidArgumentError, TrilakeError, UnsupportedProtocolError
from trilake.lance.file import extensions
from trilake.lance.file.blobs import DESCRIPTION, DESCRIPTION_V2
from trilake.lance.file.reader import DataFileReader
from trilake.lance.file.schema import Field, LanceSchema
from trilake.lance.file.sources import Int64s, PlacedJob, open_source, together
from trilake.lance.v2.arrays import read_array
from trilake.lance.v2.column import Column
from trilake.lance.v2.container import MAX_ROWS, Container, Page
from trilake.lance.v2.layers import Rows
from trilake.lance.v2.nesting import Node, assemble, tree
from trilake.lance.v2.rules import Violation, violations
from trilake.lance.v2.values import DamagedPage, UnsupportedPage
from trilake.storage.base import Store

#: Bytes of a file, and rows, that are best read at once.
_PART_BYTES, _MIN_PART, _MAX_PART = 16 << 20, 1 << 12, 1 << 18


class V2File(DataFileReader):
    """An open data file; see :meth:`open`.

    Instances are immutable and can be shared between threads.
    """

    def __init__(self, container: Container, schema: LanceSchema, columns: Mapping[int, int]) -> None:
        #: What the end of the file says.
        self.container = container
        self._source = container.source
        #: The column of each field that has one, by the field's id.
        self.columns = columns
        self._place = DESCRIPTION_V2 if container.version >= (2, 2) else DESCRIPTION
        #: The version of the file.
        self.version: tuple[int, int] = container.version
        nodes = [tree(field, columns, self._place, schema) for field in schema.fields]
        #: The columns that the file has, with the ids of the dataset.
        self.schema = LanceSchema(tuple(n.field for n in nodes if n is not None), schema.metadata)
        self._num_rows = self._count([n for n in nodes if n is not None])
        self.batch_offsets = _parts(self._num_rows, container.source.size)
        self._opened: dict[tuple[int, pa.DataType], Column] = {}
        self._last: tuple[object, LanceSchema, list[Node]] = None, LanceSchema(()), []

    @classmethod
    def open(
        cls,
        store: Store,
        key: str,
        schema: LanceSchema | None = None,
        field_ids: Sequence[int] | None = None,
        column_indices: Sequence[int] | None = None,
    ) -> V2File:
        """Open a data file.

        Parameters
        ----------
        store, key: where it is.
        schema: of the dataset; ``None`` for the schema in the file itself.
        field_ids, column_indices: the columns of the file and the fields that these are of, as the fragment says; a
            negative number where there is none.  ``None`` for what the schema in the file says.

        Raises ``MissingFileError``, ``CorruptFileError``, and ``UnsupportedProtocolError`` for other versions.
        """
        container = Container(open_source(store, key))
        if schema is not None and field_ids is not None and column_indices is not None:
            if len(field_ids) != len(column_indices):
                raise container.fail(f"{len(field_ids)} fields have {len(column_indices)} columns")
            pairs = zip(field_ids, column_indices, strict=True)
            return cls(container, schema, {f: c for f, c in pairs if f >= 0 and c >= 0})
        metadata = dict(container.schema.metadata)
        own = LanceSchema.from_proto(
            container.schema.fields, metadata, damaged=CorruptFileError, file=container.source.file
        )
        fields = _all_columns(own.fields) if container.version == (2, 0) else list(own.columns())
        columns = {field.id: number for number, field in enumerate(fields)}
        return cls(container, own if schema is None else schema, columns)

    # --- what is in it ---

    @property
    def file(self) -> str:
        """Name of the file, as errors give it."""
        return self._source.file

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._source.size

    @property
    def num_rows(self) -> int:
        """Rows, deleted ones included."""
        return self._num_rows

    @property
    def num_global_buffers(self) -> int:
        """Global buffers, the first of which is the schema."""
        return self.container.num_global_buffers

    def global_buffer(self, number: int) -> pa.Buffer:
        """The bytes of a global buffer.  Raises ``CorruptFileError``, also where the file has fewer."""
        return self.container.global_buffer(number)

    def violations(self) -> Iterator[Violation]:
        """The rules of the format that the file breaks."""
        return violations(self.container)

    def _count(self, nodes: Sequence[Node]) -> int:
        """The rows that the schema says, or that the first column has."""
        rows = self.container.length
        if rows is None and nodes:
            rows = self.container.column(_first_column(nodes[0]))[1]
        if (rows or 0) > MAX_ROWS:
            raise self.container.fail(f"the file claims {rows} rows")
        return rows or 0

    # --- reading ---

    def projection(self, columns: LanceSchema | Sequence[int] | None) -> LanceSchema:
        """The columns of the file among those asked for; fields that it does not have are left out."""
        return self._project(columns)[0]

    def read_rows(self, start: int, stop: int, columns: LanceSchema | Sequence[int] | None = None) -> pa.RecordBatch:
        """The rows from ``start`` up to ``stop``, in the columns that the file has of these.

        Blobs are read as the places of their bytes.  Raises ``InvalidArgumentError`` for rows that the file does not
        have, and ``CorruptFileError``.
        """
        if not 0 <= start <= stop <= self._num_rows:
            raise InvalidArgumentError(f"the file has {self._num_rows} rows, not {start} to {stop}", file=self.file)
        return self._read(range(start, stop), columns)

    def take(
        self, rows: npt.NDArray[np.int64] | Sequence[int], columns: LanceSchema | Sequence[int] | None = None
    ) -> pa.Table:
        """Some rows, in the order they are asked for; a row may be asked for more than once.

        Only chunks of these rows are read.  Raises as :meth:`read_rows`.
        """
        places = np.asarray(rows, np.int64)
        if len(places) and (places.min() < 0 or places.max() >= self._num_rows):
            raise InvalidArgumentError(
                f"the file has {self._num_rows} rows; asked for were {places.min()} to {places.max()}", file=self.file
            )
        order: Int64s | None = None
        if len(places) > 1 and not (np.diff(places) > 0).all():
            places, order = np.unique(places, return_inverse=True)
        table = pa.Table.from_batches([self._read(places, columns)])
        return table if order is None else table.take(pa.array(order))

    def _project(self, columns: LanceSchema | Sequence[int] | None) -> tuple[LanceSchema, list[Node]]:
        last, schema, nodes = self._last
        if last is columns and last is not None:  # by identity: that is how batch after batch is asked for
            return schema, nodes
        if columns is None:
            wanted: Sequence[Field] = self.schema.fields
        elif isinstance(columns, LanceSchema):
            wanted = columns.fields
        else:
            wanted = self.schema.project_ids(columns).fields
        found = [tree(field, self.columns, self._place, self.schema) for field in wanted]
        nodes = [node for node in found if node is not None]
        metadata = columns.metadata if isinstance(columns, LanceSchema) else self.schema.metadata
        schema = LanceSchema(tuple(n.field for n in nodes), metadata)
        self._last = columns, schema, nodes
        return schema, nodes

    def _read(self, rows: Rows, columns: LanceSchema | Sequence[int] | None) -> pa.RecordBatch:
        schema, nodes = self._project(columns)
        count = len(rows)
        if not nodes:
            # A batch without columns knows its rows only if it once had one.
            return pa.record_batch([pa.nulls(count)], names=["_"]).select([])
        arrow = pa.schema([n.arrow for n in nodes], dict(schema.metadata) or None)
        if not count:
            return pa.RecordBatch.from_pylist([], arrow)
        arrays = self._source.run_placed(together([self._field(node, rows) for node in nodes]))
        batch = pa.RecordBatch.from_arrays(arrays, schema=arrow)
        return extensions.restore_batch(batch) if schema.has_extensions else batch

    def _field(self, node: Node, rows: Rows) -> PlacedJob[pa.Array]:
        """The array of a field, with errors that say where they are."""
        try:
            if self.version == (2, 0):
                return (yield from read_array(node, rows, self._pages))
            leaves = node.leaves
            read = [self._column(leaf).read(rows, node.items[leaf.column or 0]) for leaf in leaves]
            results = [(yield from read[0])] if len(read) == 1 else (yield from together(read))
            return assemble(node, {leaf.column or 0: r for leaf, r in zip(leaves, results, strict=True)}, len(rows))
        except DamagedPage as e:
            raise self._fail(e, node) from e
        except OverflowError as e:
            raise self._fail(DamagedPage(f"a number in the description of a page is too large: {e}"), node) from e

    def _column(self, leaf: Node) -> Column:
        number = leaf.column or 0
        column = self._opened.get((number, leaf.stored))
        if column is None:
            column = self._opened[number, leaf.stored] = Column(leaf, self._pages(number))
        return column

    def _pages(self, number: int) -> Sequence[Page]:
        return self.container.column(number)[0]

    def _fail(self, error: DamagedPage, node: Node) -> TrilakeError:
        make: Callable[..., TrilakeError] = CorruptFileError
        if isinstance(error, UnsupportedPage):
            make = UnsupportedProtocolError
        return make(str(error), file=self.file, column=node.field.name)


def _first_column(node: Node) -> int:
    return node.leaves[0].column or 0


def _all_columns(fields: Sequence[Field]) -> list[Field]:
    """The fields that are columns of a 2.0 file, where structs and lists are columns too."""
    columns = []
    for field in fields:
        columns.append(field)
        if not field.is_column:
            columns += _all_columns(field.children)
    return columns


def _parts(rows: int, size: int) -> Int64s:
    """Cuts between rows that are best read at once."""
    step = _MAX_PART
    while step > _MIN_PART and step * size > _PART_BYTES * max(rows, 1):
        step //= 2
    return np.append(np.arange(0, rows, step), rows).astype(np.int64)
