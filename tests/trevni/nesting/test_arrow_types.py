"""Every Arrow type, alone and nested: it round-trips, or is rejected with a typed error."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import uuid
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from tests.trevni.test_arrow import same, written
from trilake.errors import CorruptFileError, InvalidArgumentError, SchemaMismatchError
from trilake.expr import parse_filter
from trilake.trevni import ColumnValues, Split, TrevniFile, TrevniWriter, read_split, write
from trilake.trevni.nesting.arrow_forms import plain_type, to_plain

CODES, OFFSETS = pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32())
DENSE = pa.UnionArray.from_dense(CODES, OFFSETS, [pa.array([1, None]), pa.array(["x"])], ["a", "b"])
SPARSE = pa.UnionArray.from_sparse(CODES, [pa.array([1, 5, None]), pa.array(["x", "y", "z"])], ["a", "b"])
UUIDS = pa.array([uuid.UUID(int=i).bytes for i in range(2)] + [None], pa.binary(16))


def runs(values: pa.Array, type_: pa.DataType | None = None) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], type_ or pa.int32()), values)


def coded(values: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([1, 0, None], pa.int8()), values)


def three(type_: pa.DataType, a: object, b: object) -> pa.Array:
    return pa.array([a, None, b], type_)


#: Three slots of each type; the names of types are those of Arrow's type ids.
CASES: dict[str, pa.Array] = {
    "na": pa.nulls(3),
    "bool": three(pa.bool_(), True, False),
    **{f"int{n}": three(getattr(pa, f"int{n}")(), -(2 ** (n - 1)), 2 ** (n - 1) - 1) for n in (8, 16, 32, 64)},
    **{f"uint{n}": three(getattr(pa, f"uint{n}")(), 0, 2**n - 1) for n in (8, 16, 32, 64)},
    "half_float": three(pa.float16(), 1.5, -0.0),
    "float": three(pa.float32(), 1.5, float("inf")),
    "double": three(pa.float64(), 1e300, -0.0),
    "string": three(pa.string(), "é", ""),
    "large_string": three(pa.large_string(), "é", ""),
    "string_view": three(pa.string_view(), "more than twelve bytes", ""),
    "binary": three(pa.binary(), b"\xff", b""),
    "large_binary": three(pa.large_binary(), b"\xff", b""),
    "binary_view": three(pa.binary_view(), b"more than twelve bytes", b""),
    "fixed_size_binary": three(pa.binary(2), b"ab", b"\0\0"),
    "fixed_size_binary of 0": three(pa.binary(0), b"", b""),
    "date32": three(pa.date32(), dt.date.min, dt.date.max),
    "date64": three(pa.date64(), dt.date.min, dt.date.max),
    "time32": three(pa.time32("s"), 0, 86399),
    "time64": three(pa.time64("ns"), 0, 86399 * 10**9),
    "timestamp": three(pa.timestamp("ns"), -(2**63) + 1, 2**63 - 1),
    "timestamp with zone": three(pa.timestamp("s", "Europe/Paris"), 0, 10**9),
    "duration": three(pa.duration("ns"), -(2**62), 2**62),
    "interval_month_day_nano": three(pa.month_day_nano_interval(), (1, -2, 3), (0, 0, 0)),
    "decimal32": three(pa.decimal32(9, 2), decimal.Decimal("9999999.99"), 0),
    "decimal64": three(pa.decimal64(18, 2), decimal.Decimal(-1), 0),
    "decimal128": three(pa.decimal128(38, -2), decimal.Decimal(-100), 0),
    "decimal256": three(pa.decimal256(76, 76), decimal.Decimal(0), 0),
    "list": three(pa.list_(pa.int8()), [1, None], []),
    "large_list": three(pa.large_list(pa.string()), ["x", None], []),
    "list_view": three(pa.list_view(pa.int8()), [1, None], []),
    "large_list_view": three(pa.large_list_view(pa.string_view()), ["x", None], []),
    "fixed_size_list": three(pa.list_(pa.int8(), 2), [1, None], [2, 3]),
    "fixed_size_list of 0": three(pa.list_(pa.int8(), 0), [], []),
    "struct": three(pa.struct([("a", pa.int8()), ("b", pa.string_view())]), {"a": 1}, {"b": "x"}),
    "struct of nothing": three(pa.struct([]), {}, {}),
    "map": three(pa.map_(pa.string(), pa.list_view(pa.int8())), [("k", [1]), ("l", None)], []),
    "dense_union": DENSE,
    "sparse_union": SPARSE,
    "union with codes and equal names": pa.UnionArray.from_dense(
        pa.array([9, 5, 9], pa.int8()), OFFSETS, [pa.array([1, None]), pa.array(["x"])], ["a", "a"], [9, 5]
    ),
    "union of views": pa.UnionArray.from_sparse(
        CODES, [three(pa.string_view(), "a", "b"), three(pa.list_view(pa.int8()), [1], [])], ["a", "b"]
    ),
    "union of runs": pa.UnionArray.from_dense(CODES, OFFSETS, [runs(UUIDS[1:])[1:], runs(UUIDS[1:])[2:]], ["a", "b"]),
    "union of unions": pa.UnionArray.from_dense(
        CODES, OFFSETS, [pa.StructArray.from_arrays([DENSE], ["u"])[:2], SPARSE[:1]], ["a", "b"]
    ),
    "union of nulls": pa.UnionArray.from_sparse(CODES, [pa.nulls(3), pa.array([1, 2, 3])], ["a", "b"]),
    "dictionary": coded(pa.array(["a", "b"])),
    "dictionary of views": coded(pa.array(["a", "b"], pa.string_view())),
    "dictionary with a null": coded(pa.array(["a", None])),
    "dictionary in order": pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.uint8()), ["b", "a"], ordered=True),
    "dictionary of decimals": coded(pa.array([decimal.Decimal("1.2"), None])),
    "dictionary of instants": coded(pa.array([1, 2], pa.timestamp("ns", "UTC"))),
    "dictionary of halves": coded(pa.array([1, 2], pa.float16())),
    "run_end_encoded": runs(pa.array(["a", None])),
    "runs of structs": runs(pa.array([{"a": 1}, None]), pa.int64()),
    "runs of lists": runs(pa.array([[1], None]), pa.int16()),
    "runs of halves": runs(pa.array([1.5, None], pa.float16())),
    "runs of views": runs(pa.array(["a", None], pa.binary_view())),
    "runs of dictionaries": runs(coded(pa.array(["a", "b"]))[:2]),
    "extension uuid": pa.ExtensionArray.from_storage(pa.uuid(), UUIDS),
    "extension json": pa.ExtensionArray.from_storage(pa.json_(), three(pa.string(), "{}", "1")),
    "extension bool8": pa.ExtensionArray.from_storage(pa.bool8(), three(pa.int8(), 1, 0)),
    "extension tensor": pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.int8(), [2]), pa.array([[1, 2], [3, 4], None], pa.list_(pa.int8(), 2))
    ),
    "extension opaque": pa.ExtensionArray.from_storage(
        pa.opaque(pa.list_(pa.int8()), "t", "v"), pa.array([[1], [], None], pa.list_(pa.int8()))
    ),
}

NULLS = pa.array([False, True, False])
#: Ways to nest three slots.
AROUND: dict[str, Callable[[pa.Array], pa.Array]] = {
    "itself": lambda a: a,
    "a slice": lambda a: a.slice(1),
    "a struct": lambda a: pa.StructArray.from_arrays([a], ["f"], mask=NULLS),
    "a list": lambda a: pa.ListArray.from_arrays(pa.array([0, 1, None, 3], pa.int32()), a),
    "a list view": lambda a: pa.ListViewArray.from_arrays(
        pa.array([2, 0, 0], pa.int32()), pa.array([1, 2, 3], pa.int32()), a, mask=NULLS
    ),
    "a fixed list": lambda a: pa.FixedSizeListArray.from_arrays(a, 1, mask=NULLS),
    "a map": lambda a: pa.MapArray.from_arrays(pa.array([0, 1, None, 3], pa.int32()), pa.array(["p", "q", "r"]), a),
    "runs": lambda a: runs(a[1:]),
    "a union": lambda a: pa.UnionArray.from_dense(CODES, OFFSETS, [a[1:], a[:1]], ["f", "g"]),
    "a sliced struct": lambda a: pa.StructArray.from_arrays([a], ["f"], mask=NULLS).slice(1),
}


def test_cases_cover_every_arrow_type() -> None:
    ids = {name.removeprefix("Type_").lower() for name in dir(pa.lib) if name.startswith("Type_")}
    # pyarrow cannot create these two.
    assert ids - set(CASES) == {"interval_day_time", "interval_months"}


@pytest.mark.parametrize("around", list(AROUND))
@pytest.mark.parametrize("name", list(CASES))
def test_arrow_types_round_trip(name: str, around: str) -> None:
    array = AROUND[around](CASES[name])
    array.validate(full=True)
    table = pa.table({"c": array})
    file = written(table, checksum="crc32")
    same(file.read(), table)
    rows = table.to_pylist()
    assert file.read(rows=[len(rows) - 1, 0]).to_pylist() == [rows[-1], rows[0]]
    assert file.read(rows=[1]).to_pylist() == [rows[1]]
    assert plain_type(to_plain(array).type) == to_plain(array).type


@pytest.mark.parametrize(
    "array",
    [
        coded(pa.array([{"a": 1}, None])),
        coded(pa.array([[1], []])),
        coded(pa.ExtensionArray.from_storage(pa.uuid(), UUIDS[:2])),
    ],
    ids=["dictionary of structs", "dictionary of lists", "dictionary of extensions"],
)
def test_unsupported_types_raise(array: pa.Array) -> None:
    """Alone and inside others, before anything is written."""
    for column in (array, pa.StructArray.from_arrays([array], ["f"])):
        with pytest.raises(InvalidArgumentError, match="is not supported") as e:
            written({"c": column})
        assert e.value.context["column"] == "c"


def test_too_many_values_for_indices(tmp_path: object) -> None:
    """Each chunk has its dictionary, and one batch of all of them would need a wider index."""
    part = [pa.array([f"{c}{i}" for i in range(100)]).dictionary_encode() for c in "ab"]
    narrow = pa.dictionary(pa.int8(), pa.string())
    file = written(pa.table({"c": pa.chunked_array([p.cast(narrow) for p in part])}))
    assert file.read(rows=range(100)).column("c").to_pylist() == part[0].to_pylist()
    with pytest.raises(SchemaMismatchError, match="int8 is too small for 200 values"):
        file.read()


def test_run_ends_of_16_bits_limit_pieces() -> None:
    short = pa.run_end_encoded(pa.int16(), pa.int64())
    chunks = [
        pa.RunEndEncodedArray.from_arrays(pa.array([30_000], pa.int16()), pa.array([i]), type=short) for i in range(3)
    ]
    table = pa.table({"c": pa.chunked_array(chunks)})
    same(written(table).read(), table)
    order = np.arange(90_000)[::-1]
    assert written(table).read(rows=order)["c"].to_pylist() == table["c"].to_pylist()[::-1]


@pytest.mark.parametrize("name", ["string_view", "list_view", "dense_union", "run_end_encoded", "extension uuid"])
def test_filter_types_that_arrow_cannot_filter(name: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    table = pa.table({"n": [1, 2, 3], "c": CASES[name]})
    write(table, tmp_path / "t.trv")
    filter = parse_filter("n >= 2", pa.schema([table.schema.field("n")]))
    split = Split(tmp_path.as_uri(), "t.trv")
    (batch,) = read_split(split, table.schema, ["c", "n"], filter)
    assert batch.to_pylist() == [{"c": r["c"], "n": r["n"]} for r in table.to_pylist()[1:]]


def test_columns_of_a_union() -> None:
    """As in the Avro mapping: each branch is an array column of length 0 or 1."""
    file = written({"u": DENSE})
    assert [(c.name, c.type, c.array, c.parent) for c in file.columns] == [
        ("u/a", "long", True, None),
        ("u/a?", "null", True, "u/a"),
        ("u/b", "string", True, None),
    ]
    assert file.column("u/a").lengths.tolist() == [1, 0, 1]  # type: ignore[union-attr]
    assert file.column("u/b").lengths.tolist() == [0, 1, 0]  # type: ignore[union-attr]


@pytest.mark.parametrize("lengths", [[1, 1, 1], [0, 0, 1], [2, 0, 1]])
def test_union_slot_without_a_branch_raises(lengths: list[int]) -> None:
    file = written({"u": DENSE})
    flat = [file.column(i) for i in range(3)]
    b = ColumnValues("u/b", "string", np.array([0, 1, 0], np.int32), flat[2].values)
    a = ColumnValues("u/a", "long", np.array(lengths, np.int32), pa.array(range(sum(lengths)), pa.int64()))
    mask = ColumnValues("u/a?", "null", np.ones(sum(lengths), np.int32), pa.nulls(sum(lengths)))
    sink = io.BytesIO()
    with TrevniWriter(sink, None, columns=file.columns, metadata=file.metadata) as writer:
        writer.write_columns(3, [a, mask, b])
    with pytest.raises(CorruptFileError, match="exactly one branch"):
        TrevniFile(sink.getvalue()).read()
