"""MERGE through a view that renames columns, rewritten to the table's own names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trilake.common.text import columns_help, quote_name, quote_parts
from trilake.errors import SchemaMismatchError
from trilake.sql.parser.expressions import requalified, split_names, unqualified
from trilake.sql.parser.merge import Merge, Values, When
from trilake.sql.parser.projections import Beside, by_column


@dataclass(frozen=True)
class _Through:
    """The names in a merge through a view; see :func:`by_columns_of_table`."""

    shown: Mapping[str, str]
    columns: frozenset[str]
    view: str
    source: str | None
    given: Sequence[str]
    short: Mapping[tuple[str, ...], str]

    def of_both(self, text: str) -> str:
        """Rewrite an expression over the view and the source."""
        front = None if self.source is None else self.source.lower()
        beside = Beside(front, frozenset(n.lower() for n in self.given))
        return by_column(requalified(text, self.short), self.shown, self.columns, (self.view.lower(),), beside)

    def of_view(self, text: str) -> str:
        """Rewrite an expression over the view."""
        return by_column(requalified(text, self.short), self.shown, self.columns, (self.view.lower(),))

    def clause(self, when: When) -> When:
        """Rewrite a clause; the expressions of an insert name source columns only, and stay."""
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
        """Assignments for ``*``: the columns of the view from those of the source with the same name."""
        without = {n.strip("`").lower() for n in excluded}
        given = {n.lower(): n for n in self.given}
        lost = [name for name in self.shown if name not in given and name not in without]
        if lost:
            raise SchemaMismatchError(
                f"the source has no column {lost[0]!r}, which the view {self.view} has",
                help=columns_help(lost[0], self.given),
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
    """Rewrite a merge into a view to one into its table.

    Parameters
    ----------
    shown: the table's columns by their names in the view, in lower case.
    columns: all columns of the table.
    view, source: the aliases of the view and of the source.
    given: the columns of the source.
    short: longer names of these two, and the alias for each.

    Raises ``SchemaMismatchError`` for a column that is not in the view, ``InvalidArgumentError`` for an ambiguous name.
    """
    through = _Through(shown, frozenset(c.lower() for c in columns), view, source, given, short)
    clauses = tuple(map(through.clause, merge.clauses))
    return replace(merge, condition=through.of_both(merge.condition), clauses=clauses)
