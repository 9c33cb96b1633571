"""Damaged and hostile files: typed errors, memory bounded by the file size, and no silent wrong results."""

from __future__ import annotations

import os
import random
import resource
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

from tests.conftest import SOAK
from tests.lance import corpus
from tests.lance.index.models import train as train_model
from tests.lance.mutations import attack, mutated, with_message
from tests.lance.v1.test_data_file import use
from trilake import lance
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.errors import CorruptFileError, CorruptLogError, DeletionVectorError, InvalidArgumentError, TrilakeError
from trilake.lance.file import framing
from trilake.lance.file.schema import LanceSchema
from trilake.lance.file.sources import MappedSource
from trilake.lance.index import ivf_pq
from trilake.lance.index.btree import BTreeIndex, train
from trilake.lance.index.scalar import Bound
from trilake.lance.index.vector_index import VectorIndex
from trilake.lance.proto import format_pb2
from trilake.lance.versions import deletions, effects, transaction
from trilake.lance.versions import operations as op
from trilake.lance.versions.bases import Bases
from trilake.lance.versions.manifest import (
    ARROW_ARRAY,
    BITMAP,
    DataFile,
    DeletionFile,
    Fragment,
    Manifest,
    parse_manifest,
    serialise_manifest,
)
from trilake.storage.memory import MemoryStore

pytestmark = pytest.mark.long

#: Writes datasets in the legacy format, which these tests cover.
write_first = partial(lance.write_dataset, data_storage_version="legacy")

#: Number of damaged files for each kind.
COUNT = int(os.environ.get("TRILAKE_FUZZ", "20000" if SOAK else "1500"))
MIB = 1 << 20


def files(shared: Path, pattern: str) -> list[bytes]:
    found = sorted((shared / "corpus" / "lance").glob(f"*/ds.lance/{pattern}"))
    assert found
    return [path.read_bytes() for path in found]


def read_manifest(data: bytes) -> None:
    manifest = parse_manifest(pa.py_buffer(data), file="m")
    manifest.check_readable("m")
    manifest.schema.to_arrow()
    serialise_manifest(manifest)


