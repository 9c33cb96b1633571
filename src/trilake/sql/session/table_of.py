"""The table that a statement changes: a table of ours, or a view that shows all of one."""

from __future__ import annotations

from trilake.errors import InvalidArgumentError, TableNotFoundError
from trilake.sql.session.session import SqlSession
from trilake.sql.session.targets import Target, View, path_target, resolve
from trilake.sql.text.cursor import Cursor, SyntaxProblem


def known_table(session: SqlSession, parts: tuple[str, ...]) -> Target | None:
    """The table of ours that a name stands for, through views that show all of it; ``None`` for anything else.

    Raises ``InvalidArgumentError`` for another view.
    """
    found = resolve(session, parts)
    if isinstance(found, View):
        whole = _whole(session, found)
        if whole is None:
            raise InvalidArgumentError(
                f"{'.'.join(parts)} is a view, and does not show a whole table", help="change the table itself"
            )
        return whole
    if found is not None and found.at is not None:
        raise InvalidArgumentError(
            f"{found.shown} is a version of a table, which cannot be changed", help="leave the version out"
        )
    return found


def _whole(session: SqlSession, view: View) -> Target | None:
    """The table of which a view is ``SELECT * FROM table``."""
    if view.columns is not None:
        return None
    cursor = Cursor(view.text)
    try:
        cursor.expect("SELECT")
        cursor.expect_symbol("*")
        cursor.expect("FROM")
        parts = cursor.name()
        cursor.end()
    except SyntaxProblem:
        return None
    if len(parts) == 1 and path_target(session, parts) is None:
        parts = (view.database, *parts)
    return known_table(session, parts)


def delta_table(session: SqlSession, parts: tuple[str, ...], what: str) -> Target:
    """The Delta table of a name.

    Raises ``TableNotFoundError`` where there is none, ``InvalidArgumentError`` where it is something else.
    """
    found = known_table(session, parts)
    if found is None:
        raise TableNotFoundError(
            f"the table or view `{'`.`'.join(parts)}` cannot be found, or is no table of ours", help="check the name"
        )
    if found.format != "delta":
        raise InvalidArgumentError(f"{what} is for Delta tables, and {found.shown} is a {found.format} table")
    return found
