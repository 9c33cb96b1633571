"""Operations: the changes that transactions make, and which of them conflict.

Pure data and functions.  An operation is applied on top of the newest manifest, which may be newer than the version
that it was created for: :func:`conflict` says whether that is allowed.  The fields of an operation that its message in
``transaction.proto`` has too are stored, see :mod:`trilake.lance.versions.transaction`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeGuard
from uuid import UUID

from trilake.lance.file.schema import TOMBSTONE, LanceSchema
from trilake.lance.file.storage_version import StorageVersion
from trilake.lance.versions.manifest import BasePath, DataFile, Fragment, IndexDetails, IndexMetadata


@dataclass(frozen=True)
class Append:
    """Adds fragments at the end."""

    fragments: tuple[Fragment, ...]

    @property
    def is_legacy(self) -> bool:
        """Whether its files have the legacy format, whose readers need every column in a file."""
        return any(file.storage_version.is_legacy for fragment in self.fragments for file in fragment.files)


@dataclass(frozen=True)
class Delete:
    """Replaces fragments with copies that have more deleted rows, and removes fragments without live rows."""

    updated_fragments: tuple[Fragment, ...]
    deleted_fragment_ids: tuple[int, ...]
    predicate: str


@dataclass(frozen=True)
class Overwrite:
    """Replaces fragments and schema, or creates a dataset, with ``storage_version`` and ``stable_row_ids``.

    With ``migrates``, the fragments have the rows of the read version, so it may not follow a change of rows or schema.
    """

    fragments: tuple[Fragment, ...]
    schema: LanceSchema
    config_upsert_values: Mapping[str, str] = field(default_factory=dict)
    initial_bases: tuple[BasePath, ...] = ()
    storage_version: StorageVersion | None = field(default=None, compare=False)
    stable_row_ids: bool = field(default=False, compare=False)
    migrates: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class CreateIndex:
    """Adds indices, and removes those with the given ids or the same names."""

    new_indices: tuple[IndexMetadata, ...]
    removed_indices: tuple[IndexMetadata, ...] = ()


@dataclass(frozen=True)
class RewriteGroup:
    """Fragments, and those that replace them, with the same live rows."""

    old_fragments: tuple[Fragment, ...]
    new_fragments: tuple[Fragment, ...]


@dataclass(frozen=True)
class RewrittenIndex:
    """An index whose files were rewritten because its rows have moved; the format's first writers omit the details."""

    old_id: UUID
    new_id: UUID
    new_index_details: IndexDetails | None = None
    new_index_version: int = 0


@dataclass(frozen=True)
class Rewrite:
    """Compaction: moves rows, and their entries in indices, to other fragments."""

    groups: tuple[RewriteGroup, ...]
    rewritten_indices: tuple[RewrittenIndex, ...] = ()


@dataclass(frozen=True)
class Merge:
    """Replaces the schema, and all fragments with copies that have other data files."""

    fragments: tuple[Fragment, ...]
    schema: LanceSchema


@dataclass(frozen=True)
class Restore:
    """Makes an old version the newest one."""

    version: int


@dataclass(frozen=True)
class ReserveFragments:
    """Reserves fragment ids for the groups of a later rewrite."""

    num_fragments: int


@dataclass(frozen=True)
class Update:
    """Removes rows like a delete, and adds the changed rows in new fragments; or changes values in place.

    ``fields_modified`` are the ids of fields whose values change in the updated fragments,
    ``updated_fragment_offsets`` their changed rows by fragment id, each a serialized Roaring bitmap; without an entry
    all rows count as changed.
    """

    removed_fragment_ids: tuple[int, ...]
    updated_fragments: tuple[Fragment, ...]
    new_fragments: tuple[Fragment, ...]
    fields_modified: tuple[int, ...] = ()
    updated_fragment_offsets: Mapping[int, bytes] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Project:
    """Replaces the schema with one that has other names, or fewer fields; files stay the same."""

    schema: LanceSchema


