"""``repair`` fixes only what is provably safe, plans first, and loses rows only if accepted."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import trilake
from tests.tools.delta_faults import FAULTS, Fault, build, data_file
from tests.tools.other_faults import LANCE, build_lance
from trilake.delta import repair
from trilake.errors import CorruptLogError, InvalidArgumentError, LogGapError
from trilake.storage.local import LocalStore

#: Faults that repair fixes so that the table passes again, by code.
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
def test_fault_is_repaired(fault: Fault, sound: Callable[[str], Path], tmp_path: Path) -> None:
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


def test_missing_files_are_dropped_only_if_accepted(sound: Callable[[str], Path], tmp_path: Path) -> None:
    folder = tmp_path / "t"
    shutil.copytree(sound("build"), folder)
    lost = data_file(folder)
    lost.unlink()

    plan = trilake.repair(str(folder))
    (step,) = plan.steps
    assert (step.code, step.needs, step.rows_lost) == ("delta.drop-missing-files", "accept_loss", plan.rows_lost)
    assert step.files == (f"p=x/{lost.name}",)
    assert step.rows_lost in (1, 2)
    assert ("1 row is lost" if step.rows_lost == 1 else f"{step.rows_lost} rows are lost") in step.message
    assert not plan.ok

    kept = trilake.repair(str(folder), dry_run=False)
    assert [s.done for s in kept.steps] == [False]
    assert [f.code for f in kept.left] == ["delta.file-missing"]
    assert (kept.ok, kept.rows_lost) == (False, 0)
    assert "0 of 1 step done, 1 finding remaining" in str(kept)
    assert trilake.open(str(folder)).version == 7

    done = trilake.repair(str(folder), dry_run=False, accept_loss=True)
    assert [s.version for s in done.steps] == [8]
    assert trilake.open(str(folder)).count() == 14 - step.rows_lost
    assert trilake.verify(str(folder)).ok
    assert trilake.open(str(folder)).history(1)["operation"].to_pylist() == ["FSCK"]


def test_unverifiable_checkpoint_is_kept(sound: Callable[[str], Path], tmp_path: Path) -> None:
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


def test_repair_does_not_follow_links(sound: Callable[[str], Path], tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "t", tmp_path / "elsewhere"
    shutil.copytree(sound("build"), folder)
    next(f for f in FAULTS if f.code == "delta.compaction-differs").inject(folder)
    shutil.move(folder / "_delta_log", elsewhere)
    (folder / "_delta_log").symlink_to(elsewhere, target_is_directory=True)
    before = contents(elsewhere)
    done = trilake.repair(str(folder), dry_run=False)
    assert [s.error is not None for s in done.steps] == [True]
    assert contents(elsewhere) == before


def test_unknown_step_is_rejected(sound: Callable[[str], Path]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"delta\.drop-checksum"):
        trilake.repair(str(sound("build")), only=["drop-checksum"])
    assert trilake.repair(str(sound("build")), dry_run=False).steps == ()


def _tear(folder: Path, version: int, keep: Callable[[bytes], bytes]) -> Path:
    file = folder / "_delta_log" / f"{version:020d}.json"
    file.write_bytes(keep(file.read_bytes()))
    return file


TEARS: dict[str, Callable[[bytes], bytes]] = {
    "cut in a line": lambda data: data[: len(data) - 40],
    "cut in the first line": lambda data: data[:20],
    "empty": lambda data: b"",
    "zeros": lambda data: bytes(len(data)),
    "other bytes": lambda data: b"\xff\xfe" + data[2:],
    "a line of another shape": lambda data: data + b"[1]\n",
}


@pytest.mark.parametrize("tear", TEARS.values(), ids=TEARS)
@pytest.mark.parametrize("torn", [1, 2])
def test_torn_newest_commits_are_dropped_if_accepted(tmp_path: Path, tear: Callable[[bytes], bytes], torn: int) -> None:
    folder = tmp_path / "t"
    for i in range(5):
        trilake.write([{"n": i}], folder, mode="append")
    bytes_torn = [_tear(folder, v, tear).read_bytes() for v in range(5 - torn, 5)]
    with pytest.raises(CorruptLogError, match=r"trilake\.repair"):
        trilake.open(folder)

    plan = trilake.repair(folder)
    (step,) = plan.steps
    assert (step.code, step.needs, step.rows_lost) == ("delta.drop-torn-commits", "accept_loss", None)
    assert f"version {4 - torn} becomes the newest" in step.message
    assert plan.left == ()
    assert not trilake.repair(folder, dry_run=False).ok

    done = trilake.repair(folder, dry_run=False, accept_loss=True)
    assert done.ok, str(done)
    assert trilake.open(folder).version == 4 - torn
    assert trilake.open(folder).count() == 5 - torn
    assert trilake.verify(folder).ok
    kept = sorted((folder / "_delta_log" / "_torn").iterdir())
    assert [file.read_bytes() for file in kept] == bytes_torn
    assert trilake.write([{"n": 9}], folder, mode="append").version == 5 - torn


def test_torn_commit_contents_are_reported(shared: Path, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    shutil.copytree(shared / "corpus" / "faults" / "torn_newest_commit", folder)
    (step,) = trilake.repair(folder).steps
    assert re.search(
        r"version 3: WRITE at 20\S+ \S+ by delta-rs:py-\S+, 1 of 2 lines readable, with no actions", step.message
    )
    trilake.repair(folder, dry_run=False, accept_loss=True)
    assert trilake.open(folder).version == 2


@pytest.mark.parametrize("case", ["older", "first", "checkpoint"])
def test_damaged_older_commit_is_kept(tmp_path: Path, case: str) -> None:
    """Newer versions, or a checkpoint of the same version, may contain rows of other writers."""
    folder = tmp_path / "t"
    for i in range(1 if case == "first" else 11):
        trilake.write([{"n": i}], folder, mode="append")
    file = _tear(folder, {"older": 3, "first": 0, "checkpoint": 10}[case], lambda data: data[:30])
    if case == "older":
        for checkpoint in (folder / "_delta_log").glob("*checkpoint*"):
            checkpoint.unlink()
    done = trilake.repair(folder, dry_run=False, accept_loss=True)
    assert not any(step.done for step in done.steps)
    assert not done.ok
    assert len(file.read_bytes()) == 30


def test_torn_commit_that_changes_concurrently_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow writer looks the same."""
    folder = tmp_path / "t"
    for i in range(3):
        trilake.write([{"n": i}], folder, mode="append")
    file = folder / "_delta_log" / f"{2:020d}.json"
    whole = file.read_bytes()
    file.write_bytes(whole[:50])
    planned = repair.drop_torn

    def late(*args: Any) -> Any:
        steps = planned(*args)
        file.write_bytes(whole[:90])
        return steps

    monkeypatch.setitem(repair.STEPS, "delta.drop-torn-commits", late)
    done = trilake.repair(folder, dry_run=False, accept_loss=True)
    assert "has changed" in (done.steps[0].error or "")
    assert len(file.read_bytes()) == 90


