"""Rules of 2.x files: files of trilake and Lance keep them, and each violation is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import lance.file
import numpy as np
import pyarrow as pa
import pytest

import trilake
from tests.lance.v2.files import column, write
from tests.lance.v2.test_writer import columns
from trilake.lance import write_dataset
from trilake.lance.file.schema import LanceSchema
from trilake.lance.file.sources import open_source
from trilake.lance.proto import encodings21_pb2 as pb
from trilake.lance.v2.container import Container
from trilake.lance.v2.encode_miniblock import Page
from trilake.lance.v2.rules import violations
from trilake.lance.v2.writer import Column, V2Writer
from trilake.storage import open_store
from trilake.storage.memory import MemoryStore


def messages(folder: Path) -> list[str]:
    return [v.message for v in violations(Container(open_source(open_store(str(folder)), "x.lance")))]


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_written_files_keep_the_rules(tmp_path: Path, version: str) -> None:
    table = pa.table(dict(columns(version, 1500, "some")))
    write(tmp_path, table, version)
    assert not messages(tmp_path)
    with lance.file.LanceFileWriter(str(tmp_path / "x.lance"), table.schema, version=version) as writer:
        writer.write_batch(table)
    assert not messages(tmp_path)


def broken(monkeypatch: pytest.MonkeyPatch, array: pa.Array, change: Callable[[Page], Page]) -> list[str]:
    """The violations in a file whose pages were changed before they were written."""
    pages = Column.pages
    monkeypatch.setattr(Column, "pages", lambda self, array: [(n, change(p)) for n, p in pages(self, array)])
    store = MemoryStore("memory://broken")
    with V2Writer(store, "x.lance", LanceSchema.from_arrow(pa.schema({"a": array.type}))) as writer:
        writer.write(pa.record_batch({"a": array}))
    return [v.message for v in violations(Container(open_source(store, "x.lance")))]


def with_layout(**changes: Any) -> Callable[[Page], Page]:
    def change(page: Page) -> Page:
        layout = pb.PageLayout.FromString(page.layout.SerializeToString())
        inner = getattr(layout, layout.WhichOneof("layout"))
        for name, value in changes.items():
            inner.ClearField(name)
            if name == "layers":
                inner.layers.extend(value)
            elif value is not None:
                setattr(inner, name, value)
        return Page(layout, page.buffers, page.rows, page.length)

    return change


def with_buffer(number: int, data: Any) -> Callable[[Page], Page]:
    def change(page: Page) -> Page:
        buffers = list(page.buffers)
        buffers[number] = data(buffers[number])
        return Page(page.layout, tuple(buffers), page.rows, page.length)

    return change


INTS = pa.array(np.random.default_rng(0).integers(0, 1 << 60, 3000))
LISTS = column(pa.list_(pa.int32()), 500)
NULLS = column(pa.int32(), 500, "some")
LONG = pa.array([bytes([i % 7]) * (300 + i) for i in range(100)])
VECTORS = column(pa.list_(pa.float32(), 100), 10)


@pytest.mark.parametrize(
    ("array", "change", "message"),
    [
        (INTS, with_layout(has_large_chunk=False), "16 bits, expected 32"),
        (INTS, with_layout(layers=[]), "does not describe its layers"),
        (INTS, with_layout(layers=[pb.NULLABLE_ITEM]), "no definition levels"),
        (INTS, with_layout(layers=[pb.ALL_VALID_ITEM, pb.ALL_VALID_LIST]), "no repetition levels"),
        (INTS, with_layout(num_items=7), "the chunks before the last have 2048 values, but all chunks have 7"),
        (INTS, with_layout(num_items=2999), "2999 values and a length of 3000"),
        (INTS, with_buffer(0, lambda words: words & ~np.uint32(15)), "chunk 0 is not the last and has 1 value"),
        (INTS, with_buffer(0, lambda words: words[:-1]), "the chunks have"),
        (INTS, with_buffer(0, lambda words: words.tobytes()[:-1]), "expected a multiple of 4"),
        (LISTS, with_layout(repetition_index_depth=0), "has 3 buffers, expected 2"),
        (LISTS, with_buffer(2, lambda index: index + np.uint64(1)), "rows, but the page has 500"),
        (LISTS, with_buffer(2, lambda index: index[:0]), "the repetition index has 0 numbers"),
        (NULLS, with_layout(def_compression=None), "no definition levels"),
        (LONG, with_buffer(1, lambda index: index[:-1]), "a multiple of 101"),
        (VECTORS, with_buffer(0, lambda data: data[:-1]), "expected 4000"),
        (VECTORS, with_layout(num_items=9), "10 values for 9 levels"),
    ],
)
def test_every_violation_is_found(
    monkeypatch: pytest.MonkeyPatch, array: pa.Array, change: Callable[[Page], Page], message: str
) -> None:
    assert any(message in found for found in broken(monkeypatch, array, change))


def test_misaligned_buffers_are_found_from_2_1_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(V2Writer._append, "__defaults__", (8,))
    rows = pa.table({"a": ["x"] * 9, "b": range(9)})
    ds = write_dataset(rows, tmp_path, data_storage_version="2.0")
    assert lance.dataset(str(tmp_path)).to_table() == ds.to_table() == rows
    assert trilake.verify(str(tmp_path)).ok
    found = broken(monkeypatch, pa.array([1, 2, 3]), lambda page: page)
    assert any("not at a multiple of 64" in message for message in found)
