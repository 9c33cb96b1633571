"""The manifest: the complete description of a version in one small file.

::

    dictionary values, in the legacy format | IndexSection, if any | Transaction, if any | Manifest | footer
                                             (length in 4 bytes before each message)

The footer has 16 bytes: the position of the manifest, the version of the format, and ``LANC``.  Positions in a manifest
point into its own file, so each version computes its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyroaring import BitMap, FrozenBitMap

from trilake.errors import CorruptLogError, InvalidArgumentError, UnsupportedProtocolError
from trilake.lance.file import framing
from trilake.lance.file.schema import LanceSchema
from trilake.lance.file.sources import MappedSource
from trilake.lance.file.storage_version import DEFAULT, LEGACY, READABLE, WRITABLE, StorageVersion
from trilake.lance.proto import Message, UnknownFieldSet
from trilake.lance.proto import format_pb2 as pb
from trilake.lance.v1.dictionaries import decode_dictionaries, encode_dictionaries

#: Kinds of deletion files.
ARROW_ARRAY, BITMAP = 0, 1

#: A fragment has fewer rows than this, because data files count them in 31 bits.
MAX_ROWS = 1 << 31
#: Seconds since the Unix epoch that are valid in every time zone, from a day after year 1 begins to a day before 10000.
_FIRST_SECOND, _LAST_SECOND = -62135596800 + 86400, 253402300799 - 86400
#: Fragment ids are the upper half of row addresses.
MAX_FRAGMENT_ID = (1 << 32) - 1

#: The meaning of the feature flags, from the lowest bit on.
_FEATURES = (
    *("deletion files", "stable row ids", "the 2.x file format", "table configuration", "several base paths"),
    *("no transaction files", "data overlays", "covering index columns", "several file versions"),
)

_DELETION_FILES, STABLE_ROW_IDS, _FILES_OF_2, _CONFIGURATION, _BASE_PATHS, _NO_TRANSACTIONS = 1, 2, 4, 8, 16, 32
#: Needs no check: each data file states its version.
_MIXED = 256
#: The flags that can be written, and those that can be read.
_WRITABLE = _DELETION_FILES | STABLE_ROW_IDS | _FILES_OF_2 | _CONFIGURATION | _BASE_PATHS | _MIXED
_READABLE = _WRITABLE | _NO_TRANSACTIONS

#: Readers work around bugs of writers by their version; trilake writes like this one.
WRITER = ("trilake", "0.8.19")


@dataclass(frozen=True)
class DeletionFile:
    """The entry of a deletion file; ``num_deleted_rows`` is 0 if unknown, ``base_id`` as in :class:`DataFile`."""

    file_type: int
    read_version: int
    id: int
    num_deleted_rows: int = 0
    base_id: int | None = None

    def key(self, fragment_id: int) -> str:
        """The key of the file in its store."""
        suffix = "bin" if self.file_type == BITMAP else "arrow"
        return f"_deletions/{fragment_id}-{self.read_version}-{self.id}.{suffix}"


@dataclass(frozen=True)
class DataFile:
    """The entry of a data file, at ``path`` below the folder ``data``.

    ``fields`` are ids, or :data:`~trilake.lance.file.schema.TOMBSTONE` for a field that another file of the fragment
    now has; ``column_indices`` are their columns, -1 for none, empty in the legacy format.  ``size_bytes`` is 0 if
    unknown, ``base_id`` the id of the base path, ``None`` for the dataset itself, ``extra`` are unknown fields of newer
    writers, serialized.
    """

    path: str
    fields: tuple[int, ...]
    major_version: int = 0
    minor_version: int = 0
    size_bytes: int = 0
    extra: bytes = b""
    column_indices: tuple[int, ...] = ()
    base_id: int | None = None

    @property
    def storage_version(self) -> StorageVersion:
        return StorageVersion.of_file(self.major_version, self.minor_version)

    @property
    def key(self) -> str:
        """The key of the file in its store."""
        return f"data/{self.path}"


@dataclass(frozen=True)
class ExternalFile:
    """A part of a file of the dataset."""

    path: str
    offset: int
    size: int


#: A message in the manifest or in another file; ``None`` if it is absent.
RowSequence = bytes | ExternalFile | None


@dataclass(frozen=True)
class Fragment:
    """Rows whose columns are in one or several data files.

    ``id`` is 0 before it is committed; ``physical_rows`` include deleted ones, 0 if unknown; ``row_ids`` are the stable
    ids of these rows, ``last_updated`` and ``created`` the versions in which they were last updated, and inserted.
    """

    id: int
    files: tuple[DataFile, ...]
    deletion_file: DeletionFile | None = None
    physical_rows: int = 0
    extra: bytes = b""
    row_ids: RowSequence = None
    last_updated: RowSequence = None
    created: RowSequence = None


@dataclass(frozen=True)
class BasePath:
    """A location of files outside the dataset: the root of another dataset, or the folder of the files itself."""

    id: int
    path: str
    is_dataset_root: bool = False
    name: str | None = None


def duplicate_base(bases: Iterable[BasePath]) -> str | None:
    """Why base paths cannot be in one manifest: two have the same id, path or name; ``None`` if they can."""
    seen: set[tuple[str, object]] = set()
    for base in bases:
        parts = {(part, value) for part in ("id", "path", "name") if (value := getattr(base, part)) is not None}
        if shared := seen & parts:
            part, value = min(shared)
            return f"a base path with {part} {value!r} already exists"
        seen |= parts
    return None


@dataclass(frozen=True)
class IndexDetails:
    """Details of an index by newer writers: a message, and the name of its type, which is the kind of the index."""

    type_url: str
    value: bytes = b""


#: Details of the kinds that trilake writes.
BITMAP_DETAILS = IndexDetails("/lance.table.BitmapIndexDetails")
BTREE_DETAILS = IndexDetails("/lance.table.BTreeIndexDetails")
LABEL_LIST_DETAILS = IndexDetails("/lance.table.LabelListIndexDetails")
ZONE_MAP_DETAILS = IndexDetails("/lance.table.ZoneMapIndexDetails")
VECTOR_DETAILS = IndexDetails("/lance.index.pb.VectorIndexDetails")
#: Kinds of indices with an entry per range of rows.
_OF_ZONES = ("ZoneMapIndexDetails", "BloomFilterIndexDetails")
#: The entry of newer writers about rows that compactions moved without adapting the indices.
_MOVED = "FragmentReuseIndexDetails"
#: Entries of newer writers that do not index a column: moved rows, and a write-ahead log.
_NOTES = (_MOVED, "MemWalIndexDetails")


@dataclass(frozen=True)
class IndexMetadata:
    """An index.

    ``fragment_bitmap`` are the ids of the fragments that it covers, ``None`` if unknown; ``index_version`` is that of
    its ``files``, which are paths and sizes; ``created_at_ms`` counts from the Unix epoch; ``base_id`` and ``extra`` as
    in :class:`DataFile`.  ``moved`` are fragments of the stored bitmap that its files may not cover, see
    :func:`_without_moved`; ``None`` if all of its rows are where the files have them.
    """

    uuid: UUID
    fields: tuple[int, ...]
    name: str
    dataset_version: int
    fragment_bitmap: FrozenBitMap | None = None
    details: IndexDetails | None = None
    index_version: int | None = None
    extra: bytes = b""
    created_at_ms: int | None = None
    base_id: int | None = None
    files: tuple[tuple[str, int], ...] = ()
    covering_fields: tuple[int, ...] = ()
    moved: FrozenBitMap | None = None

    @property
    def is_note(self) -> bool:
        """Whether it is an entry of newer writers that indexes no column, and may have no files."""
        return self.details is not None and self.details.type_url.endswith(_NOTES)

    @property
    def may_lack_files(self) -> bool:
        """Whether it needs no files: it indexes no column, or covers no rows yet."""
        return self.is_note or (self.fragment_bitmap is not None and not self.fragment_bitmap and self.moved is None)

    @property
    def by_address(self) -> bool:
        """Whether it refers to rows by address even if they have stable ids, like a BTREE of pylance 14."""
        if self.details == BTREE_DETAILS:
            return (self.index_version or 0) > 0
        return self.details is not None and self.details.type_url.endswith(_OF_ZONES)


@dataclass(frozen=True)
class Manifest:
    """One version.

    ``schema`` includes the values of dictionary columns of the legacy format, where all files share a dictionary per
    column.  ``timestamp_ns`` counts from the Unix epoch; ``max_fragment_id`` is -1 before the first fragment;
    ``transaction`` is the serialized transaction in the manifest file; ``extra`` are unknown fields of newer writers.
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
    next_row_id: int = 0
    config: Mapping[str, str] = field(default_factory=dict)
    table_metadata: Mapping[str, str] = field(default_factory=dict)
    base_paths: tuple[BasePath, ...] = ()
    branch: str | None = None
    transaction: bytes | None = field(default=None, repr=False, compare=False)
    #: Whether fragments are listed in a tree, which is not supported.
    has_fragment_tree: bool = False

    @cached_property
    def storage_version(self) -> StorageVersion:
        """The version of new data files.

        Early writers of 2.x set only a feature flag (pylance 0.15), or named the legacy format (0.16).
        """
        stated = self._stated_version
        if stated is None or stated.is_legacy:
            newest = max((f.storage_version for fragment in self.fragments for f in fragment.files), default=None)
            if newest is not None:
                return newest
            return DEFAULT if stated is None and self.writer_feature_flags & _FILES_OF_2 else LEGACY
        return stated

    @property
    def _stated_version(self) -> StorageVersion | None:
        if self.data_format is None or not self.data_format[1]:
            return None
        try:
            return StorageVersion.parse(self.data_format[1])
        except InvalidArgumentError:
            major, _, minor = self.data_format[1].partition(".")
            if major.isdecimal() and minor.isdecimal():
                return StorageVersion(int(major), int(minor))
            return StorageVersion(99, 0)

    @property
    def has_stable_row_ids(self) -> bool:
        """Whether rows keep their ids when they move."""
        return bool((self.reader_feature_flags | self.writer_feature_flags) & STABLE_ROW_IDS)

    @property
    def identity(self) -> tuple[str, int]:
        """Distinguishes it from a manifest of the same version in another dataset."""
        return self.transaction_file, self.timestamp_ns

    def check_readable(self, file: str) -> None:
        """Raise ``UnsupportedProtocolError`` if the version uses features that trilake cannot read."""
        _check_flags(self.reader_feature_flags & ~_READABLE, "read", file, self.version)
        if self.has_fragment_tree and not self.fragments:
            raise UnsupportedProtocolError(
                "the dataset lists its fragments in a tree, which is not supported",
                help="use the library that wrote it, or an older version of the dataset",
                file=file,
                version=self.version,
            )
        versions = {f.storage_version for fragment in self.fragments for f in fragment.files}
        unknown = sorted(v for v in {*versions, self.storage_version} if v not in READABLE)
        if unknown:
            raise UnsupportedProtocolError(
                f"the dataset has files of Lance {unknown[0]}; expected one of {', '.join(map(str, WRITABLE))}",
                help="use the library that wrote it",
                file=file,
                version=self.version,
            )

    def check_writable(self, file: str) -> None:
        """Raise ``UnsupportedProtocolError`` if the version uses features that trilake cannot write."""
        self.check_readable(file)
        _check_flags(self.writer_feature_flags & ~_WRITABLE, "written to", file, self.version)
        if self.storage_version not in WRITABLE:
            raise UnsupportedProtocolError(
                f"the dataset cannot be written to: its files are of Lance {self.storage_version}",
                help="use the library that wrote it",
                file=file,
                version=self.version,
            )


