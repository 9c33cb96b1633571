"""Pooled databases: which query reuses one, and when one is closed."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trilake
from trilake.sql.duckdb.database import DatabasePool, FileState, file_states


def _file(folder: Path, name: str, *values: int) -> frozenset[FileState]:
    path = folder / f"{name}.parquet"
    pq.write_table(pa.table({"n": values}), path)
    return frozenset(file_states([str(path)]))


def _read(kept: DatabasePool, files: frozenset[FileState], name: str = "t") -> tuple[int, list[tuple[int, ...]]]:
    """The database that answered, and the rows of all files."""
    paths = ", ".join(f"'{file.path}'" for file in files)
    with kept.of(files) as (database, connection):
        database.set_views(database.connection, {(name,): f"SELECT * FROM read_parquet([{paths}])"})
        return id(database), connection.execute(f"SELECT n FROM {name}").fetchall()


def test_next_query_of_the_same_files_reuses_the_database(tmp_path: Path) -> None:
    kept, one, two = DatabasePool(), _file(tmp_path, "one", 1), _file(tmp_path, "two", 2)
    first, other, again = _read(kept, one), _read(kept, two), _read(kept, one)
    assert (first[1], other[1]) == ([(1,)], [(2,)])
    assert again == first
    assert first[0] != other[0]


def test_replaced_file_gets_a_new_database(tmp_path: Path) -> None:
    kept = DatabasePool()
    before = _read(kept, _file(tmp_path, "a", 1))
    after = _read(kept, _file(tmp_path, "a", 5))
    assert (before[1], after[1]) == ([(1,)], [(5,)])
    assert before[0] != after[0]


def test_views_of_another_query_are_dropped(tmp_path: Path) -> None:
    kept, files = DatabasePool(), _file(tmp_path, "a", 1)
    first, _ = _read(kept, files, "private")
    with kept.of(files) as (database, connection):
        assert id(database) == first
        database.set_views(database.connection, {("other",): "SELECT 1 AS n"})
        assert connection.execute("SELECT n FROM other").fetchall() == [(1,)]
        with pytest.raises(duckdb.CatalogException, match="private"):
            connection.execute("SELECT n FROM private")


def test_temporary_objects_of_a_query_are_dropped(tmp_path: Path) -> None:
    kept, files = DatabasePool(), _file(tmp_path, "a", 1)
    with kept.of(files) as (first, connection):
        connection.register("rows", pa.table({"x": [1]}))
        connection.execute("CREATE TEMP TABLE kept AS SELECT 1")
    for name in "rows", "kept":
        with kept.of(files) as (second, connection):
            assert second.files == first.files
            with pytest.raises(duckdb.CatalogException, match=name):
                connection.execute(f"SELECT * FROM {name}")


def test_other_files_cannot_be_opened(tmp_path: Path) -> None:
    kept, one, two = DatabasePool(), _file(tmp_path, "one", 1), _file(tmp_path, "two", 2)
    _read(kept, two)
    [other] = two
    for _ in range(2):
        with pytest.raises(duckdb.PermissionException), kept.of(one) as (_, connection):
            connection.execute(f"SELECT * FROM read_parquet('{other.path}')")


def test_database_is_closed_after_an_error(tmp_path: Path) -> None:
    kept, files = DatabasePool(), _file(tmp_path, "a", 1)
    _read(kept, files)
    with pytest.raises(KeyError), kept.of(files) as (database, _):
        raise KeyError
    assert kept.idle == []
    with pytest.raises(duckdb.ConnectionException):
        database.connection.execute("SELECT 1")


def test_idle_databases_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trilake.sql.duckdb.database._MOST_IDLE", 4)
    kept = DatabasePool()
    files = [_file(tmp_path, str(n), n) for n in range(7)]
    for these in files:
        _read(kept, these)
    assert [database.files for database in kept.idle] == files[-4:]


def test_concurrent_queries_use_separate_databases(tmp_path: Path) -> None:
    kept, files = DatabasePool(), _file(tmp_path, "a", 1)
    both, seen = threading.Barrier(2), list[int]()

    def query() -> None:
        with kept.of(files) as (database, _):
            both.wait(30)
            seen.append(id(database))
            both.wait(30)

    threads = [threading.Thread(target=query) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(seen)) == 2


def test_forked_child_uses_separate_databases(tmp_path: Path) -> None:
    trilake.write({"n": [1, 2]}, tmp_path / "t")
    query = f"SELECT sum(n) AS s FROM delta.`{tmp_path}/t`"
    assert trilake.sql(query)["s"].to_pylist() == [3]
    child = os.fork()
    if not child:
        answer = trilake.sql(query)["s"].to_pylist() == [3]
        os._exit(0 if answer else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
