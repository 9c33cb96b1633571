"""``add.stats_parsed`` and ``add.partitionValues_parsed`` of checkpoints: convert from and to JSON.

Protocol: *Checkpoint Format* and *Per-file Statistics*.  Fields carry physical names.  A statistic becomes null, which
readers take as "unknown", if JSON cannot express it exactly in the column's type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from trilake.common.text import double_quoted
from trilake.delta.protocol.partitions import partition_fields, typed_partitions
from trilake.delta.protocol.properties import TableProperties
from trilake.delta.protocol.schema import PrimitiveType, StructField, StructType
from trilake.delta.protocol.schema_edit import split_names
from trilake.expr.terms.engine import Query

#: Digits of a JSON number that survive DuckDB's parser, which reads doubles.
_SAFE_DIGITS = 15


@dataclass(frozen=True)
class _Node:
    name: str
    children: tuple[_Node, ...] = ()
    leaf: PrimitiveType | None = None

    def structure(self, *, bounds: bool) -> Any:
        """The structure argument of DuckDB's ``json_transform``."""
        if self.children:
            return {c.name: c.structure(bounds=bounds) for c in self.children}
        if not bounds:
            return "BIGINT"
        assert self.leaf is not None
        return self.leaf.traits.bounds

    def arrow(self, *, bounds: bool) -> pa.DataType:
        if self.children:
            return pa.struct([pa.field(c.name, c.arrow(bounds=bounds)) for c in self.children])
        assert not bounds or self.leaf is not None
        return self.leaf.arrow if bounds and self.leaf is not None else pa.int64()


def indexed_paths(schema: StructType, partition: tuple[str, ...], configuration: Mapping[str, str]) -> set[str]:
    """The columns that have statistics, as dotted display paths in lower case.

    ``delta.dataSkippingStatsColumns`` names them, where a struct stands for all its fields; without it, they are the
    first ``delta.dataSkippingNumIndexedCols`` columns (default 32; negative for all).

    >>> schema = StructType((StructField("a", PrimitiveType("long")), StructField("b", PrimitiveType("long"))))
    >>> sorted(indexed_paths(schema, (), {"delta.dataSkippingNumIndexedCols": "1"}))
    ['a']
    """
    parted = {p.lower() for p in partition}
    leaves = [".".join(path).lower() for path, _ in schema.leaves() if path[0].lower() not in parted]
    names = configuration.get("delta.dataSkippingStatsColumns")
    if names:
        names_lower = [".".join(path).lower() for path in split_names(names)]
        return {p for p in leaves if any(p == c or p.startswith(f"{c}.") for c in names_lower)}
    count = TableProperties(configuration).indexed_columns()
    return set(leaves if count < 0 else leaves[:count])


def _nodes(fields: tuple[StructField, ...], indexed: set[str], prefix: str, *, bounds: bool) -> Iterator[_Node]:
    names_lower: set[str] = set()
    for f in fields:
        path, name = prefix + f.name.lower(), f.physical_name
        if not name or name.lower() in names_lower:  # the parser ignores case
            continue
        names_lower.add(name.lower())
        if isinstance(f.type, StructType):
            children = tuple(_nodes(f.type.fields, indexed, f"{path}.", bounds=bounds))
            if children:
                yield _Node(name, children)
        elif path in indexed:
            leaf = f.type if isinstance(f.type, PrimitiveType) else None
            if not bounds or (leaf is not None and leaf.traits.bounds is not None):
                yield _Node(name, (), leaf)


