"""Files of rows become Trevni column files and come back: Avro, JSON and CSV, each by one Spark job.

Run it with ``python examples/convert_to_trevni.py``.  It needs no network and no jar, and leaves nothing behind.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import fastavro
from rich.console import Console
from rich.table import Table

from trilake.spark.session.local import local_session
from trilake.spark.trevni.convert import from_trevni, to_trevni
from trilake.trevni import TrevniFile

ROWS = 20_000
#: A union of three branches, an array of records and an enum: things that a DataFrame does not have.
SCHEMA = {
    "type": "record",
    "name": "Order",
    "namespace": "example",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string", {"type": "array", "items": "string"}]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [{"name": "sku", "type": "string"}, {"name": "count", "type": "int"}],
                },
            },
        },
    ],
}


def order(i: int) -> dict[str, object]:
    note = (None, f"call {i}", ["fragile", "gift"])[i % 3]
    lines = [{"sku": f"sku-{(i + k) % 50}", "count": k + 1} for k in range(i % 4)]
    return {"id": i, "note": note, "state": ("OPEN", "PAID")[i % 2], "lines": lines}


def write_sources(folder: Path) -> dict[str, Path]:
    """The same orders as Avro (two files), JSON and CSV; the latter two without what they cannot say."""
    orders = [order(i) for i in range(ROWS)]
    for i in range(2):
        path = folder / "avro" / f"{i}.avro"
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as file:
            fastavro.writer(file, fastavro.parse_schema(SCHEMA), orders[i::2], codec="deflate")
    (folder / "orders.json").write_text("".join(json.dumps({**o, "note": str(o["note"])}) + "\n" for o in orders))
    (folder / "orders.csv").write_text("id,state\n" + "".join(f"{o['id']},{o['state']}\n" for o in orders))
    return {"avro": folder / "avro", "json": folder / "orders.json", "csv": folder / "orders.csv"}


def size(path: Path) -> int:
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file()) if path.is_dir() else path.stat().st_size


def main() -> None:
    console = Console(highlight=False)
    spark = local_session("convert to trevni")
    shown = Table("format", "source", "as Trevni", "back again", title=f"{ROWS:,} orders, bytes")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind, source in write_sources(folder).items():
            trevni, back = folder / f"{kind}-trevni", folder / f"{kind}-back"
            options = {"header": "true", "inferSchema": "true"} if kind == "csv" else {}
            done = to_trevni(spark, str(source), str(trevni), format=kind, options=options)
            assert done.rows_added == ROWS
            from_trevni(spark, str(trevni), str(back), format=kind)
            shown.add_row(kind, *(f"{size(p):,}" for p in (source, trevni, back)))
        console.print(shown)
        first = TrevniFile(min((folder / "avro-trevni").glob("*.trv")))
        console.print("columns of the Avro orders: " + ", ".join(c.name for c in first.columns))
        files = sorted((folder / "avro-back").glob("*.avro"))
        found = []
        for path in files:
            with path.open("rb") as file:
                found += list(fastavro.reader(file))
        assert sorted(found, key=lambda o: o["id"]) == [order(i) for i in range(ROWS)]
        console.print("the orders that came back as Avro are those that went")


if __name__ == "__main__":
    main()
