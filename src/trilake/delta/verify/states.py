"""Compare two states of a table: that of a checkpoint or compaction file, and that of the commits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.text import plural
from trilake.delta.log.snapshot import State, file_keys
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.partitions import PartitionKeys, partition_fields
from trilake.delta.scan.statistics import record_counts
from trilake.errors import CorruptLogError
from trilake.expr.terms.engine import Query

#: Fields of a file action that never change.
_FIELDS = ("size", "modificationTime", "baseRowId", "defaultRowCommitVersion")
_SHOWN = 3


def differences(stated: State, true: State, query: Query, *, whole: bool) -> list[str]:
    """Where ``stated`` differs from ``true``; empty if they agree.

    A ``whole`` history, such as a checkpoint, may omit expired tombstones and transactions; a run of commits may not.
    """
    out = _files(stated.adds, true.adds, true.metadata, query)
    if whole:
        lost = _others(stated.removes, true.removes)
        out += [f"tombstones that are in no commit ({len(lost)}), such as {_some(lost)}"] if len(lost) else []
    else:
        out += _keys(stated.removes, true.removes, "tombstones")
    if (stated.protocol and stated.protocol.unordered) != (true.protocol and true.protocol.unordered):
        out.append("different protocol")
    if (stated.metadata and stated.metadata.to_json()) != (true.metadata and true.metadata.to_json()):
        out.append("different metadata")
    out += _named(stated.txns, true.txns, "version", "transactions", whole)
    out += _named(stated.domains, true.domains, "configuration", "metadata domains", False)
    return out


def _named(
    stated: Mapping[str, Mapping[str, Any]], true: Mapping[str, Mapping[str, Any]], field: str, what: str, expire: bool
) -> list[str]:
    stated_values, true_values = ({k: v.get(field) for k, v in m.items()} for m in (stated, true))
    if expire:
        true_values = {k: v for k, v in true_values.items() if k in stated_values}
    wrong = sorted(
        k
        for k in stated_values.keys() | true_values.keys()
        if stated_values.get(k) != true_values.get(k) or (k in stated_values) != (k in true_values)
    )
    return [f"different {what}: {', '.join(wrong[:_SHOWN])}"] if wrong else []


def _others(a: pa.Table, b: pa.Table) -> pa.ChunkedArray:
    keys = file_keys(a)
    return keys.filter(pc.invert(pc.is_in(keys, pc.unique(file_keys(b)))))


def _some(keys: pa.ChunkedArray) -> str:
    return ", ".join(k.partition("\x00")[0] for k in keys.slice(0, _SHOWN).to_pylist())


def _keys(stated: pa.Table, true: pa.Table, what: str) -> list[str]:
    out = []
    for keys, how in ((_others(true, stated), "lacks"), (_others(stated, true), "has too many")):
        if len(keys):
            out.append(f"it {how}: {len(keys):,} {what}, such as {_some(keys)}")
    return out


def _files(stated: pa.Table, true: pa.Table, metadata: Metadata | None, query: Query) -> list[str]:
    out = _keys(stated, true, "files")
    if stated.num_rows != len(pc.unique(file_keys(stated))):
        out.append("it lists files twice")
    # Both states of the same files, row by row.
    at = pc.index_in(file_keys(stated), pc.unique(file_keys(true)))
    both = pc.is_valid(at)
    stated_files, true_files = stated.filter(both), true.take(at.filter(both)) if true.num_rows else true.slice(0, 0)
    for name in _FIELDS:
        out += _unequal(stated_files[name], true_files[name], name)
    for name in ("sizeInBytes", "cardinality"):
        vectors = [pc.struct_field(t["deletionVector"], name) for t in (stated_files, true_files)]
        out += _unequal(vectors[0], vectors[1], f"deletionVector.{name}")
    if metadata is not None:
        out += _other_partitions(stated_files, true_files, metadata)
    counts = record_counts(stated_files, query), record_counts(true_files, query)
    in_both = pc.and_(pc.is_valid(counts[0]), pc.is_valid(counts[1]))
    return out + _unequal(counts[0].filter(in_both), counts[1].filter(in_both), "numRecords")


def _unequal(a: pa.ChunkedArray, b: pa.ChunkedArray, name: str) -> list[str]:
    same = pc.fill_null(pc.equal(a, b), False)
    same = pc.or_(same, pc.and_(pc.is_null(a), pc.is_null(b)))
    wrong = len(same) - int(pc.sum(same).as_py() or 0)
    return [f"{name} differs in {plural(wrong, 'file')}"] if wrong else []


def _other_partitions(stated: pa.Table, true: pa.Table, metadata: Metadata) -> list[str]:
    pair = stated["partitionValues"], true["partitionValues"]
    maps = pa.chunked_array([c for v in pair for c in v.chunks], pair[0].type)
    try:
        codes = PartitionKeys.of(maps, partition_fields(metadata.schema, metadata.partition_columns)).codes
    except CorruptLogError:
        return []  # another check reports it
    wrong = int((codes[: stated.num_rows] != codes[stated.num_rows :]).sum())
    return [f"partitionValues differ in {plural(wrong, 'file')}"] if wrong else []
