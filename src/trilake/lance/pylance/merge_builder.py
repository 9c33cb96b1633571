"""``MergeBuilder``: execute a merge insert, explain it, or return it as a transaction."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from trilake.lance.commands import merge_insert
from trilake.lance.commands.fragment_writer import discarded_on_failure
from trilake.lance.pylance.operation import from_stored
from trilake.lance.pylance.transactions import Transaction
from trilake.lance.versions.manifest import Fragment


class MergeBuilder(merge_insert.MergeInsertBuilder):
    """Builder of a merge insert; :meth:`execute` runs it."""

    def execute_uncommitted(
        self, data_obj: Any, *, schema: pa.Schema | None = None
    ) -> tuple[Transaction, dict[str, int]]:
        """Write the files without a commit; returns a transaction for ``LanceDataset.commit`` and the row counts.

        If it is never committed, ``cleanup_old_versions`` deletes the files.  Errors are those of :meth:`execute`.
        """
        what, source = self._checked(), self._source(data_obj, schema)
        dataset = self._dataset
        dataset.snapshot.manifest.check_writable(dataset.snapshot.store.uri)
        written: list[Fragment] = []
        with discarded_on_failure(dataset.snapshot.store, written):
            operation, stats = merge_insert.planned(dataset.snapshot, what, source, written, nulls=dataset.nulls)
        converted = from_stored(operation)
        assert converted is not None
        return Transaction(dataset.snapshot.version, converted), stats.numbers()

    def explain_plan(self, schema: pa.Schema | None = None, verbose: bool = False) -> str:
        """Describe what :meth:`execute` does, one line per step.

        Parameters
        ----------
        schema: of the source; that of the dataset by default.
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
