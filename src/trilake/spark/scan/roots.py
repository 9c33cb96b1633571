"""The tables that this process has given frames of, by which an error of Spark's is known to be about one of them."""

from __future__ import annotations

import threading
from urllib.parse import unquote

from trilake.spark.scan.refusal import hadoop_uri

_roots: set[str] = set()
_lock = threading.Lock()


def note_root(uri: str) -> None:
    """Remember that a frame reads files of the table at this URI."""
    with _lock:
        _roots.add(_plain(hadoop_uri(uri)).rstrip("/") + "/")


def is_read(file: str) -> bool:
    """Whether a file is in the folder of a table that frames were given of.

    >>> note_root("file:///data/a%20table")
    >>> is_read("file:/data/a%20table/part-0.parquet"), is_read("file:/data/part-0.parquet")
    (True, False)
    """
    path = _plain(file)
    with _lock:
        return any(path.startswith(root) for root in _roots)


def is_root(uri: str) -> bool:
    """Whether a frame was given of the table at this URI.

    >>> note_root("file:///data/b%20table")
    >>> is_root("file:/data/b%20table"), is_root("file:/data/b")
    (True, False)
    """
    with _lock:
        return _plain(hadoop_uri(uri)).rstrip("/") + "/" in _roots


def _plain(uri: str) -> str:
    """A URI decoded, local ones as paths, whatever number of slashes they begin with."""
    text = unquote(uri)
    return "/" + text.removeprefix("file:").lstrip("/") if text.startswith("file:") else text