@dataclass(frozen=True)
class MapUpdate:
    """New values by key; ``None`` removes the key.  With ``replace``, all other keys are removed."""

    entries: Mapping[str, str | None]
    replace: bool = False

    def apply(self, current: Mapping[str, str]) -> dict[str, str]:
        changed = {**({} if self.replace else current), **self.entries}
        return {key: value for key, value in changed.items() if value is not None}

    def overlaps(self, other: MapUpdate) -> bool:
        """Whether both change the same key."""
        return self.replace or other.replace or not self.entries.keys().isdisjoint(other.entries)


@dataclass(frozen=True)
class UpdateConfig:
    """Changes the table's configuration or metadata, or the metadata of the schema or of fields, by field id."""

    config: MapUpdate | None = None
    table_metadata: MapUpdate | None = None
    schema_metadata: MapUpdate | None = None
    field_metadata: Mapping[int, MapUpdate] = field(default_factory=dict)

    @property
    def changes_schema(self) -> bool:
        return self.schema_metadata is not None or bool(self.field_metadata)

    def overlaps(self, other: UpdateConfig) -> bool:
        pairs = [
            (self.config, other.config),
            (self.table_metadata, other.table_metadata),
            (self.schema_metadata, other.schema_metadata),
            *((self.field_metadata[id], other.field_metadata.get(id)) for id in self.field_metadata),
        ]
        return any(a is not None and b is not None and a.overlaps(b) for a, b in pairs)


@dataclass(frozen=True)
class DataReplacement:
    """Replaces data files with others of the same fields, by fragment id."""

    replacements: tuple[tuple[int, DataFile], ...]


@dataclass(frozen=True)
class Clone:
    """Begins a dataset, or a branch, with the files of a version of another one."""

    ref_path: str
    ref_version: int
    ref_name: str | None = None
    branch_name: str | None = None
    is_shallow: bool = True


@dataclass(frozen=True)
class UpdateBases:
    """Adds base paths."""

    new_bases: tuple[BasePath, ...]


@dataclass(frozen=True)
class Unknown:
    """An operation of a newer writer; ``field`` is its number in the message.  It conflicts with everything."""

    field: int


_OfRows: TypeAlias = Append | Delete | Overwrite | Rewrite | Merge | Restore | Update | DataReplacement
_OfMetadata: TypeAlias = CreateIndex | ReserveFragments | Project | UpdateConfig | Clone | UpdateBases
Operation: TypeAlias = _OfRows | _OfMetadata | Unknown


def modified_ids(operation: Operation) -> frozenset[int]:
    """Ids of the existing fragments that an operation changes or removes, or that a new index covers."""
    match operation:
        case Delete(updated, removed, _) | Update(removed, updated, _):
            return frozenset(removed) | {f.id for f in updated}
        case Rewrite(groups):
            return frozenset(f.id for group in groups for f in group.old_fragments)
        case DataReplacement(replacements):
            return frozenset(id for id, _ in replacements)
        case CreateIndex(new):
            return frozenset(id for index in new for id in index.fragment_bitmap or ())
    return frozenset()


def used_fields(operation: Operation) -> frozenset[int]:
    """Ids of the fields that an operation writes or changes, and that need not exist when it is committed.

    A field without rows in any file leaves its id free: after a drop, another column may get it.
    """
    match operation:
        case Append(fragments):
            return frozenset(id for f in fragments for file in f.files for id in file.fields if id != TOMBSTONE)
        case UpdateConfig():
            return frozenset(operation.field_metadata)
    return frozenset()


