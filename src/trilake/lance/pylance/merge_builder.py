"""``MergeBuilder``: a merge insert that is run, described, or handed on as a transaction."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from trilake.lance.commands import merge_insert
from trilake.lance.commands.fragment_writer import discarded_on_failure
from trilake.lance.pylance.operation import shown
from trilake.lance.pylance.transactions import Transaction
from trilake.lance.versions.manifest import Fragment


class MergeBuilder(merge_insert.MergeInsertBuilder):
    """Describes a merge insert step by step; :meth:`execute` runs it."""

    def execute_uncommitted(
        self, data_obj: Any, *, schema: pa.Schema | None = None
    ) -> tuple[Transaction, dict[str, int]]:
        """Write what :meth:`execute` would, without a commit: the transaction for ``LanceDataset.commit``, and numbers.

        Where it is not committed, ``cleanup_old_versions`` removes the files.  Raises as :meth:`execute` does.
        """
        what, source = self._checked(), self._source(data_obj, schema)
        dataset = self._dataset
        dataset.snapshot.manifest.check_writable(dataset.snapshot.store.uri)
        written: list[Fragment] = []
        with discarded_on_failure(dataset.snapshot.store, written):
            operation, stats = merge_insert.planned(dataset.snapshot, what, source, written, nulls=dataset.nulls)
        known = shown(operation)
        assert known is not None
        return Transaction(dataset.snapshot.version, known), stats.numbers()

    def explain_plan(self, schema: pa.Schema | None = None, verbose: bool = False) -> str:
        """What :meth:`execute` does, one line a step.

        Parameters
        ----------
        schema: of the source; that of the dataset by default.
        verbose: changes nothing.
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
        names = dataset.schema.names if schema is None else schema.names
        return "\n".join(
            [
                f"MergeInsert: {', '.join(steps)}",
                f"  HashJoinExec: on=[{', '.join(what.on)}]",
                f"    Source: columns={names}",
                f"    LanceScan: uri={dataset.uri}, fragments={len(dataset.snapshot.readers)}",
            ]
        )
