"""Tables whose files hold shredded variants, as DuckDB writes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql.variant_utils import VariantUtils

import trilake
from tests.delta.tables import clocked
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.log_cleanup import DAY_MS
from trilake.delta.protocol.features import has_feature
from trilake.delta.standard import standard_engine
from trilake.errors import FeatureInUseError
from trilake.storage import open_store

VALUES = {1: {"a": 1, "b": "x"}, 2: {"a": "no number", "zz": [1, None]}, 3: "hello", 4: None, 5: {"b": {"c": 2.5}}}
ENABLED = "delta.enableVariantShredding"


def write_shredded(path: Path, column: str = "v") -> None:
    with duckdb.connect() as connection:
        connection.execute(
            f'COPY (SELECT n, j::JSON::VARIANT AS {column} FROM (VALUES (1, \'{{"a":1,"b":"x"}}\'),'
            """ (2, '{"a":"no number","zz":[1,null]}'), (3, '"hello"'), (4, NULL), (5, '{"b":{"c":2.5}}')) t(n, j)"""
            f" ORDER BY n) TO '{path}' (SHREDDING {{{column}: 'STRUCT(a INTEGER, b VARCHAR)'}})"
        )


@pytest.fixture
def uri(tmp_path: Path) -> str:
    write_shredded(tmp_path / "x.parquet")
    trilake.convert_to_delta(tmp_path)
    return str(tmp_path)


def python(variant: dict[str, bytes] | None) -> Any:
    return variant and VariantUtils.to_python(variant["value"], variant["metadata"])


def rows(uri: str, **options: Any) -> dict[int, Any]:
    return {r["n"]: python(r["v"]) for r in trilake.open(uri).to_arrow(**options).to_pylist()}


def shredded_files(uri: str) -> int:
    files = [pq.read_schema(Path(uri, f)) for f in trilake.open(uri).snapshot.adds["path"].to_pylist()]
    return sum(s.field("v").type.get_field_index("typed_value") >= 0 for s in files)


def test_converted_table_is_read(uri: str) -> None:
    table = trilake.open(uri)
    assert str(table.metadata.schema) == "struct<n:integer,v:variant>"
    assert table.metadata.configuration == {ENABLED: "true"}
    assert rows(uri) == VALUES
    assert rows(uri, filter="v IS NULL") == {4: None}
    assert rows(uri, filter="n > 2 AND v IS NOT NULL") == {3: "hello", 5: VALUES[5]}
    assert trilake.verify(uri).ok


def _update(uri: str) -> None:
    trilake.open(uri).update({"n": "n + 10"}, where="n = 1")


def _delete(uri: str) -> None:
    trilake.open(uri).delete("n = 1")


def _merge(uri: str) -> None:
    source = pa.table({"n": pa.array([1], pa.int32())})
    trilake.open(uri).merge(source, "target.n = source.n").when_matched_update({"v": "target.v"}).execute()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_update, {k + 10 * (k == 1): v for k, v in VALUES.items()}),
        (_delete, {k: v for k, v in VALUES.items() if k > 1}),
        (_merge, VALUES),
    ],
)
@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("enabled", [False, True])
def test_changes_copy_variants(
    change: Callable[[str], None], expected: dict[int, Any], vectors: bool, enabled: bool, uri: str
) -> None:
    properties = {"delta.enableDeletionVectors": str(vectors).lower(), ENABLED: str(enabled).lower()}
    trilake.alter(uri).set_properties(properties)
    change(uri)
    assert rows(uri) == expected
    if not vectors and not enabled:
        assert shredded_files(uri) == 0


@pytest.mark.parametrize("enabled", [False, True])
def test_variants_are_shredded_if_the_property_is_set(enabled: bool, uri: str) -> None:
    trilake.alter(uri).set_properties({ENABLED: str(enabled).lower(), "delta.dataSkippingNumIndexedCols": "4"})
    objects = trilake.open(uri).to_arrow(filter="n = 1")
    more = pa.concat_tables([objects] * 9 + [trilake.open(uri).to_arrow(filter="n = 3")])
    trilake.write(more.append_column("late", pa.array(range(10))), uri, mode="append", schema_mode="merge")
    newest = trilake.open(uri).snapshot.adds.filter(pc.field("path") != "x.parquet").to_pylist()[0]
    assert shredded_files(uri) == 1 + enabled
    assert json.loads(newest["stats"])["maxValues"] == {"n": 3, "late": 9}, "parts of variants do not count"
    late = trilake.open(uri).to_arrow(filter="late IS NOT NULL").sort_by("late")["v"].to_pylist()
    assert [python(v) for v in late] == [VALUES[1]] * 9 + ["hello"]
    if enabled:
        parts = pq.read_table(Path(uri, newest["path"]))["v"].to_pylist()
        assert [v["typed_value"] and v["typed_value"]["b"]["typed_value"] for v in parts] == ["x"] * 9 + [None]
    assert trilake.verify(uri).ok


def test_optimize_and_append_write_unshredded_variants(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    for name in ("x", "y"):
        write_shredded(tmp_path / "t" / f"{name}.parquet")
    uri = str(tmp_path / "t")
    trilake.convert_to_delta(uri)
    trilake.alter(uri).set_properties({ENABLED: "false"})
    trilake.write(trilake.open(uri).to_arrow().slice(0, 5), uri, mode="append")
    assert shredded_files(uri) == 2
    trilake.open(uri).optimize()
    assert shredded_files(uri) == 0
    assert trilake.open(uri).count() == 15
    assert rows(uri) == VALUES
    assert trilake.verify(uri).ok


def test_partitioned_and_renamed_variants(tmp_path: Path) -> None:
    for p in (1, 2):
        (tmp_path / f"p={p}").mkdir()
        write_shredded(tmp_path / f"p={p}" / "x.parquet", "w")
    uri = str(tmp_path)
    trilake.convert_to_delta(uri)
    trilake.alter(uri).set_properties({"delta.columnMapping.mode": "name"})
    trilake.alter(uri).rename_column("w", "v")
    assert rows(uri, filter="p = 2") == VALUES
    trilake.open(uri).delete("p = 1 OR n < 3")
    assert rows(uri) == {k: v for k, v in VALUES.items() if k > 2}


def test_dropping_the_feature_rewrites_its_files(uri: str) -> None:
    log = DeltaLog(open_store(uri), standard_engine())
    with pytest.raises(FeatureInUseError, match="required by variantShredding"):
        trilake.alter(uri).drop_feature("variantType")
    with pytest.raises(FeatureInUseError, match="versions from 0 on"):
        trilake.alter(uri).drop_feature("variantShredding")
    assert shredded_files(uri) == 0
    assert ENABLED not in log.head().metadata.configuration
    later = SYSTEM_RUNTIME.clock_ms() + 3 * DAY_MS
    alter = Alter(clocked(log, lambda: later))
    alter.drop_feature("variantShredding", truncate_history=True)
    assert not has_feature(log.head().protocol, "variantShredding")
    assert rows(uri) == VALUES


@pytest.mark.parametrize("name", ["variantShredding", "variantShredding-preview"])
def test_property_adds_the_feature_unless_preview_is_set(name: str) -> None:
    uri = f"memory://shredding-{name}"
    trilake.create(uri, {"v": "variant"}, properties={f"delta.feature.{name}": "supported", ENABLED: "true"})
    listed = DeltaLog(open_store(uri), standard_engine()).head().protocol.reader_features or ()
    assert [n for n in listed if n.startswith("variantShredding")] == [name]


def test_variant_bounds_are_kept_but_not_used(uri: str) -> None:
    log = Path(uri) / "_delta_log" / f"{0:020}.json"
    stats = {"numRecords": 5, "minValues": {"n": 1, "v": "0S&u"}, "maxValues": {"n": 5, "v": "0S&u"}}
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for add in (a["add"] for a in actions if "add" in a):
        add["stats"] = json.dumps({**stats, "nullCount": {"n": 0, "v": 1}})
    log.write_text("\n".join(map(json.dumps, actions)))
    for filter in ("v IS NULL", "v IS NOT NULL", "n = 3"):
        assert trilake.open(uri).count(filter) == {"v IS NULL": 1, "v IS NOT NULL": 4, "n = 3": 1}[filter]
    opened = DeltaLog(open_store(uri), standard_engine())
    write_checkpoint(opened, opened.snapshot(), SYSTEM_RUNTIME)
    log.unlink()
    assert "0S&u" in trilake.open(uri).snapshot.adds["stats"][0].as_py()
    assert rows(uri) == VALUES
