"""CONVERT TO DELTA: turn a folder of Parquet files into a table in place, without rewriting files.

The steps of a conversion::

    a log exists: nothing to do
    list files, without hidden ones and those that a streaming sink did not commit
      --> partition columns from folder names --> read footers, in parallel
      --> one schema over all --> one commit that names every file

An Iceberg table is converted from its metadata: :func:`conversion_plan`.

Stop all writers first: files written during the conversion may or may not become part of the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import unquote, urlsplit

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.display import Displayed
from trilake.common.extras import load
from trilake.common.progress import progress
from trilake.common.runtime import Runtime
from trilake.delta.commands.maintenance.convert_footers import Footer, FooterReader, merged_schema
from trilake.delta.commands.maintenance.convert_partitions import discover, with_partition_columns
from trilake.delta.commands.maintenance.vacuum_files import list_files, nested_tables
from trilake.delta.commands.rows.removal import add_with_vector
from trilake.delta.commands.rows.row_changes import VECTORS, Runner, run_here
from trilake.delta.commit.transaction import CommitPlan, commit
from trilake.delta.engine import Engine
from trilake.delta.files.file_plan import encode_path
from trilake.delta.files.new_location import check_new_location
from trilake.delta.log.log import DeltaLog
from trilake.delta.metadata.write_schema import new_table
from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.column_mapping import MODE, check_names
from trilake.delta.protocol.deletion_vectors import store_vectors
from trilake.delta.protocol.features import check_writable
from trilake.delta.protocol.partitions import HIVE_NULL, hive_directory
from trilake.delta.protocol.properties import FEATURE
from trilake.delta.protocol.schema import StructField, StructType, parse_schema
from trilake.delta.protocol.table_features.variant_shredding import ENABLED as VARIANT_SHREDDING
from trilake.errors import (
    CorruptFileError,
    ForeignFilesError,
    InvalidArgumentError,
    MissingFileError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
)
from trilake.storage.base import Store

if TYPE_CHECKING:
    from trilake.delta.iceberg.source import IcebergSource

MANIFEST = "_spark_metadata"
_BATCH = re.compile(rf"{MANIFEST}/([0-9]+)(\.compact)?")


def committed_files(store: Store, keys: Set[str]) -> frozenset[str] | None:
    r"""The files below a folder that the list of a streaming sink names; ``None`` without a list.

    ``keys`` are all files below the folder.  The list stays valid if the whole folder was moved.  Raises
    ``CorruptFileError`` for a malformed list or one with a gap, ``MissingFileError`` if a listed file does not exist.
    """
    batches = sorted((int(m[1]), m[2] is not None) for m in map(_BATCH.fullmatch, keys) if m)
    if not batches:
        return None
    newest = max((n for n, compact in batches if compact), default=-1)
    batches_to_read = [(n, compact) for n, compact in batches if n > newest or (n == newest and compact)]
    first = max(newest, 0)
    if [n for n, _ in batches_to_read] != list(range(first, first + len(batches_to_read))):
        raise CorruptFileError(
            "the file list of the streaming sink has a gap: it has only the batches"
            f" {', '.join(str(n) for n, _ in batches_to_read)[:200]}",
            help=f"restore {MANIFEST}, or delete it if every file in the folder belongs to the table",
            file=store.uri,
        )
    paths: list[str] = []
    for n, compact in batches_to_read:
        paths += _paths(store, f"{MANIFEST}/{n}{'.compact' if compact else ''}")
    committed, missing = _as_keys(paths, keys)
    if missing is not None:
        raise MissingFileError(
            f"the file list of the streaming sink names {missing!r}, which is not in the folder",
            help=f"restore the file, or delete {MANIFEST} if every file in the folder belongs to the table",
            file=f"{store.uri}/{MANIFEST}",
        )
    return committed


def _paths(store: Store, key: str) -> list[str]:
    lines = store.read(key).to_pybytes().split(b"\n")
    try:
        if lines[0] != b"v1":
            raise ValueError(f"unknown version {lines[0][:20]!r}")
        entries = [orjson.loads(line) for line in lines[1:] if line]
        return [unquote(urlsplit(e["path"]).path) for e in entries if e.get("action", "add") == "add"]
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise CorruptFileError(
            f"the file list of the streaming sink cannot be read: {e}",
            help=f"restore it, or delete {MANIFEST} if every file in the folder belongs to the table",
            file=f"{store.uri}/{key}",
        ) from e


def _as_keys(paths: Sequence[str], keys: Set[str]) -> tuple[frozenset[str], str | None]:
    """The paths relative to the folder with the files ``keys``, and one of them that is not among these.  The first
    path that is shows where the folder was when it was written."""
    tails = ((path, path[i + 1 :]) for path in paths for i, c in enumerate(path) if c == "/")
    root = next((path.removesuffix(tail) for path, tail in tails if tail in keys), "")
    keys_below = frozenset(p.removeprefix(root) for p in paths)
    return keys_below, min(keys_below - keys, default=None)


#: Names that Spark ignores when it lists data: unfinished files, names with a leading dot, and names with a leading
#: underscore, except folders of partition columns.
_HIDDEN = r"(^|/)\.|(^|/)_[^=/]*(/|$)|\._COPYING_$"
#: The fewest and most footers per task; large tasks cost less per footer.
_FEWEST, _MOST = 32, 512


@dataclass(frozen=True)
class ConvertResult(Displayed):
    """The result of a conversion: the version, whether it is new, and its numbers of files and rows.

    ``num_records`` and ``size`` (bytes) are 0 if the table existed.

    >>> import pyarrow as pa, pyarrow.parquet as pq, tempfile, trilake
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pq.write_table(pa.table({"n": [1, 2]}), f"{folder}/a.parquet")
    ...     done = trilake.convert_to_delta(folder)
    >>> done.version
    0
    """

    version: int
    converted: bool
    num_files: int
    num_records: int = 0
    size: int = 0


def convert_to_delta(
    store: Store,
    engine: Engine,
    *,
    partition_by: Sequence[str | StructField] | None = None,
    into: Store | None = None,
    collect_stats: bool = True,
    properties: Mapping[str, str] | None = None,
    timezone: str = "UTC",
    user_metadata: str | None = None,
    by_manifest: bool = True,
    source_format: Literal["parquet", "iceberg"] | None = None,
    filled: Mapping[str, str] | None = None,
    only: Sequence[str] | None = None,
    run: Runner = run_here,
) -> ConvertResult:
    """Make a table of the Parquet files below the root of ``store``; an existing Delta table stays unchanged.

    Parameters
    ----------
    partition_by: the partition columns, in the order of the folders: fields, or names whose types are inferred; by
        default all are inferred.
    into: another location for the log, which then references the files by absolute paths.
    collect_stats: whether footers' statistics go into the log; otherwise only row counts do.
    timezone: the zone of timestamps in folder names without one.
    by_manifest: in a folder that Spark's streaming sink wrote, take only the files in its list.
    source_format: the required format of the source; by default Iceberg if the folder has Iceberg metadata.
    filled: columns that every file must have: a file without such a column has this value there in the source, but
        null in a Delta table.
    only: absolute paths of the files to convert; by default all.

    Raises ``TableNotFoundError`` if there is no file, ``CorruptFileError`` for one that is not Parquet and for a
    malformed list of a sink, ``MissingFileError`` for a file in such a list that does not exist,
    ``SchemaMismatchError`` for incompatible files, ``InvalidArgumentError`` for contradictory folders.
    """
    runtime = engine.runtime
    if into is not None and into.uri == store.uri:
        into = None
    log = DeltaLog(into or store, engine, user_metadata=user_metadata)
    if (converted := _already(log)) is not None:
        return converted
    if into is not None:
        check_new_location(into, now_ms=runtime.clock_ms())
    source = _iceberg(store, source_format)
    if source is not None:
        if partition_by:
            raise InvalidArgumentError(
                "partition columns cannot be set for an Iceberg table, whose metadata defines them",
                help="leave partition_by out",
            )
        plan, rows = conversion_plan(source, into, properties or {}, runtime, collect_stats=collect_stats)
        return _committed(log, plan, rows)
    declared = [c if isinstance(c, str) else c.name for c in partition_by or ()]
    files = _data_files(store, declared, only, by_manifest=by_manifest)
    folders = pc.replace_substring_regex(files["path"], r"/?[^/]*$", "")
    partitions = discover(pc.unique(folders).to_pylist(), partition_by, timezone=timezone, uri=store.uri)
    reader = FooterReader(store, dict(properties or {}), collect_stats)
    size = min(max(_FEWEST, files.num_rows // 4), _MOST)
    chunks = [files["path"].slice(i, size).to_pylist() for i in range(0, files.num_rows, size)]
    by_path: dict[str, Footer] = {}
    with progress("convert", files.num_rows) as bar:
        for some in run(reader, chunks):
            by_path.update((f.key, f) for f in some)
            bar.advance(len(some))
    footers = [by_path[p] for p in files["path"].to_pylist()]
    distinct: dict[str, str] = {}
    for f in footers:
        distinct.setdefault(f.schema, f.key)
    schemas = [(key, parse_schema(schema_json)) for schema_json, key in distinct.items()]
    _check_filled(schemas, filled or {})
    data = merged_schema(schemas)
    if any(f.shredded for f in footers):
        shredding = {f"{FEATURE}variantShredding": "supported", VARIANT_SHREDDING: "true"}
        properties = {**shredding, **(properties or {})}
    protocol, metadata = new_table(
        with_partition_columns(data, partitions.fields),
        partition_by=[f.name for f in partitions.fields],
        properties=properties,
        provider="parquet",
        runtime=runtime,
    )
    if metadata.column_mapping_mode != "none":
        raise InvalidArgumentError(
            f"the columns in the files have no field ids, which column mapping mode {metadata.column_mapping_mode}"
            " requires",
            help="convert without delta.columnMapping.mode and set it on the table afterwards",
            condition="DELTA_CONVERSION_UNSUPPORTED_COLUMN_MAPPING",
        )
    check_names(metadata.schema, "none")
    check_writable(protocol, uri=log.store.uri, version=0)
    root = None if into is None else store.uri
    columns = [files[n].to_pylist() for n in files.column_names]
    adds = [
        _add(root, path, partitions.values[folder], size, modified, footer.stats)
        for path, size, modified, folder, footer in zip(*columns, folders.to_pylist(), footers, strict=True)
    ]
    names = [f.name for f in partitions.fields] if partition_by is not None else []
    plan = _plan(adds, protocol, metadata, names, "parquet", collect_stats=collect_stats, in_place=into is None)
    return _committed(log, plan, sum(f.rows for f in footers))


def _check_filled(schemas: Iterable[tuple[str, StructType]], filled: Mapping[str, str]) -> None:
    for key, schema in schemas:
        for name, value in filled.items():
            if schema.find(name) is None:
                raise SchemaMismatchError(
                    f"the rows of {key} have {value} in column {name}, which the file lacks; in a Delta table they"
                    " would have null",
                    help="rewrite the table first, for example with CREATE TABLE ... USING delta AS SELECT",
                    file=key,
                    column=name,
                )


def _add(
    root: str | None, path: str, partition: Mapping[str, str | None], size: int, modified_ms: int, stats: str
) -> dict[str, Any]:
    """The fields of an ``add``; ``root`` is the location of the files if the log is elsewhere."""
    return {
        "path": encode_path(path) if root is None else f"{root.rstrip('/')}/{encode_path(path)}",
        "partitionValues": dict(partition),
        "size": size,
        "modificationTime": modified_ms,
        "dataChange": True,
        "stats": stats,
    }


def _plan(
    adds: Sequence[Mapping[str, Any]],
    protocol: Protocol,
    metadata: Metadata,
    partition_by: Sequence[str],
    source_format: str,
    *,
    collect_stats: bool,
    in_place: bool,
) -> CommitPlan:
    return CommitPlan(
        operation="CONVERT",
        parameters={
            "numFiles": len(adds),
            "partitionedBy": partition_by,
            "collectStats": collect_stats,
            "sourceFormat": source_format,
        },
        file_actions=[{"add": add} for add in adds],
        metadata=metadata,
        protocol=protocol,
        metrics={"numConvertedFiles": len(adds)},
        among_files=in_place,
    )


def _committed(log: DeltaLog, plan: CommitPlan, rows: int) -> ConvertResult:
    try:
        version = commit(log, None, plan)
    except ForeignFilesError:
        raise
    except TableExistsError:
        return _already(log) or ConvertResult(0, False, 0)
    return ConvertResult(version, True, len(plan.file_actions), rows, sum(a["add"]["size"] for a in plan.file_actions))


def _iceberg(store: Store, source_format: Literal["parquet", "iceberg"] | None) -> IcebergSource | None:
    keys = [m.key for m in store.list("metadata") if m.key.endswith(".metadata.json")]
    if not keys and source_format == "iceberg":
        raise TableNotFoundError(
            "this is not an Iceberg table: metadata/ has no Iceberg metadata", help="check the path", file=store.uri
        )
    if not keys:
        return None
    if source_format == "parquet":
        raise InvalidArgumentError(
            "the folder is an Iceberg table: its live files cannot be distinguished from removed ones",
            help="convert the Iceberg table: CONVERT TO DELTA iceberg.`/path/to/table`",
            file=store.uri,
        )
    source = load("trilake.delta.iceberg.source", "Iceberg tables").iceberg_source(store)
    if source is None:
        raise CorruptFileError(
            "the names of the Iceberg metadata files have no version number", file=f"{store.uri}/{keys[0]}"
        )
    return cast("IcebergSource", source)


def _already(log: DeltaLog) -> ConvertResult | None:
    try:
        snapshot = log.snapshot()
    except TableNotFoundError:
        return None
    return ConvertResult(snapshot.version, False, snapshot.adds.num_rows)


def _data_files(
    store: Store, partition_columns: Sequence[str], only: Sequence[str] | None, *, by_manifest: bool
) -> pa.Table:
    listing = list_files(store)
    keys = frozenset(listing["path"].to_pylist())
    committed = committed_files(store, keys) if by_manifest else None
    if only is not None:
        committed, elsewhere = _as_keys(only, keys)
        if elsewhere is not None:
            raise InvalidArgumentError(
                f"the table has files outside of its folder: {elsewhere}",
                help="a partition has a LOCATION of its own: copy the rows instead, with CREATE TABLE ... USING delta"
                " AS SELECT",
                file=store.uri,
            )
    if committed is not None:
        listing = listing.filter(pc.is_in(listing["path"], pa.array(sorted(committed), pa.string())))
    inside = nested_tables(listing["path"])
    if inside:
        raise InvalidArgumentError(
            f"the folder {inside[0]!r} is a Delta table, or a table of another format: its live files cannot be"
            " distinguished from removed ones",
            help="move the table out, or convert the other folders separately",
            file=store.uri,
        )
    paths = listing["path"]
    for name in partition_columns:
        if name.startswith("."):  # folders of a declared column are not hidden
            folder = re.escape(hive_directory({name: None}).removesuffix(HIVE_NULL))
            paths = pc.replace_substring_regex(paths, rf"(^|/){folder}", r"\1=")
    files = listing.filter(pc.invert(pc.match_substring_regex(paths, _HIDDEN)))
    if not files.num_rows:
        raise TableNotFoundError(
            "there are no files to convert",
            help="check the path: the folder must contain Parquet files"
            if only is None
            else "the catalog lists no partition with files: run MSCK REPAIR TABLE first",
            file=store.uri,
            condition="DELTA_EMPTY_DIRECTORY" if only is None else "DELTA_CONVERSION_NO_PARTITION_FOUND",
        )
    return files


def conversion_plan(
    source: IcebergSource, into: Store | None, properties: Mapping[str, str], runtime: Runtime, *, collect_stats: bool
) -> tuple[CommitPlan, int]:
    """The commit that makes a table of an Iceberg snapshot, and its number of rows.

    The columns keep Iceberg's field ids.  Position deletes become deletion vectors, which are written here.
    """
    if properties.get(MODE, "id").lower() != "id":
        raise InvalidArgumentError(
            f"the columns of an Iceberg table are mapped by id, not by {properties[MODE]}",
            help=f"convert without {MODE}",
            condition="DELTA_CONVERSION_UNSUPPORTED_COLUMN_MAPPING",
        )
    partition_by = source.partition_columns()
    files = source.files()
    times = source.times(files)
    vectors = {} if not any(f.deleted for f in files) else {VECTORS: "true"}
    protocol, metadata = new_table(
        source.schema(),
        partition_by=partition_by,
        properties={**vectors, **properties, MODE: "id"},
        provider="parquet",
        runtime=runtime,
    )
    check_writable(protocol, uri=source.store.uri, version=0)
    root = None if into is None else source.store.uri
    adds = {
        f.key: _add(
            root, f.key, f.partition, f.size, times[f.key], f.stats if collect_stats else f'{{"numRecords":{f.rows}}}'
        )
        for f in files
    }
    deleted = {f.key: f.deleted for f in files if f.deleted}
    vector_fields = store_vectors(into or source.store, list(deleted.values()), runtime.new_id)
    for key, vector in zip(deleted, vector_fields, strict=True):
        adds[key] = add_with_vector(adds[key], vector)
    new = list(adds.values())
    plan = _plan(new, protocol, metadata, partition_by, "iceberg", collect_stats=collect_stats, in_place=into is None)
    return plan, sum(f.rows - len(f.deleted or ()) for f in files)
