"""Fields and schemas: Arrow types with field ids, which identify columns in data files even after a rename.

Ids count from 0, depth first, parents before children.  A dataset never reuses one: a column that is dropped and added
again gets a new id.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa
import pyarrow.types as pt

from trilake.common.text import columns_help
from trilake.errors import (
    CorruptLogError,
    InvalidArgumentError,
    SchemaMismatchError,
    TrilakeError,
    UnsupportedProtocolError,
)
from trilake.lance.file import extensions, types
from trilake.lance.file.errors import ColumnExistsError, UnknownColumnError
from trilake.lance.file.types import (
    ARROW_JSON,
    DESCRIPTION,
    DESCRIPTION_V2,
    EXTENSION_METADATA,
    EXTENSION_NAME,
    LANCE_JSON,
    Encoding,
)
from trilake.lance.proto import format_pb2

#: Maximum levels of nested fields: more than schemas have, and few enough for recursion.
MAX_DEPTH = 64
#: Parent id of a top-level field.
NO_PARENT = -1
#: Replaces a field's id in the entry of a data file if another file of the fragment now has the values.
TOMBSTONE = -2
#: Metadata keys of blobs and of packed structs, and the extension name of blobs that may be in other files.
BLOB, PACKED = b"lance-encoding:blob", b"lance-encoding:packed"
BLOB_V2 = b"lance.blob.v2"


class DictionaryLocation(NamedTuple):
    """The position of a dictionary's values in the file that stores them, and their number."""

    offset: int
    length: int


@dataclass(frozen=True)
class Field:
    """A column, or a part of one.

    ``parent_id`` is :data:`NO_PARENT` at the top; ``logical_type`` is Lance's name of the type, see
    :mod:`trilake.lance.file.types`; ``metadata`` is that of the Arrow field, with the names of extension types;
    ``children`` are the fields of a struct, the item of a list, or the entries of a map; ``dictionary`` is, in the
    legacy format, the place of the dictionary's values in the file that the field was read from; ``primary_key``
    indicates whether it is part of the unenforced primary key, and its position there; ``as_bytes`` whether a
    projection reads a blob's bytes instead of its description.
    """

    name: str
    id: int
    parent_id: int
    logical_type: str
    nullable: bool = True
    metadata: Mapping[bytes, bytes] = field(default_factory=dict)
    children: tuple[Field, ...] = ()
    encoding: Encoding = Encoding.NONE
    dictionary: DictionaryLocation | None = field(default=None, compare=False)
    primary_key: tuple[bool, int] = (False, 0)
    as_bytes: bool = False

    @property
    def is_key(self) -> bool:
        """Whether it is part of the primary key, by the manifest or by its Arrow metadata."""
        return self.primary_key[0] or self.metadata.get(b"lance-schema:unenforced-primary-key") == b"true"

    @cached_property
    def arrow_type(self) -> pa.DataType:
        """The Arrow type, with storage types in place of extension types."""
        if types.is_nested(self.logical_type):
            return types.nested_type(self.logical_type, [child.storage_field for child in self.children])
        return types.arrow_type(self.logical_type)

    @cached_property
    def storage_field(self) -> pa.Field:
        """The Arrow field; extension types are metadata."""
        return pa.field(self.name, self.arrow_type, self.nullable, dict(self.metadata) or None)

    @cached_property
    def is_plain(self) -> bool:
        """Whether values are returned as stored: the field contains neither JSON nor blobs."""
        return not any(f.is_json or f.is_blob for f in self.walk())

    @cached_property
    def read_field(self) -> pa.Field:
        """The Arrow field that file readers return: blobs are descriptions, or bytes with ``as_bytes``."""
        return self.storage_field if self.is_plain else _converted(self, _read_type)

    @cached_property
    def shown_field(self) -> pa.Field:
        """The Arrow field that scans return: JSON is strings."""
        return self.storage_field if self.is_plain else _converted(self, lambda f: _json_type(f) or _read_type(f))

    @cached_property
    def dataset_field(self) -> pa.Field:
        """The Arrow field in the schema of a dataset: blobs are bytes, JSON is strings."""
        return self.storage_field if self.is_plain else _converted(self, _json_type)

    @property
    def is_dictionary(self) -> bool:
        return bool(pt.is_dictionary(self.arrow_type))

    @property
    def is_json(self) -> bool:
        return self.logical_type == "json"

    @property
    def is_blob_v2(self) -> bool:
        """Whether it is a blob whose values may be in other files."""
        return self.metadata.get(EXTENSION_NAME) == BLOB_V2

    @property
    def is_blob(self) -> bool:
        """Whether it is a blob: scans return descriptions of its values."""
        return self.is_blob_v2 or (not self.children and _is_true(self.metadata.get(BLOB)))

    @property
    def is_packed(self) -> bool:
        """Whether it is a packed struct, which is a single column of a file."""
        return self.logical_type == "struct" and any(_is_true(self.metadata.get(k)) for k in (PACKED, b"packed"))

    @property
    def is_column(self) -> bool:
        """Whether it is, with its children, one column of a data file."""
        return not self.children or self.is_packed or self.is_blob_v2

    def columns(self, *, parents: bool = False) -> Iterator[Field]:
        """Yield this field or those below it that are file columns; ``parents`` adds structs and lists, as in 2.0."""
        if self.is_column or parents:
            yield self
        if not self.is_column:
            for child in self.children:
                yield from child.columns(parents=parents)

    def walk(self) -> Iterator[Field]:
        yield self
        for child in self.children:
            yield from child.walk()

    def to_proto(self, place: DictionaryLocation | None = None) -> format_pb2.Field:
        """Serialize the field without its children; ``place`` is the position of its dictionary in the file."""
        message = format_pb2.Field(
            name=self.name,
            id=self.id,
            parent_id=self.parent_id,
            logical_type=self.logical_type,
            nullable=self.nullable,
            encoding=self.encoding.name,
            extension_name=self.metadata.get(EXTENSION_NAME, b"").decode("utf-8", "replace"),
            unenforced_primary_key=self.is_key,
            unenforced_primary_key_position=self.primary_key[1],
        )
        for key, value in self.metadata.items():
            message.metadata[key.decode("utf-8", "replace")] = value
        if place is not None:
            message.dictionary.offset, message.dictionary.length = place
        return message

    def swapped(self, by_id: Mapping[int, Field]) -> Field:
        """Replace the fields with these ids, at any depth."""
        new = by_id.get(self.id, self)
        return replace(new, children=tuple(child.swapped(by_id) for child in new.children))

    def child(self, name: str) -> Field | None:
        return next((c for c in self.children if c.name == name), None)

    def keep(self, ids: frozenset[int]) -> Field | None:
        """Keep fields with these ids, whole, and their parents; also whole maps of such fields.  ``None`` if none is
        left.
        """
        if self.id in ids:
            return self
        if self.logical_type == "map" or self.is_blob_v2:
            return self if any(f.id in ids for f in self.walk()) else None
        children = tuple(child for c in self.children if (child := c.keep(ids)) is not None)
        return replace(self, children=children) if children else None


