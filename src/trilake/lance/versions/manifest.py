"""The manifest: one version of a dataset, whole, in one small file.

::

    dictionary values of every dictionary field | IndexSection, if any | Manifest | footer
                                                  (length in 4 bytes before each message)

The 16 bytes of the footer hold the position of the manifest, the version of the format and the letters ``LANC``.
Positions in a manifest point into its own file, so they are worked out anew for each version that is written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from uuid import UUID

import pyarrow as pa
from pyroaring import BitMap, FrozenBitMap

from trilake.errors import CorruptLogError, InvalidArgumentError, UnsupportedProtocolError
from trilake.lance.file import framing
from trilake.lance.file.dictionaries import decode_dictionaries, encode_dictionaries
from trilake.lance.file.schema import LanceSchema
from trilake.lance.proto import Message, UnknownFieldSet, varint
from trilake.lance.proto import format_pb2 as pb

#: Kinds of deletion files.
ARROW_ARRAY, BITMAP = 0, 1

#: Rows of a fragment are fewer: a data file counts them in 31 bits.
MAX_ROWS = 1 << 31
#: Times that every time zone's calendar has, in seconds since 1970: from a day into the year 1 to a day before 10000.
_FIRST_SECOND, _LAST_SECOND = -62135596800 + 86400, 253402300799 - 86400
#: Ids of fragments are the upper half of a row id.
MAX_FRAGMENT_ID = (1 << 32) - 1

#: What bits of the feature flags mean.  Deletion files are the format's own, the others those of newer writers.
FEATURES = {
    1: "deletion files",
    2: "stable row ids",
    4: "the second file format",
    8: "table configuration",
    16: "several base paths",
    32: "no transaction files",
}
_DELETION_FILES, _CONFIGURATION = 1, 8
#: Flags that ask nothing of a reader of data, and those that ask of a writer no more than that it keeps what there is.
_READABLE = _DELETION_FILES | _CONFIGURATION | 32
_WRITABLE = _DELETION_FILES | _CONFIGURATION
#: The field of newer writers in which a manifest has the table's configuration.
_CONFIGURATION_FIELD = 16

#: Fields of newer writers that point into the file they are in, and would point nowhere in another.
_POSITIONS = frozenset({21, 23})

#: Readers look for what writers of a version did wrong: this one writes as that one does.
WRITER = ("trilake", "0.8.19")


@dataclass(frozen=True)
class DeletionFile:
    """The entry of a deletion file.  ``num_deleted_rows`` is 0 where it is not known."""

    file_type: int
    read_version: int
    id: int
    num_deleted_rows: int = 0

    def key(self, fragment_id: int) -> str:
        """The key of the file in the dataset's store."""
        suffix = "bin" if self.file_type == BITMAP else "arrow"
        return f"_deletions/{fragment_id}-{self.read_version}-{self.id}.{suffix}"


@dataclass(frozen=True)
class DataFile:
    """The entry of a data file: its path below ``data/``, and the ids of the fields it has.

    ``extra`` are fields that newer writers keep with it, as they were read.
    """

    path: str
    fields: tuple[int, ...]
    major_version: int = 0
    minor_version: int = 0
    size_bytes: int = 0
    extra: bytes = b""

    @property
    def key(self) -> str:
        """The key of the file in the dataset's store."""
        return f"data/{self.path}"


@dataclass(frozen=True)
class Fragment:
    """Rows whose columns are spread over data files.  ``physical_rows`` counts deleted rows too; 0 if not known."""

    id: int
    files: tuple[DataFile, ...]
    deletion_file: DeletionFile | None = None
    physical_rows: int = 0
    extra: bytes = b""


@dataclass(frozen=True)
class IndexDetails:
    """What newer writers say of an index: a message, with the name of its type, which is the kind of the index."""

    type_url: str
    value: bytes = b""


#: Of the two kinds that are written here.
BTREE_DETAILS = IndexDetails("/lance.table.BTreeIndexDetails")
VECTOR_DETAILS = IndexDetails("/lance.index.pb.VectorIndexDetails")
#: Of what newer writers keep among the indices: where rows went that a compaction moved, and what is written ahead.
_NOTES = ("FragmentReuseIndexDetails", "MemWalIndexDetails")


