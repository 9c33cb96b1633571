"""Table features: one row each, and the checks by name.

Protocol: *Table Features*, *Requirements for Readers*, *Requirements for Writers*.  A row says from which legacy
version on a feature is implied, and what this library does with it.  ``writes`` is ``"always"`` where every write
keeps the feature's promise, ``"inactive"`` where a table may list the feature and be written as long as it does not
use it (the row's ``active`` function says whether it does), ``"never"`` otherwise.

Metadata asks for features (a property is on, a column is of a type or has a rule): :func:`required`.  A new table gets
the lowest protocol that has them, :func:`protocol_for`; one that is there gets what it lacks, :func:`upgraded`.
Versions without lists of names are kept wherever they can say it, since more readers know them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.schema import contains_type, nested_fields
from trilake.errors import InvalidArgumentError, UnsupportedProtocolError

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
    #: Whether a table with this metadata uses the feature, and so must have it.
    active: Callable[[Metadata], bool] = _never
    #: Features that it cannot do without.
    needs: tuple[str, ...] = ()
    #: An older name of the feature under which a table may have it as well.
    also: str | None = None

    @property
    def legacy(self) -> bool:
        """Whether a protocol version below table features implies it."""
        return self.writer < 7

    @property
    def of_readers(self) -> bool:
        """Whether readers must know it."""
        return self.reader is not None


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
        Feature("appendOnly", None, 2, active=_flag("delta.appendOnly")),
        Feature("invariants", None, 2, active=_column_key("delta.invariants")),
        Feature("checkConstraints", None, 3, active=_constrained),
        Feature("changeDataFeed", None, 4, active=_flag("delta.enableChangeDataFeed")),
        Feature("generatedColumns", None, 4, active=_column_key("delta.generationExpression")),
        Feature("columnMapping", 2, 5, active=_mapped),
        Feature("identityColumns", None, 6, active=_column_key("delta.identity.")),
        Feature("deletionVectors", 3, 7, active=_flag("delta.enableDeletionVectors")),
        Feature("timestampNtz", 3, 7, active=lambda m: contains_type(m.schema, "timestamp_ntz")),
        Feature(
            "v2Checkpoint",
            3,
            7,
            active=lambda m: m.configuration.get("delta.checkpointPolicy") == "v2",
        ),
        Feature("domainMetadata", None, 7),
        Feature("vacuumProtocolCheck", 3, 7),
        Feature(
            "rowTracking",
            None,
            7,
            active=_flag("delta.enableRowTracking"),
            needs=("domainMetadata",),
        ),
        Feature("typeWidening", 3, 7, active=_flag("delta.enableTypeWidening"), also="typeWidening-preview"),
        Feature("typeWidening-preview", 3, 7),
        Feature("inCommitTimestamp", None, 7, active=_flag("delta.enableInCommitTimestamps")),
        Feature("clustering", None, 7, needs=("domainMetadata",)),
        Feature("allowColumnDefaults", None, 7, active=_column_key("CURRENT_DEFAULT")),
        Feature(
            "variantType",
            3,
            7,
            active=lambda m: contains_type(m.schema, "variant"),
            also="variantType-preview",
        ),
        Feature("variantType-preview", 3, 7, active=lambda m: contains_type(m.schema, "variant")),
        Feature(
            "icebergCompatV1",
            None,
            7,
            writes="never",
            active=_flag("delta.enableIcebergCompatV1"),
            needs=("columnMapping",),
        ),
        Feature(
            "icebergCompatV2",
            None,
            7,
            writes="never",
            active=_flag("delta.enableIcebergCompatV2"),
            needs=("columnMapping",),
        ),
        # Names a version before which the log is cleaned up as a whole or not at all: see log_cleanup.
        Feature("checkpointProtection", None, 7),
        # Commits of such a table live in a catalogue first: the file system alone may miss the newest ones.
        Feature(
            "catalogManaged",
            3,
            7,
            reads=False,
            writes="never",
            needs=("inCommitTimestamp", "vacuumProtocolCheck"),
        ),
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


# --- which features a protocol has, and which metadata asks for ------------------------------------------------------


def feature(name: str) -> Feature:
    """A row of the registry by its name, without regard to case.  Raises ``UnsupportedProtocolError``."""
    found = REGISTRY.get(name) or next((f for f in REGISTRY.values() if f.name.lower() == name.lower()), None)
    if found is None:
        raise UnsupportedProtocolError(
            f"table feature {name!r} is unknown here", help=f"known are {', '.join(sorted(REGISTRY))}"
        )
    return found


def features_of(protocol: Protocol) -> frozenset[str]:
    """Every feature a protocol has: those listed, and those its versions imply.

    >>> sorted(features_of(Protocol(1, 2)))
    ['appendOnly', 'invariants']
    """
    names = {*writer_features(protocol), *(protocol.reader_features or ())}
    if protocol.min_reader_version < 2:
        names.discard("columnMapping")  # whatever writers know: such readers do not
    return frozenset(names)


def has_feature(protocol: Protocol, name: str) -> bool:
    """Whether the protocol has the feature, under its name or its older one."""
    names = features_of(protocol)
    row = REGISTRY.get(name)
    return name in names or (row is not None and row.also in names)


def required(metadata: Metadata) -> list[str]:
    """The features that a table with this metadata must have, those they need included."""
    named = [f.name for f in REGISTRY.values() if not f.name.endswith("-preview") and f.active(metadata)]
    return with_needs(named)


def with_needs(names: Iterable[str]) -> list[str]:
    """The features, and every feature that these cannot do without, in the registry's order."""
    todo, found = list(names), set[str]()
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += feature(name).needs
    return [n for n in REGISTRY if n in found]