@dataclass(frozen=True)
class LanceSchema:
    """The columns of a dataset or data file, and the metadata of their Arrow schema.

    >>> schema = LanceSchema.from_arrow(pa.schema({"a": pa.int64(), "s": pa.struct({"x": pa.string()})}))
    >>> [(f.id, f.name) for f in schema.walk()]
    [(0, 'a'), (1, 's'), (2, 'x')]
    >>> schema.project(["s.x"]).field_ids
    (1, 2)
    """

    fields: tuple[Field, ...]
    metadata: Mapping[bytes, bytes] = field(default_factory=dict)
    #: Dictionary values by field id.
    dictionaries: Mapping[int, pa.Array] = field(default_factory=dict, compare=False, repr=False)

    # --- Arrow ---

    @classmethod
    def from_arrow(cls, schema: pa.Schema, first_id: int = 0) -> LanceSchema:
        """Convert an Arrow schema, with ids from ``first_id``.

        Raises ``UnsupportedProtocolError`` for unknown types, and ``InvalidArgumentError`` for duplicate names.
        """
        ids = iter(range(first_id, 2**31))
        fields = []
        for each in schema:
            try:
                fields.append(_from_arrow(each, ids, NO_PARENT, 1))
            except UnsupportedProtocolError as e:
                raise type(e)(e.message, help=e.help, **{**e.context, "column": each.name}) from None
        _check_names(fields)
        return cls(tuple(fields), dict(schema.metadata or {}))

    def to_arrow(self) -> pa.Schema:
        """The Arrow schema of the dataset; extension types that Arrow has not registered are metadata."""
        return self._restored([f.dataset_field for f in self.fields])

    def read_schema(self) -> pa.Schema:
        """The schema that file readers return."""
        return self._restored([f.read_field for f in self.fields])

    @cached_property
    def shown_schema(self) -> pa.Schema:
        """The schema that scans return."""
        return self._restored([f.shown_field for f in self.fields])

    @cached_property
    def is_plain(self) -> bool:
        return all(f.is_plain for f in self.fields)

    def _restored(self, fields: list[pa.Field]) -> pa.Schema:
        schema = pa.schema(fields, dict(self.metadata) or None)
        return extensions.restore_schema(schema) if self.has_extensions else schema

    @cached_property
    def storage_schema(self) -> pa.Schema:
        """The Arrow schema; extension types are metadata."""
        return pa.schema([f.storage_field for f in self.fields], dict(self.metadata) or None)

    @cached_property
    def has_blobs(self) -> bool:
        return any(f.is_blob for f in self.walk())

    @cached_property
    def has_extensions(self) -> bool:
        return any(EXTENSION_NAME in f.metadata for f in self.walk())

    # --- messages ---

    @classmethod
    def from_proto(
        cls,
        fields: Iterable[format_pb2.Field],
        metadata: Mapping[str, bytes] | None = None,
        *,
        damaged: type[TrilakeError] = CorruptLogError,
        file: str | None = None,
    ) -> LanceSchema:
        """Parse the fields of a manifest or data file.

        Raises ``damaged``, with ``file``, if they are not a tree, and ``UnsupportedProtocolError`` for an unknown type.
        """
        try:
            top = _tree(tuple(each.SerializeToString(deterministic=True) for each in fields))
        except CorruptLogError as e:
            raise damaged(e.message, help=e.help, **{"file": file, **e.context}) from e.__cause__
        except UnsupportedProtocolError as e:
            raise UnsupportedProtocolError(e.message, help=e.help, **{"file": file, **e.context}) from None
        return cls(top, {key.encode(): value for key, value in (metadata or {}).items()})

    def to_proto(self, dictionaries: Mapping[int, DictionaryLocation] | None = None) -> list[format_pb2.Field]:
        """Serialize all fields, depth first; ``dictionaries`` are the positions of values in the file."""
        places = dictionaries or {}
        return [each.to_proto(places.get(each.id)) for each in self.walk()]

    def metadata_to_proto(self) -> dict[str, bytes]:
        return {key.decode("utf-8", "replace"): value for key, value in self.metadata.items()}

    # --- looking up ---

    @property
    def names(self) -> list[str]:
        return [f.name for f in self.fields]

    def walk(self) -> Iterator[Field]:
        """All fields, depth first."""
        for each in self.fields:
            yield from each.walk()

    def columns(self, *, parents: bool = False) -> Iterator[Field]:
        """The fields that are columns of a data file; see :meth:`Field.columns`."""
        for each in self.fields:
            yield from each.columns(parents=parents)

    @cached_property
    def field_ids(self) -> tuple[int, ...]:
        """Ids of all fields, depth first."""
        return tuple(f.id for f in self.walk())

    @property
    def max_field_id(self) -> int:
        """The highest id; -1 without fields."""
        return max(self.field_ids, default=-1)

    @cached_property
    def _by_id(self) -> dict[int, Field]:
        return {f.id: f for f in self.walk()}

    def by_id(self, id: int) -> Field | None:
        return self._by_id.get(id)

    def above(self, field: Field) -> list[Field]:
        """The parents of a field, from the top."""
        above: list[Field] = []
        while (parent := self.by_id((above[0] if above else field).parent_id)) is not None:
            above.insert(0, parent)
        return above

    def column_ids(self, field: Field) -> set[int]:
        """The ids of the file columns that a field consists of, or is part of."""
        whole = next((f for f in self.above(field) if f.is_column), field)
        return {f.id for f in whole.columns()}

    def path_of(self, field: Field) -> list[str]:
        """The names from the top-level column down to the field."""
        return [f.name for f in (*self.above(field), field)]

    def name_of(self, field: Field) -> str:
        """The path of a field as users write it: ``"struct.field"``."""
        return ".".join(self.path_of(field))

    def names_of(self, ids: Iterable[int]) -> list[str]:
        """The paths of the fields with these ids, except fields that do not exist."""
        return [self.name_of(f) for id in ids if (f := self.by_id(id)) is not None]

    def find(self, path: str | Sequence[str]) -> Field | None:
        """Find the field at a path: ``"column"``, ``"struct.field"``, or a sequence of names.

        A column with a dot in its name comes first.  Names may be in backticks, and those of list items omitted.
        """
        if isinstance(path, str):
            whole = next((f for f in self.fields if f.name == path), None)
            if whole is not None or not ("." in path or "`" in path):
                return whole
            path = _names_of(path)
        candidates: tuple[Field, ...] = self.fields
        match: Field | None = None
        for name in path:
            match = next((f for f in candidates if f.name == name), None)
            while match is None and len(candidates) == 1 and candidates[0].parent_id in self._lists:
                candidates = candidates[0].children
                match = next((f for f in candidates if f.name == name), None)
            if match is None:
                return None
            candidates = match.children
        return match

    def spelled(self, path: str) -> str:
        """Spell a path as the schema does, also if it differs in case; unchanged if no single field matches."""
        field = self.find(path)
        if field is None:
            names = [name.lower() for name in _names_of(path)]
            alike = [f for f in self.walk() if [name.lower() for name in self.path_of(f)] == names]
            field = alike[0] if len(alike) == 1 else None
        name = path if field is None else self.name_of(field)
        return name if self.find(name) is field else path

    @cached_property
    def _lists(self) -> frozenset[int]:
        return frozenset(f.id for f in self.walk() if f.logical_type in types.LISTS)

    def field(self, path: str | Sequence[str]) -> Field:
        """Find a field, see :meth:`find`; raise ``UnknownColumnError`` if there is none."""
        field = self.find(path)
        if field is None:
            name = path if isinstance(path, str) else ".".join(path)
            raise UnknownColumnError(
                f"column {name!r} not found in the schema", help=columns_help(name, self.names), column=name
            )
        return field

    # --- changing ---

    def project(self, columns: Sequence[str]) -> LanceSchema:
        """Keep only these columns, in this order; ``"struct.field"`` is a part of a struct.  Raises
        ``UnknownColumnError``.
        """
        by_top: dict[int, set[int]] = {}
        tops = {id: top for top in self.fields for id in (f.id for f in top.walk())}
        for column in columns:
            field = self.field(column)
            by_top.setdefault(tops[field.id].id, set()).add(field.id)
        fields = [self._by_id[top].keep(frozenset(ids)) for top, ids in by_top.items()]
        return replace(self, fields=tuple(f for f in fields if f is not None))

    def project_ids(self, ids: Iterable[int]) -> LanceSchema:
        """Keep only the fields with these ids, their parents and children, in the order of this schema.

        A struct or list whose id comes with ids below it keeps only those.
        """
        id_set = frozenset(ids)
        # Data files list parents and children: a parent stands for all its children only if none of them is listed.
        exact = frozenset(
            f.id for f in self.walk() if f.id in id_set and not any(c.id in id_set for c in f.walk() if c.id != f.id)
        )
        fields = (f.keep(exact) for f in self.fields)
        return replace(self, fields=tuple(f for f in fields if f is not None))

    def merged(self, added: LanceSchema) -> tuple[LanceSchema, LanceSchema]:
        """Add columns, or fields of existing structs and lists; also returns these with the ids of existing parents.

        Raises ``ColumnExistsError``.
        """
        fields, own = _placed(self.fields, added.fields, NO_PARENT)
        whole = LanceSchema(fields, self.metadata)
        return whole.with_dictionaries({**self.dictionaries, **added.dictionaries}), replace(added, fields=own)

    def with_dictionaries(self, dictionaries: Mapping[int, pa.Array]) -> LanceSchema:
        """Return the schema with those of the dictionaries that belong to its fields."""
        ids = set(self.field_ids) if dictionaries else ()
        return replace(self, dictionaries={id: values for id, values in dictionaries.items() if id in ids})

    # --- comparing ---

    def differences(self, other: LanceSchema, *, nullability: bool = True) -> list[str]:
        """Describe how the columns of ``other`` differ, a sentence each; ids, metadata and dictionaries are ignored."""
        return _differences(self.fields, other.fields, "", nullability)

    def check_compatible(self, data: LanceSchema, *, file: str | None = None) -> None:
        """Raise ``SchemaMismatchError`` unless ``data`` has the same columns in the same order."""
        differences = self.differences(data, nullability=False)
        if differences:
            raise SchemaMismatchError(
                f"the rows do not have the columns of the dataset: {'; '.join(differences)}",
                help="select and cast the columns to match it",
                file=file,
            )


