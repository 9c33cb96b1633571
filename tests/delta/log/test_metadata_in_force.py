"""Generation expressions in a table without generated columns: notes that other engines copied there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

import trilake
from tests.delta.log.test_checkpoint_writer import KEEP_ALL
from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.log import DeltaLog
from trilake.delta.standard import standard_engine
from trilake.errors import ConstraintViolatedError
from trilake.storage import open_store

_NOTES = {"delta.generationExpression": "a + 1", "comment": "copied"}


def make(path: Path, protocol: dict[str, Any]) -> DeltaLog:
    fields = [
        {"name": name, "type": "integer", "nullable": True, "metadata": notes}
        for name, notes in (("a", {}), ("b", _NOTES))
    ]
    metadata = {
        "id": "4b4f7a2e-7a3a-4f7e-8a53-000000000001",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": orjson.dumps({"type": "struct", "fields": fields}).decode(),
        "partitionColumns": [],
        "configuration": {},
        "createdTime": 0,
    }
    (path / "_delta_log").mkdir(parents=True)
    lines = (orjson.dumps(action) for action in ({"protocol": protocol}, {"metaData": metadata}))
    (path / "_delta_log" / f"{0:020}.json").write_bytes(b"\n".join(lines) + b"\n")
    return DeltaLog(open_store(str(path)), standard_engine())


def notes(log: DeltaLog) -> Any:
    """The notes of column b as the log states them."""
    metadata = log.head().state.metadata
    assert metadata is not None
    return metadata.schema.field("b").metadata


@pytest.mark.parametrize(
    "protocol",
    [
        {"minReaderVersion": 1, "minWriterVersion": 2},
        {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": []},
    ],
)
def test_columns_are_plain_without_the_feature(tmp_path: Path, protocol: dict[str, Any]) -> None:
    log = make(tmp_path, protocol)
    trilake.write({"a": [1], "b": [10]}, str(tmp_path), mode="append")
    trilake.write({"a": [2]}, str(tmp_path), mode="append")
    trilake.open(str(tmp_path)).update({"a": "a + 5"}, where="a = 1")
    assert trilake.open(str(tmp_path)).to_arrow().sort_by("a").to_pylist() == [{"a": 2, "b": None}, {"a": 6, "b": 10}]
    write_checkpoint(log, log.snapshot(), KEEP_ALL)
    assert trilake.verify(str(tmp_path)).findings == ()
    for version in range(4):
        (tmp_path / "_delta_log" / f"{version:020}.json").unlink()
    assert notes(log) == _NOTES


@pytest.mark.parametrize("change", ["add_columns", "raise_versions", "add_feature", "set_properties"])
def test_change_of_metadata_drops_the_expressions(tmp_path: Path, change: str) -> None:
    log = make(tmp_path, {"minReaderVersion": 1, "minWriterVersion": 2})
    match change:
        case "add_columns":
            Alter(log).add_columns({"c": "int"})
        case "raise_versions":
            Alter(log).upgrade_protocol(1, 4)
        case "add_feature":
            Alter(log).add_feature("generatedColumns")
        case _:
            Alter(log).set_properties({"delta.minWriterVersion": "4"})
    assert notes(log) == {"comment": "copied"}
    expected = {"add_columns": 2, "add_feature": 7}.get(change, 4)
    assert log.head().protocol.min_writer_version == expected
    trilake.write({"a": [1], "b": [10]}, str(tmp_path), mode="append")


def test_expressions_are_rules_with_the_feature(tmp_path: Path) -> None:
    make(tmp_path, {"minReaderVersion": 1, "minWriterVersion": 4})
    with pytest.raises(ConstraintViolatedError):
        trilake.write({"a": [1], "b": [10]}, str(tmp_path), mode="append")