def peak() -> int:
    """Peak memory of the process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# --- any damage -------------------------------------------------------------------------------------------------------


def test_damaged_manifests(shared: Path) -> None:
    samples = files(shared, "_versions/*.manifest")
    assert attack(samples, mutated, read_manifest, COUNT) > COUNT / 10
    assert attack(samples, lambda rng, d: with_message(rng, d, format_pb2.Manifest), read_manifest, COUNT) > COUNT / 10


def test_damaged_transactions(shared: Path) -> None:
    base = parse_manifest(pa.py_buffer(files(shared, "_versions/1.manifest")[0]), file="m")

    def read(data: bytes) -> None:
        found = transaction.parse(data, file="t")
        op.conflict(op.Append(()), found.operation)
        op.conflict(found.operation, op.Delete((), (1,), ""))
        effects.apply(base, found.operation, file=found.file, now_ns=1, old=base)
        if not isinstance(found.operation, op.Unknown):
            transaction.serialise(found)

    assert attack(files(shared, "_transactions/*.txn"), mutated, read, COUNT) > COUNT / 10


def test_damaged_deletion_files(shared: Path) -> None:
    samples = [(ARROW_ARRAY, data) for data in files(shared, "_deletions/*.arrow")]
    samples += [(BITMAP, data) for data in files(shared, "_deletions/*.bin")]
    for rows in (BitMap([1, 5, 77]), BitMap(range(0, 90_000, 3)), BitMap(range(50_000))):
        samples.append(deletions.encode(rows))
        rows.run_optimize()
        samples.append((BITMAP, rows.serialize()))

    def read(sample: tuple[int, bytes]) -> None:
        found = deletions.decode(sample[0], pa.py_buffer(sample[1]), rows=100_000, file="d")
        assert not found or found.max() < 100_000
        deletions.offsets_of(found)

    before = peak()
    rejected = attack(samples, lambda rng, s: (s[0], mutated(rng, s[1])), read, COUNT)
    assert rejected > COUNT / 10
    assert peak() - before < 256 * MIB


def test_damaged_data_files(shared: Path) -> None:
    samples = [data for data in files(shared, "data/*.lance") if len(data) < 200_000]
    before = peak()
    attack(samples, mutated, use, COUNT)
    attack(samples, lambda rng, d: with_message(rng, d, format_pb2.Metadata), use, COUNT)
    assert peak() - before < 512 * MIB


@pytest.mark.parametrize("seed", [1, *(pytest.param(s, marks=pytest.mark.soak) for s in range(2, 60))])
def test_dataset_with_a_damaged_manifest(shared: Path, seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    for i in range(60):
        name = rng.choice(corpus.names(shared))
        copy = tmp_path / f"{i}"
        shutil.copytree(corpus.folder(shared, name), copy)
        newest = max((copy / "_versions").iterdir(), key=lambda p: int(p.stem))
        newest.write_bytes(with_message(rng, newest.read_bytes(), format_pb2.Manifest))
        for act in (
            lambda ds: ds.versions(),
            lambda ds: ds.to_table(),
            lambda ds: ds.take([0, 1]),
            lambda ds: ds.count_rows(),
            lambda ds: ds.list_indices(),
            lambda ds: [f.metadata.to_json() for f in ds.get_fragments()],
            lambda ds: ds.validate(),
            lambda ds: ds.optimize.compact_files(),
            lambda ds: ds.restore(),
        ):
            try:
                act(lance.dataset(copy))
            except TrilakeError as e:
                assert e.message  # noqa: PT017 - either outcome is right


# --- bombs ------------------------------------------------------------------------------------------------------------


def test_deletion_runs_beyond_the_rows() -> None:
    rows = BitMap(range(1 << 32 - 1))
    rows.run_optimize()
    data = rows.serialize()
    assert len(data) < 1 << 20
    store, entry = MemoryStore(), DeletionFile(BITMAP, 1, 1)
    store.put(entry.key(0), data)
    before = peak()
    with pytest.raises(DeletionVectorError, match="its fragment has only 1000 rows"):
        deletions.read(Bases(store), Fragment(0, (), entry, 1000))
    assert peak() - before < 64 * MIB


def test_compressed_deletions_beyond_the_rows() -> None:
    out = pa.BufferOutputStream()
    schema = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])
    with pa.ipc.new_file(out, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        for _ in range(8):
            writer.write_batch(pa.record_batch([pa.array(np.zeros(4 << 20, np.uint32))], schema=schema))
    data = out.getvalue()
    assert data.size < 1 << 16
    with pytest.raises(DeletionVectorError, match="claims 33554432 rows"):
        deletions.decode(ARROW_ARRAY, data, rows=1000, file="d")


def test_oversized_buffer_for_few_rows_is_rejected() -> None:
    out = pa.BufferOutputStream()
    schema = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])
    with pa.ipc.new_file(out, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(pa.record_batch([pa.array(np.zeros(1000, np.uint32))], schema=schema))
    data = bytearray(out.getvalue())
    at = bytes(data).index((4000).to_bytes(8, "little"))  # uncompressed length of the buffer
    data[at : at + 8] = (1 << 40).to_bytes(8, "little")
    with pytest.raises(DeletionVectorError, match="claims 1000 rows in 1099511627776 bytes"):
        deletions.decode(ARROW_ARRAY, pa.py_buffer(bytes(data)), rows=1000, file="d")


def test_deletion_file_column_name_may_be_invalid_utf8() -> None:
    data = bytearray(deletions.encode(BitMap([1, 2]))[1])
    at = bytes(data).rindex(b"row_id")
    data[at] = 0xFF
    found = bytes(data).replace(b"row_id", b"\xffow_id")
    with pytest.raises(DeletionVectorError):
        deletions.decode(ARROW_ARRAY, pa.py_buffer(found), rows=10, file="d")


def test_overlapping_dictionaries_are_rejected() -> None:
    fields = {f"c{i}": pa.dictionary(pa.int8(), pa.string()) for i in range(40)}
    schema = LanceSchema.from_arrow(pa.schema(fields))
    values = pa.array([f"v{i}" for i in range(100)])
    whole = serialise_manifest(Manifest(1, schema.with_dictionaries({f.id: values for f in schema.walk()})))
    position = framing.read_footer(MappedSource("", pa.py_buffer(whole)))
    message = format_pb2.Manifest.FromString(whole[position + 4 : -16])
    for field in message.fields:
        field.dictionary.CopyFrom(message.fields[0].dictionary)
    begin = message.fields[0].dictionary.offset + 8 * 101
    broken = whole[:begin] + framing.frame(message) + framing.footer(begin)
    with pytest.raises(CorruptLogError, match="dictionaries take more than the file"):
        parse_manifest(pa.py_buffer(broken), file="m")


def test_overlapping_pages_are_rejected(tmp_path: Path) -> None:
    uri = tmp_path / "t"
    columns = {f"c{i}": pa.array(np.arange(1000)) for i in range(30)}
    write_first(pa.table(columns), uri)
    (path,) = (uri / "data").iterdir()
    data = bytearray(path.read_bytes())
    position = framing.read_footer(MappedSource("", pa.py_buffer(data)))
    length = int.from_bytes(data[position : position + 4], "little")
    table = format_pb2.Metadata.FromString(data[position + 4 : position + 4 + length]).page_table_position
    for i in range(30):
        data[table + 16 * i : table + 16 * i + 16] = data[table : table + 16]
    path.write_bytes(data)
    assert lance.dataset(uri).to_table(columns=["c7"]).num_rows == 1000  # one of them is within the limit
    path.write_bytes(data[8000 * 29 :].rjust(len(data) - 8000 * 20, b"\0"))
    with pytest.raises(CorruptFileError):
        lance.dataset(uri).to_table()


def test_implausible_row_counts_are_rejected() -> None:
    schema = LanceSchema.from_arrow(pa.schema({"a": pa.list_(pa.float32(), 1536)}))
    for fragment in (Fragment(0, (), None, 1 << 30), Fragment(0, (DataFile("x", (0,)),), None, 1 << 40)):
        store = MemoryStore()
        store.put("_versions/1.manifest", serialise_manifest(Manifest(1, schema, (fragment,))))
        from trilake.lance.scan.snapshot import Snapshot

        with pytest.raises((CorruptFileError, CorruptLogError), match="claims"):
            list(Snapshot.open(store, SYSTEM_RUNTIME).readers[0].read_batches(schema))


def test_fragment_ids_are_exhausted() -> None:
    schema = LanceSchema.from_arrow(pa.schema({"a": pa.int64()}))
    last = Manifest(
        1, schema, (Fragment((1 << 32) - 1, (DataFile("x", (0,)),), None, 1),), max_fragment_id=(1 << 32) - 1
    )
    for operation in (op.ReserveFragments(1), op.Append((Fragment(0, (DataFile("y", (0,)),), None, 1),))):
        with pytest.raises(InvalidArgumentError, match="no fragment ids are left"):
            effects.apply(last, operation, file="f", now_ns=0)


# --- indices ----------------------------------------------------------------------------------------------------------


def test_damaged_btree_never_gives_wrong_rows() -> None:
    rng = np.random.default_rng(3)
    rows = pa.table({"values": rng.permutation(9000) // 2, "row_ids": pa.array(np.arange(9000), pa.uint64())})
    store = MemoryStore()
    train(store, "_indices/x", rows)
    whole = {name: store.read(f"_indices/x/{name}").to_pybytes() for name in ("page_data.lance", "page_lookup.lance")}

    def answers(of: MemoryStore) -> list[list[int]]:
        index = BTreeIndex.open(of, "_indices/x")
        results = [index.equal(77), index.is_in([3, 2047, 2048, 4400, 9999])]
        return [a.tolist() for a in (*results, index.range(Bound(4090), None), index.range(None, Bound(5)))]

    truth = answers(store)
    names = list(whole)

    def read(sample: tuple[str, bytes]) -> None:
        other = MemoryStore()
        for name, data in whole.items():
            other.put(f"_indices/x/{name}", sample[1] if name == sample[0] else data)
        assert answers(other) == truth

    samples = [(name, whole[name]) for name in names]
    assert attack(samples, lambda r, s: (s[0], mutated(r, s[1])), read, COUNT) > COUNT / 3


def test_damaged_vector_index_never_gives_wrong_rows() -> None:
    rng = np.random.default_rng(4)
    vectors = rng.normal(size=(2000, 8)).astype(np.float32)
    model = train_model(vectors, 4, 2, 4)
    store = MemoryStore()
    rows = ivf_pq.by_partition(model, *ivf_pq.encode(model, vectors), np.arange(2000, dtype=np.uint64))
    ivf_pq.write_partitions(store, "_indices/x", model, rows, name="i", column="v", dataset_version=1)
    whole = store.read("_indices/x/index.idx").to_pybytes()

    def answer(of: MemoryStore) -> tuple[list[int], list[float]]:
        ids, distances = VectorIndex.open(of, "_indices/x").search(vectors[5], 10, nprobes=4)
        return ids.tolist(), distances.tolist()

    truth = answer(store)

    def read(data: bytes) -> None:
        other = MemoryStore()
        other.put("_indices/x/index.idx", data)
        assert answer(other) == truth

    assert attack([whole], mutated, read, COUNT) > COUNT / 3


def test_index_without_checksums_is_checked_by_order(shared: Path, tmp_path: Path) -> None:
    """As other writers create them: only bounds, order and row counts can be checked."""
    copy = tmp_path / "t"
    shutil.copytree(corpus.folder(shared, "btree"), copy)
    folder = next(p for p in (copy / "_indices").iterdir() if b"n00000" not in (p / "page_lookup.lance").read_bytes())
    path = folder / "page_lookup.lance"
    whole = path.read_bytes()
    at = whole.index((4095).to_bytes(8, "little"))  # the greatest value of the first page
    truth = lance.dataset(copy).to_table(filter="id = 4090")
    assert truth.num_rows == 1
    path.write_bytes(whole[:at] + (4000).to_bytes(8, "little") + whole[at + 8 :])
    with pytest.raises(CorruptFileError, match="create_scalar_index"):
        lance.dataset(copy).to_table(filter="id = 4090")
    path.write_bytes(whole[:at] + (5000).to_bytes(8, "little") + whole[at + 8 :])
    with pytest.raises(CorruptFileError, match="not sorted"):
        lance.dataset(copy).to_table(filter="id = 4090")
    path.write_bytes(whole)
    data = (folder / "page_data.lance").read_bytes()
    row_ids = np.frombuffer(data[: 4096 * 8], "<u8")
    first = data.index(b"".join(int(i).to_bytes(8, "little") for i in (0, 1, 2, 3)), 4096 * 8)
    for changed, text in (((7 << 32), "does not match its entry|does not exist"), (5, "does not match its entry")):
        broken = data[:first] + changed.to_bytes(8, "little") + data[first + 8 :]
        (folder / "page_data.lance").write_bytes(broken)
        with pytest.raises(CorruptFileError, match=text):
            lance.dataset(copy).to_table(filter="id = 0")
    assert row_ids[0] == 0


def test_index_with_too_few_rows(tmp_path: Path) -> None:
    uri = tmp_path / "t"
    write_first(pa.table({"a": range(100)}), uri).create_scalar_index("a")
    store = lance.dataset(uri).snapshot.store
    (folder,) = (uri / "_indices").iterdir()
    fewer = pa.table({"values": pa.array(range(99)), "row_ids": pa.array(range(99), pa.uint64())})
    shutil.rmtree(folder)
    train(store, f"_indices/{folder.name}", fewer)
    with pytest.raises(CorruptFileError, match="has 99 of the 100 rows"):
        lance.dataset(uri).to_table(filter="a = 99")


def test_index_with_rows_past_the_end(tmp_path: Path) -> None:
    uri = tmp_path / "t"
    write_first(pa.table({"a": range(100)}), uri).create_scalar_index("a")
    store = lance.dataset(uri).snapshot.store
    (folder,) = (uri / "_indices").iterdir()
    beyond = pa.table({"values": pa.array(range(100)), "row_ids": pa.array(range(50, 150), pa.uint64())})
    shutil.rmtree(folder)
    train(store, f"_indices/{folder.name}", beyond)
    with pytest.raises(CorruptFileError, match="which does not exist"):
        lance.dataset(uri).to_table(filter="a = 99")
