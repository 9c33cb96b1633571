"""Checks of partition values: complete, valid, and consistent with folder names."""

from __future__ import annotations

import re
from collections.abc import Generator
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.protocol.partitions import HIVE_NULL, hive_directory, parse_values, partition_fields
from trilake.delta.protocol.schema import StructField
from trilake.delta.verify.context import DeltaContext
from trilake.errors import CorruptLogError
from trilake.table.findings import Finding

_HELP = "remove the files from the table, and write their rows again with correct values"


def _fields(table: DeltaContext) -> list[StructField]:
    snapshot = table.snapshot
    return partition_fields(snapshot.schema, snapshot.metadata.partition_columns)


def values(table: DeltaContext) -> Generator[Finding, None, int]:
    """Every file has a valid value for every partition column, and for no other column."""
    fields, adds = _fields(table), table.adds
    if not adds.num_rows:
        return 0
    maps = adds["partitionValues"]
    counts = pa.array(np.concatenate([np.diff(c.offsets.to_numpy()) for c in maps.chunks]))
    wrong = pc.not_equal(counts, len(fields))
    for f in fields:
        wrong = pc.or_(wrong, pc.is_null(pc.map_lookup(maps, pa.scalar(f.physical_name, pa.string()), "all")))
    for path in adds["file"].filter(wrong).to_pylist():
        names = ", ".join(f.physical_name for f in fields) or "none"
        yield _wrong(table, f"the file does not have exactly one value per partition column ({names})", path, None)
    for f in fields:
        strings = pc.map_lookup(maps, pa.scalar(f.physical_name, pa.string()), "first")
        try:
            parse_values(strings, f)
        except CorruptLogError:
            bad = [t for t in pc.unique(strings).to_pylist() if not _is_value(t, f)]
            hit = pc.is_in(strings, pa.array(bad, pa.string()))
            for path, string in zip(adds["file"].filter(hit).to_pylist(), strings.filter(hit).to_pylist(), strict=True):
                yield _wrong(table, f"the partition value {string!r:.100} is not of type {f.type}", path, f.name)
    return adds.num_rows if fields else 0


def _is_value(string: str | None, field: StructField) -> bool:
    try:
        parse_values(pa.chunked_array([[string]], pa.string()), field)
    except CorruptLogError:
        return False
    return True


def _wrong(table: DeltaContext, message: str, path: str, column: str | None) -> Finding:
    return table.finding("delta.partition-values-wrong", message, _HELP, file=path, column=column)


def paths(table: DeltaContext) -> Generator[Finding, None, int]:
    """A partition value in a folder name equals the value in the log, which readers use; so this is a warning."""
    adds, looked_at = table.adds, 0
    for f in _fields(table):
        name = re.escape(hive_directory({f.physical_name: "x"}).partition("=")[0])
        folder_values = pc.extract_regex(
            adds["file"], pattern=rf"(?:^|/){name}=(?P<v>[^/]*)/[^/]*$|(?:^|/){name}=(?P<w>[^/]*)/"
        )
        strings = pc.coalesce(
            _filled(pc.struct_field(folder_values, "v")),
            _filled(pc.struct_field(folder_values, "w")),
            pa.scalar("", pa.string()),
        )
        in_folder = pc.is_valid(folder_values)
        looked_at += int(pc.sum(in_folder).as_py() or 0)
        if not pc.any(in_folder).as_py():
            continue
        strings_in_log = pc.map_lookup(adds["partitionValues"], pa.scalar(f.physical_name, pa.string()), "first")
        pairs = pa.table({"folder": strings.filter(in_folder), "value": strings_in_log.filter(in_folder)})
        files = adds["file"].filter(in_folder)
        distinct = pairs.group_by(["folder", "value"]).aggregate([]).to_pylist()
        for pair in [p for p in distinct if not _same(p["folder"], p["value"], f)]:
            hit = pc.equal(pairs["folder"], pair["folder"])
            value = pa.scalar(pair["value"], pa.string())
            hit = pc.and_(hit, pc.is_null(pairs["value"]) if pair["value"] is None else pc.equal(pairs["value"], value))
            for path in files.filter(hit).to_pylist():
                yield table.finding(
                    "delta.partition-path-differs",
                    f"the file's folder says {f.name}={pair['folder']:.100}, but the log says {pair['value']!r:.100}",
                    "readers use the value in the log; check the rows to see which value is correct",
                    severity="warning",
                    file=path,
                    column=f.name,
                )
    return looked_at


def _filled(strings: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(pc.equal(strings, ""), pa.scalar(None, pa.string()), strings)


def _same(folder: str, value: str | None, field: StructField) -> bool:
    string = unquote(folder)
    if string == HIVE_NULL or string == "":
        return not value
    if value is None or value == "":
        return False
    if value in (string, folder):
        return True
    try:
        value_in_log, true = (parse_values(pa.chunked_array([[t]], pa.string()), field)[0] for t in (string, value))
    except CorruptLogError:
        return False
    return bool(value_in_log.equals(true))
