"""``MergeBuilder``: a MERGE clause by clause, without Spark."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from trilake.common.arguments import checked_methods
from trilake.common.display import PublicNames
from trilake.common.text import string_literal
from trilake.delta.commands.merge.clauses import Action, Clause, Kind
from trilake.delta.commands.merge.commit import MergeRequest, MergeResult
from trilake.delta.commands.merge.merge import merge
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot
from trilake.errors import ExpressionError, InvalidArgumentError


@contextmanager
def strings_are_sql(values: Iterable[object]) -> Iterator[None]:
    """Let errors about SQL values explain how to write a string."""
    try:
        yield
    except ExpressionError as e:
        strings = (v for v in values if isinstance(v, str) and v.strip())
        value = next((v for v in strings if v == e.context.get("expression") or v in e.message), None)
        if value is not None and value.lstrip()[0] not in "'\"":
            literal = string_literal(value)
            rest = f"; {e.help}" if e.help else ""
            e.help = f"{value!r} is a SQL expression; for the string, write {literal!r}{rest}"
        raise


def check_merge_condition(on: object, columns: Sequence[str], source: str, target: str) -> None:
    """Reject column names instead of a condition.  Raises ``InvalidArgumentError``."""
    names = [on] if isinstance(on, str) else list(on) if isinstance(on, Iterable) else []
    plain = all(isinstance(n, str) and re.fullmatch(r"\w+|`[^`]+`", n.strip()) for n in names)
    lower = {c.lower() for c in columns}
    if names and plain and (not isinstance(on, str) or on.strip("` ").lower() in lower):
        condition = " AND ".join(f"{target}.{n.strip()} = {source}.{n.strip()}" for n in map(str, names))
        raise InvalidArgumentError(
            f"the merge condition must be a SQL expression, got {on!r:.80}",
            help=f"write on={condition!r}",
            column=str(names[0]),
        )
    if not isinstance(on, str):
        raise InvalidArgumentError(f"the merge condition must be a SQL string, got {type(on).__name__}")


@checked_methods
@dataclass(frozen=True)
class MergeBuilder(PublicNames):
    """Describes what happens to matched rows, unmatched rows of the source, and unmatched rows of the table.

    Each kind of clause can be given several times; the first one whose predicate is true for a row applies.  Only the
    last clause of a kind may omit the predicate.  Builders are immutable: every call returns a new one.

    Expressions are Spark SQL.  Qualify a column with the alias of its table if both tables have a column of that name;
    clauses for unmatched rows see the columns of one table only.

    >>> import pyarrow as pa, trilake
    >>> _ = trilake.write(pa.table({"id": [1, 2], "n": [10, 20]}), "memory://doc-merge", mode="overwrite")
    >>> result = (
    ...     trilake.open("memory://doc-merge")
    ...     .merge(pa.table({"id": [2, 3], "n": [21, 30]}), "target.id = source.id")
    ...     .when_matched_update({"n": "target.n + source.n"})
    ...     .when_not_matched_insert_all()
    ...     .execute()
    ... )
    >>> result.num_updated_rows, result.num_inserted_rows
    (1, 1)
    >>> trilake.open("memory://doc-merge").to_arrow().sort_by("id").to_pydict()
    {'id': [1, 2, 3], 'n': [10, 41, 30]}

    Synchronise a table with its source, including new columns:

    >>> result = (
    ...     trilake.open("memory://doc-merge")
    ...     .merge(pa.table({"id": [2, 4, 5], "n": [22, 40, 50], "s": ["b", "d", "e"]}), "target.id = source.id")
    ...     .with_schema_evolution()
    ...     .when_matched_delete("source.n < target.n")
    ...     .when_matched_update_all()
    ...     .when_not_matched_insert({"id": "id", "n": "n"}, "id = 4")
    ...     .when_not_matched_by_source_update({"n": "0"}, "target.id = 1")
    ...     .when_not_matched_by_source_delete()
    ...     .execute()
    ... )
    >>> trilake.open("memory://doc-merge").to_arrow(["id", "n"]).sort_by("id").to_pydict()
    {'id': [1, 4], 'n': [0, 40]}
    """

    log: DeltaLog
    source: Any
    request: MergeRequest
    #: A version of the table that is already in memory.
    cached: Snapshot | None = None

    def when_matched_update(self, updates: Mapping[str, str], predicate: str | None = None) -> MergeBuilder:
        """Update matched rows of the table.

        Parameters
        ----------
        updates: SQL expressions over both tables by the column that gets their value; ``"a.b"`` is a nested field.
        predicate: a condition over both tables that selects some of the matched rows.
        """
        return self._with("matched", "update", predicate, _values(updates))

    def when_matched_update_all(
        self, predicate: str | None = None, except_cols: Sequence[str] | None = None
    ) -> MergeBuilder:
        """Update all columns of matched rows, except ``except_cols``, from source columns of the same names.

        ``predicate`` is a condition over both tables.
        """
        return self._with("matched", "update", predicate, excluded=except_cols)

    def when_matched_delete(self, predicate: str | None = None) -> MergeBuilder:
        """Delete matched rows, or those for which ``predicate``, a condition over both tables, is true."""
        return self._with("matched", "delete", predicate)

    def when_not_matched_insert(self, updates: Mapping[str, str], predicate: str | None = None) -> MergeBuilder:
        """Insert source rows without a match.

        Parameters
        ----------
        updates: SQL expressions over the source by column.  Other columns get their default, a generated value, or
            null.
        predicate: a condition over the source that selects some of these rows.
        """
        return self._with("not_matched", "insert", predicate, _values(updates))

    def when_not_matched_insert_all(
        self, predicate: str | None = None, except_cols: Sequence[str] | None = None
    ) -> MergeBuilder:
        """Insert source rows without a match, with all columns except ``except_cols``.

        Each column gets the value of the source column of the same name.  ``predicate`` is a condition over the source.
        """
        return self._with("not_matched", "insert", predicate, excluded=except_cols)

    def when_not_matched_by_source_update(
        self, updates: Mapping[str, str], predicate: str | None = None
    ) -> MergeBuilder:
        """Update rows of the table without a match in the source; expressions see only the table.

        ``updates`` are SQL expressions by column; ``predicate`` is a condition over the table.
        """
        return self._with("not_matched_by_source", "update", predicate, _values(updates))

    def when_not_matched_by_source_delete(self, predicate: str | None = None) -> MergeBuilder:
        """Delete rows of the table without a match in the source, or those for which ``predicate`` is true."""
        return self._with("not_matched_by_source", "delete", predicate)

    def with_schema_evolution(self) -> MergeBuilder:
        """Add columns that only the source has, and widen types if the table allows that."""
        return replace(self, request=replace(self.request, evolve=True))

    def execute(self, *, user_metadata: str | None = None) -> MergeResult:
        """Run the merge on the newest version of the table and commit it.

        ``user_metadata`` is a string for the table's history.  A merge that changes nothing is not committed.

        Raises ``InvalidArgumentError``, ``ExpressionError`` or ``SchemaMismatchError`` for invalid clauses,
        ``AmbiguousMergeError`` if several source rows would change one row, ``ConstraintViolatedError`` for a new row
        that violates a rule of the table, and a ``ConflictError`` for a conflicting commit.
        """
        values = [v for clause in self.request.clauses for v in (clause.values or {}).values()]
        with strings_are_sql(values):
            return merge(self.log, self.source, replace(self.request, user_metadata=user_metadata), cached=self.cached)

    def _with(
        self,
        kind: Kind,
        action: Action,
        condition: str | None,
        values: Mapping[str, str] | None = None,
        excluded: Sequence[str] | None = None,
    ) -> MergeBuilder:
        if condition is not None and not isinstance(condition, str):
            raise InvalidArgumentError(f"predicate must be a SQL string, got {type(condition).__name__}")
        if isinstance(excluded, str):
            raise InvalidArgumentError(
                "except_cols must be a list of strings, got a string", help="pass a list of column names"
            )
        clause = Clause(kind, action, condition, values, tuple(excluded or ()))
        return replace(self, request=replace(self.request, clauses=(*self.request.clauses, clause)))

    def __repr__(self) -> str:
        clauses = " ".join(map(str, self.request.clauses))
        return f"<MERGE INTO {self.log.store.uri} ON {self.request.on} {clauses}>"


def _values(updates: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(updates, Mapping):
        raise InvalidArgumentError(f"expected a mapping of columns to SQL, got {type(updates).__name__}")
    pairs: list[tuple[object, object]] = list(updates.items())
    wrong = [k for k, v in pairs if not isinstance(k, str) or not isinstance(v, str)]
    if wrong:
        raise InvalidArgumentError(
            f"the value of {wrong[0]!r} must be a SQL string, got {type(dict(pairs)[wrong[0]]).__name__}",
            help='write literals as SQL: "\'text\'", "1"',
        )
    return dict(updates)