def _check_flags(flags: int, verb: str, file: str, version: int) -> None:
    if flags:
        bits = [i for i in range(flags.bit_length()) if flags >> i & 1]
        names = [_FEATURES[i] if i < len(_FEATURES) else f"flag {1 << i}" for i in bits]
        raise UnsupportedProtocolError(
            f"the dataset cannot be {verb}: it uses {', '.join(names)}",
            help="use the library that wrote it, or an older version of the dataset",
            file=file,
            version=version,
        )


def unknown_fields(message: Message) -> bytes:
    """The unknown fields of a message, serialized."""
    unknown: Any = UnknownFieldSet(message)
    if not len(unknown):
        return b""
    rest = type(message)()
    rest.CopyFrom(message)
    for descriptor, _ in message.ListFields():
        rest.ClearField(descriptor.name)
    return bytes(rest.SerializeToString(deterministic=True))


def parse_fragment(message: pb.DataFragment, *, file: str = "") -> Fragment:
    """Parse the message of a fragment.  Raises ``CorruptLogError`` for more rows than a data file can count."""
    if message.physical_rows >= MAX_ROWS or message.deletion_file.num_deleted_rows >= MAX_ROWS:
        raise CorruptLogError(
            f"fragment {message.id} claims {message.physical_rows} rows, "
            f"{message.deletion_file.num_deleted_rows} of them deleted, but a data file has fewer than 2^31",
            file=file or None,
        )
    deletion = None
    if message.HasField("deletion_file"):
        d = message.deletion_file
        if d.file_type not in (ARROW_ARRAY, BITMAP):
            raise CorruptLogError(f"unknown deletion file type {d.file_type}", file=file or None)
        base = d.base_id if d.HasField("base_id") else None
        deletion = DeletionFile(d.file_type, d.read_version, d.id, d.num_deleted_rows, base)
    return Fragment(
        message.id,
        tuple(map(parse_file, message.files)),
        deletion,
        message.physical_rows,
        unknown_fields(message),
        _row_sequence(message, "row_ids"),
        _row_sequence(message, "last_updated_at_versions"),
        _row_sequence(message, "created_at_versions"),
    )