@dataclass(frozen=True)
class IndexMetadata:
    """An index.  ``fragment_bitmap`` are the ids of the fragments it covers, ``None`` where it does not say.

    ``index_version`` is that of its files.  ``extra`` are fields that newer writers keep with it, about its files.
    """

    uuid: UUID
    fields: tuple[int, ...]
    name: str
    dataset_version: int
    fragment_bitmap: FrozenBitMap | None = None
    details: IndexDetails | None = None
    index_version: int | None = None
    extra: bytes = b""

    @property
    def is_note(self) -> bool:
        """Whether it is of no column and may have no files: a note of newer writers, which their indices may need."""
        return self.details is not None and self.details.type_url.endswith(_NOTES)


@dataclass(frozen=True)
class Manifest:
    """One version.

    ``schema`` holds the values of dictionary columns too: one dictionary for each, whatever file the keys are in.
    ``timestamp_ns`` counts from the Unix epoch; ``extra`` is what newer writers keep in it.
    """

    version: int
    schema: LanceSchema
    fragments: tuple[Fragment, ...] = ()
    indices: tuple[IndexMetadata, ...] = ()
    timestamp_ns: int = 0
    max_fragment_id: int = 0
    transaction_file: str = ""
    writer_version: tuple[str, str] | None = WRITER
    tag: str = ""
    reader_feature_flags: int = 0
    writer_feature_flags: int = 0
    data_format: tuple[str, str] | None = None
    extra: bytes = field(default=b"", repr=False)

    @property
    def identity(self) -> tuple[str, int]:
        """What tells it from the manifest that another dataset has under the same number."""
        return self.transaction_file, self.timestamp_ns

    def check_readable(self, file: str) -> None:
        """Raise ``UnsupportedProtocolError`` where the version needs what this library does not have."""
        _check_flags(self.reader_feature_flags & ~_READABLE, "read", file, self.version)
        newer = [f for fragment in self.fragments for f in fragment.files if is_newer(f.major_version, f.minor_version)]
        if newer or (self.data_format is not None and not self.data_format[1].startswith("0.")):
            raise UnsupportedProtocolError(
                "the dataset's files are of Lance's second file format",
                help='write it with data_storage_version="legacy" to read it here',
                file=file,
                version=self.version,
            )

    def check_writable(self, file: str) -> None:
        """Raise ``UnsupportedProtocolError`` where a writer must know more than this library does."""
        self.check_readable(file)
        _check_flags(self.writer_feature_flags & ~_WRITABLE, "written to", file, self.version)


def is_newer(major: int, minor: int) -> bool:
    """Whether a version in a footer or data file entry is that of a file format this library does not read."""
    return major > 0 or minor > 2


def _check_flags(flags: int, verb: str, file: str, version: int) -> None:
    if flags:
        names = [FEATURES.get(1 << i, f"flag {1 << i}") for i in range(flags.bit_length()) if flags >> i & 1]
        raise UnsupportedProtocolError(
            f"the dataset cannot be {verb}: it uses {', '.join(names)}",
            help="use the library that wrote it, or an older version of the dataset",
            file=file,
            version=version,
        )


# --- messages in a file ----------------------------------------------------------------------------------------------

_M = TypeVar("_M", bound=Message)


def message_at(data: pa.Buffer, position: int, kind: type[_M], *, file: str) -> _M:
    """The message at a position of a whole file.  Raises ``CorruptLogError`` where none is."""
    if not 0 <= position <= data.size - framing.FOOTER.size - framing.LENGTH.size:
        raise CorruptLogError(f"the {kind.DESCRIPTOR.name} begins at {position}, outside of the file", file=file)
    start = position + framing.LENGTH.size
    head = data.slice(position, framing.LENGTH.size).to_pybytes()
    length = framing.message_length(head, position, data.size, file=file, damaged=CorruptLogError)
    return framing.parse(data.slice(start, length).to_pybytes(), kind, file=file, damaged=CorruptLogError)


# --- parsing ---------------------------------------------------------------------------------------------------------


def unknown_fields(message: Message, *, drop: Iterable[int] = ()) -> bytes:
    """The fields of a message that our messages do not have, as they are stored."""
    unknown: Any = UnknownFieldSet(message)
    if not len(unknown):
        return b""
    dropped, out = set(drop), bytearray()
    for one in unknown:
        if one.field_number not in dropped:
            out += _encode_unknown(one)
    return bytes(out)


def _encode_unknown(one: Any) -> bytes:
    kind = int(one.wire_type)
    tag: bytes = varint(one.field_number << 3 | kind)
    match kind:
        case 0:
            return tag + bytes(varint(one.data))
        case 1:
            return tag + struct.pack("<Q", one.data)
        case 2:
            return tag + bytes(varint(len(one.data))) + bytes(one.data)
        case 3:
            inner = b"".join(_encode_unknown(part) for part in one.data)
            return tag + inner + bytes(varint(one.field_number << 3 | 4))
    return tag + struct.pack("<I", one.data)


