"""SQL functions in pylance conditions; expected rows are from pylance 14.0.2."""

from __future__ import annotations

from pathlib import Path

import lance as pylance
import pyarrow as pa
import pytest

from trilake import lance
from trilake.errors import ExpressionError, FilterError, UnsupportedExpressionError
from trilake.lance import LanceDataset
from trilake.lance.scan.sql_functions import in_sparks_words


@pytest.fixture(scope="module")
def dataset() -> LanceDataset:
    rows = pa.table(
        {
            "id": [1, 2, 3, 4],
            "s": ["ab", "b", "c,(", "ad"],
            "note": [{"email": f"e{i}", "at": {"x": i}} for i in range(1, 5)],
            "tags": [["a"], ["a", "b"], [], ["c"]],
        }
    )
    return lance.write_dataset(rows, "memory://sql-functions", mode="overwrite", max_rows_per_file=2)


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("note['email'] = 'e1'", [1]),
        ("note['at']['x'] > 2 AND note [ 'email' ] <> 'e4'", [3]),
        ("get_field(note, 'email') = 'e2'", [2]),
        ("get_field(get_field(note, 'at'), 'x') = 4", [4]),
        ("starts_with(s, 'a')", [1, 4]),
        ("NOT STARTS_WITH (s, 'a') AND ends_with(s, '(')", [3]),
        ("starts_with(note['email'], concat('e', ''))", [1, 2, 3, 4]),
        ("strpos(s, 'b') > 0", [1, 2]),
        ("array_has(tags, 'c')", [4]),
        ("list_has(tags, 'b') OR list_contains(tags, 'c')", [2, 4]),
        ("array_has_any(tags, ['a', 'c'])", [1, 2, 4]),
        ("array_has_any(['b', 'c'], tags)", [2, 4]),
        ("list_has_any(tags, make_array('b', 'c'))", [2, 4]),
        ("arrays_overlap(tags, array('b'))", [2]),
        ("NOT array_has_any(tags, ['a'])", [3, 4]),
        ("array_has_any(tags, [])", []),
        ("array_has_all(tags, ['a', 'b'])", [2]),
        ("list_has_all(tags, [lower('A')])", [1, 2]),
        ("array_has_all(tags, [])", [1, 2, 3, 4]),
        ("array_length(tags) = 2", [2]),
        ("list_length(tags) = 1 AND id > 1", [4]),
        ("empty(tags)", [3]),
        ("array_element(tags, 1) = 'a'", [1, 2]),
        ("list_extract(tags, 2) = 'b'", [2]),
        ("tags[2] = 'b'", [2]),
        ("tags[2] IS NULL", [1, 3, 4]),
        ("tags[5] IS NULL OR tags[-1] = 'a'", [1, 2, 3, 4]),
        ("s = 'array_has(tags, [1])'", []),
        ("id = arrow_cast('2', 'Int64')", [2]),
        ("arrow_cast(id, 'Utf8') = '3'", [3]),
        ("arrow_cast(s, 'Binary') = arrow_cast(0x6164, 'LargeBinary')", [4]),
        ("id = arrow_cast(4.0, 'Decimal128(10, 1)')", [4]),
    ],
)
def test_conditions_with_functions_of_pylance(dataset: LanceDataset, condition: str, ids: list[int]) -> None:
    assert dataset.to_table(["id"], filter=condition)["id"].to_pylist() == ids


def test_sql_outside_of_filters(dataset: LanceDataset) -> None:
    columns = {"e": "note['email']", "n": "array_length(tags)", "b": "starts_with(s, 'b')"}
    assert dataset.to_table(columns=columns, limit=1).to_pylist() == [{"e": "e1", "n": 1, "b": False}]
    query = dataset.sql("SELECT id FROM dataset WHERE array_has_all(tags, ['a', 'b'])").build()
    assert query.to_table().to_pydict() == {"id": [2]}
    texts = lance.write_dataset(pa.table({"k": ["x", "y"], "s": ["ab", "b"]}), "memory://sql-places", mode="overwrite")
    texts.add_columns({"starts": "starts_with(s, 'a')"})
    texts.update({"s": "concat(s, 'z')"}, where="starts_with(s, 'a')")
    merge = texts.merge_insert("k").when_matched_update_all("starts_with(target.s, 'a')")
    merge.execute(pa.table({"k": ["x", "y"], "s": ["new", "new"]}))
    assert texts.to_table().sort_by("k").to_pydict() == {"k": ["x", "y"], "s": ["new", "b"], "starts": [True, False]}


