"""``FragmentMetadata``: the manifest entry of a fragment, which programs build and send between processes."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

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

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)


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
    def of(cls, entry: manifest.DataFile) -> DataFile:
        """Create from a manifest entry."""
        return cls(
            PathText(entry.path),
            list(entry.fields),
            list(entry.column_indices),
            entry.major_version,
            entry.minor_version,
            entry.size_bytes or None,
            entry.base_id,
        )

    @property
    def entry(self) -> manifest.DataFile:
        """The manifest entry."""
        return manifest.DataFile(
            str(self.path),
            tuple(self.fields),
            int(self.file_major_version or 0),
            int(self.file_minor_version or 0),
            int(self.file_size_bytes or 0),
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
class _PlacedMeta:
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
class RowIdMeta(_PlacedMeta):
    """The stable ids of a fragment's rows, see ``trilake.lance.fragment.RowIdSequence``."""


@dataclass(frozen=True)
class RowDatasetVersionMeta(_PlacedMeta):
    """The versions in which a fragment's rows were inserted, or last updated."""


def _of_json(kind: Any, meta: Any) -> Any:
    if meta is None:
        return None
    by_kind = {str(name).lower(): value for name, value in meta.items()}
    if "inline" in by_kind:
        return kind(bytes(by_kind["inline"]))
    place = by_kind["external"]
    return kind(ExternalFile(str(place["path"]), int(place["offset"]), int(place["size"])))


def _row_numbers(name: str, kind: type[_PlacedMeta], doc: str) -> Any:
    """Build a property of :class:`FragmentMetadata` for a message of its entry."""

    def get(self: FragmentMetadata) -> _PlacedMeta | None:
        placed = getattr(self._metadata, name)
        return None if placed is None else kind(placed)

    def put(self: FragmentMetadata, meta: _PlacedMeta | None) -> None:
        self._set(**{name: None if meta is None else meta.placed})

    return property(get, put, doc=doc)


