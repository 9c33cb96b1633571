"""Files of the reference writer: read equally, and rewritten byte for byte."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tests.trevni.corpus import AVRO, REFERENCE, expected, needs_corpus, plain
from trilake.trevni import TrevniFile, TrevniWriter, write

pytestmark = needs_corpus
#: Codecs whose library versions all give the same bytes.
STABLE = {"null", "deflate"}


@pytest.mark.parametrize("path", [*REFERENCE, *AVRO], ids=lambda p: p.stem)
def test_columns_read_equal(path: Path) -> None:
    file, want = TrevniFile(path), expected(path)
    assert file.row_count == want["rowCount"]
    assert {key: value.hex() for key, value in file.metadata.items()} == want["metaData"]
    assert len(file.columns) == len(want["columns"])
    for column, one in zip(file.columns, want["columns"], strict=True):
        kind = (one["name"], one["type"], one.get("array", False), one.get("parent"), one.get("values_index", False))
        assert (column.name, column.type, column.array, column.parent, column.values) == kind
        found = file.column(column.number)
        assert (None if found.lengths is None else found.lengths.tolist()) == one.get("lengths")
        assert plain(found) == one["values"]
        assert sum(block.rows for block in column.blocks) == file.row_count


@pytest.mark.parametrize("path", [*REFERENCE, *AVRO], ids=lambda p: p.stem)
def test_random_reads_equal_sequential_reads(path: Path) -> None:
    file = TrevniFile(path)
    table = file.read()
    table.validate(full=True)
    assert table.num_rows == file.row_count
    if table.num_columns and table.num_rows:
        rows = list(range(0, table.num_rows, 7))[::-1]
        assert str(file.read(rows=rows).to_pylist()) == str(table.take(rows).to_pylist())
        some = range(table.num_rows // 3, table.num_rows // 2 + 1)
        assert str(file.read(rows=some).to_pylist()) == str(table.slice(some.start, len(some)).to_pylist())
        assert str(list(file)) == str(table.to_pylist())


@pytest.mark.parametrize("path", REFERENCE, ids=lambda p: p.stem)
def test_rewritten_files_have_the_same_bytes(path: Path) -> None:
    file = TrevniFile(path)
    flat, rows = io.BytesIO(), io.BytesIO()
    with TrevniWriter(flat, None, columns=file.columns, metadata=file.metadata) as writer:
        writer.write_columns(file.row_count, [file.column(c.number) for c in file.columns])
    write(file.read(), rows, columns=file.columns, metadata=file.metadata)
    for again in (flat, rows) if file.columns else (flat,):
        if {column.codec for column in file.columns} <= STABLE:
            assert again.getvalue() == path.read_bytes()
        else:
            copy = TrevniFile(again.getvalue())
            assert [plain(copy.column(c.number)) for c in copy.columns] == [
                c["values"] for c in expected(path)["columns"]
            ]


def test_plain_arrow_tables_have_the_reference_bytes() -> None:
    """Without column options and trilake metadata: column types are not stated twice."""
    path = REFERENCE[0].parent / "emails_absent.trv"
    sink = io.BytesIO()
    write(TrevniFile(path).read(), sink)
    assert sink.getvalue() == path.read_bytes()
