"""Manifests and transaction files of other writers: parsed, rewritten byte for byte, and validated."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import lance as pylance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import FrozenBitMap

from tests.lance import corpus
from trilake import lance
from trilake.errors import CorruptLogError, TrilakeError, UnsupportedProtocolError
from trilake.lance.file.schema import LanceSchema
from trilake.lance.proto import format_pb2 as pb
from trilake.lance.versions import operations as op
from trilake.lance.versions import transaction
from trilake.lance.versions.manifest import (
    DataFile,
    DeletionFile,
    Fragment,
    IndexDetails,
    IndexMetadata,
    Manifest,
    fragment_message,
    parse_fragment,
    parse_manifest,
    serialise_manifest,
    unknown_fields,
)
from trilake.lance.versions.versions import list_versions
from trilake.storage import open_store

SCHEMA = LanceSchema.from_arrow(pa.schema({"a": pa.int64(), "s": pa.string()}, {"k": "v"}))


def parsed(data: bytes) -> Manifest:
    return parse_manifest(pa.py_buffer(data), file="m")


def test_corpus_manifests_are_rewritten_byte_for_byte(shared: Path) -> None:
    same = total = 0
    for name in corpus.names(shared):
        store = open_store(corpus.folder(shared, name))
        listing = list_versions(store)
        assert listing.versions
        for version in listing.versions:
            data = store.read(listing.key(version)).to_pybytes()
            manifest = parsed(data)
            assert manifest.version == version
            again = serialise_manifest(manifest)
            assert parsed(again) == manifest
            total += 1
            same += again == data
    # Map entries have no order, and dictionaries are at other offsets.
    assert total == 35
    assert same == total - 2


def test_transactions_of_the_corpus(shared: Path) -> None:
    kinds = set()
    for name in corpus.names(shared):
        store = open_store(corpus.folder(shared, name))
        for meta in store.list("_transactions"):
            found = transaction.parse(store.read(meta.key).to_pybytes(), file=meta.key)
            assert meta.key.endswith(found.file)
            assert transaction.parse(transaction.serialise(found)) == found
            kinds.add(type(found.operation))
    assert kinds >= {op.Append, op.Delete, op.Overwrite, op.CreateIndex, op.Rewrite, op.Merge, op.Update}
    assert op.ReserveFragments in kinds


def test_deletion_file_names() -> None:
    assert DeletionFile(0, 3, 7).key(2) == "_deletions/2-3-7.arrow"
    assert DeletionFile(1, 3, 7).key(2) == "_deletions/2-3-7.bin"


U64 = st.integers(0, 2**64 - 1)
ROWS = st.integers(0, 2**31 - 1)
FILES = st.builds(DataFile, st.text(min_size=1), st.lists(st.integers(0, 2**31 - 1)).map(tuple))
FRAGMENTS = st.builds(
    Fragment,
    st.integers(0, 2**32 - 1),
    st.lists(FILES, max_size=3).map(tuple),
    st.none() | st.builds(DeletionFile, st.sampled_from([0, 1]), U64, U64, ROWS),
    ROWS,
)
INDICES = st.builds(
    IndexMetadata,
    st.uuids(),
    st.lists(st.integers(0, 99)).map(tuple),
    st.text(),
    U64,
    st.none() | st.sets(st.integers(0, 2**32 - 1), max_size=5).map(FrozenBitMap),
    st.none() | st.builds(IndexDetails, st.text(), st.binary()),
    st.none() | st.integers(0, 2**31 - 1),
)
MANIFESTS = st.builds(
    Manifest,
    version=st.integers(1, 2**63),
    schema=st.just(SCHEMA),
    fragments=st.lists(FRAGMENTS, max_size=4, unique_by=lambda f: f.id).map(tuple),
    indices=st.lists(INDICES, max_size=3).map(tuple),
    timestamp_ns=st.integers(0, 4 * 10**18),
    transaction_file=st.text(),
    writer_version=st.tuples(st.text(), st.text()),
    tag=st.text(),
    reader_feature_flags=U64,
    writer_feature_flags=U64,
)


@given(MANIFESTS)
def test_random_manifests_round_trip(manifest: Manifest) -> None:
    manifest = replace(manifest, max_fragment_id=max([5, *(f.id for f in manifest.fragments)]))
    again = parsed(serialise_manifest(manifest))
    assert again == manifest


FULL = Manifest(
    3,
    SCHEMA,
    (Fragment(0, (DataFile("x.lance", (0, 1)),), DeletionFile(0, 1, 2, 1), 10),),
    (IndexMetadata(UUID(int=5), (0,), "i", 1, FrozenBitMap([0])),),
    timestamp_ns=10**18,
    transaction_file="2-u.txn",
)


def test_truncated_manifest_is_an_error() -> None:
    data = serialise_manifest(FULL)
    for size in range(len(data)):
        with pytest.raises(CorruptLogError):
            parsed(data[:size])


def test_damaged_manifests_raise_typed_errors() -> None:
    data = bytearray(serialise_manifest(FULL))
    rng = random.Random(1)
    for _ in range(3000):
        bad = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            bad[rng.randrange(len(bad))] = rng.randrange(256)
        try:
            parsed(bytes(bad))
        except TrilakeError as e:
            assert e.code in ("CORRUPT_LOG", "UNSUPPORTED_PROTOCOL")  # noqa: PT017 - most are no errors at all


@pytest.mark.parametrize(("major", "minor"), [(0, 3), (2, 0), (2, 1)])
def test_later_formats_are_rejected(major: int, minor: int) -> None:
    data = bytearray(serialise_manifest(FULL))
    data[-8:-4] = major.to_bytes(2, "little") + minor.to_bytes(2, "little")
    with pytest.raises(UnsupportedProtocolError, match=f"{major}.{minor}"):
        parsed(bytes(data))


def test_feature_flags_are_rejected_by_name() -> None:
    FULL.check_readable("f")
    FULL.check_writable("f")
    with pytest.raises(UnsupportedProtocolError, match="read: it uses data overlays, flag 1024"):
        replace(FULL, reader_feature_flags=1089).check_readable("f")
    replace(FULL, writer_feature_flags=9, reader_feature_flags=9).check_readable("f")
    replace(FULL, writer_feature_flags=9).check_writable("f")
    with pytest.raises(UnsupportedProtocolError, match="written to: it uses no transaction files"):
        replace(FULL, writer_feature_flags=41).check_writable("f")
    newer = replace(FULL.fragments[0], files=(DataFile("x", (0,), 2, 9),))
    with pytest.raises(UnsupportedProtocolError, match=r"files of Lance 2\.9"):
        replace(FULL, fragments=(newer,)).check_readable("f")
    with pytest.raises(UnsupportedProtocolError, match=r"files of Lance 3\.0"):
        replace(FULL, data_format=("lance", "3.0")).check_readable("f")
    replace(FULL, data_format=("lance", "2.3")).check_readable("f")
    with pytest.raises(UnsupportedProtocolError, match=r"written to: its files are of Lance 2\.3"):
        replace(FULL, data_format=("lance", "2.3")).check_writable("f")


@pytest.mark.parametrize(("rows", "stated"), [(0, None), (3, None), (3, ("lance", "0.1"))])
def test_file_version_that_an_early_writer_omitted_or_got_wrong(
    tmp_path: Path, rows: int, stated: tuple[str, str] | None
) -> None:
    table = pa.table({"a": pa.array(range(rows), pa.int64())})
    uri = str(tmp_path)
    lance.write_dataset(table, uri, data_storage_version="2.0")
    store = open_store(uri)
    key = list_versions(store).key(1)
    manifest = replace(parsed(store.read(key).to_pybytes()), data_format=stated)
    flags = 4 if stated is None else 0
    (tmp_path / key).write_bytes(serialise_manifest(replace(manifest, writer_feature_flags=flags)))
    expected = "2.0" if rows else "2.2"
    assert lance.dataset(uri).data_storage_version == expected
    dataset = lance.write_dataset(pa.table({"a": [7]}), uri, mode="append")
    dataset.delete("a = 0")
    assert dataset.snapshot.manifest.data_format == ("lance", expected)
    files = [file for fragment in dataset.get_fragments() for file in fragment.data_files()]
    assert {file.file_major_version for file in files} == {2}
    theirs = pylance.dataset(uri)
    assert theirs.data_storage_version == expected
    theirs.insert(pa.table({"a": [8]}))
    assert pylance.dataset(uri).to_table()["a"].to_pylist() == [*range(1, rows), 7, 8]


def test_row_counts_of_an_early_writer_are_ignored(tmp_path: Path) -> None:
    uri = str(tmp_path)
    dataset = lance.write_dataset(pa.table({"a": range(10)}), uri, data_storage_version="legacy")
    dataset.delete("a in (2, 3)")
    key = list_versions(open_store(uri)).key(2)
    manifest = parsed((tmp_path / key).read_bytes())
    live = replace(manifest.fragments[0], physical_rows=8)
    (tmp_path / key).write_bytes(serialise_manifest(replace(manifest, fragments=(live,), writer_version=None)))
    expected = [0, 1, 4, 5, 6, 7, 8, 9]
    for read in (lance, pylance):
        dataset = read.dataset(uri)
        assert dataset.count_rows() == 8
        assert dataset.to_table()["a"].to_pylist() == expected
    dataset = lance.write_dataset(pa.table({"a": [10]}), uri, mode="append")
    dataset.delete("a = 4")
    expected = [a for a in [*expected, 10] if a != 4]
    assert pylance.dataset(uri).to_table()["a"].to_pylist() == expected
    dataset.optimize.compact_files()
    assert pylance.dataset(uri).to_table()["a"].to_pylist() == expected


def test_fields_of_newer_writers_are_kept() -> None:
    unknown = b"\xca\x01\x02hi" + b"\xd0\x01\x07"  # 25: bytes, 26: varint
    message = pb.Manifest.FromString(unknown)
    assert unknown_fields(message) == unknown
    data = serialise_manifest(replace(FULL, extra=unknown))
    assert parsed(data).extra == unknown
    fragment = pb.DataFragment.FromString(fragment_message(FULL.fragments[0]).SerializeToString() + b"\x5a\x01x")
    assert parse_fragment(fragment).extra == b"\x5a\x01x"
    assert fragment_message(parse_fragment(fragment)).SerializeToString().endswith(b"\x5a\x01x")


def test_unknown_operation_is_not_an_error() -> None:
    data = b"\x08\x01\x12\x01u" + b"\xba\x07\x00"  # field 119
    assert transaction.parse(data).operation == op.Unknown(119)
    with pytest.raises(CorruptLogError):
        transaction.parse(b"\xff\xff\xff")


def test_duplicate_fragment_ids_are_rejected() -> None:
    with pytest.raises(CorruptLogError, match="fragment id 0 occurs more than once"):
        parsed(serialise_manifest(replace(FULL, fragments=FULL.fragments * 2)))
