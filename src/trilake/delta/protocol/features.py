"""The registry of table features, and the checks by name.

Protocol: *Table Features*, *Requirements for Readers*, *Requirements for Writers*.  For each entry see
:class:`~trilake.delta.protocol.feature_definition.Feature`.

:func:`required` lists the features that metadata needs.  A new table gets the lowest protocol with them
(:func:`protocol_for`); an existing table is :func:`upgraded`.  Legacy versions stay if they suffice, since more readers
support them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.feature_definition import Feature
from trilake.delta.protocol.table_features import (
    append_only,
    change_data_feed,
    check_constraints,
    checkpoint_protection,
    clustering,
    column_defaults,
    column_mapping,
    deletion_vectors,
    domain_metadata,
    generated_columns,
    geospatial,
    iceberg_compat,
    identity_columns,
    in_commit_timestamp,
    invariants,
    materialized_partitions,
    row_tracking,
    timestamp_ntz,
    type_widening,
    unsupported,
    v2_checkpoint,
    vacuum_protocol_check,
    variant_shredding,
    variant_type,
)
from trilake.errors import InvalidArgumentError, UnsupportedProtocolError

MAX_READER = 3
MAX_WRITER = 7


#: Every feature.  A new one needs a file in ``table_features`` and an entry here.
REGISTRY: Mapping[str, Feature] = {
    f.name: f
    for f in (
        append_only.FEATURE,
        invariants.FEATURE,
        check_constraints.FEATURE,
        change_data_feed.FEATURE,
        generated_columns.FEATURE,
        column_mapping.FEATURE,
        identity_columns.FEATURE,
        deletion_vectors.FEATURE,
        timestamp_ntz.FEATURE,
        v2_checkpoint.FEATURE,
        domain_metadata.FEATURE,
        vacuum_protocol_check.FEATURE,
        row_tracking.FEATURE,
        type_widening.FEATURE,
        type_widening.PREVIEW,
        in_commit_timestamp.FEATURE,
        clustering.FEATURE,
        column_defaults.FEATURE,
        variant_type.FEATURE,
        variant_type.PREVIEW,
        variant_shredding.FEATURE,
        variant_shredding.PREVIEW,
        geospatial.FEATURE,
        geospatial.PREVIEW,
        iceberg_compat.V1,
        iceberg_compat.V2,
        iceberg_compat.V3,
        materialized_partitions.FEATURE,
        checkpoint_protection.FEATURE,
        unsupported.CATALOG_MANAGED,
        unsupported.CATALOG_OWNED,
        unsupported.REDIRECT,
        unsupported.REDIRECT_WRITES,
    )
}


def _check_version(kind: str, needed: int, highest: int, *, uri: str, version: int) -> None:
    if not 1 <= needed <= highest:
        message = f"the table needs Delta {kind} version {needed}, but trilake supports versions up to {highest}"
        help = "use a newer trilake, or read an older version of the table"
        raise UnsupportedProtocolError(
            message, help=help, file=uri, version=version, condition="DELTA_INVALID_PROTOCOL_VERSION"
        )


def check_readable(protocol: Protocol, *, uri: str, version: int) -> None:
    """Reject, by name, reader features that trilake does not support.  Raises ``UnsupportedProtocolError``."""
    _check_version("reader", protocol.min_reader_version, MAX_READER, uri=uri, version=version)
    if protocol.min_reader_version < 3:
        return
    lacking = [n for n in protocol.reader_features or () if n not in REGISTRY or not REGISTRY[n].reads]
    if lacking:
        message = f"the table needs the reader features {', '.join(lacking)}, which are not supported"
        help = "read it with a newer trilake, or read an older version of the table"
        raise _unsupported(lacking, message, help, "DELTA_UNSUPPORTED_FEATURES_FOR_READ", uri, version)


def _unsupported(
    names: list[str], message: str, help: str, condition: str, uri: str, version: int
) -> UnsupportedProtocolError:
    helps = dict.fromkeys(REGISTRY[name].help for name in names if name in REGISTRY and REGISTRY[name].help)
    return UnsupportedProtocolError(
        message, help="; ".join(helps) or help, file=uri, version=version, condition=condition
    )


def check_mapping_listed(protocol: Protocol, metadata: Metadata, *, uri: str, version: int) -> None:
    """Reject a table with column mapping in its properties but not in its protocol.

    Its files may use either name: some writers follow the protocol, others the property.  Reader version 2 implies
    column mapping; for protocols without lists, the property decides.  Raises ``UnsupportedProtocolError``.
    """
    lists = protocol.min_reader_version >= 3 or protocol.min_writer_version >= 7
    if not lists or protocol.min_reader_version == 2 or metadata.column_mapping_mode == "none":
        return
    if has_feature(protocol, "columnMapping"):
        return
    raise UnsupportedProtocolError(
        "the table has the property delta.columnMapping.mode, but its protocol does not list columnMapping: its"
        " files may use logical or physical column names",
        help="read it with the engine that wrote it, and write the rows into a new table",
        file=uri,
        version=version,
        condition="DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH",
    )


def writer_features(protocol: Protocol) -> list[str]:
    """The features that a writer must support: those listed at writer version 7, or those that lower versions imply."""
    if protocol.min_writer_version >= 7:
        return list(protocol.writer_features or ())
    return [f.name for f in REGISTRY.values() if f.writer <= protocol.min_writer_version]


def check_writable(protocol: Protocol, *, uri: str, version: int) -> None:
    """Reject, by name, writer features that trilake does not support.  Raises ``UnsupportedProtocolError``."""
    check_readable(protocol, uri=uri, version=version)
    _check_version("writer", protocol.min_writer_version, MAX_WRITER, uri=uri, version=version)
    lacking = [n for n in writer_features(protocol) if n not in REGISTRY or not REGISTRY[n].writes]
    if lacking:
        message = f"the table uses the writer features {', '.join(lacking)}, which trilake does not support for writing"
        help = "write it with the engine that enabled the features, or drop them"
        raise _unsupported(lacking, message, help, "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE", uri, version)


# --- features of a protocol and of metadata ----------------------------------------------------------------------


def feature(name: str, *, condition: str = "DELTA_UNSUPPORTED_FEATURES_IN_CONFIG") -> Feature:
    """Find a feature, ignoring case.  Raises ``UnsupportedProtocolError`` with delta-spark's ``condition``."""
    row = REGISTRY.get(name) or next((f for f in REGISTRY.values() if f.name.lower() == name.lower()), None)
    if row is None:
        help = f"valid features are {', '.join(sorted(REGISTRY))}"
        raise UnsupportedProtocolError(f"table feature {name!r} is unknown", help=help, condition=condition)
    return row


