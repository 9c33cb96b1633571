"""The table of primitive types agrees with itself and with the modules that read it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from trilake.delta.protocol.arrow_types import primitive_name
from trilake.delta.protocol.partitions import format_values, parse_values
from trilake.delta.protocol.primitives import PRIMITIVES, traits_of
from trilake.delta.protocol.schema import PrimitiveType, StructField, StructType, UserDefinedType, parse_primitive
from trilake.delta.protocol.sql_types import parse_sql_type, type_sql
from trilake.delta.protocol.type_widening import can_widen
from trilake.delta.scan.statistics import StatisticsReader, bound_type
from trilake.expr.terms.datatypes import is_ordered, spark_name
from trilake.expr.terms.engine import query

NAMES = [*PRIMITIVES, "decimal(10,2)", "varchar(5)", "geometry(OGC:CRS84)", "geography(OGC:CRS84, SPHERICAL)"]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_parsed_and_written(name: str) -> None:
    type_ = parse_primitive(name)
    assert str(type_) == name
    assert parse_sql_type(type_sql(type_))[0] == (PrimitiveType("string") if name == "varchar(5)" else type_)
    for alias in type_.traits.aliases if name in PRIMITIVES else ():
        assert parse_sql_type(alias)[0] == type_


@pytest.mark.parametrize("name", PRIMITIVES)
def test_rows_of_each_arrow_type_become_the_type(name: str) -> None:
    row = PRIMITIVES[name]
    for arrow in () if row.marked else (row.arrow, *row.also_arrow):
        assert primitive_name(arrow, "c") == name
    if not row.marked and name != "void":
        assert spark_name(row.arrow) == (row.sql or name)


@pytest.mark.parametrize("name", NAMES)
def test_types_with_bounds_are_ordered_and_bounds_are_read(name: str) -> None:
    field = StructField("c", parse_primitive(name))
    row = traits_of(name)
    assert (bound_type(field) is None) == (row.bounds is None)
    if row.bounds is not None:
        assert is_ordered(field.type.arrow)
        assert row.partitions
        for count in (1, 1000):
            adds = pa.table({"stats": pa.chunked_array([['{"minValues":{"c":null}}'] * count])})
            stats = StatisticsReader(adds, StructType((field,)), (), query).column(("c",))
            assert stats is not None
            assert stats.min is not None
            assert stats.min.type == field.type.arrow


@pytest.mark.parametrize("name", NAMES)
def test_null_partition_values(name: str) -> None:
    field = StructField("p", parse_primitive(name))
    if traits_of(name).partitions:
        values = parse_values(pa.chunked_array([["", None]], pa.string()), field)
        assert values.type == field.type.arrow
        assert format_values(values, PrimitiveType(name)) == [None, None]


@pytest.mark.parametrize("name", PRIMITIVES)
def test_wider_types_store_all_values(name: str) -> None:
    row = PRIMITIVES[name]
    for wider in (*row.widens, *row.widens_to_number):
        assert can_widen(PrimitiveType(name), PrimitiveType(wider))
        assert wider in row.stored_in


def test_user_defined_types_have_their_own_row() -> None:
    type_ = UserDefinedType("udt:a.B", PrimitiveType("long"), "{}")
    assert type_.arrow == pa.int64()
    assert type_.traits.marked
    assert type_.traits.bounds is None