_NAME = r"`[^`]+`|[^.`]+"
_QUOTED_PATH = re.compile(rf"(?:{_NAME})(?:\.(?:{_NAME}))*")


def _placed(
    existing: Sequence[Field], added: Sequence[Field], parent: int, path: str = ""
) -> tuple[tuple[Field, ...], tuple[Field, ...]]:
    """Add fields, also to existing structs and lists; returns all fields, and the added ones below existing parents.

    Raises ``ColumnExistsError``.
    """
    merged, below = {f.name: f for f in existing}, []
    for new in added:
        old, name = merged.get(new.name), path + new.name
        if old is None:
            own = merged[new.name] = replace(new, parent_id=parent)
        elif not old.is_column and old.logical_type == new.logical_type != "map":
            inner = new.children
            if new.logical_type in types.LISTS:
                inner = tuple(replace(item, name=old.children[0].name) for item in inner)
            children, inside = _placed(old.children, inner, old.id, f"{name}.")
            merged[new.name] = replace(old, children=children)
            own = replace(new, id=old.id, parent_id=old.parent_id, children=inside)
        else:
            raise ColumnExistsError(
                f"column {name!r} already exists", help="rename the new column, or drop the old one", column=name
            )
        below.append(own)
    return tuple(merged.values()), tuple(below)


