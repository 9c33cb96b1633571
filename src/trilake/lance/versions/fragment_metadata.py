"""``FragmentMetadata``: the manifest entry of a fragment, which programs build and send between processes."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from dataclasses import fields as dataclass_fields
from typing import Any, Self

from trilake.errors import InvalidArgumentError
from trilake.lance.versions import manifest
from trilake.lance.versions.manifest import ARROW_ARRAY, BITMAP, ExternalFile, Fragment

_KINDS = {ARROW_ARRAY: "array", BITMAP: "bitmap"}


class PathText(str):
    """A path string that can also be called, because ``path`` is a method in pylance 0.8.19."""

    __slots__ = ()

    def __call__(self) -> str:
        warnings.warn("path is an attribute: write data_file.path", DeprecationWarning, stacklevel=2)
        return str(self)


@dataclass
class DataFile:
    """A data file of a fragment.

    Parameters
    ----------
    path: below the folder ``data``; it can also be called.
    fields: ids of its fields.
    column_indices: the column of each field; empty in the legacy format.
    file_major_version, file_minor_version: its format; 0 and 0 if the manifest omits them.
    file_size_bytes: its size; ``None`` if unknown.
    base_id: id of its base path; ``None`` for the dataset itself.
    """

    path: PathText
    fields: list[int]
    column_indices: list[int] = field(default_factory=list)
    file_major_version: int = 0
    file_minor_version: int = 0
    file_size_bytes: int | None = None
    base_id: int | None = field(default=None, repr=False)

    #: Unknown fields of the manifest entry, serialized.
    _extra = b""

    def __post_init__(self) -> None:
        if not isinstance(self.path, str):
            raise TypeError(f"the path of a data file must be a string, got {self.path!r}")
        self.path = PathText(self.path)
        self.fields, self.column_indices = list(map(int, self.fields)), list(map(int, self.column_indices or ()))

    def field_ids(self) -> list[int]:
        """Deprecated alias of ``fields``."""
        warnings.warn("use DataFile.fields instead of field_ids()", DeprecationWarning, stacklevel=2)
        return self.fields

    @classmethod
    def of(cls, entry: manifest.DataFile) -> Self:
        """Create from a manifest entry."""
        file = cls(
            PathText(entry.path),
            list(entry.fields),
            list(entry.column_indices),
            entry.major_version,
            entry.minor_version,
            entry.size_bytes or None,
            entry.base_id,
        )
        file._extra = entry.extra
        return file

    @property
    def entry(self) -> manifest.DataFile:
        """The manifest entry."""
        return manifest.DataFile(
            str(self.path),
            tuple(self.fields),
            int(self.file_major_version or 0),
            int(self.file_minor_version or 0),
            int(self.file_size_bytes or 0),
            self._extra,
            column_indices=tuple(self.column_indices),
            base_id=self.base_id,
        )


@dataclass
class DeletionFile:
    """The deletion file of a fragment.

    Parameters
    ----------
    read_version: the version that the delete read.
    id: a number that distinguishes it from others of this version.
    file_type: ``"array"`` or ``"bitmap"``.
    num_deleted_rows: number of rows in it; 0 if unknown.
    base_id: id of its base path; ``None`` for the dataset itself.

    >>> DeletionFile(1, 7, "array", 3).path(0)
    '_deletions/0-1-7.arrow'
    """

    read_version: int
    id: int
    file_type: str
    num_deleted_rows: int = 0
    base_id: int | None = None

    def __post_init__(self) -> None:
        if self.file_type not in _KINDS.values():
            raise InvalidArgumentError(f'file_type must be "array" or "bitmap", got {self.file_type!r}')
        self.num_deleted_rows = int(self.num_deleted_rows or 0)

    def path(self, fragment_id: int, base_path: str | None = None) -> str:
        """The path of the file for a fragment, relative to the dataset or below ``base_path``."""
        key = self.entry.key(fragment_id)
        return key if base_path is None else f"{base_path}/{key}"

    def asdict(self) -> dict[str, Any]:
        """The fields as JSON types."""
        return asdict(self)

    def json(self) -> str:
        """The fields as JSON."""
        return json.dumps(self.asdict())

    @classmethod
    def of(cls, entry: manifest.DeletionFile) -> DeletionFile:
        """Create from a manifest entry."""
        return cls(entry.read_version, entry.id, _KINDS[entry.file_type], entry.num_deleted_rows, entry.base_id)

    @property
    def entry(self) -> manifest.DeletionFile:
        """The manifest entry."""
        kind = next(kind for kind, name in _KINDS.items() if name == self.file_type)
        return manifest.DeletionFile(kind, int(self.read_version), int(self.id), self.num_deleted_rows, self.base_id)


@dataclass(frozen=True)
class _SequenceMeta:
    """A sequence with a number for each row: its message, or the location of the message in a file."""

    placed: bytes | ExternalFile

    def asdict(self) -> dict[str, Any]:
        """The message or the location as JSON types."""
        if isinstance(self.placed, bytes):
            return {"Inline": list(self.placed)}
        return {"External": asdict(self.placed)}

    def json(self) -> str:
        """The message or the location as JSON."""
        return json.dumps(self.asdict())


@dataclass(frozen=True)
class RowIdMeta(_SequenceMeta):
    """The stable ids of a fragment's rows, see ``trilake.lance.fragment.RowIdSequence``."""