def features_of(protocol: Protocol) -> frozenset[str]:
    """Every feature of a protocol: the listed ones, and those that its versions imply.

    >>> sorted(features_of(Protocol(1, 2)))
    ['appendOnly', 'invariants']
    """
    names = {*writer_features(protocol), *(protocol.reader_features or ())}
    if protocol.min_reader_version < 2:
        names.discard("columnMapping")  # such readers do not support it, whatever writers do
    return frozenset(names)


def has_feature(protocol: Protocol, name: str) -> bool:
    """Whether the protocol has the feature, under its current or older name."""
    names = features_of(protocol)
    row = REGISTRY.get(name)
    return name in names or (row is not None and row.also in names)


def required(metadata: Metadata) -> list[str]:
    """The features that a table with this metadata must have, including dependencies."""
    active = [f.name for f in REGISTRY.values() if not f.name.endswith("-preview") and f.active(metadata)]
    return with_needs(active)


def with_needs(names: Iterable[str]) -> list[str]:
    """The features with their dependencies, in the registry's order."""
    todo, result = list(names), set[str]()
    while todo:
        name = todo.pop()
        if name not in result:
            result.add(name)
            todo += feature(name).needs
    return [n for n in REGISTRY if n in result]


def protocol_for(metadata: Metadata, names: Iterable[str] = ()) -> Protocol:
    """The lowest protocol for a new table with this metadata and the features ``names``."""
    canonical_names = [feature(n).name for n in names]
    implied = (n for n in required(metadata) if REGISTRY[n].also not in canonical_names)
    return with_features(Protocol(1, 2), with_needs([*implied, *canonical_names]))


def upgraded(protocol: Protocol, metadata: Metadata, names: Iterable[str] = ()) -> Protocol:
    """The protocol with the features that ``metadata`` requires; the same object if none is missing.

    >>> upgraded(Protocol(1, 2), Metadata("t", '{"type":"struct","fields":[]}', configuration={
    ...     "delta.enableChangeDataFeed": "true"}))
    Protocol(min_reader_version=1, min_writer_version=7, reader_features=None, writer_features=('appendOnly',
    'changeDataFeed', 'invariants'))
    """
    return _with_lacking(protocol, [*required(metadata), *(feature(n).name for n in names)])


