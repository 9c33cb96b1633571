"""Types by their SQL names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trilake.delta.protocol.char_varchar import TYPE_STRING, length_rule
from trilake.delta.protocol.schema import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType
from trilake.delta.protocol.sql_types import parse_sql_type, with_limits, without_limits
from trilake.delta.rules.row_rules import sql_type
from trilake.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("INT", "integer"),
        (" bigint ", "long"),
        ("long", "long"),
        ("dec", "decimal(10,0)"),
        ("decimal(5)", "decimal(5,0)"),
        ("Numeric( 12 , 3 )", "decimal(12,3)"),
        ("timestamp_ltz", "timestamp"),
        ("timestamp_ntz", "timestamp_ntz"),
        ("array<array<tinyint>>", "array<array<byte>>"),
        (
            "struct<a: int, `b c` string NOT NULL COMMENT 'it''s', d: map<string,real>>",
            "struct<a:integer,b c:string,d:map<string,float>>",
        ),
        ("struct<>", "struct<>"),
    ],
)
def test_sql_types_are_parsed(text: str, expected: str) -> None:
    result, metadata = parse_sql_type(text)
    assert str(result) == expected
    assert metadata == {}


def test_struct_fields_have_nullability_and_comments() -> None:
    result, _ = parse_sql_type(r"struct<`a``b` int not null comment 'it\'s'>")
    assert result == StructType((StructField("a`b", PrimitiveType("integer"), False, {"comment": "it's"}),))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "foo",
        "array",
        "array<int",
        "array<int>>",
        "map<int>",
        "struct<a>",
        "struct<a int, A int>",
        "decimal(50,1)",
        "int(3)",
        "varchar",
        "varchar(0)",
        "string; drop",
        "decimal(a)",
        "struct<a int comment b>",
        "array<" * 200,
    ],
)
def test_invalid_sql_types_are_rejected(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        parse_sql_type(text)


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("varchar(5)", "varchar(5)"),
        ("CHARACTER(3)", "char(3)"),
        ("array<varchar(2)>", "array<varchar(2)>"),
        ("struct<`a b`: char(1), c: bigint>", "struct<a b:char(1),c:bigint>"),
    ],
)
def test_char_and_varchar_limits(text: str, limits: str) -> None:
    result, metadata = parse_sql_type(text)
    assert metadata == {TYPE_STRING: limits}
    column = StructField("c", result, metadata=metadata)
    assert length_rule(column) is not None
    moved = with_limits(StructType((column,)))
    assert without_limits(moved) == StructType((column,))


names = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1, max_size=5)
types: st.SearchStrategy[DataType] = st.recursive(
    st.sampled_from([PrimitiveType(n) for n in ("long", "byte", "decimal(7,2)", "string", "date", "timestamp_ntz")]),
    lambda inner: st.one_of(
        inner.map(ArrayType),
        st.tuples(inner, inner).map(lambda kv: MapType(*kv)),
        st.dictionaries(names, inner, max_size=3).map(
            lambda d: StructType(tuple(StructField(n, t) for n, t in {k.lower(): v for k, v in d.items()}.items()))
        ),
    ),
    max_leaves=6,
)


@given(types)
def test_every_type_round_trips_through_sql(kind: DataType) -> None:
    assert parse_sql_type(sql_type(kind))[0] == kind


@pytest.mark.parametrize(
    ("literal", "comment"),
    [
        ("'it''s'", "it's"),
        ('"d""q \'\'"', "d\"q ''"),
        (r"'a\nb\'c'", "a\nb'c"),
        ("'a' \"b\"", "ab"),
        (r"r'\n'", r"\n"),
        ("'x > y, z)'", "x > y, z)"),
    ],
)
def test_comment_of_a_field_is_a_string_of_spark(literal: str, comment: str) -> None:
    type_ = parse_sql_type(f"STRUCT<a: INT COMMENT {literal}, b: STRING>")[0]
    assert isinstance(type_, StructType)
    assert [f.metadata for f in type_.fields] == [{"comment": comment}, {}]
