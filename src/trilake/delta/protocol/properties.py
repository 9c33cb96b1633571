"""Table properties: every ``delta.`` key with its default, valid values and effects.

Protocol: *Metadata* (``configuration``), and the properties of other chapters.  Unknown ``delta.`` keys are rejected,
since a misspelled one would silently have no effect; other keys belong to users.  Three kinds of keys are not stored:
``delta.feature.<name>`` adds a table feature, and ``delta.minReaderVersion`` and ``delta.minWriterVersion`` upgrade the
protocol.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

from trilake.delta.protocol import features
from trilake.delta.protocol.iceberg import UNIFORM, WRITE_PARTITIONS
from trilake.delta.protocol.property_values import (
    LEVELS,
    IsolationLevel,
    Property,
    WrongValueError,
    boolean,
    choice,
    column_list,
    duration,
    duration_ms,
    integer,
    other_formats,
    parse_level,
    size,
    size_bytes,
    whole_number,
)
from trilake.errors import InvalidArgumentError, UnknownOptionError

_V = TypeVar("_V")

PREFIX = "delta."
CONSTRAINTS = "delta.constraints."
FEATURE = "delta.feature."
MIN_READER = "delta.minReaderVersion"
MIN_WRITER = "delta.minWriterVersion"

#: Properties that belong to no table feature; a feature's own properties are in its file.
_ROWS = (
    Property("delta.autoOptimize", None, boolean),
    Property("delta.autoOptimize.autoCompact", None, choice("true", "false", "auto", "legacy")),
    Property("delta.autoOptimize.optimizeWrite", None, boolean),
    Property("delta.castIcebergTimeType", "false", boolean),
    Property("delta.checkpoint.writeStatsAsJson", "true", boolean),
    Property("delta.checkpoint.writeStatsAsStruct", "false", boolean),
    Property("delta.checkpointInterval", "10", integer(1)),
    Property("delta.checkpointRetentionDuration", "interval 2 days", duration),
    Property("delta.compatibility.symlinkFormatManifest.enabled", "false", boolean),
    Property("delta.dataSkippingNumIndexedCols", "32", integer(-1)),
    Property("delta.dataSkippingStatsColumns", None, lambda text: ",".join(column_list(text))),
    Property("delta.deletedFileRetentionDuration", "interval 1 week", duration),
    Property("delta.enableExpiredLogCleanup", "true", boolean),
    Property("delta.enableFullRetentionRollback", "true", boolean),
    Property("delta.ignoreProtocolDefaults", "false", boolean),
    Property("delta.isolationLevel", "WriteSerializable", choice(*LEVELS)),
    Property("delta.logRetentionDuration", "interval 30 days", duration),
    Property("delta.randomPrefixLength", "2", integer(1)),
    Property("delta.randomizeFilePrefixes", "false", boolean),
    Property("delta.sampleRetentionDuration", "interval 7 days", duration),
    Property("delta.setTransactionRetentionDuration", None, duration),
    Property("delta.targetFileSize", None, size),
    Property("delta.tuneFileSizesForRewrites", None, boolean),
    Property(UNIFORM, None, other_formats),
    Property(WRITE_PARTITIONS, None, boolean),
)
#: delta-spark's error conditions for invalid values of these properties.
_CONDITIONS = {
    MIN_READER: "DELTA_PROTOCOL_PROPERTY_NOT_INT",
    MIN_WRITER: "DELTA_PROTOCOL_PROPERTY_NOT_INT",
    "delta.autoOptimize.autoCompact": "DELTA_INVALID_AUTO_COMPACT_TYPE",
}
_VERSIONS = {p.name.lower(): p for p in (Property(MIN_READER, "1", integer(1)), Property(MIN_WRITER, "2", integer(1)))}


def known_properties() -> dict[str, Property]:
    """Every property by name."""
    return {p.name: p for p in (*_ROWS, *(p for f in features.REGISTRY.values() for p in f.properties))}


@lru_cache(maxsize=1)
def _rows_by_name(names: tuple[str, ...]) -> dict[str, Property]:
    return {p.name.lower(): p for p in known_properties().values()}


def _row(name: str) -> Property | None:
    return _rows_by_name(tuple(features.REGISTRY)).get(name.lower())


@dataclass(frozen=True)
class ParsedProperties:
    """The effects of some properties: values to store, features to add, versions to upgrade to."""

    values: Mapping[str, str] = field(default_factory=dict)
    features: tuple[str, ...] = ()
    reader: int | None = None
    writer: int | None = None


@dataclass(frozen=True)
class TableProperties:
    """Typed access to a table's properties, with their defaults.  An invalid value raises ``InvalidArgumentError``.

    >>> properties = TableProperties({"delta.checkpointInterval": "20", "delta.appendOnly": "TRUE"})
    >>> properties.number("delta.checkpointInterval"), properties.number("delta.dataSkippingNumIndexedCols")
    (20, 32)
    >>> properties.is_on("delta.appendOnly"), properties.duration_ms("delta.deletedFileRetentionDuration")
    (True, 604800000)
    """

    configuration: Mapping[str, str]

    def text(self, key: str) -> str | None:
        """The string value of a property; ``None`` if it is not set and has no default."""
        return self.configuration[key] if key in self.configuration else property_default(key)

    def is_on(self, key: str) -> bool:
        """Whether a property is ``true``, in any case."""
        return (self.text(key) or "").lower() == "true"

    def number(self, key: str) -> int:
        """A whole number with a default.  Raises ``InvalidArgumentError``."""
        return self._parsed(key, whole_number)

    def duration_ms(self, key: str) -> int:
        """A duration in ms with a default.  Raises ``InvalidArgumentError``."""
        return self._parsed(key, duration_ms)

    def size_bytes(self, key: str) -> int | None:
        """A size in bytes, ``None`` if it is not set.  Raises ``InvalidArgumentError``."""
        return None if self.text(key) is None else self._parsed(key, size_bytes)

    def indexed_columns(self) -> int:
        """How many leading columns get statistics, negative for all; an invalid value counts as the default."""
        try:
            return self.number("delta.dataSkippingNumIndexedCols")
        except InvalidArgumentError:
            return TableProperties({}).indexed_columns()

    def isolation_level(self) -> IsolationLevel:
        return self._parsed("delta.isolationLevel", parse_level)

    def _parsed(self, key: str, parse: Callable[[str], _V]) -> _V:
        try:
            return parse(self.text(key) or "")
        except InvalidArgumentError as e:
            raise InvalidArgumentError(
                f"the table property {key} is invalid: {e.message}", help=e.help, property=key
            ) from None


def property_default(name: str) -> str | None:
    """The default of a property.

    >>> property_default("delta.checkpointInterval")
    '10'
    """
    row = _row(name)
    return None if row is None else row.default


def canonical(key: str) -> str:
    """A key in its usual spelling.  Raises ``UnknownOptionError`` for an unknown ``delta.`` key.

    >>> canonical("DELTA.appendonly"), canonical("Owner")
    ('delta.appendOnly', 'Owner')
    """
    lowered = key.lower()
    if not lowered.startswith(PREFIX):
        return key
    row = _row(key) or _VERSIONS.get(lowered)
    if row is not None:
        return row.name
    for prefix in (CONSTRAINTS, FEATURE):
        if lowered.startswith(prefix):
            return prefix + key[len(prefix) :]
    by_lower = {name.lower(): name for name in known_properties()}
    close = difflib.get_close_matches(lowered, by_lower, n=3, cutoff=0.75)
    suggestion = f"did you mean {' or '.join(by_lower[c] for c in close)}? " if close else ""
    message = f"table property {key!r} is unknown"
    help = f"{suggestion}{'Names' if close else 'names'} without the prefix {PREFIX} are free to use"
    raise UnknownOptionError(message, help=help, property=key, condition="DELTA_UNKNOWN_CONFIGURATION")


def check_value(name: str, value: object) -> str:
    """A value of a property in its usual spelling.  Raises ``InvalidArgumentError``, which states the valid values.

    >>> check_value("delta.appendOnly", True)
    'true'
    """
    string = str(value).lower() if isinstance(value, bool) else str(value)
    row = _row(name) or _VERSIONS.get(name.lower())
    if row is None:
        return string
    try:
        return row.check(string)
    except WrongValueError as e:
        raise InvalidArgumentError(
            f"table property {row.name} must be {e}, got {string!r}",
            property=row.name,
            condition=_CONDITIONS.get(row.name) or ("DELTA_INVALID_INTERVAL" if row.check is duration else None),
        ) from None


def parse_properties(properties: Mapping[str, object]) -> ParsedProperties:
    """Validate properties from users.

    Raises ``UnknownOptionError`` for an unknown ``delta.`` key, and ``InvalidArgumentError`` for an invalid value
    or a property that users cannot set.

    >>> parse_properties({"delta.APPENDONLY": "TRUE", "delta.feature.clustering": "supported"})
    ParsedProperties(values={'delta.appendOnly': 'true'}, features=('clustering',), reader=None, writer=None)
    """
    values: dict[str, str] = {}
    new_features: list[str] = []
    versions: dict[str, int] = {}
    for name, value in properties.items():
        if not isinstance(name, str):
            raise InvalidArgumentError(f"a table property name must be a string, got {name!r}")
        if value is None:
            raise InvalidArgumentError(f"table property {name} has no value", help="unset it instead", property=name)
        key = canonical(name)
        _check_settable(key)
        if key.startswith(FEATURE):
            new_features.append(_feature(key, str(value)))
        elif key in (MIN_READER, MIN_WRITER):
            versions[key] = int(check_value(key, value))
        else:
            values[key] = check_value(key, value)
    return ParsedProperties(values, tuple(new_features), versions.get(MIN_READER), versions.get(MIN_WRITER))


def _check_settable(key: str) -> None:
    if key.startswith(CONSTRAINTS):
        message = f"{key} cannot be set: it is a CHECK constraint, which existing rows must satisfy"
        help = "add the constraint with ALTER TABLE ... ADD CONSTRAINT (add_constraint)"
        raise InvalidArgumentError(message, help=help, property=key, condition="DELTA_ADD_CONSTRAINTS")
    row = known_properties().get(key)
    if row is not None and row.set_by is not None:
        message = f"{key} is set by {row.set_by}, not by users"
        help = "leave it out"
        raise InvalidArgumentError(message, help=help, property=key, condition="DELTA_CANNOT_MODIFY_TABLE_PROPERTY")


def _feature(key: str, value: str) -> str:
    if value.lower() not in ("supported", "enabled"):
        message = f"table property {key} must be 'supported', got {value!r}"
        raise InvalidArgumentError(message, property=key, condition="DELTA_UNSUPPORTED_FEATURE_STATUS")
    return features.feature(key[len(FEATURE) :]).name


def parse_keys(keys: Iterable[str]) -> list[str]:
    """Keys of properties to remove, in their usual spelling.  Raises the errors of :func:`parse_properties`."""
    out = []
    for name in keys:
        key = canonical(name)
        _check_settable(key)
        if key.startswith(FEATURE):
            raise InvalidArgumentError(f"{key} is a table feature", help="drop the feature instead", property=key)
        if key in (MIN_READER, MIN_WRITER):
            raise InvalidArgumentError(f"{key} cannot be removed", help="drop a table feature instead", property=key)
        out.append(key)
    return out