def _names_of(path: str) -> list[str]:
    """Split a path into names, some of which may be quoted with backticks: ``meta.`user.id```."""
    if "`" not in path or _QUOTED_PATH.fullmatch(path) is None:
        return path.split(".")
    return [name.strip("`") for name in re.findall(_NAME, path)]


def _converted(field: Field, type_of: Callable[[Field], pa.Field | None]) -> pa.Field:
    """Build the Arrow field, with the fields that ``type_of`` returns for it or for its children."""
    converted = type_of(field)
    if converted is not None:
        return converted
    if field.is_plain or not field.children:
        return field.storage_field
    children = [_converted(child, type_of) for child in field.children]
    return field.storage_field.with_type(types.nested_type(field.logical_type, children))


def _json_type(field: Field) -> pa.Field | None:
    if not field.is_json:
        return None
    metadata = {**field.metadata, EXTENSION_NAME: ARROW_JSON.encode()}
    return pa.field(field.name, pa.string(), field.nullable, metadata)


def _read_type(field: Field) -> pa.Field | None:
    if not field.is_blob:
        return None
    if field.as_bytes:
        metadata = None if field.is_blob_v2 else dict(field.metadata)
        return pa.field(field.name, pa.large_binary(), field.nullable, metadata)
    if field.is_blob_v2:
        return pa.field(field.name, DESCRIPTION_V2, field.nullable, {BLOB: b"true", PACKED: b"true"})
    return pa.field(field.name, DESCRIPTION, field.nullable, dict(field.metadata))


