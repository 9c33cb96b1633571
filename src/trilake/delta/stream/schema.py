"""Whether a stream may continue after a change of its source's columns.

A stream declares its columns once.  It can read older files if every column is unchanged, widened or new.  A newer
schema must be equal: an extra column would be dropped silently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.schema import DataType, StructField, StructType, all_nullable, paired
from trilake.delta.protocol.type_widening import can_widen
from trilake.delta.stream.errors import StreamSchemaChangedError, StreamSchemaIncompatibleError
from trilake.errors import TrilakeError


@dataclass(frozen=True)
class Reading:
    """The declared columns of a stream: those of the table at ``version``, or the subset ``columns``."""

    metadata: Metadata
    version: int
    columns: tuple[str, ...] | None = None

    def fields(self) -> list[StructField]:
        schema = self.metadata.schema
        return list(schema.fields) if self.columns is None else [schema.field(c) for c in self.columns]

    def check(self, other: Metadata, version: int, *, uri: str) -> TrilakeError | None:
        """Why the stream cannot read files written under ``other``, the metadata from ``version`` on; ``None`` if it
        can.
        """
        later = version > self.version
        unreadable = None if later else _fits_struct(other.schema.fields, self.fields())
        problem = self._differs(other) if later else unreadable or self._partitioning(other)
        if problem is None:
            return None
        if later:
            return StreamSchemaChangedError(
                f"the source's schema changed while it was being read: {problem}",
                file=uri,
                version=version,
                condition="DELTA_SCHEMA_CHANGED_WITH_VERSION",
            )
        return StreamSchemaIncompatibleError(
            f"files from version {version} on cannot be read with the source's columns: {problem}",
            file=uri,
            version=version,
            condition="DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE_USE_SCHEMA_LOG",
        )

    def _differs(self, other: Metadata) -> str | None:
        for f in self.fields():
            now = other.schema.find(f.name)
            if now is None:
                return f"column {f.name} was dropped or renamed"
            if now.name != f.name or now.physical_name != f.physical_name:
                return f"column {f.name} was replaced by another one, {now.name}"
            if all_nullable(now.type) != all_nullable(f.type) and not _equal(f.type, now.type):
                return f"column {f.name} was {f.type} and is {now.type}"
        if self.columns is None:
            new = [f.name for f in other.schema.fields if self.metadata.schema.find(f.name) is None]
            if new:
                return f"column {new[0]} was added" if len(new) == 1 else f"columns {', '.join(new)} were added"
        return self._partitioning(other)

    def _partitioning(self, other: Metadata) -> str | None:
        physical = [{m.schema.field(c).physical_name for c in m.partition_columns} for m in (self.metadata, other)]
        if physical[0] != physical[1]:
            before, after = self.metadata.partition_columns, other.partition_columns
            return f"the table is partitioned by {list(before)} in one version and by {list(after)} in another"
        if self.metadata.provider.lower() != other.provider.lower():
            return f"data files are {self.metadata.provider} in one version and {other.provider} in another"
        return None


def _equal(a: DataType, b: DataType) -> bool:
    """Whether two types are equal, ignoring comments and nullability."""
    if not all_nullable(a).arrow.equals(all_nullable(b).arrow):
        return False
    return _fits(a, b, widen=False) is None and _fits(b, a, widen=False) is None


def _fits_struct(old: Sequence[StructField], new: Sequence[StructField], *, widen: bool = True) -> str | None:
    names = {f.name.lower() for f in old}
    by_physical = {f.physical_name: f for f in old}
    for f in new:
        same = by_physical.get(f.physical_name)
        if same is None:
            if f.name.lower() in names:
                return f"column {f.name} is a different column of the same name"
            continue  # the older files lack this column: it reads as null
        problem = _fits(same.type, f.type, widen=widen)
        if problem is not None:
            return f"column {f.name}: {problem}"
    return None


def _fits(old: DataType, new: DataType, *, widen: bool = True) -> str | None:
    if isinstance(old, StructType) and isinstance(new, StructType):
        return _fits_struct(old.fields, new.fields, widen=widen)
    inside = paired(old, new)
    if inside is not None:
        return next((reason for _, a, b in inside if (reason := _fits(a, b, widen=widen))), None)
    if old == new or (widen and can_widen(old, new)):
        return None
    return f"its type was {old} and is {new}"
