"""Random sequences of commits to two tables: the expected rows of each frame after each commit.

Run as a script, it uses a separate session: ``python -m tests.spark.live_frames.sequences connect 10 3``.
It prints a JSON line with counts.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trilake
from trilake import DeltaTable

Row = tuple[Any, ...]
#: Frames: how to derive one from the frames of both tables, and its rows from the rows of both tables.
FRAMES: dict[str, tuple[Callable[[DataFrame, DataFrame], DataFrame], Callable[[list[Row], list[Row]], list[Row]]]] = {
    "plain": (lambda a, _: a.select("id", "s", "n"), lambda a, _: a),
    "filtered": (
        lambda a, _: a.where(a["id"] % 2 == 0).select("id"),
        lambda a, _: [(r[0],) for r in a if not r[0] % 2],
    ),
    "joined": (
        lambda a, b: a.join(b.withColumnRenamed("n", "m"), "id").select("id", "n", "m"),
        lambda a, b: [(x[0], x[2], y[2]) for x in a for y in b if x[0] == y[0]],
    ),
    "self-joined": (
        lambda a, _: a.alias("l").join(a.alias("r"), F.expr("l.n = r.n AND l.id < r.id")).select("l.id", "r.id"),
        lambda a, _: [(x[0], y[0]) for x in a for y in a if x[2] == y[2] and x[0] < y[0]],
    ),
    "unioned": (
        lambda a, b: a.select("id").unionAll(b.select("id")).unionAll(a.select("n")),
        lambda a, b: [(r[0],) for r in (*a, *b)] + [(r[2],) for r in a],
    ),
    "grouped": (
        lambda a, _: a.groupBy("s").agg(F.sum("n").alias("n")),
        lambda a, _: list(_sums(a).items()),
    ),
    "viewed": (
        lambda a, b: _viewed(a, b, "SELECT v.id, w.n FROM seq_a v JOIN seq_b w ON v.id = w.id WHERE v.n > 0"),
        lambda a, b: [(x[0], y[2]) for x in a for y in b if x[0] == y[0] and x[2] > 0],
    ),
    "in a subquery": (
        lambda a, b: _viewed(a, b, "SELECT id FROM seq_a WHERE id NOT IN (SELECT id FROM seq_b)"),
        lambda a, b: [(x[0],) for x in a if x[0] not in {y[0] for y in b}],
    ),
    "cached": (lambda a, _: a.where("n < 5").select("id", "n"), lambda a, _: [(r[0], r[2]) for r in a if r[2] < 5]),
    "of a cached one": (
        lambda a, b: CACHED[-1].join(b.select("id"), "id"),
        lambda a, b: [(r[0], r[2]) for r in a for y in b if r[2] < 5 and r[0] == y[0]],
    ),
}
#: The newest frame under "cached".
CACHED: list[DataFrame] = []


def _sums(rows: list[Row]) -> Counter[str]:
    out: Counter[str] = Counter()
    for _, s, n in rows:
        out[s] += n
    return out


def _viewed(a: DataFrame, b: DataFrame, query: str) -> DataFrame:
    a.createOrReplaceTempView("seq_a")
    b.createOrReplaceTempView("seq_b")
    return a.sparkSession.sql(query)


def rows_of(path: str) -> list[Row]:
    """The rows of a table, read without Spark."""
    table = trilake.open(path).to_arrow()
    return list(zip(*(table[c].to_pylist() for c in ("id", "s", "n")), strict=True))


@dataclass
class Tried:
    """Counts, and the slowest use of a frame in seconds and in CPU seconds."""

    sequences: int = 0
    steps: int = 0
    uses: int = 0
    longest_s: float = 0.0
    most_processor_s: float = 0.0
    commits: Counter[str] = field(default_factory=Counter)


@dataclass
class Sequence:
    """Two tables, frames over them, and random commits."""

    spark: SparkSession
    folder: Path
    random: random.Random
    next_id: int = 0
    cached: list[Row] | None = None
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.paths = [str(self.folder / name) for name in "ab"]
        for path in self.paths:
            trilake.write(self.rows(4), path)
        self.tables = [self.spark.read.format("delta").load(path) for path in self.paths]
        self.frames: dict[str, DataFrame] = {}
        for name, (make, _) in FRAMES.items():
            self.frames[name] = make(*self.tables)
            if name == "cached":
                CACHED.append(self.frames[name])

    def rows(self, count: int) -> pa.Table:
        """Some new rows; their ids are unique in a table, and sometimes equal in both."""
        ids = list(range(self.next_id, self.next_id + count))
        self.next_id += count - 1 if self.next_id % 3 else count
        return pa.table({"id": ids, "s": [self.random.choice("xyz") for _ in ids], "n": [i % 7 for i in ids]})

    def commit(self) -> None:
        """Change one of the tables, or the cache, in a random way."""
        name = self.random.choice(list(COMMITS))
        which = self.random.randrange(2)
        self.log.append(f"{name} {'ab'[which]}")
        COMMITS[name](self, self.paths[which], self.tables[which])

    def check(self, names: list[str], tried: Tried) -> None:
        """Compare these frames with the tables."""
        a, b = map(rows_of, self.paths)
        for name in names:
            begin, processor = time.perf_counter(), _processor_s()
            found = Counter(map(tuple, self.frames[name].collect()))
            tried.uses += 1
            tried.longest_s = max(tried.longest_s, time.perf_counter() - begin)
            tried.most_processor_s = max(tried.most_processor_s, _processor_s() - processor)
            right = [Counter(FRAMES[name][1](a, b))]
            if self.cached is not None and name == "cached":
                right = [Counter(FRAMES[name][1](self.cached, b))]
            elif self.cached is not None and name == "of a cached one":
                right.append(Counter(FRAMES[name][1](self.cached, b)))
            assert found in right, f"{name} after {self.log}: {found - right[0]} too many, {right[0] - found} missing"


def _processor_s() -> float:
    """CPU seconds of this process and its children."""
    this = psutil.Process()
    times = []
    for process in (this, *this.children(recursive=True)):
        with suppress(psutil.Error):
            times.append(process.cpu_times())
    return sum(t.user + t.system for t in times)


def _update(seq: Sequence, path: str, frame: DataFrame) -> None:
    trilake.open(path).update({"n": "n + 1"}, f"id % 3 = {seq.random.randrange(3)}")


def _add_and_delete(seq: Sequence, path: str, frame: DataFrame) -> None:
    trilake.write(seq.rows(1), path, mode="append")
    trilake.open(path).delete(f"id = {max(r[0] for r in rows_of(path))}")


def _merge(seq: Sequence, path: str, frame: DataFrame) -> None:
    merge = DeltaTable.forPath(seq.spark, path).alias("t").merge(frame.where("n > 1").alias("s"), "t.id = s.id")
    merge.whenMatchedUpdate("s.n = 2", {"n": "s.n + 2"}).whenMatchedDelete("s.n = 3").execute()


def _merge_other(seq: Sequence, path: str, frame: DataFrame) -> None:
    source = seq.frames["joined"].select((F.col("id") + 1000).alias("id"), F.lit("m").alias("s"), "n")
    merge = DeltaTable.forPath(seq.spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
    merge.whenNotMatchedInsert(values={c: f"s.{c}" for c in ("id", "s", "n")}).execute()


def _add_column(seq: Sequence, path: str, frame: DataFrame) -> None:
    rows = seq.rows(1)
    more = rows.append_column(f"more{len(seq.log)}", pa.array([1]))
    trilake.write(more, path, mode="append", schema_mode="merge")


def _other_columns(seq: Sequence, path: str, frame: DataFrame) -> None:
    """Frames raise while the table lacks their columns."""
    version = trilake.open(path).version
    trilake.write(pa.table({"id": ["1"], "s": ["x"]}), path, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(PySparkException, match="read the table again"):
        seq.frames["unioned"].collect()
    trilake.open(path).restore(version)


def _recreate(seq: Sequence, path: str, frame: DataFrame) -> None:
    rows = seq.rows(3)
    shutil.rmtree(path)
    trilake.write(rows, path)


def _restore(seq: Sequence, path: str, frame: DataFrame) -> None:
    """Restore one of the last versions that have the columns of the frames."""
    newest = trilake.open(path).version
    versions = [v for v in range(max(newest - 2, 0), newest) if "n" in trilake.open(path, version=v).schema.names]
    if versions:
        trilake.open(path).restore(seq.random.choice(versions))


def _cache(seq: Sequence, path: str, frame: DataFrame) -> None:
    if seq.cached is None:
        seq.frames["cached"].cache()
        seq.frames["cached"].count()
        seq.cached = rows_of(seq.paths[0])


def _unpersist(seq: Sequence, path: str, frame: DataFrame) -> None:
    seq.frames["cached"].unpersist()
    seq.cached = None


def _clear_cache(seq: Sequence, path: str, frame: DataFrame) -> None:
    seq.spark.catalog.clearCache()
    seq.cached = None


COMMITS: dict[str, Callable[[Sequence, str, DataFrame], object]] = {
    "append": lambda seq, path, _: trilake.write(seq.rows(2), path, mode="append"),
    "append by Spark": lambda seq, path, _: (
        seq.spark.createDataFrame(seq.rows(2).to_pylist(), "id long, s string, n long")
        .write.format("delta")
        .mode("append")
        .save(path)
    ),
    "append rows of its own": lambda seq, path, frame: (
        frame.where("n = 6").withColumn("id", F.col("id") + 5000).write.format("delta").mode("append").save(path)
    ),
    "delete": lambda seq, path, _: trilake.open(path).delete(f"id % 4 = {seq.random.randrange(4)}"),
    "delete by Spark": lambda seq, path, _: DeltaTable.forPath(seq.spark, path).delete(F.col("n") == 1),
    "update": _update,
    "merge rows of its own": _merge,
    "merge a frame of both": _merge_other,
    "overwrite": lambda seq, path, _: trilake.write(seq.rows(4), path, mode="overwrite"),
    "a row that came and went": _add_and_delete,
    "properties": lambda seq, path, _: trilake.alter(path).set_properties({"seq.step": str(len(seq.log))}),
    "deletion vectors": lambda seq, path, _: trilake.alter(path).set_properties(
        {"delta.enableDeletionVectors": seq.random.choice(["true", "false"])}
    ),
    "row tracking": lambda seq, path, _: trilake.alter(path).set_properties({"delta.enableRowTracking": "true"}),
    "optimize": lambda seq, path, _: trilake.open(path).optimize(),
    "truncate": lambda seq, path, _: seq.spark.sql(f"DELETE FROM delta.`{path}`"),
    "add a column": _add_column,
    "other columns": _other_columns,
    "made again": _recreate,
    "restore": _restore,
    "cache": _cache,
    "unpersist": _unpersist,
    "clear the cache": _clear_cache,
}


def run(spark: SparkSession, seeds: range, steps: int, *, frames: int = len(FRAMES)) -> Tried:
    """Run one sequence per seed, with ``commits`` commits, and ``uses`` uses of frames after each."""
    tried = Tried()
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            rng = random.Random(seed)
            seq = Sequence(spark, Path(folder), rng)
            try:
                for _ in range(steps):
                    seq.commit()
                    seq.check(rng.sample(list(FRAMES), frames), tried)
            except Exception as e:
                e.add_note(f"seed {seed}: {seq.log}")
                raise
            _clear_cache(seq, "", seq.tables[0])
            CACHED.clear()
            tried.sequences += 1
            tried.steps += steps
            tried.commits.update(step.rsplit(" ", 1)[0] for step in seq.log)
    return tried


def main(arguments: list[str]) -> None:
    """Run sequences in a classic or Connect session."""
    kind, count, steps, *more = arguments
    if kind == "connect":
        from tests.connect_session import connect_session

        spark = connect_session()
    else:
        from trilake.spark.session.local import local_session

        spark = local_session("sequences")
    trilake.install(spark)
    run(spark, range(1), 1)  # the first uses of a session load Spark classes, for up to 6 s
    frames, first = (int(n) for n in (more + [str(len(FRAMES)), "0"][len(more) :]))
    tried = run(spark, range(first, first + int(count)), int(steps), frames=frames)
    print(json.dumps({"spark": spark.version, "kind": kind, **vars(tried)}))


if __name__ == "__main__":
    main(sys.argv[1:])
