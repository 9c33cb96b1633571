"""``LanceOperation``: what a distributed job has done to a dataset, to be committed at one place.

The tasks of such a job write files and return :class:`~trilake.lance.versions.fragment_metadata.FragmentMetadata`; one
of these operations, given to :meth:`trilake.lance.pylance.lance_dataset.LanceDataset.commit`, makes them a version.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from uuid import UUID

import pyarrow as pa
from pyroaring import FrozenBitMap

from trilake.errors import InvalidArgumentError
from trilake.lance.commands.columns import next_field_id
from trilake.lance.file.null_masks import companions, masked_schema, renamed
from trilake.lance.file.schema import Field
from trilake.lance.file.schema import LanceSchema as StoredSchema
from trilake.lance.file.view import View
from trilake.lance.schema import LanceSchema
from trilake.lance.versions import operations as op
from trilake.lance.versions.effects import with_files_of
from trilake.lance.versions.fragment_metadata import DataFile, FragmentMetadata
from trilake.lance.versions.manifest import BasePath, Fragment, IndexDetails, IndexMetadata, Manifest


def _entries(fragments: Iterable[FragmentMetadata]) -> tuple[Fragment, ...]:
    if not isinstance(fragments, list):
        raise TypeError(f"fragments must be list[FragmentMetadata], got {type(fragments)}")
    wrong = [f for f in fragments if not isinstance(f, FragmentMetadata)]
    if wrong:
        raise TypeError(f"fragments must be list[FragmentMetadata], got {type(wrong[0])}")
    return tuple(f.entry for f in fragments)


@dataclass(frozen=True)
class DatasetBasePath:
    """Another place that files of a dataset may lie in.

    Parameters
    ----------
    path: the place.
    name: by which it is known.
    is_dataset_root: whether it is laid out as a dataset, with folders such as ``data``.
    id: of the place in this dataset, from 1 on; a new one by default.
    """

    path: str
    name: str | None = None
    is_dataset_root: bool = False
    id: int | None = None


def base_paths(bases: Iterable[DatasetBasePath] | None) -> tuple[BasePath, ...]:
    """The entries of places, each with an id.  Raises ``InvalidArgumentError`` for an id, name or path given twice."""
    given = tuple(bases or ())
    taken = {one.id for one in given if one.id is not None}
    free = (id for id in count(1) if id not in taken)
    entries = tuple(
        BasePath(next(free) if one.id is None else one.id, one.path, one.is_dataset_root, one.name) for one in given
    )
    for part in ("id", "path", "name"):
        values = [value for one in entries if (value := getattr(one, part)) is not None]
        if len(set(values)) < len(values):
            raise InvalidArgumentError(f"two bases have the same {part}: {values}", help="name each place once")
    return entries


class LanceOperation:
    """The operations, by name."""

    class BaseOperation(ABC):
        """What all operations are."""

        @abstractmethod
        def resolve(self, base: Manifest | None) -> op.Operation:
            """The operation on a version; ``None`` where there is no dataset yet."""

    @dataclass
    class Overwrite(BaseOperation):
        """Begin a dataset, or replace its rows and schema."""

        new_schema: pa.Schema | LanceSchema
        fragments: Iterable[FragmentMetadata]
        initial_bases: list[DatasetBasePath] | None = None

        def __post_init__(self) -> None:
            if not isinstance(self.new_schema, pa.Schema | LanceSchema):
                raise TypeError(f"schema must be pyarrow.Schema, got {type(self.new_schema)}")
            _entries(self.fragments)

        def resolve(self, base: Manifest | None) -> op.Operation:
            fragments = _entries(self.fragments)
            schema = _overwritten(_arrow(self.new_schema), fragments, base)
            return op.Overwrite(fragments, schema, initial_bases=base_paths(self.initial_bases))

    @dataclass
    class Append(BaseOperation):
        """Add fragments that were made by ``LanceFragment.create``."""

        fragments: Iterable[FragmentMetadata]

        def __post_init__(self) -> None:
            _entries(self.fragments)

        def resolve(self, base: Manifest | None) -> op.Operation:
            return op.Append(
                tuple(Fragment(0, f.files, f.deletion_file, f.physical_rows) for f in _entries(self.fragments))
            )

    @dataclass
    class Delete(BaseOperation):
        """Rows were deleted: fragments with new deletion files, and ids of those without rows left."""

        updated_fragments: Iterable[FragmentMetadata]
        deleted_fragment_ids: Iterable[int]
        predicate: str

        def __post_init__(self) -> None:
            _entries(self.updated_fragments)

        def resolve(self, base: Manifest | None) -> op.Operation:
            return op.Delete(_entries(self.updated_fragments), tuple(self.deleted_fragment_ids), self.predicate)

    @dataclass
    class Update(BaseOperation):
        """Rows were changed: they are deleted in some fragments, and are in new ones, or have other values in place.

        Parameters
        ----------
        removed_fragment_ids: ids of fragments without rows left.
        updated_fragments: with new deletion files, or with other values of columns; see
            :meth:`trilake.lance.fragment.LanceFragment.update_columns`.
        new_fragments: with rows that were added.
        fields_modified: ids of fields that the updated fragments have other values of; indices of these do not cover
            the fragments any more.
        fields_for_preserving_frag_bitmap, update_mode, updated_fragment_offsets: of later releases, which change
            nothing in this format.
        """

        removed_fragment_ids: Iterable[int] = field(default_factory=list)
        updated_fragments: Iterable[FragmentMetadata] = field(default_factory=list)
        new_fragments: Iterable[FragmentMetadata] = field(default_factory=list)
        fields_modified: Iterable[int] = field(default_factory=list)
        fields_for_preserving_frag_bitmap: Iterable[int] = field(default_factory=list)
        update_mode: str = ""
        updated_fragment_offsets: Mapping[int, bytes] | None = None

        def __post_init__(self) -> None:
            _entries(self.updated_fragments)
            _entries(self.new_fragments)

        def resolve(self, base: Manifest | None) -> op.Operation:
            return op.Update(
                tuple(self.removed_fragment_ids),
                _entries(self.updated_fragments),
                _entries(self.new_fragments),
                tuple(self.fields_modified),
            )

    @dataclass
    class Merge(BaseOperation):
        """Fragments have more columns, or fewer: all fragments of the dataset, and its new schema."""

        fragments: Iterable[FragmentMetadata]
        schema: pa.Schema | LanceSchema
        preserves_nullability: bool = False

        def __post_init__(self) -> None:
            _entries(self.fragments)

        def resolve(self, base: Manifest | None) -> op.Operation:
            if base is None:
                raise InvalidArgumentError("there is no dataset whose columns could be merged")
            fragments = _entries(self.fragments)
            return op.Merge(fragments, with_ids(_arrow(self.schema), base, _ids(fragments)))

    @dataclass
    class DataReplacementGroup:
        """A data file for a fragment, in the place of the one that has the same fields."""

        fragment_id: int
        new_file: DataFile

    @dataclass
    class DataReplacement(BaseOperation):
        """Put data files in the place of those with the same fields."""

        replacements: list[LanceOperation.DataReplacementGroup]

        def resolve(self, base: Manifest | None) -> op.Operation:
            return op.DataReplacement(tuple((int(one.fragment_id), one.new_file.entry) for one in self.replacements))

    @dataclass
    class UpdateMap:
        """New values by key, ``None`` where the key is removed; with ``replace`` all other keys are removed."""

        updates: dict[str, str | None]
        replace: bool = False

        @classmethod
        def of(cls, update: op.MapUpdate | None) -> LanceOperation.UpdateMap | None:
            """The change that a manifest got, if there is one."""
            return None if update is None else cls(dict(update.entries), update.replace)

        def resolve(self) -> op.MapUpdate:
            """The change as manifests get it."""
            return op.MapUpdate(dict(self.updates), self.replace)

    @dataclass
    class UpdateConfig(BaseOperation):
        """Change the table's configuration or metadata, or the metadata of the schema or of fields, by field id."""

        config_updates: LanceOperation.UpdateMap | None = None
        table_metadata_updates: LanceOperation.UpdateMap | None = None
        schema_metadata_updates: LanceOperation.UpdateMap | None = None
        field_metadata_updates: dict[int, LanceOperation.UpdateMap] | None = None

        def resolve(self, base: Manifest | None) -> op.Operation:
            maps = (self.config_updates, self.table_metadata_updates, self.schema_metadata_updates)
            config, table, schema = (None if one is None else one.resolve() for one in maps)
            by_field = {int(id): one.resolve() for id, one in (self.field_metadata_updates or {}).items()}
            return op.UpdateConfig(config, table, schema, by_field)

    @dataclass
    class Project(BaseOperation):
        """Keep some columns, by their ids, in an order and under names: what drops and renames them.

        ``preserves_nullability`` changes nothing: it conflicts with writers that it has not seen, as a merge does.
        """

        schema: LanceSchema
        preserves_nullability: bool = False

        def __post_init__(self) -> None:
            if not isinstance(self.schema, LanceSchema):
                raise TypeError(f"schema must be LanceSchema, got {type(self.schema)}")

        def resolve(self, base: Manifest | None) -> op.Operation:
            if base is None:
                raise InvalidArgumentError("there is no dataset whose columns could be chosen")
            schema = _projected(self.schema.stored, base.schema)
            if base.storage_version.is_first:  # whose readers do not know projections
                return op.Merge(with_files_of(base.fragments, schema), schema)
            return op.Project(schema)

    @dataclass
    class Restore(BaseOperation):
        """Make an old version the newest."""

        version: int

        def resolve(self, base: Manifest | None) -> op.Operation:
            return op.Restore(self.version)

    @dataclass
    class RewriteGroup:
        """Some fragments, and those with the same rows that take their place."""

        old_fragments: Iterable[FragmentMetadata]
        new_fragments: Iterable[FragmentMetadata]

    @dataclass
    class RewrittenIndex:
        """An index whose files were written anew because its rows have moved."""

        old_id: str
        new_id: str
        new_details_type_url: str = ""
        new_details_value: bytes = b""
        new_index_version: int = 0

    @dataclass
    class Rewrite(BaseOperation):
        """Rows moved to other fragments, and with them the entries of indices."""

        groups: Iterable[LanceOperation.RewriteGroup]
        rewritten_indices: Iterable[LanceOperation.RewrittenIndex]

        def __post_init__(self) -> None:
            for group in self.groups:
                _entries(group.old_fragments)
                _entries(group.new_fragments)

        def resolve(self, base: Manifest | None) -> op.Operation:
            groups = [op.RewriteGroup(_entries(g.old_fragments), _entries(g.new_fragments)) for g in self.groups]
            indices = [
                op.RewrittenIndex(
                    UUID(i.old_id),
                    UUID(i.new_id),
                    _details(i.new_details_type_url, i.new_details_value),
                    i.new_index_version,
                )
                for i in self.rewritten_indices
            ]
            return op.Rewrite(tuple(groups), tuple(indices))

    @dataclass
    class CreateIndex(BaseOperation):
        """Indices came, and others went; their files are there already."""

        new_indices: list[Index]
        removed_indices: list[Index]

        def resolve(self, base: Manifest | None) -> op.Operation:
            return op.CreateIndex(
                tuple(i.entry() for i in self.new_indices), tuple(i.entry() for i in self.removed_indices)
            )

    @dataclass
    class ReserveFragments(BaseOperation):
        """Ids of fragments were taken, for a rewrite to come."""

        num_fragments: int

        def resolve(self, base: Manifest | None) -> op.Operation:
            return op.ReserveFragments(self.num_fragments)