def _is_true(value: bytes | None) -> bool:
    return value is not None and value.lower() == b"true"


def _fits(logical_type: str, children: Sequence[Field]) -> bool:
    if logical_type == "map":
        return len(children) == 1 and children[0].logical_type == "struct" and len(children[0].children) == 2
    if types.is_struct_vector(logical_type):
        return len(children) == 1 and children[0].logical_type == "struct"
    if logical_type in types.LISTS:
        return len(children) == 1
    return not children or logical_type == "struct"


def _from_arrow(each: pa.Field, ids: Iterator[int], parent: int, depth: int) -> Field:
    if depth > MAX_DEPTH:
        raise UnsupportedProtocolError(f"fields are nested more than {MAX_DEPTH} levels deep")
    metadata = dict(each.metadata or {})
    if isinstance(each.type, pa.BaseExtensionType):
        metadata |= extensions.metadata_of(each.type)
    name = types.logical_type(each.type)
    if metadata.get(EXTENSION_NAME) in (ARROW_JSON.encode(), LANCE_JSON):
        name, metadata[EXTENSION_NAME] = "json", LANCE_JSON
        metadata.setdefault(EXTENSION_METADATA, b"")
    arrow = types.storage_type(each.type)
    id = next(ids)
    below: list[pa.Field] = []
    if name == "struct":
        below = [arrow.field(i) for i in range(arrow.num_fields)]
    elif name in types.LISTS or types.is_struct_vector(name):
        below = [arrow.value_field]
    elif name == "map":
        below = [pa.field("entries", pa.struct([arrow.key_field, arrow.item_field]), nullable=False)]
    children = tuple(_from_arrow(c, ids, id, depth + 1) for c in below)
    _check_names(children)
    return Field(each.name, id, parent, name, each.nullable, metadata, children, types.encoding(name))


