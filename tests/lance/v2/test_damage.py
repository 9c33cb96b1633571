"""Damaged and hostile files: typed errors, and memory bounded by the rows read."""

from __future__ import annotations

import os
import random
import resource
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError
from lance.file import LanceFileWriter

from tests.conftest import SOAK
from tests.lance.mutations import attack, change, mutated
from tests.lance.v2.columns import column
from trilake.errors import CorruptFileError, TrilakeError, UnsupportedProtocolError
from trilake.lance.file.sources import MappedSource
from trilake.lance.proto import encodings20_pb2, encodings21_pb2, encodings23_pb2, file2_pb2
from trilake.lance.v2.container import FOOTER, Container
from trilake.lance.v2.file import V2File
from trilake.storage.memory import MemoryStore

pytestmark = pytest.mark.long

#: Number of damaged files of each family, a third of them in each version.
COUNT = int(os.environ.get("TRILAKE_FUZZ", "3000" if SOAK else "36"))
ENCODING = "lance-encoding:"
#: Family -> columns, with their field metadata.
FAMILIES: dict[str, list[tuple[str, dict[str, str]]]] = {
    "numbers": [("small32", {}), ("int64", {}), ("bool", {}), ("runs long", {"rle-threshold": "1.0"}), ("int16", {})],
    "floats": [("float32", {"bss": "on", "compression": "lz4"}), ("float64", {}), ("decimal128", {})],
    "strings": [("string urls", {}), ("binary", {}), ("string", {"compression": "zstd"}), ("large_string", {})],
    "dictionaries": [("string few", {"dict-divisor": "1"}), ("dictionary", {}), ("dictionary numbers", {})],
    "constants": [("constant int", {}), ("string constant", {}), ("constant fsb40", {}), ("null", {})],
    "vectors": [("vector4", {}), ("vector null items", {}), ("vector of vectors null", {}), ("vector bool", {})],
    "zipped": [
        ("string long", {}),
        ("vector128", {}),
        ("fsb300", {"structural-encoding": "fullzip"}),
        ("binary long", {"compression": "lz4"}),
    ],
    "zipped lists": [("list long strings", {}), ("list fsb300", {}), ("vector96 null items", {})],
    "lists": [("list null items", {}), ("list list", {}), ("list strings", {}), ("list not empty", {})],
    "structs": [("struct struct", {}), ("list struct list", {}), ("struct list", {})],
    "packed": [("packed", {"packed": "true"}), ("packed strings", {"packed": "true"})],
    "maps": [("map", {}), ("vector struct", {}), ("empty struct", {})],
    "lists of vectors": [("list vector struct", {}), ("struct vector struct", {}), ("empty struct", {})],
}
LAYOUTS: dict[str, Any] = {
    "/lance.encodings.ArrayEncoding": encodings20_pb2.ArrayEncoding,
    "/lance.encodings21.PageLayout": encodings21_pb2.PageLayout,
    "/lance.encodings23.PlanarLayout": encodings23_pb2.PlanarLayout,
}
#: Families that pylance does not write, or only in part, in a version.
NOT_WRITTEN = {("2.0", "structs"), ("2.0", "maps"), ("2.1", "maps")} | {
    (f"2.{n}", "lists of vectors") for n in range(3)
}


@cache
def sample(version: str, family: str, folder: str) -> list[bytes]:
    """The files of a family, with and without nulls."""
    files = []
    rows = 50 if "zipped" in family else 400
    for nulls in ("none", "some"):
        fields, arrays = [], []
        for number, (name, metadata) in enumerate(FAMILIES[family]):
            if name.startswith("packed"):
                if "strings" in name and version < "2.2":
                    continue
                parts = [column(n, rows, "none") for n in ("int32", "string" if "strings" in name else "float64")]
                arrays.append(pa.StructArray.from_arrays(parts, ["a", "b"]))
            else:
                arrays.append(column(name, rows, "none" if name == "empty struct" and version < "2.3" else nulls))
            keys = {ENCODING + key: value for key, value in metadata.items()}
            fields.append(pa.field(f"c{number}", arrays[-1].type, metadata=keys))
        path = Path(folder) / f"{version}-{family}-{nulls}.lance"
        with LanceFileWriter(str(path), pa.schema(fields), version=version, data_cache_bytes=1) as writer:
            for _ in range(2):
                writer.write_batch(pa.record_batch(arrays, schema=pa.schema(fields)))
        files.append(path.read_bytes())
    return files


