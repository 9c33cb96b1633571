"""``LanceOperation`` and ``Transaction``: results of distributed jobs, for ``LanceDataset.commit``.

Tasks write files and return :class:`~trilake.lance.versions.fragment_metadata.FragmentMetadata`; the driver commits
them as one of these operations, see :meth:`trilake.lance.pylance.lance_dataset.LanceDataset.commit`.
"""

from __future__ import annotations

import datetime as dt
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import count
from typing import Any, Self
from uuid import UUID

import pyarrow as pa
from pyroaring import FrozenBitMap

from trilake.errors import InvalidArgumentError
from trilake.lance.commands.columns import next_field_id, projection
from trilake.lance.file.null_masks import companions, masked_schema, renamed
from trilake.lance.file.schema import Field
from trilake.lance.file.schema import LanceSchema as StoredSchema
from trilake.lance.file.view import View
from trilake.lance.pylance.beyond import not_in_format
from trilake.lance.schema import LanceSchema
from trilake.lance.versions import operations as op
from trilake.lance.versions.fragment_metadata import DataFile, FragmentMetadata
from trilake.lance.versions.manifest import BasePath, Fragment, IndexDetails, IndexMetadata, Manifest, duplicate_base
from trilake.lance.versions.manifest import DataFile as StoredFile


def _entries(fragments: Iterable[FragmentMetadata]) -> tuple[Fragment, ...]:
    if not isinstance(fragments, list):
        raise TypeError(f"fragments must be list[FragmentMetadata], got {type(fragments)}")
    wrong = [f for f in fragments if not isinstance(f, FragmentMetadata)]
    if wrong:
        raise TypeError(f"fragments must be list[FragmentMetadata], got {type(wrong[0])}")
    return tuple(f.entry for f in fragments)


@dataclass(frozen=True)
class DatasetBasePath:
    """Another location for the files of a dataset.

    Parameters
    ----------
    path: path or URI of the location.
    name: name of the location.
    is_dataset_root: whether it has the layout of a dataset, with folders such as ``data``.
    id: id within this dataset, from 1; by default the next free one.
    """

    path: str
    name: str | None = None
    is_dataset_root: bool = False
    id: int | None = None

    @classmethod
    def of(cls, entry: BasePath) -> Self:
        return cls(entry.path, entry.name, entry.is_dataset_root, entry.id)


def base_paths(bases: Iterable[DatasetBasePath] | None, present: Iterable[BasePath] = ()) -> tuple[BasePath, ...]:
    """Convert locations to manifest entries, with ids that ``present`` entries do not have.

    Raises ``InvalidArgumentError`` for duplicate ids, names or paths.
    """
    bases, present = tuple(bases or ()), tuple(present)
    used = {one.id for one in bases} | {one.id for one in present}
    free = (id for id in count(1) if id not in used)
    entries = tuple(
        BasePath(next(free) if one.id is None else one.id, one.path, one.is_dataset_root, one.name) for one in bases
    )
    problem = duplicate_base((*present, *entries)) if entries else None
    if problem is not None:
        raise InvalidArgumentError(problem, help="give each base path its own id, path and name")
    return entries


class _Operations(type):
    def __getattr__(cls, name: str) -> Any:
        raise not_in_format("LanceOperation", name)


