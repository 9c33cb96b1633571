"""``TableDiff``: the differences between two tables, as frozen values with JSON, Arrow and notebook forms."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from trilake.errors import masked

#: Kinds of column changes.
ColumnChangeKind: TypeAlias = Literal["added", "removed", "type", "nullability", "metadata", "position"]


@dataclass(frozen=True)
class Side:
    """Location and version of one of the two tables."""

    uri: str
    format: str
    version: int | None

    def to_dict(self) -> dict[str, Any]:
        return {"uri": masked(self.uri), "format": self.format, "version": self.version}

    def __str__(self) -> str:
        return f"{self.format} {masked(self.uri)}" + ("" if self.version is None else f" version {self.version}")


@dataclass(frozen=True)
class ColumnChange:
    """One change of a column; ``before`` and ``after`` are ``None`` where the column does not exist."""

    column: str
    kind: ColumnChangeKind
    before: str | None
    after: str | None

    def to_dict(self) -> dict[str, Any]:
        return {"column": self.column, "kind": self.kind, "before": self.before, "after": self.after}


@dataclass(frozen=True)
class PropertyChange:
    """One changed table property; ``None`` where it is not set."""

    key: str
    before: str | None
    after: str | None

    def to_dict(self) -> dict[str, Any]:
        return {"key": self.key, "before": self.before, "after": self.after}


@dataclass(frozen=True)
class FilesDiff:
    """Data files on one side only; ``same`` counts files of both sides with the same deleted rows.

    ``added`` and ``removed`` have ``path``, ``size``, ``num_records`` and ``deletion_vector`` (a string that
    identifies it).
    """

    added: pa.Table
    removed: pa.Table
    same: int

    def to_dict(self) -> dict[str, Any]:
        return {"added": self.added.to_pylist(), "removed": self.removed.to_pylist(), "same": self.same}


@dataclass(frozen=True)
class RowsDiff:
    """How many rows differ, with examples.

    Parameters
    ----------
    key: the columns by which rows were matched; empty where whole rows were compared.
    added, removed: number of rows that only the newer or the older side has.
    changed: number of rows with the same key and other differences; 0 without a key.
    same: number of rows that both sides have.
    added_rows, removed_rows: some of these rows.
    changed_rows: some changed rows, before and after, marked by ``_side`` (``"before"`` or ``"after"``).
    columns_changed: the number of changed rows in which each column differs.
    columns: the columns that were compared.
    """

    key: tuple[str, ...]
    added: int
    removed: int
    changed: int
    same: int
    added_rows: pa.Table
    removed_rows: pa.Table
    changed_rows: pa.Table
    columns_changed: Mapping[str, int]
    columns: tuple[str, ...]

    @property
    def equal(self) -> bool:
        return not (self.added or self.removed or self.changed)

    def to_dict(self) -> dict[str, Any]:
        return {
            "key": list(self.key),
            "columns": list(self.columns),
            "added": self.added,
            "removed": self.removed,
            "changed": self.changed,
            "same": self.same,
            "columns_changed": dict(self.columns_changed),
            "added_rows": self.added_rows.to_pylist(),
            "removed_rows": self.removed_rows.to_pylist(),
            "changed_rows": self.changed_rows.to_pylist(),
        }


@dataclass(frozen=True)
class TableDiff:
    """The differences between two tables; ``rows`` is ``None`` where rows were not compared.

    >>> import trilake
    >>> _ = trilake.write({"n": [1, 2]}, "memory://doc-diff-one")
    >>> _ = trilake.write({"n": [1, 3]}, "memory://doc-diff-other")
    >>> diff = trilake.diff("memory://doc-diff-one", "memory://doc-diff-other")
    >>> diff.equal, diff.rows.added, diff.rows.removed, diff.to_dict()["equal"], diff.to_json()[:1]
    (False, 1, 1, False, '{')
    """

    before: Side
    after: Side
    schema: tuple[ColumnChange, ...]
    properties: tuple[PropertyChange, ...]
    files: FilesDiff
    rows: RowsDiff | None

    @property
    def equal(self) -> bool:
        """Whether schema, properties and rows are equal; files may differ."""
        return not self.schema and not self.properties and (self.rows is None or self.rows.equal)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "equal": self.equal,
            "schema": [c.to_dict() for c in self.schema],
            "properties": [p.to_dict() for p in self.properties],
            "files": self.files.to_dict(),
            "rows": None if self.rows is None else self.rows.to_dict(),
        }

    def to_json(self) -> str:
        """Everything as one JSON object; values without a JSON form become strings."""
        return json.dumps(self.to_dict(), default=str, ensure_ascii=False)

    def _lines(self) -> list[tuple[str, str]]:
        out = [("column", f"{c.column}: {c.kind}: {c.before or '-'} -> {c.after or '-'}") for c in self.schema]
        out += [("property", f"{p.key}: {p.before or '-'} -> {p.after or '-'}") for p in self.properties]
        f = self.files
        out.append(("files", f"{f.added.num_rows:,} added, {f.removed.num_rows:,} removed, {f.same:,} the same"))
        if self.rows is not None:
            r = self.rows
            by = f" by {', '.join(r.key)}" if r.key else ""
            changed = f", {r.changed:,} changed" if r.key else ""
            out.append(("rows", f"{r.added:,} added, {r.removed:,} removed{changed}, {r.same:,} the same{by}"))
            out += [("changed", f"{name}: in {n:,} rows") for name, n in r.columns_changed.items() if n]
        return out

    def __str__(self) -> str:
        return "\n".join([f"{self.before} -> {self.after}", *(f"{kind}: {line}" for kind, line in self._lines())])

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><td>{kind}</td><td>{html.escape(line)}</td></tr>" for kind, line in self._lines())
        head = html.escape(f"{self.before} → {self.after}")
        return f"<div><b>{head}</b><table><tbody>{rows}</tbody></table></div>"
