"""Checks of data files from outside: each is there, with its size, and its footer can be read."""

from __future__ import annotations

from collections.abc import Generator

import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.scan.read import locate
from trilake.delta.verify.context import DeltaContext
from trilake.findings import Finding
from trilake.storage.base import Store


def stored_sizes(table: DeltaContext) -> pa.ChunkedArray:
    """The size of each file of the version as the store has it, null where it is not there."""
    files: list[str] = table.adds["file"].to_pylist()
    return pa.chunked_array([pa.array(_sizes(table.store, files), pa.int64())])


def _sizes(store: Store, files: list[str]) -> list[int | None]:
    inside = {m.key: m.size for m in store.list()}
    out: list[int | None] = []
    for file in files:
        place, key = locate(store, file)
        if place is store:
            out.append(inside.get(key))
        else:
            from trilake.errors import ObjectNotFoundError

            try:
                out.append(place.head(key).size)
            except ObjectNotFoundError:
                out.append(None)
    return out


def present(table: DeltaContext) -> Generator[Finding, None, int]:
    """Every file that the version names is there."""
    files = table.adds["file"]
    missing = files.filter(pc.is_null(stored_sizes(table)))
    for chunk in missing.chunks:
        for path in chunk:
            yield Finding(
                "delta.file-missing",
                "a data file that the version names is not there: its rows cannot be read",
                "restore the file, or a version before it was named; or take the reference out of the table, which"
                " gives its rows up (trilake.repair with accept_loss)",
                file=path.as_py(),
                version=table.version,
                repair="delta.drop-missing-files",
            )
    return len(files)
