"""API added to pylance after 0.8.19: fragments and fragment writers."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from trilake import lance
from trilake.errors import InvalidArgumentError, MissingFileError, TrilakeError
from trilake.lance import LanceDataset, LanceFragment, LanceOperation, Transaction
from trilake.lance.fragment import write_fragments

ROWS = pa.table({"id": range(8), "name": list("abcdefgh")})


@pytest.fixture
def dataset(tmp_path: Path) -> LanceDataset:
    ds = lance.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=4, max_rows_per_group=2)
    ds.delete("id = 1")
    return ds


def test_fragment_metadata(dataset: LanceDataset) -> None:
    first, second = (f.metadata for f in dataset.get_fragments())
    assert (first.physical_rows, first.num_deletions, first.num_rows, first.row_id_meta) == (4, 1, 3, None)
    assert (second.physical_rows, second.num_deletions, second.num_rows) == (4, 0, 4)
    (file,) = first.files
    assert file.fields == file.field_ids() == [0, 1]
    assert file.path == first.data_files()[0].path
    for same in (file, pickle.loads(pickle.dumps(file))):
        with pytest.warns(DeprecationWarning, match="attribute"):
            assert same.path() == same.path == file.path
    assert (Path(dataset.uri) / "data" / file.path).stat().st_size
    assert (file.file_major_version, file.file_size_bytes) == (2, Path(dataset.uri, "data", file.path).stat().st_size)


def test_fragment_sessions_frames_and_checks(dataset: LanceDataset) -> None:
    first = dataset.get_fragments()[0]
    session = first.open_session(["id"], with_row_address=True)
    assert session.take(range(1, 3)).to_pydict() == {"id": [2, 3], "_rowaddr": [2, 3]}
    assert first.open_session().take([0]).equals(first.take([0]))
    with pytest.raises(TrilakeError, match="3 rows"):
        session.take([3])
    with pytest.raises(InvalidArgumentError, match="must be integers"):
        session.take([0.5])
    assert first.to_pandas(["name"], filter="id > 2")["name"].tolist() == ["d"]
    assert first.to_table(limit=0).num_rows == first.head(0).num_rows == 0
    first.validate()
    (Path(dataset.uri) / "data" / first.metadata.files[0].path).unlink()
    gone, there = lance.dataset(dataset.uri).get_fragments()
    there.validate()
    with pytest.raises(MissingFileError):
        gone.validate()


def test_rows_are_deleted_by_offsets(dataset: LanceDataset) -> None:
    second = dataset.get_fragments()[1]
    for wrong in ([1.5], ["1"], np.array([0.0])):
        with pytest.raises(InvalidArgumentError, match="must be integers"):
            second.delete_rows(wrong)
    cut = second.delete_rows(i for i in (0, 3))
    assert cut is not None
    assert cut.num_deletions == 2


def test_fragments_ignore_default_scan_options(dataset: LanceDataset) -> None:
    """A dataset's default scan options do not apply to its fragments."""
    defaults = {"limit": 1, "with_row_id": True, "filter": "id > 5", "columns": ["name"]}
    ds = lance.dataset(dataset.uri, default_scan_options=defaults)
    first = ds.get_fragments()[0]
    assert first.to_table().to_pydict() == {"id": [0, 2, 3], "name": ["a", "c", "d"]}
    assert (first.count_rows("id < 3"), first.head(2).num_rows) == (2, 2)

    def twice(batch: pa.RecordBatch) -> pa.RecordBatch:
        assert batch.schema.names == ["id"]
        return pa.record_batch([pa.array([2 * i for i in batch["id"].to_pylist()], pa.int64())], ["twice"])

    with pytest.raises(ValueError, match="A checkpoint file cannot be used"):
        ds.get_fragments()[0].merge_columns(lance.batch_udf(checkpoint_file="results.sqlite")(twice), ["id"])
    merged = [f.merge_columns(twice, ["id"]) for f in ds.get_fragments()]
    done = LanceDataset.commit(dataset.uri, LanceOperation.Merge([m for m, _ in merged], merged[0][1]), ds.version)
    assert done.to_table(["twice"])["twice"].to_pylist() == [2 * i for i in range(8) if i != 1]


def test_fragment_write_modes(dataset: LanceDataset) -> None:
    more = pa.table({"id": [9], "name": ["i"]})
    appended = write_fragments(more, dataset.uri, return_transaction=True)
    assert isinstance(appended, Transaction)
    assert (appended.read_version, type(appended.operation).__name__) == (dataset.version, "Append")
    assert LanceDataset.commit(dataset.uri, appended).count_rows() == 8
    other = pa.table({"id": ["x"], "name": [1.5]})
    for mode in ("create", "overwrite"):
        assert LanceFragment.create(dataset.uri, other, mode=mode).files[0].fields == [0, 1]
    with pytest.raises(TrilakeError):
        LanceFragment.create(dataset.uri, other)
    with pytest.raises(InvalidArgumentError, match="mode"):
        write_fragments(more, dataset.uri, mode="upsert")
    replaced = write_fragments(other, dataset.uri, mode="overwrite", return_transaction=True)
    assert LanceDataset.commit(dataset.uri, replaced).to_table().equals(other)
    begun = write_fragments(more, "memory://begun-by-a-transaction", return_transaction=True)
    assert begun.read_version == 0
    assert LanceDataset.commit("memory://begun-by-a-transaction", begun).to_table().equals(more)


def test_default_values_of_unsupported_options_are_accepted(dataset: LanceDataset) -> None:
    unset = {"namespace_client": None, "table_id": None, "session": None, "target_bases": None}
    more = pa.table({"id": [9], "name": ["i"]})
    fragments = write_fragments(more, dataset.uri, max_page_bytes=1 << 20, **unset)
    done = LanceDataset.commit(
        dataset.uri,
        LanceOperation.Append(fragments),
        dataset.version,
        commit_message=None,
        max_retries=3,
        detached=False,
    )
    assert done.count_rows() == 8
    lance.write_dataset(more, dataset.uri, mode="append", auto_cleanup_options=None, data_cache_bytes=1, **unset)
    read = {"cache_repetition_index": False, "validate_on_decode": True}
    sizes = {"index_cache_size_bytes": 1 << 20, "metadata_cache_size_bytes": 1 << 20}
    opened = lance.dataset(dataset.uri, **sizes, read_params=read, session=None)
    assert opened.count_rows() == 9
    for option, value in (("base_store_params", {"elsewhere": {}}), ("session", object())):
        with pytest.raises(InvalidArgumentError, match=f"{option}=.* is not supported"):
            write_fragments(more, dataset.uri, **{option: value})
    with pytest.raises(TypeError, match="no option 'colour'"):
        LanceDataset.commit(dataset.uri, LanceOperation.Append(fragments), 1, colour="red")
    with pytest.raises(TypeError, match="no option 'colour'"):
        lance.dataset(dataset.uri, colour="red")
