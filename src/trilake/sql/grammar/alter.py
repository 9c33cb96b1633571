"""ALTER TABLE as it is written: each form as a call of :class:`~trilake.delta.commands.alter.alter_table.Alter`."""

from __future__ import annotations

from collections.abc import Callable

from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.metadata.schema_changes import NewColumn
from trilake.delta.protocol.schema_edit import FIRST, Position
from trilake.errors import InvalidArgumentError
from trilake.sql.grammar.create import key_values, parse_column, parse_type, property_key
from trilake.sql.grammar.descriptions import field_of
from trilake.sql.text.cursor import Cursor
from trilake.sql.text.expressions import items, spans, split_names
from trilake.text import quote_name

_END = ("FIRST", "AFTER")


def change_table(alter: Alter, cursor: Cursor) -> None:
    """Change a table as the words behind its name say, in one commit for each change.

    Raises ``SyntaxProblem``, ``InvalidArgumentError`` for a form that is not for Delta tables, and what the methods of
    ``Alter`` raise.
    """
    for words, change in _FORMS:
        if cursor.accept(*words):
            change(alter, cursor)
            cursor.end()
            return
    raise InvalidArgumentError(
        f"this form of ALTER TABLE is not for Delta tables: {cursor.text.strip()}",
        help="partitions follow from the rows",
    )


# --- columns ---------------------------------------------------------------------------------------------------------


def _add_columns(alter: Alter, cursor: Cursor) -> None:
    cursor.accept("COLUMNS") or cursor.accept("COLUMN")
    if cursor.is_symbol("("):
        texts = items(cursor.text[slice(*cursor.brackets())])
    else:
        start, end = cursor.until()
        texts = items(cursor.text[start:end].rstrip("; \n\t"))
    alter.add(*(_new_column(t) for t in texts))


def _new_column(text: str) -> NewColumn:
    cursor = Cursor(text)
    path = cursor.name()
    body, position = _positioned(cursor)
    column = parse_column(Cursor(f"{quote_name(path[-1])} {body}"))
    if column.default is not None:
        raise InvalidArgumentError(
            "a column is added without a default: rows that are there would have none",
            help="add the column, and set its default with ALTER COLUMN ... SET DEFAULT",
            column=path[-1],
        )
    return NewColumn(field_of(column), path[:-1], position)


def _positioned(cursor: Cursor) -> tuple[str, Position | None]:
    """What is said of a column, without its place at the end, and that place."""
    start, end = cursor.until(*_END)
    body = cursor.text[start:end]
    if cursor.accept("FIRST"):
        position: Position | None = FIRST
    elif cursor.accept("AFTER"):
        position = Position(cursor.part())
    else:
        position = None
    rest = cursor.rest()  # a comment may follow the place
    return f"{body} {rest}", position


def _rename_column(alter: Alter, cursor: Cursor) -> None:
    path = cursor.name()
    cursor.expect("TO")
    alter.rename_column(path, cursor.part())


def _drop_columns(alter: Alter, cursor: Cursor) -> None:
    if not cursor.accept("COLUMNS"):
        cursor.expect("COLUMN")
    if_exists = cursor.accept("IF", "EXISTS")
    if cursor.is_symbol("("):
        texts = items(cursor.text[slice(*cursor.brackets())])
    else:
        start, end = cursor.until()
        texts = items(cursor.text[start:end].rstrip("; \n\t"))
    paths = split_names([t.strip() for t in texts])
    if if_exists:
        schema = alter.log.head().schema
        paths = [p for p in paths if schema.find(p[0]) is not None]
    if paths:
        alter.drop_columns(*paths)


def _alter_column(alter: Alter, cursor: Cursor) -> None:
    hive = cursor.tokens[cursor.at - 1].upper == "CHANGE"
    cursor.accept("COLUMN") or cursor.accept("COLUMNS")
    while True:
        path = cursor.name()
        if hive and _says_name_and_type(path, cursor):
            _as_in_hive(alter, path, cursor)
        else:
            _one_change(alter, path, cursor)
        if not cursor.accept_symbol(","):
            return


def _says_name_and_type(path: tuple[str, ...], cursor: Cursor) -> bool:
    """Whether the column's own name follows, which may be a word such as ``first``, and something like a type."""
    token, at = cursor.token, cursor.at + 1
    if token is None or not token.is_name or token.name.lower() != path[-1].lower() or token.upper == "AFTER":
        return False
    return at < len(cursor.tokens) and cursor.tokens[at].is_name


