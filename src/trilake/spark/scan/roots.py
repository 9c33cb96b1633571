"""The tables that this process's frames read, to recognise Spark's errors about their files."""

from __future__ import annotations

import threading
from urllib.parse import unquote

from trilake.spark.scan.refusal import hadoop_uri

_roots: set[str] = set()
_lock = threading.Lock()


def note_root(uri: str) -> None:
    """Remember that a frame reads files of this table."""
    with _lock:
        _roots.add(_plain(hadoop_uri(uri)).rstrip("/") + "/")


def is_read(file: str) -> bool:
    """Whether a file is in the folder of a table in :func:`note_root`.

    >>> note_root("file:///data/a%20table")
    >>> is_read("file:/data/a%20table/part-0.parquet"), is_read("file:/data/part-0.parquet")
    (True, False)
    """
    path = _plain(file)
    with _lock:
        return any(path.startswith(root) for root in _roots)


def is_root(uri: str) -> bool:
    """Whether this is the URI of a table in :func:`note_root`.

    >>> note_root("file:///data/b%20table")
    >>> is_root("file:/data/b%20table"), is_root("file:/data/b")
    (True, False)
    """
    with _lock:
        return _plain(hadoop_uri(uri)).rstrip("/") + "/" in _roots


def _plain(uri: str) -> str:
    """A decoded URI; a ``file:`` URI becomes a path with one leading slash."""
    decoded = unquote(uri)
    return "/" + decoded.removeprefix("file:").lstrip("/") if decoded.startswith("file:") else decoded
