"""Tables of thousands of columns: the cost of name lookups is linear, not quadratic, in their number."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import trilake
from trilake.delta.commands.optimize import bins
from trilake.delta.files.file_writer import dictionary_columns
from trilake.delta.protocol import actions, schema
from trilake.delta.protocol.schema import PrimitiveType, StructField, StructType
from trilake.delta.rules.store_assignment import check_assignable
from trilake.delta.scan.conform import Resolver, conform_batch
from trilake.delta.scan.scan import read_schema

_COLUMNS = 300
_LONG = PrimitiveType("long")


class Name(str):
    """A name that counts comparisons and case folds."""

    steps = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Name.steps += 1
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def lower(self) -> str:
        Name.steps += 1
        return str.lower(self)


@pytest.fixture(autouse=True)
def _from_zero() -> None:
    Name.steps = 0


def _wide(*, upper: bool = False, mapped: bool = False) -> StructType:
    names = [f"C{i}" if upper else f"c{i}" for i in range(_COLUMNS)]
    ids: list[dict[str, Any]] = [{"delta.columnMapping.id": i} if mapped else {} for i in range(_COLUMNS)]
    return StructType(tuple(StructField(Name(n), _LONG, True, m) for n, m in zip(names, ids, strict=True)))


def test_columns_are_matched_in_one_pass() -> None:
    check_assignable(_wide(), _wide(upper=True), uri="")
    assert 0 < Name.steps < 20 * _COLUMNS


@pytest.mark.parametrize("upper", [False, True])
def test_file_columns_are_found_in_one_pass(upper: bool) -> None:
    table, rows = _wide(upper=upper), pa.RecordBatch.from_pydict({f"c{i}": [i] for i in reversed(range(_COLUMNS))})
    result = conform_batch(rows, list(table.fields), Resolver(), {})
    assert result.to_pylist() == [{f.name: i for i, f in enumerate(table.fields)}]
    assert not bins._has_more(pa.struct(list(rows.schema)), table, Resolver())
    pairs = bins._pairs(pa.struct(list(rows.schema)), table, Resolver())
    assert all(bins._is_of(in_file, read_as) for in_file, read_as in pairs)
    assert Name.steps < 20 * _COLUMNS


def test_columns_mapped_by_id_are_found_in_one_pass() -> None:
    class Field:
        """A field of a file that counts reads of its id."""

        name = "x"
        id_reads = 0

        def __init__(self, number: int) -> None:
            self.number = number

        @property
        def metadata(self) -> dict[bytes, bytes]:
            Field.id_reads += 1
            return {b"PARQUET:field_id": str(self.number).encode()}

    table = _wide(mapped=True)
    places = Resolver("id").places(table.fields, [Field(i) for i in reversed(range(_COLUMNS))])
    assert places == list(reversed(range(_COLUMNS)))
    assert Field.id_reads == _COLUMNS


def test_find_prefers_exact_case_then_the_first() -> None:
    fields = [StructField(name, _LONG) for name in ("A", "a", "b", "B", "b")]
    struct = StructType(tuple(fields))
    assert [struct.find(n) for n in ("a", "A", "B", "b")] == [fields[1], fields[0], fields[3], fields[2]]
    assert struct.find("b") is fields[2]
    assert StructType(tuple(fields[2:4])).find("b") is fields[2]
    assert StructType((fields[0], StructField("aB", _LONG), StructField("Ab", _LONG))).find("ab") == StructField(
        "aB", _LONG
    )
    candidates = [pa.field(f.name, pa.int64()) for f in fields]
    expected = [StructField(n, _LONG) for n in ("a", "A", "B", "b", "c")]
    assert Resolver().places(expected, candidates) == [1, 0, 3, 2, None]
    assert Resolver().places(expected, candidates[2:]) == [None, None, 1, 0, None]
    assert Resolver().places(expected[1:3], candidates[1:3]) == [0, 1]
    assert Resolver("name").places(expected[1:3], candidates[1:3]) == [None, None]


def test_open_parses_the_schema_once(tmp_path: Any) -> None:
    trilake.write(pa.table({"a": [1], "s": [{"x": 1}]}), tmp_path)
    strings = []

    def parse(text: str, **how: Any) -> StructType:
        strings.append(text)
        return schema.parse_schema(text, **how)

    with patch.object(actions, "parse_schema", parse):
        opened = trilake.open(tmp_path)
        assert opened.schema.names == ["a", "s"]
        assert opened.to_arrow().num_rows == 1
    assert len(strings) == 1


def test_nullable_schema_is_not_rebuilt() -> None:
    table = _wide()
    assert read_schema(table) is table
    required = StructType((StructField("s", StructType((StructField("a", _LONG, False),))), *table.fields))
    assert read_schema(required).fields[0].type == StructType((StructField("a", _LONG),))
    assert read_schema(required).fields[1] is table.fields[0]


def test_only_large_columns_are_sampled_for_dictionaries() -> None:
    rows = 200_000
    table = pa.table({"large": range(rows), **{f"c{i}": pa.array(range(rows), pa.int32()) for i in range(3)}})
    types: list[pa.DataType] = []

    def outgrows(sample: pa.ChunkedArray, rows: int) -> bool:
        types.append(sample.type)
        return True

    with patch("trilake.delta.files.file_writer._outgrows", outgrows):
        assert dictionary_columns(table) == ["c0", "c1", "c2"]
    assert types == [pa.int64()]


@pytest.mark.parametrize(("size", "different", "chosen"), [(1_500_000, 1, []), (100_000, 20, []), (100_000, 3, ["s"])])
def test_dictionary_choice_samples_few_bytes_of_large_strings(size: int, different: int, chosen: list[str]) -> None:
    strings = pa.table({"s": [str(i % different) * size for i in range(60)]})
    seen: list[int] = []
    counted = pc.count_distinct

    def count(sample: pa.ChunkedArray, **how: Any) -> pa.Scalar:
        seen.append(sample.nbytes)
        return counted(sample, **how)

    with patch("pyarrow.compute.count_distinct", count):
        assert dictionary_columns(strings) == chosen
    assert 0 < sum(seen) < 8_000_000


def test_repeated_large_strings_use_a_dictionary() -> None:
    strings = pa.table({"s": [str(i % 3) * 2000 for i in range(20_000)]})
    assert dictionary_columns(strings) == ["s"]
