"""One DuckDB per process: threads, forks, order, and isolation."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from trilake.errors import InvalidArgumentError
from trilake.expr.terms import engine


def test_tables_are_named_by_keyword() -> None:
    t = pa.table({"n": [1, 2, 3]})
    found = engine.query(
        "SELECT t.n, u.s FROM t JOIN u USING (n) WHERE n > 1 ORDER BY n",
        t=t,
        u=t.append_column("s", [["a", "b", "c"]]),
    )
    assert found.to_pydict() == {"n": [2, 3], "s": ["b", "c"]}


def test_record_batches_are_accepted_as_tables() -> None:
    assert engine.query("SELECT sum(n)::BIGINT AS s FROM t", t=pa.record_batch({"n": [1, 2]}))["s"].to_pylist() == [3]


def test_rows_keep_their_order() -> None:
    n = 300_000
    t = pa.table({"n": pa.chunked_array([range(i, i + n // 10) for i in range(0, n, n // 10)])})
    found = engine.query("SELECT n, n % 7 AS r FROM t WHERE n % 3 <> 1", t=t)["n"].to_pylist()
    assert found == [i for i in range(n) if i % 3 != 1]


def test_errors_are_typed_and_keep_the_connection_usable() -> None:
    with pytest.raises(engine.QueryError, match="division"):
        engine.query("SELECT 1 // n AS x FROM t", t=pa.table({"n": [1, 0]}))
    with pytest.raises(engine.QueryError):
        engine.query("SELECT nonsense(")
    with pytest.raises(InvalidArgumentError):
        engine.query("CREATE TABLE x (a INT)")
    with pytest.raises(InvalidArgumentError, match="list"):
        engine.query("SELECT * FROM t", t=[1, 2])  # type: ignore[arg-type]
    assert engine.query("SELECT 1 AS a")["a"].to_pylist() == [1]


def test_tables_are_unregistered_after_a_query() -> None:
    engine.query("SELECT * FROM secret", secret=pa.table({"a": [1]}))
    with pytest.raises(engine.QueryError, match="secret"):
        engine.query("SELECT * FROM secret")


def test_files_and_local_variables_are_inaccessible() -> None:
    local = pa.table({"a": [1]})
    with pytest.raises(engine.QueryError):
        engine.query("SELECT * FROM local")
    assert local.num_rows == 1
    with pytest.raises(engine.QueryError, match="file system"):
        engine.query(f"SELECT * FROM read_text('{__file__}')")


def test_threads_do_not_share_a_connection() -> None:
    def run(i: int) -> int:
        t = pa.table({"n": list(range(i, i + 1000))})
        total: int = engine.query("SELECT sum(n)::BIGINT AS s FROM t", t=t)["s"][0].as_py()
        return total - sum(range(i, i + 1000))

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(run, range(64))) == {0}


def test_result_types_do_not_run_the_query() -> None:
    assert engine.result_types("SELECT n, error('no') AS e, n // 0 AS z FROM t", t=pa.table({"n": [1]}))[0] == "BIGINT"


_FORK = """
import os, sys
import pyarrow as pa
from trilake.expr.terms import engine
t = pa.table({"n": list(range(200000))})
assert engine.query("SELECT count(*) AS c FROM t GROUP BY n % 3", t=t).num_rows == 3
pid = os.fork()
if pid == 0:
    assert engine.query("SELECT count(*) AS c FROM t GROUP BY n % 3", t=t).num_rows == 3
    sys.exit(7)  # an ordinary exit, with all destructors
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
assert engine.query("SELECT 1 AS a")["a"].to_pylist() == [1]
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_forked_child_gets_its_own_database() -> None:
    done = subprocess.run([sys.executable, "-c", _FORK], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
