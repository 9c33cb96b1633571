"""ALTER TABLE of our tables, in all forms, through the methods of the Python interface."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.metadata.schema_changes import NewColumn
from trilake.delta.protocol.schema_edit import FIRST, Position
from trilake.errors import InvalidArgumentError
from trilake.spark.delta.conditions import violation_finder
from trilake.spark.session.runner import SparkRunner
from trilake.sql.grammar.create import _type, key_values, parse_column, property_key
from trilake.sql.session import catalogue, jvm
from trilake.sql.session.expressions import items, spans, split_names
from trilake.sql.session.frames import log_to_change, open_delta
from trilake.sql.session.results import nothing
from trilake.sql.session.session import SqlSession
from trilake.sql.session.targets import Target, View, resolve
from trilake.sql.tables.create_table import field_of
from trilake.sql.tables.view_statements import alter_view
from trilake.sql.text.cursor import Cursor
from trilake.sql.text.tokens import quote_name

_END = ("FIRST", "AFTER")


def run_alter(session: SqlSession, text: str) -> DataFrame | None:
    """Change a table; ``None`` where the statement is Spark's."""
    cursor = Cursor(text)
    if cursor.is_word("ALTER", "VIEW"):
        return alter_view(session, text)
    if not cursor.accept("ALTER", "TABLE"):
        return None
    parts = cursor.name()
    target = resolve(session, parts)
    if target is None:
        return None
    if session.classic and not _delta_only(cursor):
        jvm.parse_plan(session.spark, text)
    if isinstance(target, View):
        return None  # Spark says that a view is no table
    if cursor.accept("RENAME", "TO"):
        return _rename(session, target, text)
    if target.format != "delta":
        raise InvalidArgumentError(
            f"ALTER TABLE is for Delta tables, and {target.shown} is a {target.format} table", file=target.path
        )
    if not target.log.exists():
        open_delta(session, target)
    if cursor.accept("SET", "LOCATION"):
        return _set_location(session, target, cursor)
    alter = Alter(
        log_to_change(session, target),
        find_violation=violation_finder(session.spark, target.path, {}),
        run=SparkRunner(session.spark),
    )
    for words, change in _FORMS:
        if cursor.accept(*words):
            change(alter, cursor)
            cursor.end()
            catalogue.refresh(session, target)
            return nothing(session)
    raise InvalidArgumentError(
        f"this form of ALTER TABLE is not for Delta tables: {text.strip()}", help="partitions follow from the rows"
    )


def _delta_only(cursor: Cursor) -> bool:
    """Forms that Spark's parser does not know, or not in all releases."""
    return any(
        cursor.is_word(*w)
        for w in (("DROP", "FEATURE"), ("ADD", "CONSTRAINT"), ("DROP", "CONSTRAINT"), ("CLUSTER", "BY"))
    ) or any(t.upper == "SYNC" for t in cursor.tokens)


def _rename(session: SqlSession, target: Target, text: str) -> DataFrame | None:
    if target.entry is None:
        raise InvalidArgumentError("a table that is named by its path has no other name", file=target.path)
    return None  # a matter of the catalogue


def _set_location(session: SqlSession, target: Target, cursor: Cursor) -> DataFrame | None:
    if target.entry is None:
        raise InvalidArgumentError("a table that is named by its path cannot have another one", file=target.path)
    place = cursor.string()
    there = Target(("delta", place), "delta", place)
    if not there.log.exists():
        raise InvalidArgumentError(f"there is no Delta table at {place}", help="name the place of a table", file=place)
    old, new = target.log.head(), there.log.head()
    check = session.setting("spark.databricks.delta.alterLocation.bypassSchemaCheck", "false").lower() != "true"
    if check and [(f.name, str(f.type)) for f in old.schema.fields] != [
        (f.name, str(f.type)) for f in new.schema.fields
    ]:
        raise InvalidArgumentError(f"the table at {place} has other columns", help="drop the name, and make it anew")
    catalogue.remove(session, target)
    catalogue.add_delta(session, target.parts, place, managed=False)
    return nothing(session)


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
    cursor.accept("COLUMN") or cursor.accept("COLUMNS")
    while True:
        path = cursor.name()
        _one_change(alter, path, cursor)
        if not cursor.accept_symbol(","):
            return


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
        _sync_identity(alter, path)
    elif cursor.accept("TYPE"):
        alter.change_type(path, _type(cursor))
    elif cursor.accept("COMMENT"):
        alter.comment(cursor.string(), path)
    elif cursor.accept("FIRST"):
        alter.move_column(path, first=True)
    elif cursor.accept("AFTER"):
        alter.move_column(path, after=cursor.part())
    else:
        _as_in_hive(alter, path, cursor)


def _sync_identity(alter: Alter, path: tuple[str, ...]) -> None:
    raise InvalidArgumentError(
        "identity columns need no SYNC IDENTITY: a write finds the highest value by itself",
        help="leave the statement out",
        column=".".join(path),
    )


def _as_in_hive(alter: Alter, path: tuple[str, ...], cursor: Cursor) -> None:
    """``CHANGE COLUMN a a BIGINT COMMENT 'x' AFTER b``: name, type, comment and place at once."""
    if cursor.part().lower() != path[-1].lower():
        raise InvalidArgumentError("a column is renamed with RENAME COLUMN", column=path[-1])
    alter.change_type(path, _type(cursor))
    if cursor.accept("NOT", "NULL"):
        alter.set_not_null(path)
    if cursor.accept("COMMENT"):
        alter.comment(cursor.string(), path)
    if cursor.accept("FIRST"):
        alter.move_column(path, first=True)
    elif cursor.accept("AFTER"):
        alter.move_column(path, after=cursor.part())


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
