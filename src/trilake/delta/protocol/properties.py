"""Table properties: every ``delta.`` key that tables know, with its default, its values and what setting it means.

Protocol: *Metadata* (``configuration``), and the properties its other chapters name.  A key of the ``delta.`` namespace
that is not here is refused, since a typing error would otherwise be kept and do nothing; other keys are the users' own.
Three kinds of keys are no properties of the table although they are set like ones: ``delta.feature.<name>`` adds a
table feature, ``delta.minReaderVersion`` and ``delta.minWriterVersion`` raise the protocol.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from trilake.delta.protocol.column_mapping import MAX_COLUMN_ID, MODE, MODES
from trilake.delta.protocol.features import feature
from trilake.delta.protocol.isolation import LEVELS
from trilake.errors import InvalidArgumentError, UnknownOptionError

PREFIX = "delta."
CONSTRAINTS = "delta.constraints."
FEATURE = "delta.feature."
MIN_READER = "delta.minReaderVersion"
MIN_WRITER = "delta.minWriterVersion"

_UNITS_MS = {
    "microsecond": 0.001,
    "millisecond": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_DURATION = re.compile(r"(\d+)\s*(microsecond|millisecond|second|minute|hour|day|week)s?")
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)b?")


class _WrongError(Exception):
    """A value that a property cannot have; the text says what it can."""


@dataclass(frozen=True)
class Property:
    """A row of the registry.

    ``check`` gives a value in its usual spelling, or raises with what would be one.  ``default`` is what holds where
    the property is not set, ``None`` where that is nothing.  ``set_by`` says who sets a property that users cannot.
    """

    name: str
    default: str | None
    check: Callable[[str], str]
    #: The table feature that some value of it needs.
    feature: str | None = None
    set_by: str | None = None


def _boolean(text: str) -> str:
    if text.lower() not in ("true", "false"):
        raise _WrongError("true or false")
    return text.lower()


def _integer(least: int) -> Callable[[str], str]:
    def check(text: str) -> str:
        if not re.fullmatch(r"[+-]?\d{1,18}", text) or int(text) < least:
            raise _WrongError(f"a whole number from {least} on")
        return str(int(text))

    return check


def _choice(*values: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        for v in values:
            if v.lower() == text.lower():
                return v
        raise _WrongError(f"one of {', '.join(values)}")

    return check


def duration_ms(text: str) -> int:
    """A duration such as ``interval 30 days`` in ms.  Raises ``InvalidArgumentError``.

    >>> duration_ms("interval 1 week"), duration_ms("2 days 1 hour")
    (604800000, 176400000)
    """
    body = text.strip().lower().removeprefix("interval").strip()
    if not body or _DURATION.sub("", body).strip(" ,"):
        raise InvalidArgumentError(f"{text!r} is no duration", help="write one such as 'interval 30 days'")
    return int(sum(int(n) * _UNITS_MS[unit] for n, unit in _DURATION.findall(body)))


def _duration(text: str) -> str:
    try:
        duration_ms(text)
    except InvalidArgumentError:
        raise _WrongError("a duration such as 'interval 30 days', in units from microseconds to weeks") from None
    return text.strip()


def size_bytes(text: str) -> int:
    """A size such as ``128mb`` in bytes.  Raises ``InvalidArgumentError``.

    >>> size_bytes("128mb"), size_bytes("4096")
    (134217728, 4096)
    """
    found = _SIZE.fullmatch(text.strip().lower())
    if found is None or not int(found[1]):
        raise InvalidArgumentError(f"{text!r} is no size", help="write a number of bytes, or one such as 128mb")
    return int(found[1]) << 10 * " kmgt".index(found[2] or " ")


def _size(text: str) -> str:
    try:
        size_bytes(text)
    except InvalidArgumentError:
        raise _WrongError("a number of bytes such as 134217728, or 128mb") from None
    return text.strip()


def _text(text: str) -> str:
    return text


def _no_formats(text: str) -> str:
    if text.strip():
        raise _WrongError("empty: metadata of other table formats is not written here")
    return ""


def column_list(text: str) -> list[str]:
    """The columns of ``delta.dataSkippingStatsColumns``: names with commas between, backticks around odd ones.

    >>> column_list("a, b.c, `d,e`.f")
    ['a', 'b.c', '`d,e`.f']
    """
    parts = re.findall(r"(?:`(?:[^`]|``)*`|[^`,])+", text)
    return [p.strip() for p in parts if p.strip()]


_ROWS = [
    Property("delta.appendOnly", "false", _boolean, "appendOnly"),
    Property("delta.autoOptimize", None, _boolean),
    Property("delta.autoOptimize.autoCompact", None, _choice("true", "false", "auto", "legacy")),
    Property("delta.autoOptimize.optimizeWrite", None, _boolean),
    Property("delta.castIcebergTimeType", "false", _boolean),
    Property("delta.checkpoint.writeStatsAsJson", "true", _boolean),
    Property("delta.checkpoint.writeStatsAsStruct", "false", _boolean),
    Property("delta.checkpointInterval", "10", _integer(1)),
    Property("delta.checkpointPolicy", "classic", _choice("classic", "v2"), "v2Checkpoint"),
    Property("delta.checkpointRetentionDuration", "interval 2 days", _duration),
    Property(MAX_COLUMN_ID, "0", _integer(0), set_by="column mapping itself"),
    Property(MODE, "none", _choice(*MODES), "columnMapping"),
    Property("delta.compatibility.symlinkFormatManifest.enabled", "false", _boolean),
    Property("delta.dataSkippingNumIndexedCols", "32", _integer(-1)),
    Property("delta.dataSkippingStatsColumns", None, lambda text: ",".join(column_list(text))),
    Property("delta.deletedFileRetentionDuration", "interval 1 week", _duration),
    Property("delta.enableChangeDataFeed", "false", _boolean, "changeDataFeed"),
    Property("delta.enableDeletionVectors", "false", _boolean, "deletionVectors"),
    Property("delta.enableExpiredLogCleanup", "true", _boolean),
    Property("delta.enableFullRetentionRollback", "true", _boolean),
    Property("delta.enableIcebergCompatV1", None, _boolean, "icebergCompatV1"),
    Property("delta.enableIcebergCompatV2", None, _boolean, "icebergCompatV2"),
    Property("delta.enableInCommitTimestamps", "false", _boolean, "inCommitTimestamp"),
    Property("delta.enableRowTracking", "false", _boolean, "rowTracking"),
    Property("delta.enableTypeWidening", "false", _boolean, "typeWidening"),
    Property("delta.ignoreProtocolDefaults", "false", _boolean),
    Property(
        "delta.inCommitTimestampEnablementTimestamp", None, _integer(0), set_by="the commit that turns the feature on"
    ),
    Property(
        "delta.inCommitTimestampEnablementVersion", None, _integer(0), set_by="the commit that turns the feature on"
    ),
    Property("delta.isolationLevel", "WriteSerializable", _choice(*LEVELS)),
    Property("delta.logRetentionDuration", "interval 30 days", _duration),
    Property("delta.randomPrefixLength", "2", _integer(1)),
    Property("delta.randomizeFilePrefixes", "false", _boolean),
    Property("delta.requireCheckpointProtectionBeforeVersion", "0", _integer(0), set_by="the removal of a feature"),
    Property("delta.rowTracking.materializedRowCommitVersionColumnName", None, _text, set_by="row tracking itself"),
    Property("delta.rowTracking.materializedRowIdColumnName", None, _text, set_by="row tracking itself"),
    Property("delta.rowTrackingSuspended", "false", _boolean),
    Property("delta.sampleRetentionDuration", "interval 7 days", _duration),
    Property("delta.setTransactionRetentionDuration", None, _duration),
    Property("delta.targetFileSize", None, _size),
    Property("delta.tuneFileSizesForRewrites", None, _boolean),
    Property("delta.universalFormat.enabledFormats", None, _no_formats),
]
PROPERTIES: dict[str, Property] = {p.name: p for p in _ROWS}
_BY_LOWER = {p.name.lower(): p for p in _ROWS}
_VERSIONS = {
    p.name.lower(): p for p in (Property(MIN_READER, "1", _integer(1)), Property(MIN_WRITER, "2", _integer(1)))
}


@dataclass(frozen=True)
class PropertyChange:
    """What a set of properties asks for: values to keep, features to have, versions to reach."""

    values: Mapping[str, str] = field(default_factory=dict)
    features: tuple[str, ...] = ()
    reader: int | None = None
    writer: int | None = None


def is_reserved(key: str) -> bool:
    """Whether a key is of the ``delta.`` namespace."""
    return key.lower().startswith(PREFIX)


def property_default(name: str) -> str | None:
    """The value of a property that is not set.

    >>> property_default("delta.checkpointInterval")
    '10'
    """
    found = _BY_LOWER.get(name.lower())
    return None if found is None else found.default


def canonical(key: str) -> str:
    """A key in its usual spelling.  Raises ``UnknownOptionError`` for a key of the ``delta.`` namespace that is none.

    >>> canonical("DELTA.appendonly"), canonical("Owner")
    ('delta.appendOnly', 'Owner')
    """
    if not is_reserved(key):
        return key
    lowered = key.lower()
    found = _BY_LOWER.get(lowered) or _VERSIONS.get(lowered)
    if found is not None:
        return found.name
    for prefix in (CONSTRAINTS, FEATURE):
        if lowered.startswith(prefix):
            return prefix + key[len(prefix) :]
    close = difflib.get_close_matches(lowered, _BY_LOWER, n=3)
    meant = f"did you mean {' or '.join(_BY_LOWER[c].name for c in close)}? " if close else ""
    raise UnknownOptionError(
        f"table property {key!r} is unknown",
        help=f"{meant}Names that do not begin with {PREFIX} are free; others are Delta's own",
        property=key,
    )


def check_value(name: str, value: object) -> str:
    """A value of a property in its usual spelling.

    Raises ``InvalidArgumentError`` that names the property and what it may be.

    >>> check_value("delta.appendOnly", True)
    'true'
    """
    text = str(value).lower() if isinstance(value, bool) else str(value)
    row = _BY_LOWER.get(name.lower()) or _VERSIONS.get(name.lower())
    if row is None:
        return text
    try:
        return row.check(text)
    except _WrongError as e:
        raise InvalidArgumentError(
            f"table property {row.name} cannot be {text!r}", help=f"it is {e}", property=row.name
        ) from None


def parse_properties(properties: Mapping[str, object]) -> PropertyChange:
    """Properties as users give them, each checked.

    Raises ``UnknownOptionError`` for an unknown key of the ``delta.`` namespace and ``InvalidArgumentError`` for a
    value that its property cannot have, or a property that users do not set.

    >>> parse_properties({"delta.APPENDONLY": "TRUE", "delta.feature.clustering": "supported", "team": "x"})
    PropertyChange(values={'delta.appendOnly': 'true', 'team': 'x'}, features=('clustering',), reader=None, writer=None)
    """
    values: dict[str, str] = {}
    features: list[str] = []
    versions: dict[str, int] = {}
    for given, value in properties.items():
        if not isinstance(given, str):
            raise InvalidArgumentError(f"a table property is named by a text, not by {given!r}")
        if value is None:
            raise InvalidArgumentError(f"table property {given} has no value", help="unset it instead", property=given)
        key = canonical(given)
        _check_settable(key)
        if key.startswith(FEATURE):
            features.append(_feature(key, str(value)))
        elif key in (MIN_READER, MIN_WRITER):
            versions[key] = int(check_value(key, value))
        else:
            values[key] = check_value(key, value)
    return PropertyChange(values, tuple(features), versions.get(MIN_READER), versions.get(MIN_WRITER))


def _check_settable(key: str) -> None:
    if key.startswith(CONSTRAINTS):
        raise InvalidArgumentError(
            f"{key} is a CHECK constraint, which existing rows must satisfy",
            help="add it as a constraint (add_constraint, ALTER TABLE ... ADD CONSTRAINT)",
            property=key,
        )
    row = PROPERTIES.get(key)
    if row is not None and row.set_by is not None:
        raise InvalidArgumentError(f"{key} is set by {row.set_by}, not by users", help="leave it out", property=key)


def _feature(key: str, value: str) -> str:
    if value.lower() not in ("supported", "enabled"):
        raise InvalidArgumentError(f"table property {key} cannot be {value!r}", help="it is supported", property=key)
    return feature(key[len(FEATURE) :]).name


def parse_keys(keys: Iterable[str]) -> list[str]:
    """Keys of properties that are to be removed, in their usual spelling.

    Raises as :func:`parse_properties`, and ``InvalidArgumentError`` for keys that are no properties of the table.
    """
    out = []
    for given in keys:
        key = canonical(given)
        _check_settable(key)
        if key.startswith(FEATURE):
            raise InvalidArgumentError(f"{key} is a table feature", help="drop the feature instead", property=key)
        if key in (MIN_READER, MIN_WRITER):
            raise InvalidArgumentError(f"{key} cannot be removed", help="drop a table feature instead", property=key)
        out.append(key)
    return out
