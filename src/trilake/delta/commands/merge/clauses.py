"""The clauses of a MERGE, their effect on each column, and schema evolution.  Pure functions.

Expressions are SQL strings or, with Spark, also Columns.  This module does not look inside them; it resolves the names
of assigned columns, ``*``, and nested fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar

from trilake.common.text import columns_help, perhaps
from trilake.delta.metadata.write_schema import no_place_for_rows
from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.schema import StructField, StructType
from trilake.delta.protocol.schema_edit import Path, format_path, parse_path, without_alias
from trilake.delta.protocol.type_widening import WideningMode
from trilake.delta.rules.defaults import default_expression
from trilake.delta.rules.identity import identity_columns
from trilake.delta.rules.schema_merge import merged_metadata
from trilake.delta.scan.generated import generation_expression
from trilake.errors import AmbiguousMergeError, ExpressionError, InvalidArgumentError, SchemaMismatchError

E = TypeVar("E")
Kind = Literal["matched", "not_matched", "not_matched_by_source"]
Action = Literal["update", "delete", "insert"]

_WORDS: dict[Kind, str] = {
    "matched": "WHEN MATCHED",
    "not_matched": "WHEN NOT MATCHED",
    "not_matched_by_source": "WHEN NOT MATCHED BY SOURCE",
}


@dataclass(frozen=True)
class Clause(Generic[E]):
    """One WHEN clause.

    ``values`` are the expressions by column name; ``None`` for all columns (``*``) and for a delete.  ``excluded`` are
    exceptions from the star.
    """

    kind: Kind
    action: Action
    condition: E | None = None
    values: Mapping[str, E] | None = None
    excluded: tuple[str, ...] = ()

    def excludes(self, name: str) -> bool:
        return any(name.lower() == e.lower() for e in self.excluded)

    @property
    def star(self) -> bool:
        """Whether all columns are assigned from source columns of the same names."""
        return self.action != "delete" and self.values is None

    def __str__(self) -> str:
        return f"{_WORDS[self.kind]} THEN {self.action.upper()}{' *' if self.star else ''}"


@dataclass(frozen=True)
class FromExpression(Generic[E]):
    """The value of an expression in the clause."""

    expression: E


@dataclass(frozen=True)
class FromSource:
    """The source column, or nested field, at this path."""

    path: Path


@dataclass(frozen=True)
class FromTarget:
    """The current value."""


@dataclass(frozen=True)
class Absent:
    """No assignment: a default, an identity value, a generated value, or null."""


@dataclass(frozen=True)
class Parts:
    """A struct with some new fields; null if the target's struct and, if given, the source's at ``null_with`` are."""

    fields: Mapping[str, Any]
    null_with: Path | None = None


Value = FromExpression[E] | FromSource | FromTarget | Absent | Parts


@dataclass(frozen=True)
class ResolvedClause(Generic[E]):
    """A clause with a value for every column of the evolved table; without values for a delete."""

    kind: Kind
    action: Action
    condition: E | None
    values: Mapping[str, Value[E]]

    @cached_property
    def assigned(self) -> frozenset[str]:
        return frozenset(n for n, v in self.values.items() if not isinstance(v, FromTarget | Absent))


def check_clauses(clauses: Sequence[Clause[E]]) -> None:
    """Raise ``InvalidArgumentError`` if there is no clause, and for an unreachable clause."""
    if not clauses:
        raise InvalidArgumentError(
            "there must be at least one WHEN clause in a MERGE",
            help="add a clause, such as whenMatchedUpdateAll() or when_matched_update_all()",
            condition="DELTA_MERGE_MISSING_WHEN",
        )
    for kind, words in _WORDS.items():
        same = [c for c in clauses if c.kind == kind]
        if any(c.condition is None for c in same[:-1]):
            raise InvalidArgumentError(
                f"when there are several {words} clauses in a MERGE, only the last one can omit the condition",
                help=f"add a condition to every {words} clause except the last",
                condition=f"DELTA_NON_LAST_{words.replace(' ', '_')}_CLAUSE_OMIT_CONDITION",
            )


def insert_only(clauses: Sequence[Clause[Any]]) -> bool:
    """Whether the clauses cannot change a row of the target."""
    return all(c.kind == "not_matched" for c in clauses)


def lenient_duplicates(clauses: Sequence[Clause[Any] | ResolvedClause[Any]]) -> bool:
    """Whether several source rows may match one target row, because matched rows are only deleted, unconditionally."""
    matched = [c for c in clauses if c.kind == "matched"]
    return len(matched) == 1 and matched[0].action == "delete" and matched[0].condition is None


def ambiguous_rows(source_rows: Sequence[Mapping[str, Any]], **where: Any) -> AmbiguousMergeError:
    """The error for a target row that several source rows would change; it shows some of them."""
    rows = " and ".join(str(dict(r))[:500] for r in source_rows)
    return AmbiguousMergeError(
        "cannot perform MERGE: multiple source rows matched and attempted to modify the same target row. The source"
        f" rows are {rows}",
        help="make the source unique by the merge condition, for example with dropDuplicates or GROUP BY, or add"
        " conditions to the clauses so that at most one source row matches",
        **where,
    )


def evolved(
    protocol: Protocol,
    metadata: Metadata,
    source: StructType,
    clauses: Sequence[Clause[Any]],
    *,
    alias: str | None,
    version: int,
    uri: str,
    new_id: Any = None,
    widening: WideningMode = "always",
) -> tuple[Protocol, Metadata]:
    """Protocol and metadata of the table after a merge with schema evolution.

    A clause for all columns adds all columns of the source; another clause adds the columns that it assigns and that
    the source has, too.  Types are widened if the table and ``widening`` allow that.  ``version`` is the version to be
    committed.

    Raises ``SchemaMismatchError`` for incompatible nested types, ``InvalidArgumentError`` for invalid new columns.
    """
    table = metadata.schema
    paths: list[Path] = []
    for clause in clauses:
        if clause.kind == "not_matched_by_source" or clause.action == "delete":
            continue
        if clause.values is None:
            paths += [(f.name,) for f in source.fields if not clause.excludes(f.name)]
        else:
            paths += [without_alias(parse_path(key), alias, table, source) for key in clause.values]
    rows = _subset(source, paths)
    return merged_metadata(
        protocol, metadata, rows, version=version, widening=widening, converted=True, uri=uri, new_id=new_id
    )


def _subset(schema: StructType, paths: Sequence[Path]) -> StructType:
    """The fields of a schema on ``paths``, with all fields below the end of a path; unknown paths are ignored."""
    out: list[StructField] = []
    for f in schema.fields:
        below = [p[1:] for p in paths if p[0].lower() == f.name.lower()]
        if not below:
            continue
        if () in below or not isinstance(f.type, StructType):
            out.append(f)
        else:
            inner = _subset(f.type, below)
            if inner.fields:
                out.append(replace(f, type=inner))
    return StructType(tuple(out))


def resolve(
    clause: Clause[E], table: StructType, source: StructType, *, alias: str | None, evolve: bool
) -> ResolvedClause[E]:
    """Resolve a clause for every column of ``table``, the schema after evolution.

    Raises ``InvalidArgumentError`` or ``SchemaMismatchError`` for a column that is unknown, assigned twice, missing in
    the source or not assignable, and if a row would have no columns.
    """
    if clause.action == "delete":
        return ResolvedClause(clause.kind, clause.action, clause.condition, {})
    if clause.action == "insert" and not table.fields:
        raise no_place_for_rows()
    rest: Value[E] = FromTarget() if clause.action == "update" else Absent()
    values: dict[str, Value[E]] = dict.fromkeys(table.names, rest)
    if clause.values is None:
        unknown = [e for e in clause.excluded if table.find(e) is None and source.find(e) is None]
        if unknown:
            raise InvalidArgumentError(
                f"{clause} excludes {', '.join(unknown)}, which neither the table nor the source has",
                help=columns_help(unknown[0], [*table.names, *source.names]),
                column=unknown[0],
            )
        for f in table.fields:
            values[f.name] = _star(clause, f, source, rest, evolve)
    else:
        values.update(_explicit(clause, clause.values, table, alias))
    result = ResolvedClause(clause.kind, clause.action, clause.condition, values)
    updates = clause.action == "update"
    for identity in identity_columns(table):
        if identity.name in result.assigned and (updates or not identity.explicit):
            what = "UPDATE_NOT_SUPPORTED" if updates else "EXPLICIT_INSERT_NOT_SUPPORTED"
            raise SchemaMismatchError(
                f"column {identity.name!r} is an identity column, whose values are generated: it cannot be assigned"
                f" in {clause}",
                help="leave the column out",
                column=identity.name,
                condition=f"DELTA_IDENTITY_COLUMNS_{what}",
            )
    return result


def _star(clause: Clause[E], field: StructField, source: StructType, rest: Value[E], evolve: bool) -> Value[E]:
    if clause.excludes(field.name):
        return rest
    column = source.find(field.name)
    if column is None:
        computed = generation_expression(field) is not None or bool(identity_columns(StructType((field,))))
        computed = computed or (clause.action == "insert" and default_expression(field) is not None)
        if evolve or computed:
            return rest
        raise SchemaMismatchError(
            f"cannot resolve {field.name} in {clause.action.upper()} * clause given columns {', '.join(source.names)}",
            help="assign columns one by one, or use schema evolution, which skips columns that the source lacks",
            column=field.name,
            condition="DELTA_MERGE_UNRESOLVED_EXPRESSION",
        )
    if len(same := source.spellings(field.name)) > 1:
        raise InvalidArgumentError(
            f"the source has {len(same)} columns {', '.join(same)}, so the reference to {field.name} is ambiguous",
            help="rename or drop one of them",
            column=field.name,
            condition="AMBIGUOUS_REFERENCE",
        )
    value: Value[E] = _by_field(field, column, (column.name,), evolve and clause.action == "update")
    if not evolve:
        _check_whole(field, column, field.name)
    return value


def _by_field(target: StructField, source: StructField, path: Path, keep: bool) -> Value[E]:
    """Assign a column from the source's; with ``keep``, nested fields that the source lacks stay."""
    if not keep or not isinstance(target.type, StructType) or not isinstance(source.type, StructType):
        return FromSource(path)
    inner: dict[str, Value[E]] = {
        f.name: _by_field(f, g, (*path, g.name), keep)
        for f in target.type.fields
        if (g := source.type.find(f.name)) is not None
    }
    whole = len(inner) == len(target.type.fields) and all(isinstance(v, FromSource) for v in inner.values())
    return FromSource(path) if whole else Parts(inner, null_with=path)


