"""Check that version checksum files (``N.crc``) match the log."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.log.checksum import VersionChecksum, differences_of
from trilake.delta.log.snapshot import State, apply_rare
from trilake.delta.protocol.actions import EMPTY_BATCH
from trilake.delta.verify.context import DeltaContext
from trilake.delta.verify.states import action_keys
from trilake.errors import CorruptLogError, ObjectNotFoundError
from trilake.table.findings import Finding

#: The repair step that removes a checksum file.
DROP = "delta.drop-checksum"
_HELP = "delete the file: no reader needs it (trilake.repair)"
_TOTALS = ("numFiles", "tableSizeBytes", "numDeletionVectorsOpt", "numDeletedRecordsOpt")


def true(table: DeltaContext) -> Generator[Finding, None, int]:
    """Every checksum file can be read and matches the log."""
    start, at = table.origin
    versions = sorted(v for v in table.listing.checksums if v >= at)
    totals = _totals(table, start, at) if versions else {}
    state, reached = start, at
    for version in versions:
        rare = tuple(r for r in table.batch.rare if reached < r[0] <= version and r[1] != "commitInfo")
        state, reached = apply_rare(state, replace(EMPTY_BATCH, rare=rare)), version
        wrong = _wrong(table, version, state, _at(totals, version))
        if wrong:
            yield Finding(
                "delta.checksum-differs",
                f"the checksum file differs from the log: {'; '.join(wrong)[:600]}",
                _HELP,
                file=table.listing.checksums[version].key,
                version=version,
                repair=DROP,
            )
    return len(versions)


def _wrong(table: DeltaContext, version: int, state: State, totals: Mapping[str, int]) -> list[str]:
    try:
        data = bytes(table.store.read(table.listing.checksums[version].key))
        checksum = VersionChecksum.from_json(data, version=version)
    except ObjectNotFoundError:
        return []  # cleaned up concurrently
    except CorruptLogError as e:
        return [e.message]
    return differences_of(checksum, state, totals)


def _totals(table: DeltaContext, start: State, at: int) -> dict[str, npt.NDArray[np.int64]]:
    """The file totals of each version, in one pass over all actions: running sums."""
    batch = table.batch
    parts = [_moves(start.adds, 1, at)] if start.adds.num_rows else []
    parts += [_moves(t, kind, None) for t, kind in ((batch.add, 1), (batch.remove, 0)) if t.num_rows]
    if not parts:
        return {}
    moves = pa.concat_tables(parts)
    moves = moves.filter(pc.or_(pc.greater(moves["v"], at), pc.equal(moves["o"], -1)))
    # An action changes a total by the new size of its file minus the size in the previous action for this file.
    change = ", ".join(f"sum(k * {c} - coalesce(pk * p{c}, 0))::bigint as {c}" for c in ("n", "b", "d", "c"))
    before = ", ".join(f"lag({c}) over w as p{c}" for c in ("k", "n", "b", "d", "c"))
    changes = table.log.engine.query(
        f"select v, {change} from (select v, k, n, b, d, c, {before} from moves"
        " window w as (partition by f order by o)) group by v order by v",
        moves=moves,
    )
    sums = {name: np.cumsum(changes[c].to_numpy()) for name, c in zip(_TOTALS, ("n", "b", "d", "c"), strict=True)}
    return {"versions": changes["v"].to_numpy(), **sums}


def _moves(files: pa.Table, kind: int, at: int | None) -> pa.Table:
    rows = files.num_rows
    vectors = files["deletionVector"]
    return pa.table(
        {
            "f": action_keys(files),
            "v": files["version"] if at is None else pa.array(np.full(rows, at)),
            "o": files["order"] if at is None else pa.array(np.full(rows, -1)),
            "k": pa.array(np.full(rows, kind)),
            "n": pa.array(np.ones(rows, np.int64)),
            "b": pc.fill_null(files["size"], 0),
            "d": pc.is_valid(vectors).cast(pa.int64()),
            "c": pc.fill_null(pc.struct_field(vectors, "cardinality"), 0),
        }
    )


def _at(totals: Mapping[str, npt.NDArray[np.int64]], version: int) -> dict[str, int]:
    if not totals:
        return dict.fromkeys(_TOTALS, 0)
    number = int(np.searchsorted(totals["versions"], version, side="right")) - 1
    return {name: int(totals[name][number]) if number >= 0 else 0 for name in _TOTALS}
