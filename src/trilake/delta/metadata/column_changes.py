"""Combined column changes, and SYNC IDENTITY.

``ALTER TABLE ... CHANGE COLUMN a a BIGINT COMMENT 'x' AFTER b`` applies several steps of
:mod:`trilake.delta.metadata.schema_changes` in turn.  Pure functions.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace

import orjson

from trilake.delta.metadata import schema_changes as steps
from trilake.delta.metadata.column_definitions import TypeLike, new_field
from trilake.delta.metadata.schema_changes import MetadataChange, change_of_column
from trilake.delta.metadata.type_changes import change_type
from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.char_varchar import TYPE_STRING
from trilake.delta.protocol.schema import StructType
from trilake.delta.protocol.schema_edit import PathLike, Position, path_text, spelled
from trilake.delta.rules.defaults import JudgeDefault
from trilake.delta.rules.identity import IdentityColumn, identity_columns, updated_schema
from trilake.errors import InvalidArgumentError


@dataclass(frozen=True)
class ColumnChange:
    """A change of one column; ``None`` leaves a property unchanged.

    Parameters
    ----------
    path: the column.
    type: a wider type.
    nullable: whether it may hold nulls.
    default: an expression for new rows that leave the column out; an empty string removes it.
    comment: its comment.
    position: its place among its neighbours.
    """

    path: PathLike
    type: TypeLike | None = None
    nullable: bool | None = None
    default: str | None = None
    comment: str | None = None
    position: Position | None = None


def change_columns(
    protocol: Protocol,
    metadata: Metadata,
    changes: Sequence[ColumnChange],
    *,
    version: int,
    now: dt.datetime,
    judge: JudgeDefault | None = None,
) -> MetadataChange:
    """Combine the changes of some columns into one change of the table.

    ``version`` is the version to be committed, ``now`` the time for default expressions, and ``judge`` checks those
    that DuckDB cannot parse.  Raises what each step raises, and ``InvalidArgumentError`` for an empty change.
    """
    steps: list[MetadataChange] = []
    for change in changes:
        changed = _steps(protocol, metadata, change, version, now, judge)
        protocol, metadata = changed[-1].protocol, changed[-1].metadata
        whole = {k: v for step in changed for k, v in step.parameters.items()}  # the column after the last step
        conditions = tuple(c for step in changed for c in step.conditions)
        steps.append(replace(changed[-1], parameters=whole, conditions=conditions))
    if not steps:
        raise InvalidArgumentError("no column is given to be changed")
    if len(steps) == 1:
        return steps[0]
    logged = [{**d.parameters, "column": orjson.loads(d.parameters["column"])} for d in steps]
    conditions = tuple(c for d in steps for c in d.conditions)
    return MetadataChange(protocol, metadata, "CHANGE COLUMNS", {"columns": orjson.dumps(logged).decode()}, conditions)


def _steps(
    protocol: Protocol,
    metadata: Metadata,
    change: ColumnChange,
    version: int,
    now: dt.datetime,
    judge: JudgeDefault | None,
) -> list[MetadataChange]:
    out: list[MetadataChange] = []

    def state() -> tuple[Protocol, Metadata]:
        return (out[-1].protocol, out[-1].metadata) if out else (protocol, metadata)

    if change.type is not None:
        new = new_field("", change.type)
        limit = new.metadata.get(TYPE_STRING)
        out.append(change_type(*state(), change.path, new.type, version=version, limit=limit))
    if change.nullable is not None:
        out.append((steps.set_nullable if change.nullable else steps.set_not_null)(*state(), change.path))
    if change.default:
        out.append(steps.set_default(*state(), change.path, change.default, now=now, judge=judge))
    elif change.default is not None:
        out.append(steps.drop_default(*state(), change.path))
    if change.comment is not None:
        out.append(steps.comment_column(*state(), change.path, change.comment))
    if change.position is not None:
        out.append(steps.move_column(*state(), change.path, change.position))
    if not out:
        raise InvalidArgumentError(
            "nothing of the column is to be changed", help="say its type, its comment or its place"
        )
    return out


def identity_column(schema: StructType, column: PathLike) -> IdentityColumn:
    """The identity column of a name.

    Raises ``SchemaMismatchError`` for an unknown name, ``InvalidArgumentError`` for a column that is not an
    identity column.
    """
    names = spelled(schema, column)
    identity = next((c for c in identity_columns(schema) if (c.name,) == names), None)
    if identity is None:
        raise InvalidArgumentError(
            f"{path_text(names)} is not an identity column",
            help="SYNC IDENTITY is for columns GENERATED ... AS IDENTITY",
            column=path_text(names),
            condition="DELTA_IDENTITY_COLUMNS_ALTER_NON_IDENTITY_COLUMN",
        )
    return identity


def sync_identity(protocol: Protocol, metadata: Metadata, column: PathLike, reached: int | None) -> MetadataChange:
    """Advance an identity column beyond ``reached``, the furthest value of its rows; the mark never goes back.

    Raises what :func:`identity_column` raises, and ``IdentityOverflowError`` where no value is left.
    """
    identity, schema = identity_column(metadata.schema, column), metadata.schema
    if reached is not None:
        # The mark is a value of the sequence: the first one at least as far as the rows' values.
        mark = identity.value(-((identity.start - reached) // identity.step))
        schema = updated_schema(schema, [{identity.name: mark}])
    return change_of_column(protocol, metadata, schema, (identity.name,))
