"""ALTER TABLE with case-sensitive column names, under ``spark.sql.caseSensitive``."""

from __future__ import annotations

from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.metadata.column_changes import ColumnChange
from trilake.delta.metadata.schema_changes import NewColumn
from trilake.delta.protocol.schema import StructType
from trilake.delta.protocol.schema_edit import PathLike, Position, parse_path, spelled, type_at


class ExactAlter(Alter):
    """``Alter`` that raises ``SchemaMismatchError`` for a column in another case.

    Names of new columns must still differ by more than case, as Delta's protocol says.
    """

    def add(self, *columns: NewColumn) -> int:
        """Add columns."""
        for column in columns:
            self._find(column.parent)
            self._find_place(column.parent, column.position)
        return super().add(*columns)

    def rename_column(self, path: PathLike, new_name: str) -> int:
        """Rename a column, nested or not."""
        self._find(path)
        return super().rename_column(path, new_name)

    def drop_columns(self, *paths: PathLike) -> int:
        """Drop columns, nested or not."""
        for path in paths:
            self._find(path)
        return super().drop_columns(*paths)

    def change_columns(self, *changes: ColumnChange) -> int:
        """Change columns in one commit."""
        for change in changes:
            self._find(change.path)
            self._find_place(parse_path(change.path)[:-1], change.position)
        return super().change_columns(*changes)

    def sync_identity(self, column: PathLike) -> int:
        """Continue an identity column after the highest value in the rows."""
        self._find(column)
        return super().sync_identity(column)

    def _find(self, path: PathLike) -> None:
        if path:
            spelled(existing_columns(self), path)

    def _find_place(self, parent: PathLike, position: Position | None) -> None:
        """Check the case of the column after which one is placed; it may be new, too."""
        if position is None or position.after is None:
            return
        columns = existing_columns(self)
        siblings = type_at(columns, parent) if parent else columns
        if isinstance(siblings, StructType) and StructType(siblings.fields).find(position.after) is not None:
            spelled(siblings, (position.after,))


def existing_columns(alter: Alter) -> StructType:
    """The table's columns, found with or without regard to case, as ``alter`` finds them."""
    schema = alter.log.head().schema
    return schema.exact() if isinstance(alter, ExactAlter) else schema
