"""API added to pylance after 0.8.19 that applies to the legacy format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from trilake import lance
from trilake.errors import InvalidArgumentError, StorageError, TrilakeError
from trilake.lance import LanceDataset, LanceOperation

ROWS = pa.table({"id": [1, 2, 3, 4], "name": ["a", "b", "c", "d"]})


@pytest.fixture
def dataset(tmp_path: Path) -> LanceDataset:
    return lance.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=2, max_rows_per_group=2)


def test_insert(dataset: LanceDataset) -> None:
    dataset.insert(ROWS)
    assert (dataset.version, dataset.count_rows()) == (2, 8)
    dataset.insert(iter(pa.table({"id": [9], "name": ["z"]}).to_batches()), schema=ROWS.schema, max_rows_per_group=16)
    assert dataset.take([8]).to_pylist() == [{"id": 9, "name": "z"}]
    dataset.insert(ROWS.slice(0, 1), mode="overwrite")
    assert lance.dataset(dataset.uri).to_table().equals(ROWS.slice(0, 1))
    with pytest.raises(TypeError, match="max_rows"):
        dataset.insert(ROWS, max_rows=3)
    with pytest.raises(InvalidArgumentError, match="mode"):
        dataset.insert(ROWS, mode="upsert")  # type: ignore[arg-type]
    masked = lance.write_dataset(
        pa.table({"n": [1]}), "memory://later-insert", mode="overwrite", nulls="mask", data_storage_version="legacy"
    )
    masked.nulls = "mask"
    masked.insert(pa.table({"n": pa.array([None], pa.int64())}))
    assert masked.to_table()["n"].to_pylist() == [1, None]


def test_drop_index(dataset: LanceDataset) -> None:
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("name", "BTREE")
    dataset.drop_index("id_idx")
    assert [i["name"] for i in dataset.list_indices()] == ["name_idx"]
    assert dataset.to_table(filter="id = 3")["name"].to_pylist() == ["c"]
    for kind in KeyError, RuntimeError:
        with pytest.raises(kind, match="id_idx"):
            dataset.drop_index("id_idx")


def test_fragment_merge_columns(dataset: LanceDataset) -> None:
    def value_func(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch([pc.multiply(batch["id"], 10)], ["ten"])

    parts = [f.merge_columns(value_func, ["id"]) for f in dataset.get_fragments()]
    merged = LanceDataset.commit(dataset.uri, LanceOperation.Merge([p[0] for p in parts], parts[0][1]), dataset.version)
    assert merged.to_table(["id", "ten"]).to_pydict() == {"id": [1, 2, 3, 4], "ten": [10, 20, 30, 40]}


def widened(ds: LanceDataset, values: Any, **options: Any) -> pa.Table:
    """The dataset with the columns that ``values`` returns for each fragment, or for its row count."""
    parts = []
    for f in ds.get_fragments():
        columns_of = values(f.count_rows()) if getattr(values, "by_count", False) else values
        parts.append(f.merge_columns(columns_of, **options))
    ds.moved(LanceDataset.commit(ds, LanceOperation.Merge([p[0] for p in parts], parts[0][1]), ds.version).snapshot)
    return ds.to_table()


def test_fragment_columns_come_from_every_source() -> None:
    rows = pa.table({"id": range(10)})
    ds = lance.write_dataset(
        rows, "memory://later-widened", mode="overwrite", max_rows_per_file=6, max_rows_per_group=2
    )
    ds.delete("id = 1")
    where = [0, 2, 3, 4, 5, *((1 << 32) + i for i in range(4))]
    sizes: list[int] = []

    def ids(batch: pa.RecordBatch) -> pa.RecordBatch:
        sizes.append(batch.num_rows)
        assert batch.schema.names == ["_rowid", "id"]
        return pa.record_batch([batch["_rowid"], pc.multiply(batch["id"], 2)], ["row", "twice"])

    found = widened(ds, ids, columns=["_rowid", "id"], batch_size=1)
    assert (found["row"].to_pylist(), found["row"].type) == (where, pa.uint64())
    assert found["twice"].to_pylist() == [0, *range(4, 20, 2)]
    assert set(sizes) == {1}
    assert widened(ds, {"next": "id + 1"})["next"].to_pylist() == [1, *range(3, 11)]

    def table(count: int) -> pa.Table:
        return pa.table({"n": range(count)})

    table.by_count = True  # type: ignore[attr-defined]
    assert widened(ds, table)["n"].to_pylist() == [*range(5), *range(4)]

    def batches(count: int) -> Any:
        return iter(pa.table({"m": range(count)}).to_batches(max_chunksize=3))

    batches.by_count = True  # type: ignore[attr-defined]
    schema = pa.schema([("m", pa.int64())])
    assert widened(ds, batches, reader_schema=schema)["m"].to_pylist() == [*range(5), *range(4)]
    fragment = ds.get_fragments()[0]
    files = len(list(ds.snapshot.store.list("data")))
    for count, message in ((4, "ended before producing values"), (6, "produced more values")):
        with pytest.raises(OSError, match=message):
            fragment.merge_columns(pa.table({"k": range(count)}))
    assert len(list(ds.snapshot.store.list("data"))) == files
    for options in ({"columns": ["id"]}, {"reader_schema": schema}):
        with pytest.raises(TypeError, match="does not apply to expressions"):
            fragment.merge_columns({"k": "id"}, **options)
    with pytest.raises(TypeError, match="does not apply to rows"):
        fragment.merge_columns(pa.table({"k": range(5)}), columns=["id"])
    with pytest.raises(InvalidArgumentError, match="no columns to add"):
        fragment.merge_columns({})


def test_empty_projection_with_row_ids(dataset: LanceDataset) -> None:
    ids = [0, 1, 1 << 32, (1 << 32) + 1]
    assert dataset.to_table([], with_row_id=True).to_pydict() == {"_rowid": ids}
    assert dataset.to_table([], with_row_address=True).to_pydict() == {"_rowaddr": ids}
    both: dict[str, Any] = {"with_row_id": True, "with_row_address": True}
    assert dataset.get_fragments()[1].to_table([], **both).to_pydict() == {"_rowid": ids[2:], "_rowaddr": ids[2:]}
    assert dataset.scanner([], with_row_id=True, filter="id > 1").count_rows() == 3


def test_batch_udf(dataset: LanceDataset) -> None:
    @lance.batch_udf()
    def frame(batch: pa.RecordBatch) -> Any:
        return pd.DataFrame({"more": batch["id"].to_pandas() + 0.5})

    dataset.add_columns(frame, read_columns=["id"])

    @lance.batch_udf(output_schema=pa.schema([pa.field("small", pa.int8(), nullable=False)]))
    def narrow(batch: pa.RecordBatch) -> Any:
        return pd.DataFrame({"small": batch["id"].to_pandas()})

    dataset.add_columns(narrow)
    assert dataset.to_table(["more", "small"]).to_pydict() == {"more": [1.5, 2.5, 3.5, 4.5], "small": [1, 2, 3, 4]}
    assert dataset.schema.field("small").type == pa.int8()

    @lance.batch_udf(output_schema=pa.schema([("x", pa.int8())]))
    def wrong(batch: pa.RecordBatch) -> Any:
        return pa.record_batch([batch["id"]], ["x"])

    with pytest.raises(InvalidArgumentError, match="x int64, expected x int8"):
        dataset.add_columns(wrong)
    with pytest.raises(InvalidArgumentError, match="pandas DataFrame"):
        dataset.add_columns(lance.batch_udf()(lambda batch: 5))


def test_interrupted_batch_udf_resumes(dataset: LanceDataset, tmp_path: Path) -> None:
    seen: list[int] = []
    stop = [3]

    def costly(batch: pa.RecordBatch) -> pa.RecordBatch:
        ids = batch["id"].to_numpy()
        if stop[0] in ids:
            raise ArithmeticError("out of credit")
        seen.extend(ids.tolist())
        return pa.record_batch([pa.array(np.square(ids))], ["square"])

    schema = pa.schema([("square", pa.int64())])
    udf = lance.batch_udf(schema, checkpoint_file=tmp_path / "kept.sqlite")(costly)
    with pytest.raises((ArithmeticError, TrilakeError), match="out of credit"):
        dataset.add_columns(udf)
    stop[0] = -1
    dataset.add_columns(udf)
    assert sorted(seen) == [1, 2, 3, 4]
    assert dataset.to_table(["square"])["square"].to_pylist() == [1, 4, 9, 16]
    assert not (tmp_path / "kept.sqlite").exists()
    (tmp_path / "kept.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(StorageError, match="checkpoint"):
        udf(pa.record_batch([[1]], ["id"]))


@pytest.mark.parametrize(
    ("nearest", "message"),
    [
        ({"column": "v", "q": [1, 2], "approximate": True}, "unknown search option 'approximate'"),
        ({"column": "v", "q": [1, 2], "depth": 50}, "unknown search option 'depth'"),
        ({"column": "v"}, "nearest must have 'q'"),
        ("v", "nearest must be a mapping, got 'v'"),
    ],
)
def test_unknown_search_options_are_rejected(nearest: Any, message: str) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(8, dtype=np.float32)), 2)
    dataset = lance.write_dataset(pa.table({"v": vectors}), "memory://later-searches", mode="overwrite")
    with pytest.raises(TypeError, match=message) as error:
        dataset.to_table(nearest=nearest)
    assert isinstance(error.value, TrilakeError)


def test_short_method_names(dataset: LanceDataset) -> None:
    assert dataset.to_pandas({"n": "id * 2"}, filter="id > 3").to_dict("list") == {"n": [8]}
    assert dataset.to_pandas(types_mapper=pd.ArrowDtype).dtypes["name"] == pd.ArrowDtype(pa.string())
    assert dataset.scanner(["id"], limit=1).to_pandas().to_dict("list") == {"id": [1]}
    dataset.delete("id = 2")
    assert dataset.slice(1, 3, {"i": "id"}).to_pydict() == {"i": [3, 4]}
    assert dataset.slice(3, 3).num_rows == 0
    for bounds in (-1, 1), (2, 1), (0, 4):
        with pytest.raises(InvalidArgumentError, match="the dataset has 3 rows"):
            dataset.slice(*bounds)
    assert (dataset.fragment_ids(), dataset.max_field_id, dataset.data_storage_version) == ({0, 1}, 1, "2.2")
    assert dataset.get_version() == dataset.versions()[-1]
    assert not dataset.has_stable_row_ids
    dataset.truncate_table()
    assert (dataset.count_rows(), dataset.schema) == (0, ROWS.schema)


def test_versions_have_totals(dataset: LanceDataset) -> None:
    dataset.delete("id = 2")
    first, last = (version["metadata"] for version in dataset.versions())
    assert first["total_rows"] == first["total_data_file_rows"] == "4"
    assert last == {
        "total_data_file_rows": "4",
        "total_data_files": "2",
        "total_deletion_file_rows": "1",
        "total_deletion_files": "1",
        "total_files_size": first["total_files_size"],
        "total_fragments": "2",
        "total_rows": "3",
    }
    files = [file.file_size_bytes for fragment in dataset.get_fragments() for file in fragment.data_files()]
    assert last["total_files_size"] == str(sum(files))


def test_storage_options_are_shown(tmp_path: Path) -> None:
    assert lance.write_dataset(ROWS, tmp_path / "t").initial_storage_options is None
    options = {"aws_region": "eu-west-1"}
    dataset = lance.dataset(tmp_path / "t", storage_options=options)
    assert dataset.initial_storage_options == dataset.latest_storage_options() == dataset._storage_options == options


def test_tag_selects_the_version(dataset: LanceDataset) -> None:
    dataset.delete("id = 1")
    dataset.checkout_version(1).tags.create("first")
    dataset.tags.create("moved", 1)
    dataset.tags.update("moved")
    assert (dataset.tags.get_version("first"), dataset.tags.get_version("moved")) == (1, 2)


def test_schema_metadata(dataset: LanceDataset) -> None:
    other = lance.dataset(dataset.uri)
    assert dataset.update_schema_metadata({"a": "1", "b": "ü"}) == {"a": "1", "b": "ü"}
    other.insert(ROWS)
    assert other.update_schema_metadata({"a": None, "c": "3"}) == {"b": "ü", "c": "3"}
    assert (other.schema.metadata, other.count_rows()) == ({b"b": "ü".encode(), b"c": b"3"}, 8)
    other.replace_schema_metadata({"d": "4"})
    again = lance.dataset(dataset.uri)
    assert (again.schema_metadata, again.to_table().schema.metadata) == ({"d": "4"}, {b"d": b"4"})
    assert lance.dataset(dataset.uri, version=2).schema_metadata == {"a": "1", "b": "ü"}
    for wrong in ({"a": 1}, {1: "a"}, "a"):
        with pytest.raises(TypeError, match="metadata"):
            dataset.update_schema_metadata(wrong)  # type: ignore[arg-type]


def test_unsupported_names_explain_themselves(dataset: LanceDataset) -> None:
    for name, reason in (
        ("deep_clone", "write_dataset"),
        ("delta", "compares rows by columns"),
    ):
        with pytest.raises(AttributeError, match=reason) as error:
            getattr(dataset, name)
        assert isinstance(error.value, InvalidArgumentError)
        assert not hasattr(dataset, name)
    with pytest.raises(AttributeError, match="'LanceDataset' object has no attribute 'nope'"):
        dataset.nope  # noqa: B018
    with pytest.raises(TypeError, match=r"'full_text_query'.*contains"):
        dataset.to_table(full_text_query="word")
    assert dataset.to_table(io_buffer_size=1 << 20, late_materialization=True).num_rows == 4


def test_field_metadata(tmp_path: Path) -> None:
    tensor = pa.fixed_shape_tensor(pa.float32(), (2,))
    fields = [pa.field("a", pa.int64(), metadata={"unit": "m"}), pa.field("s", pa.struct([("x", pa.int64())]))]
    values = pa.ExtensionArray.from_storage(tensor, pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)))
    rows = pa.table(
        [pa.array([1]), pa.array([{"x": 1}], fields[1].type), values], schema=pa.schema([*fields, ("t", tensor)])
    )
    ds = lance.write_dataset(rows, tmp_path / "t")
    ds.update_field_metadata({"a": {"by": "ann", "unit": None}, "s.x": {"of": "s"}, "t": {"k": "v"}})
    ds = lance.dataset(ds.uri)
    assert ds.schema.field("a").metadata == {b"by": b"ann"}
    assert ds.schema.field("s").type.field("x").metadata == {b"of": b"s"}
    ds.replace_field_metadata("a", {"unit": "km"})
    ds.replace_field_metadata("t", {})
    assert ds.schema.field("a").metadata == {b"unit": b"km"}
    assert ds.schema.field("t").type == tensor
    assert ds.to_table().equals(rows)
    for wrong, message in (
        ({"b": {"k": "v"}}, "column 'b' not found"),
        ({"a": {"k": 1}}, "strings"),
        ({"a": 1}, "metadata"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            ds.update_field_metadata(wrong)


def test_maintenance_options(dataset: LanceDataset) -> None:
    unset = {"max_bytes_per_file": None, "defer_index_remap": False, "batch_size": 7, "compaction_mode": "reencode"}
    assert dataset.optimize.compact_files(target_rows_per_fragment=None, **unset).fragments_removed == 2
    assert lance.lance.Compaction.plan(dataset, {"batch_size": 3, "max_source_rows": None}).num_tasks() == 0
    for option in ({"defer_index_remap": True}, {"compaction_mode": "force_binary_copy"}):
        with pytest.raises(InvalidArgumentError, match=f"{min(option)}=.* is not supported"):
            dataset.optimize.compact_files(**option)
        with pytest.raises(InvalidArgumentError, match=f"{min(option)}=.* is not supported"):
            lance.lance.Compaction.plan(dataset, option)
    assert dataset.cleanup_old_versions(retain_versions=1, delete_rate_limit=9).old_versions == 2
    with pytest.raises(InvalidArgumentError, match="versions="):
        dataset.cleanup_old_versions(versions=[1])


def test_deprecated_names(tmp_path: Path) -> None:
    rows = pa.table({"a": [1]})
    dataset = lance.write_dataset(rows, tmp_path / "t")
    fragment = dataset.get_fragments()[0].metadata
    uses: dict[str, list[Any]] = {
        "data_storage_version": [
            lambda: lance.write_dataset(rows, tmp_path / "w", use_legacy_format=False),
            lambda: lance.write_fragments(rows, tmp_path / "f", use_legacy_format=False),
            lambda: lance.LanceFragment.create(tmp_path / "c", rows, use_legacy_format=False),
        ],
        "LanceSchema": [lambda: LanceOperation.Merge([fragment], dataset.schema)],
        "FragmentMetadata.files": [fragment.data_files],
        "DataFile.fields": [fragment.files[0].field_ids],
    }
    for instead, calls in uses.items():
        for call in calls:
            with pytest.warns(DeprecationWarning, match=instead) as found:
                call()
            assert [Path(one.filename).name for one in found] == [Path(__file__).name]
    LanceOperation.Merge([fragment], dataset.lance_schema)
