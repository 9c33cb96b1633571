"""What SYNC IDENTITY makes of an identity column: a high-water mark that no row lies beyond.  Pure functions."""

from __future__ import annotations

from trilake.delta.metadata.schema_changes import MetadataChange, change_of_column
from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.schema import StructType
from trilake.delta.protocol.schema_edit import PathLike, path_text, spelled
from trilake.delta.rules.identity import IdentityColumn, identity_columns, updated_schema
from trilake.errors import InvalidArgumentError


def identity_column(schema: StructType, column: PathLike) -> IdentityColumn:
    """The identity column of a name.

    Raises ``SchemaMismatchError`` for a name that is no column, ``InvalidArgumentError`` for another column.
    """
    names = spelled(schema, column)
    found = next((c for c in identity_columns(schema) if (c.name,) == names), None)
    if found is None:
        raise InvalidArgumentError(
            f"{path_text(names)} is no identity column",
            help="SYNC IDENTITY is for columns GENERATED ... AS IDENTITY",
            column=path_text(names),
        )
    return found


def sync_identity(protocol: Protocol, metadata: Metadata, column: PathLike, reached: int | None) -> MetadataChange:
    """Let an identity column go on behind ``reached``, the furthest value of its rows; the mark never goes back.

    Raises as :func:`identity_column`, and ``IdentityOverflowError`` where no value is left.
    """
    found, schema = identity_column(metadata.schema, column), metadata.schema
    if reached is not None:
        # The mark is a value of the column: the first one that is not nearer than what rows hold.
        mark = found.value(-((found.start - reached) // found.step))
        schema = updated_schema(schema, [{found.name: mark}])
    return change_of_column(protocol, metadata, schema, (found.name,))