def _one_change(alter: Alter, path: tuple[str, ...], cursor: Cursor) -> None:
    if cursor.accept("SET", "NOT", "NULL"):
        alter.set_not_null(path)
    elif cursor.accept("DROP", "NOT", "NULL"):
        alter.set_nullable(path)
    elif cursor.accept("SET", "DEFAULT"):
        start, end = cursor.until(symbols=",")
        alter.set_default(path, cursor.text[start:end].rstrip("; \n\t"))
    elif cursor.accept("DROP", "DEFAULT"):
        alter.drop_default(path)
    elif cursor.accept("SYNC", "IDENTITY"):
        alter.sync_identity(path)
    elif cursor.accept("TYPE"):
        alter.change_type(path, parse_type(cursor))
    elif cursor.accept("COMMENT"):
        alter.comment(cursor.string(), path)
    elif not _moved(alter, path, cursor):
        _as_in_hive(alter, path, cursor)


def _moved(alter: Alter, path: tuple[str, ...], cursor: Cursor) -> bool:
    """Move the column where a place follows; whether one does."""
    if cursor.accept("FIRST"):
        alter.move_column(path, first=True)
    elif cursor.accept("AFTER"):
        alter.move_column(path, after=cursor.part())
    else:
        return False
    return True


def _as_in_hive(alter: Alter, path: tuple[str, ...], cursor: Cursor) -> None:
    """``CHANGE COLUMN a a BIGINT COMMENT 'x' AFTER b``: name, type, comment and place at once."""
    if cursor.part().lower() != path[-1].lower():
        raise InvalidArgumentError("a column is renamed with RENAME COLUMN", column=path[-1])
    alter.change_type(path, parse_type(cursor))
    if cursor.accept("NOT", "NULL"):
        alter.set_not_null(path)
    if cursor.accept("COMMENT"):
        alter.comment(cursor.string(), path)
    _moved(alter, path, cursor)


def _replace_columns(alter: Alter, cursor: Cursor) -> None:
    start, end = cursor.brackets()
    columns = [
        parse_column(Cursor(cursor.text[start + a : start + b])) for a, b in spans(Cursor(cursor.text[start:end]))
    ]
    alter.replace_columns([field_of(c) for c in columns])


# --- properties ------------------------------------------------------------------------------------------------------


def _set_properties(alter: Alter, cursor: Cursor) -> None:
    properties = dict(key_values(cursor))
    comment = properties.pop("comment", None)
    if comment is not None:
        alter.comment(comment)
    if properties:
        alter.set_properties(properties)


def _unset_properties(alter: Alter, cursor: Cursor) -> None:
    cursor.accept("IF", "EXISTS")  # delta-spark does not mind properties that are not set either
    inside = Cursor(cursor.text[slice(*cursor.brackets())])
    keys = [property_key(inside)]
    while inside.accept_symbol(","):
        keys.append(property_key(inside))
    if "comment" in keys:
        keys.remove("comment")
        alter.comment(None)
    if keys:
        alter.unset_properties(*keys, if_exists=True)


def _add_constraint(alter: Alter, cursor: Cursor) -> None:
    name = cursor.part()
    cursor.expect("CHECK")
    alter.add_constraint(name, cursor.text[slice(*cursor.brackets())].strip())
    while cursor.is_any("ENFORCED"):
        cursor.take()


def _drop_constraint(alter: Alter, cursor: Cursor) -> None:
    if_exists = cursor.accept("IF", "EXISTS")
    alter.drop_constraint(cursor.part(), if_exists=if_exists)


def _cluster_by(alter: Alter, cursor: Cursor) -> None:
    if cursor.accept("NONE"):
        alter.cluster_by()
        return
    alter.cluster_by(*split_names([t.strip() for t in items(cursor.text[slice(*cursor.brackets())])]))


def _drop_feature(alter: Alter, cursor: Cursor) -> None:
    token = cursor.token
    name = cursor.string() if token is not None and token.kind == "string" else cursor.part()
    alter.drop_feature(name, truncate_history=cursor.accept("TRUNCATE", "HISTORY"), protect_history=True)


_FORMS: tuple[tuple[tuple[str, ...], Callable[[Alter, Cursor], None]], ...] = (
    (("ADD", "CONSTRAINT"), _add_constraint),
    (("DROP", "CONSTRAINT"), _drop_constraint),
    (("DROP", "FEATURE"), _drop_feature),
    (("CLUSTER", "BY"), _cluster_by),
    (("SET", "TBLPROPERTIES"), _set_properties),
    (("UNSET", "TBLPROPERTIES"), _unset_properties),
    (("RENAME", "COLUMN"), _rename_column),
    (("REPLACE", "COLUMNS"), _replace_columns),
    (("ADD", "COLUMN"), _add_columns),
    (("ADD", "COLUMNS"), _add_columns),
    (("DROP",), _drop_columns),
    (("ALTER",), _alter_column),
    (("CHANGE",), _alter_column),
)