DAMAGES: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "cut": ("files", lambda data: data[: len(data) // 2]),
    "empty": ("files", lambda data: b""),
    "zeros": ("files", lambda data: bytes(len(data))),
    "no footer": ("files", lambda data: data[:-8] + b"12345678"),
    "a broken footer": ("files", lambda data: data[:-60] + bytes(52) + data[-8:]),
    "a broken page": ("rows", lambda data: data[:4] + bytes(b ^ 0x55 for b in data[4:40]) + data[40:]),
}


@pytest.mark.parametrize(("depth", "damage"), DAMAGES.values(), ids=DAMAGES)
def test_damaged_file_is_repaired_like_a_missing_one(
    tmp_path: Path, depth: str, damage: Callable[[bytes], bytes]
) -> None:
    folder = tmp_path / "t"
    trilake.write([{"n": i} for i in range(100)], folder)
    (bad,) = folder.glob("*.parquet")
    trilake.write([{"n": 7}], folder, mode="append")
    bad.write_bytes(damage(bad.read_bytes()))
    damaged = bad.read_bytes()

    plan = trilake.repair(folder, depth=depth)
    (step,) = plan.steps
    assert (step.code, step.needs, step.rows_lost) == ("delta.drop-damaged-files", "accept_loss", 100)
    assert (step.files, plan.left) == ((bad.name,), ())
    kept = trilake.repair(folder, depth=depth, dry_run=False)
    assert not kept.ok
    assert kept.left
    done = trilake.repair(folder, depth=depth, dry_run=False, accept_loss=True)
    assert done.ok, str(done)
    assert (done.rows_lost, done.steps[0].version) == (100, 2)
    assert trilake.open(folder).to_arrow()["n"].to_pylist() == [7]
    assert bad.read_bytes() == damaged


def test_unreadable_file_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "t"
    trilake.write([{"n": 1}], folder)

    def fail(*args: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(LocalStore, "open_input", fail)
    done = trilake.repair(folder, dry_run=False, accept_loss=True)
    assert done.steps == ()
    assert [f.code for f in done.left] == ["delta.file-unreadable"]


def test_gap_before_a_checkpoint_reports_readable_versions(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    for i in range(13):
        trilake.write([{"n": i}], folder, mode="append")
    (folder / "_delta_log" / f"{5:020d}.json").unlink()
    (finding,) = trilake.verify(folder).findings
    assert "versions 10 to 12 can be read" in finding.message
    assert "versions 5 to 9 cannot" in finding.message
    assert trilake.open(folder).count() == 13
    with pytest.raises(LogGapError, match="or version 10 or later"):
        trilake.open(folder, version=7)


def test_checks_skipped_for_one_reason_are_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    for i in range(4):
        trilake.write([{"n": i}], folder, mode="append")
    _tear(folder, 2, lambda data: data[:30])
    found = trilake.verify(folder)
    lines = str(found).splitlines()
    assert len(found.skipped) > 20
    assert sum("skipped:" in line for line in lines) == 1
    assert len(set(lines)) == len(lines) <= 4
