"""``dataset`` and ``write_dataset``: open and write datasets."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Mapping
from typing import Any, cast

import pyarrow as pa

from trilake.errors import InvalidArgumentError
from trilake.lance.auto_cleanup import after_commit, config_of
from trilake.lance.commands import input_rows
from trilake.lance.commands.format_options import check_format, format_of, properties_of
from trilake.lance.commands.fragment_writer import NullPolicy, WriteOptions
from trilake.lance.commands.open_dataset import place_of
from trilake.lance.commands.write import Mode, write
from trilake.lance.commit import runtime_with
from trilake.lance.file.errors import DatasetVersionNotFoundError, WrongTypeError
from trilake.lance.progress import Reporter
from trilake.lance.pylance.lance_dataset import LanceDataset
from trilake.lance.pylance.operation import base_paths
from trilake.lance.pylance.tags import Reference
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.util import sanitize_ts


def dataset(
    uri: str | os.PathLike[str],
    version: Reference = None,
    asof: dt.datetime | str | None = None,
    block_size: int | None = None,
    commit_lock: Any = None,
    index_cache_size: int | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
    default_scan_options: Mapping[str, Any] | None = None,
    nulls: NullPolicy = "error",
    **later: Any,
) -> LanceDataset:
    """Open a dataset.

    Parameters
    ----------
    uri: a path, a ``file:`` or object store URI (``s3://``), or ``memory://name``.
    version: number or tag, by default the newest version.
    asof: open the version that was current at this time, local time if naive; excludes ``version``.
    block_size: accepted for compatibility.
    commit_lock, index_cache_size, storage_options, default_scan_options, nulls: see :class:`LanceDataset`.
    later: options of newer pylance releases; raises for unsupported ones.

    Raises ``TableNotFoundError`` and ``VersionNotFoundError``.

    >>> import pyarrow as pa
    >>> _ = write_dataset(pa.table({"a": [1]}), "memory://doc-lance-dataset")
    >>> _ = write_dataset(pa.table({"a": [2]}), "memory://doc-lance-dataset", mode="append")
    >>> [dataset("memory://doc-lance-dataset", version=version).count_rows() for version in (None, 1)]
    [2, 1]
    """
    del block_size
    check_format(later, of="dataset")
    if version is not None and asof is not None:
        raise InvalidArgumentError("version and asof cannot be used together", help="pass only one of them")
    opened = LanceDataset(
        uri,
        version,
        index_cache_size=index_cache_size,
        commit_lock=commit_lock,
        storage_options=storage_options,
        default_scan_options=default_scan_options,
        nulls=nulls,
    )
    if asof is None:
        return opened
    limit = sanitize_ts(asof)
    before = [v["version"] for v in opened.versions() if v["timestamp"] < limit]
    if not before:
        raise DatasetVersionNotFoundError(
            f"asof is {limit}, which is before the first version of this dataset", file=os.fspath(uri)
        )
    return opened.checkout_version(max(before))


def write_dataset(
    data_obj: Any,
    uri: str | os.PathLike[str] | LanceDataset,
    schema: pa.Schema | None = None,
    mode: Mode = "create",
    *,
    max_rows_per_file: int = 1 << 20,
    max_rows_per_group: int = 1024,
    max_bytes_per_file: int = 90 << 30,
    commit_lock: Any = None,
    progress: Any = None,
    nulls: NullPolicy = "error",
    storage_options: Mapping[str, str] | None = None,
    **later: Any,
) -> LanceDataset:
    """Write rows as a new version.

    Parameters
    ----------
    data_obj: see :func:`trilake.lance.commands.input_rows.stream`.
    uri: path, URI, or an open dataset.
    schema: schema of the rows, if the input has none.
    mode: ``"create"`` fails if the dataset exists, ``"append"`` adds rows, ``"overwrite"`` replaces all rows.
    max_rows_per_file, max_rows_per_group, max_bytes_per_file, nulls: see
        :class:`~trilake.lance.commands.fragment_writer.WriteOptions`.
    commit_lock: lock for the commit; see :class:`LanceDataset`.
    progress: an object with methods ``begin(fragment)`` and ``complete(fragment)``.
    storage_options: credentials, region and endpoint of the object store.
    later: for new datasets ``data_storage_version`` (``"2.2"``, the default and ``"stable"``; ``"2.1"``, ``"2.0"`` or
        ``"legacy"``), ``enable_v2_manifest_paths``, ``enable_stable_row_ids``, ``auto_cleanup_options`` (see
        :mod:`trilake.lance.auto_cleanup`) and ``initial_bases``, a list of
        :class:`~trilake.lance.pylance.operation.DatasetBasePath`.  For all writes ``target_bases`` or
        ``target_all_bases`` (see :class:`~trilake.lance.commands.fragment_writer.WriteOptions`), ``commit_message``,
        ``transaction_properties``, ``external_blob_mode`` (``"ingest"`` copies blobs given by URI) and
        ``allow_external_blob_outside_bases``; by default the URIs of blobs must be below a base.

    Raises ``TableExistsError``, ``SchemaMismatchError``, ``ConflictError`` or ``WriteFailedError``.

    >>> import pyarrow as pa
    >>> write_dataset(pa.table({"a": [1]}), "memory://doc-write-lance", mode="overwrite").count_rows()
    1
    """
    if not isinstance(mode, str):
        raise WrongTypeError(f"mode must be create, append or overwrite, got {mode!r}")
    format, properties = format_of(later), properties_of(later)
    config, bases = config_of(later.pop("auto_cleanup_options", None)), base_paths(later.pop("initial_bases", None))
    check_format(later, of="write_dataset")
    runtime = runtime_with(commit_lock)
    store, where = place_of(uri, storage_options)
    rows_schema, batches = input_rows.stream(data_obj, schema)
    options = WriteOptions(
        max_rows_per_file,
        max_rows_per_group,
        max_bytes_per_file,
        nulls,
        properties=properties,
        config=config,
        bases=bases,
        partial=True,
        **format,
    )
    input_rows.check_metadata(rows_schema)
    reporter = None if progress is None else Reporter(progress)
    snapshot = write(store, rows_schema, batches, cast(Mode, mode.lower()), runtime, options, progress=reporter)
    after_commit(snapshot)
    return LanceDataset.of(Snapshot(store, snapshot.manifest, runtime_with(None)), where, nulls)
