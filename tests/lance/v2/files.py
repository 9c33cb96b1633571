"""Helpers for data file tests: columns along axes, files written by trilake and read by Lance."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import lance
import lance.file
import lance.fragment
import numpy as np
import pyarrow as pa

from trilake.lance.file.schema import LanceSchema
from trilake.lance.v2.writer import V2Writer, WrittenFile
from trilake.storage import open_store

#: Patterns of nulls.
NULLS = ("none", "some", "one", "all")


def nulls(pattern: str, rows: int) -> Any:
    """A mask of the rows that are null."""
    if pattern == "some":
        return np.random.default_rng(rows).random(rows) < 0.3
    return np.arange(rows) == rows // 2 if pattern == "one" else np.full(rows, pattern == "all")


@cache
def column(type: pa.DataType, rows: int, pattern: str = "none", *, seed: int = 0) -> pa.Array:
    """Values of a type; nested ones have nulls and empty lists if the pattern has some."""
    rng = np.random.default_rng([seed, rows])
    return pa.array(
        [
            None if null else value(type, rng, pattern != "none" and type.num_fields > 0)
            for null in nulls(pattern, rows).tolist()
        ],
        type,
    )


def value(type: pa.DataType, rng: np.random.Generator, sparse: bool) -> Any:
    """One value; with ``sparse``, parts of it may be null."""

    def part(of: pa.Field) -> Any:
        return None if sparse and of.nullable and rng.random() < 0.2 else value(of.type, rng, sparse)

    match type.id:
        case pa.lib.Type_BOOL:
            return bool(rng.random() < 0.5)
        case pa.lib.Type_HALF_FLOAT:
            return np.float16(rng.random())
        case pa.lib.Type_FLOAT | pa.lib.Type_DOUBLE:
            return float(np.float32(rng.random()))
        case pa.lib.Type_STRING | pa.lib.Type_LARGE_STRING:
            return "".join(map(chr, rng.integers(97, 123, rng.integers(0, 9)))) + "é" * int(rng.integers(0, 2))
        case pa.lib.Type_BINARY | pa.lib.Type_LARGE_BINARY:
            return rng.bytes(int(rng.integers(0, 12)))
        case pa.lib.Type_FIXED_SIZE_BINARY:
            return rng.bytes(type.byte_width)
        case pa.lib.Type_DECIMAL128 | pa.lib.Type_DECIMAL256:
            return decimal.Decimal(int(rng.integers(-(10**9), 10**9))).scaleb(-type.scale)
        case pa.lib.Type_DATE32 | pa.lib.Type_DATE64:
            return dt.date(1970, 1, 1) + dt.timedelta(int(rng.integers(-9999, 9999)))
        case pa.lib.Type_LIST | pa.lib.Type_LARGE_LIST:
            return [part(type.value_field) for _ in range(rng.integers(0 if sparse else 1, 4))]
        case pa.lib.Type_FIXED_SIZE_LIST:
            return [part(type.value_field) for _ in range(type.list_size)]
        case pa.lib.Type_MAP:
            keys = {value(type.key_type, rng, False) for _ in range(rng.integers(0, 4))}
            return [(key, part(type.item_field)) for key in sorted(keys)]
        case pa.lib.Type_STRUCT:
            return {field.name: part(field) for field in type}
        case pa.lib.Type_DICTIONARY:
            return f"word {rng.integers(0, 9)}" if pa.types.is_string(type.value_type) else int(rng.integers(0, 9))
        case pa.lib.Type_NA:
            return None
    bits = type.bit_width - (0 if pa.types.is_unsigned_integer(type) else 1)
    number = int(rng.integers(0, 1 << min(bits, 40)))
    return (
        number
        if pa.types.is_integer(type)
        else pa.scalar(number % 86_400, pa.int64()).cast(type).as_py()
        if type.bit_width == 64
        else pa.scalar(number % 86_400, pa.int32()).cast(type).as_py()
    )


def write(
    folder: Path, table: pa.Table, version: str = "2.2", *, batch_rows: int | None = None, **options: Any
) -> tuple[str, WrittenFile]:
    """Write a file; return its path and the writer's result."""
    with V2Writer(
        open_store(str(folder)),
        "x.lance",
        LanceSchema.from_arrow(table.schema),
        version=(int(version[0]), int(version[2])),
        **options,
    ) as writer:
        for batch in table.to_batches(max_chunksize=batch_rows):
            writer.write(batch)
    return str(folder / "x.lance"), writer.close()


def write_dataset(folder: Path, table: pa.Table, version: str = "2.2", **options: Any) -> lance.LanceDataset:
    """A Lance dataset whose only data file is written by trilake."""
    _, written = write(folder / "data", table, version, **options)
    file = lance.fragment.DataFile(
        path="x.lance",
        fields=list(written.field_ids),
        column_indices=list(written.column_indices),
        file_major_version=written.version[0],
        file_minor_version=written.version[1],
        file_size_bytes=written.size,
    )
    fragment = lance.FragmentMetadata(id=0, files=[file], physical_rows=written.rows)
    operation = lance.LanceOperation.Overwrite(table.schema, [fragment])
    return lance.LanceDataset.commit(str(folder), operation)


def read(path: str) -> pa.Table:
    """The rows as Lance itself reads them."""
    return lance.file.LanceFileReader(path).read_all(batch_size=4096).to_table()


def differences(expected: pa.Table, actual: pa.Table) -> Iterator[str]:
    """The columns that differ bit by bit, each with its first different row."""
    if expected.schema.names != actual.schema.names or expected.num_rows != actual.num_rows:
        yield f"{expected.schema.names} x {expected.num_rows} is not {actual.schema.names} x {actual.num_rows}"
        return
    for name, a, b in zip(expected.schema.names, expected.columns, actual.columns, strict=True):
        if a.type != b.type:
            yield f"{name}: {a.type} is not {b.type}"
        elif not a.equals(b):
            pairs = enumerate(zip(a.to_pylist(), b.to_pylist(), strict=True))
            row, pair = next(((i, p) for i, p in pairs if repr(p[0]) != repr(p[1])), (None, None))
            if row is not None:
                yield f"{name}: row {row}: {pair}"
