"""Arrow tables round-trip through Trevni files."""

from __future__ import annotations

import io

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

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
