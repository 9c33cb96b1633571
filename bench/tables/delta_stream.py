"""Structured Streaming from and to Delta tables, compared with Spark's file source and sink on the same rows."""

from __future__ import annotations

import atexit
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

import trilake
from bench.harness import Benchmark, Contender
from bench.lineitem import lineitem_files
from bench.tables.delta import spark
from trilake.storage import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

Files = Callable[[], Sequence[Path]]

_ROWS = 2_000_000
_FILES = 8
_TRIGGERS = 25
_SMALL_BATCHES = 20
#: Batches of a long-running query, and pending files of a query.
_MANY_BATCHES, _BACKLOG = 1_000, 10_000


def _files() -> list[Path]:
    return sorted(lineitem_files(_ROWS, files=_FILES).glob("*.parquet"))


def _schema() -> pa.Schema:
    return pq.read_schema(_files()[0])


class _Running:
    """A query that waits for rows, after the first batch, which starts Spark's workers."""

    def __init__(self, files: Files | None = None, *, limit: int = 1000) -> None:
        self.query: StreamingQuery | None = None
        self.folder = Path()
        self.files, self.limit = files or _files, limit

    def stop(self) -> None:
        if self.query is not None:
            self.query.stop()
            shutil.rmtree(self.folder)
        self.query = None

    def prepare(self) -> None:
        self.stop()
        self.folder = Path(mkdtemp(prefix="bench-stream-"))
        (self.folder / "in").mkdir()
        self.query = self.start()
        self.query.processAllAvailable()

    def start(self) -> StreamingQuery:
        """Start the query on one row."""
        raise AssertionError("each kind has its own")

    def run(self) -> int:
        """Add the rows, and wait until they are read; returns the rows read since the query started."""
        raise AssertionError("each kind has its own")

    def finish(self) -> int:
        """Wait until everything is read; returns the rows read since the query started."""
        assert self.query is not None
        self.query.processAllAvailable()
        return sum(p.numInputRows for p in self.query.recentProgress)


class _Spark(_Running):
    """Spark's file source and sink."""

    def start(self) -> StreamingQuery:
        empty = _files()[0]
        pq.write_table(pq.read_table(empty).slice(0, 1), self.folder / "in" / "first.parquet")
        schema = spark().read.parquet(str(empty)).schema
        stream = spark().readStream.schema(schema).option("maxFilesPerTrigger", self.limit)
        df = stream.parquet(str(self.folder / "in"))
        return _sink(df, "parquet", self.folder).start(str(self.folder / "out"))

    def run(self) -> int:
        for file in self.files():
            os.link(file, self.folder / "in" / file.name)
        return self.finish()


class _Delta(_Running):
    """Delta tables on both ends."""

    def __init__(self, files: Files | None = None, *, limit: int = 1000, in_one_call: bool = False) -> None:
        super().__init__(files, limit=limit)
        self.in_one_call = in_one_call

    def start(self) -> StreamingQuery:
        first = pq.read_table(_files()[0]).slice(0, 1)
        trilake.write(first, self.folder / "in", mode="append")
        stream = spark().readStream.format("delta").option("maxFilesPerTrigger", self.limit)
        df = stream.load(str(self.folder / "in"))
        if self.in_one_call:
            return trilake.write_stream(df, self.folder / "out", checkpoint=self.folder / "checkpoint")
        return _sink(df, "delta", self.folder).start(str(self.folder / "out"))

    def run(self) -> int:
        tx = trilake.Transaction(open_store(self.folder / "in"))
        for file in self.files():
            os.link(file, self.folder / "in" / file.name)
            add = {"path": file.name, "partitionValues": {}, "size": file.stat().st_size}
            tx.add({**add, "modificationTime": 0, "dataChange": True})
        tx.commit("WRITE")
        return self.finish()


def _sink(df: DataFrame, format: str, folder: Path) -> DataStreamWriter:
    return df.writeStream.format(format).option("checkpointLocation", str(folder / "checkpoint"))


def _idle(running: _Running) -> Callable[[], None]:
    """Triggers without new data."""

    def run() -> None:
        assert running.query is not None
        for _ in range(_TRIGGERS):
            running.query.processAllAvailable()

    return run


def _once(running: _Running) -> Callable[[], None]:
    """The query starts before the first run, and waits between runs."""

    def prepare() -> None:
        if running.query is None:
            running.prepare()

    return prepare


