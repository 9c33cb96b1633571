"""Sound Lance datasets and Trevni files, and faults injected into copies of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
from pyroaring import BitMap

import trilake
from tests.tools.delta_faults import Fault, flip
from tests.trevni.crafted import Block, Col, child, craft, zigzag
from trilake import lance
from trilake.lance.index.btree import train
from trilake.lance.versions import deletions
from trilake.lance.versions.manifest import Manifest, parse_manifest, serialise_manifest
from trilake.storage import open_store

#: The faults are injected into files of the legacy format, at its offsets.
_LEGACY: dict[str, Any] = {"data_storage_version": "legacy"}


def build_lance(folder: Path) -> None:
    """Version 1: rows; 2: more rows; 3: an index; 4: rows deleted."""
    lance.write_dataset(pa.table({"a": list(range(10)), "s": [f"text {i}" for i in range(10)]}), str(folder), **_LEGACY)
    data = lance.write_dataset(pa.table({"a": [20, 21], "s": ["x", "y"]}), str(folder), mode="append")
    data.create_scalar_index("a", "BTREE")
    lance.dataset(str(folder)).delete("a = 3")


def build_texts(folder: Path) -> None:
    lance.write_dataset(pa.table({"s": [f"some longer text {i}" for i in range(20)]}), str(folder), **_LEGACY)


def build_numbers(folder: Path) -> None:
    lance.write_dataset(pa.table({"a": pa.array([1, 2, 3], pa.int64())}), str(folder), **_LEGACY)


def newest(folder: Path) -> Path:
    return max((folder / "_versions").iterdir(), key=lambda p: int(p.stem))


def manifest(folder: Path, change: Callable[[Manifest], Manifest]) -> None:
    """Write the newest manifest again, changed."""
    file = newest(folder)
    found = parse_manifest(pa.py_buffer(file.read_bytes()), file="m")
    file.write_bytes(serialise_manifest(change(found)))


def first_fragment(folder: Path, **fields: object) -> None:
    def change(m: Manifest) -> Manifest:
        return replace(m, fragments=(replace(m.fragments[0], **fields), *m.fragments[1:]))  # type: ignore[arg-type]

    manifest(folder, change)


def data_file(folder: Path) -> Path:
    return max((folder / "data").iterdir(), key=lambda p: p.stat().st_size)


def deletion_file(folder: Path) -> Path:
    (found,) = (folder / "_deletions").iterdir()
    return found


def index_folder(folder: Path) -> Path:
    (found,) = (folder / "_indices").iterdir()
    return found


def old_manifest(folder: Path) -> None:
    file = folder / "_versions" / "1.manifest"
    file.write_bytes(file.read_bytes()[:40])


def lost_version(folder: Path) -> None:
    tags = folder / "_refs" / "tags"
    tags.mkdir(parents=True)
    (tags / "release.json").write_bytes(orjson.dumps({"version": 99, "manifestSize": 1}))


def field_twice(folder: Path) -> None:
    def change(m: Manifest) -> Manifest:
        one = m.fragments[0]
        return replace(m, fragments=(replace(one, files=one.files * 2), *m.fragments[1:]))

    manifest(folder, change)


def file_twice(folder: Path) -> None:
    def change(m: Manifest) -> Manifest:
        return replace(m, fragments=(*m.fragments, replace(m.fragments[1], id=7)), max_fragment_id=7)

    manifest(folder, change)


def index_of_nothing(folder: Path) -> None:
    manifest(folder, lambda m: replace(m, indices=tuple(replace(i, fields=(99,)) for i in m.indices)))


def other_size(folder: Path) -> None:
    def change(m: Manifest) -> Manifest:
        one = m.fragments[0]
        return replace(m, fragments=(replace(one, files=(replace(one.files[0], size_bytes=5),)), *m.fragments[1:]))

    manifest(folder, change)


def more_deleted(folder: Path) -> None:
    def change(m: Manifest) -> Manifest:
        one = m.fragments[0]
        assert one.deletion_file is not None
        deleted = replace(one.deletion_file, num_deleted_rows=2)
        return replace(m, fragments=(replace(one, deletion_file=deleted), *m.fragments[1:]))

    manifest(folder, change)


def other_index(folder: Path) -> None:
    place = index_folder(folder)
    shutil.rmtree(place)
    rows = pa.table({"values": [100 + i for i in range(12)], "row_ids": _ids()})
    train(open_store(str(folder)), f"_indices/{place.name}", rows)


def _ids() -> pa.Array:
    return pa.array([*range(10), 1 << 32, (1 << 32) + 1], pa.uint64())


def overwrite(file: Path, at: int, data: bytes) -> None:
    content = bytearray(file.read_bytes())
    content[at : at + len(data)] = data
    file.write_bytes(content)


LANCE = (
    Fault("an old manifest is cut off", "lance.manifest-unreadable", old_manifest, build_lance),
    Fault(
        "the copy of the newest manifest is another",
        "lance.latest-differs",
        lambda f: (f / "_latest.manifest").write_bytes((f / "_versions" / "1.manifest").read_bytes()) and None,
        build_lance,
    ),
    Fault("a tag of a version that is gone", "lance.tag-wrong", lost_version, build_lance),
    Fault("a field is in two files", "lance.fields-wrong", field_twice, build_lance),
    Fault("a data file is in two fragments", "lance.fragments-wrong", file_twice, build_lance),
    Fault("an index of no field", "lance.index-entry-wrong", index_of_nothing, build_lance),
    Fault("a data file is gone", "lance.file-missing", lambda f: data_file(f).unlink(), build_lance),
    Fault("a data file of another size", "lance.file-size", other_size, build_lance),
    Fault(
        "a data file is cut off",
        "lance.file-unreadable",
        lambda f: data_file(f).write_bytes(data_file(f).read_bytes()[:-9]) and None,
        build_lance,
    ),
    Fault("a fragment of more rows", "lance.fragment-rows", lambda f: first_fragment(f, physical_rows=11), build_lance),
    Fault(
        "a deletion file is not a file of its kind",
        "lance.deletion-file-unreadable",
        lambda f: deletion_file(f).write_bytes(b"nothing") and None,
        build_lance,
    ),
    Fault("a deletion file of fewer rows", "lance.deletion-file-count", more_deleted, build_lance),
    Fault(
        "a deletion file beyond its fragment",
        "lance.deletion-file-position",
        lambda f: deletion_file(f).write_bytes(deletions.encode(BitMap([1000]))[1]) and None,
        build_lance,
    ),
    Fault("an index is gone", "lance.index-missing", lambda f: shutil.rmtree(index_folder(f)), build_lance),
    Fault(
        "an index with a damaged byte",
        "lance.index-unreadable",
        lambda f: flip(index_folder(f) / "page_data.lance", 3),
        build_lance,
    ),
    Fault("an index of other values", "lance.index-differs", other_index, build_lance),
    Fault(
        "a page of texts that are none",
        "lance.page-unreadable",
        lambda f: overwrite(data_file(f), 0, b"\xff" * 40),
        build_texts,
    ),
    Fault(
        "a value beyond the statistics",
        "lance.statistics-differ",
        lambda f: overwrite(data_file(f), 0, (1000).to_bytes(8, "little")),
        build_numbers,
    ),
)

INTS = zigzag(1) + zigzag(2) + zigzag(3)


def build_trevni(folder: Path) -> None:
    for part in range(2):
        table = pa.table({"a": [1, 2, 3], "l": [[1], [], [2, 3]], "p": [part] * 3})
        trilake.write(table, str(folder), format="trevni", mode="append", partition_by="p")


def crafted(data: bytes) -> Callable[[Path], None]:
    """Puts a hand-made file into the folder."""

    def put(folder: Path) -> None:
        for file in [p for p in folder.rglob("*") if p.is_file()]:
            file.unlink()
        (folder / "p=0").mkdir(exist_ok=True)
        (folder / "p=0" / "part.trv").write_bytes(data)

    return put


def one_more(folder: Path, name: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(craft(3, [Col("other", "int", [Block(3, INTS)])]))


TREVNI = (
    Fault("a file is not a Trevni file", "trevni.header-unreadable", crafted(b"nothing of the kind"), build_trevni),
    Fault(
        "a parent that is none",
        "trevni.parent-wrong",
        crafted(craft(3, [Col("k", "int", [Block(3, INTS)], child("q"))])),
        build_trevni,
    ),
    Fault(
        "blocks of fewer rows than the file",
        "trevni.descriptor-wrong",
        crafted(craft(4, [Col("n", "int", [Block(3, INTS)])])),
        build_trevni,
    ),
    Fault(
        "a schema that is none",
        "trevni.schema-wrong",
        crafted(craft(3, [Col("n", "int", [Block(3, INTS)])], {"arrow.schema": b"no schema"})),
        build_trevni,
    ),
    Fault("files of other columns", "trevni.schema-differs", lambda f: one_more(f, "p=0/more.trv"), build_trevni),
    Fault("a file in no partition", "trevni.partition-folders-differ", lambda f: one_more(f, "more.trv"), build_trevni),
    Fault(
        "a block of another checksum",
        "trevni.block-checksum",
        crafted(craft(3, [Col("n", "int", [Block(3, INTS, check=b"\1\2\3\4")], {"trevni.checksum": "crc32"})])),
        build_trevni,
    ),
    Fault(
        "a block that is not compressed",
        "trevni.block-unreadable",
        crafted(craft(3, [Col("n", "int", [Block(3, INTS)], {"trevni.codec": "deflate"})])),
        build_trevni,
    ),
    Fault(
        "a first value that is another",
        "trevni.first-value-wrong",
        crafted(craft(3, [Col("n", "int", [Block(3, INTS, first=zigzag(9))], {"trevni.values": ""})])),
        build_trevni,
    ),
)
