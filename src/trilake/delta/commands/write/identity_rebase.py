"""Concurrent writers that generate identity values: the second one shifts its values behind the first one's.

Both started from the same high-water mark, so their values collide.  The files of the loser are not visible yet: they
are rewritten with other values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from trilake.common.runtime import Runtime
from trilake.delta.commit.plan import CommitPlan
from trilake.delta.files.file_plan import FilePlan, WrittenFiles
from trilake.delta.files.write_files import TaskWriter
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.actions import Metadata
from trilake.delta.rules.identity import HIGH_WATER_MARK, shift_identity, shifts, updated_schema
from trilake.delta.scan.read import read_task
from trilake.delta.scan.scan import FileTask, metadata_plan, read_schema
from trilake.storage.ownership import discard


@dataclass
class IdentityRebase:
    """The ``rebase`` of a :class:`~trilake.delta.commit.transaction.CommitPlan` whose files hold generated values.

    ``standing`` is the metadata that the values were generated on.
    """

    log: DeltaLog
    files: FilePlan
    standing: Metadata
    marks: Mapping[str, int]
    runtime: Runtime
    #: Keys of the files that the next commit would add.
    keys: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls, log: DeltaLog, files: FilePlan, standing: Metadata, parts: Sequence[WrittenFiles], runtime: Runtime
    ) -> IdentityRebase | None:
        """``None`` where no values were generated."""
        columns = () if files.rules is None else files.rules.generated_identities
        if not columns or not any(part.actions for part in parts):
            return None
        moved = updated_schema(standing.schema, [p.marks for p in parts])
        marks = {n: int(moved.field(n).metadata[HIGH_WATER_MARK]) for n in columns}
        return cls(log, files, standing, marks, runtime)

    def __call__(self, plan: CommitPlan, newest: Metadata) -> CommitPlan:
        """The plan rebased on ``newest``, with rewritten files where values must change."""
        by = shifts(self.standing.schema, newest.schema, self.marks)
        actions = list(plan.file_actions)
        if by:
            old = [a["add"] for a in actions if "add" in a]
            actions = [a for a in actions if "add" not in a] + [{"add": a} for a in self._moved(old, by)]
            discard(self.log.store, [unquote(a["path"]) for a in old])
        self.standing = newest
        self.marks = {n: mark + by.get(n, 0) for n, mark in self.marks.items()}
        metadata = replace(newest, schema_string=updated_schema(newest.schema, [self.marks]).json())
        return replace(plan, file_actions=actions, metadata=metadata, read=replace(plan.read, metadata=newest))

    def _moved(self, adds: Sequence[Mapping[str, Any]], by: Mapping[str, int]) -> list[dict[str, Any]]:
        plan = metadata_plan(self.standing, self.log.engine, self.log.store.uri, 0)
        files = replace(self.files, schema=read_schema(self.files.schema), rules=None, required=None)
        with TaskWriter(self.log.store, files, 0, self.runtime) as writer:
            for add in adds:
                task = FileTask(unquote(add["path"]), add["size"], add["partitionValues"])
                for batch in read_task(self.log.store, task, plan):
                    rows = shift_identity(pa.Table.from_batches([batch]), by)
                    for moved in rows.to_batches():
                        writer.write(moved)
            return writer.close()
