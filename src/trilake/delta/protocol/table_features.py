"""Every table feature as data: its protocol versions, what requires it, its properties, and how to drop it.

Protocol: *Table Features*.  A new feature is one row of :data:`REGISTRY`; no other code names a feature to decide
whether a table can be read or written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.protocol import in_commit_timestamps, type_widening
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.column_mapping import FORBIDDEN, MAX_COLUMN_ID, MODE, MODES
from trilake.delta.protocol.iceberg import ENABLED as ICEBERG_COMPAT
from trilake.delta.protocol.iceberg import MATERIALIZED, without_uniform
from trilake.delta.protocol.property_values import Property, boolean, choice, integer, is_on, text
from trilake.delta.protocol.schema import contains_type, is_spatial, types_in
from trilake.delta.protocol.schema_edit import nested_fields, strip

APPEND_ONLY, CHANGE_DATA_FEED = "delta.appendOnly", "delta.enableChangeDataFeed"
DELETION_VECTORS, ROW_TRACKING = "delta.enableDeletionVectors", "delta.enableRowTracking"
VARIANT_SHREDDING, CHECKPOINT_POLICY = "delta.enableVariantShredding", "delta.checkpointPolicy"
CHECKPOINT_PROTECTION = "delta.requireCheckpointProtectionBeforeVersion"
CONSTRAINTS = "delta.constraints."
_DEFAULT, _GENERATION = "CURRENT_DEFAULT", "delta.generationExpression"
_IDENTITY, _INVARIANTS = "delta.identity.", "delta.invariants"

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
        """Whether columns were dropped whose values files may still hold."""

    def files_of_other_types(self) -> Numbers:
        """The files whose footers have other types than the table's columns now have."""


