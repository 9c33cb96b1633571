"""Report the progress of writes by fragment, so that programs can clean up after a failed one.

A progress object is called before and after each fragment is written.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import pyarrow.fs as fs

from trilake.lance.cleanup import cleanup_partial_writes
from trilake.lance.versions.fragment_metadata import FragmentMetadata


class FragmentWriteProgress(ABC):
    """Callbacks for the fragments of a write."""

    @abstractmethod
    def begin(self, fragment: FragmentMetadata, multipart_id: str | None = None, **kwargs: Any) -> None:
        """Called before a fragment is written; the fragment may have no id yet."""

    @abstractmethod
    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Called after a fragment is written."""


class NoopFragmentWriteProgress(FragmentWriteProgress):
    """Callbacks that do nothing."""

    def begin(self, fragment: FragmentMetadata, multipart_id: str | None = None, **kwargs: Any) -> None:
        """Do nothing."""

    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Do nothing."""


class FileSystemFragmentWriteProgress(FragmentWriteProgress):
    """Store the metadata of each fragment in a file, next to a marker file while it is written.

    Parameters
    ----------
    base_uri: folder of these files: a path or a URI supported by pyarrow.
    metadata: content of the marker files, for example the name of the worker.
    """

    PROGRESS_EXT = ".in_progress"

    def __init__(self, base_uri: str | os.PathLike[str], metadata: Mapping[str, str] | None = None) -> None:
        uri = os.fspath(base_uri)
        self._fs, self._folder = fs.FileSystem.from_uri(uri if "://" in uri else os.path.abspath(uri))
        self._metadata = dict(metadata or {})

    def _path(self, fragment: FragmentMetadata, ending: str) -> str:
        return f"{self._folder}/fragment_{fragment.id}{ending}"

    def begin(self, fragment: FragmentMetadata, multipart_id: str | None = None, **kwargs: Any) -> None:
        """Write the metadata and the marker."""
        self._fs.create_dir(self._folder, recursive=True)
        marker = {"fragment_id": fragment.id, "multipart_id": multipart_id or "", "metadata": self._metadata}
        self._write(self._path(fragment, self.PROGRESS_EXT), marker)
        self._write(self._path(fragment, ".json"), fragment.to_json())

    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Delete the marker."""
        self._fs.delete_file(self._path(fragment, self.PROGRESS_EXT))

    def cleanup_partial_writes(self, dataset_uri: str | os.PathLike[str]) -> int:
        """Delete the data files of incomplete fragments, and return their number.

        Unsafe while other writers are active.
        """
        markers = [
            info.path
            for info in self._fs.get_file_info(fs.FileSelector(self._folder))
            if info.path.endswith(self.PROGRESS_EXT)
        ]
        metadata = [path[: -len(self.PROGRESS_EXT)] + ".json" for path in markers]
        begun = [FragmentMetadata.from_json(self._fs.open_input_stream(path).read().decode()) for path in metadata]
        cleanup_partial_writes(dataset_uri, [(str(f.path), "") for b in begun for f in b.files])
        for path in (*markers, *metadata):
            self._fs.delete_file(path)
        return len(markers)

    def _write(self, path: str, value: Any) -> None:
        with self._fs.open_output_stream(path) as out:
            out.write(json.dumps(value).encode())
