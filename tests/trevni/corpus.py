"""The files of the reference writer, in the shared folder; tests that need them are skipped without it."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.conftest import ROOT, shared_folder
from trilake.trevni import ColumnValues

CORPUS = (shared_folder() or ROOT.parent / "shared") / "corpus" / "trevni"
needs_corpus = pytest.mark.usefixtures("shared")

REFERENCE = sorted((CORPUS / "ref").glob("*.trv"))
AVRO = sorted((CORPUS / "avro").glob("*.trv"))


def expected(path: Path) -> dict[str, Any]:
    """The content of a file according to the reference."""
    side = path.with_suffix(".json") if path.parent.name == "ref" else path.with_suffix(".columns.json")
    found: dict[str, Any] = json.loads(side.read_text())
    return found


def plain(column: ColumnValues) -> list[Any]:
    """A column's values as the reference's JSON has them: floats and bytes as hex digits."""
    values = column.values
    if pa.types.is_floating(values.type):
        width = values.type.bit_width // 8
        bits = np.asarray(values).view(f"i{width}").tolist()
        return [struct.pack(">i" if width == 4 else ">q", b).hex() for b in bits]
    if pa.types.is_binary(values.type):
        return [value.hex() for value in values.to_pylist()]
    found: list[Any] = values.to_pylist()
    return found
