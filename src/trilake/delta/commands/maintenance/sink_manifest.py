"""The files that Spark's streaming file sink committed, from its folder ``_spark_metadata``.

A retried batch leaves its first files next to the valid ones, so only listed files count, as in Spark.  The list is a
sequence of objects ``0``, ``1``, …: a line ``v1``, then one file per line.  Every tenth one, such as ``9.compact``,
repeats the files of all earlier ones.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from urllib.parse import unquote, urlsplit

import orjson

from trilake.errors import CorruptFileError, MissingFileError
from trilake.storage.base import Store

MANIFEST = "_spark_metadata"
_BATCH = re.compile(rf"{MANIFEST}/([0-9]+)(\.compact)?")


def committed_files(store: Store, keys: Collection[str]) -> frozenset[str] | None:
    r"""The files below a folder that the folder's list names; ``None`` without a list.

    ``keys`` are all files below the folder.  The list stays valid if the whole folder was moved.

    Raises ``CorruptFileError`` for a list with a gap or a malformed one, ``MissingFileError`` if a listed file
    does not exist.

    >>> from trilake.storage import open_store
    >>> store = open_store("memory://doc-sink")
    >>> store.put("_spark_metadata/0", b'v1\n{"path":"file:///old/place/a.parquet","size":4,"action":"add"}')
    >>> sorted(committed_files(store, ["a.parquet", "b.parquet", "_spark_metadata/0"]))
    ['a.parquet']
    """
    batches = sorted(_batches(keys))
    if not batches:
        return None
    newest = max((n for n, compact in batches if compact), default=-1)
    batches_to_read = [(n, compact) for n, compact in batches if n > newest or (n == newest and compact)]
    first = max(newest, 0)
    if [n for n, _ in batches_to_read] != list(range(first, first + len(batches_to_read))):
        raise CorruptFileError(
            f"the list of a streaming sink's files has a gap: {', '.join(str(n) for n, _ in batches_to_read)[:200]}",
            help=f"restore {MANIFEST}, or delete it if every file below the folder counts",
            file=store.uri,
        )
    paths: list[str] = []
    for n, compact in batches_to_read:
        paths += _paths(store, f"{MANIFEST}/{n}{'.compact' if compact else ''}")
    return _as_keys(store, paths, keys)


def _batches(keys: Collection[str]) -> list[tuple[int, bool]]:
    return [(int(m[1]), m[2] is not None) for m in map(_BATCH.fullmatch, keys) if m]


def _paths(store: Store, key: str) -> list[str]:
    lines = store.read(key).to_pybytes().split(b"\n")
    try:
        if lines[0] != b"v1":
            raise ValueError(f"its version is {lines[0][:20]!r}")
        entries = [orjson.loads(line) for line in lines[1:] if line]
        return [unquote(urlsplit(e["path"]).path) for e in entries if e.get("action", "add") == "add"]
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise CorruptFileError(
            f"expected the list of files of a streaming sink: {e}",
            help=f"restore it, or delete {MANIFEST} if every file below the folder counts",
            file=f"{store.uri}/{key}",
        ) from e


def _as_keys(store: Store, paths: Sequence[str], keys: Collection[str]) -> frozenset[str]:
    """The paths below the folder; its former location follows from the first path."""
    if not paths:
        return frozenset()
    there = keys if isinstance(keys, (set, frozenset)) else set(keys)
    parts = paths[0].split("/")
    below = next((i for i in range(1, len(parts)) if "/".join(parts[i:]) in there), len(parts) - 1)
    root = "/".join(parts[:below]) + "/"
    keys_below = frozenset(p.removeprefix(root) for p in paths)
    missing = min(keys_below - there, default=None)
    if missing is not None:
        raise MissingFileError(
            f"a streaming sink's list names the file {missing!r}, which is not below the folder",
            help=f"restore the file, or delete {MANIFEST} if every file below the folder counts",
            file=f"{store.uri}/{MANIFEST}",
        )
    return keys_below
