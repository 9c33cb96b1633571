"""``write_fragments``: write data files to commit later."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal, overload

import pyarrow as pa

from trilake.common.arguments import flag
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.errors import InvalidArgumentError
from trilake.lance.commands.format_options import check_format, format_of
from trilake.lance.commands.fragment_writer import NullPolicy, Target, WriteOptions
from trilake.lance.commands.fragment_writer import write_fragments as write_files
from trilake.lance.commands.input_rows import stream
from trilake.lance.commands.open_dataset import OpenDataset, place_of
from trilake.lance.commands.write import with_bases_of
from trilake.lance.file.errors import NothingToWriteError
from trilake.lance.file.storage_version import DEFAULT
from trilake.lance.file.view import View
from trilake.lance.progress import Reporter
from trilake.lance.pylance.operation import LanceOperation, base_paths
from trilake.lance.pylance.transactions import Transaction
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions.fragment_metadata import FragmentMetadata
from trilake.lance.versions.manifest import Fragment
from trilake.lance.versions.versions import list_versions


def create_fragments(
    uri: str | os.PathLike[str] | OpenDataset,
    data: Any,
    schema: pa.Schema | None,
    options: WriteOptions,
    progress: Reporter,
    storage_options: Mapping[str, str] | None,
    mode: str,
) -> tuple[list[Fragment], pa.Schema, int]:
    """Write new fragments; returns them with their schema and the newest version (0 without a dataset)."""
    if mode not in ("create", "append", "overwrite"):
        raise InvalidArgumentError(f"mode must be create, append or overwrite, got {mode!r}")
    store, _ = place_of(uri, storage_options)
    rows_schema, batches = stream(data, schema)
    if not rows_schema.names:
        raise NothingToWriteError("the rows have no columns")
    manifest = Snapshot.open(store, SYSTEM_RUNTIME).manifest if list_versions(store).versions else None
    storage = options.storage_version or (DEFAULT if manifest is None else manifest.storage_version)
    target, version = Target.new(rows_schema, storage, nulls=options.nulls), 0
    if manifest is not None:
        version, options = manifest.version, with_bases_of(manifest, options, mode)
        # Compare user-visible columns, as null companions depend on the dataset.
        existing, names = View(manifest.schema).schema.names, target.view.schema.names
        if mode == "append" and (
            sorted(existing) == sorted(names) or (not storage.is_first and set(names) <= set(existing))
        ):
            target = Target.of(manifest.schema, storage, names, nulls=options.nulls)
    return write_files(store, batches, target, options, SYSTEM_RUNTIME, progress), rows_schema, version


@overload
def write_fragments(
    data: Any,
    dataset_uri: str | os.PathLike[str] | OpenDataset,
    schema: pa.Schema | None = None,
    *,
    return_transaction: Literal[False] = False,
    **options: Any,
) -> list[FragmentMetadata]: ...


@overload
def write_fragments(
    data: Any,
    dataset_uri: str | os.PathLike[str] | OpenDataset,
    schema: pa.Schema | None = None,
    *,
    return_transaction: Literal[True],
    **options: Any,
) -> Transaction: ...


def write_fragments(
    data: Any,
    dataset_uri: str | os.PathLike[str] | OpenDataset,
    schema: pa.Schema | None = None,
    *,
    return_transaction: bool = False,
    mode: str = "append",
    max_rows_per_file: int = 1 << 20,
    max_rows_per_group: int = 1024,
    max_bytes_per_file: int = 90 << 30,
    progress: Any = None,
    nulls: NullPolicy = "error",
    storage_options: Mapping[str, str] | None = None,
    **later: Any,
) -> list[FragmentMetadata] | Transaction:
    """Write rows to new data files without a commit.

    Parameters
    ----------
    data: see :func:`trilake.lance.commands.input_rows.stream`.
    dataset_uri: path, URI, or an open dataset; it need not exist.
    schema: schema of the rows.
    return_transaction: whether to return a transaction instead: an append, or an overwrite if ``mode`` is
        ``"overwrite"`` or the dataset does not exist.
    mode: ``"append"`` uses the field ids of the dataset if it has all columns; ``"create"`` and ``"overwrite"`` assign
        new ids, which only an overwrite can commit.
    max_rows_per_file, max_rows_per_group, max_bytes_per_file, nulls: see
        :class:`~trilake.lance.commands.fragment_writer.WriteOptions`.
    progress: an object with methods ``begin(fragment)`` and ``complete(fragment)``.
    storage_options: credentials, region and endpoint of the object store.
    later: see :func:`trilake.lance.pylance.functions.write_dataset`.

    Raises ``SchemaMismatchError``, ``WriteFailedError`` or ``NothingToWriteError``.

    >>> import pyarrow as pa
    >>> fragments = write_fragments(pa.table({"a": [1, 2]}), "memory://doc-write-fragments")
    >>> [fragment.physical_rows for fragment in fragments]
    [2]
    """
    format, bases = format_of(later), later.pop("initial_bases", None)
    check_format(later, of="write_fragments")
    flag("return_transaction", return_transaction)
    options = WriteOptions(
        max_rows_per_file, max_rows_per_group, max_bytes_per_file, nulls, bases=base_paths(bases), **format
    )
    written = create_fragments(dataset_uri, data, schema, options, Reporter(progress), storage_options, mode)
    fragments, rows_schema, version = [FragmentMetadata.of(f) for f in written[0]], *written[1:]
    if not return_transaction:
        return fragments
    if mode == "append" and version:
        return Transaction(version, LanceOperation.Append(fragments))
    return Transaction(version, LanceOperation.Overwrite(rows_schema, fragments, bases))