class LanceOperation(metaclass=_Operations):
    """Namespace of the operations."""

    class BaseOperation:
        """Base class of operations."""

        def __post_init__(self) -> None:
            for name in ("fragments", "updated_fragments", "new_fragments"):
                if name in vars(self):
                    _entries(vars(self)[name])

        def resolve(self, base: Manifest | None) -> op.Operation:
            """Convert to the stored operation; ``base`` is ``None`` if the dataset does not exist."""
            kind: Any = getattr(op, type(self).__name__)
            parts = {f.name: getattr(self, _RENAMED.get(f.name, f.name)) for f in fields(kind)}
            stored: op.Operation = kind(**{name: _stored(part) for name, part in parts.items() if part is not None})
            return stored

    @dataclass
    class Overwrite(BaseOperation):
        """Create a dataset, or replace its rows and schema."""

        new_schema: pa.Schema | LanceSchema
        fragments: Iterable[FragmentMetadata]
        initial_bases: list[DatasetBasePath] | None = None

        def __post_init__(self) -> None:
            if not isinstance(self.new_schema, pa.Schema | LanceSchema):
                raise TypeError(f"schema must be pyarrow.Schema, got {type(self.new_schema)}")
            super().__post_init__()

        def resolve(self, base: Manifest | None) -> op.Operation:
            fragments = _entries(self.fragments)
            schema = _overwritten(_arrow(self.new_schema), fragments, base)
            return op.Overwrite(fragments, schema, initial_bases=base_paths(self.initial_bases))

    @dataclass
    class Append(BaseOperation):
        """Append fragments written by ``LanceFragment.create``."""

        fragments: Iterable[FragmentMetadata]

        def resolve(self, base: Manifest | None) -> op.Operation:
            return op.Append(
                tuple(Fragment(0, f.files, f.deletion_file, f.physical_rows) for f in _entries(self.fragments))
            )

    @dataclass
    class UpdateBases(BaseOperation):
        """Register base paths."""

        new_bases: Iterable[DatasetBasePath]

        def resolve(self, base: Manifest | None) -> op.Operation:
            return op.UpdateBases(base_paths(self.new_bases, () if base is None else base.base_paths))

    @dataclass
    class Delete(BaseOperation):
        """Delete rows: fragments with new deletion files, and ids of fragments that are now empty."""

        updated_fragments: Iterable[FragmentMetadata]
        deleted_fragment_ids: Iterable[int]
        predicate: str

    @dataclass
    class Update(BaseOperation):
        """Update rows: by deletion files plus new fragments, or by new column files.

        Parameters
        ----------
        removed_fragment_ids: ids of fragments that are now empty.
        updated_fragments: fragments with new deletion files or new column files; see
            :meth:`trilake.lance.fragment.LanceFragment.update_columns`.
        new_fragments: fragments with added rows.
        fields_modified: ids of fields whose values changed in the updated fragments; their indices no longer cover
            these fragments.
        updated_fragment_offsets: offsets of the changed rows in updated fragments, as serialized Roaring bitmaps.
        fields_for_preserving_frag_bitmap, update_mode: accepted for compatibility.
        """

        removed_fragment_ids: Iterable[int] = field(default_factory=list)
        updated_fragments: Iterable[FragmentMetadata] = field(default_factory=list)
        new_fragments: Iterable[FragmentMetadata] = field(default_factory=list)
        fields_modified: Iterable[int] = field(default_factory=list)
        fields_for_preserving_frag_bitmap: Iterable[int] = field(default_factory=list)
        update_mode: str = ""
        updated_fragment_offsets: Mapping[int, bytes] | None = None

    @dataclass
    class Merge(BaseOperation):
        """Add or remove columns: all fragments of the dataset, and its new schema."""

        fragments: Iterable[FragmentMetadata]
        schema: pa.Schema | LanceSchema
        preserves_nullability: bool = False

        def __post_init__(self) -> None:
            super().__post_init__()
            if isinstance(self.schema, pa.Schema):
                warnings.warn("pass a LanceSchema to Merge, not a pyarrow.Schema", DeprecationWarning, stacklevel=3)

        def resolve(self, base: Manifest | None) -> op.Operation:
            if base is None:
                raise InvalidArgumentError("the dataset does not exist: nothing to merge with")
            fragments = _entries(self.fragments)
            if isinstance(self.schema, LanceSchema) and _adds_nested(self.schema.stored, base.schema):
                return op.Merge(fragments, self.schema.stored)
            return op.Merge(fragments, with_ids(_arrow(self.schema), base, _ids(fragments)))

    @dataclass
    class DataReplacementGroup:
        """A data file that replaces the file of the same fields in a fragment."""

        fragment_id: int
        new_file: DataFile

    @dataclass
    class DataReplacement(BaseOperation):
        """Replace data files with others of the same fields."""

        replacements: list[LanceOperation.DataReplacementGroup]

    @dataclass
    class UpdateMap:
        """Changes of a string map; ``None`` removes a key, and ``replace`` removes all other keys."""

        updates: dict[str, str | None]
        replace: bool = False

    @dataclass
    class UpdateConfig(BaseOperation):
        """Change the configuration or metadata of the table, or the metadata of the schema or of fields (by id)."""

        config_updates: LanceOperation.UpdateMap | None = None
        table_metadata_updates: LanceOperation.UpdateMap | None = None
        schema_metadata_updates: LanceOperation.UpdateMap | None = None
        field_metadata_updates: dict[int, LanceOperation.UpdateMap] | None = None

    @dataclass
    class Project(BaseOperation):
        """Select, reorder and rename columns by field id; this also drops columns.

        ``preserves_nullability`` has no effect: like a merge, the operation conflicts with concurrent writers.
        """

        schema: LanceSchema
        preserves_nullability: bool = False

        def __post_init__(self) -> None:
            if not isinstance(self.schema, LanceSchema):
                raise TypeError(f"schema must be LanceSchema, got {type(self.schema)}")

        def resolve(self, base: Manifest | None) -> op.Operation:
            if base is None:
                raise InvalidArgumentError("the dataset does not exist: it has no columns to project")
            return projection(base, _projected(self.schema.stored, base.schema))

    @dataclass
    class Restore(BaseOperation):
        """Make an old version the newest one."""

        version: int

    @dataclass
    class RewriteGroup:
        """Old fragments, and the new fragments with the same rows."""

        old_fragments: Iterable[FragmentMetadata]
        new_fragments: Iterable[FragmentMetadata]

    @dataclass
    class RewrittenIndex:
        """An index that was rewritten because its rows moved."""

        old_id: str
        new_id: str
        new_details_type_url: str = ""
        new_details_value: bytes = b""
        new_index_version: int = 0

    @dataclass
    class Rewrite(BaseOperation):
        """Move rows to other fragments and remap the indices."""

        groups: Iterable[LanceOperation.RewriteGroup]
        rewritten_indices: Iterable[LanceOperation.RewrittenIndex]

        def __post_init__(self) -> None:
            for group in self.groups:
                _entries(group.old_fragments)
                _entries(group.new_fragments)

    @dataclass
    class CreateIndex(BaseOperation):
        """Add and remove indices; their files are already written."""

        new_indices: list[Index]
        removed_indices: list[Index]

    @dataclass
    class ReserveFragments(BaseOperation):
        """Reserve fragment ids for a later rewrite."""

        num_fragments: int