def parse_file(message: pb.DataFile) -> DataFile:
    """Parse the message of a data file."""
    return DataFile(
        message.path,
        tuple(message.fields),
        message.file_major_version,
        message.file_minor_version,
        message.file_size_bytes,
        unknown_fields(message),
        tuple(message.column_indices),
        message.base_id if message.HasField("base_id") else None,
    )


def _row_sequence(message: pb.DataFragment, name: str) -> RowSequence:
    """Parse a message that is inline in a fragment, or in another file."""
    kind = message.WhichOneof(name)
    place = None if kind is None else getattr(message, kind)
    return place if place is None or isinstance(place, bytes) else ExternalFile(place.path, place.offset, place.size)


def _set_row_sequence(message: pb.DataFragment, name: str, sequence: RowSequence) -> None:
    if isinstance(sequence, bytes):
        setattr(message, f"inline_{name}", sequence)
    elif sequence is not None:
        external = pb.ExternalFile(path=sequence.path, offset=sequence.offset, size=sequence.size)
        getattr(message, f"external_{name}").CopyFrom(external)


def fragment_message(fragment: Fragment) -> pb.DataFragment:
    """Build the message of a fragment."""
    message = pb.DataFragment(id=fragment.id, physical_rows=fragment.physical_rows)
    message.files.extend(map(file_message, fragment.files))
    d = fragment.deletion_file
    if d is not None:
        message.deletion_file.CopyFrom(
            pb.DeletionFile(
                file_type=pb.DeletionFile.BITMAP if d.file_type == BITMAP else pb.DeletionFile.ARROW_ARRAY,
                read_version=d.read_version,
                id=d.id,
                num_deleted_rows=d.num_deleted_rows,
                base_id=d.base_id,
            )
        )
    _set_row_sequence(message, "row_ids", fragment.row_ids)
    _set_row_sequence(message, "last_updated_at_versions", fragment.last_updated)
    _set_row_sequence(message, "created_at_versions", fragment.created)
    message.MergeFromString(fragment.extra)
    return message