@lru_cache(8)
def _tree(serialized: tuple[bytes, ...]) -> tuple[Field, ...]:
    """Build the top-level fields; cached, because most versions share them.  Raises like ``from_proto``."""
    messages: dict[int, format_pb2.Field] = {}
    below: dict[int, list[int]] = {}
    depth: dict[int, int] = {NO_PARENT: 0}
    messages_in_order = [format_pb2.Field.FromString(each) for each in serialized]
    # If ids begin with 1, a parent id of 0 means no parent.
    zero = any(m.id == 0 for m in messages_in_order)
    blob = False
    for message in messages_in_order:
        if blob and message.id == message.parent_id == NO_PARENT:
            continue  # a field of a blob's description in a data file
        blob = message.logical_type == "struct" and BLOB.decode() in message.metadata
        parent = NO_PARENT if message.parent_id == 0 and not zero else message.parent_id
        if message.id < 0 or message.id in messages or parent not in depth:
            raise CorruptLogError(
                "the fields are not a tree: an id is negative or duplicated, or a field precedes its parent",
                column=message.name,
                field_id=message.id,
            )
        depth[message.id] = depth[parent] + 1
        if depth[message.id] > MAX_DEPTH:
            raise CorruptLogError(f"fields are nested more than {MAX_DEPTH} levels deep", column=message.name)
        messages[message.id] = message
        below.setdefault(parent, []).append(message.id)

    def build(id: int, parent: int) -> Field:
        message = messages[id]
        children = tuple(build(c, id) for c in below.get(id, ()))
        if not _fits(message.logical_type, children):
            raise CorruptLogError(
                f"a field of type {message.logical_type!r} has {len(children)} child fields", column=message.name
            )
        try:
            return _from_proto(message, parent, children)
        except UnsupportedProtocolError as e:
            raise UnsupportedProtocolError(e.message, help=e.help, **{**e.context, "column": message.name}) from None

    for siblings in below.values():
        if len({messages[id].name for id in siblings}) < len(siblings):
            names = sorted(messages[id].name for id in siblings)
            twice = next(a for a, b in pairwise(names) if a == b)
            raise CorruptLogError("two columns have the same name", column=twice)
    top = tuple(build(id, NO_PARENT) for id in below.get(NO_PARENT, ()))
    for each in top:
        try:
            each.storage_field  # noqa: B018 - Arrow raises for types that it does not have
        except (ValueError, OverflowError, pa.ArrowException) as e:
            raise CorruptLogError(f"a field is not valid: {e}", column=each.name) from e
    return top


def _from_proto(message: format_pb2.Field, parent: int, children: tuple[Field, ...]) -> Field:
    kind = message.logical_type
    if types.is_struct_vector(kind):
        types.list_size(kind)  # raises for unknown types
    elif not types.is_nested(kind):
        types.arrow_type(kind)
    metadata = {key.encode(): value for key, value in message.metadata.items()}
    if message.extension_name and EXTENSION_NAME not in metadata:
        metadata[EXTENSION_NAME] = message.extension_name.encode()
    dictionary = None
    if message.HasField("dictionary"):
        dictionary = DictionaryLocation(message.dictionary.offset, message.dictionary.length)
    return Field(
        message.name,
        message.id,
        parent,
        kind,
        message.nullable,
        metadata,
        children,
        types.encoding(kind),
        dictionary,
        (message.unenforced_primary_key, message.unenforced_primary_key_position),
    )


def _check_names(fields: Iterable[Field]) -> None:
    seen: set[str] = set()
    for each in fields:
        if each.name in seen:
            raise InvalidArgumentError("two columns have the same name", help="rename one of them", column=each.name)
        seen.add(each.name)


def _differences(expected: Sequence[Field], actual: Sequence[Field], above: str, nullability: bool) -> list[str]:
    if [f.name for f in expected] != [f.name for f in actual]:
        have, want = ", ".join(f.name for f in actual), ", ".join(f.name for f in expected)
        return [f"{above.rstrip('.') or 'the schema'} has {have or 'no columns'}, not {want or 'none'}"]
    differences = []
    for a, b in zip(expected, actual, strict=True):
        path = above + a.name
        if a.logical_type != b.logical_type:
            differences.append(f"{path} is {b.logical_type}, not {a.logical_type}")
        elif nullability and a.nullable != b.nullable:
            differences.append(f"{path} is {'nullable' if b.nullable else 'not nullable'}")
        else:
            differences += _differences(a.children, b.children, path + ".", nullability)
    return differences
