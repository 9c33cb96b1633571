"""Page layouts of the legacy format by type, and the types that it does not support."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

import pyarrow.types as pt

from trilake.errors import UnsupportedProtocolError
from trilake.expr.terms.datatypes import Path
from trilake.lance.file import types
from trilake.lance.file.schema import Field, LanceSchema
from trilake.lance.file.storage_version import FIRST


class PageKind(Enum):
    """The content of a field's page; its children have pages of their own."""

    #: packed values of a whole number of bytes
    FIXED = "fixed"
    #: packed bits, least significant first
    BITS = "bits"
    #: bytes of all n values, then n + 1 int64 file positions
    VARIABLE = "variable"
    #: n + 1 offsets for n lists
    OFFSETS = "offsets"
    #: packed keys; the values are stored elsewhere
    KEYS = "keys"
    #: nothing: a struct's values are those of its children
    STRUCT = "struct"
    #: nothing: there are only nulls
    NULL = "null"


@dataclass(frozen=True)
class Layout:
    """The page layout of a field: its kind, and the bits of one value, offset or key (0 if it has no pages)."""

    kind: PageKind
    bits: int

    def page_bytes(self, rows: int) -> int:
        """The size of a page of ``rows`` rows, in bytes; for strings and binaries, only of the offsets.

        >>> Layout(PageKind.BITS, 1).page_bytes(9), Layout(PageKind.VARIABLE, 64).page_bytes(2)
        (2, 24)
        """
        more = self.kind in (PageKind.VARIABLE, PageKind.OFFSETS)
        return -(-(rows + more) * self.bits // 8)


def layout_of(field: Field) -> Layout:
    """The layout of a field's pages.  Raises ``UnsupportedProtocolError`` if the legacy format has none."""
    return layout(field.logical_type)


def outside_lists(schema: LanceSchema) -> list[tuple[Path, Field]]:
    """The top-level fields and those in structs, with their paths."""
    return [
        (tuple(schema.path_of(field)), field)
        for field in schema.walk()
        if all(layout_of(parent).kind is PageKind.STRUCT for parent in schema.above(field))
    ]


@lru_cache(maxsize=4096)
def layout(logical_type: str) -> Layout:
    """The layout of the pages of a type; see :func:`layout_of`."""
    if logical_type == "struct":
        return Layout(PageKind.STRUCT, 0)
    if logical_type in types.LISTS:
        return Layout(PageKind.OFFSETS, 64 if logical_type.startswith("large") else 32)
    if logical_type in ("map", "json") or types.is_struct_vector(logical_type):
        raise _unsupported(logical_type)
    arrow = types.arrow_type(logical_type)
    if pt.is_null(arrow):
        return Layout(PageKind.NULL, 0)
    if types.is_variable(arrow):
        return Layout(PageKind.VARIABLE, 64)
    if pt.is_dictionary(arrow):
        if not (types.is_variable(arrow.value_type) or pt.is_integer(arrow.value_type)):
            raise _unsupported(logical_type)
        return Layout(PageKind.KEYS, arrow.index_type.bit_width)
    if pt.is_fixed_size_list(arrow):
        if not types.is_flat(arrow.value_type):
            raise _unsupported(logical_type)
        bits = arrow.list_size * arrow.value_type.bit_width
        return Layout(PageKind.BITS if pt.is_boolean(arrow.value_type) else PageKind.FIXED, bits)
    return Layout(PageKind.BITS if pt.is_boolean(arrow) else PageKind.FIXED, arrow.bit_width)


def _unsupported(logical_type: str) -> UnsupportedProtocolError:
    return UnsupportedProtocolError(
        f"files of Lance {FIRST} cannot store type {logical_type!r}",
        help="the manifest does not fit its data files, or is damaged",
        logical_type=logical_type,
    )
