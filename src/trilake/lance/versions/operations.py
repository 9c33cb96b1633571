"""Operations: what a transaction does to a dataset, and which of them exclude each other.

Pure data and functions.  An operation is applied to the newest manifest, which need not be the one that it was made
for: :func:`conflict` says whether it may be.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from trilake.lance.file.schema import LanceSchema
from trilake.lance.versions.manifest import Fragment, IndexDetails, IndexMetadata


@dataclass(frozen=True)
class Append:
    """Adds fragments at the end."""

    fragments: tuple[Fragment, ...]


@dataclass(frozen=True)
class Delete:
    """Replaces fragments by themselves with more deleted rows, and removes fragments without rows left."""

    updated_fragments: tuple[Fragment, ...]
    deleted_fragment_ids: tuple[int, ...]
    predicate: str


@dataclass(frozen=True)
class Overwrite:
    """Replaces all fragments and the schema; creates the dataset where there is none."""

    fragments: tuple[Fragment, ...]
    schema: LanceSchema


@dataclass(frozen=True)
class CreateIndex:
    """Adds indices, and removes those named by id and those of the same names."""

    new_indices: tuple[IndexMetadata, ...]
    removed_indices: tuple[IndexMetadata, ...] = ()


@dataclass(frozen=True)
class RewriteGroup:
    """Some fragments, and those with the same live rows that take their place."""

    old: tuple[Fragment, ...]
    new: tuple[Fragment, ...]


@dataclass(frozen=True)
class RewrittenIndex:
    """An index whose files were written anew because its rows have moved.

    ``details`` and ``version`` are those of the new files.  The format's first writers did not say them, later ones
    refuse to read a transaction without.
    """

    old: UUID
    new: UUID
    details: IndexDetails | None = None
    version: int = 0


@dataclass(frozen=True)
class Rewrite:
    """Compaction: rows move to other fragments, and with them the entries of indices."""

    groups: tuple[RewriteGroup, ...]
    rewritten_indices: tuple[RewrittenIndex, ...] = ()


@dataclass(frozen=True)
class Merge:
    """Replaces the list of fragments by the same fragments with other data files, and the schema."""

    fragments: tuple[Fragment, ...]
    schema: LanceSchema


@dataclass(frozen=True)
class Restore:
    """Makes an old version the newest one."""

    version: int


@dataclass(frozen=True)
class ReserveFragments:
    """Takes fragment ids out of the counter, for the groups of a rewrite to come."""

    num_fragments: int


@dataclass(frozen=True)
class Update:
    """Removes rows as a delete does, and adds the changed ones in new fragments; or gives rows other values in place.

    ``fields_modified`` are ids of fields whose values differ in the updated fragments from those that they had.
    """

    removed_fragment_ids: tuple[int, ...]
    updated_fragments: tuple[Fragment, ...]
    new_fragments: tuple[Fragment, ...]
    fields_modified: tuple[int, ...] = ()


@dataclass(frozen=True)
class Unknown:
    """An operation of a newer writer; ``field`` is its number in the message.  It excludes everything."""

    field: int


Operation: TypeAlias = (
    Append | Delete | Overwrite | CreateIndex | Rewrite | Merge | Restore | ReserveFragments | Update | Unknown
)


def modified_ids(operation: Operation) -> frozenset[int]:
    """The ids of existing fragments that the operation changes or removes, one by one."""
    match operation:
        case Delete(updated, removed, _) | Update(removed, updated, _):
            return frozenset(removed) | {f.id for f in updated}
        case Rewrite(groups):
            return frozenset(f.id for group in groups for f in group.old)
    return frozenset()


#: Mine, and for each kind of theirs that was committed first: "+" may follow, "-" may not, "i" may follow if both
#: change different fragments.  The columns are those of _COLUMN.
_TABLE: dict[type, str] = {
    Append: "++-++--+",
    Delete: "-i-+i--+",
    Update: "-i-+i--+",
    Overwrite: "++++++++",
    Restore: "++++++++",
    CreateIndex: "++-+-+-+",
    Rewrite: "+i--i--+",
    Merge: "---+---+",
    ReserveFragments: "++-+++-+",
}
_COLUMN: dict[type, int] = {
    Append: 0,
    Delete: 1,
    Update: 1,
    Overwrite: 2,
    CreateIndex: 3,
    Rewrite: 4,
    Merge: 5,
    Restore: 6,
    ReserveFragments: 7,
}


def conflict(mine: Operation, theirs: Operation) -> str | None:
    """Why ``mine`` must not be committed after ``theirs``, which its reader did not see; ``None`` where it may.

    >>> conflict(Append(()), Restore(3))
    'an append cannot follow a restore'
    >>> conflict(Append(()), Append(())) is None
    True

    This is the format's own table but for four cells.  Who looked for rows cannot follow an update that adds some, as
    it cannot follow an append: else two writers that both insert a key which neither has found would insert it twice.
    And an index cannot follow a merge that drops its column, an update that gives its column other values in place, nor
    one of its own name, which it would remove.
    """
    if isinstance(mine, Overwrite | Restore):
        return None
    if isinstance(mine, Delete | Update) and isinstance(theirs, Update) and theirs.new_fragments:
        # Its new rows are an append: what was looked for here, to be deleted or because it must not be there twice, may
        # be among them.
        return f"{_with_article(_name(mine))} cannot follow an update that adds rows"
    if isinstance(mine, CreateIndex) and isinstance(theirs, Merge):
        # A column that comes after one was dropped may have its id, and none of its values.
        known = {f.id for f in theirs.schema.walk()}
        dropped = [i.name for i in mine.new_indices if not known.issuperset(i.fields)]
        if dropped:
            return f"the column of index {dropped[0]} was dropped meanwhile"
    if isinstance(mine, CreateIndex) and isinstance(theirs, Update):
        stale = [i.name for i in mine.new_indices if not set(theirs.fields_modified).isdisjoint(i.fields)]
        if stale:
            return f"the column of index {stale[0]} got other values meanwhile"
    if isinstance(mine, CreateIndex) and isinstance(theirs, CreateIndex):
        # Who made it has been told so, and whether it may be replaced was asked of a version without it.
        both_names = {i.name for i in mine.new_indices} & {i.name for i in theirs.new_indices}
        if both_names:
            return f"an index {min(both_names)!r} was made meanwhile"
    verb, other = _name(mine), _name(theirs)
    row, column = _TABLE.get(type(mine)), _COLUMN.get(type(theirs))
    rule = "-" if row is None or column is None else row[column]
    if rule == "-":
        return f"{_with_article(verb)} cannot follow {_with_article(other)}"
    if rule == "i":
        both = modified_ids(mine) & modified_ids(theirs)
        if both:
            return f"{_with_article(verb)} and {_with_article(other)} change the same fragments {_listed(both)}"
    return None


def _name(operation: Operation) -> str:
    names = {CreateIndex: "creation of an index", ReserveFragments: "reservation of fragments"}
    if isinstance(operation, Unknown):
        return f"operation of kind {operation.field}, which this version does not know"
    return names.get(type(operation), type(operation).__name__.lower())


def _with_article(name: str) -> str:
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _listed(ids: Iterable[int]) -> str:
    ordered = sorted(ids)
    return ", ".join(map(str, ordered[:5])) + (f" and {len(ordered) - 5} more" if len(ordered) > 5 else "")