def parse_deletion_file(message: pb.DeletionFile, *, file: str = "") -> DeletionFile:
    """An entry as the format has it.  Raises ``CorruptLogError`` for a kind of file that there is not."""
    if message.file_type not in (ARROW_ARRAY, BITMAP):
        raise CorruptLogError(f"deletion files of type {message.file_type} are unknown", file=file or None)
    return DeletionFile(message.file_type, message.read_version, message.id, message.num_deleted_rows)


def parse_fragment(message: pb.DataFragment, *, file: str = "") -> Fragment:
    """An entry as the format has it.  Raises ``CorruptLogError`` for rows that no data file can count."""
    if message.physical_rows >= MAX_ROWS or message.deletion_file.num_deleted_rows >= MAX_ROWS:
        raise CorruptLogError(
            f"fragment {message.id} claims {message.physical_rows} rows, "
            f"{message.deletion_file.num_deleted_rows} of them deleted; a data file has less than 2^31",
            file=file or None,
        )
    files = tuple(
        DataFile(
            f.path,
            tuple(f.fields),
            f.file_major_version,
            f.file_minor_version,
            f.file_size_bytes,
            unknown_fields(f),
        )
        for f in message.files
    )
    deletion = parse_deletion_file(message.deletion_file, file=file) if message.HasField("deletion_file") else None
    return Fragment(message.id, files, deletion, message.physical_rows, unknown_fields(message))


def fragment_message(fragment: Fragment) -> pb.DataFragment:
    """The message of an entry."""
    message = pb.DataFragment(id=fragment.id, physical_rows=fragment.physical_rows)
    for f in fragment.files:
        one = message.files.add()
        one.MergeFromString(f.extra)
        one.path = f.path
        one.fields.extend(f.fields)
        one.file_major_version, one.file_minor_version = f.major_version, f.minor_version
        one.file_size_bytes = f.size_bytes
    d = fragment.deletion_file
    if d is not None:
        message.deletion_file.CopyFrom(
            pb.DeletionFile(
                file_type=pb.DeletionFile.BITMAP if d.file_type == BITMAP else pb.DeletionFile.ARROW_ARRAY,
                read_version=d.read_version,
                id=d.id,
                num_deleted_rows=d.num_deleted_rows,
            )
        )
    message.MergeFromString(fragment.extra)
    return message


def parse_index(message: pb.IndexMetadata, *, file: str = "") -> IndexMetadata:
    """An index entry as the format has it.  Raises ``CorruptLogError``."""
    if len(message.uuid.uuid) != 16:
        raise CorruptLogError(f"the id of index {message.name!r} has {len(message.uuid.uuid)} bytes", file=file)
    bitmap = None
    if message.fragment_bitmap:
        try:
            bitmap = FrozenBitMap(BitMap.deserialize(message.fragment_bitmap))
        except (ValueError, IndexError, OverflowError, MemoryError) as e:
            raise CorruptLogError(f"the fragments of index {message.name!r} are damaged: {e}", file=file) from e
    return IndexMetadata(
        UUID(bytes=message.uuid.uuid),
        tuple(message.fields),
        message.name,
        message.dataset_version,
        bitmap,
        parse_details(message.index_details) if message.HasField("index_details") else None,
        message.index_version if message.HasField("index_version") else None,
        unknown_fields(message),
    )


def parse_details(message: pb.IndexDetails) -> IndexDetails:
    """What is said of an index, as the format has it."""
    return IndexDetails(message.type_url, message.value)


def details_message(details: IndexDetails) -> pb.IndexDetails:
    """The message of what is said of an index."""
    return pb.IndexDetails(type_url=details.type_url, value=details.value)


def index_message(index: IndexMetadata) -> pb.IndexMetadata:
    """The message of an index entry."""
    message = pb.IndexMetadata(
        uuid=pb.UUID(uuid=index.uuid.bytes),
        fields=index.fields,
        name=index.name,
        dataset_version=index.dataset_version,
        fragment_bitmap=b"" if index.fragment_bitmap is None else BitMap(index.fragment_bitmap).serialize(),
    )
    if index.details is not None:
        message.index_details.CopyFrom(details_message(index.details))
    if index.index_version is not None:
        message.index_version = index.index_version
    message.MergeFromString(index.extra)
    return message