@dataclass(frozen=True)
class RowDatasetVersionMeta(_SequenceMeta):
    """The versions in which a fragment's rows were inserted, or last updated."""


def _of_json(kind: Any, meta: Any) -> Any:
    if meta is None:
        return None
    by_kind = {str(name).lower(): value for name, value in meta.items()}
    if "inline" in by_kind:
        return kind(bytes(by_kind["inline"]))
    place = by_kind["external"]
    return kind(ExternalFile(str(place["path"]), int(place["offset"]), int(place["size"])))


@dataclass(eq=False)
class FragmentMetadata:
    """The manifest entry of a fragment.

    Parameters
    ----------
    id: id of the fragment, 0 before it is committed; or, as in pylance 0.8.19, the JSON of :meth:`to_json`.
    files: data files, each with other columns of the same rows.
    physical_rows: number of rows in the files, including deleted ones; 0 if unknown.
    deletion_file: the deleted rows.
    row_id_meta: stable ids of the rows; ``None`` where row ids are row addresses.
    created_at_version_meta, last_updated_at_version_meta: versions of the rows; commits of new rows set them.
    overlays: must be empty: data overlays of newer writers are not supported.

    Raises ``InvalidArgumentError`` for other JSON.

    >>> files = '[{"path": "x.lance", "fields": [0]}]'
    >>> metadata = FragmentMetadata.from_json(f'{{"id": 0, "files": {files}, "physical_rows": 3}}')
    >>> metadata.id, [f.path for f in metadata.files], metadata.num_rows, metadata.deletion_file
    (0, ['x.lance'], 3, None)
    """

    id: int
    files: list[DataFile] = field(default_factory=list)
    physical_rows: int = 0
    deletion_file: DeletionFile | None = None
    row_id_meta: RowIdMeta | None = None
    created_at_version_meta: RowDatasetVersionMeta | None = None
    last_updated_at_version_meta: RowDatasetVersionMeta | None = None
    overlays: list[Any] = field(default_factory=list)

    #: Whether it comes from a manifest.
    _is_listed = False
    #: Unknown fields of the manifest entry, serialized.
    _extra = b""

    def __post_init__(self) -> None:
        if self.overlays:
            raise InvalidArgumentError("data overlays cannot be committed", help="write the columns again")
        given: Any = self.id
        if isinstance(given, str):
            vars(self).update(vars(_parsed(given)))
        self.id, self.physical_rows = int(self.id), int(self.physical_rows or 0)
        self.files, self.overlays = list(self.files), []

    @classmethod
    def of(cls, fragment: Fragment) -> FragmentMetadata:
        """Create from a manifest entry."""
        deletion = fragment.deletion_file
        created, updated = fragment.created, fragment.last_updated
        metadata = cls(
            fragment.id,
            [DataFile.of(f) for f in fragment.files],
            fragment.physical_rows,
            None if deletion is None else DeletionFile.of(deletion),
            None if fragment.row_ids is None else RowIdMeta(fragment.row_ids),
            None if created is None else RowDatasetVersionMeta(created),
            None if updated is None else RowDatasetVersionMeta(updated),
        )
        metadata._is_listed, metadata._extra = True, fragment.extra
        return metadata

    @property
    def entry(self) -> Fragment:
        """The manifest entry."""
        deletion = self.deletion_file
        metas = self.row_id_meta, self.last_updated_at_version_meta, self.created_at_version_meta
        return Fragment(
            int(self.id),
            tuple(f.entry for f in self.files),
            None if deletion is None else deletion.entry,
            int(self.physical_rows),
            self._extra,
            *(None if meta is None else meta.placed for meta in metas),
        )

    def __repr__(self) -> str:
        if self._is_listed and all(f.storage_version.is_legacy for f in self.entry.files):
            return _first_format(self.entry)
        return f"FragmentMetadata({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in dataclass_fields(self))})"

    def __eq__(self, other: object) -> bool:
        """Whether both describe the same fragment; without row counts, only ids and paths are compared."""
        if not isinstance(other, FragmentMetadata):
            return False
        if self.physical_rows and other.physical_rows:
            return self.entry == other.entry
        return (self.id, [f.path for f in self.files]) == (other.id, [f.path for f in other.files])

    __hash__ = None  # type: ignore[assignment]  # not hashable

    def to_json(self) -> dict[str, Any]:
        """The entry as JSON types."""
        return {
            "id": self.id,
            "files": [asdict(f) for f in self.files],
            "overlays": [],
            "physical_rows": self.physical_rows or None,
            **{name: None if (part := getattr(self, name)) is None else part.asdict() for name in _PARTS},
        }

    @staticmethod
    def from_json(json_data: str) -> FragmentMetadata:
        """Parse the JSON of :meth:`to_json`.  Raises ``InvalidArgumentError``."""
        return _parsed(json_data)

    def data_files(self) -> list[DataFile]:
        """Deprecated alias of :attr:`files`."""
        warnings.warn("use FragmentMetadata.files instead of data_files()", DeprecationWarning, stacklevel=2)
        return self.files

    @property
    def num_deletions(self) -> int:
        """Number of deleted rows; 0 if unknown."""
        return 0 if self.deletion_file is None else self.deletion_file.num_deleted_rows

    @property
    def num_rows(self) -> int:
        """Number of live rows."""
        return self.physical_rows - self.num_deletions


