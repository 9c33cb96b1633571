"""Which target takes the rows of a conversion, and whether it can."""

from __future__ import annotations

from collections.abc import Callable

from trilake.errors import InvalidArgumentError, TableExistsError
from trilake.storage.base import Store
from trilake.tools.convert.sources import PARQUET, Source, format_at
from trilake.tools.convert.targets.delta import delta_target
from trilake.tools.convert.targets.lance import lance_target
from trilake.tools.convert.targets.parquet_folder import parquet_target
from trilake.tools.convert.targets.target import Target, TargetRequest
from trilake.tools.convert.targets.trevni import trevni_target

_MAKE: dict[str, Callable[[Store, Source, TargetRequest, bool], Target]] = {
    "delta": delta_target,
    "lance": lance_target,
    "trevni": trevni_target,
    PARQUET: parquet_target,
}


def begin(store: Store, source: Source, request: TargetRequest) -> Target:
    """Look at what is there, and whether it can take the rows; nothing is written.

    Raises ``TableExistsError``, ``SchemaMismatchError``, ``InvalidArgumentError`` and ``UnsupportedProtocolError``.
    """
    if request.mode not in ("error", "append", "overwrite"):
        raise InvalidArgumentError(f"mode {request.mode!r} is unknown", help="modes are append, error, overwrite")
    if request.data_format is not None and request.format != "delta":
        raise InvalidArgumentError("data_format is the format of a Delta table's files", help="leave it out")
    unknown = [c for c in request.partition_by or () if c not in source.schema.names]
    if unknown:
        raise InvalidArgumentError(
            f"partition_by names {', '.join(map(repr, unknown))}, which is no column of the rows",
            help=f"the columns are {', '.join(source.schema.names)}",
        )
    there = format_at(store)
    if there is not None and there != request.format:
        raise TableExistsError(
            f"{there} files are there",
            help="convert to another location, or remove them if a write that failed has left them",
            file=store.uri,
        )
    return _MAKE[request.format](store, source, request, there is not None)