@cache
def _small_files(count: int = _SMALL_BATCHES, rows: int = 100) -> list[Path]:
    """Files of ``rows`` rows."""
    folder = Path(mkdtemp(prefix="bench-small-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    source = pq.read_table(_files()[0]).slice(0, 100 * rows)
    files = [folder / f"small-{i:05}.parquet" for i in range(count)]
    for i, file in enumerate(files):
        pq.write_table(source.slice(i % 100 * rows, rows), file)
    return files


class _Grown(_Delta):
    """A query with many batches before timing; ``run`` adds the next batches of as many files."""

    def __init__(self, before: int) -> None:
        super().__init__(limit=1)
        self.before = before

    def start(self) -> StreamingQuery:
        self.query = super().start()
        for _ in range(self.before // _SMALL_BATCHES):
            self.run()
        return self.query

    def run(self) -> int:
        """Run the next batches of one file each."""
        files = [self.folder / f"{uuid4()}.parquet" for _ in _small_files()]
        for name, file in zip(files, _small_files(), strict=True):
            os.link(file, name)
        self.files = lambda: files
        super().run()
        return _SMALL_BATCHES


def _setup() -> None:
    trilake.register(spark())
    _files()


def benchmarks() -> Iterator[Benchmark]:
    own, source, call = _Spark(), _Delta(), _Delta(in_one_call=True)
    contenders: dict[str, _Running] = {"spark parquet": own, 'format("delta")': source, "trilake.write_stream": call}

    def alone(name: str) -> Callable[[], None]:
        """Waiting queries poll for new rows: only one may run."""

        def prepare() -> None:
            for other in contenders.values():
                other.stop()
            contenders[name].prepare()

        return prepare

    yield Benchmark(
        "throughput",
        f"a stream of {_ROWS / 1e6:g}M rows x 16 columns in {_FILES} files, from table to table",
        [
            Contender("spark parquet", own.run, alone("spark parquet")),
            Contender('format("delta")', source.run, alone('format("delta")')),
            Contender("trilake.write_stream", call.run, alone("trilake.write_stream")),
        ],
        baseline="spark parquet",
        targets={'format("delta")': 1.2, "trilake.write_stream": 1.2},
        setup=_setup,
        rounds=5,
    )
    idle_own, idle_delta = _Spark(), _Delta()

    def calm(running: _Running) -> Callable[[], None]:
        def prepare() -> None:
            for other in (idle_own, idle_delta, *contenders.values()):
                if other is not running:
                    other.stop()
            _once(running)()

        return prepare

    yield Benchmark(
        "empty-trigger",
        f"{_TRIGGERS} triggers that find nothing new",
        [
            Contender("spark parquet", _idle(idle_own), calm(idle_own)),
            Contender('format("delta")', _idle(idle_delta), calm(idle_delta)),
        ],
        baseline="spark parquet",
        targets={'format("delta")': 1.5},
        setup=_setup,
        rounds=5,
    )
    few: dict[str, _Running] = {}
    others = [*contenders.values(), idle_own, idle_delta]

    def one_by_one(name: str) -> Callable[[], None]:
        def prepare() -> None:
            for other in (*others, *few.values()):
                other.stop()
            few[name].prepare()

        return prepare

    def compared(name: str, title: str, sides: Mapping[str, str], rounds: int = 2, warmups: int = 0) -> Benchmark:
        """Queries of ``few``, by contender; the first is the baseline."""
        baseline, other = sides
        contenders = [Contender(contender, few[key].run, one_by_one(key)) for contender, key in sides.items()]
        return Benchmark(name, title, contenders, baseline, {other: 1.1}, setup=_setup, rounds=rounds, warmups=warmups)

    for rows in (100, 10_000, 100_000):
        several = partial(_small_files, _SMALL_BATCHES if rows < 100_000 else 5, rows)
        few |= {f"spark, {rows}": _Spark(several, limit=1), f"delta, {rows}": _Delta(several, limit=1)}
        sides = {"spark parquet": f"spark, {rows}", 'format("delta")': f"delta, {rows}"}
        yield compared(f"batches-{rows}", f"batches of a file of {rows:,} rows each", sides, rounds=5, warmups=1)
    waiting = partial(_small_files, _BACKLOG, 10)
    few |= {"spark, backlog": _Spark(waiting, limit=2_500), "delta, backlog": _Delta(waiting, limit=2_500)}
    yield compared(
        "backlog",
        f"{_BACKLOG:,} files of ten rows that wait, in batches of 2,500",
        {"spark parquet": "spark, backlog", 'format("delta")': "delta, backlog"},
    )
    few |= {"new": _Grown(_SMALL_BATCHES), "old": _Grown(_MANY_BATCHES)}
    yield compared(
        "growth",
        f"{_SMALL_BATCHES} batches of a query that has had {_MANY_BATCHES}, and of one that has had {_SMALL_BATCHES}",
        {"new query": "new", "after many batches": "old"},
    )