def parse_manifest(data: pa.Buffer, *, file: str, version: int | None = None) -> Manifest:
    """The manifest in a whole file, which must be of ``version`` where its name says one.

    Raises ``CorruptLogError`` for a damaged one, ``UnsupportedProtocolError`` for one of a later format.  Feature flags
    are not looked at here: :meth:`Manifest.check_readable` does.
    """
    tail = data.slice(max(0, data.size - framing.FOOTER.size)).to_pybytes()
    position = framing.parse_footer(tail, data.size, file=file, damaged=CorruptLogError)
    message = message_at(data, position, pb.Manifest, file=file)
    if not message.version:
        raise CorruptLogError("the manifest does not say its version", file=file)
    if version not in (None, message.version):
        raise CorruptLogError(f"the manifest is of version {message.version}, its name of {version}", file=file)
    schema = LanceSchema.from_proto(message.fields, dict(message.metadata), file=file)
    indices: tuple[IndexMetadata, ...] = ()
    if message.HasField("index_section"):
        section = message_at(data, message.index_section, pb.IndexSection, file=file)
        indices = tuple(parse_index(i, file=file) for i in section.indices)
    fragments = tuple(parse_fragment(f, file=file) for f in message.fragments)
    ids = {f.id for f in fragments}
    if len(ids) != len(fragments) or max(ids, default=0) > MAX_FRAGMENT_ID:
        raise CorruptLogError("two fragments have the same id, or one is out of range", file=file)
    stamp = message.timestamp
    if not _FIRST_SECOND <= stamp.seconds <= _LAST_SECOND or not 0 <= stamp.nanos < 10**9:
        raise CorruptLogError(
            f"the manifest says that it was written {stamp.seconds} seconds after 1970",
            file=file,
            version=message.version,
        )
    return Manifest(
        version=message.version,
        schema=schema.with_dictionaries(decode_dictionaries(schema, data, file=file)),
        fragments=fragments,
        indices=indices,
        timestamp_ns=stamp.seconds * 10**9 + stamp.nanos,
        max_fragment_id=max(message.max_fragment_id, max(ids, default=0)),
        transaction_file=message.transaction_file,
        writer_version=(message.writer_version.library, message.writer_version.version)
        if message.HasField("writer_version")
        else None,
        tag=message.tag,
        reader_feature_flags=message.reader_feature_flags,
        writer_feature_flags=message.writer_feature_flags,
        data_format=(message.data_format.file_format, message.data_format.version)
        if message.HasField("data_format")
        else None,
        extra=unknown_fields(message, drop=_POSITIONS),
    )


def serialise_manifest(manifest: Manifest) -> bytes:
    """The whole file of a manifest."""
    missing = [f.name for f in manifest.schema.walk() if f.is_dictionary and f.id not in manifest.schema.dictionaries]
    if missing:
        raise InvalidArgumentError(
            "the values of a dictionary column are not known",
            help="begin the dataset with rows, by write_dataset, or cast the column to its values",
            column=missing[0],
        )
    out, places = encode_dictionaries(manifest.schema)
    message = pb.Manifest(
        fields=manifest.schema.to_proto(places),
        version=manifest.version,
        metadata=manifest.schema.metadata_to_proto(),
        tag=manifest.tag,
        reader_feature_flags=manifest.reader_feature_flags,
        writer_feature_flags=manifest.writer_feature_flags,
        max_fragment_id=manifest.max_fragment_id,
        transaction_file=manifest.transaction_file,
    )
    message.fragments.extend(fragment_message(f) for f in manifest.fragments)
    message.timestamp.seconds, message.timestamp.nanos = divmod(manifest.timestamp_ns, 10**9)
    if manifest.writer_version is not None:
        message.writer_version.library, message.writer_version.version = manifest.writer_version
    if manifest.data_format is not None:
        message.data_format.file_format, message.data_format.version = manifest.data_format
    if manifest.indices:
        message.index_section = len(out)
        out += framing.frame(pb.IndexSection(indices=[index_message(i) for i in manifest.indices]))
    message.MergeFromString(manifest.extra)
    return bytes(out + framing.frame(message) + framing.footer(len(out)))


def with_flags(manifest: Manifest) -> Manifest:
    """A manifest with the feature flags that it must have."""
    flags = _DELETION_FILES if any(f.deletion_file is not None for f in manifest.fragments) else 0
    kept: Any = UnknownFieldSet(pb.Manifest.FromString(manifest.extra)) if manifest.extra else ()
    configured = any(one.field_number == _CONFIGURATION_FIELD for one in kept)
    return replace(
        manifest,
        reader_feature_flags=flags,
        writer_feature_flags=flags | (_CONFIGURATION if configured else 0),
    )