def file_message(file: DataFile) -> pb.DataFile:
    """Build the message of a data file."""
    message = pb.DataFile(
        path=file.path,
        fields=file.fields,
        file_major_version=file.major_version,
        file_minor_version=file.minor_version,
        file_size_bytes=file.size_bytes,
        column_indices=file.column_indices,
        base_id=file.base_id,
    )
    message.MergeFromString(file.extra)
    return message


def parse_base_path(message: pb.BasePath) -> BasePath:
    """Parse the message of a base path."""
    name = message.name if message.HasField("name") else None
    return BasePath(message.id, message.path, message.is_dataset_root, name)


def base_path_message(base: BasePath) -> pb.BasePath:
    """Build the message of a base path."""
    return pb.BasePath(id=base.id, path=base.path, is_dataset_root=base.is_dataset_root, name=base.name)


def parse_index(message: pb.IndexMetadata, *, file: str = "") -> IndexMetadata:
    """Parse the message of an index.  Raises ``CorruptLogError``."""
    if len(message.uuid.uuid) != 16:
        raise CorruptLogError(f"the id of index {message.name!r} has {len(message.uuid.uuid)} bytes", file=file)
    bitmap = None
    if message.fragment_bitmap:
        try:
            bitmap = FrozenBitMap(BitMap.deserialize(message.fragment_bitmap))
        except (ValueError, IndexError, OverflowError, MemoryError) as e:
            raise CorruptLogError(f"the fragments of index {message.name!r} are damaged: {e}", file=file) from e
    stated = message.index_details
    details = IndexDetails(stated.type_url, stated.value) if message.HasField("index_details") else None
    return IndexMetadata(
        UUID(bytes=message.uuid.uuid),
        tuple(message.fields),
        message.name,
        message.dataset_version,
        bitmap,
        details,
        message.index_version if message.HasField("index_version") else None,
        unknown_fields(message),
        message.created_at if message.HasField("created_at") else None,
        message.base_id if message.HasField("base_id") else None,
        tuple((f.path, f.size_bytes) for f in message.files),
        tuple(message.covering_fields),
    )


