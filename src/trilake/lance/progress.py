"""Progress of writes, fragment by fragment, for programs that must know what a failed one has left.

A progress object is told of each fragment when its file is begun and when it is complete.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow.fs as fs

from trilake.lance.cleanup import cleanup_partial_writes
from trilake.lance.versions.fragment_metadata import FragmentMetadata
from trilake.lance.versions.manifest import Fragment


class FragmentWriteProgress(ABC):
    """What is told of fragments."""

    @abstractmethod
    def begin(self, fragment: FragmentMetadata, multipart_id: str | None = None, **kwargs: Any) -> None:
        """A fragment is about to be written; it may have no id yet."""

    @abstractmethod
    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """A fragment is written."""


class NoopFragmentWriteProgress(FragmentWriteProgress):
    """Nobody wants to know."""

    def begin(self, fragment: FragmentMetadata, multipart_id: str | None = None, **kwargs: Any) -> None:
        """Nothing happens."""

    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Nothing happens."""


class FileSystemFragmentWriteProgress(FragmentWriteProgress):
    """Two files a fragment: its metadata, and while it is written a marker.

    Parameters
    ----------
    base_uri: the folder of these files: a path, or a URI that Arrow knows.
    metadata: kept in the markers, for example which worker writes.
    """

    PROGRESS_EXT = ".in_progress"

    def __init__(self, base_uri: str | os.PathLike[str], metadata: Mapping[str, str] | None = None) -> None:
        uri = os.fspath(base_uri)
        self._fs, self._folder = fs.FileSystem.from_uri(uri if "://" in uri else os.path.abspath(uri))
        self._metadata = dict(metadata or {})

    def _path(self, fragment: FragmentMetadata, ending: str) -> str:
        return f"{self._folder}/fragment_{fragment.id}{ending}"

    def begin(self, fragment: FragmentMetadata, multipart_id: str | None = None, **kwargs: Any) -> None:
        """Write both files."""
        self._fs.create_dir(self._folder, recursive=True)
        marker = {"fragment_id": fragment.id, "multipart_id": multipart_id or "", "metadata": self._metadata}
        self._write(self._path(fragment, self.PROGRESS_EXT), marker)
        self._write(self._path(fragment, ".json"), fragment.to_json())

    def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
        """Remove the marker."""
        self._fs.delete_file(self._path(fragment, self.PROGRESS_EXT))

    def cleanup_partial_writes(self, dataset_uri: str | os.PathLike[str]) -> int:
        """Remove the data files of fragments that were begun and never completed; how many they were.

        Only for whoever knows that nobody writes any more.
        """
        markers = [
            info.path
            for info in self._fs.get_file_info(fs.FileSelector(self._folder))
            if info.path.endswith(self.PROGRESS_EXT)
        ]
        metadata = [path[: -len(self.PROGRESS_EXT)] + ".json" for path in markers]
        begun = [FragmentMetadata.from_json(self._fs.open_input_stream(path).read().decode()) for path in metadata]
        cleanup_partial_writes(dataset_uri, [(str(f.path), "") for b in begun for f in b.data_files()])
        for path in (*markers, *metadata):
            self._fs.delete_file(path)
        return len(markers)

    def _write(self, path: str, value: Any) -> None:
        with self._fs.open_output_stream(path) as out:
            out.write(json.dumps(value).encode())


class Reporter:
    """Tells a progress object of fragments by their metadata."""

    def __init__(self, progress: Any, fragment_id: int = 0) -> None:
        self._progress, self._id = progress, fragment_id

    def begin(self, fragment: Fragment) -> None:
        if self._progress is not None:
            self._progress.begin(FragmentMetadata.of(replace(fragment, id=self._id)))

    def complete(self, fragment: Fragment) -> None:
        if self._progress is not None:
            self._progress.complete(FragmentMetadata.of(replace(fragment, id=self._id)))