def read(data: bytes) -> None:
    """Open a file and read the first rows, the last, and single ones."""
    store = MemoryStore("memory://damaged")
    store.put("f", data)
    file = V2File.open(store, "f")
    n = file.num_rows
    for field in file.schema.fields:
        try:
            columns = file.schema.project([field.name])
            for start, stop in {(0, min(n, 1000)), (max(n - 10, 0), n)}:
                batch = file.read_rows(start, stop, columns)
                # Digits of a decimal beyond its precision are not checked.
                batch.validate(full=not pa.types.is_decimal(batch.schema[0].type))
                assert batch.num_rows == stop - start
            if n:
                assert file.take([n // 2, 0, n - 1], columns).num_rows == 3
        except TrilakeError:
            if field is file.schema.fields[-1]:
                raise


def with_message(rng: random.Random, data: bytes) -> bytes:
    """The file with one or two fields of a column's metadata changed, or of the encoding of a page."""
    container = Container(MappedSource("f", pa.py_buffer(data)))
    footer = list(FOOTER.unpack(data[-FOOTER.size :]))
    blocks = [data[a : a + b] for a, b in container.column_places]
    number = rng.randrange(len(blocks))
    message = file2_pb2.ColumnMetadata.FromString(blocks[number])
    page = rng.choice(message.pages) if message.pages else None
    if page is None or rng.random() < 0.3:
        change(rng, message)
    else:
        packed = any_pb2.Any.FromString(page.encoding.direct.encoding)
        try:
            layout = LAYOUTS[packed.type_url].FromString(packed.value)
        except DecodeError:
            return data
        change(rng, layout)
        packed.value = layout.SerializeToString()
        page.encoding.direct.encoding = packed.SerializeToString()
    blocks[number] = message.SerializeToString()
    out = data[: footer[0]]
    table = b""
    for block in blocks:
        table += len(out).to_bytes(8, "little") + len(block).to_bytes(8, "little")
        out += block
    globals_ = data[footer[2] : footer[2] + 16 * footer[3]]
    footer[1], footer[2] = len(out), len(out) + len(table)
    return out + table + globals_ + FOOTER.pack(*footer)


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
@pytest.mark.parametrize("family", FAMILIES)
def test_damaged_files_are_read_or_rejected(tmp_path: Path, version: str, family: str) -> None:
    if (version, family) in NOT_WRITTEN:
        family = "numbers"
    samples = sample(version, family, str(tmp_path))
    for data in samples:
        read(data)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    attack(samples, mutated, read, COUNT // 6)
    attack(samples, with_message, read, COUNT // 6)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 1 << 20, f"{grown >> 10} MiB"


def test_oversized_footers_are_rejected(tmp_path: Path) -> None:
    data = sample("2.2", "numbers", str(tmp_path))[0]
    values = FOOTER.unpack(data[-FOOTER.size :])
    for position in range(1, 5):
        for claim in (len(data), (1 << 32) - 1, (1 << 64) - 1 if position < 3 else (1 << 31)):
            changed = list(values)
            changed[position] = claim
            for before in (data[: -FOOTER.size], b""):
                with pytest.raises(CorruptFileError):
                    read(before + FOOTER.pack(*changed))
    for major, minor in ((2, 4), (2, 9), (3, 0), (0, 2)):
        with pytest.raises(UnsupportedProtocolError, match=f"{major}\\.{minor}"):
            read(data[: -FOOTER.size] + FOOTER.pack(*values[:5], major, minor, b"LANC"))
    with pytest.raises(CorruptFileError):
        read(data[:-1])
    with pytest.raises(CorruptFileError):
        read(b"LANC")
