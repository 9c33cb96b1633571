"""API added to pylance after 0.8.19: blobs, row ids, metadata classes, clean-ups, models."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pydantic
import pytest

from trilake import lance
from trilake.errors import InvalidArgumentError
from trilake.lance import Blob, BlobColumn, FragmentMetadata, blob_array, blob_field
from trilake.lance.cleanup import AutoCleanupConfig, milliseconds
from trilake.lance.dataset import VectorIndexReader
from trilake.lance.debug import format_fragment, format_manifest, format_schema, list_transactions
from trilake.lance.fragment import DataFile, DeletionFile, RowIdMeta, RowIdSequence, write_fragments
from trilake.lance.indices import IndicesBuilder, IvfModel, PqModel
from trilake.lance.lance import manifest_needs_migration
from trilake.lance.query import BooleanQuery, MatchQuery, MultiMatchQuery, Occur
from trilake.lance.sampler import ShardedBatchIterator
from trilake.lance.scan.vectors import vectors_in
from trilake.lance.vector import vec_to_table


def written(rows: Any, uri: Any, **options: Any) -> lance.LanceDataset:
    """A dataset in the current format."""
    return lance.write_dataset(rows, uri, **{"data_storage_version": "2.2", **options})


def test_metadata_is_built_from_parts() -> None:
    deletion = DeletionFile(1, 7, "bitmap", 3, base_id=2)
    files = [DataFile("x.lance", [0, 1], [0, 1], 2, 2, 400)]
    dataset = FragmentMetadata(4, files, 10, deletion, RowIdSequence(range(10)).to_inline_metadata())
    assert (dataset.num_rows, dataset.deletion_file, dataset.deletion_file and dataset.deletion_file.path(4)) == (
        *(7, deletion, "_deletions/4-1-7.bin"),
    )
    for again in (pickle.loads(pickle.dumps(dataset)), FragmentMetadata.from_json(json.dumps(dataset.to_json()))):
        assert again == dataset
        assert again.to_json() == dataset.to_json()
    dataset.physical_rows, dataset.id, dataset.deletion_file = 11, 5, None
    assert (dataset.num_rows, dataset.id) == (11, 5)
    with pytest.raises(InvalidArgumentError, match="file_type"):
        DeletionFile(1, 7, "roaring")


def test_metadata_shows_all_of_its_parts() -> None:
    dataset = FragmentMetadata(0, [DataFile("0.lance", [0], file_size_bytes=100)], 100)
    assert repr(dataset) == (
        "FragmentMetadata(id=0, files=[DataFile(path='0.lance', fields=[0], column_indices=[], file_major_version=0, "
        "file_minor_version=0, file_size_bytes=100)], physical_rows=100, deletion_file=None, row_id_meta=None, "
        "created_at_version_meta=None, last_updated_at_version_meta=None, overlays=[])"
    )


@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        ([1, 1], ValueError, "unique"),
        (pa.array([1, None]), ValueError, "null"),
        (pa.array([1.5]), TypeError, "array of integers"),
        (pa.array([-1]), ValueError, "uint64"),
        (range(-1, 2), ValueError, "non-negative"),
        (5, TypeError, "iterable of integers"),
        (["a"], TypeError, "iterable of integers"),
    ],
)
def test_invalid_row_ids_are_rejected(ids: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        RowIdSequence(ids)


def test_row_ids_are_kept_by_a_manual_update(tmp_path: Path) -> None:
    for ids in ([], [5, 3], range(2**63, 2**63 + 2), pa.chunked_array([[1], [2]]), (i for i in (4, 9))):
        sequence = RowIdSequence(ids)
        assert RowIdSequence.from_inline_metadata(sequence.to_inline_metadata()) == sequence
        assert pickle.loads(pickle.dumps(sequence)) == sequence
    dataset = written(pa.table({"id": [1, 2]}), tmp_path, enable_stable_row_ids=True)
    fragment = dataset.get_fragments()[0]
    assert list(RowIdSequence.from_inline_metadata(fragment.metadata.row_id_meta)) == [0, 1]
    (new,) = write_fragments(pa.table({"id": [20]}), tmp_path)
    new.row_id_meta = RowIdSequence([1]).to_inline_metadata()
    assert isinstance(new.row_id_meta, RowIdMeta)
    operation = lance.LanceOperation.Update([], [fragment.delete("id = 2")], [new], [])
    done = lance.LanceDataset.commit(dataset, operation, read_version=1)
    assert done.to_table(with_row_id=True).to_pydict() == {"id": [1, 20], "_rowid": [0, 1]}


def test_blobs_are_bytes_or_uris() -> None:
    column = blob_array([b"x", "file:///y", Blob.from_uri("s3://b/z", 4, 5), Blob.empty(), None])
    assert column.storage.field("size").to_pylist() == [None, None, 5, None, None]
    assert column.storage.null_count == 1
    assert (blob_field("v").type, blob_field("v", nullable=False).nullable) == (column.type, False)
    wrong: list[Any] = [{"data": b"", "uri": "x"}, {}, {"uri": ""}, {"uri": "x", "position": 1}, {"position": 0}]
    for parts in [*wrong, {"uri": "x", "position": 0, "size": 0}, {"uri": "x", "position": -1, "size": 1}]:
        with pytest.raises(ValueError, match=r"Blob|External"):
            Blob(**parts)
    with pytest.raises(TypeError, match="int"):
        blob_field("v", inline_size_threshold=1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="positive"):
        blob_field("v", dedicated_size_threshold=0)
    assert [f and f.read() for f in BlobColumn(pa.chunked_array([[b"a", None]]))] == [b"a", None]
    with pytest.raises(ValueError, match="binary"):
        BlobColumn(pa.array([1]))


def test_blob_arrays_are_written_and_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    uri = (tmp_path / "file").as_uri()
    values = blob_array([b"inline", uri, Blob.from_uri(uri, 2, 3), Blob.empty(), None])
    schema = pa.schema([pa.field("id", pa.int64()), blob_field("v")])
    rows, expected = pa.table([range(5), values], schema=schema), [b"inline", b"0123456789", b"234", b"", None]
    with pytest.raises(ValueError, match="outside registered external bases"):
        written(rows, tmp_path / "t")
    dataset = written(rows, tmp_path / "t", allow_external_blob_outside_bases=True)
    assert [f and f.readall() for f in dataset.take_blobs("v", indices=range(5))] == expected
    based = written(rows, tmp_path / "based", initial_bases=[lance.DatasetBasePath(str(tmp_path))])
    based.insert(rows)
    assert [f and f.readall() for f in based.take_blobs("v", indices=range(5, 10))] == expected
    with pytest.raises(OSError, match="outside registered external bases"):
        dataset.insert(rows)


@pytest.mark.parametrize(
    ("uri", "is_inside"), [("file:{}/x/../in/f", True), ("{}/in/./f", True), ("{}/in/../f", False)]
)
def test_external_blobs_must_be_in_a_base_path(tmp_path: Path, uri: str, is_inside: bool) -> None:
    (tmp_path / "in").mkdir()
    for name in ("f", "in/f"):
        (tmp_path / name).write_bytes(b"abc")
    rows = pa.table([blob_array([Blob.from_uri(uri.format(tmp_path))])], schema=pa.schema([blob_field("v")]))
    outside = nullcontext() if is_inside else pytest.raises(ValueError, match="outside registered external bases")
    with outside:
        written(rows, tmp_path / "t", initial_bases=[lance.DatasetBasePath(str(tmp_path / "in"))])


@pytest.mark.parametrize("nested", [True, False])
def test_merge_of_other_columns_keeps_blobs(tmp_path: Path, nested: bool) -> None:
    blobs: Any = blob_array([b"one", b"two"])
    field = blob_field("v")
    if nested:
        blobs = pa.StructArray.from_arrays([blobs], fields=[field])
        field = pa.field("v", blobs.type)
    schema = pa.schema([pa.field("id", pa.int64()), field, pa.field("n", pa.int64())])
    dataset = written(pa.table([[1, 2], blobs, [10, 20]], schema=schema), tmp_path)
    source = pa.table({"id": [2, 3], "n": [21, 30]})
    dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(source)
    table = dataset.to_table(blob_handling="all_binary").sort_by("id")
    values = [b"one", b"two", None]
    assert table["v"].to_pylist() == ([{"v": b"one"}, {"v": b"two"}, None] if nested else values)
    assert table["n"].to_pylist() == [10, 21, 30]


def test_max_bytes_per_file_is_respected(tmp_path: Path) -> None:
    """Rows that are not encoded yet count, too."""
    batch = pa.record_batch({"a": ["0" * 1024] * 8192})
    fragments = write_fragments(pa.Table.from_batches([batch, batch]), tmp_path, max_bytes_per_file=1024)
    assert [fragment.physical_rows for fragment in fragments] == [8192, 8192]


def test_failed_writes_leave_no_blobs(tmp_path: Path) -> None:
    dataset = written(pa.table({"id": range(4)}), tmp_path / "t", max_rows_per_file=2)
    before = sorted(tmp_path.rglob("*"))
    schema = pa.schema([blob_field("v", inline_size_threshold=1, dedicated_size_threshold=9)])

    def batches(error: bool) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([blob_array([b"packed", b"dedicated"])], schema=schema)
        if error:
            raise RuntimeError("no more rows")
        yield pa.record_batch([blob_array([b"packed", b"x" * 10])], schema=schema)
        yield pa.record_batch([blob_array([b"packed"])], schema=schema)

    with pytest.raises(RuntimeError, match="no more rows"):
        dataset.add_columns(batches(error=True), reader_schema=schema)
    with pytest.raises(ValueError, match="produced more values"):
        dataset.add_columns(batches(error=False), reader_schema=schema)
    assert [p for p in sorted(tmp_path.rglob("*")) if p.is_file()] == [p for p in before if p.is_file()]


def test_blobs_at_uris_are_copied(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    uri = (tmp_path / "file").as_uri()
    blobs = blob_array([b"inline", uri, Blob.from_uri(uri, 2, 3), Blob.empty(), None])
    struct = pa.StructArray.from_arrays([blobs], fields=[blob_field("v")])
    rows = pa.table([blobs, struct], schema=pa.schema([blob_field("v"), pa.field("s", struct.type)]))
    dataset = written(rows, tmp_path / "t", external_blob_mode="ingest")
    dataset.insert(rows, external_blob_mode="ingest")
    (tmp_path / "file").unlink()
    for column in ("v", "s.v"):
        read = [f and f.readall() for f in dataset.take_blobs(column, indices=range(10))]
        assert read == [b"inline", b"0123456789", b"234", b"", None] * 2
    with pytest.raises(OSError, match="only applies when"):
        dataset.insert(rows, external_blob_mode="ingest", allow_external_blob_outside_bases=True)


def test_commits_run_auto_cleanup(tmp_path: Path) -> None:
    rows = pa.table({"a": [1]})
    options = AutoCleanupConfig(interval=2, older_than_seconds=0)
    dataset = written(rows, tmp_path, auto_cleanup_options=options)
    assert dataset.config() == {"lance.auto_cleanup.interval": "2", "lance.auto_cleanup.older_than": "0s"}
    for _ in range(2):
        dataset = written(rows, tmp_path, mode="append", auto_cleanup_options={"interval": 1})
    assert [v["version"] for v in dataset.versions()] == [1, 2, 3]
    dataset = written(rows, tmp_path, mode="append")
    assert [v["version"] for v in dataset.versions()] == [3, 4]
    assert dataset.count_rows() == 4
    dataset.optimize.disable_auto_cleanup()
    assert dataset.config() == {}
    dataset.optimize.enable_auto_cleanup(AutoCleanupConfig(interval=1, older_than_seconds=7))
    assert dataset.config()["lance.auto_cleanup.older_than"] == "7s"
    assert milliseconds("1w 2days 3h4m 5s 6ms") == 788_645_006
    with pytest.raises(InvalidArgumentError, match="duration"):
        milliseconds("soon")


def test_format_manifest_fragment_and_schema(tmp_path: Path) -> None:
    dataset = written(pa.table({"a": [1, 2], "s": [{"x": 1}, {"x": 2}]}), tmp_path)
    dataset.delete("a = 1")
    assert "file_major_version: 2" in format_fragment(dataset.get_fragments()[0].metadata, dataset)
    assert "num_deleted_rows: 1" in format_manifest(dataset)
    assert format_schema(dataset).splitlines() == ["0: a: int64", "1: s: struct", "  2: x: int64"]
    assert ["Delete" in (text or "") for text in list_transactions(dataset)] == [True, False]
    assert not manifest_needs_migration(dataset)


def test_sharded_batch_iterator(tmp_path: Path) -> None:
    dataset = written(pa.table({"a": range(10)}), tmp_path, max_rows_per_file=3)
    by_fragment = ShardedBatchIterator(tmp_path, 1, 2, columns=["a"])
    assert [n for b in by_fragment for n in b["a"].to_pylist()] == [3, 4, 5, 9]
    by_batch = ShardedBatchIterator(dataset, 0, 2, batch_size=4, granularity="batch")
    assert [n for b in by_batch for n in b["a"].to_pylist()] == [0, 1, 2, 3, 8, 9]
    with pytest.raises(ValueError, match="granularity"):
        ShardedBatchIterator(dataset, 0, 2, granularity="rows")


def test_index_models_are_trained_saved_and_used(tmp_path: Path) -> None:
    vectors = np.random.default_rng(1).random((600, 8)).astype(np.float32)
    dataset = written(vec_to_table(vectors), tmp_path / "t", max_rows_per_file=200)
    builder = IndicesBuilder(dataset, "vector")
    ivf = builder.train_ivf(4, sample_rate=50)
    assert builder.train_ivf().num_partitions == round(builder.dataset.count_rows() ** 0.5)
    pq = builder.train_pq(ivf, 2, sample_rate=2, max_iters=2)
    ivf.save(str(tmp_path / "ivf"))
    pq.save(str(tmp_path / "pq"))
    assert IvfModel.load(str(tmp_path / "ivf")) == ivf
    assert (PqModel.load(str(tmp_path / "pq")), pq.dimension, pq.num_subvectors) == (pq, 8, 2)
    dataset = dataset.create_index(
        *("vector", "IVF_PQ"), num_partitions=4, num_sub_vectors=2, ivf_centroids=ivf.centroids, pq_codebook=pq.codebook
    )
    reader = VectorIndexReader(dataset, "vector_idx")
    parts = [reader.read_partition(i, with_vector=True) for i in range(reader.num_partitions())]
    assert sorted(n for part in parts for n in part["_rowid"].to_pylist()) == sorted(
        dataset.to_table([], with_row_id=True)["_rowid"].to_pylist()
    )
    assert (parts[0]["__pq_code"].type, reader.centroids()) == (pa.list_(pa.uint8(), 2), ivf.centroids)
    with pytest.raises(IndexError, match="out of range"):
        reader.read_partition(4)
    with pytest.raises(InvalidArgumentError, match="sample_rate"):
        builder.train_ivf(4, sample_rate=1)


def test_full_text_query_classes() -> None:
    both = MatchQuery("lake", "title") | MatchQuery("table", "body", boost=2.0)
    assert isinstance(both, BooleanQuery)
    assert [(occur, q.query) for occur, q in both.queries if isinstance(q, MatchQuery)] == [
        (Occur.SHOULD, "lake"),
        (Occur.SHOULD, "table"),
    ]
    with pytest.raises(ValueError, match="expected 2 boosts"):
        MultiMatchQuery("lake", ["a", "b"], boosts=[1.0])


def test_rows_without_some_columns_are_appended(tmp_path: Path) -> None:
    dataset = written(pa.table({"a": [1], "b": ["x"], "c": [1.5]}), tmp_path)
    dataset.insert(pa.table({"c": [2.5], "a": [2]}))
    dataset = written(pa.table({"b": ["z"]}), tmp_path, mode="append")
    (fragment,) = write_fragments(pa.table({"a": [4]}), tmp_path)
    dataset = lance.LanceDataset.commit(dataset, lance.LanceOperation.Append([fragment]), read_version=3)
    assert dataset.to_table().to_pylist()[1:] == [
        {"a": 2, "b": None, "c": 2.5},
        {"a": None, "b": "z", "c": None},
        {"a": 4, "b": None, "c": None},
    ]
    required = pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.int64(), nullable=False)])
    strict = written(pa.table({"a": [1], "b": [1]}, schema=required), tmp_path / "strict")
    with pytest.raises(OSError, match="column b is missing"):
        strict.insert(pa.table({"a": [1]}))
    with pytest.raises(OSError, match="column u"):
        strict.insert(pa.table({"u": [1]}))


def test_blobs_in_structs_and_lists_are_kept(tmp_path: Path) -> None:
    inside = pa.struct([blob_field("blob"), pa.field("meta", pa.json_())])
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("info", inside), pa.field("all", pa.list_(inside))])

    def rows(id: int) -> pa.Table:
        one = pa.StructArray.from_arrays(
            [blob_array([b"blob%d" % id]), pa.array([f'{{"n":{id}}}'], pa.json_())], fields=list(inside)
        )
        listed = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), one, type=schema.field("all").type)
        return pa.Table.from_arrays([pa.array([id]), one, listed], schema=schema)

    dataset = written(rows(1), tmp_path)
    dataset.insert(rows(2))
    dataset.optimize.compact_files()
    assert len(dataset.get_fragments()) == 1
    assert [data for _, data in dataset.read_blobs("info.blob", indices=[1, 0])] == [b"blob2", b"blob1"]
    files = dataset.to_pandas()["info"][0]["blob"]
    assert (files.readall(), dataset.to_pandas(blob_mode="bytes")["info"][1]["blob"]) == (b"blob1", b"blob2")
    aliased = dataset.scanner(columns={"b": "info.blob", "id": "id"}).to_pandas()
    assert (aliased["b"][1].readall(), dataset.to_table(["info.meta"])["info.meta"].to_pylist()[1]) == (
        b"blob2",
        '{"n":2}',
    )
    whole = dataset.to_table(blob_handling="all_binary").to_pylist()
    assert [row["all"][0]["blob"] for row in whole] == [b"blob1", b"blob2"]
    with pytest.raises(ValueError, match="blob_mode must be one of"):
        dataset.to_pandas(blob_mode="inline")
    with pytest.raises(TypeError, match="not a blob column"):
        dataset.take_blobs("info", indices=[0])


def test_update_keeps_other_blobs_of_the_column(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), blob_field("v"), pa.field("j", pa.json_())])
    values = [pa.array([1, 2]), blob_array([b"one", b"two"]), pa.array(['{"a":1}', '{"a":2}'], pa.json_())]
    dataset = written(pa.table(values, schema=schema), tmp_path)
    new = pa.table([pa.array([2]), blob_array([b"NEW"]), pa.array(['{"a":3}'], pa.json_())], schema=schema)
    fragment, fields = dataset.get_fragments()[0].update_columns(new, "id")
    done = lance.LanceDataset.commit(
        dataset, lance.LanceOperation.Update([], [fragment], [], fields), read_version=dataset.version
    )
    assert [data for _, data in done.read_blobs("v", indices=[0, 1])] == [b"one", b"NEW"]
    assert done.to_table(["j"])["j"].to_pylist() == ['{"a":1}', '{"a":3}']
    with pytest.raises(ValueError, match="metadata column"):
        dataset.get_fragments()[0].update_columns(pa.table({"id": [1], "_rowaddr": [5]}), "id")


def test_blob_ranges_are_read_together(tmp_path: Path) -> None:
    schema = pa.schema([blob_field("v")])
    dataset = written(pa.table([blob_array([b"0123", None, b"d" * 70_000, b""])], schema=schema), tmp_path)
    requests = [(2, 69_999, 1), (0, 1, 2), (1, 5, 5), (0, 0, 4), (3, 0, 0)]
    assert dataset.read_blob_ranges("v", requests, selector="indices") == [
        *((0, 2, b"d"), (1, 0, b"12"), (2, 1, None), (3, 0, b"0123"), (4, 3, b"")),
    ]
    for request, message in (
        ((0, 0, 5), "exceeds blob size"),
        ((0, 2**64 - 1, 2), "overflowed"),
        ((0, -1, 1), "non-neg"),
    ):
        with pytest.raises(ValueError, match=message):
            dataset.read_blob_ranges("v", [request], selector="indices")
    with pytest.raises(ValueError, match="selector must be one of"):
        dataset.read_blob_ranges("v", [], selector="rows")
    with pytest.raises(ValueError, match="Exactly one of ids, indices, or addresses"):
        dataset.take_blobs("v")


def test_prepared_blobs_replace_a_file(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), blob_field("v")])
    dataset = written(pa.table([pa.array([0, 1]), blob_array([b"old", None])], schema=schema), tmp_path)
    session = lance.file.LanceFileSession(tmp_path / "data")
    packed = session.open_packed_blob_writer("new.lance", 1)
    packed.write_blobs(pa.array([b"skipped", b"first", None, b"!"], pa.binary()).slice(1))
    dedicated = session.open_dedicated_blob_writer("new.lance", 2)
    dedicated.write(b"alo")
    dedicated.write(b"ne")
    builder = lance.BlobDescriptorArrayBuilder("v")
    first, missing, last = packed.finish()
    assert [repr(d) for d in (first, missing, last)] == [
        *("Packed { blob_id: 1, offset: 0, size: 5 }", "Null", "Packed { blob_id: 1, offset: 5, size: 1 }"),
    ]
    builder.extend([first, dedicated.finish()])
    physical = pa.schema([schema.field("id"), builder.field])
    with session.open_writer("new.lance", schema=physical) as writer:
        writer.write_batch(pa.record_batch([pa.array([5, 6]), builder.finish()], schema=physical))
    group = lance.LanceOperation.DataReplacementGroup(0, DataFile.create(dataset, "new.lance"))
    done = lance.LanceDataset.commit(dataset, lance.LanceOperation.DataReplacement([group]), read_version=1)
    assert [data for _, data in done.read_blobs("v", indices=[0, 1])] == [b"first", b"alone"]
    assert type(done.read_transaction(2).operation).__name__ == "DataReplacement"  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="Binary"):
        session.open_packed_blob_writer("x.lance", 1).write_blobs([b"a"])
    with pytest.raises(ValueError, match="finish_array"):
        _ = packed.field


def test_transaction_changes_the_configuration(tmp_path: Path) -> None:
    written(pa.table({"a": [1]}), tmp_path)
    update, of = lance.LanceOperation.UpdateMap, lance.LanceOperation.UpdateConfig
    operation = of(update({"k": "1", "l": "2"}), update({"owner": "x"}), update({"s": "y"}), {0: update({"unit": "m"})})
    done = lance.LanceDataset.commit(tmp_path, lance.Transaction(1, operation))
    assert (done.config(), done.metadata, done.schema.metadata) == ({"k": "1", "l": "2"}, {"owner": "x"}, {b"s": b"y"})
    assert done.schema.field("a").metadata == {b"unit": b"m"}
    assert done.read_transaction(2).operation == operation  # type: ignore[union-attr]
    done = lance.LanceDataset.commit(done, of(update({"k": None})), read_version=2)
    assert (done.config(), done.version_refs()) == ({"l": "2"}, [{"version": 1}, {"version": 2}, {"version": 3}])


def test_compaction_reads_no_more_than_asked(tmp_path: Path) -> None:
    dataset = written(pa.table({"a": range(100)}), tmp_path, max_rows_per_file=10)
    small = {"target_rows_per_fragment": 20}
    assert dataset.optimize.compact_files(**small, max_source_rows=45).fragments_removed == 4
    assert dataset.optimize.compact_files(**small, max_source_bytes=1).fragments_removed == 0
    done = dataset.optimize.compact_files(**small, excluded_fragment_ids=[5, 5, 99], max_source_fragments=3)
    assert done.fragments_removed == 2
    assert 5 in [f.fragment_id for f in dataset.get_fragments()]
    split = dataset.optimize.compact_files(target_rows_per_fragment=100, max_bytes_per_file=1, batch_size=8)
    assert split.fragments_added > split.fragments_removed
    with pytest.raises(OSError, match="must be greater than 0"):
        dataset.optimize.compact_files(max_source_rows=0)


def test_pydantic_rows_are_written(tmp_path: Path) -> None:
    class Part(pydantic.BaseModel):
        n: int

    class Row(Part):
        name: str | None = None
        parts: list[Part] = []  # noqa: RUF012 - pydantic copies it

    dataset = written([Row(n=1), Row(n=2, parts=[Part(n=3)])], tmp_path / "t")
    dataset.insert([Row(n=4, name="x")])
    assert dataset.to_table().to_pylist()[1:] == [
        {"n": 2, "name": None, "parts": [{"n": 3}]},
        {"n": 4, "name": "x", "parts": []},
    ]
    assert [dataset.schema.field(n).nullable for n in dataset.schema.names] == [False, True, False]
    for rows, message in (
        ([Row(n=1), {"n": 2}], r"data\[1\]"),
        ([Part(n=1), Row(n=2)], "must be a Part"),
        (iter([]), "list"),
    ):
        with pytest.raises(TypeError, match=message):
            lance.LanceDataset.from_pydantic_model(Part if message == "must be a Part" else Row, rows, tmp_path / "u")
    with pytest.raises(TypeError, match="BaseModel"):
        lance.LanceDataset.from_pydantic_model(dict, [{}], tmp_path / "u")


def test_half_floats_are_cast() -> None:
    from trilake.lance.arrow import bfloat16_array, cast

    numbers = bfloat16_array([1.1, None, 3.0])
    assert cast(numbers.slice(1), pa.float64()).to_pylist() == [None, 3.0]
    assert cast(pa.array([1.1, None, 3.0]), "bfloat16") == numbers
    lists = pa.FixedSizeListArray.from_arrays(pa.array([1.0, 2.0, 3.0, 4.0], pa.float32()), 2)
    narrow = cast(lists, pa.list_(numbers.type, 2))
    assert cast(narrow.slice(1), pa.list_(pa.float32(), 2)).to_pylist() == [[3.0, 4.0]]
    with pytest.raises(ValueError, match="sizes"):
        cast(lists, pa.list_(numbers.type, 4))


def test_strict_overwrites_need_the_newest_version(tmp_path: Path) -> None:
    dataset = written(pa.table({"a": [1]}), tmp_path)
    fragment = lance.LanceFragment.create(tmp_path, pa.table({"a": [2]}))
    operation = lance.LanceOperation.Overwrite(dataset.schema, [fragment])
    lance.LanceDataset.commit(tmp_path, operation, read_version=1, max_retries=0)
    with pytest.raises(OSError, match="Commit conflict for version 2"):
        lance.LanceDataset.commit(tmp_path, operation, read_version=1, max_retries=0)
    assert lance.LanceDataset.commit(tmp_path, operation, read_version=1).version == 3


def test_column_function_must_return_the_same_columns(tmp_path: Path) -> None:
    dataset = written(pa.table({"a": range(4)}), tmp_path, max_rows_per_file=2)
    names = iter("bcd")
    with pytest.raises(OSError, match="does not match the expected schema"):
        dataset.add_columns(lambda batch: pa.record_batch([batch["a"]], [next(names)]))


def test_vectors_without_numbers_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="dimension must be a positive integer"):
        written(pa.table({"v": pa.array([[]], pa.list_(pa.float32(), 0))}), tmp_path)


def test_query_vectors_are_lists_of_numbers() -> None:
    for wrong in (42, None, object()):
        with pytest.raises(TypeError, match="Query vectors should be an array of floats"):
            vectors_in(wrong)
    with pytest.raises(TypeError, match="must be list-like"):
        vectors_in("x")
    with pytest.raises(ValueError, match="must have the same length, got 2 and 3"):
        vectors_in([np.zeros(2), np.zeros(3)])
    assert vectors_in(pa.chunked_array([[1, 2]]))[0].tolist() == [[1.0, 2.0]]


def test_constant_column_is_not_nullable(tmp_path: Path) -> None:
    rows = pa.table({"a": [1, 2]}, schema=pa.schema([pa.field("a", pa.int32(), nullable=False)]))
    dataset = written(rows, tmp_path)
    stale = write_fragments(rows, tmp_path)
    before = dataset.get_fragments()[0].data_files()
    dataset.add_columns({"n": "CAST(NULL AS INT)"})
    assert dataset.get_fragments()[0].data_files() == before
    dataset.add_columns({"one": "1", "s": "'x'", "half": "1.5", "i": "CAST(-1 AS INT)", "b": "a", "c": "a + 1"})
    assert dataset.to_table(limit=1).to_pylist() == [
        {"a": 1, "n": None, "one": 1, "s": "x", "half": 1.5, "i": -1, "b": 1, "c": 2}
    ]
    types = {f.name: (str(f.type), f.nullable) for f in dataset.schema}
    assert types == {
        "a": ("int32", False),
        "n": ("int32", True),
        "one": ("int64", False),
        "s": ("string", False),
        "half": ("double", False),
        "i": ("int32", False),
        "b": ("int32", False),
        "c": ("int32", True),
    }
    with pytest.raises(OSError, match="new column 'one'"):
        lance.LanceDataset.commit(tmp_path, lance.LanceOperation.Append(stale), read_version=1)


def test_new_column_of_deleted_rows_has_no_nulls(tmp_path: Path) -> None:
    dataset = written(pa.table({"a": range(4)}), tmp_path, max_rows_per_file=2, max_rows_per_group=1)
    dataset.delete("a = 0")
    dataset.add_columns({"one": "1", "s": "'x'"})
    assert dataset.to_table(include_deleted_rows=True, with_row_id=True)["one"].null_count == 0
    assert dataset.to_table()["s"].to_pylist() == ["x"] * 3


def test_multi_vector_search_needs_a_column(tmp_path: Path) -> None:
    table = vec_to_table(np.zeros((4, 2))).append_column("query_index", pa.array(range(4)))
    dataset = written(table, tmp_path)
    near: Any = {"column": "vector", "k": 1, "q": np.zeros((2, 2))}
    with pytest.raises(InvalidArgumentError, match="query_index"):
        dataset.to_table(nearest=near)
    assert dataset.to_table(nearest={**near, "q": np.zeros(2)}).num_rows == 1


def test_vectors_in_structs_are_indexed(tmp_path: Path) -> None:
    vectors = vec_to_table(np.random.default_rng(0).normal(size=(300, 8)))["vector"].combine_chunks()
    mask = pa.array([n % 10 == 3 for n in range(300)])
    data = pa.StructArray.from_arrays([vectors, pa.array(range(300))], ["v", "n"], mask=mask)
    dataset = written(pa.table({"id": range(300), "data": data}), tmp_path, max_rows_per_file=200)
    dataset.delete("id = 5")

    def nearest(row: int, **options: Any) -> list[int]:
        near = {"column": "data.v", "q": vectors[row].values, "k": 3, **options}
        ids: list[int] = dataset.to_table(["id"], nearest=near)["id"].to_pylist()
        return ids

    exact = {row: nearest(row) for row in (0, 5, 13, 250)}
    assert (exact[0][0], exact[250][0], 5 in exact[5], 13 in exact[13]) == (0, 250, False, False)
    dataset.create_index("data.v", "IVF_PQ", num_partitions=2, num_sub_vectors=4)
    assert "ANNSubIndex" in dataset.scanner(nearest={"column": "data.v", "q": vectors[0].values}).explain_plan()
    assert {row: nearest(row, nprobes=2, refine_factor=50) for row in exact} == exact


def test_statistics_include_bytes_per_field(tmp_path: Path) -> None:
    dataset = written(pa.table({"x": range(100), "s": [{"y": f"{n}"} for n in range(100)]}), tmp_path)
    dataset.add_columns({"z": "x"})
    dataset.insert(pa.table({"x": [5], "z": [7]}))
    fields = dataset.stats.data_stats().fields
    assert [(f.id, f.bytes_on_disk > 0) for f in fields] == [(0, True), (2, True), (3, True)]
    dataset.drop_columns(["s"])
    assert [f.id for f in dataset.stats.data_stats().fields] == [0, 3]


def test_analyzed_merges_change_nothing(tmp_path: Path) -> None:
    dataset = written(pa.table({"id": [1, 2], "v": ["a", "b"]}), tmp_path)
    files = [p for p in sorted(tmp_path.rglob("*")) if p.is_file()]
    builder = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    plan = builder.analyze_plan(pa.table({"id": [2, 3], "v": ["c", "d"]}))
    assert "MergeInsert: " in plan
    assert "num_inserted_rows=1, num_updated_rows=1, num_deleted_rows=0, bytes_written=" in plan
    assert "num_files_written=1" in plan
    assert [p for p in sorted(tmp_path.rglob("*")) if p.is_file()] == files


def test_data_overlays_are_rejected_by_name() -> None:
    with pytest.raises(AttributeError, match="no data overlays"):
        _ = lance.LanceOperation.DataOverlay
    with pytest.raises(AttributeError, match="has no attribute 'Nope'"):
        _ = lance.LanceOperation.Nope


def test_appended_blobs_use_the_thresholds_of_the_dataset(tmp_path: Path) -> None:
    def rows(**options: int) -> pa.Table:
        return pa.table([blob_array([b"x"])], schema=pa.schema([blob_field("v", **options)]))

    dataset = written(rows(inline_size_threshold=4096), tmp_path)
    with pytest.raises(OSError, match="Cannot append data with blob threshold metadata"):
        dataset.insert(rows(inline_size_threshold=1024))
    dataset.insert(rows())
    dataset.insert(rows(inline_size_threshold=4096))
    assert dataset.count_rows() == 3


def test_indices_of_bytes_are_rejected_by_name(tmp_path: Path) -> None:
    vectors = pa.array([[0, 1], [2, 3]], pa.list_(pa.uint8(), 2))
    dataset = written(pa.table({"v": vectors}), tmp_path)
    with pytest.raises(NotImplementedError, match="metric 'hamming' cannot be built"):
        dataset.create_index("v", "IVF_FLAT", metric="hamming", num_partitions=1)
