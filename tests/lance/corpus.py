"""The datasets that pylance 0.8.19 wrote, and the rows it read from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa


def names(shared: Path) -> list[str]:
    return sorted(p.name for p in (shared / "corpus" / "lance").iterdir() if (p / "meta.json").is_file())


def folder(shared: Path, name: str) -> Path:
    return shared / "corpus" / "lance" / name / "ds.lance"


def versions(shared: Path, name: str) -> list[dict[str, Any]]:
    meta = json.loads((shared / "corpus" / "lance" / name / "meta.json").read_text())
    found: list[dict[str, Any]] = meta["versions"]
    assert found
    return found


def expected(shared: Path, name: str, version: int) -> pa.Table:
    path = shared / "corpus" / "lance" / name / f"expected_v{version}.arrow"
    data = path.read_bytes()
    open_ = pa.ipc.open_file if data.startswith(b"ARROW1") else pa.ipc.open_stream
    return open_(data).read_all()


def same(a: pa.Table, b: pa.Table) -> bool:
    """Whether two tables have equal values; NaN equals NaN, dictionaries may differ."""
    return bool(a.schema.equals(b.schema, check_metadata=True)) and repr(a.to_pydict()) == repr(b.to_pydict())
