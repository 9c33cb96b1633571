"""The columns of a DataFrame that become vectors of a new dataset, and their sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

import pyarrow as pa

from trilake.errors import InvalidArgumentError, SchemaMismatchError
from trilake.spark.lance.ml_vectors import ML_VECTOR

_KINDS = {"float": pa.float32(), "double": pa.float64()}


@dataclass(frozen=True)
class Vectors:
    """The columns that become vectors, with their sizes (``None`` for the size in the first row), the type of their
    numbers (``None`` for floats, or for doubles from Spark ML), and those that are vectors of Spark ML."""

    sizes: Mapping[str, int | None] = field(default_factory=dict)
    kind: str | None = None
    ml: tuple[str, ...] = ()

    @classmethod
    def of(cls, sizes: str | None = None, kind: str | None = None) -> Vectors:
        """Parse the options ``vectors`` and ``vectorType``.  Raises ``InvalidArgumentError``."""
        if kind is not None and kind not in _KINDS:
            raise InvalidArgumentError(f"option vectorType must be float or double, got {kind!r}")
        return cls(vector_sizes(sizes), kind)

    def and_ml(self, ml: Mapping[str, int | None], schema: pa.Schema) -> Vectors:
        """The same, with columns that are vectors of Spark ML, and the sizes in their metadata.  Raises
        ``InvalidArgumentError`` if the option names a column that is not an array."""
        for name in self.sizes:
            i = schema.get_field_index(name)
            if i < 0 or not pa.types.is_list(schema.field(i).type):
                raise InvalidArgumentError(f"option vectors names {name!r}, which is not an array column", column=name)
        sizes = dict(self.sizes)
        for name, size in ml.items():
            sizes[name] = sizes.get(name) or size
        return replace(self, sizes=sizes, ml=tuple(ml))

    @property
    def unsized(self) -> list[str]:
        return [name for name, size in self.sizes.items() if size is None]

    def sizes_in(self, batches: Iterator[pa.RecordBatch]) -> tuple[dict[str, int], Iterator[pa.RecordBatch]]:
        """The sizes of the rows' vectors, read until each column has one, and all rows again.  Raises
        ``SchemaMismatchError`` for a column with rows but no vector."""
        pending: list[pa.RecordBatch] = []
        sizes: dict[str, int] = {}
        missing = self.unsized
        while missing and (batch := next(batches, None)) is not None:
            pending.append(batch)
            for name in missing:
                lengths = batch.column(batch.schema.get_field_index(name)).value_lengths().drop_null()
                if len(lengths):
                    sizes[name] = lengths[0].as_py()
            missing = [name for name in missing if name not in sizes]
        if missing and any(b.num_rows for b in pending):
            raise self._unknown(missing[0])
        return sizes, chain(pending, batches)

    def common_sizes(self, by_task: Iterable[Mapping[str, int]]) -> dict[str, int]:
        """The sizes from all tasks.  Raises ``SchemaMismatchError`` if they differ, or no task had rows."""
        result: dict[str, int] = {}
        for sizes in by_task:
            for name, size in sizes.items():
                if result.setdefault(name, size) != size:
                    raise SchemaMismatchError(
                        f"vectors have different sizes, {result[name]} and {size}",
                        help="write vectors of one size",
                        column=name,
                    )
        missing = [name for name in self.unsized if name not in result]
        if missing:
            raise self._unknown(missing[0])
        return result

    def _unknown(self, name: str) -> SchemaMismatchError:
        return SchemaMismatchError(
            "the size of the vectors is unknown, because no row has a vector",
            help=f'pass the option vectors, as "{name}:128"',
            column=name,
        )


def vector_sizes(value: str | None) -> dict[str, int | None]:
    """The sizes of vectors by column, ``None`` if not given.  Raises ``InvalidArgumentError``.

    >>> vector_sizes("v:128, w")
    {'v': 128, 'w': None}
    """
    sizes: dict[str, int | None] = {}
    for part in (value or "").split(","):
        if part.strip():
            name, colon, size = part.strip().rpartition(":")
            if not colon:
                name, size = size, ""
            if not name or (colon and (not size.strip().isdigit() or int(size) < 1)):
                raise InvalidArgumentError(f"option vectors must have the form 'column:size, …', got {value!r}")
            sizes[name.strip()] = int(size) if colon else None
    return sizes


def with_vectors(schema: pa.Schema, vectors: Vectors, sizes: Mapping[str, int]) -> pa.Schema:
    """The schema with array columns as vectors; ``sizes`` has the sizes that ``vectors`` lacks."""
    for name, stated in vectors.sizes.items():
        size = stated if stated is not None else sizes[name]
        if size < 1:
            raise SchemaMismatchError("vectors must have at least one element, got 0", column=name)
        i = schema.get_field_index(name)
        is_ml = name in vectors.ml
        kind = _KINDS[vectors.kind or ("double" if is_ml else "float")]
        metadata = {ML_VECTOR: b"true"} if is_ml else None
        schema = schema.set(i, pa.field(name, pa.list_(kind, size), schema.field(i).nullable, metadata))
    return schema