@dataclass(frozen=True)
class Trace:
    """Something that still uses a feature, what to do, and delta-spark's error ``condition``.

    ``rewrite`` says whether rewriting the ``rewritten`` files removes it.
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


@dataclass(frozen=True)
class FeatureRemoval:
    """How to drop a feature.

    ``properties`` enable it; by default those of the feature.  ``metadata`` removes what else the feature left there,
    after ``in_use`` has found that harmless.  ``in_past`` checks whether older versions use the feature; ``None`` if
    they do not matter.  ``domains`` are removed with it, and files are added again without ``fields``.  ``rewritten``
    selects the files to rewrite if the feature is in use; with ``renames``, they are written for the metadata without
    the feature, which their commit sets.
    """

    properties: tuple[str, ...] | None = None
    in_use: Callable[[Inspection], Trace | None] = lambda _: None
    metadata: Callable[[Metadata], Metadata] = lambda m: m
    in_past: Callable[[Past], bool] | None = None
    domains: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    rewritten: Callable[[Inspection], Numbers] | None = None
    renames: bool = False


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
    active: Callable[[Metadata], bool] = lambda _: False
    #: Features that it depends on.
    needs: tuple[str, ...] = ()
    #: An older name of the feature that tables may have.
    also: str | None = None
    #: The feature's table properties.
    properties: tuple[Property, ...] = ()
    #: How to drop it; ``None`` if that is impossible.
    removal: FeatureRemoval | None = FeatureRemoval()
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


# --- what requires a feature, and what uses it -----------------------------------------------------------------------


def property_is_on(key: str) -> Callable[[Metadata], bool]:
    """Require a feature if a property is ``true``."""
    return lambda m: is_on(m.configuration, key)


def _has_column_key(prefix: str) -> Callable[[Metadata], bool]:
    return lambda m: any(k.startswith(prefix) for f in nested_fields(m.schema) for k in f.metadata)


def _has_type(name: str) -> Callable[[Metadata], bool]:
    return lambda m: contains_type(m.schema, name)


def _has_spatial(m: Metadata) -> bool:
    return any(is_spatial(str(inner)) for _, inner in types_in(m.schema))


def _is_mapped(metadata: Metadata) -> bool:
    return metadata.column_mapping_mode != "none"


def metadata_in_past(test: Callable[[Metadata], bool]) -> Callable[[Past], bool]:
    """Look for a feature in the metadata of older versions."""
    return lambda past: any(test(m) for m in past.metadatas)


def _columns_in_use(
    test: Callable[[Mapping[str, Any]], bool], what: str, help: str, *, nullable: bool | None = None
) -> FeatureRemoval:
    """Look for columns whose metadata, or nullability, uses a feature."""

    def check(table: Inspection) -> Trace | None:
        fields = nested_fields(table.metadata.schema)
        names = [f.name for f in fields if test(f.metadata) or f.nullable is nullable]
        return Trace(f"{what}: {', '.join(names)}", help) if names else None

    return FeatureRemoval(in_use=check)


def _type_in_use(name: str) -> FeatureRemoval:
    def check(table: Inspection) -> Trace | None:
        names = [f.name for f in table.metadata.schema.fields if contains_type(f.type, name)]
        return Trace(f"columns are of type {name}: {', '.join(names)}", "drop those columns first") if names else None

    return FeatureRemoval(in_use=check, in_past=metadata_in_past(_has_type(name)))


def _constraints_in_use(table: Inspection) -> Trace | None:
    names = [k.removeprefix(CONSTRAINTS) for k in sorted(table.metadata.configuration) if k.startswith(CONSTRAINTS)]
    what = f"the table has the CHECK constraints {', '.join(names)}"
    condition = "DELTA_CANNOT_DROP_CHECK_CONSTRAINT_FEATURE"
    return Trace(what, "drop them first", condition=condition) if names else None


def _protection_in_use(table: Inspection) -> Trace | None:
    before, oldest = int(table.metadata.configuration.get(CHECKPOINT_PROTECTION, "0") or 0), table.oldest_version()
    if oldest >= before:
        return None
    return Trace(
        f"versions before {before} are in the log, from {oldest} on",
        "wait until log cleanup has removed them",
        condition="DELTA_FEATURE_DROP_CHECKPOINT_PROTECTION_WAIT_FOR_RETENTION_PERIOD",
    )


def _mapping_in_use(table: Inspection) -> Trace | None:
    """Whether physical names differ from display names, or files hold dropped columns."""
    if not table.adds.num_rows:
        return None
    fields = nested_fields(table.metadata.schema)
    other = [f.name for f in fields if f.physical_name != f.name]
    odd = [f.name for f in fields if set(f.name) & set(FORBIDDEN)]
    if odd:
        return Trace(f"columns have names that need it: {', '.join(map(repr, odd))}", "rename these columns first")
    if not other and not table.may_hold_dropped_columns():
        return None
    what = "files may contain dropped columns"
    if other:
        what = f"files use other names for these columns: {', '.join(other)}"
    if is_on(table.metadata.configuration, CHANGE_DATA_FEED):
        # A change feed of older versions needs names that only these versions have.
        return Trace(what, f"turn the change data feed off first ({CHANGE_DATA_FEED}=false)")
    return Trace(what, rewrite=True)


def _without_mapping(metadata: Metadata) -> Metadata:
    remaining = {k: v for k, v in metadata.configuration.items() if k not in (MODE, MAX_COLUMN_ID)}
    return replace(metadata, schema_string=strip(metadata.schema).json(), configuration=remaining)


def _vectors_in(files: pa.Table) -> int:
    return len(files) - int(files["deletionVector"].null_count)


def _vectors_in_use(table: Inspection) -> Trace | None:
    number = _vectors_in(table.adds)
    return Trace(f"{number} files have deletion vectors", rewrite=True) if number else None


def _domains_in_use(table: Inspection) -> Trace | None:
    names = sorted(d for d, v in table.domains.items() if not v.get("removed"))
    help = "remove them with the engine that wrote them"
    return Trace(f"the table has the metadata domains {', '.join(names)}", help) if names else None


def _spatial_in_use(table: Inspection) -> Trace | None:
    fields = table.metadata.schema.fields
    names = [f.name for f in fields if any(is_spatial(str(inner)) for _, inner in types_in(f.type))]
    what = f"columns contain geometries or geographies: {', '.join(names)}"
    condition = "DELTA_CANNOT_DROP_GEOSPATIAL_FEATURE"
    return Trace(what, "drop those columns first", condition=condition) if names else None


def _is_parquet(table: Inspection) -> bool:
    return table.metadata.provider.lower() == "parquet"


def _narrow_files(table: Inspection) -> Numbers:
    """Files whose footers show that they were written before a column's type was widened."""
    widened = type_widening.has_type_changes(table.metadata.schema) and _is_parquet(table)
    return table.files_of_other_types() if widened else np.array([], dtype=np.int64)


def _widening_in_use(table: Inspection) -> Trace | None:
    if not type_widening.has_type_changes(table.metadata.schema) or not table.adds.num_rows:
        return None
    if not _is_parquet(table):
        return Trace("older files may have narrower types", "copy the rows into a new table")
    number = len(_narrow_files(table))
    return Trace(f"{number} files hold narrower types than their columns have now", rewrite=True) if number else None


def _shredded_files(table: Inspection) -> Numbers:
    has_variants = _has_type("variant")(table.metadata) and _is_parquet(table)
    return table.files_of_other_types() if has_variants else np.array([], dtype=np.int64)


