"""char(n) and varchar(n): padding, trimming and rejection at any depth, against Spark's rule in plain Python."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trilake.delta.protocol.char_varchar import Length, apply_length, length_rule
from trilake.delta.protocol.schema import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType
from trilake.errors import ConstraintViolatedError, CorruptLogError

STRING = PrimitiveType("string")
PERSON = StructType((StructField("a:b,c>", STRING), StructField("n", PrimitiveType("long"))))


def field(type_: DataType, text: str) -> StructField:
    return StructField("c", type_, metadata={"__CHAR_VARCHAR_TYPE_STRING": text})


def oracle(text: str | None, kind: str, limit: int) -> str | None:
    """Return what Spark stores; raise ValueError if Spark rejects the value."""
    if text is None:
        return None
    if len(text) > limit:
        if text[limit:].strip(" "):
            raise ValueError
        text = text[:limit]
    return text.ljust(limit) if kind == "char" else text


TEXTS = st.lists(st.none() | st.text("ab \u00e9\U0001f600\t", max_size=6), max_size=6)


@given(TEXTS, st.sampled_from(["char", "varchar"]), st.integers(1, 5))
def test_strings_are_padded_and_trimmed_like_in_spark(strings: list[str | None], kind: str, limit: int) -> None:
    rule = Length(kind, limit)
    try:
        expected = [oracle(t, kind, limit) for t in strings]
    except ValueError:
        with pytest.raises(ConstraintViolatedError, match=rf"{kind}\({limit}\) of column c"):
            apply_length(pa.array(strings, pa.string()), rule, "c")
    else:
        assert apply_length(pa.array(strings, pa.string()), rule, "c").to_pylist() == expected


@given(st.lists(st.none() | TEXTS, max_size=4), st.integers(0, 2))
def test_length_limits_in_lists_and_slices(lists: list[list[str | None] | None], start: int) -> None:
    array = pa.array(lists, pa.list_(pa.string())).slice(min(start, len(lists)))
    done = apply_length(array, Length(parts=(Length("char", 8),)), "c")
    assert done.to_pylist() == [x and [oracle(t, "char", 8) for t in x] for x in lists[start:]]
    assert done.type == array.type


def test_nested_limits_follow_the_type() -> None:
    array = ArrayType(PERSON)
    rule = length_rule(field(array, "array<struct<a:b,c>:char(2),n:bigint>>"))
    assert rule == Length(parts=(Length(parts=(Length("char", 2), None)),))
    rows = pa.array([[{"a:b,c>": "x", "n": 1}, None], None], array.arrow)
    assert apply_length(rows, rule, "c").to_pylist() == [[{"a:b,c>": "x ", "n": 1}, None], None]
    mapping = MapType(STRING, STRING)
    rule = length_rule(field(mapping, "map<varchar(3),char(4)>"))
    assert rule == Length(parts=(Length("varchar", 3), Length("char", 4)))
    rows = pa.array([[("k", "v")], None, []], mapping.arrow)
    assert apply_length(rows, rule, "c").to_pylist() == [[("k", "v   ")], None, []]
    with pytest.raises(ConstraintViolatedError, match=r"c\.value: 'abcde'"):
        apply_length(pa.array([[("k", "abcde")]], mapping.arrow), rule, "c")


def test_types_without_limits_have_no_rule() -> None:
    assert length_rule(StructField("c", STRING)) is None
    assert length_rule(field(STRING, "string")) is None
    assert length_rule(field(ArrayType(PrimitiveType("decimal(10,2)")), "array<decimal(10,2)>")) is None
    assert length_rule(StructField("c", PrimitiveType("varchar(5)"))) == Length("varchar", 5)
    assert length_rule(StructField("c", ArrayType(PrimitiveType("char(5)")))) == Length(parts=(Length("char", 5),))


@pytest.mark.parametrize("text", ["array<char(3)>", "struct<x:char(1)>", "", "("])
def test_type_string_that_does_not_match_the_column(text: str) -> None:
    with pytest.raises(CorruptLogError, match="length limits of column 'c'"):
        length_rule(field(PERSON, text))