class StatsParser:
    """Converts JSON statistics to the struct ``stats_parsed`` of one table.

    >>> from trilake.delta.engine import Engine
    >>> schema = StructType((StructField("a", PrimitiveType("long")),))
    >>> stats = pa.chunked_array([['{"numRecords":2,"minValues":{"a":1},"maxValues":{"a":3},"nullCount":{"a":0}}']])
    >>> parsed = StatsParser(schema, (), {}, Engine().query).parse(stats).to_pylist()[0]
    >>> parsed["numRecords"], parsed["minValues"], parsed["maxValues"], parsed["nullCount"]
    (2, {'a': 1}, {'a': 3}, {'a': 0})
    """

    def __init__(
        self, schema: StructType, partition: tuple[str, ...], configuration: Mapping[str, str], query: Query
    ) -> None:
        self._query = query
        indexed = indexed_paths(schema, partition, configuration)
        bounds = tuple(_nodes(schema.fields, indexed, "", bounds=True))
        counts = tuple(_nodes(schema.fields, indexed, "", bounds=False))
        structure: dict[str, Any] = {"numRecords": "BIGINT", "tightBounds": "BOOLEAN"}
        fields = [pa.field("numRecords", pa.int64()), pa.field("tightBounds", pa.bool_())]
        select = ['"numRecords" := j."numRecords"', '"tightBounds" := j."tightBounds"']
        for name, nodes in (("minValues", bounds), ("maxValues", bounds), ("nullCount", counts)):
            bounded = nodes is bounds
            if nodes:
                node = _Node(name, nodes)
                structure[name] = node.structure(bounds=bounded)
                type_ = node.arrow(bounds=bounded)
                fields.append(pa.field(name, type_))
                select.append(f'"{name}" := {_each_leaf(f"j.{name}", type_, _exact) if bounded else f"j.{name}"}')
        #: The Arrow type of ``stats_parsed``.
        self.type = pa.struct(fields)
        self._structure = orjson.dumps(structure).decode().replace("'", "''")
        self._select = f"struct_pack({', '.join(select)})"

    def parse(self, strings: pa.ChunkedArray) -> pa.ChunkedArray:
        """One struct per string, null for null and for anything but a JSON object."""
        rows = self._query(
            f"select case when j is null then null else {self._select} end as v from"
            f" (select json_transform(case when json_valid(s) then s end, '{self._structure}') as j from t)",
            t=pa.table({"s": strings}),
        )["v"]
        return rows.cast(self.type)


def _each_leaf(sql: str, type_: pa.DataType, leaf: Callable[[str, pa.DataType], str]) -> str:
    """``sql`` with each value that is not a struct converted by ``leaf``."""
    if not pa.types.is_struct(type_):
        return leaf(sql, type_)
    if not type_.num_fields:
        return "null"
    inner = ", ".join(
        f"{double_quoted(f.name)} := {_each_leaf(f'{sql}.{double_quoted(f.name)}', f.type, leaf)}" for f in type_
    )
    return f"case when {sql} is null then null else struct_pack({inner}) end"


def _exact(sql: str, target: pa.DataType) -> str:
    """A bound as a value of its column's type, null if JSON may have lost precision."""
    if pa.types.is_decimal(target):
        limit = 10.0 ** (min(_SAFE_DIGITS, target.precision) - target.scale)
        cast = f"try_cast({sql} as DECIMAL({target.precision},{target.scale}))"
        return f"case when abs({sql}) < {limit!r} then {cast} end"
    return _finite(sql) if pa.types.is_floating(target) else sql


def _finite(sql: str) -> str:
    return f"case when isfinite({sql}) then {sql} end"


def stats_json(parsed: pa.ChunkedArray, query: Query) -> pa.ChunkedArray:
    """Convert ``stats_parsed`` to the JSON strings of ``stats``; null stays null."""
    ready = _each_leaf("s", parsed.type, _json_ready)
    return query(
        f"select case when s is null then null else to_json({ready})::varchar end as v from t",
        t=pa.table({"s": parsed}),
    )["v"].cast(pa.string())


def _json_ready(sql: str, type_: pa.DataType) -> str:
    """A value as JSON can express it; if not, as the string that the protocol prescribes."""
    if pa.types.is_timestamp(type_):
        return f"strftime({sql}, '%Y-%m-%dT%H:%M:%S.%f{'Z' if type_.tz else ''}')"
    return _finite(sql) if pa.types.is_floating(type_) else sql


def partition_type(schema: StructType, partition: tuple[str, ...]) -> pa.StructType:
    """The Arrow type of ``partitionValues_parsed``."""
    fields = partition_fields(schema, partition)
    return pa.struct([pa.field(f.physical_name, f.type.arrow) for f in fields])


def parse_partition_values(adds: pa.Table, schema: StructType, partition: tuple[str, ...]) -> pa.StructArray:
    """Compute ``partitionValues_parsed`` of files.  Raises ``CorruptLogError`` for a value of another type."""
    fields = partition_fields(schema, partition)
    values = typed_partitions(adds, fields)
    target = partition_type(schema, partition)
    arrays = [values[f.name].combine_chunks().cast(t.type) for f, t in zip(fields, target, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=list(target))
