"""Functions that Spark lacks return the same values as in pylance."""

from __future__ import annotations

import json
from pathlib import Path

import lance as pylance
import pyarrow as pa
import pytest

from trilake import lance
from trilake.errors import FilterError, UnsupportedExpressionError

DOCUMENTS = [
    {
        "a": ["x", "1", 1, None, True, 1.5, {"k": 1}, ["q"]],
        "b": "Yes",
        "c": "95.5",
        "d": True,
        "e": {"k": [1, {"l": 2}]},
    },
    {"a": [], "b": "no", "c": -95.5, "d": "1e2", "e": [{"k": 1}, {"k": [2]}], "f g": 5, "0": 8},
    {"a": None, "b": False, "c": "+5", "d": 7, "e": {}},
    [1, "1", [2]],
    5,
    None,
    {},
]
PATHS = [
    "$",
    "$.a",
    "a",
    "$.a[0]",
    "$.a[-1]",
    "$.a[*]",
    "$.e[*].k",
    "$.e.*",
    '$."f g"',
    '$["f g"]',
    "$.e.k[1].l",
    "$[0]",
]
CALLS = [
    *(f"{name}(d, '{path}')" for name in ("json_extract", "json_exists", "json_array_length") for path in PATHS),
    *(f"json_array_contains(d, '$.a', {value})" for value in ("'x'", "1", "'1'", "'true'", "'null'", "'{\"k\":1}'")),
    *(f"json_get_string(d, '{key}')" for key in ("b", "c", "d", "0", "f g", "z")),
    *(f"json_get_{kind}(d, '{key}')" for kind in ("int", "float") for key in ("c", "d", "0")),
    "json_get_bool(d, 'b')",
    "json_get(d, 'a') IS NULL",
    "json_get_int(json_get(json_get(json_get(d, 'e'), 'k'), '1'), 'l')",
]


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Path:
    uri = tmp_path_factory.mktemp("json") / "t"
    values = [None if value is None else json.dumps(value) for value in DOCUMENTS]
    lance.write_dataset(pa.table({"id": range(len(values)), "d": pa.array(values, pa.json_())}), uri)
    return uri


def test_json_functions_match_pylance(uri: Path) -> None:
    columns = {f"c{i}": call for i, call in enumerate(CALLS)}
    theirs = pylance.dataset(uri).to_table(columns=columns)
    ours = lance.dataset(uri).to_table(columns=columns)
    for name, call in columns.items():
        assert ours[name].to_pylist() == theirs[name].to_pylist(), call
        assert ours.schema.field(name).type == theirs.schema.field(name).type, call


@pytest.mark.parametrize(
    "condition",
    [
        "json_extract(d, '$.e.k[0]') = '1'",
        "json_exists(d, '$.a[*]') AND id < 2",
        "json_get_bool(d, 'b') IS NOT NULL",
        "JSON_ARRAY_LENGTH(d, '$.a') > 1 OR json_get(d, '0') IS NOT NULL",
    ],
)
def test_json_filter_matches_pylance(uri: Path, condition: str) -> None:
    ours = lance.dataset(uri).to_table(["id"], filter=condition)
    assert ours.equals(pylance.dataset(uri).to_table(["id"], filter=condition))
    assert ours.num_rows > 0
    rows = lance.dataset(uri).sql(f"SELECT id, d FROM dataset WHERE {condition}").build().to_table()
    assert rows["id"].to_pylist() == ours["id"].to_pylist()
    assert rows.schema.field("d").type == pa.json_()


def test_value_of_another_kind_is_an_error(uri: Path) -> None:
    with pytest.raises(FilterError, match="cannot be converted to an integer"):
        lance.dataset(uri).to_table(filter="json_get_int(d, 'e') = 1")
    with pytest.raises(FilterError, match=r"valid paths are '\$.a'"):
        lance.dataset(uri).to_table(filter="json_exists(d, '$..a')")
    with pytest.raises(FilterError, match="cannot be used in a filter"):
        lance.dataset(uri).to_table(filter="json_gets(d, 'a') = 1")


def test_update_sets_a_column_from_json(tmp_path: Path) -> None:
    dataset = lance.write_dataset(pa.table({"n": [0], "d": pa.array(['{"a": 3}'], pa.json_())}), tmp_path / "t")
    dataset.update({"n": "json_get_int(d, 'a') + 1"})
    dataset.add_columns({"m": "json_get_string(d, 'a')"})
    assert dataset.to_table(["n", "m"]).to_pylist() == [{"n": 4, "m": "3"}]
    with pytest.raises(UnsupportedExpressionError):
        dataset.update({"n": "json_get_int(d, 'a', 1)"})


def test_sha256_matches_pylance(tmp_path: Path) -> None:
    rows = pa.table({"s": ["Alice", "", None], "b": pa.array([b"\xff", b"", None])})
    lance.write_dataset(rows, tmp_path / "t").add_columns({"s_hash": "sha256(s)", "b_hash": "sha256(b)"})
    theirs = pylance.write_dataset(rows, tmp_path / "p")
    theirs.add_columns({"s_hash": "sha256(s)", "b_hash": "sha256(b)"})
    assert lance.dataset(tmp_path / "t").to_table() == theirs.to_table()