def _check_whole(target: StructField, source: StructField, path: str) -> None:
    """Without evolution, a struct must have all fields: missing ones would become null without notice."""
    if not isinstance(target.type, StructType) or not isinstance(source.type, StructType):
        return
    for f in target.type.fields:
        g = source.type.find(f.name)
        if g is None:
            raise SchemaMismatchError(
                f"the source's column {path} has no field {f.name}, unlike the table's",
                help="assign the nested fields one by one, or use schema evolution",
                column=f"{path}.{f.name}",
                condition="DELTA_UPDATE_SCHEMA_MISMATCH_EXPRESSION",
            )
        _check_whole(f, g, f"{path}.{f.name}")


def _explicit(
    clause: Clause[E], assignments: Mapping[str, E], table: StructType, alias: str | None
) -> dict[str, Value[E]]:
    assigned: dict[Path, E] = {}
    for key, expression in assignments.items():
        path = _spelled(without_alias(parse_path(key), alias, table), table, clause)
        if clause.action == "insert" and len(path) > 1:
            raise InvalidArgumentError(
                f"nested field {format_path(path)} is not supported in the INSERT clause of a MERGE",
                help="assign the whole column, as named_struct('field', value, ...)",
                column=format_path(path),
                condition="DELTA_UNSUPPORTED_NESTED_FIELD_IN_OPERATION",
            )
        for other in assigned:
            if path[: len(other)] == other or other[: len(path)] == path:
                raise InvalidArgumentError(
                    f"there is a conflict between the assignments of {format_path(other)} and {format_path(path)}",
                    help="assign each column, or each part of it, once per clause",
                    column=format_path(path),
                    condition="DELTA_CONFLICT_SET_COLUMN"
                    if clause.action == "update"
                    else "DELTA_DUPLICATE_COLUMNS_ON_INSERT",
                )
        assigned[path] = expression
    return _tree(assigned)