@dataclass
class IndexFile:
    """A file of an index, by its path below the index's folder."""

    path: str
    size_bytes: int


@dataclass
class Index:
    """An index of a dataset: its id, its name, the ids of its fields and of the fragments that it covers.

    ``index_details`` say what kind of index it is, as the name of a message and its bytes; ``created_at`` is a time,
    ``base_id`` that of the base path its ``files`` lie in, ``covering_fields`` the ids of fields whose values it has.
    """

    uuid: str
    name: str
    fields: list[int]
    dataset_version: int
    fragment_ids: set[int]
    index_version: int = 0
    index_details: tuple[str, bytes] | None = None
    created_at: dt.datetime | None = None
    base_id: int | None = None
    files: list[IndexFile] | None = None
    covering_fields: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, entry: IndexMetadata) -> Index:
        """The index of an entry."""
        details = entry.details
        return cls(
            str(entry.uuid),
            entry.name,
            list(entry.fields),
            entry.dataset_version,
            set(entry.fragment_bitmap or ()),
            entry.index_version or 0,
            None if details is None else (details.type_url, details.value),
            None if entry.created_at_ms is None else dt.datetime.fromtimestamp(entry.created_at_ms / 1000, dt.UTC),
            entry.base_id,
            [IndexFile(path, size) for path, size in entry.files] or None,
            list(entry.covering_fields),
        )

    def entry(self) -> IndexMetadata:
        """The entry that a manifest has of it.  Raises ``ValueError`` where its id is none."""
        return IndexMetadata(
            UUID(self.uuid),
            tuple(self.fields),
            self.name,
            self.dataset_version,
            FrozenBitMap(self.fragment_ids),
            None if self.index_details is None else IndexDetails(*self.index_details),
            self.index_version or None,
            created_at_ms=None if self.created_at is None else round(self.created_at.timestamp() * 1000),
            base_id=self.base_id,
            files=tuple((f.path, f.size_bytes) for f in self.files or ()),
            covering_fields=tuple(self.covering_fields),
        )