def _shredding_in_use(table: Inspection) -> Trace | None:
    number = len(_shredded_files(table)) if table.adds.num_rows else 0
    what = f"{number} files hold shredded variants, or other types than the columns"
    return Trace(what, rewrite=True) if number else None


_V2_NAME = re.compile(r"\.checkpoint\.[0-9a-fA-F-]{36}\.(json|parquet)$")


def _v2_checkpoints_in_use(table: Inspection) -> Trace | None:
    """Readers without the feature cannot find v2 checkpoints by name."""
    names = [key for key in table.checkpoint_keys() if _V2_NAME.search(key)]
    help = "drop the feature again with truncate_history once log cleanup has removed them"
    return Trace(f"{len(names)} checkpoints of version 2 are in the log", help) if names else None


# --- the features ----------------------------------------------------------------------------------------------------


def _switch(
    name: str, reader: int | None, writer: int, key: str, default: str | None = "false", **more: Any
) -> Feature:
    """A feature that a boolean property turns on."""
    properties = (Property(key, default, boolean), *more.pop("properties", ()))
    return Feature(name, reader, writer, active=property_is_on(key), properties=properties, **more)


def _iceberg_compat(version: int, *needs: str) -> Feature:
    removal = FeatureRemoval(metadata=without_uniform)
    name, needed = f"icebergCompatV{version}", ("columnMapping", *needs)
    return _switch(name, None, 7, ICEBERG_COMPAT[version], None, needs=needed, removal=removal)


def _catalog_managed(name: str) -> Feature:
    """A catalog holds the newest commits of such a table; the file system may lack them."""
    help = (
        "a catalog manages the table's commits: use an engine that is connected to that catalog, or use that"
        " engine to copy the rows into a table without the feature"
    )
    needs = ("inCommitTimestamp", "vacuumProtocolCheck")
    return Feature(name, 3, 7, reads=False, writes=False, needs=needs, removal=None, help=help)


def _redirect(name: str, reader: int | None) -> Feature:
    """The table has moved; the property with the feature's name says where."""
    help = f"its files have moved: open the table that its property delta.{name} names"
    return Feature(name, reader, 7, reads=reader is None, writes=False, removal=None, help=help)


_NTZ, _VARIANT = _type_in_use("timestamp_ntz"), _type_in_use("variant")
_SPATIAL = FeatureRemoval(in_use=_spatial_in_use, in_past=metadata_in_past(_has_spatial))
_MAPPING = FeatureRemoval(
    properties=(),  # the commit of the rewritten files removes them
    in_use=_mapping_in_use,
    metadata=_without_mapping,
    in_past=metadata_in_past(_is_mapped),
    rewritten=lambda table: np.arange(table.adds.num_rows, dtype=np.int64),
    renames=True,
)
_VECTORS = FeatureRemoval(
    in_use=_vectors_in_use,
    in_past=lambda past: any(_vectors_in(files) > 0 for files in past.files),
    rewritten=lambda table: np.flatnonzero(np.asarray(pc.is_valid(table.adds["deletionVector"]))),
)
_WIDENING = FeatureRemoval(
    properties=(type_widening.ENABLED,),
    in_use=_widening_in_use,
    metadata=lambda m: replace(m, schema_string=type_widening.without_type_changes(m.schema).json()),
    in_past=metadata_in_past(lambda m: type_widening.has_type_changes(m.schema)),
    rewritten=_narrow_files,
)
_SHREDDING = FeatureRemoval(
    properties=(VARIANT_SHREDDING,),
    in_use=_shredding_in_use,
    in_past=metadata_in_past(property_is_on(VARIANT_SHREDDING)),
    rewritten=_shredded_files,
)
_MAPPING_PROPERTIES = (
    Property(MODE, "none", choice(*MODES)),
    Property(MAX_COLUMN_ID, "0", integer(0), set_by="column mapping itself"),
)
_TRACKING_PROPERTIES = (
    Property("delta.rowTracking.materializedRowCommitVersionColumnName", None, text, set_by="row tracking itself"),
    Property("delta.rowTracking.materializedRowIdColumnName", None, text, set_by="row tracking itself"),
    Property("delta.rowTrackingSuspended", "false", boolean),
)
_TIME_PROPERTIES = tuple(
    Property(key, None, integer(0), set_by="the commit that turns the feature on")
    for key in (in_commit_timestamps.SINCE_TIME, in_commit_timestamps.SINCE_VERSION)
)
_RULES_HELP = "make NOT NULL columns nullable first (ALTER COLUMN ... DROP NOT NULL), and drop columns with invariants"

