"""A process killed in the middle of any operation loses no rows and leaves no partial change."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

import trilake
from tests.fault_store import Fault, FaultStore, SimulatedCrash
from tests.reliability.kills import BrokenError, TableUnderFire, _table_exists, run_kills
from tests.reliability.victims import MIXES, begin, op_of, run, run_stream, trevni_batch
from trilake.errors import TableNotFoundError
from trilake.storage import open_store

pytestmark = pytest.mark.long


def test_acknowledged_rows_survive_killed_writers(tmp_path: Path) -> None:
    result = run_kills(tmp_path, 20, 1)
    assert result.kills == 20
    assert result.between < 20


@pytest.mark.soak
@pytest.mark.timeout(6 * 3600)
def test_acknowledged_rows_survive_many_kills(tmp_path: Path) -> None:
    kills, seed = int(os.environ.get("TRILAKE_KILLS", "500")), random.randrange(1 << 30)
    print("seed", seed)
    result = run_kills(tmp_path, kills, seed)
    print(result.to_dict())
    assert result.kills == kills


@pytest.mark.parametrize("mix", MIXES)
def test_lost_row_is_detected(mix: str, tmp_path: Path) -> None:
    """The harness itself: an acknowledged operation without effect is found."""
    from tests.reliability.kills import Result

    table = TableUnderFire(mix, tmp_path, 1, Result())
    first = next(n for n in range(1, 100) if op_of(mix, 1, n).kind == "append")
    run(mix, str(tmp_path), op_of(mix, 1, first))
    table._acknowledged(first, "None", 0.01)
    table._look(None)
    second = next(n for n in range(first + 1, 100) if op_of(mix, 1, n).kind == "append")
    table._acknowledged(second, "None", 0.01)
    with pytest.raises(BrokenError, match="are lost"):
        table._look(None)


@pytest.mark.parametrize("nth", range(1, 9))
def test_leftovers_of_a_dead_job_are_not_a_table(nth: int, tmp_path: Path) -> None:
    """The harness itself: it sees a table where readers see one, wherever the job died."""
    rows = pa.table({"x": [1, 2]})
    dies = FaultStore(open_store(tmp_path), [Fault(nth=nth, kind="crash")])
    with suppress(SimulatedCrash):
        trevni_batch(dies, rows, "query", 0)
    if _table_exists(tmp_path, "trevni"):
        assert trilake.open(str(tmp_path), format="trevni").to_arrow().num_rows == 2
    else:
        with pytest.raises(TableNotFoundError):
            trilake.open(str(tmp_path), format="trevni")
    trevni_batch(open_store(tmp_path), rows, "query", 0)
    assert _table_exists(tmp_path, "trevni")
    assert trilake.open(str(tmp_path), format="trevni").to_arrow().num_rows == 2


def test_dead_job_may_leave_files_behind(tmp_path: Path) -> None:
    """The previous test covers real cases: files without a table."""
    left = set()
    for nth in range(1, 30):
        place = tmp_path / str(nth)
        place.mkdir()
        with suppress(SimulatedCrash):
            trevni_batch(FaultStore(open_store(place), [Fault(nth=nth, kind="crash")]), pa.table({"x": [1]}), "q", 0)
        if not _table_exists(place, "trevni"):
            left |= {p.relative_to(place).parts[0][:5] for p in place.rglob("*.trv")}
    assert left == {"_stag", "part-"}


@pytest.mark.parametrize(("sink", "left"), [("delta", "part-00000-x.c000.parquet"), ("lance", "data/x.lance")])
def test_stream_resumes_after_its_first_batch_died_days_ago(sink: str, left: str, tmp_path: Path) -> None:
    """The harness itself: its clock advances by days, so the files of such a batch are rejected as foreign."""
    first = next(n for n in range(1, 100) if op_of("streams", 1, n).kind == "append")
    begin("streams", str(tmp_path / "t"))
    run("streams", str(tmp_path), op_of("streams", 1, first))
    dead = tmp_path / sink / left
    dead.parent.mkdir(parents=True)
    dead.write_bytes(b"half of it")
    os.utime(dead, (0, 0))
    run_stream(tmp_path, sink)
    assert not dead.exists()
    assert trilake.open(str(tmp_path / sink), format=sink).to_arrow().num_rows > 0
