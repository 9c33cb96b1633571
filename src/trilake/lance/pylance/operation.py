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
            return op.Overwrite(_entries(self.fragments), LanceSchema.from_arrow(self.new_schema))

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
            return op.Merge(_entries(self.fragments), with_ids(self.schema, base))

    @dataclass
    class Restore(BaseOperation):
        """Make an old version the newest."""

        version: int

        def resolve(self, base: Manifest | None) -> op.Operation:
            return op.Restore(self.version)


def with_ids(schema: pa.Schema, base: Manifest) -> LanceSchema:
    """The ids of a schema's fields: those that the dataset has keep theirs, new ones follow the highest."""
    known = {f.name: f for f in base.schema.fields}
    first = next_field_id(base)
    fields: list[Field] = []
    for one in schema:
        present = known.get(one.name)
        field = LanceSchema.from_arrow(pa.schema([one]), first).fields[0]
        if (
            present is not None
            and present.logical_type == field.logical_type
            and present.arrow_type == field.arrow_type
        ):
            fields.append(present)
        else:
            fields.append(field)
            first += len(list(field.walk()))
    merged = LanceSchema(tuple(fields), dict(schema.metadata or {}))
    ids = set(merged.field_ids)
    return merged.with_dictionaries({id: a for id, a in base.schema.dictionaries.items() if id in ids})