def _details(type_url: str, value: bytes) -> IndexDetails | None:
    return IndexDetails(type_url, value) if type_url else None


def shown(operation: op.Operation) -> LanceOperation.BaseOperation | None:
    """An operation as users of the format know it; ``None`` for one of a newer writer."""

    def of(fragments: Iterable[Fragment]) -> list[FragmentMetadata]:
        return [FragmentMetadata.of(f) for f in fragments]

    match operation:
        case op.Overwrite(new, schema):
            return LanceOperation.Overwrite(View(schema).arrow, of(new))
        case op.Append(new):
            return LanceOperation.Append(of(new))
        case op.DataReplacement(replacements):
            groups = [LanceOperation.DataReplacementGroup(id, DataFile.of(file)) for id, file in replacements]
            return LanceOperation.DataReplacement(groups)
        case op.UpdateConfig(config, table, schema, by_field):
            own, tables, schemas = map(LanceOperation.UpdateMap.of, (config, table, schema))
            fields = {id: LanceOperation.UpdateMap(dict(m.entries), m.replace) for id, m in by_field.items()}
            return LanceOperation.UpdateConfig(own, tables, schemas, fields or None)
        case op.Delete(updated, removed, predicate):
            return LanceOperation.Delete(of(updated), list(removed), predicate)
        case op.Update(removed, updated, new, modified):
            return LanceOperation.Update(list(removed), of(updated), of(new), list(modified))
        case op.Merge(all_, schema):
            return LanceOperation.Merge(of(all_), View(schema).arrow)
        case op.Project(schema):
            return LanceOperation.Project(LanceSchema(schema))
        case op.Restore(version):
            return LanceOperation.Restore(version)
        case op.ReserveFragments(count):
            return LanceOperation.ReserveFragments(count)
        case op.CreateIndex(added, dropped):
            return LanceOperation.CreateIndex([Index.of(i) for i in added], [Index.of(i) for i in dropped])
        case op.Rewrite(groups, indices):
            moved = [
                LanceOperation.RewrittenIndex(
                    str(i.old),
                    str(i.new),
                    "" if i.details is None else i.details.type_url,
                    b"" if i.details is None else i.details.value,
                    i.version,
                )
                for i in indices
            ]
            return LanceOperation.Rewrite([LanceOperation.RewriteGroup(of(g.old), of(g.new)) for g in groups], moved)
    return None