def _with_lacking(protocol: Protocol, names: Iterable[str]) -> Protocol:
    lacking = [n for n in with_needs(names) if not has_feature(protocol, n)]
    return with_features(protocol, lacking) if lacking else protocol


def with_features(protocol: Protocol, names: Iterable[str]) -> Protocol:
    """The protocol with more features, at the lowest versions that can express them."""
    rows = [feature(n) for n in names]
    explicit = from_features({*features_of(protocol), *(f.name for f in rows)}, reader=protocol.min_reader_version)
    if protocol.min_writer_version == 7 or not all(f.legacy for f in rows):
        return explicit
    if features_of(explicit) <= features_of(Protocol(1, 2)):
        return Protocol(1, 2)
    # Legacy versions would require features that the table does not use.
    return normalized(explicit)


def from_features(names: Iterable[str], *, reader: int = 1) -> Protocol:
    """The protocol at writer version 7, and at least a ``reader`` version, that lists these features."""
    feature_names = set(names)
    of_readers = {n for n in feature_names if n in REGISTRY and REGISTRY[n].of_readers}
    reader_version = max([reader, *((REGISTRY[n].reader or 1) for n in of_readers)])
    return Protocol(
        reader_version, 7, tuple(sorted(of_readers)) if reader_version == 3 else None, tuple(sorted(feature_names))
    )


def normalized(protocol: Protocol) -> Protocol:
    """The same features by versions without lists, if there are versions that imply exactly these.

    >>> normalized(Protocol(1, 7, None, ("appendOnly", "invariants")))
    Protocol(min_reader_version=1, min_writer_version=2, reader_features=None, writer_features=None)
    """
    names = features_of(protocol)
    for reader, writer in ((1, 1), (1, 2), (1, 3), (1, 4), (2, 5), (2, 6)):
        if features_of(Protocol(reader, writer)) == names:
            return Protocol(reader, writer)
    return protocol


# --- changes requested by users --------------------------------------------------------------------------------------


def upgrade_protocol(protocol: Protocol, reader: int, writer: int) -> Protocol:
    """The protocol with at least these versions; it lists features if the versions require that.

    Raises ``InvalidArgumentError`` for unknown or incompatible versions.

    >>> upgrade_protocol(Protocol(1, 2), 1, 7).writer_features
    ('appendOnly', 'invariants')
    """
    if reader not in range(1, MAX_READER + 1) or writer not in range(1, MAX_WRITER + 1):
        raise InvalidArgumentError(
            f"reader version {reader!r:.40} and writer version {writer!r:.40} are not a valid protocol",
            help=f"reader versions go up to {MAX_READER}, writer versions up to {MAX_WRITER}",
        )
    reader, writer = max(reader, protocol.min_reader_version), max(writer, protocol.min_writer_version)
    if reader == 3 and writer < 7:
        message = "reader version 3 needs writer version 7"
        help = "pass writer version 7 as well"
        raise InvalidArgumentError(message, help=help, condition="DELTA_READ_FEATURE_PROTOCOL_REQUIRES_WRITE")
    if reader == 2 and writer < 5:
        raise InvalidArgumentError(
            "reader version 2 needs writer version 5 or higher", help="pass writer version 5 as well"
        )
    if writer == 7:
        listed = [None if n is None else tuple(sorted(n)) for n in (protocol.reader_features, protocol.writer_features)]
        explicit = from_features(features_of(protocol), reader=reader)
        unchanged = Protocol(protocol.min_reader_version, protocol.min_writer_version, *listed) == explicit
        return protocol if unchanged else explicit
    return Protocol(reader, writer)


def add_feature(protocol: Protocol, name: str) -> Protocol:
    """The protocol with one more feature and what it needs.  Raises ``UnsupportedProtocolError``."""
    row = feature(name)
    if not row.writes or not row.reads:
        raise UnsupportedProtocolError(
            f"table feature {row.name} cannot be added, because trilake could not write to the table afterwards",
            help="add it with an engine that supports it",
        )
    return _with_lacking(protocol, [row.name])


def dependents(protocol: Protocol, name: str) -> list[str]:
    """Features of the protocol that depend on ``name``."""
    return sorted(n for n in features_of(protocol) if n in REGISTRY and name in REGISTRY[n].needs)


def without_feature(protocol: Protocol, name: str) -> Protocol:
    """The protocol without a feature, normalized; see :mod:`trilake.delta.commands.alter.metadata_commits`."""
    remaining = features_of(protocol) - {name}
    return normalized(from_features(remaining))
