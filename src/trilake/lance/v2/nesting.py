"""Assemble nested arrays from the leaves of a column, layer by layer from the inside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from trilake.lance.file import types
from trilake.lance.file.schema import BLOB, PACKED, Field, LanceSchema
from trilake.lance.file.types import DESCRIPTION
from trilake.lance.v2.layers import CONTINUED, ITEMS, NULLABLE_ITEM, Layers, Part, Uint16s
from trilake.lance.v2.values import DamagedPage, UnsupportedPage, kernels

_MAX_INT32 = 2**31 - 1


@dataclass(frozen=True)
class Node:
    """A field and how it is read.

    ``kind`` is ``"leaf"``, ``"struct"``, ``"list"`` (or map) or ``"vector"``, a fixed-size list of structs.  Only
    leaves have a ``column`` of the file, except in 2.0; ``stored`` is the type of that column: descriptions for blobs,
    all fields for packed structs.
    """

    field: Field
    kind: str
    children: tuple[Node, ...]
    column: int | None
    stored: pa.DataType | None = None

    @cached_property
    def type(self) -> pa.DataType:
        """The type of the result; for blobs, the type of their descriptions."""
        field = self.field
        if self.kind == "leaf":
            return self.stored if field.is_blob else field.arrow_type
        return types.nested_type(field.logical_type, [child.arrow for child in self.children])

    @cached_property
    def arrow(self) -> pa.Field:
        if self.kind == "leaf" and self.field.is_blob:
            # Descriptions do not have the extension type.
            metadata = {BLOB: b"true"} if self.type == DESCRIPTION else {PACKED: b"true", BLOB: b"true"}
            return pa.field(self.field.name, self.type, self.field.nullable, metadata)
        return self.field.storage_field.with_type(self.type)

    @cached_property
    def leaves(self) -> tuple[Node, ...]:
        return (self,) if self.kind == "leaf" else tuple(leaf for child in self.children for leaf in child.leaves)

    @cached_property
    def items(self) -> Mapping[int, int]:
        """Entries per row of each leaf, by column; fixed-size lists of structs multiply them."""
        if self.kind == "leaf":
            assert self.column is not None
            return {self.column: 1}
        factor = types.list_size(self.field.logical_type) if self.kind == "vector" else 1
        return {column: factor * n for child in self.children for column, n in child.items.items()}


def tree(field: Field, columns: Mapping[int, int], description: pa.DataType, file: LanceSchema) -> Node | None:
    """Build the node of a field with the children that have file columns (by field id); ``None`` if there are none.

    ``description`` is the type of descriptions of blobs; ``file`` is a schema that has packed structs with all fields.
    """
    if field.is_column:
        column = columns.get(field.id)
        stored = description if field.is_blob else (file.by_id(field.id) or field).arrow_type
        return None if column is None else Node(field, "leaf", (), column, stored)
    children = tuple(node for child in field.children if (node := tree(child, columns, description, file)) is not None)
    if not children or (field.logical_type == "map" and len(children[0].children) != 2):
        return None
    kind = "struct"
    if field.logical_type in types.LISTS or field.logical_type == "map":
        kind = "list"
    elif types.is_struct_vector(field.logical_type):
        kind = "vector"
    field = replace(field, children=tuple(child.field for child in children))
    return Node(field, kind, children, columns.get(field.id))


def narrowed(node: Node, array: pa.Array) -> pa.Array:
    """Select the fields of a packed struct that the node reads."""
    if array.type == node.type or not pt.is_struct(array.type):
        return array
    children = [array.field(field.name) for field in node.type]
    return pa.Array.from_buffers(node.type, len(array), array.buffers()[:1], children=children)


class Leaf(NamedTuple):
    """The visible values of a leaf, and the levels of all its entries."""

    array: pa.Array
    rep: Uint16s | None
    definition: Uint16s | None
    layers: Layers


def merge(parts: Sequence[Part], arrow: pa.DataType) -> Leaf:
    """Concatenate the parts of several pages.  Raises ``DamagedPage``."""
    if len(parts) == 1:
        (part,) = parts
        return Leaf(_leaf_array(part, arrow), part.rep, part.definition, part.layers)
    if len({part.layers.kinds for part in parts}) > 1:
        parts = [_widest(part) for part in parts]
        if len({part.layers.kinds for part in parts}) > 1:
            raise DamagedPage("the pages of a column have different layers")
    try:
        array = pa.concat_arrays([_leaf_array(part, arrow) for part in parts])
    except pa.ArrowException as e:
        raise DamagedPage(f"the values of several pages are too many for {arrow}: {e}") from e
    layers = parts[0].layers
    rep = np.concatenate([_or_zeros(p.rep, p) for p in parts]) if layers.lists else None
    definition = None
    if len(layers.kinds) > 1 and any(p.definition is not None for p in parts):
        definition = np.concatenate([_or_zeros(p.definition, p) for p in parts])
    return Leaf(array, rep, definition, layers)


def _or_zeros(levels: Uint16s | None, part: Part) -> Uint16s:
    if levels is not None:
        return levels
    return np.zeros(part.values.count if part.rep is None else len(part.rep), np.uint16)


def _widest(part: Part) -> Part:
    """Translate a part to the levels of :meth:`Layers.widest`."""
    layers = part.layers.widest()
    if part.definition is None or layers.kinds == part.layers.kinds:
        return part._replace(layers=layers)
    table = part.layers.to_widest()
    if len(part.definition) and int(part.definition.max()) >= len(table):
        raise DamagedPage(f"definition level {part.definition.max()} exceeds the maximum of {len(table) - 1}")
    return part._replace(definition=table[part.definition], layers=layers)


def _leaf_array(part: Part, arrow: pa.DataType) -> pa.Array:
    validity: pa.Buffer | None = None
    levels = part.definition
    if levels is not None:
        if part.layers.lists:
            levels = levels[levels <= part.layers.max_visible]
        validity = bitmap(levels == 0)
        if len(levels) != part.values.count:
            raise DamagedPage(f"expected levels for {part.values.count} values, got {len(levels)}")
    return part.values.arrow(arrow, validity)


def bitmap(valid: Any) -> pa.Buffer | None:
    """Build the validity bitmap of an array; ``None`` if all values are valid."""
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


class _State(NamedTuple):
    """The entries that remain above the layers assembled so far."""

    rep: Uint16s | None
    definition: Uint16s | None
    layers: Layers
    #: Index of the next layer.
    layer: int
    #: Number of definition levels below that layer.
    base: int

    def kind(self) -> int:
        if self.layer >= len(self.layers.kinds):
            raise DamagedPage("a page has fewer layers than its column")
        return self.layers.kinds[self.layer]

    def above(self, **changes: Any) -> _State:
        levels = self.layers.levels(self.layer)
        return self._replace(layer=self.layer + 1, base=self.base + levels, **changes)

    def item_validity(self, count: int) -> tuple[_State, pa.Buffer | None]:
        """Return the state above an item layer of ``count`` slots, and the validity of the layer."""
        kind = self.kind()
        if kind not in ITEMS:
            raise DamagedPage("a page has a list where its column has a struct")
        validity: pa.Buffer | None = None
        if kind == NULLABLE_ITEM and self.definition is not None:
            levels = self.definition
            if self.rep is not None:
                levels = levels[levels <= self.base + self.layers.visible_from(self.layer)]
            if len(levels) != count:
                raise DamagedPage(f"the fields of a struct have {count} and {len(levels)} values")
            validity = bitmap(levels <= self.base)
        return self.above(), validity


def assemble(node: Node, leaves: Sequence[Leaf], count: int) -> pa.Array:
    """Assemble ``count`` rows of a field from its leaves, in order.  Raises ``DamagedPage``."""
    array, state = _build(node, iter(leaves))
    if state.layer != len(state.layers.kinds):
        raise DamagedPage("a page has more layers than its column")
    if len(array) != count:
        raise DamagedPage(f"a column has {len(array)} rows, not {count}")
    return array


def _build(node: Node, leaves: Iterator[Leaf]) -> tuple[pa.Array, _State]:
    if node.kind == "leaf":
        leaf = next(leaves)
        state = _State(leaf.rep, leaf.definition, leaf.layers, 1, leaf.layers.levels(0))
        return narrowed(node, leaf.array), state
    built = [_build(child, leaves) for child in node.children]
    arrays, state = [array for array, _ in built], built[0][1]
    if node.kind == "struct":
        count = len(arrays[0])
        if any(len(array) != count for array in arrays):
            raise DamagedPage(f"the fields of a struct have {', '.join(str(len(a)) for a in arrays)} values")
        state, validity = state.item_validity(count)
        return pa.Array.from_buffers(node.type, count, [validity], children=arrays), state
    if node.kind == "vector":
        return _vectors(node, arrays[0], state)
    return _lists(node, arrays[0], state)


def _vectors(node: Node, items: pa.Array, state: _State) -> tuple[pa.Array, _State]:
    """Assemble fixed-size lists of structs; only the first entry of each list remains."""
    size = types.list_size(node.field.logical_type)
    count = len(items) // size
    if len(items) % size:
        raise DamagedPage(f"{len(items)} items cannot be divided into lists of {size}")
    first: Any = slice(None, None, size)
    rep = state.rep
    if rep is not None:
        first = rep < CONTINUED
        if size > 1 and count and first.all():
            raise UnsupportedPage("fixed-size lists of structs in lists are not supported in pages with levels")
        rep = rep[first]
    definition = None if state.definition is None else state.definition[first]
    state, validity = state._replace(rep=rep, definition=definition).item_validity(count)
    return pa.Array.from_buffers(node.type, count, [validity], children=[items]), state


def _lists(node: Node, items: pa.Array, state: _State) -> tuple[pa.Array, _State]:
    if state.kind() in ITEMS or state.rep is None:
        raise DamagedPage("a page has a struct where its column has a list")
    rep = state.rep
    new = state.base + state.layers.levels(state.layer)
    most = new + state.layers.visible_from(state.layer + 1)
    null = state.layers.null_level(state.layer, state.base)
    large = pt.is_large_list(node.type)
    offsets = np.empty(len(rep) + 1, np.int64 if large else np.int32)
    valid, left = np.empty(len(rep), np.bool_), np.empty(len(rep), np.int64)
    if not large and len(rep) > _MAX_INT32:
        raise DamagedPage("more than 2^31 list items in one read; read fewer rows")
    levels = np.empty(0, np.uint16) if state.definition is None else state.definition
    lists, kept, nulls = kernels().unravel_lists(rep, levels, state.base, null, new, most, offsets, valid, left)
    if offsets[lists] != len(items):
        raise DamagedPage(f"lists have {offsets[lists]} items, but there are {len(items)}")
    validity = bitmap(valid[:lists]) if nulls else None
    buffers = [validity, pa.py_buffer(offsets[: lists + 1])]
    array = pa.Array.from_buffers(node.type, int(lists), buffers, children=[items])
    left = left[:kept]
    definition = None if state.definition is None else state.definition[left]
    above = state.above(rep=rep[left] - np.uint16(1), definition=definition)
    if above.rep is not None and not any(kind not in ITEMS for kind in above.layers.kinds[above.layer :]):
        above = above._replace(rep=None)
    return array, above