@dataclass
class IndexFile:
    """A file of an index, by its path in the index folder."""

    path: str
    size_bytes: int


@dataclass
class Index:
    """An index: its id, name, field ids, and the ids of the fragments it covers.

    ``index_details`` are the type and the bytes of a protobuf message, ``created_at`` is a timestamp, ``base_id`` is
    the base path of its ``files``, and ``covering_fields`` are the ids of fields stored in the index.
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
        """Convert to a manifest entry.  Raises ``ValueError`` for an invalid id."""
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


#: The names here of the fields that stored operations call otherwise.
_RENAMED = {name: f"{name}_updates" for name in ("config", "table_metadata", "schema_metadata", "field_metadata")}


def _stored(value: Any) -> Any:
    """Convert a part of an operation to its stored form."""
    match value:
        case FragmentMetadata():
            return value.entry
        case Index():
            return value.entry()
        case LanceOperation.UpdateMap():
            return op.MapUpdate(dict(value.updates), value.replace)
        case LanceOperation.DataReplacementGroup():
            return int(value.fragment_id), value.new_file.entry
        case LanceOperation.RewriteGroup():
            return op.RewriteGroup(_entries(value.old_fragments), _entries(value.new_fragments))
        case LanceOperation.RewrittenIndex():
            url = value.new_details_type_url
            details = IndexDetails(url, value.new_details_value) if url else None
            return op.RewrittenIndex(UUID(value.old_id), UUID(value.new_id), details, value.new_index_version)
        case Mapping():
            return {int(id): _stored(one) for id, one in value.items()}
        case Iterable() if not isinstance(value, str | bytes):
            return tuple(map(_stored, value))
    return value


def from_stored(operation: op.Operation) -> LanceOperation.BaseOperation | None:
    """Convert a stored operation; returns ``None`` for an unknown one."""
    if isinstance(operation, op.Overwrite):
        bases = _shown(operation.initial_bases) or None
        return LanceOperation.Overwrite(View(operation.schema).arrow, _shown(operation.fragments), bases)
    kind: Any = getattr(LanceOperation, type(operation).__name__, None)
    if kind is None:
        return None
    parts = {_RENAMED.get(f.name, f.name): _shown(getattr(operation, f.name)) for f in fields(operation)}
    converted: LanceOperation.BaseOperation = kind(**parts)
    return converted


def _shown(value: Any) -> Any:
    """Convert a part of a stored operation; the inverse of :func:`_stored`."""
    match value:
        case Fragment():
            return FragmentMetadata.of(value)
        case IndexMetadata():
            return Index.of(value)
        case BasePath():
            return DatasetBasePath.of(value)
        case StoredSchema():
            return LanceSchema(View(value).schema)
        case op.MapUpdate():
            return LanceOperation.UpdateMap(dict(value.entries), value.replace)
        case (int() as id, StoredFile() as file):
            return LanceOperation.DataReplacementGroup(id, DataFile.of(file))
        case op.RewriteGroup():
            return LanceOperation.RewriteGroup(_shown(value.old_fragments), _shown(value.new_fragments))
        case op.RewrittenIndex():
            details = value.new_index_details or IndexDetails("")
            ids = str(value.old_id), str(value.new_id)
            return LanceOperation.RewrittenIndex(*ids, details.type_url, details.value, value.new_index_version)
        case Mapping():
            return {id: _shown(one) for id, one in value.items()} or None
        case tuple():
            return list(map(_shown, value))
    return value


# --- transactions ----------------------------------------------------------------------------------------------------


@dataclass
class Transaction:
    """An operation and the version it is based on.

    Parameters
    ----------
    read_version: version that the operation is based on; 0 for a new dataset.
    operation: one of :class:`LanceOperation`.
    uuid: unique id, by default assigned by the commit.
    transaction_properties: properties of the commit.
    """

    read_version: int
    operation: LanceOperation.BaseOperation
    uuid: str | None = None
    transaction_properties: Mapping[str, str] | None = field(default_factory=dict)


# --- schemas ---------------------------------------------------------------------------------------------------------


def _arrow(schema: pa.Schema | LanceSchema) -> pa.Schema:
    return schema.to_pyarrow() if isinstance(schema, LanceSchema) else schema


def _ids(fragments: Iterable[Fragment]) -> set[int]:
    return {id for fragment in fragments for file in fragment.files for id in file.fields}


def _new(schema: pa.Schema, ids: set[int], first: int = 0) -> StoredSchema:
    """Assign ids from ``first`` to new columns, with null companions if the files have them."""
    masked = StoredSchema.from_arrow(masked_schema(schema), first)
    whole = {id for id in ids if id >= first} == set(masked.field_ids)
    return masked if whole else StoredSchema.from_arrow(schema, first)


def _overwritten(schema: pa.Schema, fragments: Iterable[Fragment], base: Manifest | None) -> StoredSchema:
    """Assign field ids to the schema of an overwrite: those in its files, which may be the ids of ``base``."""
    ids = _ids(fragments)
    previous = {} if base is None else {f.name: f for f in base.schema.fields}
    if base is not None and all(_same(previous.get(one.name), one) for one in schema):
        same = with_ids(schema, base, ids)
        if ids.issuperset(same.field_ids):
            return same
    return _new(schema, ids)


def with_ids(schema: pa.Schema, base: Manifest, ids: set[int]) -> StoredSchema:
    """Assign field ids to a schema: columns of ``base`` keep their ids, new columns get the next ones.

    Parameters
    ----------
    schema: user-visible schema, to which null companions are added.
    ids: field ids in the files.
    """
    previous = {f.name: f for f in base.schema.fields}
    new = pa.schema([one for one in schema if not _same(previous.get(one.name), one)])
    added = _new(new, ids, next_field_id(base))
    masks = {name: mask for name, mask in companions(base.schema).items() if name not in new.names} | companions(added)
    by_name = {f.name: f for f in added.fields}
    fields: list[Field] = []
    for one in schema:
        field = by_name.get(one.name) or previous[one.name]
        mask = masks.get(one.name)
        fields += [field] if mask is None or mask.name in schema.names else [field, mask]
    return StoredSchema(tuple(fields), dict(schema.metadata or {})).with_dictionaries(base.schema.dictionaries)


def _adds_nested(schema: StoredSchema, base: StoredSchema) -> bool:
    """Whether a schema with field ids adds fields to existing structs or lists."""
    parents = {f.parent_id for f in schema.walk() if base.by_id(f.id) is None}
    named = [(base.by_id(id), schema.by_id(id)) for id in parents]
    return any(old is not None and new is not None and old.name == new.name for old, new in named)


def _projected(target: StoredSchema, previous: StoredSchema) -> StoredSchema:
    """Project a schema by field id, with the names of ``target``; null companions are kept.

    Raises ``InvalidArgumentError`` for an unknown field, another type, or a duplicate name.
    """
    masks = companions(previous)
    by_id = {f.id: f for f in previous.fields}
    fields: list[Field] = []
    for one in target.fields:
        present = by_id.get(one.id)
        if present is None or present in masks.values():
            raise InvalidArgumentError(f"no column has the id {one.id}, requested as {one.name!r}", help=_IDS)
        fields.append(_renamed(present, one))
        mask = masks.get(present.name)
        if mask is not None and one.name != present.name:
            mask = renamed(mask, one.name, [*(f.name for f in target.fields), *(f.name for f in previous.fields)])
        fields += [] if mask is None else [mask]
    if not fields or len({f.name for f in fields}) < len(fields):
        names = ", ".join(f.name for f in fields) or "none"
        raise InvalidArgumentError(
            f"a dataset needs columns with distinct names, got {names}", help="use each name once"
        )
    return StoredSchema(tuple(fields), dict(target.metadata)).with_dictionaries(previous.dictionaries)


_IDS = "LanceDataset.lance_schema has the columns with their ids"


def _renamed(present: Field, target: Field) -> Field:
    """Rename a field and its nested fields, and drop those that ``target`` lacks."""
    by_id = {f.id: f for f in present.children}
    unknown = [f.name for f in target.children if f.id not in by_id]
    if unknown or present.logical_type != target.logical_type:
        raise InvalidArgumentError(
            f"field {present.id} is {present.name!r} of type {present.arrow_type}, expected {target.arrow_type}",
            help=_IDS,
        )
    if present.nullable and not target.nullable:
        raise InvalidArgumentError(
            "the column may have nulls", help="use alter_columns, which checks", column=present.name
        )
    children = tuple(_renamed(by_id[f.id], f) for f in target.children)
    return replace(present, name=target.name, nullable=target.nullable, metadata=target.metadata, children=children)


def _same(present: Field | None, one: pa.Field) -> bool:
    """Whether the dataset has this column with this type."""
    if present is None:
        return False
    field = StoredSchema.from_arrow(pa.schema([one])).fields[0]
    return present.logical_type == field.logical_type and present.arrow_type == field.arrow_type
