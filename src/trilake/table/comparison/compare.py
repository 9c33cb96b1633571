"""Compare two open tables, for ``Table.diff`` and ``trilake.diff``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.arguments import count
from trilake.errors import InvalidArgumentError
from trilake.table.comparison.result import ColumnChange, FilesDiff, PropertyChange, RowsDiff, Side, TableDiff


class Comparable(Protocol):
    """The part of a table's interface that a comparison uses."""

    format: str
    uri: str

    @property
    def version(self) -> int | None:
        """The version, if the format has versions."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""

    @property
    def properties(self) -> Mapping[str, str]:
        """Table properties."""

    def files(self, filter: Any = None) -> pa.Table:
        """One row per data file."""

    def to_batches(self, columns: Sequence[str] | None = None, filter: Any = None) -> Iterator[pa.RecordBatch]:
        """The rows."""


def compare(
    before: Comparable,
    after: Comparable,
    *,
    key: str | Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    filter: Any = None,
    rows: bool = True,
    limit: int = 20,
) -> TableDiff:
    """Compare two tables; see :meth:`trilake.table.table.Table.diff`."""
    limit = count("limit", limit)
    if not hasattr(after, "to_batches"):
        raise InvalidArgumentError(f"other must be an open table, got {after!r:.80}", help="open it with trilake.open")
    if columns is not None and not tuple(columns):
        raise InvalidArgumentError(
            "columns must not be empty", help="leave it out, or pass rows=False to compare no rows"
        )
    if not rows and (key is not None or columns is not None):
        raise InvalidArgumentError("key and columns have no effect with rows=False", help="leave them out")
    keys = () if key is None else (key,) if isinstance(key, str) else tuple(key)
    old, new = before.properties, after.properties
    return TableDiff(
        Side(before.uri, before.format, before.version),
        Side(after.uri, after.format, after.version),
        _schema_changes(before.schema, after.schema),
        tuple(
            PropertyChange(k, old.get(k), new.get(k))
            for k in sorted(old.keys() | new.keys())
            if old.get(k) != new.get(k)
        ),
        _files(before.files(filter), after.files(filter)),
        _rows(before, after, keys, columns, filter, limit) if rows else None,
    )


def _schema_changes(before: pa.Schema, after: pa.Schema) -> tuple[ColumnChange, ...]:
    old, new = ({f.name: f for f in s} for s in (before, after))
    out = [ColumnChange(n, "removed", str(f.type), None) for n, f in old.items() if n not in new]
    for name, f in new.items():
        was = old.get(name)
        if was is None:
            out.append(ColumnChange(name, "added", None, str(f.type)))
            continue
        if was.type != f.type:
            out.append(ColumnChange(name, "type", str(was.type), str(f.type)))
        if was.nullable != f.nullable:
            states = ("nullable" if field.nullable else "not null" for field in (was, f))
            out.append(ColumnChange(name, "nullability", *states))
        if (was.metadata or {}) != (f.metadata or {}):
            out.append(ColumnChange(name, "metadata", _metadata(was), _metadata(f)))
    shared = [[n for n in s.names if n in old and n in new] for s in (before, after)]
    out += [
        ColumnChange(n, "position", str(shared[0].index(n)), str(i))
        for i, n in enumerate(shared[1])
        if shared[0][i] != n
    ]
    return tuple(out)


def _metadata(field: pa.Field) -> str:
    pairs = sorted((field.metadata or {}).items())
    return ", ".join(f"{k.decode(errors='replace')}={v.decode(errors='replace')}" for k, v in pairs)


def _identified(files: pa.Table) -> pa.Table:
    """Files, and strings that identify their deleted rows."""
    vectors = files["deletion_vector"]
    if pa.types.is_struct(vectors.type):
        names = [f.name for f in vectors.type]
        parts = [pc.fill_null(pc.struct_field(vectors, n).cast(pa.string()), "") for n in names]
        identifiers = pc.binary_join_element_wise(*parts, ":")
        vectors = pc.if_else(pc.is_valid(vectors), identifiers, pa.scalar(None, pa.string()))
    return files.select(["path", "size", "num_records"]).append_column("deletion_vector", vectors.cast(pa.string()))


def _files(before: pa.Table, after: pa.Table) -> FilesDiff:
    old, new = _identified(before), _identified(after)
    keys = [pc.binary_join_element_wise(t["path"], pc.fill_null(t["deletion_vector"], ""), "\x00") for t in (old, new)]
    common = [pc.is_in(keys[i], pc.unique(keys[1 - i])) for i in (0, 1)]
    same = int(pc.sum(common[1]).as_py() or 0)
    return FilesDiff(new.filter(pc.invert(common[1])), old.filter(pc.invert(common[0])), same)


def _rows(
    before: Comparable, after: Comparable, key: tuple[str, ...], columns: Sequence[str] | None, filter: Any, limit: int
) -> RowsDiff:
    from trilake.table.comparison.rows import compare_rows  # late: hashes load kernels

    shared = [n for n in before.schema.names if n in set(after.schema.names)]
    selection = shared if columns is None else list(dict.fromkeys([*key, *columns]))
    unknown = [c for c in dict.fromkeys([*key, *selection]) if c not in set(shared)]
    if unknown:
        raise InvalidArgumentError(
            f"column {', '.join(map(repr, unknown))} is not in both tables",
            help=f"the common columns are {', '.join(shared) or 'none'}",
        )
    return compare_rows(
        lambda: before.to_batches(selection, filter), lambda: after.to_batches(selection, filter), selection, key, limit
    )
