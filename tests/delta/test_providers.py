"""Tables whose ``metaData.format.provider`` is not Parquet, like some early Delta tables."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.orc as orc
import pytest

import trilake
from trilake.errors import CorruptFileError, MissingFileError

FIELDS = {"n": "long", "s": "string", "x": "double", "t": "timestamp", "d": "date", "b": "boolean", "p": "integer"}
ROWS = [
    {"n": 1, "s": "a,b", "x": 1.5, "t": "2020-01-01 01:02:03", "d": "2020-02-29", "b": True, "p": 7},
    {"n": 2, "s": None, "x": None, "t": None, "d": None, "b": None, "p": 7},
    {"n": 3, "s": 'q"q', "x": -0.0, "t": "1900-01-01 00:00:00", "d": "0001-01-01", "b": False, "p": 7},
]


def make(root: Path, provider: str, name: str, data: bytes, *, fields: dict[str, str] = FIELDS, **options: str) -> str:
    """Make a table of one file in partition ``p=7``."""
    log = root / "_delta_log"
    log.mkdir(parents=True)
    (root / name).write_bytes(data)
    partition = [f for f in fields if f == "p"]
    schema = {
        "type": "struct",
        "fields": [{"name": k, "type": t, "nullable": True, "metadata": {}} for k, t in fields.items()],
    }
    actions = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "x",
                "format": {"provider": provider, "options": options},
                "schemaString": json.dumps(schema),
                "partitionColumns": partition,
                "configuration": {},
            }
        },
        {
            "add": {
                "path": name,
                "partitionValues": dict.fromkeys(partition, "7"),
                "size": len(data),
                "modificationTime": 0,
                "dataChange": True,
            }
        },
    ]
    (log / f"{0:020d}.json").write_text("\n".join(json.dumps(a) for a in actions))
    return str(root)


def expected() -> list[dict[str, object]]:
    def column(name: str, type_: pa.DataType) -> pa.Array:
        return pa.array([r[name] for r in ROWS]).cast(type_)

    table = pa.table(
        {
            "n": column("n", pa.int64()),
            "s": column("s", pa.string()),
            "x": column("x", pa.float64()),
            "t": column("t", pa.timestamp("us")).cast(pa.timestamp("us", "UTC")),
            "d": column("d", pa.date32()),
            "b": column("b", pa.bool_()),
            "p": column("p", pa.int32()),
        }
    )
    rows: list[dict[str, object]] = table.to_pylist()
    return rows


CSV = b'1,"a,b",1.5,2020-01-01 01:02:03,2020-02-29,true\n2,,,,,\n3,"q""q",-0.0,1900-01-01 00:00:00,0001-01-01,false\n'


@pytest.mark.parametrize("header", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_csv_files_are_read(tmp_path: Path, header: bool, packed: bool) -> None:
    data = (b"any,names,are,in,the,header\n" if header else b"") + CSV
    name = "part-0.csv" + (".gz" if packed else "")
    options = {"header": str(header).lower()}
    path = make(tmp_path / "t", "csv", name, gzip.compress(data) if packed else data, **options)
    table = trilake.open(path)
    assert table.to_arrow().to_pylist() == expected()
    assert table.to_arrow(["s"], filter="x > 1 AND p = 7").to_pylist() == [{"s": "a,b"}]
    assert table.count() == 3


def test_csv_delimiter_and_null(tmp_path: Path) -> None:
    fields = {"a": "string", "b": "long"}
    path = make(tmp_path / "t", "csv", "x.csv", b"u|1\n\\N|2\n", fields=fields, sep="|", nullValue="\\N")
    assert trilake.open(path).to_arrow().to_pylist() == [{"a": "u", "b": 1}, {"a": None, "b": 2}]


def test_json_files_are_read(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps({k: v for k, v in r.items() if k != "p" and v is not None}) for r in ROWS)
    path = make(tmp_path / "t", "json", "part-0.json", lines.encode() + b'\n{"n": 4, "more": [1], "t": null}\n')
    assert trilake.open(path).to_arrow(filter="n < 4").to_pylist() == expected()
    assert trilake.open(path).count() == 4


def test_nested_json_files_are_read(tmp_path: Path) -> None:
    schema = {"s": {"type": "struct", "fields": [{"name": "t", "type": "timestamp", "nullable": True, "metadata": {}}]}}
    schema["y"] = "binary"  # type: ignore[assignment]
    schema["a"] = {"type": "array", "elementType": "date", "containsNull": True}
    data = b'{"s": {"t": "2020-01-01T02:00:00+02:00"}, "y": "AQI=", "a": ["2020-01-01", null]}\n{"s": null}\n'
    path = make(tmp_path / "t", "json", "x.json", data, fields=schema)  # type: ignore[arg-type]
    first, second = trilake.open(path).to_arrow().to_pylist()
    assert first["s"]["t"].isoformat() == "2020-01-01T00:00:00+00:00"
    assert (first["y"], [str(d) for d in first["a"]]) == (b"\x01\x02", ["2020-01-01", "None"])
    assert second == {"s": None, "y": None, "a": None}


def test_orc_files_are_read(tmp_path: Path) -> None:
    table = pa.Table.from_pylist(expected()).drop_columns(["p"])
    file = tmp_path / "x.orc"
    orc.write_table(table.set_column(3, "t", table["t"].cast(pa.timestamp("us"))), file)
    path = make(tmp_path / "t", "orc", "part-0.orc", file.read_bytes())
    assert trilake.open(path).to_arrow().to_pylist() == expected()
    assert trilake.open(path).to_arrow(["b", "n"], filter="n = 3").to_pylist() == [{"b": False, "n": 3}]


def test_text_files_are_read(tmp_path: Path) -> None:
    path = make(tmp_path / "t", "text", "a.txt", "first\r\nzweite ü\n\nlast".encode(), fields={"value": "string"})
    assert trilake.open(path).to_arrow()["value"].to_pylist() == ["first", "zweite ü", "", "last"]


@pytest.mark.parametrize("provider", ["csv", "json", "orc", "text"])
def test_damage_is_a_typed_error(tmp_path: Path, provider: str) -> None:
    fields = {"value": "string"} if provider == "text" else {"n": "long", "m": "long"}
    path = make(tmp_path / "t", provider, "x", b'\xff\xfe{"n": "x\n1,2,3\n', fields=fields)
    if provider == "text":
        assert trilake.open(path).count() == 2
        return
    with pytest.raises(trilake.TrilakeError, match="CORRUPT_FILE"):
        trilake.open(path).to_arrow()


def test_unknown_provider_is_rejected(tmp_path: Path) -> None:
    path = make(tmp_path / "t", "avro", "x.avro", b"x")
    with pytest.raises(trilake.TrilakeError, match="'avro'"):
        trilake.open(path).to_arrow()


@pytest.mark.parametrize("format", ["lance", "trevni"])
def test_damaged_and_missing_files_are_named(tmp_path: Path, format: str) -> None:
    path = tmp_path / "t"
    trilake.write(ROWS, path, data_format=format)
    (file,) = path.glob(f"*.{format}")
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(CorruptFileError, match=file.name):
        trilake.open(path).to_arrow()
    file.unlink()
    with pytest.raises(MissingFileError, match=file.name):
        trilake.open(path).to_arrow()


@pytest.mark.parametrize("format", ["lance", "trevni"])
def test_failed_write_leaves_nothing(tmp_path: Path, format: str) -> None:
    path = tmp_path / "t"
    trilake.write(ROWS, path, data_format=format)

    def batches() -> Iterator[pa.RecordBatch]:
        yield from pa.Table.from_pylist(ROWS).to_batches()
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        trilake.write(batches(), path, mode="append")
    assert len(list(path.rglob(f"*.{format}"))) == 1
    assert trilake.open(path).version == 0
