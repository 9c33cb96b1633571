"""Parquet files as a temporary Delta table that a clone can read."""

from __future__ import annotations

from collections.abc import Sequence

from trilake.delta.commands.maintenance.convert import convert_to_delta
from trilake.delta.commands.rows.row_changes import Runner, run_here
from trilake.delta.engine import Engine
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.protocol.schema import StructField
from trilake.errors import InvalidArgumentError
from trilake.storage.base import Store
from trilake.storage.memory import MemoryStore


def snapshot_of_parquet(
    store: Store,
    engine: Engine,
    *,
    partition_by: Sequence[str | StructField] = (),
    timezone: str = "UTC",
    run: Runner = run_here,
) -> Snapshot:
    """A table, with its log in memory, of the files below the root of ``store``.

    ``partition_by`` are the partition columns in the order of the folders.  Raises what
    :func:`~trilake.delta.commands.maintenance.convert.convert_to_delta` raises.
    """
    log = MemoryStore()
    convert_to_delta(store, engine, partition_by=partition_by, into=log, timezone=timezone, run=run)
    return DeltaLog(log, engine).snapshot()


def no_versions(name: Sequence[str]) -> InvalidArgumentError:
    """The error for a clone of Parquet files with ``VERSION AS OF``."""
    return InvalidArgumentError(
        f"{'.'.join(name)} holds Parquet files, which have no versions",
        help="leave the version out",
        condition="DELTA_CLONE_UNSUPPORTED_SOURCE",
    )