def _arrow(schema: pa.Schema | LanceSchema) -> pa.Schema:
    return schema.to_pyarrow() if isinstance(schema, LanceSchema) else schema


def _ids(fragments: Iterable[Fragment]) -> set[int]:
    return {id for fragment in fragments for file in fragment.files for id in file.fields}


def _new(schema: pa.Schema, ids: set[int], first: int = 0) -> StoredSchema:
    """The ids of new columns from ``first`` on, with companions where these are what files have."""
    masked = StoredSchema.from_arrow(masked_schema(schema), first)
    whole = {id for id in ids if id >= first} == set(masked.field_ids)
    return masked if whole else StoredSchema.from_arrow(schema, first)


def _overwritten(schema: pa.Schema, fragments: Iterable[Fragment], base: Manifest | None) -> StoredSchema:
    """The ids of a dataset's columns: those that the files have, which may be files of the dataset that there was."""
    ids = _ids(fragments)
    known = {} if base is None else {f.name: f for f in base.schema.fields}
    if base is not None and all(_same(known.get(one.name), one) for one in schema):
        same = with_ids(schema, base, ids)
        if ids.issuperset(same.field_ids):
            return same
    return _new(schema, ids)


def with_ids(schema: pa.Schema, base: Manifest, ids: set[int]) -> StoredSchema:
    """The ids of a schema's fields: those that the dataset has keep theirs, new ones follow the highest.

    Parameters
    ----------
    schema: as users see it; columns that the dataset has bring their companions.
    ids: of the fields that files have.
    """
    known = {f.name: f for f in base.schema.fields}
    new = pa.schema([one for one in schema if not _same(known.get(one.name), one)])
    added = _new(new, ids, next_field_id(base))
    masks = {name: mask for name, mask in companions(base.schema).items() if name not in new.names} | companions(added)
    by_name = {f.name: f for f in added.fields}
    fields: list[Field] = []
    for one in schema:
        field = by_name.get(one.name) or known[one.name]
        mask = masks.get(one.name)
        fields += [field] if mask is None or mask.name in schema.names else [field, mask]
    merged = StoredSchema(tuple(fields), dict(schema.metadata or {}))
    kept = set(merged.field_ids)
    return merged.with_dictionaries({id: a for id, a in base.schema.dictionaries.items() if id in kept})


