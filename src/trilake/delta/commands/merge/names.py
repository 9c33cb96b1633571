"""Name resolution in expressions of a MERGE, and its errors.

Clauses WHEN MATCHED see both tables, WHEN NOT MATCHED only the source, WHEN NOT MATCHED BY SOURCE only the target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from trilake.delta.commands.merge.clauses import Kind
from trilake.delta.protocol.schema_edit import path_text
from trilake.errors import ExpressionError

Side = Literal["target", "source"]

#: The tables that each kind of clause sees.
VISIBLE: dict[Kind, tuple[Side, ...]] = {
    "matched": ("target", "source"),
    "not_matched": ("source",),
    "not_matched_by_source": ("target",),
}
#: Most columns of a table that a message lists.
_MOST_NAMES = 50


@dataclass(frozen=True)
class VisibleColumns:
    """The columns of both tables, and which of the tables an expression sees.

    ``aliases`` are the tables' names in expressions, ``None`` for an invisible one.
    """

    columns: Mapping[Side, Sequence[str]]
    aliases: Mapping[Side, str | None]
    visible: tuple[Side, ...] = VISIBLE["matched"]

    def only(self, kind: Kind) -> VisibleColumns:
        return replace(self, visible=VISIBLE[kind])

    def owners(self, name: str) -> list[Side]:
        """The visible tables with a column of this name."""
        return [side for side in self.visible if self._has(side, name)]

    def ambiguous(self, name: str, **context: Any) -> ExpressionError:
        """The error for a name that both tables have.

        >>> print(VisibleColumns({"target": ["id"], "source": ["id"]}, {"target": "t", "source": "s"}).ambiguous("id"))
        [INVALID_EXPRESSION] the reference to id is ambiguous: t and s both have it (condition: AMBIGUOUS_REFERENCE).
        Help: write t.id or s.id
        """
        names = {side: alias or side for side, alias in self.aliases.items()}
        write = " or ".join(path_text((names[side], name)) for side in self.visible)
        calls = {"target": 'DeltaTable.alias("target")', "source": 'the source\'s alias("source")'}
        lacking = [calls[side] for side in self.visible if self.aliases[side] is None]
        if lacking:
            write = f"{write}, once {' and '.join(lacking)} name{'s' if len(lacking) == 1 else ''} the tables"
        if len({n.lower() for n in names.values()}) == 1:
            write = "two different aliases, and one of them before the name"
        both = " and ".join(self._shown(side) for side in self.visible)
        return ExpressionError(
            f"the reference to {name} is ambiguous: {both} both have it",
            help=f"write {write}",
            **context,
            condition="AMBIGUOUS_REFERENCE",
        )

    def unknown(self, parts: Sequence[str], **context: Any) -> ExpressionError:
        """The error for a name, by its parts, that is not a column of a visible table."""
        context["condition"] = "DELTA_MERGE_UNRESOLVED_EXPRESSION"
        name, qualified = path_text(tuple(parts)), len(parts) > 1
        for side in VISIBLE["matched"]:
            called = qualified and parts[0].lower() == (self.aliases[side] or "").lower()
            if side in self.visible and called:
                return ExpressionError(
                    f"cannot resolve {name}: {parts[0]} has no column {parts[1]}",
                    help=f"columns are {self._listing([side])}",
                    **context,
                )
            if side not in self.visible and (called or self._has(side, parts[0])):
                words = "WHEN NOT MATCHED" if side == "target" else "WHEN NOT MATCHED BY SOURCE"
                return ExpressionError(
                    f"cannot resolve {name}: it is of the {side}, and clauses {words} see the {self.visible[0]} alone",
                    help=f"columns are {self._listing(self.visible)}",
                    **context,
                )
        return ExpressionError(
            f"cannot resolve {name}: there is no such column",
            help=f"columns are {self._listing(self.visible)}",
            **context,
        )

    def _has(self, side: Side, name: str) -> bool:
        return any(n.lower() == name.lower() for n in self.columns[side])

    def _shown(self, side: Side) -> str:
        return self.aliases[side] or f"the {side}"

    def _listing(self, sides: Sequence[Side]) -> str:
        return "; ".join(f"{self.aliases[s] or s}: {', '.join(self.columns[s][:_MOST_NAMES])}" for s in sides)
