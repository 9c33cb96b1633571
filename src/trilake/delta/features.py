"""Table features: one row each, and the checks by name.

Protocol: *Table Features*, *Requirements for Readers*, *Requirements for Writers*.  A row says from which legacy
version on a feature is implied, and what this library does with it.  ``writes`` is ``"always"`` where every write
keeps the feature's promise, ``"inactive"`` where a table may list the feature and be written as long as it does not
use it (the row's ``active`` function says whether it does), ``"never"`` otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from trilake.delta.actions import Metadata, Protocol
from trilake.delta.schema import contains_type, nested_fields
from trilake.errors import UnsupportedProtocolError

MAX_READER = 3
MAX_WRITER = 7


def _never(_: Metadata) -> bool:
    return False


@dataclass(frozen=True)
class Feature:
    """A row of the registry."""

    name: str
    #: Reader version that implies it, ``3`` for a feature by name only, ``None`` where readers need not know it.
    reader: int | None
    #: Writer version that implies it; ``7`` for a feature by name only.
    writer: int
    reads: bool = True
    writes: Literal["always", "inactive", "never"] = "always"
    active: Callable[[Metadata], bool] = _never


def _flag(key: str) -> Callable[[Metadata], bool]:
    return lambda m: m.configuration.get(key, "false").lower() == "true"


def _column_key(prefix: str) -> Callable[[Metadata], bool]:
    return lambda m: any(k.startswith(prefix) for f in nested_fields(m.schema) for k in f.metadata)


def _mapped(m: Metadata) -> bool:
    return m.column_mapping_mode != "none"


def _constrained(m: Metadata) -> bool:
    return any(k.startswith("delta.constraints.") for k in m.configuration)


REGISTRY: dict[str, Feature] = {
    f.name: f
    for f in [
        Feature("appendOnly", None, 2),
        Feature("invariants", None, 2, writes="inactive", active=_column_key("delta.invariants")),
        Feature("checkConstraints", None, 3, writes="inactive", active=_constrained),
        Feature("changeDataFeed", None, 4),
        Feature("generatedColumns", None, 4, writes="inactive", active=_column_key("delta.generationExpression")),
        Feature("columnMapping", 2, 5, writes="inactive", active=_mapped),
        Feature("identityColumns", None, 6, writes="inactive", active=_column_key("delta.identity.")),
        Feature("deletionVectors", 3, 7),
        Feature("timestampNtz", 3, 7),
        Feature(
            "v2Checkpoint",
            3,
            7,
            writes="inactive",
            active=lambda m: m.configuration.get("delta.checkpointPolicy") == "v2",
        ),
        Feature("domainMetadata", None, 7),
        Feature("vacuumProtocolCheck", 3, 7),
        Feature("rowTracking", None, 7, writes="inactive", active=_flag("delta.enableRowTracking")),
        Feature("typeWidening", 3, 7),
        Feature("typeWidening-preview", 3, 7),
        Feature("inCommitTimestamp", None, 7, writes="inactive", active=_flag("delta.enableInCommitTimestamps")),
        Feature("clustering", None, 7),
        Feature("allowColumnDefaults", None, 7, writes="inactive", active=_column_key("CURRENT_DEFAULT")),
        Feature("variantType", 3, 7, writes="inactive", active=lambda m: contains_type(m.schema, "variant")),
        Feature("variantType-preview", 3, 7, writes="inactive", active=lambda m: contains_type(m.schema, "variant")),
        Feature("icebergCompatV1", None, 7, writes="never"),
        Feature("icebergCompatV2", None, 7, writes="never"),
        # Commits of such a table live in a catalogue first: the file system alone may miss the newest ones.
        Feature("catalogManaged", 3, 7, reads=False, writes="never"),
    ]
}


def _check_version(kind: str, needed: int, highest: int, *, uri: str, version: int) -> None:
    if not 1 <= needed <= highest:
        raise UnsupportedProtocolError(
            f"the table needs Delta {kind} version {needed}; up to {highest} are supported",
            help="use a newer trilake, or read an older version of the table",
            file=uri,
            version=version,
        )


def check_readable(protocol: Protocol, *, uri: str, version: int) -> None:
    """Refuse, by name, what a reader would need and this library lacks.  Raises ``UnsupportedProtocolError``."""
    _check_version("reader", protocol.min_reader_version, MAX_READER, uri=uri, version=version)
    if protocol.min_reader_version < 3:
        return
    lacking = [n for n in protocol.reader_features or () if n not in REGISTRY or not REGISTRY[n].reads]
    if lacking:
        raise UnsupportedProtocolError(
            f"the table needs the reader features {', '.join(lacking)}, which are not supported",
            help="read it with a newer trilake, or read an older version of the table",
            file=uri,
            version=version,
        )


def writer_features(protocol: Protocol) -> list[str]:
    """The features a writer must keep: those listed at writer 7, those implied by the version below."""
    if protocol.min_writer_version >= 7:
        return list(protocol.writer_features or ())
    return [f.name for f in REGISTRY.values() if f.writer <= protocol.min_writer_version]


def check_writable(protocol: Protocol, metadata: Metadata, *, uri: str, version: int) -> None:
    """Refuse, by name, what a writer would have to keep and this library does not.  Raises
    ``UnsupportedProtocolError``."""
    check_readable(protocol, uri=uri, version=version)
    _check_version("writer", protocol.min_writer_version, MAX_WRITER, uri=uri, version=version)
    lacking = []
    for name in writer_features(protocol):
        feature = REGISTRY.get(name)
        if feature is None or feature.writes == "never" or (feature.writes == "inactive" and feature.active(metadata)):
            lacking.append(name)
    if lacking:
        raise UnsupportedProtocolError(
            f"the table uses the writer features {', '.join(lacking)}, which this version cannot write",
            help="write it with the engine that set the features, or turn them off in the table",
            file=uri,
            version=version,
        )


def protocol_for(metadata: Metadata, configuration_features: tuple[str, ...] = ()) -> Protocol:
    """The lowest protocol that a new table with this metadata needs."""
    names = list(configuration_features)
    if contains_type(metadata.schema, "timestamp_ntz"):
        names.append("timestampNtz")
    if _flag("delta.enableDeletionVectors")(metadata):
        names.append("deletionVectors")
    reader, writer = 1, 2
    if _flag("delta.enableChangeDataFeed")(metadata):
        writer = 4
    if not names:
        return Protocol(reader, writer)
    legacy = [f.name for f in REGISTRY.values() if f.writer <= writer and f.writer < 7]
    if writer == 4:  # only what is switched on, not all that version 4 implies
        legacy = ["appendOnly", "invariants", "changeDataFeed"]
    by_reader = sorted(n for n in names if REGISTRY[n].reader == 3)
    return Protocol(3 if by_reader else 1, 7, tuple(by_reader) if by_reader else None, tuple(sorted({*legacy, *names})))
