"""Parse Delta's own statements, which Spark's parser does not know."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from trilake.common.text import string_value
from trilake.sql.parser.cursor import Cursor, items

Name = tuple[str, ...]


@dataclass(frozen=True)
class Optimize:
    """``OPTIMIZE table [FULL] [WHERE condition] [ZORDER BY (columns)]``."""

    parts: Name
    where: str | None = None
    zorder_by: tuple[str, ...] = ()
    full: bool = False


@dataclass(frozen=True)
class Vacuum:
    """``VACUUM table [FULL|LITE] [USING INVENTORY ...] [RETAIN n HOURS] [DRY RUN]``."""

    parts: Name
    hours: float | None = None
    dry_run: bool = False
    lite: bool | None = None
    inventory: str | None = None


@dataclass(frozen=True)
class History:
    """``DESCRIBE HISTORY table [LIMIT n]``."""

    parts: Name
    limit: int | None = None


@dataclass(frozen=True)
class Detail:
    """``DESCRIBE DETAIL table``."""

    parts: Name


@dataclass(frozen=True)
class Restore:
    """``RESTORE [TABLE] table [TO] VERSION AS OF n | TIMESTAMP AS OF t``."""

    parts: Name
    version: int | None = None
    timestamp: str | None = None


@dataclass(frozen=True)
class Convert:
    """``CONVERT TO DELTA table [NO STATISTICS] [PARTITIONED BY (columns)]``."""

    parts: Name
    partitions: str | None = None
    statistics: bool = True


@dataclass(frozen=True)
class Generate:
    """``GENERATE mode FOR TABLE table``."""

    parts: Name
    mode: str


@dataclass(frozen=True)
class Reorg:
    """``REORG TABLE table [WHERE condition] APPLY (PURGE | UPGRADE UNIFORM (ICEBERG_COMPAT_VERSION = version))``."""

    parts: Name
    where: str | None = None
    #: The Iceberg compatibility version to upgrade to, ``None`` to purge.
    compat: int | None = None


@dataclass(frozen=True)
class Fsck:
    """``FSCK REPAIR TABLE table [DRY RUN]``."""

    parts: Name
    dry_run: bool = False


@dataclass(frozen=True)
class Analyze:
    """``ANALYZE TABLE table COMPUTE [DELTA] STATISTICS [NOSCAN | FOR COLUMNS columns | FOR ALL COLUMNS]``."""

    parts: Name
    #: Whether to recompute existing statistics: ``DELTA``.
    everything: bool = False
    scan: bool = True
    columns: tuple[Name, ...] = ()


Maintenance = Optimize | Vacuum | History | Detail | Restore | Convert | Generate | Reorg | Fsck


def parse_maintenance(cursor: Cursor) -> Maintenance | None:
    """Parse the statement; ``None`` for any other one.  Raises ``SyntaxProblem``.

    >>> parse_maintenance(Cursor("VACUUM t RETAIN 12.5 HOURS DRY RUN"))
    Vacuum(parts=('t',), hours=12.5, dry_run=True, lite=None, inventory=None)
    """
    for words, read in _STATEMENTS:
        behind = Cursor(cursor.sql, cursor.tokens, cursor.at + len(words)).token
        # ``DESCRIBE history`` describes a table of that name.
        if cursor.is_word(*words) and behind is not None and behind.kind in ("word", "quoted", "string"):
            cursor.accept(*words)
            out = read(cursor)
            cursor.end()
            return out
    return None


def _table(cursor: Cursor) -> Name:
    is_path = cursor.token is not None and cursor.token.kind == "string"
    return (string_value(cursor.take().text),) if is_path else cursor.name()


def _optimize(cursor: Cursor) -> Optimize:
    cursor.accept("TABLE") if not cursor.is_word("TABLE", "WHERE") else None
    parts = _table(cursor)
    full = cursor.accept("FULL")
    where = None
    if cursor.accept("WHERE"):
        where = cursor.sql_until("ZORDER") or cursor.fail()
    columns: tuple[str, ...] = ()
    if cursor.accept("ZORDER"):
        cursor.expect("BY")
        inside = cursor.bracketed() if cursor.is_symbol("(") else cursor.sql_until()
        columns = tuple(x.strip() for x in items(inside))
        if not columns or not all(columns) or inside.rstrip().endswith(","):
            cursor.fail("ZORDER BY needs at least one column")
    return Optimize(parts, where, columns, full)


def _vacuum(cursor: Cursor) -> Vacuum:
    parts = _table(cursor)
    hours, dry_run, lite, inventory = None, False, None, None
    clauses = set[str]()
    while not cursor.done:
        kind = "FULL or LITE" if cursor.is_word("LITE") or cursor.is_word("FULL") else cursor.tokens[cursor.at].upper
        if kind in clauses:
            cursor.fail(f"write {kind} once")
        clauses.add(kind)
        if cursor.accept("RETAIN"):
            token = cursor.token
            if token is None or token.kind != "number":
                cursor.fail("expected a number of hours, such as RETAIN 168 HOURS")
            hours = float(cursor.number())
            if not math.isfinite(hours):
                cursor.fail()
            cursor.expect("HOURS") if not cursor.accept("HOUR") else None
        elif cursor.accept("DRY", "RUN"):
            dry_run = True
        elif cursor.accept("LITE"):
            lite = True
        elif cursor.accept("FULL"):
            lite = False
        elif cursor.accept("USING", "INVENTORY"):
            if cursor.is_symbol("("):
                inventory = cursor.bracketed()
            else:
                first = cursor.at
                cursor.name()
                inventory = f"SELECT * FROM {cursor.sql_since(first)}"
        else:
            cursor.fail()
    return Vacuum(parts, hours, dry_run, lite, inventory)


def _history(cursor: Cursor) -> History:
    return History(_table(cursor), cursor.whole_number() if cursor.accept("LIMIT") else None)


def _restore(cursor: Cursor) -> Restore:
    cursor.accept("TABLE")
    parts = _table(cursor)
    cursor.accept("TO")
    if cursor.accept("VERSION", "AS", "OF"):
        return Restore(parts, version=cursor.whole_number())
    cursor.expect("TIMESTAMP", "AS", "OF")
    return Restore(parts, timestamp=cursor.rest() or cursor.fail())


def _convert(cursor: Cursor) -> Convert:
    parts = _table(cursor)
    partitions, statistics = None, True
    while not cursor.done:
        if cursor.accept("NO", "STATISTICS"):
            statistics = False
        elif cursor.accept("PARTITIONED", "BY"):
            partitions = cursor.bracketed()
        else:
            cursor.fail()
    return Convert(parts, partitions, statistics)


def _generate(cursor: Cursor) -> Generate:
    mode = cursor.part().lower()
    cursor.expect("FOR", "TABLE")
    return Generate(_table(cursor), mode)


def _reorg(cursor: Cursor) -> Reorg:
    parts = _table(cursor)
    where = cursor.sql_until("APPLY") if cursor.accept("WHERE") else None
    cursor.expect("APPLY")
    cursor.expect_symbol("(")
    if where is None and cursor.accept("UPGRADE", "UNIFORM"):
        cursor.expect_symbol("(")
        cursor.expect("ICEBERG_COMPAT_VERSION")
        cursor.expect_symbol("=")
        compat = cursor.whole_number()
        cursor.expect_symbol(")")
        cursor.expect_symbol(")")
        return Reorg(parts, compat=compat)
    cursor.expect("PURGE")
    cursor.expect_symbol(")")
    return Reorg(parts, where)


def parse_analyze(cursor: Cursor) -> Analyze:
    """Parse ANALYZE TABLE.  Raises ``SyntaxProblem``."""
    cursor.expect("ANALYZE", "TABLE")
    parts = cursor.name()
    if cursor.is_word("PARTITION"):
        cursor.fail("leave PARTITION out: only files without statistics are read")
    cursor.expect("COMPUTE")
    everything = cursor.accept("DELTA")
    cursor.expect("STATISTICS")
    scan, columns = not cursor.accept("NOSCAN"), []
    if scan and cursor.accept("FOR") and not cursor.accept("ALL", "COLUMNS"):
        cursor.expect("COLUMNS")
        columns.append(cursor.name())
        while cursor.accept_symbol(","):
            columns.append(cursor.name())
    cursor.end()
    return Analyze(parts, everything, scan, tuple(columns))


_STATEMENTS: tuple[tuple[tuple[str, ...], Callable[[Cursor], Maintenance]], ...] = (
    (("OPTIMIZE",), _optimize),
    (("VACUUM",), _vacuum),
    *(((word, "HISTORY"), _history) for word in ("DESCRIBE", "DESC")),
    *(((word, "DETAIL"), lambda c: Detail(_table(c))) for word in ("DESCRIBE", "DESC")),
    (("RESTORE",), _restore),
    (("CONVERT", "TO", "DELTA"), _convert),
    (("GENERATE",), _generate),
    (("REORG", "TABLE"), _reorg),
    (("FSCK", "REPAIR", "TABLE"), lambda c: Fsck(_table(c), c.accept("DRY", "RUN"))),
)
#: The first words of these statements; Spark has some that begin so, too.
FIRST_WORDS = frozenset(words[0] for words, _ in _STATEMENTS)
