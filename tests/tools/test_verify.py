"""``verify`` finds every fault by its code in all formats, and nothing in a sound table."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import trilake
from tests.tools.delta_faults import FAULTS, Fault, build, build_mapped, build_uniform
from tests.tools.other_faults import LANCE, TREVNI, build_lance, build_numbers, build_texts, build_trevni
from trilake import lance
from trilake.delta.verify.run import CHECKS as DELTA_CHECKS
from trilake.errors import InvalidArgumentError, TableNotFoundError, VersionNotFoundError
from trilake.lance.verify.run import CHECKS as LANCE_CHECKS
from trilake.table.registry import format_named
from trilake.trevni.verify import CHECKS as TREVNI_CHECKS

ALL = (*FAULTS, *LANCE, *TREVNI)
BASES = {
    f.__name__: f for f in (build, build_mapped, build_uniform, build_lance, build_texts, build_numbers, build_trevni)
}
FORMATS = {"delta": DELTA_CHECKS, "lance": LANCE_CHECKS, "trevni": TREVNI_CHECKS}
DEPTHS = {c.code: c.depth for checks in FORMATS.values() for c in checks}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a sound table, built once."""
    made: dict[str, Path] = {}

    def of(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp("sound") / "t"
            BASES[name](made[name])
        return made[name]

    return of


@pytest.mark.parametrize("name", BASES)
def test_sound_table_passes(name: str, sound: Callable[[str], Path]) -> None:
    found = trilake.verify(str(sound(name)))
    assert str(found).count("\n") == 0, str(found)
    assert found.ok
    assert {c.code for c in found.checks} == {c.code for c in FORMATS[found.format]}


@pytest.mark.parametrize("fault", ALL, ids=lambda f: f"{f.code.partition('.')[0]}: {f.name}")
def test_fault_is_found_by_code(fault: Fault, sound: Callable[[str], Path], tmp_path: Path) -> None:
    folder = tmp_path / "t"
    shutil.copytree(sound(fault.base.__name__), folder)
    fault.inject(folder)
    depth = DEPTHS[fault.code]
    format_ = fault.code.partition(".")[0]
    found = trilake.verify(str(folder), depth=depth, format=format_)
    named = [f for f in found if f.code == fault.code]
    assert named, str(found)
    assert all(f.message and f.help for f in named)
    assert not any("cannot be checked" in f.message for f in found), str(found)
    json.loads(found.to_json())


def test_every_check_has_a_fault() -> None:
    injected = {f.code for f in ALL}
    assert len(injected) >= 40
    assert DEPTHS.keys() - injected == set()


def test_shallow_verify_reads_no_data_files(tmp_path: Path, sound: Callable[[str], Path]) -> None:
    folder = tmp_path / "t"
    shutil.copytree(sound("build"), folder)
    for file in folder.rglob("p=*/*.parquet"):
        file.unlink()
    assert trilake.verify(str(folder), depth="log").ok
    assert trilake.verify(str(folder), depth="files").codes == ("delta.file-missing",)


def test_sample_reads_only_some_files() -> None:
    for n in range(6):
        trilake.write(pa.table({"n": [n]}), "memory://verify-sample", mode="append")
    found = trilake.verify("memory://verify-sample", sample=2)
    assert found.ok
    assert {c.examined for c in found.checks if c.code == "delta.rows-unreadable"} == {2}


def test_indices_of_nulls_and_empty_strings_are_sound() -> None:
    uri = "memory://verify-nulls"
    schema = pa.schema([("i", pa.int64()), ("s", pa.string()), pa.field("r", pa.string(), nullable=False)])
    rows = pa.table({"i": [None, 0, 5, None], "s": ["", None, "b", None], "r": ["", "a", "", "b"]}, schema=schema)
    made = lance.write_dataset(rows, uri, mode="overwrite", max_rows_per_file=2, max_rows_per_group=2, nulls="mask")
    for column in rows.column_names:
        made.create_scalar_index(column, "BTREE")
    assert not trilake.verify(uri).findings
    made.optimize.compact_files()
    assert not trilake.verify(uri).findings


def test_deletion_files_of_the_source_are_verified_from_clones_and_branches(tmp_path: Path) -> None:
    made = lance.write_dataset(pa.table({"n": [1, 2, 3]}), tmp_path / "t")
    made.delete("n = 2")
    for other in (made.shallow_clone(tmp_path / "clone"), made.create_branch("side")):
        found = trilake.verify(other.uri)
        assert not found.findings
        assert {c.examined for c in found.checks if c.code == "lance.deletion-file-unreadable"} == {1}


def test_tags_of_branches_are_verified(tmp_path: Path) -> None:
    made = lance.write_dataset(pa.table({"n": [1]}), tmp_path / "t")
    side = made.create_branch("side")
    lance.write_dataset(pa.table({"n": [2]}), side, mode="append")
    made.tags.create("theirs", ("side", 2))
    assert trilake.verify(made.uri).ok
    (tmp_path / "t/_refs/tags/theirs.json").write_text('{"branch": "side", "version": 7}')
    (found,) = trilake.verify(made.uri).findings
    assert found.code == "lance.tag-wrong"
    assert "version 7 of branch 'side'" in found.message


def test_checkpoints_without_statistics_are_sound() -> None:
    """The statistics that files with deletion vectors need are lost in a checkpoint without any, as in Spark."""
    on = {"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "1"}
    properties = on | {"delta.checkpoint.writeStatsAsJson": "false"}
    trilake.write({"n": [1, 2, 3]}, "memory://verify-no-stats", properties=properties)
    table = trilake.open("memory://verify-no-stats")
    table.delete("n = 2")
    assert trilake.open(table.uri).files()["num_records"].to_pylist() == [None]
    assert trilake.verify(table.uri).ok
    table.delete("n = 3")
    assert table.refresh().to_arrow().to_pylist() == [{"n": 1}]


def test_older_version_is_verified(tmp_path: Path, sound: Callable[[str], Path]) -> None:
    folder = tmp_path / "t"
    shutil.copytree(sound("build"), folder)
    newest = trilake.open(str(folder))
    trilake.write(pa.table({"n": [7], "s": ["z"], "p": ["q"]}), str(folder), mode="append")
    (gone,) = (folder / "p=q").iterdir()
    gone.unlink()
    assert trilake.verify(str(folder), depth="files").codes == ("delta.file-missing",)
    assert trilake.verify(str(folder), version=7).ok
    assert trilake.verify(newest).ok


def test_missing_table_and_invalid_arguments() -> None:
    with pytest.raises(TableNotFoundError):
        trilake.verify("memory://verify-nothing")
    trilake.write(pa.table({"n": [1]}), "memory://verify-one", mode="overwrite")
    with pytest.raises(VersionNotFoundError):
        trilake.verify("memory://verify-one", version=9)
    for bad in ({"depth": "all"}, {"sample": 0}, {"limit": -1}, {"sample": 1, "depth": "files"}):
        with pytest.raises(InvalidArgumentError):
            trilake.verify("memory://verify-one", **bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="the table is open"):
        trilake.verify(trilake.open("memory://verify-one"), version=0)


def test_verify_uses_the_options_of_an_open_trevni_folder(tmp_path: Path) -> None:
    """They were ignored: a folder that needs them could not be verified, or the wrong account was used."""
    trilake.write(pa.table({"n": [1]}), str(tmp_path / "t"), format="trevni")
    table = trilake.open(str(tmp_path / "t"), storage_options={"region": "eu"})
    assert format_named(table.format).store_of(table).options == {"region": "eu"}
    assert trilake.verify(table).ok
