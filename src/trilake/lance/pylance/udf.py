"""``batch_udf``: a function that makes new columns of batches, for ``LanceDataset.add_columns``."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from hashlib import sha256
from typing import Any

import pyarrow as pa

from trilake.errors import InvalidArgumentError, StorageError
from trilake.lance.file.errors import WrongTypeError


class BatchUDF:
    """A function of record batches whose results may be kept in a file.

    Parameters
    ----------
    func: from a record batch to a record batch or a pandas frame with as many rows.
    output_schema: of the results; the first one tells it where it is not given.
    checkpoint_file: where the result of each batch is kept, so that the work goes on there if it was interrupted.
        Results are found by what is in the batch; remove the file when the function changes.  When
        ``LanceDataset.add_columns`` is done, it removes it.
    """

    def __init__(
        self,
        func: Callable[[pa.RecordBatch], Any],
        output_schema: pa.Schema | None = None,
        checkpoint_file: str | os.PathLike[str] | None = None,
    ) -> None:
        if output_schema is not None and not isinstance(output_schema, pa.Schema):
            raise WrongTypeError(f"output_schema is {output_schema!r}", help="pass a pyarrow.Schema")
        self.func, self.output_schema = func, output_schema
        self.checkpoint_file = None if checkpoint_file is None else os.fspath(checkpoint_file)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.checkpoint_file is None:
            return self._called(batch)
        key = sha256(_bytes_of(batch)).hexdigest()
        kept = self._kept("SELECT result FROM results WHERE batch = ?", key)
        if kept is not None:
            try:
                return pa.ipc.open_stream(kept).read_next_batch()
            except (pa.ArrowInvalid, OSError, StopIteration) as e:
                raise self._unusable(e) from e
        result = self._called(batch)
        self._kept("INSERT OR REPLACE INTO results VALUES (?, ?)", key, _bytes_of(result))
        return result

    def forget(self) -> None:
        """Remove the file of results, which another function would take for its own."""
        if self.checkpoint_file is not None:
            with suppress(FileNotFoundError):
                os.remove(self.checkpoint_file)

    def _kept(self, statement: str, *values: Any) -> bytes | None:
        """Run a statement on the file of results; returns the value of the row that it gives, if it gives one."""
        try:
            with closing(sqlite3.connect(self.checkpoint_file or "")) as file, file:
                file.execute("CREATE TABLE IF NOT EXISTS results (batch TEXT PRIMARY KEY, result BLOB NOT NULL)")
                row = file.execute(statement, values).fetchone()
        except sqlite3.Error as e:
            raise self._unusable(e) from e
        return None if row is None else row[0]

    def _unusable(self, error: Exception) -> StorageError:
        return StorageError(
            f"the checkpoint file cannot be used: {error}", help="remove it, or name another", file=self.checkpoint_file
        )

    def _called(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        result = self.func(batch)
        if not isinstance(result, pa.RecordBatch):
            if not hasattr(result, "columns"):  # a frame has them
                raise InvalidArgumentError(
                    f"the function must return a RecordBatch or a pandas frame, not a {type(result).__name__}"
                )
            result = pa.RecordBatch.from_pandas(result, self.output_schema, preserve_index=False)
        if self.output_schema is not None and not result.schema.equals(self.output_schema):
            raise InvalidArgumentError(
                f"the function returned the columns {_named(result.schema)} instead of {_named(self.output_schema)}",
                help="correct output_schema, or leave it out",
            )
        return result.replace_schema_metadata(None)


def batch_udf(
    output_schema: pa.Schema | None = None, checkpoint_file: str | os.PathLike[str] | None = None
) -> Callable[[Callable[[pa.RecordBatch], Any]], BatchUDF]:
    """Make a function for ``LanceDataset.add_columns`` of one that returns record batches or pandas frames.

    Parameters are those of :class:`BatchUDF`.

    >>> from trilake import lance
    >>> made = lance.write_dataset(pa.table({"a": [1, 2]}), "memory://doc-udf", mode="overwrite")
    >>> @lance.batch_udf()
    ... def doubled(batch):
    ...     return batch.to_pandas()[["a"]].rename(columns={"a": "b"}) * 2
    >>> made.add_columns(doubled)
    >>> made.to_table().to_pylist()
    [{'a': 1, 'b': 2}, {'a': 2, 'b': 4}]
    """

    def wrapped(func: Callable[[pa.RecordBatch], Any]) -> BatchUDF:
        return BatchUDF(func, output_schema, checkpoint_file)

    return wrapped


def _bytes_of(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _named(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}" for f in schema)
