"""API added to pylance after 0.8.19: projections, deferred merges, tags and drop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from trilake import lance
from trilake.errors import ConflictError, InvalidArgumentError, TableNotFoundError
from trilake.lance.schema import LanceSchema

ROWS = pa.table({"id": range(6), "a": [i / 2 for i in range(6)], "p": [{"x": i, "y": str(i)} for i in range(6)]})


def dataset(name: str) -> lance.LanceDataset:
    return lance.write_dataset(ROWS, f"memory://operations-{name}", mode="overwrite", max_rows_per_file=3)


def projected(ds: lance.LanceDataset, schema: pa.Schema) -> lance.LanceDataset:
    operation = lance.LanceOperation.Project(LanceSchema.from_pyarrow(schema))
    return lance.LanceDataset.commit(ds, operation, read_version=ds.version)


def test_projection_renames_and_drops_by_id() -> None:
    ds = dataset("project")
    ds.create_scalar_index("a", "BTREE")
    part = pa.struct([("x", pa.int64()), ("z", pa.string())])
    got = projected(ds, pa.schema([("a", pa.int64()), ("b", pa.float64()), ("q", part)]))
    assert got.to_table().slice(2, 1).to_pylist() == [{"a": 2, "b": 1.0, "q": {"x": 2, "z": "2"}}]
    assert got.to_table(["a"], filter="b = 1.0").to_pydict() == {"a": [2]}
    got.validate()
    only = projected(got, pa.schema([("a", pa.int64())]))
    assert only.to_table().to_pydict() == {"a": list(range(6))}
    assert only.list_indices() == []
    lance.write_dataset(pa.table({"a": [9]}), ds.uri, mode="append")
    assert lance.dataset(ds.uri).count_rows() == 7
    operation = lance.LanceOperation.Project(only.lance_schema)
    assert lance.LanceDataset.commit(only, operation, read_version=only.version).count_rows() == 7
    with pytest.raises(ConflictError):
        lance.LanceDataset.commit(only, operation, read_version=only.version)


def test_schema_fields_and_ids() -> None:
    ds = dataset("fields")
    ds.drop_columns(["a"])
    fields = ds.lance_schema.fields()
    assert [(f.name(), f.id()) for f in fields] == [("id", 0), ("p", 2)]
    assert [(f.name(), f.id()) for f in fields[1].children()] == [("x", 3), ("y", 4)]
    part = ds.lance_schema.field("p.y")
    assert part is not None
    assert part.id() == 4
    for name, id in (("P.Y", 4), ("ID", 0)):
        found = ds.lance_schema.field_case_insensitive(name)
        assert found is not None
        assert found.id() == id
    assert ds.lance_schema.field_case_insensitive("nothing") is None
    assert ds.lance_schema.to_pyarrow() == ds.schema
    assert lance.LanceDataset.commit(ds, lance.LanceOperation.Project(ds.lance_schema), ds.version).schema == ds.schema


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (pa.schema([("id", pa.string())]), "of type int64"),
        (pa.schema([("id", pa.int64()), ("a", pa.float64()), ("p", pa.int64())]), "of type struct"),
        (pa.schema([pa.field("id", pa.int64(), nullable=False)]), "may have nulls"),
        (pa.schema([]), "needs columns"),
    ],
)
def test_projection_of_other_columns_is_rejected(schema: pa.Schema, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        projected(dataset("rejected"), schema)


def test_companions_follow_their_columns() -> None:
    rows = pa.table({"n": pa.array([1, None]), "m": pa.array([None, 2])})
    ds = lance.write_dataset(
        rows, "memory://operations-masks", mode="overwrite", nulls="mask", data_storage_version="legacy"
    )
    fields = [f for f in ds.lance_schema.stored.fields if f.name == "m"]
    kept = LanceSchema(type(ds.lance_schema.stored)(tuple(fields), {}))
    done = lance.LanceDataset.commit(ds, lance.LanceOperation.Project(kept), ds.version)
    assert done.to_table().to_pydict() == {"m": [None, 2]}
    named = LanceSchema(type(ds.lance_schema.stored)((replace(fields[0], name="n"),), {}))
    again = lance.LanceDataset.commit(done, lance.LanceOperation.Project(named), done.version)
    assert again.to_table().to_pydict() == {"n": [None, 2]}
    assert again.count_rows("n IS NULL") == 1


def test_merged_fragments_report_field_ids() -> None:
    ds = dataset("more")
    twice = [f.merge_columns({"b": "id * 2"}) for f in ds.get_fragments()]
    schema = twice[0][1]
    assert [(f.name(), f.id()) for f in schema.fields()] == [("id", 0), ("a", 1), ("p", 2), ("b", 5)]
    for operation in (
        lance.LanceOperation.Merge([f for f, _ in twice], schema),
        lance.LanceOperation.Overwrite(schema, [f for f, _ in twice]),
    ):
        done = lance.LanceDataset.commit(ds, operation, read_version=ds.version)
        assert done.to_table(["b"]).to_pydict() == {"b": [2 * i for i in range(6)]}
        assert done.lance_schema == schema
    joined, schema = ds.get_fragments()[0].merge(data_obj=pa.table({"id": [1], "c": ["x"]}), left_on="id")
    assert [f.fields for f in joined.files] == [[0, 1, 3, 4], [5]]
    assert schema.to_pyarrow().names == ["id", "a", "p", "c"]


def test_merge_is_committed_later() -> None:
    ds = dataset("merge")
    new = pa.table({"id": [1, 9], "a": [-1.0, -9.0], "p": [{"x": 0, "y": ""}] * 2})
    builder = ds.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    plan = builder.explain_plan(new.schema)
    assert plan.startswith("MergeInsert: on=[id], when_matched=UpdateAll, when_not_matched=InsertAll, when_not_match")
    transaction, numbers = builder.execute_uncommitted(new)
    assert numbers == {"num_inserted_rows": 1, "num_updated_rows": 1, "num_deleted_rows": 0}
    assert (ds.version, lance.dataset(ds.uri).version, transaction.read_version) == (1, 1, 1)
    done = lance.LanceDataset.commit(ds, transaction)
    builder.execute(new)
    assert sorted(done.to_table(["id", "a"]).to_pylist(), key=lambda row: row["id"]) == [
        {"id": i, "a": {1: -1.0, 9: -9.0}.get(i, i / 2)} for i in (*range(6), 9)
    ]
    assert ds.count_rows() == 7
    with pytest.raises(ConflictError):
        lance.LanceDataset.commit(ds, transaction)
    with pytest.raises(InvalidArgumentError, match="has no actions"):
        ds.merge_insert("id").execute_uncommitted(new)


def test_failed_merge_leaves_no_file() -> None:
    ds = dataset("merge-fails")
    before = len(list(ds.snapshot.store.list("data")))
    with pytest.raises(InvalidArgumentError):
        ds.merge_insert("id").when_matched_update_all().execute_uncommitted(pa.concat_tables([ROWS, ROWS]))
    assert len(list(ds.snapshot.store.list("data"))) == before


def test_tags_accept_every_form_of_reference() -> None:
    ds = dataset("tags")
    ds.delete("id = 1")
    ds.tags.create("two")
    ds.tags.create("one", reference=1)
    ds.tags.create("again", (None, 1))
    ds.tags.create("copy", "one")
    ds.tags.update("one", reference=("main", 2))
    ds.tags.update("two", version=1)
    assert ds.checkout_version(("main", 1)).version == lance.dataset(ds.uri, (None, 1)).version == 1
    assert lance.dataset(ds.uri, version=("main", None)).version == 2
    numbers = {name: tag["version"] for name, tag in ds.tags.list().items()}
    assert numbers == {"two": 1, "one": 2, "again": 1, "copy": 1}
    for reference in (("dev", 1), "nothing", 7):
        with pytest.raises(ValueError, match="no"):
            ds.tags.create("more", reference)
    with pytest.raises(InvalidArgumentError, match="cannot be used together"):
        ds.tags.create("more", 1, version=1)


def test_drop_removes_only_the_dataset(tmp_path: Path) -> None:
    place = tmp_path / "t.lance"
    ds = lance.write_dataset(ROWS, place)
    ds.create_scalar_index("id", "BTREE")
    ds.tags.create("one", 1)
    ds.delete("id = 1")
    lance.LanceDataset.drop(place)
    assert not place.exists()
    with pytest.raises(OSError, match="no"):
        lance.LanceDataset.drop(place)
    lance.LanceDataset.drop(place, ignore_not_found=True)
    lance.write_dataset(ROWS, place)
    (place / "notes.txt").write_text("mine")
    lance.LanceDataset.drop(str(place))
    assert [p.name for p in place.iterdir()] == ["notes.txt"]
    for ignored in (None, True):
        with pytest.raises(TableNotFoundError):
            lance.LanceDataset.drop(place, ignore_not_found=ignored)
    lance.write_dataset(ROWS, "memory://operations-drop", mode="overwrite")
    lance.LanceDataset.drop("memory://operations-drop", {})
    with pytest.raises(TableNotFoundError):
        lance.dataset("memory://operations-drop")


def test_drop_does_not_follow_links(tmp_path: Path) -> None:
    place, other = tmp_path / "d.lance", tmp_path / "other"
    lance.write_dataset(pa.table({"a": [1, 2]}), place)
    (other / "empty").mkdir(parents=True)
    (place / "_indices").symlink_to(other)
    lance.LanceDataset.drop(place)
    assert (other / "empty").is_dir()
    assert [p.name for p in place.iterdir()] == ["_indices"]
