"""``FragmentMetadata``: the entry of a fragment, as text between processes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trilake.errors import InvalidArgumentError
from trilake.lance.versions.manifest import ARROW_ARRAY, BITMAP, DataFile, DeletionFile, Fragment

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
            self._metadata = Fragment(int(parsed["id"]), files, entry, int(parsed.get("physical_rows") or 0))
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
        """Whether both are of the same fragment; before it is written, its number of rows is not known."""
        if not isinstance(other, FragmentMetadata):
            return False
        own, others = self._metadata, other._metadata
        rows = own.physical_rows or others.physical_rows
        return others.physical_rows in (0, rows) and replace(own, physical_rows=rows) == replace(
            others, physical_rows=rows
        )

    __hash__ = None  # type: ignore[assignment]

    def to_json(self) -> dict[str, Any]:
        """The entry as JSON types."""
        f = self._metadata
        json: dict[str, Any] = {
            "id": f.id,
            "files": [{"path": d.path, "fields": list(d.fields)} for d in f.files],
            "physical_rows": f.physical_rows or None,
        }
        if f.deletion_file is not None:
            d = f.deletion_file
            json["deletion_file"] = {
                "read_version": d.read_version,
                "id": d.id,
                "file_type": _KINDS[d.file_type],
                "num_deleted_rows": d.num_deleted_rows,
            }
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
    def row_id_meta(self) -> None:
        """None: row ids say where rows are."""

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
        raise TypeError("the path of a data file is no text")
    return DataFile(path, tuple(int(i) for i in entry["fields"]))


def _deletion_file(entry: Mapping[str, Any]) -> DeletionFile:
    kinds = {name: kind for kind, name in _KINDS.items()}
    count = int(entry.get("num_deleted_rows") or 0)
    return DeletionFile(kinds[str(entry["file_type"])], int(entry["read_version"]), int(entry["id"]), count)
