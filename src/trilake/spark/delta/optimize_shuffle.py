"""Sort a large set of rows along a space-filling curve with Spark's shuffle.

One task sorts each bin of files, unless the bin is too large.  In that case many tasks read it, a sample gives the
boundaries of the curve's ranges, one per new file, and each row goes to the task of its range, which sorts and writes
it::

    files --> tasks: read, index --> blobs of rows by range --> shuffle --> tasks: sort, write --> files

The shuffle moves Arrow streams in a binary column, which Spark does not decode, so no value changes its type.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from trilake.delta.commands.optimize.curve_order import SAMPLE_ROWS, Ranges, divided, in_curve_order, sample_indexes
from trilake.delta.commands.optimize.rewrite import Bin, Rewrite, Rewritten
from trilake.delta.commands.rows.row_changes import ChangedFile
from trilake.delta.files.write_files import TaskWriter
from trilake.spark.session.compat import arrow_frame
from trilake.spark.session.runner import SparkRunner, map_in_arrow

#: Bytes of files that one task reads.
_READ_BYTES = 256 << 20
#: Up to this number, each bin is a task; beyond it, small bins share tasks.
_FEW_TASKS = 256


@dataclass(frozen=True)
class OptimizeRunner(SparkRunner):
    """Runs the tasks of an optimization: bins as tasks of one job; large bins that are sorted use a shuffle."""

    width: int = 1
    #: The minimum bytes of a large bin.
    large: int = 4 << 30

    def __call__(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterable[Any]:
        if not isinstance(function, Rewrite):
            yield from super().__call__(function, tasks)
            return
        ordered = function.plan.curve is not None
        large = [ordered and t.new_files > 1 and _size(t) >= self.large for t in tasks]
        small = [t for t, is_large in zip(tasks, large, strict=True) if not is_large]
        if small:
            partitions = max(_FEW_TASKS, sum(map(_size, small)) // _READ_BYTES)
            yield from SparkRunner(self.spark, width=-(-len(small) // partitions))(function, small)
        for task, is_large in zip(tasks, large, strict=True):
            if is_large:
                yield self._shuffled(function, task)

    def _shuffled(self, job: Rewrite, work: Bin) -> Rewritten:
        curve = job.plan.curve
        assert curve is not None
        pieces = [replace(work, number=n, files=files) for n, files in enumerate(_pieces(work.files))]
        sample = pa.concat_tables(pickle.loads(t) for t in super().__call__(_Sample(job), pieces))
        ranges = curve.ranges(sample)
        sorted_sample = np.sort(curve.index(sample, ranges))
        ends = np.unique(
            sorted_sample[np.linspace(0, len(sorted_sample) - 1, work.new_files + 1).astype(np.int64)[1:-1]]
        )
        rows = pa.table({"task": pa.array([pickle.dumps(p) for p in pieces], pa.binary())})
        frame = arrow_frame(self.spark, rows).repartition(len(pieces))
        blobs = map_in_arrow(frame, _Divide(job, ranges, ends), "stretch int, rows binary")
        stretches = blobs.repartitionById(len(ends) + 1, "stretch")  # one partition each
        written = map_in_arrow(stretches, _Write(job, work), "outcome binary").collect()
        adds = [add for row in written for add in pickle.loads(row.outcome)]
        return Rewritten(work.number, tuple(adds))


def _size(work: Bin) -> int:
    return sum(f.file.size for f in work.files)


def _pieces(files: Sequence[ChangedFile]) -> list[tuple[ChangedFile, ...]]:
    """The files in groups, each of which one task reads."""
    out, size = list[list[ChangedFile]](), _READ_BYTES
    for f in files:
        if size >= _READ_BYTES:
            out.append([])
            size = 0
        out[-1].append(f)
        size += f.file.size
    return [tuple(group) for group in out]


@dataclass(frozen=True)
class _Sample:
    """A sample of the curve's columns; ``work.rows`` is the number of rows that it represents."""

    job: Rewrite

    def __call__(self, work: Bin) -> bytes:
        assert self.job.plan.curve is not None
        return pickle.dumps(self.job.sample(work, self.job.plan.curve))


@dataclass(frozen=True)
class _Divide:
    """Reads files and divides their rows by stretch of the curve."""

    job: Rewrite
    ranges: tuple[Ranges, ...]
    ends: np.ndarray[Any, Any]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        curve = self.job.plan.curve
        assert curve is not None
        for batch in batches:
            for task in batch.column(0).to_pylist():
                work: Bin = pickle.loads(task)
                for stretch, rows in divided(self.job.rows(work.files), curve, self.ranges, self.ends):
                    yield pa.RecordBatch.from_arrays(
                        [pa.array([stretch], pa.int32()), pa.array([_packed(rows)], pa.binary())], ["stretch", "rows"]
                    )


def _packed(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


@dataclass(frozen=True)
class _Write:
    """Sorts the rows of a stretch, collected in a temporary file, and writes them."""

    job: Rewrite
    work: Bin

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with tempfile.TemporaryDirectory(prefix="trilake-stretch-") as folder:
            file, rows = Path(folder) / "rows", 0
            with pa.OSFile(str(file), "wb") as sink:
                for batch in batches:
                    for number, blob in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                        rows += _append(sink, blob)
                        stretch = number
            if rows:
                adds = self._write(file, rows, stretch)
                yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(adds)], pa.binary())], ["outcome"])

    def _write(self, file: Path, rows: int, stretch: int) -> list[dict[str, Any]]:
        plan = self.job.plan
        assert plan.curve is not None
        ordered = in_curve_order(
            _stored(file), plan.curve, count=rows, sample=lambda: _sampled(file, rows), memory=plan.memory
        )
        files = replace(plan.files, unbounded=self.work.unbounded)
        with TaskWriter(self.job.store, files, stretch, files.engine.runtime) as writer:
            for table in ordered:
                writer.write_partition(self.work.partition, table)
            return writer.close()


def _append(sink: pa.NativeFile, blob: bytes) -> int:
    """Append an Arrow stream to a file, preceded by its length; returns the number of its rows."""
    sink.write(len(blob).to_bytes(8, "little"))
    sink.write(blob)
    with pa.ipc.open_stream(blob) as reader:
        return sum(b.num_rows for b in reader)


def _stored(file: Path) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(str(file)) as source:
        while size := source.read(8):
            with pa.ipc.open_stream(source.read(int.from_bytes(size, "little"))) as reader:
                yield from reader


def _sampled(file: Path, rows: int) -> pa.Table:
    share = min(1.0, SAMPLE_ROWS / rows)
    return pa.Table.from_batches(
        b.take(pa.array(sample_indexes(b.num_rows, max(1, int(np.ceil(b.num_rows * share)))))) for b in _stored(file)
    )
