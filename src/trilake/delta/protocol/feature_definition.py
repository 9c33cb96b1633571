"""``Feature``: a table feature as data: its protocol versions, what requires it, its properties, and how to drop it.

Protocol: *Table Features*.  Each file of :mod:`trilake.delta.protocol.table_features` exports one feature, and
:mod:`trilake.delta.protocol.features` lists them.  No other code names a feature to decide whether a table can be read
or written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from trilake.common.text import plural
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.property_values import Property, is_on
from trilake.delta.protocol.schema import StructField, contains_type
from trilake.delta.protocol.schema_edit import nested_fields

#: Positions of files in a snapshot.
Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


class Inspection(Protocol):
    """What the removal of a feature may inspect: a table at one version."""

    @property
    def adds(self) -> pa.Table:
        """One row per logical file, with the fields of the ``add`` action."""

    @property
    def metadata(self) -> Metadata:
        """The current metaData action."""

    @property
    def domains(self) -> Mapping[str, Mapping[str, Any]]:
        """The metadata domains, including removed ones."""

    def checkpoint_keys(self) -> Sequence[str]:
        """The files of all checkpoints in the log."""

    def oldest_version(self) -> int:
        """The oldest version that the log can reconstruct."""

    def may_hold_dropped_columns(self) -> bool:
        """Whether files may still hold values of dropped columns."""

    def files_of_other_types(self) -> Numbers:
        """The files whose footers have types other than the current ones of the table's columns."""


@dataclass(frozen=True)
class Trace:
    """Something that still uses a feature, and what to do about it.

    ``rewrite`` indicates whether rewriting the ``rewritten`` files removes it; ``condition`` is delta-spark's error
    condition.
    """

    what: str
    help: str = "rewrite those files"
    rewrite: bool = False
    condition: str = "DELTA_FEATURE_DROP_NONREMOVABLE_FEATURE"


@dataclass(frozen=True)
class Past:
    """What may use a feature in a state or in some commits: metadata, and added or removed files."""

    metadatas: tuple[Metadata, ...]
    files: tuple[pa.Table, ...]


def _no_trace(_: Inspection) -> Trace | None:
    return None


@dataclass(frozen=True)
class FeatureRemoval:
    """How to drop a feature.

    ``properties`` enable it; by default those of the feature.  ``metadata`` removes what else the feature left there,
    once ``in_use`` shows that this is harmless.  ``in_past`` checks whether older versions use the feature; ``None`` if
    they do not matter.  ``in_log`` indicates that ``in_use`` depends on how far back the log goes.  ``domains`` are
    removed with it, and files are added again without ``fields``.  ``rewritten`` selects the files to rewrite if the
    feature is in use; with ``renames``, they are written for the metadata without the feature, which their commit sets.
    """

    properties: tuple[str, ...] | None = None
    in_use: Callable[[Inspection], Trace | None] = _no_trace
    metadata: Callable[[Metadata], Metadata] = lambda m: m
    in_past: Callable[[Past], bool] | None = None
    in_log: bool = False
    domains: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    rewritten: Callable[[Inspection], Numbers] | None = None
    renames: bool = False


def never(_: Metadata) -> bool:
    """Whether metadata requires the feature: it never does."""
    return False


@dataclass(frozen=True)
class Feature:
    """A table feature."""

    name: str
    #: The reader version that implies it; ``3`` for a feature that must be listed, ``None`` for a writer feature.
    reader: int | None
    #: The writer version that implies it; ``7`` for a feature that must be listed.
    writer: int
    #: Whether trilake reads and writes tables with it.
    reads: bool = True
    writes: bool = True
    #: Whether a table with this metadata requires the feature.
    active: Callable[[Metadata], bool] = never
    #: Features that it depends on.
    needs: tuple[str, ...] = ()
    #: An older name of the feature that tables may have.
    also: str | None = None
    #: The feature's table properties.
    properties: tuple[Property, ...] = ()
    #: How to drop it; ``None`` if that is impossible.
    removal: FeatureRemoval | None = FeatureRemoval()
    #: Whether commits that were prepared before another commit added the feature stay valid after it.
    late: bool = False
    #: What a table with this unsupported feature needs.
    help: str = ""

    @property
    def legacy(self) -> bool:
        """Whether a protocol version without table features implies it."""
        return self.writer < 7

    @property
    def of_readers(self) -> bool:
        """Whether it is a reader feature."""
        return self.reader is not None

    def turned_off(self, metadata: Metadata) -> Metadata:
        """The metadata without the properties that enable it."""
        properties = None if self.removal is None else self.removal.properties
        keys = tuple(p.name for p in self.properties) if properties is None else properties
        remaining = {k: v for k, v in metadata.configuration.items() if k not in keys}
        return metadata if remaining == metadata.configuration else replace(metadata, configuration=remaining)


# --- building blocks -------------------------------------------------------------------------------------------------


def property_is_on(key: str) -> Callable[[Metadata], bool]:
    """Require a feature if a property is ``true``."""
    return lambda m: is_on(m.configuration, key)


def has_type(name: str) -> Callable[[Metadata], bool]:
    """Require a feature if a column is, or contains, a type."""
    return lambda m: contains_type(m.schema, name)


def metadata_in_past(test: Callable[[Metadata], bool]) -> Callable[[Past], bool]:
    """Look for a feature in the metadata of older versions."""
    return lambda past: any(test(m) for m in past.metadatas)


def files_in_use(files: Callable[[Inspection], Numbers], what: str) -> Callable[[Inspection], Trace | None]:
    """Look for files that must be rewritten without the feature."""

    def check(table: Inspection) -> Trace | None:
        number = len(files(table))
        return Trace(f"{plural(number, 'file has', 'files have')} {what}", rewrite=True) if number else None

    return check


def feature_of_keys(
    name: str, writer: int, prefix: str, what: str, help: str, *, nullable: bool | None = None
) -> Feature:
    """A feature of the columns whose metadata has a key with this prefix; their nullability may use it, too."""

    def has_key(f: StructField) -> bool:
        return any(k.startswith(prefix) for k in f.metadata)

    def in_use(table: Inspection) -> Trace | None:
        fields = nested_fields(table.metadata.schema)
        names = [f.name for f in fields if has_key(f) or f.nullable is nullable]
        return Trace(f"{what}: {', '.join(names)}", help) if names else None

    def active(metadata: Metadata) -> bool:
        return any(map(has_key, nested_fields(metadata.schema)))

    return Feature(name, None, writer, active=active, removal=FeatureRemoval(in_use=in_use))


def feature_of_type(name: str, type_: str, **more: Any) -> Feature:
    """A feature of the columns that are, or contain, a type."""

    def in_use(table: Inspection) -> Trace | None:
        names = [f.name for f in table.metadata.schema.fields if contains_type(f.type, type_)]
        return Trace(f"columns are of type {type_}: {', '.join(names)}", "drop those columns first") if names else None

    active = has_type(type_)
    removal = FeatureRemoval(in_use=in_use, in_past=metadata_in_past(active))
    return Feature(name, 3, 7, active=active, removal=removal, **more)
