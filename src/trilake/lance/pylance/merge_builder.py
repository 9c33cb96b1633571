"""``MergeBuilder``: execute a merge insert, explain it, or return it as a transaction."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from trilake.lance.commands import merge_insert
from trilake.lance.commands.fragment_writer import discard, discarded_on_failure
from trilake.lance.pylance.operation import from_stored
from trilake.lance.pylance.transactions import Transaction
from trilake.lance.versions.manifest import Fragment
from trilake.lance.versions.operations import Update


class MergeBuilder(merge_insert.MergeInsertBuilder):
    """Builder of a merge insert; :meth:`execute` runs it."""

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
        return Transaction(dataset.snapshot.version, converted), stats.numbers()

    def _planned(
        self, data_obj: Any, schema: pa.Schema | None, written: list[Fragment]
    ) -> tuple[Update, merge_insert.MergeStats]:
        what, source = self._checked(), self._source(data_obj, schema)
        snapshot = self._dataset.snapshot
        snapshot.manifest.check_writable(snapshot.store.uri)
        with discarded_on_failure(snapshot.store, written):
            return merge_insert.planned(snapshot, what, source, written, nulls=self._dataset.nulls)

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
            **stats.numbers(),
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
        what, dataset = self._checked(), self._dataset
        matched = (
            "UpdateAll" if what.update else "Delete" if what.delete_matched else "Fail" if what.fail_matched else ""
        )
        if what.update_if is not None:
            matched = f"UpdateIf({what.update_if})"
        unmatched = "Delete" if what.delete_if is None else f"DeleteIf({what.delete_if})"
        steps = [
            f"on=[{', '.join(what.on)}]",
            f"when_matched={matched or 'DoNothing'}",
            f"when_not_matched={'InsertAll' if what.insert else 'DoNothing'}",
            f"when_not_matched_by_source={unmatched if what.delete_unmatched else 'Keep'}",
        ]
        names = dataset.snapshot.schema.names if schema is None else schema.names
        return "\n".join(
            [
                f"MergeInsert: {', '.join(steps)}",
                f"  HashJoinExec: on=[{', '.join(what.on)}]",
                f"    Source: columns={names}",
                f"    LanceRead: uri={dataset.uri}, num_fragments={len(dataset.snapshot.readers)}",
            ]
        )