def _without_moved(indices: tuple[IndexMetadata, ...]) -> tuple[IndexMetadata, ...]:
    """Remove from older indices the fragments since a compaction with ``defer_index_remap`` of pylance.

    Later commits of pylance name the new fragments as covered, but the files of the index have the former addresses.
    Its next compaction names those that replace them, and loses their rows.
    """
    note = next((i for i in indices if i.is_note and i.details and i.details.type_url.endswith(_MOVED)), None)
    if note is None:
        return indices
    before = FrozenBitMap(range(min(note.fragment_bitmap or (0,))))
    return tuple(
        replace(i, fragment_bitmap=i.fragment_bitmap & before, moved=i.fragment_bitmap - before)
        if not i.is_note and i.fragment_bitmap is not None and i.dataset_version <= note.dataset_version
        else i
        for i in indices
    )


def index_message(index: IndexMetadata) -> pb.IndexMetadata:
    """Build the message of an index."""
    covered = BitMap(index.fragment_bitmap or ()) | BitMap(index.moved or ())
    message = pb.IndexMetadata(
        uuid=pb.UUID(uuid=index.uuid.bytes),
        fields=index.fields,
        name=index.name,
        dataset_version=index.dataset_version,
        fragment_bitmap=b"" if index.fragment_bitmap is None else covered.serialize(),
        created_at=index.created_at_ms,
        base_id=index.base_id,
        files=[pb.IndexFile(path=path, size_bytes=size) for path, size in index.files],
        covering_fields=index.covering_fields,
    )
    if index.details is not None:
        message.index_details.type_url, message.index_details.value = index.details.type_url, index.details.value
    if index.index_version is not None:
        message.index_version = index.index_version
    message.MergeFromString(index.extra)
    return message