REGISTRY: Mapping[str, Feature] = {
    f.name: f
    for f in (
        _switch("appendOnly", None, 2, APPEND_ONLY),
        Feature(
            "invariants",
            None,
            2,
            active=_has_column_key(_INVARIANTS),
            removal=_columns_in_use(lambda m: _INVARIANTS in m, "columns have rules", _RULES_HELP, nullable=False),
        ),
        Feature(
            "checkConstraints",
            None,
            3,
            active=lambda m: any(k.startswith(CONSTRAINTS) for k in m.configuration),
            removal=FeatureRemoval(in_use=_constraints_in_use),
        ),
        _switch("changeDataFeed", None, 4, CHANGE_DATA_FEED),
        Feature(
            "generatedColumns",
            None,
            4,
            active=_has_column_key(_GENERATION),
            removal=_columns_in_use(lambda m: _GENERATION in m, "columns are generated", "drop these columns first"),
        ),
        Feature("columnMapping", 2, 5, active=_is_mapped, properties=_MAPPING_PROPERTIES, removal=_MAPPING),
        Feature(
            "identityColumns",
            None,
            6,
            active=_has_column_key(_IDENTITY),
            removal=_columns_in_use(
                lambda m: f"{_IDENTITY}start" in m or f"{_IDENTITY}step" in m,
                "columns are identity columns",
                "drop these columns first",
            ),
        ),
        _switch("deletionVectors", 3, 7, DELETION_VECTORS, removal=_VECTORS),
        Feature("timestampNtz", 3, 7, active=_has_type("timestamp_ntz"), removal=_NTZ),
        Feature(
            "v2Checkpoint",
            3,
            7,
            active=lambda m: m.configuration.get(CHECKPOINT_POLICY) == "v2",
            properties=(Property(CHECKPOINT_POLICY, "classic", choice("classic", "v2")),),
            removal=FeatureRemoval(in_use=_v2_checkpoints_in_use, in_past=lambda _: False),
        ),
        Feature("domainMetadata", None, 7, removal=FeatureRemoval(in_use=_domains_in_use)),
        Feature("vacuumProtocolCheck", 3, 7),
        _switch(
            "rowTracking",
            None,
            7,
            ROW_TRACKING,
            needs=("domainMetadata",),
            properties=_TRACKING_PROPERTIES,
            removal=FeatureRemoval(domains=("delta.rowTracking",), fields=("baseRowId", "defaultRowCommitVersion")),
        ),
        _switch("typeWidening", 3, 7, type_widening.ENABLED, also="typeWidening-preview", removal=_WIDENING),
        Feature("typeWidening-preview", 3, 7, removal=_WIDENING),
        _switch("inCommitTimestamp", None, 7, in_commit_timestamps.ENABLED, properties=_TIME_PROPERTIES),
        Feature(
            "clustering", None, 7, needs=("domainMetadata",), removal=FeatureRemoval(domains=("delta.clustering",))
        ),
        Feature(
            "allowColumnDefaults",
            None,
            7,
            active=_has_column_key(_DEFAULT),
            removal=_columns_in_use(lambda m: _DEFAULT in m, "columns have defaults", "drop the defaults first"),
        ),
        Feature("variantType", 3, 7, active=_has_type("variant"), also="variantType-preview", removal=_VARIANT),
        Feature("variantType-preview", 3, 7, active=_has_type("variant"), removal=_VARIANT),
        _switch(
            "variantShredding",
            3,
            7,
            VARIANT_SHREDDING,
            needs=("variantType",),
            also="variantShredding-preview",
            removal=_SHREDDING,
        ),
        Feature("variantShredding-preview", 3, 7, removal=_SHREDDING),
        Feature("geospatial", 3, 7, active=_has_spatial, also="geospatial-dev", removal=_SPATIAL),
        Feature("geospatial-dev", 3, 7, removal=_SPATIAL),
        _iceberg_compat(1),
        _iceberg_compat(2),
        _iceberg_compat(3, "rowTracking"),
        _switch(MATERIALIZED, None, 7, "delta.enableMaterializePartitionColumnsFeature", None),
        Feature(
            "checkpointProtection",
            None,
            7,
            properties=(Property(CHECKPOINT_PROTECTION, "0", integer(0), set_by="the removal of a feature"),),
            removal=FeatureRemoval(in_use=_protection_in_use),
        ),
        _catalog_managed("catalogManaged"),
        _catalog_managed("catalogOwned-preview"),
        _redirect("redirectReaderWriter-preview", 3),
        _redirect("redirectWriterOnly-preview", None),
    )
}