_PARTS = ("deletion_file", "row_id_meta", "created_at_version_meta", "last_updated_at_version_meta")


def _first_format(fragment: Fragment) -> str:
    """The ``repr`` of pylance 0.8.19."""
    files = ", ".join(f'DataFile {{ path: "{f.path}", fields: {list(f.fields)} }}' for f in fragment.files)
    deletion, d = "None", fragment.deletion_file
    if d is not None:
        deletion = (
            f"Some(DeletionFile {{ read_version: {d.read_version}, id: {d.id}, "
            f"file_type: {_KINDS[d.file_type].title()}, num_deleted_rows: Some({d.num_deleted_rows}) }})"
        )
    rows = f"Some({fragment.physical_rows})" if fragment.physical_rows else "None"
    return f"Fragment {{ id: {fragment.id}, files: [{files}], deletion_file: {deletion}, physical_rows: {rows} }}"


def _parsed(metadata: str) -> FragmentMetadata:
    try:
        parsed: Mapping[str, Any] = json.loads(metadata)
        deletion = parsed.get("deletion_file")
        return FragmentMetadata(
            int(parsed["id"]),
            [DataFile(**f) for f in parsed["files"]],
            parsed.get("physical_rows") or 0,
            None if deletion is None else DeletionFile(**deletion),
            _of_json(RowIdMeta, parsed.get("row_id_meta")),
            _of_json(RowDatasetVersionMeta, parsed.get("created_at_version_meta")),
            _of_json(RowDatasetVersionMeta, parsed.get("last_updated_at_version_meta")),
            parsed.get("overlays") or [],
        )
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise InvalidArgumentError(f"this is not the metadata of a fragment: {e!r}") from e
