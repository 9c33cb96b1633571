"""Columns of geometries and geographies, without Spark."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trilake
from tests.delta.tables import new_uri
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.arrow_types import spatial_name
from trilake.delta.protocol.schema import parse_primitive
from trilake.delta.protocol.sql_types import parse_sql_type
from trilake.delta.rules.store_assignment import assign_array
from trilake.delta.standard import standard_engine
from trilake.errors import FeatureInUseError, InvalidArgumentError, SchemaMismatchError, TrilakeError
from trilake.storage import open_store


def point(x: float, y: float) -> bytes:
    return struct.pack("<BIdd", 1, 1, x, y)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("geometry", "geometry(OGC:CRS84)"),
        ("geometry(EPSG:0)", "geometry(EPSG:0)"),
        ("geometry( epsg:4326 )", "geometry(epsg:4326)"),
        ("geography", "geography(OGC:CRS84, SPHERICAL)"),
        ("geography(EPSG:4326)", "geography(EPSG:4326, SPHERICAL)"),
        ("geography(vincenty)", "geography(OGC:CRS84, VINCENTY)"),
        ("geography(EPSG:3857, vincenty)", "geography(EPSG:3857, VINCENTY)"),
        ("geography(OGC:CRS84, SPHERICAL)", "geography(OGC:CRS84, SPHERICAL)"),
        ("geometry()", None),
        ("geometry(EPSG:4326, extra)", None),
        ("geometry(noColon)", None),
        ("geography()", None),
        ("geography(EPSG:4326, straight)", None),
        ("Geometry", None),
    ],
)
def test_spatial_type_names(text: str, name: str | None) -> None:
    assert spatial_name(text) == name
    if name is None:
        with pytest.raises(TrilakeError):
            parse_primitive(text)
    else:
        assert parse_primitive(text).to_json() == name
        assert parse_primitive(text).arrow == pa.binary()


@pytest.mark.parametrize(
    ("sql", "name"),
    [
        ("geometry(4326)", "geometry(OGC:CRS84)"),
        ("GEOGRAPHY(4326)", "geography(OGC:CRS84, SPHERICAL)"),
        ("geometry(0)", "geometry(SRID:0)"),
        ("geometry(3857)", "geometry(EPSG:3857)"),
        ("geography(EPSG:4326, karney)", "geography(EPSG:4326, KARNEY)"),
        ("array<geometry>", "array<geometry(OGC:CRS84)>"),
    ],
)
def test_spatial_types_in_sql(sql: str, name: str) -> None:
    assert str(parse_sql_type(sql)[0]) == name


@pytest.mark.parametrize(
    ("sql", "says"),
    [("geometry(any)", "allows any"), ("geometry(27)", "geometry"), ("geometry(4326", "expected")],
)
def test_other_reference_systems_are_rejected(sql: str, says: str) -> None:
    with pytest.raises(InvalidArgumentError, match=says):
        parse_sql_type(sql)


SCHEMA = {"n": "bigint", "g": "geometry(4326)", "p": "geography(4326)", "l": "array<geometry(3857)>"}
ROWS = [
    {"n": 1, "g": point(1, 2), "p": point(3, 4), "l": [point(0, 0), None]},
    {"n": 2, "g": None, "p": None, "l": None},
    {"n": 3, "g": point(-1, 90), "p": point(-180, 0), "l": []},
]
TYPE = pa.schema([("n", pa.int64()), ("g", pa.binary()), ("p", pa.binary()), ("l", pa.list_(pa.binary()))])


@pytest.fixture
def uri(tmp_path: Path) -> str:
    trilake.create(tmp_path, SCHEMA)
    trilake.write(pa.Table.from_pylist(ROWS, TYPE), tmp_path, mode="append")
    return str(tmp_path)


def rows(uri: str, **options: Any) -> list[dict[str, Any]]:
    return sorted(trilake.open(uri).to_arrow(**options).to_pylist(), key=lambda r: r["n"])


def test_values_are_kept_as_wkb(uri: str) -> None:
    table = trilake.open(uri)
    assert table.snapshot.protocol.reader_features == ("geospatial",)
    fields = {f["name"]: f["type"] for f in orjson.loads(table.metadata.schema_string)["fields"]}
    assert fields["g"] == "geometry(OGC:CRS84)"
    assert fields["l"]["elementType"] == "geometry(EPSG:3857)"
    assert rows(uri) == ROWS
    assert rows(uri, filter="g IS NULL") == ROWS[1:2]
    stats = orjson.loads(table.snapshot.adds["stats"][0].as_py())
    assert stats["nullCount"] == {"n": 0, "g": 1, "p": 1}
    assert stats["minValues"] == {"n": 1}
    assert trilake.verify(uri).ok


def test_changes_keep_spatial_columns(uri: str) -> None:
    table = trilake.open(uri)
    table.update({"n": "n + 10"}, where="n = 1")
    source = pa.Table.from_pylist([{**ROWS[0], "n": 3}, {**ROWS[0], "n": 4}], TYPE)
    merge = trilake.open(uri).merge(source, "target.n = source.n")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    trilake.open(uri).delete("n = 2")
    trilake.open(uri).optimize()
    assert rows(uri) == [{**ROWS[0], "n": n} for n in (3, 4, 11)]
    copy = new_uri()
    trilake.write(trilake.open(uri).to_arrow(), copy)
    assert trilake.open(copy).metadata.schema == trilake.open(uri).metadata.schema
    assert rows(copy) == rows(uri)


@pytest.mark.parametrize(
    "type_", [pa.binary(), pa.large_binary(), pa.binary_view(), pa.struct([("srid", pa.int32()), ("wkb", pa.binary())])]
)
def test_wkb_is_accepted_in_every_arrow_form(type_: pa.DataType) -> None:
    value = {"srid": 4326, "wkb": point(1, 2)} if pa.types.is_struct(type_) else point(1, 2)
    result = assign_array(pa.array([value, None], type_), parse_primitive("geometry"), "g")
    assert result.equals(pa.array([point(1, 2), None], pa.binary()))


@pytest.mark.parametrize(
    ("value", "says"),
    [(pa.array(["POINT (1 2)"]), "string"), (pa.array([b"POINT"]), "not WKB"), (pa.array([1.5]), "double")],
)
def test_values_that_are_not_wkb_are_rejected(value: pa.Array, says: str, uri: str) -> None:
    with pytest.raises(SchemaMismatchError, match=says):
        trilake.write(pa.table({"n": [9], "g": value}), uri, mode="append")
    assert rows(uri) == ROWS


def test_other_reference_system_is_another_type(uri: str) -> None:
    other = new_uri()
    trilake.create(other, {"n": "bigint", "g": "geometry(3857)"})
    with pytest.raises(SchemaMismatchError, match=r"geometry\(EPSG:3857\).*geometry\(OGC:CRS84\)"):
        trilake.write(trilake.open(other).to_arrow(), uri, mode="append")


def test_spatial_column_cannot_partition_or_cluster() -> None:
    for options in ({"partition_by": ["g"]}, {"cluster_by": ["g"]}):
        with pytest.raises(InvalidArgumentError, match="g"):
            trilake.create(new_uri(), {"n": "bigint", "g": "geometry"}, **options)


def test_bounding_boxes_are_kept_and_skip_no_file(uri: str) -> None:
    log = Path(uri) / "_delta_log" / f"{1:020}.json"
    actions = [orjson.loads(line) for line in log.read_bytes().splitlines()]
    for add in (a["add"] for a in actions if "add" in a):
        stats = orjson.loads(add["stats"])
        stats["minValues"]["g"], stats["maxValues"]["g"] = "POINT(-1.0 2.0)", "POINT(1.0 90.0)"
        add["stats"] = orjson.dumps(stats).decode()
    log.write_bytes(b"\n".join(map(orjson.dumps, actions)))
    hexed = point(1, 2).hex()
    assert rows(uri, filter=f"g = X'{hexed}'") == ROWS[:1]
    assert rows(uri, filter="g IS NOT NULL AND n > 1") == ROWS[2:]
    trilake.open(uri).delete("n = 2")
    assert "POINT(-1.0 2.0)" in log.read_text()


def test_value_of_another_reference_system_is_rejected(uri: str) -> None:
    trilake.alter(uri).add_columns({"h": "geometry(3857)", "i": "geometry"})
    with pytest.raises(
        SchemaMismatchError, match=r"column h has type geometry\(EPSG:3857\), but its new value uses column g"
    ):
        trilake.open(uri).update({"h": "g"})
    trilake.open(uri).update({"i": "g"})
    assert [r["i"] for r in rows(uri)] == [r["g"] for r in ROWS]


def test_spatial_column_has_no_default(uri: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"column g has type geometry.*cannot have a default"):
        trilake.alter(uri).set_default("g", "X'00'")


def test_feature_in_use_is_not_dropped(uri: str) -> None:
    with pytest.raises(FeatureInUseError, match="columns contain geometries or geographies: g, p, l"):
        trilake.alter(uri).drop_feature("geospatial")


def test_tables_of_the_preview_are_read_and_written(tmp_path: Path) -> None:
    trilake.create(tmp_path, {"g": "geometry"}, properties={"delta.feature.geospatial-dev": "supported"})
    trilake.write(pa.table({"g": [point(1, 1)]}), tmp_path, mode="append")
    protocol = DeltaLog(open_store(tmp_path), standard_engine()).head().protocol
    assert protocol.reader_features == ("geospatial-dev",)
    assert trilake.open(tmp_path).to_arrow()["g"].to_pylist() == [point(1, 1)]
    assert all(pq.read_schema(f).field("g").type == pa.binary() for f in tmp_path.glob("*.parquet"))