#: A row per operation of mine, a column (see _COLUMN) per operation of theirs that was committed first: "+" may follow,
#: "-" may not, "i" may follow if both change, or index, different fragments.
_TABLE: dict[type, str] = {
    Append: "++-++--+++++",
    Delete: "-i-+i--+-+i+",
    Update: "-i-+i--+-+i+",
    Overwrite: "++++++++++++",
    Restore: "++++++++++++",
    CreateIndex: "++-+i+-+++++",
    Rewrite: "+i-ii--+++i+",
    Merge: "---+---+-+-+",
    ReserveFragments: "++-+++-+++++",
    Project: "++-++--+-+++",
    UpdateConfig: "++-+++-+++++",
    DataReplacement: "+i-+i--+-+++",
    UpdateBases: "+++++++++++-",
}
_COLUMNS = (Append, Delete, Overwrite, CreateIndex, Rewrite, Merge, Restore, ReserveFragments, Project, UpdateConfig)
_COLUMN: dict[type, int] = {
    **{kind: i for i, kind in enumerate((*_COLUMNS, DataReplacement, UpdateBases))},
    Update: _COLUMNS.index(Delete),
}


def conflict(mine: Operation, theirs: Operation, schema: LanceSchema | None = None) -> str | None:
    """Why ``mine`` must not be committed after ``theirs``, which it has not read; ``None`` if it may.

    ``schema`` is the schema of the version that ``mine`` read, to find columns that one of them makes non-nullable.

    >>> conflict(Append(()), Restore(3))
    'an append cannot follow a restore'
    >>> conflict(Append(()), Append(())) is None
    True

    This is the format's own table with some exceptions.  A change that looked for rows cannot follow an update that
    adds rows, as it cannot follow an append: two writers that both insert a missing key would insert it twice.  And an
    index cannot follow a merge that drops its column, an update of its column in place, or an index of the same name,
    which it would remove.
    """
    if follows_all(mine):
        return None
    name = _name(mine)
    if isinstance(mine, Overwrite):
        mine = Merge(mine.fragments, mine.schema)
    if schema is not None and (strict := _made_non_nullable(schema, mine, theirs)) is not None:
        return f"one makes column {strict!r} non-nullable, and the other may write nulls to it"
    if isinstance(mine, Delete | Update) and isinstance(theirs, Update) and theirs.new_fragments:
        # The new rows are an append: this operation may have looked for them, to delete them, or to insert them once.
        return f"{name} cannot follow an update that adds rows"
    if isinstance(theirs, UpdateConfig) and isinstance(mine, UpdateConfig) and mine.overlaps(theirs):
        return "both change the same keys of the configuration or metadata"
    if isinstance(theirs, UpdateConfig) and theirs.changes_schema and isinstance(mine, Merge | Project):
        return f"{name} cannot follow a change of the schema's metadata"
    if isinstance(mine, Append) and isinstance(theirs, Merge) and not mine.is_legacy:
        # The rows have no values for added columns, so these must be nullable.
        have = {id for fragment in mine.fragments for file in fragment.files for id in file.fields}
        absent = [f.name for f in theirs.schema.walk() if f.is_column and f.id not in have and not f.nullable]
        if absent:
            return f"the rows have no values of the new column {absent[0]!r}"
        recreated = [] if schema is None else _recreated(schema, theirs.schema, have)
        return f"the rows have values of the former column {recreated[0]!r}" if recreated else None
    if isinstance(mine, CreateIndex) and isinstance(theirs, Merge | Project):
        # A column that is added after a drop may get the same id, with other values.
        remaining = set(theirs.schema.field_ids)
        dropped = [i.name for i in mine.new_indices if not remaining.issuperset(i.fields)]
        if dropped:
            return f"the column of index {dropped[0]} was dropped by another commit"
    if isinstance(mine, CreateIndex) and isinstance(theirs, Update | DataReplacement):
        stale = _indexed(mine, theirs)
        if stale:
            return f"the column of index {stale[0]} was changed by another commit"
    if isinstance(mine, DataReplacement) and isinstance(theirs, CreateIndex):
        stale = _indexed(theirs, mine)
        if stale:
            return f"another commit created index {stale[0]} of the replaced column"
    if isinstance(mine, DataReplacement) and isinstance(theirs, DataReplacement):
        both_replace = _replaced_fields(mine) & _replaced_fields(theirs)
        if both_replace:
            return f"both replace the same columns of fragments {_listed({id for id, _ in both_replace})}"
    if isinstance(mine, DataReplacement) and isinstance(theirs, Delete):
        return None  # deleted rows stay in the files, so the new files fit
    if isinstance(mine, CreateIndex) and isinstance(theirs, CreateIndex):
        # That index is committed, and the check for a replacement was made on a version without it.
        both_names = {i.name for i in mine.new_indices} & {i.name for i in theirs.new_indices}
        if both_names:
            return f"an index {min(both_names)!r} was created by another commit"
    row, column = _TABLE.get(type(mine)), _COLUMN.get(type(theirs))
    rule = "-" if row is None or column is None else row[column]
    if rule == "-":
        return f"{name} cannot follow {_name(theirs)}"
    if rule == "i":
        one = next((one for one in (mine, theirs) if isinstance(one, CreateIndex)), None)
        if one is not None and any(index.fragment_bitmap is None for index in one.new_indices):
            return f"{name} cannot follow {_name(theirs)}"
        both = modified_ids(mine) & modified_ids(theirs)
        if both:
            return f"{name} and {_name(theirs)} change the same fragments {_listed(both)}"
    return None


