"""Actions: the parsers for few and for many lines agree, and reject the same input."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import examples
from tests.delta.tables import LONG_A, add, lines, log_of, metadata, protocol
from trilake.delta.log.descriptions import history
from trilake.delta.protocol import actions as parser
from trilake.delta.protocol.actions import (
    ADD,
    DELETION_VECTOR,
    ActionBatch,
    Metadata,
    Protocol,
    array_of,
    parse_commits,
    parse_rare,
)
from trilake.errors import CorruptLogError, MissingMetadataError, TrilakeError, UnsupportedProtocolError
from trilake.expr.terms.engine import query

Commit = tuple[int, str, pa.Buffer]

_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
_LONG = st.integers(-(2**63), 2**63 - 1)
_VECTOR = st.fixed_dictionaries(
    {"storageType": st.sampled_from("uip"), "pathOrInlineDv": _TEXT, "sizeInBytes": st.integers(0, 2**31 - 1)},
    optional={"offset": st.integers(0, 2**31 - 1), "cardinality": _LONG},
)
_MAP = st.dictionaries(_TEXT, st.none() | _TEXT, max_size=3)
_OPTIONAL: dict[str, st.SearchStrategy[Any]] = {
    "partitionValues": _MAP,
    "size": _LONG,
    "modificationTime": _LONG,
    "dataChange": st.booleans(),
    "stats": st.none() | _TEXT | st.just('{"numRecords":1}'),
    "tags": st.none() | _MAP,
    "deletionVector": st.none() | _VECTOR,
    "baseRowId": st.none() | _LONG,
    "deletionTimestamp": _LONG,
    "extendedFileMetadata": st.booleans(),
    "aFieldOfTheFuture": st.just({"x": [1, None]}),
}
_FILE_ACTION = st.fixed_dictionaries({"path": _TEXT}, optional=_OPTIONAL)
_OTHER = st.sampled_from(
    [
        {"txn": {"appId": "a", "version": 3}},
        {"commitInfo": {"operation": "WRITE", "nested": {"x": [1, {"y": None}]}}},
        {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}},
        {"anActionOfTheFuture": {"add": {"path": "no"}}},
        {"txn": None},
        {"add": None},
        {},
    ]
)
_ACTION = st.one_of(
    st.builds(lambda kind, a: {kind: a}, st.sampled_from(["add", "remove", "cdc"]), _FILE_ACTION), _OTHER
)


@st.composite
def _commits(draw: st.DrawFn) -> list[Commit]:
    """Commit files with unusual but legal white space."""
    out = []
    for version in range(draw(st.integers(1, 3))):
        end = draw(st.sampled_from(["\n", "\r\n", "\n\n", "\n \t\n"]))
        before = draw(st.sampled_from(["", " ", "\t"]))
        ascii_only = draw(st.booleans())
        wide = draw(st.sampled_from([None, (" , ", " : ")]))
        strings = [
            before + json.dumps(a, ensure_ascii=ascii_only, separators=wide)
            for a in draw(st.lists(_ACTION, min_size=1, max_size=6))
        ]
        text = end.join(strings) + draw(st.sampled_from(["", end]))
        out.append((version, f"{version:020d}.json", pa.py_buffer(text.encode())))
    return out


def _both(commits: list[Commit]) -> tuple[ActionBatch, ActionBatch]:
    names, strings = [(v, n) for v, n, _ in commits], [bytes(d) for _, _, d in commits]
    return parser._parse_few(names, strings), parser._parse_many(names, strings, query)


def _plain(batch: ActionBatch) -> dict[str, Any]:
    """Content and order; only the relative order of ``order`` matters."""
    result: dict[str, Any] = {"rare": [(v, n, d) for v, n, d in batch.rare]}
    for kind in ("add", "remove", "cdc"):
        table = getattr(batch, kind)
        assert table["order"].to_pylist() == sorted(table["order"].to_pylist())
        result[kind] = table.drop_columns(["order"]).to_pylist()
    return result


@settings(max_examples=examples(40))
@given(_commits())
def test_row_and_column_parsers_agree(commits: list[Commit]) -> None:
    few, many = _both(commits)
    assert _plain(few) == _plain(many)
    assert few.add.schema.equals(many.add.schema)
    assert list(parse_rare(commits).rare) == list(few.rare)


def test_values_that_only_one_parser_reads_are_kept() -> None:
    twice = b'{"add":{"path":"b","partitionValues":{"p":"1","p":"2"},"size":1}}\n'
    commit = (0, "x", pa.py_buffer(lines([add("a")]) + b"\n" + twice + lines([add("c")])))
    for batch in _both([commit]):
        assert batch.add["path"].to_pylist() == ["a", "b", "c"]
        assert batch.add["partitionValues"].to_pylist() == [[], [("p", "2")], []]


@pytest.mark.parametrize("offset", ["one", 1 << 31, [1]])
def test_invalid_offset_is_not_an_absent_one(offset: Any) -> None:
    commit = (0, "x", pa.py_buffer(lines([add("a", deletionVector={"storageType": "u", "offset": offset})])))
    for parse in (parser._parse_few, lambda names, contents: parser._parse_many(names, contents, query)):
        with pytest.raises(CorruptLogError, match=r"deletionVector\.offset must be an integer of 32 bits"):
            parse([commit[:2]], [bytes(commit[2])])


def test_adds_and_removes_keep_log_order() -> None:
    commit = (0, "x", pa.py_buffer(lines([add("a"), {"remove": {"path": "a"}}, add("b"), {"remove": {"path": "c"}}])))
    for batch in _both([commit]):
        a, r = batch.add["order"].to_pylist(), batch.remove["order"].to_pylist()
        assert a[0] < r[0] < a[1] < r[1]


def test_object_statistics_and_non_string_tags() -> None:
    commit = (0, "x", pa.py_buffer(b'{"add":{"path":"p","stats":{"numRecords":3},"tags":{"n":1,"t":"1","o":{"a":2}}}}'))
    for batch in _both([commit]):
        row = batch.add.to_pylist()[0]
        assert json.loads(row["stats"]) == {"numRecords": 3}
        assert row["tags"] == [("n", "1"), ("t", "1"), ("o", '{"a":2}')]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b" \r\n\t\n",
        b"\0\0\0\0",
        b'{"add":{"path":"a"',
        b'{"commitInfo":{}}\n{"add":{"path":"a","size":1}}\n{"add":{"pa',
        b'{"add":{"path":"a"}}{"add":{"path":"b"}}\n',
        b"[]\n",
        b"7\n",
        b'"text"\n',
        b"null\n",
        b'{"add":{"path":"\xff"}}\n',
        b'{"add":{"size":1}}\n',
        b'{"add":{"path":null}}\n',
        b'{"remove":{"dataChange":true}}\n',
        b'{"add":{"path":"a","size":"large"}}\n',
        b'{"add":{"path":"a","size":9223372036854775808}}\n',
        b'{"add":{"path":"a","partitionValues":[1]}}\n',
        b'{"add":{"path":"a","deletionVector":"x"}}\n',
        b'{"add":[]}\n',
        b'{"add":"a"}\n',
        b'{"txn":5}\n',
        b'{"commitInfo":"x"}\n',
        b'{"metaData":[1]}\n',
        b'{"protocol":true}\n',
        b'{"domainMetadata":"d"}\n',
        b'{"protocol":{"minReaderVersion":1,"minWriterVersion":2,"readerFeatures":Infinity}}\n',
        b'{"commitInfo":{"timestamp":NaN}}\n',
        b'{"add":' + b"[" * 5000 + b"]" * 5000 + b"}\n",
    ],
)
@pytest.mark.parametrize("size", ["few", "many"])
def test_damaged_commits_name_file_and_version(content: bytes, size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parser, "_FEW_LINES", 10**9 if size == "few" else -1)
    good = pa.py_buffer(lines([protocol(), metadata(), add("ok")]))
    with pytest.raises(CorruptLogError) as e:
        parse_commits([(6, "_delta_log/6.json", good), (7, "_delta_log/7.json", pa.py_buffer(content))], query)
    assert e.value.context["version"] == 7
    assert e.value.context["file"] == "_delta_log/7.json"


@pytest.mark.parametrize(
    ("action", "why"),
    [
        ({"add": "%2"}, "the add action does not follow the protocol: it must be a JSON object, got '%2'"),
        ({"txn": 5}, "the txn action does not follow the protocol: it must be a JSON object, got 5"),
        (add("a", size="%2"), "size must be an integer of 64 bits, got '%2'"),
        (add("a", size=1 << 64), "size must be an integer of 64 bits, got 1.8446744073709552e+19"),
        (add("a", stats=["x"]), "stats must be a string, got ['x']"),
        (add("a", dataChange=[]), "dataChange must be true or false, got []"),
        (add("a", partitionValues="p"), "partitionValues must be an object, got 'p'"),
        (add("a", deletionVector=3), "deletionVector must be an object, got 3"),
        (
            add("a", deletionVector={"storageType": "u", "sizeInBytes": 1 << 31}),
            "deletionVector.sizeInBytes must be an integer of 32 bits, got 2147483648",
        ),
        ({"protocol": {"minReaderVersion": "1"}}, "minReaderVersion must be an integer of 64 bits, got '1'"),
        (protocol(1, 1 << 31), "minWriterVersion must be from 0 to 2147483647, got 2147483648"),
        ({"metaData": {}}, "the metaData action does not follow the protocol: id is missing"),
        ({"metaData": {**metadata()["metaData"], "createdTime": "now"}}, "createdTime must be an integer of 64 bits"),
        ({"metaData": {**metadata()["metaData"], "name": {}}}, "name must be a string, got {}"),
        ({"metaData": {**metadata()["metaData"], "format": [[]]}}, "format must be an object, got [[]]"),
        ({"metaData": {**metadata()["metaData"], "configuration": "x"}}, "configuration must be an object, got 'x'"),
        ({"metaData": {**metadata()["metaData"], "schemaString": "[[]]"}}, "[[]] is not a type"),
        ({"txn": {"appId": "a"}}, "the txn action does not follow the protocol: version is missing"),
        ({"txn": {"appId": "a", "version": "7"}}, "version must be an integer of 64 bits, got '7'"),
        ({"txn": {"appId": "a", "version": 7, "lastUpdated": 1 << 63}}, "lastUpdated must be an integer of 64 bits"),
        ({"domainMetadata": {"domain": None, "removed": False}}, "domain is missing"),
        ({"domainMetadata": {"domain": "d", "removed": "false"}}, "removed must be true or false, got 'false'"),
    ],
)
def test_damaged_action_names_value_place_and_remedy(action: dict[str, Any], why: str) -> None:
    log = log_of([], [action])
    with pytest.raises(CorruptLogError) as e:
        log.snapshot()
    assert why in e.value.message
    assert e.value.context["version"] == 1
    assert e.value.help


def test_large_commit_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parser, "_FEW_LINES", -1)
    queries: list[str] = []

    def counted(sql: str, **tables: pa.Table) -> pa.Table:
        queries.append(sql)
        return query(sql, **tables)

    commit = pa.py_buffer(lines([protocol(), metadata(), *(add(f"f{i}") for i in range(5000))]))
    batch = parse_commits([(0, "0.json", commit)], counted)
    assert batch.add["path"].to_pylist() == [f"f{i}" for i in range(5000)]
    assert batch.add["order"].to_pylist() == list(range(2, 5002))
    assert len(queries) == 1


def test_truncated_commit_is_named() -> None:
    log = log_of([add("a")], [add("b")])
    content = bytes(log.store.read("_delta_log/00000000000000000001.json"))
    for cut in (0, 1, len(content) // 2, len(content) - 2):
        log.store.put("_delta_log/00000000000000000001.json", content[:cut])
        with pytest.raises(CorruptLogError, match=r"00000000000000000001\.json, version: 1"):
            log.snapshot()
        assert log.snapshot(0).version == 0


# --- rare actions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data", [{}, {"minReaderVersion": 1}, {"minReaderVersion": "x", "minWriterVersion": 2}, {"minReaderVersion": None}]
)
def test_incomplete_protocol_is_an_error(data: dict[str, Any]) -> None:
    with pytest.raises(CorruptLogError, match="protocol"):
        Protocol.from_json(data, version=1)


@pytest.mark.parametrize(
    "change",
    [
        {"schemaString": ""},  # a schema without columns is {"type":"struct","fields":[]}, or no schemaString at all
        {"schemaString": 0},
        {"schemaString": "x"},
        {"schemaString": "[]"},
        {"schemaString": '{"type":"struct"}'},
        {"schemaString": '{"type":"struct","fields":[1]}'},
        {"schemaString": '{"type":"struct","fields":[{"name":"a"}]}'},
        {"schemaString": '{"type":"struct","fields":[{"name":"a","type":"long","metadata":7}]}'},
        {"schemaString": '{"type":"struct","fields":7}'},
        {"schemaString": '"long"'},
        {"partitionColumns": ["b"]},
        {"partitionColumns": ["A"]},  # the column is named a, so partition values of files would not match
        {"partitionColumns": [1]},
        {"partitionColumns": [["a"]]},
        {"partitionColumns": 5},
        {"partitionColumns": "a"},
        {"configuration": 5},
        {"configuration": [1]},
        {"format": 5},
        {"format": {"options": 5}},
    ],
)
def test_invalid_metadata_is_an_error(change: dict[str, Any]) -> None:
    data = {**metadata()["metaData"], **change}
    with pytest.raises(CorruptLogError):
        Metadata.from_json(data, version=1)


def test_unknown_type_is_named() -> None:
    with pytest.raises(UnsupportedProtocolError, match="hllsketch"):
        Metadata.from_json(metadata(LONG_A.replace('"long"', '"hllsketch"'))["metaData"])


def test_metadata_and_protocol_round_trip() -> None:
    data = metadata(LONG_A, ["a"], delta__appendOnly="true")["metaData"]
    assert Metadata.from_json(data).to_json() == data
    for p in (protocol(), protocol(3, 7, readerFeatures=["deletionVectors"], writerFeatures=[])):
        assert Protocol.from_json(p["protocol"]).to_json() == p["protocol"]


def test_non_string_properties_become_strings() -> None:
    data = {**metadata()["metaData"], "configuration": {"delta.appendOnly": True, "x": False, "n": 5}}
    assert Metadata.from_json(data).configuration == {"delta.appendOnly": "true", "x": "false", "n": "5"}


def test_null_properties_are_not_strings() -> None:
    parsed = Metadata.from_json({**metadata()["metaData"], "configuration": {"a": None, "b": "x"}})
    assert parsed.configuration.get("a") != "None"
    assert parsed.configuration["b"] == "x"


@pytest.mark.parametrize(
    "info", [{}, {"readVersion": 1 << 64}, {"timestamp": "soon", "operationParameters": 5, "isBlindAppend": "yes"}]
)
def test_history_of_malformed_commit_infos(info: dict[str, Any]) -> None:
    log = log_of([{"commitInfo": info}])
    assert history(log, log.snapshot()).num_rows == 1


def test_missing_metadata_and_protocol_is_an_error() -> None:
    store_log = log_of([add("a")])
    store_log.store.put("_delta_log/00000000000000000000.json", lines([add("a")]))
    with pytest.raises(MissingMetadataError, match="metaData and no protocol"):
        store_log.snapshot()


@settings(max_examples=examples(40))
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["path", "id", "a"]), inner),
        max_leaves=5,
    ),
    st.sampled_from(["add", "remove", "cdc", "metaData", "protocol", "txn", "domainMetadata", "commitInfo"]),
)
def test_any_value_in_an_action_is_read_or_rejected(value: Any, kind: str) -> None:
    log = log_of([], [{kind: value}])
    try:
        snapshot = log.snapshot()
        history(log, snapshot)
    except TrilakeError:
        return
    assert snapshot.version == 1


_ADDS: list[dict[str, Any]] = [
    {"path": "a", "partitionValues": {}, "size": 1, "modificationTime": -(1 << 63), "dataChange": True},
    {"path": "é", "partitionValues": {"k": None, "j": ""}, "size": None, "dataChange": False, "stats": ""},
    {"path": "", "deletionVector": {"storageType": "u", "offset": 2147483647, "cardinality": 7, "unknown": 1}},
    {"path": "d", "partitionValues": {"k": "v"}, "size": 4, "dataChange": None, "deletionVector": {}},
]


@pytest.mark.parametrize("rows", [_ADDS, _ADDS[:1], _ADDS[2:], []])
def test_file_action_columns_match_arrow(rows: list[dict[str, Any]]) -> None:
    for field in ADD:
        values = [row.get(field.name) for row in rows]
        if pa.types.is_map(field.type):
            values = [None if v is None else list(v.items()) for v in values]
        array = array_of(values, field.type)
        array.validate(full=True)
        assert array.type == field.type
        assert array.equals(pa.array(values, field.type))


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (1, pa.string()),
        (b"a", pa.string()),
        (True, pa.int64()),
        (1.0, pa.int64()),
        ("1", pa.int64()),
        (1, pa.bool_()),
        ("a", DELETION_VECTOR),
        ({"offset": "1"}, DELETION_VECTOR),
        ({"k": "v"}, pa.map_(pa.string(), pa.string())),
        ([("k", 1)], pa.map_(pa.string(), pa.string())),
    ],
)
def test_file_action_column_rejects_another_type(value: object, type_: pa.DataType) -> None:
    with pytest.raises(TypeError):
        array_of([None, value], type_)


@pytest.mark.parametrize(("value", "type_"), [(1 << 63, pa.int64()), (1 << 31, pa.int32())])
def test_file_action_column_rejects_large_numbers(value: int, type_: pa.DataType) -> None:
    with pytest.raises(OverflowError):
        array_of([value], type_)
