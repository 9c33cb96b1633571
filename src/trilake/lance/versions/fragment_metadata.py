"""``FragmentMetadata``: the entry of a fragment, as text between processes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trilake.errors import InvalidArgumentError
from trilake.lance.versions.manifest import (
    ARROW_ARRAY,
    BITMAP,
    DataFile,
    DeletionFile,
    ExternalFile,
    Fragment,
    Placed,
)

_KINDS = {ARROW_ARRAY: "array", BITMAP: "bitmap"}


class FragmentMetadata:
    """The entry of a fragment: id, data files, deletion file and number of rows.

    >>> made = FragmentMetadata('{"id": 0, "files": [{"path": "x.lance", "fields": [0]}], "physical_rows": 3}')
    >>> made.id, [f.path() for f in made.data_files()], made.deletion_file()
    (0, ['x.lance'], None)
    """

    def __init__(self, metadata: str) -> None:
        """Parse what :meth:`to_json` gave, as text.  Raises ``InvalidArgumentError``."""
        try:
            parsed = json.loads(metadata)
            files = tuple(_data_file(f) for f in parsed["files"])
            deletion = parsed.get("deletion_file")
            entry = None if deletion is None else _deletion_file(deletion)
            self._metadata = Fragment(
                int(parsed["id"]),
                files,
                entry,
                int(parsed.get("physical_rows") or 0),
                row_ids=_placed(parsed.get("row_id_meta")),
                last_updated=_placed(parsed.get("last_updated_at_version_meta")),
                created=_placed(parsed.get("created_at_version_meta")),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise InvalidArgumentError(f"this is not the metadata of a fragment: {e!r}") from e

    @classmethod
    def of(cls, fragment: Fragment) -> FragmentMetadata:
        """The metadata of an entry."""
        metadata = cls.__new__(cls)
        metadata._metadata = fragment
        return metadata

    @property
    def entry(self) -> Fragment:
        """The entry as a manifest has it."""
        return self._metadata

    def __repr__(self) -> str:
        files = ", ".join(f'DataFile {{ path: "{f.path}", fields: {list(f.fields)} }}' for f in self.entry.files)
        d = self.entry.deletion_file
        deletion = "None"
        if d is not None:
            deletion = (
                f"Some(DeletionFile {{ read_version: {d.read_version}, id: {d.id}, "
                f"file_type: {_KINDS[d.file_type].title()}, num_deleted_rows: Some({d.num_deleted_rows}) }})"
            )
        rows = f"Some({self.entry.physical_rows})" if self.entry.physical_rows else "None"
        return f"Fragment {{ id: {self.id}, files: [{files}], deletion_file: {deletion}, physical_rows: {rows} }}"

    def __reduce__(self) -> tuple[Any, ...]:
        return FragmentMetadata, (json.dumps(self.to_json()),)

    def __eq__(self, other: object) -> bool:
        """Whether both are of the same fragment; before it is written, no more is known than its files."""
        if not isinstance(other, FragmentMetadata):
            return False
        own, others = self._metadata, other._metadata
        if own.physical_rows and others.physical_rows:
            return own == others
        return (own.id, [f.path for f in own.files]) == (others.id, [f.path for f in others.files])

    __hash__ = None  # type: ignore[assignment]

    def to_json(self) -> dict[str, Any]:
        """The entry as JSON types."""
        f = self._metadata
        json: dict[str, Any] = {
            "id": f.id,
            "files": [_file_json(d) for d in f.files],
            "physical_rows": f.physical_rows or None,
        }
        for name, placed, key in (
            ("row_id_meta", f.row_ids, "Inline"),
            ("created_at_version_meta", f.created, "inline"),
            ("last_updated_at_version_meta", f.last_updated, "inline"),
        ):
            if isinstance(placed, bytes):
                json[name] = {key: list(placed)}
            elif placed is not None:
                place = {"path": placed.path, "offset": placed.offset, "size": placed.size}
                json[name] = {"External" if key == "Inline" else "external": place}
        if f.deletion_file is not None:
            d = f.deletion_file
            json["deletion_file"] = {
                "read_version": d.read_version,
                "id": d.id,
                "file_type": _KINDS[d.file_type],
                "num_deleted_rows": d.num_deleted_rows,
            }
            if d.base_id is not None:
                json["deletion_file"]["base_id"] = d.base_id
        return json

    @staticmethod
    def from_json(json_data: str) -> FragmentMetadata:
        """The metadata in a JSON text."""
        return FragmentMetadata(json_data)

    @property
    def files(self) -> list[DataFileInfo]:
        """The data files."""
        return [DataFileInfo(f) for f in self._metadata.files]

    def data_files(self) -> list[DataFileInfo]:
        """The data files, see :attr:`files`."""
        return self.files

    @property
    def physical_rows(self) -> int:
        """Number of rows in the data files, deleted ones included; 0 where it is not known."""
        return self._metadata.physical_rows

    @property
    def num_deletions(self) -> int:
        """Number of deleted rows; 0 where it is not known."""
        entry = self._metadata.deletion_file
        return 0 if entry is None else entry.num_deleted_rows

    @property
    def num_rows(self) -> int:
        """Number of rows that live."""
        return self.physical_rows - self.num_deletions

    @property
    def row_id_meta(self) -> Placed:
        """The stable row ids of the rows; ``None`` where ids say where rows are."""
        return self._metadata.row_ids

    def deletion_file(self) -> str | None:
        """The deletion file, relative to the dataset, if there is one."""
        entry = self._metadata.deletion_file
        return None if entry is None else entry.key(self.id)

    @property
    def id(self) -> int:
        """The fragment's id; 0 in one that was not committed yet."""
        return self._metadata.id


