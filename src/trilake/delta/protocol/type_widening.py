"""Type widening: widen a column's type without rewriting files.

Protocol: *Type Widening*.  Older files keep the narrower type and readers widen its values.  The metadata of the
nearest struct field records changes under ``delta.typeChanges``: ``fromType``, ``toType``, and ``fieldPath``
(``element``, ``key``, ``value`` or several of them) for a type inside an array or map.  The preview of the feature also
records the version in ``tableVersion``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.iceberg import is_uniform
from trilake.delta.protocol.primitives import traits_of
from trilake.delta.protocol.property_values import is_on
from trilake.delta.protocol.schema import (
    DataType,
    PrimitiveType,
    StructField,
    StructType,
    fields_in,
    paired,
    with_parts,
)
from trilake.delta.protocol.schema_edit import Path, each_field, nested_fields
from trilake.errors import UnsupportedProtocolError

TYPE_CHANGES = "delta.typeChanges"
_VERSION = "tableVersion"
ENABLED = "delta.enableTypeWidening"
FEATURE = "typeWidening"
PREVIEW = "typeWidening-preview"

#: delta-spark's ``spark.databricks.delta.typeWidening.allowAutomaticWidening``.
WideningMode = Literal["always", "same_family_type", "never"]

_STRING = re.compile(r"string|(var)?char\(\d+\)")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def enabled(metadata: Metadata) -> bool:
    """Whether the feature is on."""
    return is_on(metadata.configuration, ENABLED)


def only_preview(protocol: Protocol) -> bool:
    """Whether the table has only the preview of the feature."""
    names = protocol.writer_features or ()
    return PREVIEW in names and FEATURE not in names


def _decimal(t: PrimitiveType) -> tuple[int, int] | None:
    m = _DECIMAL.fullmatch(t.name)
    return None if m is None else (int(m[1]), int(m[2]))


def can_widen(old: DataType, new: DataType) -> bool:
    """Whether the protocol allows a column to change from type ``old`` to ``new``.

    >>> can_widen(PrimitiveType("integer"), PrimitiveType("double"))
    True
    >>> can_widen(PrimitiveType("long"), PrimitiveType("double"))
    False
    """
    if not (isinstance(old, PrimitiveType) and isinstance(new, PrimitiveType)) or old == new:
        return False
    if _widens_in_family(old, new) or new.name in old.traits.widens_to_number:
        return True
    return _has_digits(new, old.traits.digits)


def _has_digits(t: PrimitiveType, digits: int | None) -> bool:
    """Whether this is a decimal with as many digits before its point."""
    target = _decimal(t)
    return target is not None and digits is not None and target[0] - target[1] >= digits


def _widens_in_family(old: PrimitiveType, new: PrimitiveType) -> bool:
    """Like :func:`can_widen` for different types, but never to another kind of number."""
    before, after = _decimal(old), _decimal(new)
    if before is not None and after is not None:
        return after[1] >= before[1] and after[0] - after[1] >= before[0] - before[1]
    return new.name in old.traits.widens


def iceberg_widens(old: str, new: str) -> bool:
    """Whether Iceberg can read values of type ``old`` as ``new``.

    >>> iceberg_widens("decimal(5,2)", "decimal(9,2)"), iceberg_widens("integer", "double")
    (True, False)
    """
    before, after = _decimal(PrimitiveType(old)), _decimal(PrimitiveType(new))
    if before is not None and after is not None:
        return before[1] == after[1] and before[0] <= after[0]
    return old == new or (old != "date" and new in traits_of(old).widens)


@dataclass(frozen=True)
class AutomaticWidening:
    """Which types schema evolution widens: to all types that the protocol allows, to those of the same family, or none.

    As in delta-spark, a table with Iceberg metadata gets only types that Iceberg supports.

    >>> integer, double = PrimitiveType("integer"), PrimitiveType("double")
    >>> [AutomaticWidening(mode).allows(integer, double) for mode in ("always", "same_family_type", "never")]
    [True, False, False]
    """

    mode: WideningMode = "always"
    iceberg_only: bool = False

    @classmethod
    def of(cls, metadata: Metadata, mode: WideningMode = "always") -> AutomaticWidening:
        """What the table allows."""
        return cls(mode if enabled(metadata) else "never", is_uniform(metadata.configuration))

    def allows(self, old: DataType, new: DataType) -> bool:
        """Whether a column of type ``old`` gets the type ``new`` of the rows."""
        if self.mode == "never" or not can_widen(old, new):
            return False
        if self.iceberg_only and not iceberg_widens(str(old), str(new)):
            return False
        assert isinstance(old, PrimitiveType)
        assert isinstance(new, PrimitiveType)
        return self.mode == "always" or _widens_in_family(old, new)


#: No type is widened.
NO_WIDENING = AutomaticWidening("never")


def type_changes(field: StructField) -> list[dict[str, Any]]:
    """The recorded changes of a field's type, oldest first."""
    changes = field.metadata.get(TYPE_CHANGES)
    return [dict(c) for c in changes if isinstance(c, dict)] if isinstance(changes, list) else []


