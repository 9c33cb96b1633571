"""``LanceOperation``: what a distributed job has done to a dataset, to be committed at one place.

The tasks of such a job write files and return :class:`~trilake.lance.versions.fragment_metadata.FragmentMetadata`; one
of these operations, given to :meth:`trilake.lance.pylance.lance_dataset.LanceDataset.commit`, makes them a version.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from trilake.errors import InvalidArgumentError
from trilake.lance.commands.columns import next_field_id
from trilake.lance.file.null_masks import companions, masked_schema
from trilake.lance.file.schema import Field, LanceSchema
from trilake.lance.versions import operations as op
from trilake.lance.versions.fragment_metadata import FragmentMetadata
from trilake.lance.versions.manifest import Fragment, Manifest


def _entries(fragments: Iterable[FragmentMetadata]) -> tuple[Fragment, ...]:
    if not isinstance(fragments, list):
        raise TypeError(f"fragments must be list[FragmentMetadata], got {type(fragments)}")
    wrong = [f for f in fragments if not isinstance(f, FragmentMetadata)]
    if wrong:
        raise TypeError(f"fragments must be list[FragmentMetadata], got {type(wrong[0])}")
    return tuple(f.entry for f in fragments)


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

        new_schema: pa.Schema
        fragments: Iterable[FragmentMetadata]

        def __post_init__(self) -> None:
            if not isinstance(self.new_schema, pa.Schema):
                raise TypeError(f"schema must be pyarrow.Schema, got {type(self.new_schema)}")
            _entries(self.fragments)

        def resolve(self, base: Manifest | None) -> op.Operation:
            fragments = _entries(self.fragments)
            return op.Overwrite(fragments, _overwritten(self.new_schema, fragments, base))

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
        """Rows were changed: they are deleted in some fragments, and are in new ones."""

        removed_fragment_ids: Iterable[int]
        updated_fragments: Iterable[FragmentMetadata]
        new_fragments: Iterable[FragmentMetadata]

        def __post_init__(self) -> None:
            _entries(self.updated_fragments)
            _entries(self.new_fragments)

        def resolve(self, base: Manifest | None) -> op.Operation:
            return op.Update(
                tuple(self.removed_fragment_ids), _entries(self.updated_fragments), _entries(self.new_fragments)
            )

    @dataclass
    class Merge(BaseOperation):
        """Fragments have more columns, or fewer: all fragments of the dataset, and its new schema."""

        fragments: Iterable[FragmentMetadata]
        schema: pa.Schema

        def __post_init__(self) -> None:
            _entries(self.fragments)

        def resolve(self, base: Manifest | None) -> op.Operation:
            if base is None:
                raise InvalidArgumentError("there is no dataset whose columns could be merged")
            fragments = _entries(self.fragments)
            return op.Merge(fragments, with_ids(self.schema, base, _ids(fragments)))

    @dataclass
    class Restore(BaseOperation):
        """Make an old version the newest."""

        version: int

        def resolve(self, base: Manifest | None) -> op.Operation:
            return op.Restore(self.version)


def _ids(fragments: Iterable[Fragment]) -> set[int]:
    return {id for fragment in fragments for file in fragment.files for id in file.fields}


def _new(schema: pa.Schema, ids: set[int], first: int = 0) -> LanceSchema:
    """The ids of new columns from ``first`` on, with companions where these are what files have."""
    masked = LanceSchema.from_arrow(masked_schema(schema), first)
    whole = {id for id in ids if id >= first} == set(masked.field_ids)
    return masked if whole else LanceSchema.from_arrow(schema, first)


def _overwritten(schema: pa.Schema, fragments: Iterable[Fragment], base: Manifest | None) -> LanceSchema:
    """The ids of a dataset's columns: those that the files have, which may be files of the dataset that there was."""
    ids = _ids(fragments)
    known = {} if base is None else {f.name: f for f in base.schema.fields}
    if base is not None and all(_same(known.get(one.name), one) for one in schema):
        same = with_ids(schema, base, ids)
        if ids.issuperset(same.field_ids):
            return same
    return _new(schema, ids)


def with_ids(schema: pa.Schema, base: Manifest, ids: set[int]) -> LanceSchema:
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
    merged = LanceSchema(tuple(fields), dict(schema.metadata or {}))
    kept = set(merged.field_ids)
    return merged.with_dictionaries({id: a for id, a in base.schema.dictionaries.items() if id in kept})


def _same(present: Field | None, one: pa.Field) -> bool:
    """Whether the dataset has this column, in this type."""
    if present is None:
        return False
    field = LanceSchema.from_arrow(pa.schema([one])).fields[0]
    return present.logical_type == field.logical_type and present.arrow_type == field.arrow_type