def parse_manifest(
    data: pa.Buffer, *, file: str, version: int | None = None, parsed: dict[bytes, Fragment] | None = None
) -> Manifest:
    """Parse a manifest file, of ``version`` if given.

    ``parsed`` are fragments of other versions by their messages; it gets those of this version.  Raises
    ``CorruptLogError`` and ``UnsupportedProtocolError``.
    """
    source = MappedSource(file, data)
    position = framing.read_footer(source, damaged=CorruptLogError)
    message = framing.read_message(source, position, pb.Manifest, damaged=CorruptLogError)
    if not message.version:
        raise CorruptLogError("the manifest has no version", file=file)
    if version not in (None, message.version):
        raise CorruptLogError(f"expected a manifest of version {version}, got version {message.version}", file=file)
    schema = LanceSchema.from_proto(message.fields, dict(message.metadata), file=file)
    indices: tuple[IndexMetadata, ...] = ()
    if message.HasField("index_section"):
        section = framing.read_message(source, message.index_section, pb.IndexSection, damaged=CorruptLogError)
        indices = _without_moved(tuple(parse_index(i, file=file) for i in section.indices))
    if parsed is None:
        fragments = tuple(parse_fragment(f, file=file) for f in message.fragments)
    else:
        contents = [f.SerializeToString() for f in message.fragments]
        new = {data: parse_fragment(f, file=file) for data, f in zip(contents, message.fragments) if data not in parsed}
        parsed.update(new)
        fragments = tuple(parsed[data] for data in contents)
    if not message.HasField("writer_version"):
        # pylance 0.8.0, which does not name itself, stored the live rows of fragments with deletions.
        fragments = tuple(replace(f, physical_rows=0) for f in fragments)
    counts = Counter(f.id for f in fragments)
    if any(n > 1 for n in counts.values()):
        raise CorruptLogError(f"fragment id {counts.most_common(1)[0][0]} occurs more than once", file=file)
    if (largest := max(counts, default=0)) > MAX_FRAGMENT_ID:
        raise CorruptLogError(f"fragment ids must be at most {MAX_FRAGMENT_ID}, got {largest}", file=file)
    stamp = message.timestamp
    if not _FIRST_SECOND <= stamp.seconds <= _LAST_SECOND or not 0 <= stamp.nanos < 10**9:
        raise CorruptLogError(
            f"the manifest has the timestamp {stamp.seconds} s and {stamp.nanos} ns, which is out of range",
            file=file,
            version=message.version,
        )
    transaction = None
    sections = [name for name in ("transaction_section", "old_transaction_section") if message.HasField(name)]
    if sections:
        position = getattr(message, sections[0])
        transaction = framing.message_bytes(source, position, "Transaction", damaged=CorruptLogError)
    writer, data_format = message.writer_version, message.data_format
    return Manifest(
        version=message.version,
        schema=schema.with_dictionaries(decode_dictionaries(schema, data, file=file)),
        fragments=fragments,
        indices=indices,
        timestamp_ns=stamp.seconds * 10**9 + stamp.nanos,
        max_fragment_id=max(message.max_fragment_id if message.HasField("max_fragment_id") else -1, *counts, -1),
        transaction_file=message.transaction_file,
        writer_version=(writer.library, writer.version) if message.HasField("writer_version") else None,
        tag=message.tag,
        reader_feature_flags=message.reader_feature_flags,
        writer_feature_flags=message.writer_feature_flags,
        data_format=(data_format.file_format, data_format.version) if message.HasField("data_format") else None,
        extra=unknown_fields(message),
        next_row_id=message.next_row_id,
        config=dict(message.config),
        table_metadata=dict(message.table_metadata),
        base_paths=tuple(map(parse_base_path, message.base_paths)),
        branch=message.branch if message.HasField("branch") else None,
        transaction=transaction,
        has_fragment_tree=message.HasField("fragment_tree"),
    )


def serialise_manifest(manifest: Manifest) -> bytes:
    """Serialize the content of a manifest file."""
    is_legacy = manifest.storage_version.is_legacy
    missing = [f.name for f in manifest.schema.walk() if f.is_dictionary and f.id not in manifest.schema.dictionaries]
    if missing and is_legacy:
        raise InvalidArgumentError(
            "the values of a dictionary column are unknown",
            help="create the dataset with rows, or cast the column to its value type",
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
        # Writers of the legacy format omit 0.
        max_fragment_id=manifest.max_fragment_id if manifest.max_fragment_id >= is_legacy else None,
        transaction_file=manifest.transaction_file,
        next_row_id=manifest.next_row_id,
        config=manifest.config,
        table_metadata=manifest.table_metadata,
        base_paths=map(base_path_message, manifest.base_paths),
        branch=manifest.branch,
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
    if manifest.transaction is not None:
        message.transaction_section = len(out)
        out += framing.framed(manifest.transaction)
    message.MergeFromString(manifest.extra)
    return bytes(out + framing.frame(message) + framing.footer(len(out), minor=1 if is_legacy else 2))


def with_format(manifest: Manifest) -> Manifest:
    """Name the version of data files, unless the manifest does so, or the version is the legacy format."""
    version = manifest.storage_version
    if version.is_legacy or manifest._stated_version == version:
        return manifest
    return replace(manifest, data_format=("lance", str(version)))


def with_flags(manifest: Manifest) -> Manifest:
    """Set the feature flags that the manifest needs."""
    flags = _DELETION_FILES if any(f.deletion_file is not None for f in manifest.fragments) else 0
    flags |= STABLE_ROW_IDS if manifest.has_stable_row_ids else 0
    flags |= (manifest.reader_feature_flags | manifest.writer_feature_flags) & _MIXED
    numbers = {(f.major_version, f.minor_version) for fragment in manifest.fragments for f in fragment.files}
    versions = {manifest.storage_version, *(StorageVersion.of_file(*pair) for pair in numbers)}
    flags |= _MIXED if len(versions) > 1 and LEGACY not in versions else 0
    flags |= _BASE_PATHS if manifest.base_paths else 0
    writer_flags = flags | (_CONFIGURATION if manifest.config else 0)
    return replace(manifest, reader_feature_flags=flags, writer_feature_flags=writer_flags)