class FragmentMetadata:
    """The manifest entry of a fragment.

    Parameters
    ----------
    id: id of the fragment; or, as in pylance 0.8.19, the JSON of :meth:`to_json`.
    files: data files, each with other columns of the same rows.
    physical_rows: number of rows in the files, including deleted ones; 0 if unknown.
    deletion_file: the deleted rows.
    row_id_meta: stable ids of the rows.
    created_at_version_meta, last_updated_at_version_meta: versions of the rows; commits of new rows set them.
    overlays: must be empty: data overlays of newer writers are not supported.

    Raises ``InvalidArgumentError`` for other JSON.

    >>> files = '[{"path": "x.lance", "fields": [0]}]'
    >>> metadata = FragmentMetadata.from_json(f'{{"id": 0, "files": {files}, "physical_rows": 3}}')
    >>> metadata.id, [f.path for f in metadata.files], metadata.num_rows, metadata.deletion_file
    (0, ['x.lance'], 3, None)
    """

    #: Whether it comes from a manifest.
    _is_listed = False

    def __init__(
        self,
        id: int | str,
        files: Sequence[DataFile] = (),
        physical_rows: int | None = 0,
        deletion_file: DeletionFile | None = None,
        row_id_meta: RowIdMeta | None = None,
        created_at_version_meta: RowDatasetVersionMeta | None = None,
        last_updated_at_version_meta: RowDatasetVersionMeta | None = None,
        overlays: Sequence[Any] = (),
    ) -> None:
        if overlays:
            raise InvalidArgumentError("data overlays cannot be committed", help="write the columns again")
        if isinstance(id, str):
            self._metadata = _parsed(id)
            return
        self._metadata = Fragment(
            int(id),
            tuple(f.entry for f in files),
            None if deletion_file is None else deletion_file.entry,
            int(physical_rows or 0),
        )
        self.row_id_meta = row_id_meta
        self.created_at_version_meta = created_at_version_meta
        self.last_updated_at_version_meta = last_updated_at_version_meta

    @classmethod
    def of(cls, fragment: Fragment) -> FragmentMetadata:
        """Create from a manifest entry."""
        metadata = cls.__new__(cls)
        metadata._metadata, metadata._is_listed = fragment, True
        return metadata

    @property
    def entry(self) -> Fragment:
        """The manifest entry."""
        return self._metadata

    def _set(self, **parts: Any) -> None:
        self._metadata = replace(self._metadata, **parts)

    def __repr__(self) -> str:
        if self._is_listed and all(f.storage_version.is_first for f in self._metadata.files):
            return _first_format(self._metadata)
        parts = ", ".join(f"{name}={getattr(self, name)!r}" for name in _PARTS)
        return f"FragmentMetadata({parts})"

    def __reduce__(self) -> tuple[Any, ...]:
        return FragmentMetadata.from_json, (json.dumps(self.to_json()),)

    def __eq__(self, other: object) -> bool:
        """Whether both describe the same fragment; without row counts, only ids and paths are compared."""
        if not isinstance(other, FragmentMetadata):
            return False
        a, b = self._metadata, other._metadata
        if a.physical_rows and b.physical_rows:
            return a == b
        return (a.id, [f.path for f in a.files]) == (b.id, [f.path for f in b.files])

    __hash__ = None  # type: ignore[assignment]

    def to_json(self) -> dict[str, Any]:
        """The entry as JSON types."""
        deletion = self.deletion_file
        metas = {name: getattr(self, name) for name in _PARTS if name.endswith("_meta")}
        return {
            "id": self.id,
            "files": [{**asdict(f), "path": str(f.path)} for f in self.files],
            "overlays": [],
            "physical_rows": self._metadata.physical_rows or None,
            "deletion_file": None if deletion is None else deletion.asdict(),
            **{name: None if meta is None else meta.asdict() for name, meta in metas.items()},
        }

    @staticmethod
    def from_json(json_data: str) -> FragmentMetadata:
        """Parse the JSON of :meth:`to_json`.  Raises ``InvalidArgumentError``."""
        return FragmentMetadata(json_data)

    @property
    def id(self) -> int:
        """The fragment's id; 0 before it is committed."""
        return self._metadata.id

    @id.setter
    def id(self, id: int) -> None:
        self._set(id=int(id))

    @property
    def files(self) -> list[DataFile]:
        """The data files."""
        return [DataFile.of(f) for f in self._metadata.files]

    @files.setter
    def files(self, files: Sequence[DataFile]) -> None:
        self._set(files=tuple(f.entry for f in files))

    def data_files(self) -> list[DataFile]:
        """Deprecated alias of :attr:`files`."""
        warnings.warn("use FragmentMetadata.files instead of data_files()", DeprecationWarning, stacklevel=2)
        return self.files

    @property
    def physical_rows(self) -> int:
        """Number of rows in the data files, including deleted ones; 0 if unknown."""
        return self._metadata.physical_rows

    @physical_rows.setter
    def physical_rows(self, rows: int) -> None:
        self._set(physical_rows=int(rows))

    @property
    def num_deletions(self) -> int:
        """Number of deleted rows; 0 if unknown."""
        entry = self._metadata.deletion_file
        return 0 if entry is None else entry.num_deleted_rows

    @property
    def num_rows(self) -> int:
        """Number of live rows."""
        return self.physical_rows - self.num_deletions

    @property
    def deletion_file(self) -> DeletionFile | None:
        """The deletion file; ``None`` if there is none."""
        entry = self._metadata.deletion_file
        return None if entry is None else DeletionFile.of(entry)

    @deletion_file.setter
    def deletion_file(self, deletion_file: DeletionFile | None) -> None:
        self._set(deletion_file=None if deletion_file is None else deletion_file.entry)

    row_id_meta: RowIdMeta | None = _row_numbers(
        "row_ids", RowIdMeta, "The stable row ids of the rows; ``None`` where row ids are row addresses."
    )
    created_at_version_meta: RowDatasetVersionMeta | None = _row_numbers(
        "created", RowDatasetVersionMeta, "The versions in which the rows were inserted; ``None`` if not recorded."
    )
    last_updated_at_version_meta: RowDatasetVersionMeta | None = _row_numbers(
        "last_updated", RowDatasetVersionMeta, "The versions of the rows' values; ``None`` if not recorded."
    )

    @property
    def overlays(self) -> list[Any]:
        """Always empty: data overlays of newer writers are not supported."""
        return []


_PARTS = (
    *("id", "files", "physical_rows", "deletion_file", "row_id_meta"),
    *("created_at_version_meta", "last_updated_at_version_meta", "overlays"),
)


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


def _parsed(metadata: str) -> Fragment:
    try:
        parsed: Mapping[str, Any] = json.loads(metadata)
        deletion = parsed.get("deletion_file")
        return FragmentMetadata(
            int(parsed["id"]),
            [DataFile(**f) for f in parsed["files"]],
            parsed.get("physical_rows"),
            None if deletion is None else DeletionFile(**deletion),
            _of_json(RowIdMeta, parsed.get("row_id_meta")),
            _of_json(RowDatasetVersionMeta, parsed.get("created_at_version_meta")),
            _of_json(RowDatasetVersionMeta, parsed.get("last_updated_at_version_meta")),
            parsed.get("overlays") or (),
        ).entry
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise InvalidArgumentError(f"this is not the metadata of a fragment: {e!r}") from e
