"""A top-level column: its leaves, what a version can hold of it, and its rows as pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.types as pt

from trilake.errors import UnsupportedProtocolError
from trilake.lance.file.schema import Field
from trilake.lance.v2.encode_lists import storage
from trilake.lance.v2.encode_miniblock import Page
from trilake.lance.v2.encode_options import Options
from trilake.lance.v2.encode_page import encode
from trilake.lance.v2.write_levels import Leaf, Levels

_PACKED = b"lance-encoding:packed"


def is_packed(field: Field) -> bool:
    """Whether a struct is one column, its values row by row."""
    return field.metadata.get(_PACKED, b"").lower() == b"true"


def leaves(field: Field) -> Iterator[Field]:
    """The fields at or below this one that have a column, in order.

    >>> from trilake.lance.file.schema import LanceSchema
    >>> schema = LanceSchema.from_arrow(pa.schema({"s": pa.struct({"a": pa.int8(), "b": pa.list_(pa.int8())})}))
    >>> [leaf.name for leaf in leaves(schema.fields[0])]
    ['a', 'item']
    """
    if field.children and not is_packed(field):
        for child in field.children:
            yield from leaves(child)
    else:
        yield field


@dataclass(frozen=True)
class Column:
    """A top-level field of a file of version 2.1 or 2.2.

    Parameters
    ----------
    field: the field.
    minor: of the version.
    """

    field: Field
    minor: int

    @cached_property
    def leaves(self) -> tuple[Field, ...]:
        """The fields that have columns."""
        return tuple(leaves(self.field))

    @cached_property
    def options(self) -> tuple[Options, ...]:
        """The options of each of them."""
        return tuple(Options.of(leaf.metadata) for leaf in self.leaves)

    def pages(self, array: pa.Array) -> list[tuple[int, Page]]:
        """The pages of some rows, each with the number of its leaf."""
        shredded = shred(array, self.field, Levels(len(array)), len(array), self.minor)
        return [
            (number, page)
            for number, (leaf, options) in enumerate(zip(shredded, self.options, strict=True))
            for page in encode(leaf, options, self.minor)
        ]


def shred(array: pa.Array, field: Field, levels: Levels, rows: int, minor: int) -> Iterator[Leaf]:
    """The leaves of nested rows.

    Raises ``UnsupportedProtocolError`` for what the version cannot hold.
    """
    array = storage(array)
    kind = array.type
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_map(kind):
        below, items = levels.lists(array)
        yield from shred(items, field.children[0], below, rows, minor)
    elif pt.is_struct(kind) and field.children and not is_packed(field):
        inside = levels.item(array)
        for number, child in enumerate(field.children):
            yield from shred(array.field(number), child, inside, rows, minor)
    elif pt.is_fixed_size_list(kind) and field.children:
        size = kind.list_size
        items = array.values.slice(array.offset * size, len(array) * size)
        yield from shred(items, field.children[0], levels.item(array).repeat(size), rows, minor)
    else:
        if pt.is_struct(kind) and not kind.num_fields and array.null_count:
            raise UnsupportedProtocolError(
                f"version 2.{minor} has no nulls in structs without fields",
                help="add a field to the struct, or fill the nulls",
                column=field.name,
            )
        yield levels.item(array).leaf(array, rows)
