"""A top-level column: shred its rows into leaves, and encode these as pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.types as pt

from trilake.errors import UnsupportedProtocolError
from trilake.lance.file.extensions import storage_array
from trilake.lance.file.schema import Field
from trilake.lance.file.strings import check_strings
from trilake.lance.v2 import encode_v20
from trilake.lance.v2.encode_miniblock import Page
from trilake.lance.v2.encode_options import Options
from trilake.lance.v2.encode_page import encode
from trilake.lance.v2.write_levels import Leaf, Levels


@dataclass(frozen=True)
class Column:
    """A top-level field of a file of version 2.``minor``."""

    field: Field
    minor: int

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """The fields that are columns of the file."""
        return tuple(self.field.columns(parents=not self.minor))

    @cached_property
    def options(self) -> tuple[Options, ...]:
        return tuple(Options.of(field.metadata) for field in self.fields)

    def pages(self, array: pa.Array) -> list[tuple[int, Page]]:
        """Encode rows as pages, each with its column number.

        Raises ``UnsupportedProtocolError`` for values that the version cannot store, and ``RowsDoNotFitError`` for
        strings that are not UTF-8.
        """
        if not self.minor:
            return list(encode_v20.pages(array, self.field))
        pages: list[tuple[int, Page]] = []
        leaves = shred(array, self.field, Levels(len(array)), len(array), self.minor)
        for number, (leaf, field, options) in enumerate(zip(leaves, self.fields, self.options, strict=True)):
            check_strings(leaf.values, field.name)
            pages += ((number, page) for page in encode(leaf, options, self.minor))
        return pages


def shred(array: pa.Array, field: Field, levels: Levels, rows: int, minor: int) -> Iterator[Leaf]:
    """Shred nested rows into leaves.

    Raises ``UnsupportedProtocolError`` for null structs without fields.
    """
    array = storage_array(array)
    kind = array.type
    if field.is_column:
        if pt.is_struct(kind) and not kind.num_fields and array.null_count:
            raise UnsupportedProtocolError(
                f"version 2.{minor} has no nulls in structs without fields, got {array.null_count}",
                help="add a field to the struct, or fill the nulls",
                column=field.name,
            )
        yield levels.item(array).leaf(array, rows)
    elif pt.is_struct(kind):
        inside = levels.item(array)
        for number, child in enumerate(field.children):
            yield from shred(array.field(number), child, inside, rows, minor)
    elif pt.is_fixed_size_list(kind):
        size = kind.list_size
        items = array.values.slice(array.offset * size, len(array) * size)
        yield from shred(items, field.children[0], levels.item(array).repeat(size), rows, minor)
    else:
        below, items = levels.lists(array)
        yield from shred(items, field.children[0], below, rows, minor)
