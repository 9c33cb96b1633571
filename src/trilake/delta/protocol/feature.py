"""``Feature``: a table feature as one row: which protocols have it, what asks for it, its properties, how it goes.

Protocol: *Table Features*.  A row is exported by a file of :mod:`trilake.delta.protocol.table_features` and listed in
:mod:`trilake.delta.protocol.features`; nothing else in the package names a feature to know whether a table may be read,
written, given it or rid of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.all_fields import nested_fields
from trilake.delta.protocol.property_values import Property, is_on
from trilake.delta.protocol.schema import contains_type

#: Positions of files in a snapshot.
Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


class Inspection(Protocol):
    """What the removal of a feature may ask of a table at one version."""

    @property
    def adds(self) -> pa.Table:
        """One row a logical file, with the fields of the ``add`` action."""

    @property
    def metadata(self) -> Metadata:
        """The metaData action in force."""

    @property
    def domains(self) -> Mapping[str, Mapping[str, Any]]:
        """The metadata domains, removed ones included."""

    def checkpoint_keys(self) -> Sequence[str]:
        """The files of all checkpoints in the log."""

    def oldest_version(self) -> int:
        """The oldest version that the log can still make up."""

    def may_hold_dropped_columns(self) -> bool:
        """Whether columns were dropped that files may still have."""

    def files_of_other_types(self) -> Numbers:
        """The files that hold other types than their columns have now, as their footers say."""


@dataclass(frozen=True)
class Trace:
    """Something that still uses a feature, and what to do about it.

    ``rewrite`` says that the removal can do it itself, by writing the row's ``rewritten`` files again; ``condition`` is
    what delta-spark calls the refusal, which most often knows no way to drop the feature.
    """

    what: str
    help: str = "write those files again"
    rewrite: bool = False
    condition: str = "DELTA_FEATURE_DROP_NONREMOVABLE_FEATURE"


@dataclass(frozen=True)
class Past:
    """What a state, or some commits, say that may use a feature: metadata, and files added or removed."""

    metadatas: tuple[Metadata, ...]
    files: tuple[pa.Table, ...]


def _no_trace(_: Inspection) -> Trace | None:
    return None


@dataclass(frozen=True)
class FeatureRemoval:
    """How a feature leaves a table.

    ``properties`` turn it off when they are gone; by default those of the feature.  ``metadata`` takes away what else
    it left there, which the check for ``in_use`` has found to be harmless.  ``in_past`` says of older versions whether
    they use the feature; ``None`` where they do not matter.  ``domains`` are removed with it, and files are added again
    without ``fields``.  ``rewritten`` names the files that must be written again where the feature is in use; with
    ``renames`` they are written for the metadata without it, which their commit sets.
    """

    properties: tuple[str, ...] | None = None
    in_use: Callable[[Inspection], Trace | None] = _no_trace
    metadata: Callable[[Metadata], Metadata] = lambda m: m
    in_past: Callable[[Past], bool] | None = None
    domains: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    rewritten: Callable[[Inspection], Numbers] | None = None
    renames: bool = False


def never(_: Metadata) -> bool:
    """No metadata asks for the feature."""
    return False


@dataclass(frozen=True)
class Feature:
    """A row of the registry."""

    name: str
    #: Reader version that implies it, ``3`` for a feature by name only, ``None`` where readers need not know it.
    reader: int | None
    #: Writer version that implies it; ``7`` for a feature by name only.
    writer: int
    #: Whether tables with it are read here, and written.
    reads: bool = True
    writes: bool = True
    #: Whether a table with this metadata uses the feature, and so must have it.
    active: Callable[[Metadata], bool] = never
    #: Features that it cannot do without.
    needs: tuple[str, ...] = ()
    #: An older name of the feature under which a table may have it as well.
    also: str | None = None
    #: Table properties that come with it.
    properties: tuple[Property, ...] = ()
    #: How a table is rid of it; ``None`` where that cannot be.
    removal: FeatureRemoval | None = FeatureRemoval()
    #: What a table with the feature needs, where it is not read or not written here.
    help: str = ""

    @property
    def legacy(self) -> bool:
        """Whether a protocol version below table features implies it."""
        return self.writer < 7

    @property
    def of_readers(self) -> bool:
        """Whether readers must know it."""
        return self.reader is not None

    def turned_off(self, metadata: Metadata) -> Metadata:
        """The metadata without the properties that turn it on."""
        named = None if self.removal is None else self.removal.properties
        keys = tuple(p.name for p in self.properties) if named is None else named
        left = {k: v for k, v in metadata.configuration.items() if k not in keys}
        return metadata if left == metadata.configuration else replace(metadata, configuration=left)


# --- what rows are made of -------------------------------------------------------------------------------------------


def property_is_on(key: str) -> Callable[[Metadata], bool]:
    """Asks for a feature where a property is ``true``."""
    return lambda m: is_on(m.configuration, key)


def has_column_key(prefix: str) -> Callable[[Metadata], bool]:
    """Asks for a feature where the metadata of a column has a key that begins so."""
    return lambda m: any(k.startswith(prefix) for f in nested_fields(m.schema) for k in f.metadata)


def has_type(name: str) -> Callable[[Metadata], bool]:
    """Asks for a feature where a column is, or holds, a type."""
    return lambda m: contains_type(m.schema, name)


def metadata_in_past(test: Callable[[Metadata], bool]) -> Callable[[Past], bool]:
    """Looks for a feature in the metadata of older versions."""
    return lambda past: any(test(m) for m in past.metadatas)


def columns_in_use(
    test: Callable[[Mapping[str, Any]], bool], what: str, help: str, *, nullable: bool | None = None
) -> Callable[[Inspection], Trace | None]:
    """Looks for columns whose metadata, or nullability, uses a feature."""

    def check(table: Inspection) -> Trace | None:
        schema = table.metadata.schema
        names = [f.name for f in nested_fields(schema) if test(f.metadata) or f.nullable is nullable]
        return Trace(f"{what}: {', '.join(names)}", help) if names else None

    return check


def type_in_use(name: str) -> Callable[[Inspection], Trace | None]:
    """Looks for columns that are of, or hold, a type."""

    def check(table: Inspection) -> Trace | None:
        names = [f.name for f in table.metadata.schema.fields if contains_type(f.type, name)]
        return Trace(f"columns are of type {name}: {', '.join(names)}", "drop those columns first") if names else None

    return check