def _tree(assigned: Mapping[Path, E]) -> dict[str, Value[E]]:
    out: dict[str, Value[E]] = {}
    for name in dict.fromkeys(p[0] for p in assigned):
        below = {p[1:]: e for p, e in assigned.items() if p[0] == name}
        out[name] = FromExpression(below[()]) if () in below else Parts(_tree(below))
    return out


def _spelled(path: Path, table: StructType, clause: Clause[Any]) -> Path:
    """A path in the table's spelling.  Raises for elements of arrays and maps."""
    out: list[str] = []
    here: StructType | None = table
    for part in path:
        if here is None:
            raise InvalidArgumentError(
                f"{format_path(tuple(out))} is not a struct, so its field {part} cannot be assigned in {clause}",
                help="assign the whole column",
                column=format_path(path),
                condition="INVALID_EXTRACT_BASE_FIELD_TYPE",
            )
        field = here.find(part)
        if field is None:
            raise InvalidArgumentError(
                f"cannot resolve {format_path(path)} in {clause}",
                help=f"{columns_help(part, here.names)}; with schema evolution, columns of the source are added",
                column=format_path(path),
                condition="DELTA_MERGE_UNRESOLVED_EXPRESSION",
            )
        out.append(field.name)
        here = field.type if isinstance(field.type, StructType) else None
    return tuple(out)


