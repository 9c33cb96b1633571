"""Check that log compaction files match their commits."""

from __future__ import annotations

from collections.abc import Generator

from trilake.delta.log.snapshot import apply, empty_state
from trilake.delta.protocol.actions import parse_commits
from trilake.delta.verify.context import DeltaContext
from trilake.delta.verify.states import differences
from trilake.errors import TrilakeError
from trilake.table.findings import Finding, unreadable

#: The repair step that removes a compaction file.
DROP = "delta.drop-compaction"
_HELP = "delete the file (trilake.repair): its commits have all actions"


def same_as_commits(table: DeltaContext) -> Generator[Finding, None, int]:
    """Every compaction file can be read and equals its commits."""
    for first, last, file in table.listing.compactions:
        mendable = DROP if table.has_commits(first, last) else None
        try:
            state = apply(
                empty_state(), parse_commits([(last, file.key, table.store.read(file.key))], table.log.engine.query)
            )
        except TrilakeError as e:
            failure = unreadable("delta.compaction-differs", e)
            yield Finding(failure.code, failure.message, _HELP, file=file.key, version=last, repair=mendable)
            continue
        if mendable is None:
            continue
        true = apply(empty_state(), table.actions(first, last))
        wrong = differences(state, true, table.engine.query, whole=False)
        if wrong:
            yield Finding(
                "delta.compaction-differs",
                f"the compaction file differs from its commits {first} to {last}: {'; '.join(wrong)[:600]}",
                _HELP,
                file=file.key,
                version=last,
                repair=mendable,
            )
    return len(table.listing.compactions)
