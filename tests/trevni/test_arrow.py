"""Arrow tables round-trip through Trevni files."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import trilake
from tests.trevni.strategies import tables
from trilake.trevni import TrevniFile, write

SLOW = settings(
    max_examples=40,
    phases=[Phase.generate, Phase.shrink],
    report_multiple_bugs=False,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def written(data: object, **options: object) -> TrevniFile:
    sink = io.BytesIO()
    write(data, sink, **options)
    return TrevniFile(sink.getvalue())


def same(found: pa.Table, table: pa.Table) -> None:
    found.validate(full=True)
    assert found.schema.equals(table.schema, check_metadata=True)
    # Dictionaries may be rebuilt, so values are compared instead of encodings.
    assert found.to_pylist() == table.to_pylist()


def test_unions_in_null_structs_of_runs_round_trip(tmp_path: Path) -> None:
    """The file could not be read: the union of the null struct had no branch."""
    union = pa.dense_union([pa.field("a", pa.bool_(), nullable=False)], [0])
    type_ = pa.struct([pa.field("u", union, nullable=False)])
    buffers = [None, pa.py_buffer(bytes(1)), pa.py_buffer(bytes(4))]
    child = pa.Array.from_buffers(union, 1, buffers, children=[pa.array([None], pa.bool_())])
    null = pa.StructArray.from_buffers(type_, 1, [pa.py_buffer(bytes(1))], children=[child])
    runs = pa.RunEndEncodedArray.from_arrays(
        pa.array([1], pa.int16()), null, type=pa.run_end_encoded(pa.int16(), type_)
    )
    trilake.write(pa.table({"r": runs}), tmp_path, format="trevni")
    assert trilake.open(tmp_path).to_arrow()["r"].to_pylist() == [None]


@SLOW
@given(tables(), st.sampled_from(["null", "deflate", "snappy", "bzip2"]), st.sampled_from([1, 8, 1 << 16]))
def test_arbitrary_tables_round_trip(table: pa.Table, codec: str, block_size: int) -> None:
    file = written(table, codec=codec, checksum="crc32", block_size=block_size)
    same(file.read(), table)
    parts = [file.read(rows=range(i, i + 1)) for i in range(table.num_rows)]
    if parts:
        same(pa.concat_tables(parts), table)


def test_nulls_after_fields_without_columns() -> None:
    """The field of a presence column must not depend on fields without columns."""
    empty = pa.field("b", pa.struct([]), nullable=False)
    for struct in (
        pa.struct([empty, pa.field("value", pa.bool_())]),
        pa.struct([pa.field("b", pa.struct([])), pa.field("value", pa.struct([("x", pa.int8())]))]),
    ):
        rows = [{"b": {}, "value": None}, None]
        for type_, values in ((struct, rows), (pa.map_(pa.string(), struct), [[("k", rows[0])], [("k", None)]])):
            table = pa.table({"c": pa.array(values, type_)})
            same(written(table).read(), table)
