"""``MergeInsertBuilder``: describe a merge insert, execute it, explain it, or return it as a transaction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any, Self, get_args

import pyarrow as pa

from trilake.common.arguments import flag
from trilake.common.display import PublicNames
from trilake.common.text import columns_help
from trilake.errors import InvalidArgumentError
from trilake.lance.commands import input_rows
from trilake.lance.commands.fragment_writer import discard, discarded_on_failure
from trilake.lance.commands.merge_insert import MergeInsert, MergeStats, WriteMode, merge_insert, planned
from trilake.lance.commands.open_dataset import OpenDataset
from trilake.lance.commands.replan import USUAL, Retries
from trilake.lance.file.storage_version import StorageVersion
from trilake.lance.pylance.operation import Transaction, from_stored
from trilake.lance.scan.parse_sql import PylanceSql
from trilake.lance.versions.manifest import Fragment
from trilake.lance.versions.operations import Update


class MergeInsertBuilder(PublicNames):
    """Builder of a merge insert; :meth:`execute` runs it."""

    def __init__(self, dataset: OpenDataset, on: str | Iterable[str]) -> None:
        schema = dataset.snapshot.view.schema
        names = (on,) if isinstance(on, str) else tuple(on)
        keys = tuple(schema.spelled(str(name)) for name in names)
        unknown = [k for k in keys if k not in dataset.snapshot.schema.names]
        if unknown or not keys:
            columns = dataset.snapshot.schema.names
            raise InvalidArgumentError(
                f"key column {unknown[0]!r} not found in the dataset"
                if unknown
                else "a merge insert needs a key column",
                help=columns_help(unknown[0] if unknown else "", columns),
            )
        self._dataset, self._plan = dataset, MergeInsert(keys)
        self._retries = USUAL

    def _with(self, **changes: Any) -> Self:
        self._plan = replace(self._plan, **changes)
        return self

    def when_matched_update_all(self, condition: str | None = None) -> Self:
        """Update matched rows from the source if ``condition`` on ``source`` and ``target`` is true.

        Columns that are missing in the source keep their values.
        """
        return self._with(update=True, update_if=PylanceSql.of(condition))

    def when_matched_delete(self) -> Self:
        """Delete matched rows."""
        return self._with(delete_matched=True)

    def when_matched_fail(self) -> Self:
        """Fail if any row matches."""
        return self._with(fail_matched=True)

    def when_not_matched_insert_all(self) -> Self:
        """Insert source rows without a match; missing columns are null."""
        return self._with(insert=True)

    def when_not_matched_by_source_delete(self, expr: str | None = None) -> Self:
        """Delete rows of the dataset without a match if ``expr`` is true."""
        return self._with(delete_unmatched=True, delete_if=PylanceSql.of(expr))

    def use_index(self, use_index: bool = True) -> Self:
        """Set whether an index on the key makes the default ``write_mode`` rewrite columns.

        Rows are matched without an index.
        """
        return self._with(use_index=flag("use_index", use_index))

    def write_mode(self, mode: WriteMode | None = None) -> Self:
        """Set how to write matched rows of a source that lacks columns, see :class:`MergeInsert`.

        ``"rewrite_columns"`` never reads or writes the other columns, but writes those of the source for all rows of
        each fragment with a matched row.  :meth:`execute` raises ``InvalidArgumentError`` if the merge must write rows.
        """
        if mode is not None and mode not in get_args(WriteMode):
            raise InvalidArgumentError(f"write_mode must be one of {', '.join(get_args(WriteMode))}, got {mode!r}")
        return self._with(write_mode=mode or "auto")

    def data_storage_version(self, version: str) -> Self:
        """Check that ``version`` is the file version of the dataset."""
        current = self._dataset.snapshot.manifest.storage_version
        if StorageVersion.parse(version) != current:
            raise InvalidArgumentError(
                f"data_storage_version must be {current}, that of the dataset, got {version}", help="leave it out"
            )
        return self

    def conflict_retries(self, max_retries: int) -> Self:
        """Set how often to retry after conflicts on the same rows."""
        self._retries = replace(self._retries, times=Retries.of(max_retries).times)
        return self

    def retry_timeout(self, timeout: timedelta) -> Self:
        """Set how long to retry after conflicts on the same rows; by default there is no time limit."""
        self._retries = replace(self._retries, timeout=Retries.of(retry_timeout=timeout).timeout)
        return self

    def execute(self, data_obj: Any, *, schema: pa.Schema | None = None) -> dict[str, int]:
        """Run the merge and return the numbers of inserted, updated and deleted rows."""
        plan, source, dataset = self._plan.check(), input_rows.table(data_obj, schema), self._dataset
        done, stats = merge_insert(dataset.snapshot, plan, source, nulls=dataset.nulls, retries=self._retries)
        dataset.moved(done)
        return asdict(stats)

    def execute_uncommitted(
        self, data_obj: Any, *, schema: pa.Schema | None = None
    ) -> tuple[Transaction, dict[str, int]]:
        """Write the files without a commit; returns a transaction for ``LanceDataset.commit``, and the row counts.

        If it is never committed, ``cleanup_old_versions`` deletes the files.  Errors are those of :meth:`execute`.
        """
        operation, stats = self._planned(data_obj, schema, [])
        dataset = self._dataset
        converted = from_stored(operation)
        assert converted is not None
        return Transaction(dataset.snapshot.version, converted), asdict(stats)

    def _planned(self, data_obj: Any, schema: pa.Schema | None, written: list[Fragment]) -> tuple[Update, MergeStats]:
        plan, source = self._plan.check(), input_rows.table(data_obj, schema)
        snapshot = self._dataset.snapshot
        snapshot.manifest.check_writable(snapshot.store.uri)
        with discarded_on_failure(snapshot.store, written):
            return planned(snapshot, plan, source, written, nulls=self._dataset.nulls)

    def analyze_plan(self, data_obj: Any, *, schema: pa.Schema | None = None) -> str:
        """Run the merge without a commit, remove the files it wrote, and return its plan with metrics.

        Parameters and errors are those of :meth:`execute_uncommitted`.
        """
        written: list[Fragment] = []
        operation, stats = self._planned(data_obj, schema, written)
        files = [file for fragment in written for file in fragment.files]
        snapshot = self._dataset.snapshot
        discard(snapshot.store, written)
        before = {f.id: f.deletion_file for f in snapshot.manifest.fragments}
        marks = [(f.id, f.deletion_file) for f in operation.updated_fragments if f.deletion_file != before[f.id]]
        snapshot.store.delete([mark.key(id) for id, mark in marks if mark is not None])
        numbers = {
            **asdict(stats),
            "bytes_written": sum(file.size_bytes or 0 for file in files),
            "num_files_written": len(files),
        }
        first, *rest = self.explain_plan(schema).splitlines()
        metrics = ", ".join(f"{name}={number}" for name, number in numbers.items())
        return "\n".join([f"{first}, metrics=[{metrics}]", *rest])

    def explain_plan(self, schema: pa.Schema | None = None, verbose: bool = False) -> str:
        """Describe what :meth:`execute` does, one line per step.

        Parameters
        ----------
        schema: schema of the source, by default that of the dataset.
        verbose: has no effect.
        """
        plan, dataset = self._plan.check(), self._dataset
        matched = (
            "UpdateAll" if plan.update else "Delete" if plan.delete_matched else "Fail" if plan.fail_matched else ""
        )
        if plan.update_if is not None:
            matched = f"UpdateIf({plan.update_if})"
        unmatched = "Delete" if plan.delete_if is None else f"DeleteIf({plan.delete_if})"
        steps = [
            f"on=[{', '.join(plan.on)}]",
            f"when_matched={matched or 'DoNothing'}",
            f"when_not_matched={'InsertAll' if plan.insert else 'DoNothing'}",
            f"when_not_matched_by_source={unmatched if plan.delete_unmatched else 'Keep'}",
        ]
        names = dataset.snapshot.schema.names if schema is None else schema.names
        return "\n".join(
            [
                f"MergeInsert: {', '.join(steps)}",
                f"  HashJoinExec: on=[{', '.join(plan.on)}]",
                f"    Source: columns={names}",
                f"    LanceRead: uri={dataset.uri}, num_fragments={len(dataset.snapshot.readers)}",
            ]
        )
