"""Data files of versions 2.x: what is written here, Lance itself reads."""

from __future__ import annotations

from pathlib import Path

import lance.file
import pyarrow as pa
import pytest

from tests.lance.v2.files import NULLS, column, differences, read, write

VERSIONS = ("2.1", "2.2")
INT, TEXT = pa.int32(), pa.string()
TYPES: dict[str, pa.DataType] = {
    **{str(t): t for t in (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64())},
    **{str(t): t for t in (pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.null())},
    **{str(t): t for t in (TEXT, pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(5), pa.binary(300))},
    **{str(t): t for t in (pa.date32(), pa.date64(), pa.time32("ms"), pa.time64("ns"), pa.duration("us"))},
    **{str(t): t for t in (pa.timestamp("s"), pa.timestamp("ns", "+02:00"), pa.decimal128(20, 3))},
    "decimal256": pa.decimal256(50, 0),
    "dictionary": pa.dictionary(pa.int8(), TEXT),
    "dictionary of numbers": pa.dictionary(pa.int32(), pa.int64()),
    "vector": pa.list_(pa.float32(), 4),
    "wide vector": pa.list_(pa.float32(), 100),
    "flags": pa.list_(pa.bool_(), 5),
    "list": pa.list_(INT),
    "large list": pa.large_list(TEXT),
    "lists": pa.list_(pa.list_(TEXT)),
    "three lists": pa.list_(pa.list_(pa.list_(INT))),
    "list of vectors": pa.list_(pa.list_(pa.float32(), 3)),
    "list of wide binaries": pa.list_(pa.binary(300)),
    "list of bools": pa.list_(pa.bool_()),
    "struct": pa.struct({"a": INT, "b": TEXT}),
    "structs": pa.struct({"a": pa.struct({"b": INT, "c": pa.struct({"d": TEXT})})}),
    "struct of list": pa.struct({"a": pa.list_(INT), "b": INT}),
    "list of struct": pa.list_(pa.struct({"a": INT, "b": TEXT})),
    "list of struct of list": pa.list_(pa.struct({"a": pa.list_(INT), "b": TEXT})),
    "struct of list of struct of list": pa.struct({"a": pa.list_(pa.struct({"b": pa.list_(TEXT)}))}),
    "list of dictionaries": pa.list_(pa.dictionary(pa.int8(), TEXT)),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("pattern", NULLS)
def test_every_type_is_read_back(tmp_path: Path, version: str, pattern: str) -> None:
    for rows in (1, 7, 1500):
        table = pa.table({name: column(type, rows, pattern) for name, type in TYPES.items()})
        path, written = write(tmp_path, table, version)
        assert not list(differences(table, read(path)))
        assert (written.rows, written.version) == (rows, tuple(map(int, version.split("."))))
        assert lance.file.LanceFileReader(path).metadata().num_rows == rows
