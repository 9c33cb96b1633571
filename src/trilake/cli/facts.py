"""What there is to say about a table of each format, as plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trilake.cli.values import objects
from trilake.delta.log.clustering import clustering_columns
from trilake.delta.scan.scan import stated_rows, vector_count
from trilake.lance.versions.versions import read_tags
from trilake.table.table import Table


def table_facts(table: Table) -> dict[str, Any]:
    """What a table is.  The first keys are those of every format; ``rows`` is ``None`` where no metadata says it."""
    return _FACTS[table.format](table)


def _common(table: Table, timestamp: Any, rows: int | None, files: pa.Table, partitions: list[str]) -> dict[str, Any]:
    return {
        "uri": table.uri,
        "format": table.format,
        "version": table.version,
        "timestamp": timestamp,
        "rows": rows,
        "files": files.num_rows,
        "size": int(pc.sum(files["size"]).as_py() or 0),
        "columns": len(table.schema),
        "partition_columns": partitions,
    }


def _delta(table: Any) -> dict[str, Any]:

    detail = next(objects(table.detail()))
    files = table.files()
    deleted = vector_count(
        files.rename_columns(["deletionVector" if n == "deletion_vector" else n for n in files.column_names])
    )
    rows = stated_rows(files["num_records"], files["deletion_vector"])
    return {
        **_common(table, detail["lastModified"], rows, files, detail["partitionColumns"]),
        "deleted_rows": deleted,
        "clustering_columns": detail["clusteringColumns"],
        "name": detail["name"],
        "description": detail["description"],
        "id": detail["id"],
        "created": detail["createdAt"],
        "data_format": table.metadata.provider,
        "min_reader_version": detail["minReaderVersion"],
        "min_writer_version": detail["minWriterVersion"],
        "features": detail["tableFeatures"],
        "properties": {p["key"]: p["value"] for p in detail["properties"]},
    }


def _lance(table: Any) -> dict[str, Any]:
    from trilake.lance.commands.indices import list_indices

    snapshot, files = table.snapshot, table.files()
    manifest, rows = snapshot.manifest, table.count()
    physical = sum(reader.physical_rows for reader in snapshot.readers)
    time = next(objects(pa.table({"t": pa.array([manifest.timestamp_ns], pa.timestamp("ns", "UTC"))})))["t"]
    return {
        **_common(table, time, rows, files, []),
        "deleted_rows": physical - rows,
        "fragments": len(manifest.fragments),
        "indices": [f"{i['name']} ({i['type']}) on {', '.join(i['fields'])}" for i in list_indices(snapshot)],
        "tags": {name: tag.version for name, tag in read_tags(snapshot.store).items()},
        "writer": None if manifest.writer_version is None else " ".join(manifest.writer_version),
    }


def _trevni(table: Any) -> dict[str, Any]:
    files = table.files()
    return _common(table, None, int(pc.sum(files["num_records"]).as_py() or 0), files, table.partition_names)


_FACTS: dict[str, Callable[[Any], dict[str, Any]]] = {"delta": _delta, "lance": _lance, "trevni": _trevni}


def columns_of(table: Table) -> Iterator[dict[str, Any]]:
    """The columns: ``name``, ``type`` in the format's own words, ``nullable``, ``role``, ``comment``, ``metadata``."""
    if table.format == "delta":
        yield from _delta_columns(table)
        return
    partitions = set(getattr(table, "partition_names", ()))
    for field in table.schema:
        metadata = {k.decode(errors="replace"): v.decode(errors="replace") for k, v in (field.metadata or {}).items()}
        yield {
            "name": field.name,
            "type": str(field.type),
            "nullable": field.nullable,
            "role": "partition" if field.name in partitions else None,
            "comment": metadata.get("comment"),
            "metadata": metadata,
        }


def _delta_columns(table: Any) -> Iterator[dict[str, Any]]:

    clustered = {path[0] for path in clustering_columns(table.snapshot) if len(path) == 1}
    for field in table.snapshot.schema.fields:
        partition = field.name in table.metadata.partition_columns
        yield {
            "name": field.name,
            "type": str(field.type),
            "nullable": field.nullable,
            "role": "partition" if partition else "clustering" if field.name in clustered else None,
            "comment": field.metadata.get("comment"),
            "metadata": dict(field.metadata),
        }