class PathText(str):
    """A path: a text, and for programs of pylance 0.8.19 a method that gives it."""

    __slots__ = ()

    def __call__(self) -> str:
        return str(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)


class DataFileInfo:
    """A data file of a fragment."""

    def __init__(self, entry: DataFile) -> None:
        self._entry = entry

    @property
    def path(self) -> PathText:
        """Its path below the folder ``data``; it may be called, too."""
        return PathText(self._entry.path)

    @property
    def fields(self) -> list[int]:
        """The ids of the fields it holds."""
        return list(self._entry.fields)

    def field_ids(self) -> list[int]:
        """The ids of the fields it holds, see :attr:`fields`."""
        return self.fields

    @property
    def file_major_version(self) -> int:
        """The version of the format that the manifest says it is written in; 0 is the first one."""
        return self._entry.major_version

    @property
    def file_minor_version(self) -> int:
        """What follows :attr:`file_major_version`."""
        return self._entry.minor_version

    @property
    def file_size_bytes(self) -> int | None:
        """Its size, where the manifest says it."""
        return self._entry.size_bytes or None

    def __repr__(self) -> str:
        return f"DataFile({self._entry.path})"


def _data_file(entry: Mapping[str, Any]) -> DataFile:
    path = entry["path"]
    if not isinstance(path, str):
        raise TypeError("the path of a data file is not a string")
    base = entry.get("base_id")
    return DataFile(
        path,
        tuple(int(i) for i in entry["fields"]),
        int(entry.get("file_major_version") or 0),
        int(entry.get("file_minor_version") or 0),
        int(entry.get("file_size_bytes") or 0),
        column_indices=tuple(int(i) for i in entry.get("column_indices") or ()),
        base_id=None if base is None else int(base),
    )


def _file_json(file: DataFile) -> dict[str, Any]:
    json: dict[str, Any] = {"path": file.path, "fields": list(file.fields)}
    if not file.storage_version.is_first:
        json |= {
            "column_indices": list(file.column_indices),
            "file_major_version": file.major_version,
            "file_minor_version": file.minor_version,
            "file_size_bytes": file.size_bytes or None,
            "base_id": file.base_id,
        }
    return json


def _placed(meta: Any) -> Placed:
    """Row ids or versions of rows, as JSON has them."""
    if meta is None:
        return None
    by_kind = {str(kind).lower(): value for kind, value in meta.items()}
    if "inline" in by_kind:
        return bytes(by_kind["inline"])
    place = by_kind["external"]
    return ExternalFile(str(place["path"]), int(place["offset"]), int(place["size"]))


def _deletion_file(entry: Mapping[str, Any]) -> DeletionFile:
    kinds = {name: kind for kind, name in _KINDS.items()}
    count, base = int(entry.get("num_deleted_rows") or 0), entry.get("base_id")
    kind = kinds[str(entry["file_type"])]
    base_id = None if base is None else int(base)
    return DeletionFile(kind, int(entry["read_version"]), int(entry["id"]), count, base_id)