@pytest.mark.parametrize(
    "text",
    [
        "tags[0] = 'a'",
        "s = 'starts_with(' AND `array_has(` = 1",
        "t.array_has(x)",
        "my_starts_with(s, 'a')",
        "starts_with(s, 'a'",
        "starts_with(s]",
        "array_has_any(tags)",
        "array_length(tags, 1)",
        "array_has_all(tags, more)",
        "get_field(note, other)",
        "arrow_cast(id, 'Duration(Second)')",
        "arrow_cast(id, s)",
        "starts_with(" * 100_000 + ")" * 100_000,
        "",
    ],
)
def test_other_conditions_stay_as_written(text: str) -> None:
    assert in_sparks_words(text) == text


def test_unknown_functions_are_rejected(dataset: LanceDataset) -> None:
    with pytest.raises(FilterError, match="array_has_every"):
        dataset.to_table(filter="array_has_every(tags, ['a'])")
    with pytest.raises(FilterError, match="not found"):
        dataset.to_table(filter="note['nope'] = 1")


def test_lists_with_nulls_match_pylance(tmp_path: Path) -> None:
    labels = [["foo", "bar"], ["bar"], ["baz"], ["qux", None], [None], [], None]
    dataset = lance.write_dataset(pa.table({"i": range(7), "labels": labels}), tmp_path / "t")
    calls = ["array_has(labels, 'foo')", "array_contains(labels, NULL)", "list_has(labels, NULL)"]
    for items in ("Array['foo', 'baz']", "[NULL]", "['foo', NULL]", "['qux', null]", "['foo']"):
        calls += [f"array_has_any(labels, {items})", f"array_has_all(labels, {items})"]
    for index in (None, "LABEL_LIST"):
        if index is not None:
            dataset.create_scalar_index("labels", index)
        theirs = pylance.dataset(tmp_path / "t")
        for call in calls:
            for condition in (call, f"NOT {call}", f"{call} IS NULL"):
                expected = theirs.to_table(["i"], filter=condition, use_scalar_index=False)
                assert dataset.to_table(["i"], filter=condition).equals(expected), condition
    assert "ScalarIndexQuery" in dataset.scanner(filter="array_has(labels, 'foo')").explain_plan()


TYPED = [
    ("id", "UInt8"),
    ("id", "Float16"),
    ("s", "LargeUtf8"),
    ("s", "Dictionary(Int32, Utf8)"),
    ("id", "Timestamp(Nanosecond, None)"),
    ("id", 'Timestamp(Microsecond, Some("UTC"))'),
    ("id", "Duration(Second)"),
    ("id + 1", "Decimal256(40, 2)"),
    ("v", "FixedSizeList(2, Float32)"),
    ("v", "LargeList(Int64)"),
    ("arrow_cast(id, 'Int8')", "UInt16"),
    ("NULL", "FixedSizeList(4, Float32)"),
    ("7", "Float32"),
]


@pytest.mark.parametrize(("value", "kind"), TYPED)
def test_arrow_cast_determines_the_type_of_a_column(tmp_path: Path, value: str, kind: str) -> None:
    rows = pa.table({"id": [1, 2], "s": ["x", "y"], "v": [[1.0, 2.0], [3.0, 4.0]]})
    sql = f" Arrow_Cast( {value} ,'{kind}')"
    ours, theirs = lance.write_dataset(rows, tmp_path / "a"), pylance.write_dataset(rows, tmp_path / "b")
    for dataset in (ours, theirs):
        dataset.add_columns({"c": sql})
    assert ours.to_table() == theirs.to_table()
    assert ours.schema == theirs.schema
    if value not in ("NULL", "7"):  # pylance needs a column
        columns = {"c": sql}
        assert ours.to_table(columns=columns) == theirs.to_table(columns=columns)


def test_arrow_cast_of_values_that_do_not_fit(tmp_path: Path) -> None:
    dataset = lance.write_dataset(pa.table({"id": [1, 300], "s": ["x", "y"]}), tmp_path)
    with pytest.raises(ExpressionError, match="300 not in range"):
        dataset.to_table(columns={"c": "arrow_cast(id, 'UInt8')"})
    with pytest.raises(ExpressionError, match="uint8"):
        dataset.add_columns({"c": "arrow_cast(-1, 'UInt8')"})
    with pytest.raises(ExpressionError, match="cannot be cast to duration"):
        dataset.add_columns({"c": "arrow_cast(s, 'Duration(Second)')"})
    for unknown in ("Float8", "List(Int8", "List Int8", "Time32(Nanosecond)", "None", ""):
        with pytest.raises(UnsupportedExpressionError, match="arrow_cast"):
            dataset.add_columns({"c": f"arrow_cast(id, '{unknown}')"})
