"""Parse ALTER TABLE: each form becomes a call of :class:`~trilake.delta.commands.alter.alter_table.Alter`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NoReturn, TypeAlias

from trilake.common.text import quote_name
from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.metadata.column_changes import ColumnChange
from trilake.delta.metadata.schema_changes import NewColumn
from trilake.delta.protocol.schema import StructType
from trilake.delta.protocol.schema_edit import FIRST, PathLike, Position, parse_path, spelled, type_at
from trilake.errors import InvalidArgumentError
from trilake.sql.parser.create import (
    check_clustering_feature,
    field_of,
    key_values,
    parse_column,
    parse_type,
    property_key,
)
from trilake.sql.parser.cursor import Cursor, items
from trilake.sql.parser.expressions import split_names
from trilake.sql.parser.tokens import spaced

_END = ("FIRST", "AFTER")
#: Applies the change, once the whole statement is parsed.
_Change: TypeAlias = Callable[[], object]


def change_table(alter: Alter, cursor: Cursor) -> None:
    """Parse what follows the table's name, and apply it in one commit.

    Raises ``SyntaxProblem``, ``InvalidArgumentError`` for a form that Delta tables do not support, and the errors of
    ``Alter``.
    """
    for words, form in _FORMS:
        if cursor.accept(*words):
            change = form(alter, cursor)
            cursor.end()  # before anything is changed
            change()
            return
    _reject(alter, cursor)


def _reject(alter: Alter, cursor: Cursor) -> NoReturn:
    begin = cursor.tokens[: cursor.at + 5]
    raise InvalidArgumentError(
        f"this form of ALTER TABLE is not supported for Delta tables: {cursor.sql.strip()}",
        help="leave it out: partitions are created when rows are written"
        if any(t.upper in ("PARTITION", "PARTITIONS") for t in begin)
        else "you can alter columns, properties, constraints, features, clustering, name and location",
    )


def _add_columns(alter: Alter, cursor: Cursor) -> _Change:
    cursor.accept("COLUMNS") or cursor.accept("COLUMN")
    return partial(alter.add, *map(_new_column, cursor.listed()))


def _new_column(sql: str) -> NewColumn:
    cursor = Cursor(sql)
    path = cursor.name()
    definition, position = cursor.sql_until(*_END), _place(cursor)
    column = parse_column(Cursor(f"{quote_name(path[-1])} {definition} {cursor.rest()}"))  # a comment may come last
    if column.default is not None:
        raise InvalidArgumentError(
            "a new column cannot have a default: existing rows would not get it",
            help="add the column, and set its default with ALTER COLUMN ... SET DEFAULT",
            column=path[-1],
            condition="WRONG_COLUMN_DEFAULTS_FOR_DELTA_ALTER_TABLE_ADD_COLUMN_NOT_SUPPORTED",
        )
    return NewColumn(field_of(column), path[:-1], position)


def _rename_column(alter: Alter, cursor: Cursor) -> _Change:
    path = cursor.name()
    cursor.expect("TO")
    return partial(alter.rename_column, path, cursor.part())


def _drop_columns(alter: Alter, cursor: Cursor) -> _Change:
    if not cursor.accept("COLUMNS"):
        cursor.expect("COLUMN")
    if_exists = cursor.accept("IF", "EXISTS")
    paths = split_names(cursor.listed())
    if if_exists:
        schema = existing_columns(alter)
        paths = [p for p in paths if schema.find(p[0]) is not None]
    return partial(alter.drop_columns, *paths) if paths else lambda: None


def _alter_column(alter: Alter, cursor: Cursor) -> _Change:
    hive = cursor.tokens[cursor.at - 1].upper == "CHANGE"
    cursor.accept("COLUMN") or cursor.accept("COLUMNS")
    changes: list[ColumnChange] = []
    while True:
        path = cursor.name()
        if not changes and cursor.accept("SYNC", "IDENTITY"):
            return partial(alter.sync_identity, path)
        is_hive = hive and _repeats_name(path, cursor)
        changes.append((_as_in_hive if is_hive else _one_change)(path, cursor))
        if not cursor.accept_symbol(","):
            return partial(alter.change_columns, *changes)


def _repeats_name(path: tuple[str, ...], cursor: Cursor) -> bool:
    """Whether the column's name follows again, and then a type; the name may be a keyword such as ``first``."""
    token, at = cursor.token, cursor.at + 1
    if token is None or not token.is_name or token.name.lower() != path[-1].lower() or token.upper == "AFTER":
        return False
    return at < len(cursor.tokens) and cursor.tokens[at].is_name


def _one_change(path: tuple[str, ...], cursor: Cursor) -> ColumnChange:
    if cursor.accept("SET", "NOT", "NULL"):
        return ColumnChange(path, nullable=False)
    if cursor.accept("DROP", "NOT", "NULL"):
        return ColumnChange(path, nullable=True)
    if cursor.accept("SET", "DEFAULT"):
        return ColumnChange(path, default=cursor.sql_until(symbols=","))
    if cursor.accept("DROP", "DEFAULT"):
        return ColumnChange(path, default="")
    if cursor.accept("TYPE"):
        return ColumnChange(path, type=parse_type(cursor))
    if cursor.accept("COMMENT"):
        return ColumnChange(path, comment=cursor.string())
    position = _place(cursor)
    return _as_in_hive(path, cursor) if position is None else ColumnChange(path, position=position)