def _projected(wanted: StoredSchema, known: StoredSchema) -> StoredSchema:
    """Columns that a dataset has, by their ids, under the names of ``wanted``, each with its companion.

    Raises ``InvalidArgumentError`` for a field that is not there, or not of this type, and for a name that is there
    twice.
    """
    masks = companions(known)
    by_id = {f.id: f for f in known.fields}
    fields: list[Field] = []
    for one in wanted.fields:
        present = by_id.get(one.id)
        if present is None or present in masks.values():
            raise InvalidArgumentError(f"there is no column of the id {one.id}, which is to be {one.name!r}", help=_IDS)
        fields.append(_renamed(present, one))
        mask = masks.get(present.name)
        if mask is not None and one.name != present.name:
            mask = renamed(mask, one.name, [*(f.name for f in wanted.fields), *(f.name for f in known.fields)])
        fields += [] if mask is None else [mask]
    if not fields or len({f.name for f in fields}) < len(fields):
        raise InvalidArgumentError("a dataset has columns, each of another name", help="name each once")
    kept = {f.id for one in fields for f in one.walk()}
    values = {id: each for id, each in known.dictionaries.items() if id in kept}
    return StoredSchema(tuple(fields), dict(wanted.metadata), values)


#: What helps where ids are not those of the dataset.
_IDS = "LanceDataset.lance_schema has the columns with their ids"


def _renamed(present: Field, wanted: Field) -> Field:
    """A field under another name, with those of its fields that are wanted."""
    by_id = {f.id: f for f in present.children}
    unknown = [f.name for f in wanted.children if f.id not in by_id]
    if unknown or present.logical_type != wanted.logical_type:
        raise InvalidArgumentError(
            f"field {present.id} is {present.name!r}, of type {present.arrow_type}, and not of {wanted.arrow_type}",
            help=_IDS,
        )
    if present.nullable and not wanted.nullable:
        raise InvalidArgumentError("the column may have nulls", help="alter_columns looks", column=present.name)
    children = tuple(_renamed(by_id[f.id], f) for f in wanted.children)
    return replace(present, name=wanted.name, nullable=wanted.nullable, metadata=wanted.metadata, children=children)


def _same(present: Field | None, one: pa.Field) -> bool:
    """Whether the dataset has this column, in this type."""
    if present is None:
        return False
    field = StoredSchema.from_arrow(pa.schema([one])).fields[0]
    return present.logical_type == field.logical_type and present.arrow_type == field.arrow_type
