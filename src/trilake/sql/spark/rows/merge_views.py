"""MERGE through a view that renames columns, rewritten to the table's own names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trilake.common.text import quote_name, quote_parts
from trilake.errors import SchemaMismatchError
from trilake.sql.parser.expressions import requalified, split_names, unqualified
from trilake.sql.parser.merge import Merge, Values, When
from trilake.sql.parser.projections import Beside, by_column


@dataclass(frozen=True)
class _Through:
    """The names of a merge through a view."""

    shown: Mapping[str, str]
    columns: frozenset[str]
    view: str
    source: str | None
    given: Sequence[str]
    short: Mapping[tuple[str, ...], str]

    def of_both(self, text: str) -> str:
        """An expression over the columns of the view and of the source."""
        front = None if self.source is None else self.source.lower()
        beside = Beside(front, frozenset(n.lower() for n in self.given))
        return by_column(requalified(text, self.short), self.shown, self.columns, (self.view.lower(),), beside)

    def of_view(self, text: str) -> str:
        """An expression over the columns of the view alone."""
        return by_column(requalified(text, self.short), self.shown, self.columns, (self.view.lower(),))

    def clause(self, when: When) -> When:
        """A clause; one that inserts is over the columns of the source alone, whose names stay."""
        named = self.of_both if when.kind == "matched" else self.of_view
        stays = when.kind == "not_matched"
        condition = when.condition if stays or when.condition is None else named(when.condition)
        values = when.values
        if values is None and when.action != "delete":
            values = self._all(when.excluded)
        elif values is not None and not stays:
            values = tuple((name, named(value)) for name, value in values)
        if values is not None:
            values = tuple((self._assigned(name), value) for name, value in values)
        return replace(when, condition=condition, values=values, excluded=())

    def _all(self, excluded: Sequence[str]) -> Values:
        """The columns of the view, each with the column of the source that is called like it."""
        without = {n.strip("`").lower() for n in excluded}
        given = {n.lower(): n for n in self.given}
        lost = [name for name in self.shown if name not in given and name not in without]
        if lost:
            raise SchemaMismatchError(
                f"the source has no column {lost[0]}, which the view {self.view} shows",
                help=f"its columns are {', '.join(self.given)}",
                column=lost[0],
                condition="DELTA_MERGE_UNRESOLVED_EXPRESSION",
            )
        front = "" if self.source is None else f"{quote_name(self.source)}."
        return tuple(((name,), front + quote_name(given[name])) for name in self.shown if name not in without)

    def _assigned(self, name: tuple[str, ...]) -> tuple[str, ...]:
        column_name = unqualified(name, [(self.view.lower(),), *self.short])
        return split_names([by_column(quote_parts(column_name), self.shown, self.columns, ())])[0]


def by_columns_of_table(
    merge: Merge,
    shown: Mapping[str, str],
    columns: Sequence[str],
    view: str,
    source: str | None,
    given: Sequence[str],
    short: Mapping[tuple[str, ...], str],
) -> Merge:
    """A merge by the names of a view, as one by those of the table's columns.

    Parameters
    ----------
    shown: the table's columns by the names that the view shows them by, in small letters.
    columns: all columns of the table.
    view, source: the names in front of columns of the view, and of the source, where that has one.
    given: the columns of the source.
    short: names of more than one part that may stand for these two, each with the one that does.

    Raises ``SchemaMismatchError`` for a column that the view does not show, and ``InvalidArgumentError`` for an
    expression in which a name may be one of both.
    """
    through = _Through(shown, frozenset(c.lower() for c in columns), view, source, given, short)
    clauses = tuple(map(through.clause, merge.clauses))
    return replace(merge, condition=through.of_both(merge.condition), clauses=clauses)