def _recreated(before: LanceSchema, after: LanceSchema, ids: set[int]) -> list[str]:
    """Names of columns with these ids that now have other ones, as after a cast: their values would become null."""
    return [f.name for f in before.fields if f.id in ids and f.name in after.names and f.id not in after.field_ids]


def follows_all(operation: Operation) -> bool:
    """Whether an operation replaces whatever other commits did."""
    return isinstance(operation, Restore) or (isinstance(operation, Overwrite) and not operation.migrates)


def changes_nullability(operation: Operation) -> TypeGuard[Project | Merge]:
    """Whether an operation may make columns non-nullable."""
    return isinstance(operation, Project | Merge)


def _made_non_nullable(schema: LanceSchema, mine: Operation, theirs: Operation) -> str | None:
    """The name of a column that one operation makes non-nullable while the other writes values."""
    nullable = {f.id for f in schema.walk() if f.nullable}
    for one, other in (mine, theirs), (theirs, mine):
        if changes_nullability(one) and isinstance(other, Append | Update | DataReplacement):
            return next((f.name for f in one.schema.walk() if f.id in nullable and not f.nullable), None)
    return None


def _indexed(index: CreateIndex, change: Update | DataReplacement) -> list[str]:
    """Names of the new indices of fields that get new values in rows that stay in place."""
    if isinstance(change, Update):
        modified = set(change.fields_modified)
    else:
        modified = {field for _, field in _replaced_fields(change)}
    return [i.name for i in index.new_indices if not modified.isdisjoint(i.fields)]


def _replaced_fields(operation: DataReplacement) -> set[tuple[int, int]]:
    """The fragment ids and field ids that get other data files."""
    return {(fragment, field) for fragment, file in operation.replacements for field in file.fields}


def _name(operation: Operation) -> str:
    names = {
        CreateIndex: "creation of an index",
        ReserveFragments: "reservation of fragments",
        UpdateConfig: "change of the configuration",
        DataReplacement: "replacement of data files",
        UpdateBases: "change of base paths",
    }
    if isinstance(operation, Unknown):
        return f"an unknown operation of kind {operation.field}"
    name = names.get(type(operation), type(operation).__name__.lower())
    if isinstance(operation, Overwrite) and operation.migrates:
        name = "migration"
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _listed(ids: Iterable[int]) -> str:
    ordered = sorted(ids)
    return ", ".join(map(str, ordered[:5])) + (f" and {len(ordered) - 5} more" if len(ordered) > 5 else "")