def predicates(clauses: Sequence[Clause[str]], kind: Kind) -> list[dict[str, str]]:
    """The clauses of one kind for a commit's ``operationParameters``."""
    return [
        {"actionType": c.action} if c.condition is None else {"predicate": c.condition, "actionType": c.action}
        for c in clauses
        if c.kind == kind
    ]


# --- Names that each kind of clause sees, and errors about them -------------------------------------------------------
# WHEN MATCHED clauses can use both tables, WHEN NOT MATCHED the source, WHEN NOT MATCHED BY SOURCE the target.

Side = Literal["target", "source"]

#: The tables that each kind of clause can use.
VISIBLE: dict[Kind, tuple[Side, ...]] = {
    "matched": ("target", "source"),
    "not_matched": ("source",),
    "not_matched_by_source": ("target",),
}
#: The most columns of a table that a message lists.
_MOST_NAMES = 50


@dataclass(frozen=True)
class VisibleColumns:
    """The columns of both tables, and which of the tables an expression can use.

    ``aliases`` are the tables' names in expressions; ``None`` for a table that is not visible.
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
        help = f"write {' or '.join(format_path((names[side], name)) for side in self.visible)}"
        calls = {"target": 'DeltaTable.alias("target")', "source": 'the source\'s alias("source")'}
        lacking = [calls[side] for side in self.visible if self.aliases[side] is None]
        if lacking:
            help = f"set an alias with {' and '.join(lacking)}, then {help}"
        if len({n.lower() for n in names.values()}) == 1:
            help = "give the tables different aliases, and qualify the name with one of them"
        both = " and ".join(self.aliases[side] or f"the {side}" for side in self.visible)
        return ExpressionError(
            f"the reference to {name} is ambiguous: {both} both have it",
            help=help,
            **context,
            condition="AMBIGUOUS_REFERENCE",
        )

    def unknown(self, parts: Sequence[str], **context: Any) -> ExpressionError:
        """The error for a name, given by its parts, that is not a column of a visible table."""
        context["condition"] = "DELTA_MERGE_UNRESOLVED_EXPRESSION"
        name, qualified = format_path(tuple(parts)), len(parts) > 1
        for side in VISIBLE["matched"]:
            called = qualified and parts[0].lower() == (self.aliases[side] or "").lower()
            if side in self.visible and called:
                return ExpressionError(
                    f"cannot resolve {name}: {parts[0]} has no column {parts[1]}",
                    help=self._help(parts[1], self.columns[side], [side]),
                    **context,
                )
            if side not in self.visible and (called or self._has(side, parts[0])):
                words = "WHEN NOT MATCHED" if side == "target" else "WHEN NOT MATCHED BY SOURCE"
                return ExpressionError(
                    f"cannot resolve {name}: {words} clauses can only use columns of the {self.visible[0]}",
                    help=f"the columns are {self._listing(self.visible)}",
                    **context,
                )
        names = [f"{self.aliases[s] or s}.{c}" if qualified else c for s in self.visible for c in self.columns[s]]
        return ExpressionError(
            f"cannot resolve {name}: the column does not exist",
            help=self._help(".".join(parts), names, self.visible),
            **context,
        )

    def _has(self, side: Side, name: str) -> bool:
        return any(n.lower() == name.lower() for n in self.columns[side])

    def _help(self, name: str, names: Sequence[str], sides: Sequence[Side]) -> str:
        return f"{perhaps(name, names)} columns are {self._listing(sides)}"

    def _listing(self, sides: Sequence[Side]) -> str:
        return "; ".join(f"{self.aliases[s] or s}: {', '.join(self.columns[s][:_MOST_NAMES])}" for s in sides)
