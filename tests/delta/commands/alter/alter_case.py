"""A table in memory with nested rows, and its ``Alter``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pyarrow as pa

import trilake
from tests.delta.tables import new_uri
from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Head
from trilake.delta.standard import standard_engine
from trilake.storage import open_store

ROWS = [
    {"id": 1, "s": {"x": 1, "y": "a"}, "l": [{"e": 1}, None], "m": [("k", 1)], "p": "u"},
    {"id": 2, "s": None, "l": None, "m": None, "p": "v"},
]
SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("s", pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ("l", pa.list_(pa.struct([("e", pa.int8())]))),
        ("m", pa.map_(pa.string(), pa.int16())),
        ("p", pa.string()),
    ]
)
MAPPED = {"delta.columnMapping.mode": "name"}


class Case:
    """A table in memory and its ``Alter``."""

    def __init__(self, *, properties: Mapping[str, str] | None = None, partition_by: str | None = "p") -> None:
        self.uri = new_uri()
        self.log = DeltaLog(open_store(self.uri), standard_engine())
        data = pa.Table.from_pylist(ROWS, schema=SCHEMA)
        trilake.write(data, self.uri, partition_by=partition_by, properties=properties)
        self.alter = Alter(self.log)

    @property
    def head(self) -> Head:
        return self.log.head()

    def rows(self, *columns: str) -> list[dict[str, Any]]:
        return sorted(
            trilake.open(self.uri).to_arrow(columns=list(columns) or None).to_pylist(),
            key=lambda r: str(r.get("id", r.get("number"))),
        )

    def append(self, *rows: dict[str, Any]) -> None:
        trilake.write(pa.Table.from_pylist(list(rows)), self.uri, mode="append")

    def last(self) -> tuple[str, dict[str, Any]]:
        """The operation and parsed parameters of the newest commit."""
        info = self.log.commit_info(self.head.version)
        parameters = {}
        for k, v in info["operationParameters"].items():
            try:
                parameters[k] = orjson.loads(v)
            except orjson.JSONDecodeError:
                parameters[k] = v
        return info["operation"], parameters