def protocol_for(metadata: Metadata, names: Iterable[str] = ()) -> Protocol:
    """The lowest protocol that a new table with this metadata needs; ``names`` are features it shall have besides."""
    return with_features(Protocol(1, 2), with_needs([*required(metadata), *(feature(n).name for n in names)]))


def upgraded(protocol: Protocol, metadata: Metadata, names: Iterable[str] = ()) -> Protocol:
    """The protocol with what ``metadata`` asks for and it lacks; the same object where that is nothing.

    >>> upgraded(Protocol(1, 2), Metadata("t", '{"type":"struct","fields":[]}', configuration={
    ...     "delta.enableChangeDataFeed": "true"}))
    Protocol(min_reader_version=1, min_writer_version=4, reader_features=None, writer_features=None)
    """
    asked = with_needs([*required(metadata), *(feature(n).name for n in names)])
    lacking = [n for n in asked if not has_feature(protocol, n)]
    return with_features(protocol, lacking) if lacking else protocol


def with_features(protocol: Protocol, names: Iterable[str]) -> Protocol:
    """The protocol with more features, at the lowest versions that can say so."""
    rows = [feature(n) for n in names]
    if protocol.min_writer_version < 7 and all(f.legacy for f in rows):
        return Protocol(
            max([protocol.min_reader_version, *(f.reader or 1 for f in rows)]),
            max([protocol.min_writer_version, *(f.writer for f in rows)]),
        )
    return from_features({*features_of(protocol), *(f.name for f in rows)}, reader=protocol.min_reader_version)


def from_features(names: Iterable[str], *, reader: int = 1) -> Protocol:
    """The protocol at writer version 7 that lists these features.

    ``reader`` is the least reader version.  Readers of version 2 know column mapping without a list.
    """
    listed = set(names)
    of_readers = {n for n in listed if n in REGISTRY and REGISTRY[n].of_readers}
    needed = max([reader, *((REGISTRY[n].reader or 1) for n in of_readers)])
    return Protocol(needed, 7, tuple(sorted(of_readers)) if needed == 3 else None, tuple(sorted(listed)))


def normalized(protocol: Protocol) -> Protocol:
    """The same features under versions alone, where there are versions that imply exactly these.

    >>> normalized(Protocol(1, 7, None, ("appendOnly", "invariants")))
    Protocol(min_reader_version=1, min_writer_version=2, reader_features=None, writer_features=None)
    """
    names = features_of(protocol)
    for reader, writer in ((1, 1), (1, 2), (1, 3), (1, 4), (2, 5), (2, 6)):
        if features_of(Protocol(reader, writer)) == names:
            return Protocol(reader, writer)
    return protocol


# --- changes that users ask for --------------------------------------------------------------------------------------


def upgrade_protocol(protocol: Protocol, reader: int, writer: int) -> Protocol:
    """The protocol at no less than these versions; lists of features appear where the versions have them.

    Raises ``InvalidArgumentError`` for versions that do not exist or go together.

    >>> upgrade_protocol(Protocol(1, 2), 1, 7).writer_features
    ('appendOnly', 'invariants')
    """
    if not 1 <= reader <= MAX_READER or not 1 <= writer <= MAX_WRITER:
        raise InvalidArgumentError(
            f"there is no protocol of reader version {reader} and writer version {writer}",
            help=f"readers go up to {MAX_READER}, writers to {MAX_WRITER}",
        )
    reader, writer = max(reader, protocol.min_reader_version), max(writer, protocol.min_writer_version)
    if reader == 3 and writer < 7:
        raise InvalidArgumentError(
            "reader version 3 goes with writer version 7 only", help="ask for writer version 7 as well"
        )
    if reader == 2 and writer < 5:
        raise InvalidArgumentError(
            "reader version 2 goes with writer version 5 and above", help="ask for writer version 5 as well"
        )
    if writer == 7:
        upgraded_ = from_features(features_of(protocol), reader=reader)
        return protocol if upgraded_ == _sorted(protocol) else upgraded_
    return Protocol(reader, writer)


def _sorted(protocol: Protocol) -> Protocol:
    """The protocol with its lists in order."""
    reader, writer = protocol.reader_features, protocol.writer_features
    return Protocol(
        protocol.min_reader_version,
        protocol.min_writer_version,
        None if reader is None else tuple(sorted(reader)),
        None if writer is None else tuple(sorted(writer)),
    )


def add_feature(protocol: Protocol, name: str) -> Protocol:
    """The protocol with one more feature, and those it needs; the same object where it has them.

    Raises ``UnsupportedProtocolError`` for a name that is unknown or that this library could not write.
    """
    row = feature(name)
    if row.writes == "never" or not row.reads:
        raise UnsupportedProtocolError(
            f"table feature {row.name} cannot be added: this library could not write the table any more",
            help="add it with the engine that is to use it",
        )
    lacking = [n for n in with_needs([row.name]) if not has_feature(protocol, n)]
    return with_features(protocol, lacking) if lacking else protocol


def dependents(protocol: Protocol, name: str) -> list[str]:
    """Features of the protocol that cannot do without ``name``."""
    return sorted(n for n in features_of(protocol) if n in REGISTRY and name in REGISTRY[n].needs)


def without_feature(protocol: Protocol, name: str) -> Protocol:
    """The protocol without a feature, normalized.

    Whether the table may lose it is for :mod:`trilake.delta.commands.alter.feature_removal` to say.
    """
    left = features_of(protocol) - {name}
    return normalized(from_features(left))
