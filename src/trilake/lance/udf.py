"""``batch_udf``: a user function of record batches, for ``LanceDataset.add_columns``."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from hashlib import sha256
from typing import Any

import pyarrow as pa

from trilake.errors import InvalidArgumentError, StorageError
from trilake.lance.file.errors import WrongTypeError


class BatchUDF:
    """A function of record batches, with optional checkpoints of its results.

    Parameters
    ----------
    func: converts a record batch to a record batch or pandas DataFrame with as many rows.
    output_schema: schema of the results, by default that of the first one.
    checkpoint_file: file to store the result of each batch in, so that an interrupted job can resume.  Results are
        keyed by the content of the batch: delete the file when the function changes.  ``LanceDataset.add_columns``
        deletes it after success.
    """

    def __init__(
        self,
        func: Callable[[pa.RecordBatch], Any],
        output_schema: pa.Schema | None = None,
        checkpoint_file: str | os.PathLike[str] | None = None,
    ) -> None:
        if output_schema is not None and not isinstance(output_schema, pa.Schema):
            raise WrongTypeError(f"output_schema must be a pyarrow.Schema, got {output_schema!r}")
        self.func, self.output_schema = func, output_schema
        self.checkpoint_file = None if checkpoint_file is None else os.fspath(checkpoint_file)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.checkpoint_file is None:
            return self._called(batch)
        key = sha256(_bytes_of(batch)).hexdigest()
        checkpoint = self._execute("SELECT result FROM results WHERE batch = ?", key)
        if checkpoint is not None:
            try:
                return pa.ipc.open_stream(checkpoint).read_next_batch()
            except (pa.ArrowInvalid, OSError, StopIteration) as e:
                raise self._unusable(e) from e
        result = self._called(batch)
        self._execute("INSERT OR REPLACE INTO results VALUES (?, ?)", key, _bytes_of(result))
        return result

    def forget(self) -> None:
        """Delete the checkpoint file, so that another function does not reuse it."""
        if self.checkpoint_file is not None:
            with suppress(FileNotFoundError):
                os.remove(self.checkpoint_file)

    def _execute(self, statement: str, *values: Any) -> bytes | None:
        """Run a statement on the checkpoint file, and return the first value of the first row, if any."""
        try:
            with closing(sqlite3.connect(self.checkpoint_file or "")) as file, file:
                file.execute("CREATE TABLE IF NOT EXISTS results (batch TEXT PRIMARY KEY, result BLOB NOT NULL)")
                row = file.execute(statement, values).fetchone()
        except sqlite3.Error as e:
            raise self._unusable(e) from e
        return None if row is None else row[0]

    def _unusable(self, error: Exception) -> StorageError:
        return StorageError(
            f"the checkpoint file cannot be used: {error}",
            help="delete it, or pass another path",
            file=self.checkpoint_file,
        )

    def _called(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        result = self.func(batch)
        if not isinstance(result, pa.RecordBatch):
            if not hasattr(result, "columns"):  # neither a batch nor a frame
                raise InvalidArgumentError(
                    f"the function must return a RecordBatch or a pandas DataFrame, got {type(result).__name__}"
                )
            result = pa.RecordBatch.from_pandas(result, self.output_schema, preserve_index=False)
        if self.output_schema is not None and not result.schema.equals(self.output_schema):
            raise InvalidArgumentError(
                f"the function returned columns {_described(result.schema)}, expected {_described(self.output_schema)}",
                help="fix output_schema, or leave it out",
            )
        return result.replace_schema_metadata(None)


def batch_udf(
    output_schema: pa.Schema | None = None, checkpoint_file: str | os.PathLike[str] | None = None
) -> Callable[[Callable[[pa.RecordBatch], Any]], BatchUDF]:
    """Decorate a function for ``LanceDataset.add_columns`` that returns record batches or pandas DataFrames.

    Parameters are those of :class:`BatchUDF`.

    >>> from trilake import lance
    >>> ds = lance.write_dataset(pa.table({"a": [1, 2]}), "memory://doc-udf", mode="overwrite")
    >>> @lance.batch_udf()
    ... def doubled(batch):
    ...     return batch.to_pandas()[["a"]].rename(columns={"a": "b"}) * 2
    >>> ds.add_columns(doubled)
    >>> ds.to_table().to_pylist()
    [{'a': 1, 'b': 2}, {'a': 2, 'b': 4}]
    """
    return partial(BatchUDF, output_schema=output_schema, checkpoint_file=checkpoint_file)


def _bytes_of(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}" for f in schema)