def _place(cursor: Cursor) -> Position | None:
    if cursor.accept("FIRST"):
        return FIRST
    return Position(cursor.part()) if cursor.accept("AFTER") else None


def _as_in_hive(path: tuple[str, ...], cursor: Cursor) -> ColumnChange:
    """``CHANGE COLUMN a a BIGINT COMMENT 'x' AFTER b``: name, type, comment and position at once."""
    if cursor.part().lower() != path[-1].lower():
        raise InvalidArgumentError(
            "CHANGE COLUMN cannot rename a column", help="write ALTER TABLE ... RENAME COLUMN", column=path[-1]
        )
    kind = parse_type(cursor)
    nullable = False if cursor.accept("NOT", "NULL") else None
    comment = cursor.string() if cursor.accept("COMMENT") else None
    return ColumnChange(path, kind, nullable, None, comment, _place(cursor))


def _set_properties(alter: Alter, cursor: Cursor) -> _Change:
    properties = dict(key_values(cursor))
    check_clustering_feature(properties, "DELTA_ALTER_TABLE_SET_CLUSTERING_TABLE_FEATURE_NOT_ALLOWED")
    return partial(alter.set_properties, properties)


def _unset_properties(alter: Alter, cursor: Cursor) -> _Change:
    cursor.accept("IF", "EXISTS")  # delta-spark accepts properties that are not set, too
    inside = cursor.inside()
    keys = [property_key(inside)]
    while inside.accept_symbol(","):
        keys.append(property_key(inside))
    return partial(alter.unset_properties, *keys, if_exists=True)


def _add_constraint(alter: Alter, cursor: Cursor) -> _Change:
    name = cursor.part()
    cursor.expect("CHECK")
    expression = spaced(cursor.bracketed())
    while cursor.is_any("ENFORCED"):
        cursor.take()
    return partial(alter.add_constraint, name, expression)


def _cluster_by(alter: Alter, cursor: Cursor) -> _Change:
    if cursor.accept("NONE"):
        return alter.cluster_by
    return partial(alter.cluster_by, *split_names(items(cursor.bracketed())))


def _drop_feature(alter: Alter, cursor: Cursor) -> _Change:
    token = cursor.token
    name = cursor.string() if token is not None and token.kind == "string" else cursor.part()
    truncate = cursor.accept("TRUNCATE", "HISTORY")
    return partial(alter.drop_feature, name, truncate_history=truncate, protect_history=True)


_FORMS: tuple[tuple[tuple[str, ...], Callable[[Alter, Cursor], _Change]], ...] = (
    (("ADD", "CONSTRAINT"), _add_constraint),
    (
        ("DROP", "CONSTRAINT"),
        lambda a, c: partial(a.drop_constraint, if_exists=c.accept("IF", "EXISTS"), name=c.part()),
    ),
    (("DROP", "FEATURE"), _drop_feature),
    (("CLUSTER", "BY"), _cluster_by),
    (("SET", "TBLPROPERTIES"), _set_properties),
    (("UNSET", "TBLPROPERTIES"), _unset_properties),
    (("RENAME", "COLUMN"), _rename_column),
    (
        ("REPLACE", "COLUMNS"),
        lambda a, c: partial(a.replace_columns, [field_of(parse_column(piece)) for piece in c.pieces()]),
    ),
    (("ADD", "COLUMN"), _add_columns),
    (("ADD", "COLUMNS"), _add_columns),
    (("DROP", "PARTITION"), _reject),
    (("DROP", "IF", "EXISTS", "PARTITION"), _reject),
    (("DROP",), _drop_columns),
    (("ALTER",), _alter_column),
    (("CHANGE",), _alter_column),
)


# --- case-sensitive column names, under ``spark.sql.caseSensitive`` ---------------------------------------------------


class ExactAlter(Alter):
    """``Alter`` that raises ``SchemaMismatchError`` for a column in another case.

    Names of new columns must still differ by more than case, as Delta's protocol says.
    """

    def add(self, *columns: NewColumn) -> int:
        for column in columns:
            self._find(column.parent)
            self._find_place(column.parent, column.position)
        return super().add(*columns)

    def rename_column(self, path: PathLike, new_name: str) -> int:
        self._find(path)
        return super().rename_column(path, new_name)

    def drop_columns(self, *paths: PathLike) -> int:
        for path in paths:
            self._find(path)
        return super().drop_columns(*paths)

    def change_columns(self, *changes: ColumnChange) -> int:
        for change in changes:
            self._find(change.path)
            self._find_place(parse_path(change.path)[:-1], change.position)
        return super().change_columns(*changes)

    def sync_identity(self, column: PathLike) -> int:
        self._find(column)
        return super().sync_identity(column)

    def _find(self, path: PathLike) -> None:
        if path:
            spelled(existing_columns(self), path)

    def _find_place(self, parent: PathLike, position: Position | None) -> None:
        """Check the case of the column named by ``AFTER``, unless it is new."""
        if position is None or position.after is None:
            return
        columns = existing_columns(self)
        siblings = type_at(columns, parent) if parent else columns
        if isinstance(siblings, StructType) and StructType(siblings.fields).find(position.after) is not None:
            spelled(siblings, (position.after,))


def existing_columns(alter: Alter) -> StructType:
    """The table's columns; their names are case-sensitive for an ``ExactAlter``."""
    schema = alter.log.head().schema
    return schema.exact() if isinstance(alter, ExactAlter) else schema