#: Most digits of an integer that some writers change to decimals which the protocol considers too narrow.
_MOST_DIGITS = {"byte": 3, "short": 5}


def check_type_changes(metadata: Metadata, *, uri: str, version: int) -> None:
    """Reject a table with a recorded change that the protocol does not allow, unless the new type holds all old values.
    Changes between strings with and without a length limit are no type changes, but are accepted.  Raises
    ``UnsupportedProtocolError``."""
    for path, f in fields_in(metadata.schema):
        for change in type_changes(f):
            old, new = PrimitiveType(str(change.get("fromType"))), PrimitiveType(str(change.get("toType")))
            if old == new or can_widen(old, new) or _has_digits(new, _MOST_DIGITS.get(old.name)):
                continue
            if all(_STRING.fullmatch(t.name) for t in (old, new)):
                continue
            inside = [str(change["fieldPath"])] if change.get("fieldPath") else []
            raise UnsupportedProtocolError(
                f"the type of column {'.'.join([*path, *inside])} was changed from {old} to {new}, which Delta does not"
                " support",
                help="read an older version of the table, or read it with the engine that changed it",
                file=uri,
                version=version,
                condition="DELTA_UNSUPPORTED_TYPE_CHANGE_IN_SCHEMA",
            )


def has_type_changes(schema: StructType) -> bool:
    """Whether any column ever changed its type."""
    return any(type_changes(f) for f in nested_fields(schema))


def widened(
    old: DataType, new: DataType, column: Path = (), within: Path = ()
) -> Iterator[tuple[Path, DataType, DataType]]:
    """The types of ``old`` that ``new`` widens: the path of the struct field, and both types."""
    if isinstance(old, StructType) and isinstance(new, StructType):
        for f in old.fields:
            other = new.find(f.name)
            if other is not None:
                path = (*within, f.name)
                yield from widened(f.type, other.type, path, path)
        return
    inside = paired(old, new)
    if inside is not None:
        for name, a, b in inside:
            yield from widened(a, b, column, (*within, name))
    elif can_widen(old, new):
        yield column, old, new


def record_changes(old: StructType, new: StructType, *, version: int | None = None) -> StructType:
    """``new`` with every widened type recorded; only the preview of the feature records the commit's ``version``."""
    fields = []
    for f in new.fields:
        before = old.find(f.name)
        if before is not None:
            changes = [*type_changes(f), *_changes(before.type, f.type, (), version)]
            metadata = {k: v for k, v in f.metadata.items() if k != TYPE_CHANGES}
            if changes:
                metadata[TYPE_CHANGES] = changes
            f = replace(f, type=_recorded(before.type, f.type, version), metadata=metadata)
        fields.append(f)
    return StructType(tuple(fields))


def recorded_for(schema: StructType, planned: int, version: int) -> StructType:
    """The schema with changes that the preview recorded for the version ``planned`` recorded for ``version``.

    Returns the same object if there are none.
    """
    if not any(c.get(_VERSION) == planned for f in nested_fields(schema) for c in type_changes(f)):
        return schema

    def moved(f: StructField) -> StructField:
        changes = [{**c, _VERSION: version} if c.get(_VERSION) == planned else c for c in type_changes(f)]
        return replace(f, metadata={**f.metadata, TYPE_CHANGES: changes}) if changes else f

    return each_field(schema, moved)


def _recorded(old: DataType, new: DataType, version: int | None) -> DataType:
    if isinstance(old, StructType) and isinstance(new, StructType):
        return record_changes(old, new, version=version)
    inside = paired(old, new)
    return new if inside is None else with_parts(new, [_recorded(a, b, version) for _, a, b in inside])


def _changes(old: DataType, new: DataType, path: tuple[str, ...], version: int | None) -> list[dict[str, Any]]:
    """The changes of types within one field, down to the next struct."""
    inside = paired(old, new)
    if inside is not None:
        return [change for name, a, b in inside for change in _changes(a, b, (*path, name), version)]
    if not can_widen(old, new):
        return []
    change: dict[str, Any] = {} if version is None else {_VERSION: version}
    change |= {"fromType": str(old), "toType": str(new)}
    if path:
        change["fieldPath"] = ".".join(path)
    return [change]
