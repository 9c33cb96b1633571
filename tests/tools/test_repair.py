"""``repair`` mends what is provably safe, says it first, and loses no row without being told to."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import trilake
from tests.tools.delta_faults import FAULTS, Fault, build, data_file
from tests.tools.other_faults import LANCE, build_lance
from trilake.errors import InvalidArgumentError

#: Faults that are mended so that the table passes again, by code.
MENDED = {
    "delta.checkpoint-unreadable",
    "delta.checkpoint-differs",
    "delta.last-checkpoint-wrong",
    "delta.compaction-differs",
    "delta.checksum-differs",
    "delta.statistics-num-records",
    "delta.statistics-bounds",
    "delta.statistics-nulls",
    "lance.latest-differs",
    "lance.index-missing",
    "lance.index-unreadable",
    "lance.index-differs",
    "lance.index-entry-wrong",
}
MENDABLE = [f for f in (*FAULTS, *LANCE) if f.code in MENDED]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def of(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp("sound") / "t"
            {"build": build, "build_lance": build_lance}[name](made[name])
        return made[name]

    return of


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def rows(folder: Path) -> list[tuple[object, ...]]:
    table = trilake.open(str(folder)).to_arrow()
    return sorted(zip(*(table[n].to_pylist() for n in sorted(table.schema.names)), strict=True), key=repr)


@pytest.mark.parametrize("fault", MENDABLE, ids=lambda f: f"{f.code.partition('.')[0]}: {f.name}")
def test_a_fault_is_mended(fault: Fault, sound: Callable[[str], Path], tmp_path: Path) -> None:
    folder = tmp_path / "t"
    shutil.copytree(sound(fault.base.__name__), folder)
    before = rows(folder)
    fault.inject(folder)
    damaged = contents(folder)
    depth = "rows"

    plan = trilake.repair(str(folder), depth=depth)
    assert any(fault.code in s.findings for s in plan.steps), str(plan)
    assert plan.dry_run
    assert not any(s.done for s in plan.steps)
    assert contents(folder) == damaged

    done = trilake.repair(str(folder), depth=depth, dry_run=False)
    assert all(s.done and s.error is None for s in done.steps), str(done)
    assert done.left == (), str(done)
    assert trilake.verify(str(folder)).ok
    assert rows(folder) == before


def test_references_to_files_that_are_gone_go_only_when_told(sound: Callable[[str], Path], tmp_path: Path) -> None:
    folder = tmp_path / "t"
    shutil.copytree(sound("build"), folder)
    lost = data_file(folder)
    lost.unlink()

    plan = trilake.repair(str(folder))
    (step,) = plan.steps
    assert (step.code, step.needs, step.rows_lost) == ("delta.drop-missing-files", "accept_loss", plan.rows_lost)
    assert step.files == (f"p=x/{lost.name}",)
    assert step.rows_lost in (1, 2)
    assert f"{step.rows_lost} rows are lost" in step.message

    kept = trilake.repair(str(folder), dry_run=False)
    assert [s.done for s in kept.steps] == [False]
    assert trilake.open(str(folder)).version == 7

    done = trilake.repair(str(folder), dry_run=False, accept_loss=True)
    assert [s.version for s in done.steps] == [8]
    assert trilake.open(str(folder)).count() == 14 - step.rows_lost
    assert trilake.verify(str(folder)).ok
    assert trilake.open(str(folder)).history(1)["operation"].to_pylist() == ["FSCK"]


def test_a_checkpoint_that_no_commits_vouch_for_stays(sound: Callable[[str], Path], tmp_path: Path) -> None:
    folder = tmp_path / "t"
    shutil.copytree(sound("build"), folder)
    for version in range(4):
        (folder / "_delta_log" / f"{version:020d}.json").unlink()
    (file,) = (folder / "_delta_log").glob("*.checkpoint.parquet")
    file.write_bytes(file.read_bytes()[:200])
    before = contents(folder)
    done = trilake.repair(str(folder), dry_run=False)
    assert contents(folder) == before
    assert "delta.checkpoint-unreadable" in {f.code for f in done.left}


def test_nothing_is_removed_behind_a_link(sound: Callable[[str], Path], tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "t", tmp_path / "elsewhere"
    shutil.copytree(sound("build"), folder)
    next(f for f in FAULTS if f.code == "delta.compaction-differs").inject(folder)
    shutil.move(folder / "_delta_log", elsewhere)
    (folder / "_delta_log").symlink_to(elsewhere, target_is_directory=True)
    before = contents(elsewhere)
    done = trilake.repair(str(folder), dry_run=False)
    assert [s.error is not None for s in done.steps] == [True]
    assert contents(elsewhere) == before


def test_a_step_that_there_is_not_is_refused(sound: Callable[[str], Path]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"delta\.drop-checksum"):
        trilake.repair(str(sound("build")), only=["drop-checksum"])
    assert trilake.repair(str(sound("build")), dry_run=False).steps == ()
