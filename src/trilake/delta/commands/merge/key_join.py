"""Find the matches of a MERGE whose condition only compares columns for equality, by keys alone with DuckDB.

For a merge that another engine runs.  Only types count that every engine compares alike: integers, decimals, strings,
dates, timestamps and booleans.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from trilake.delta.commands.merge.match import Matcher, TooManyPairsError, groups
from trilake.delta.commands.merge.names import Side
from trilake.delta.commands.merge.pruning import Pruned, key_filter, key_values, prune, target_schema
from trilake.delta.commands.merge.scope import Join, Scope
from trilake.delta.commands.rows.row_changes import touched_files
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.protocol.char_varchar import length_rule
from trilake.errors import TrilakeError
from trilake.storage.base import Store


@dataclass(frozen=True)
class KeyMatches:
    """The matches: target rows by position in ``snapshot.adds``, their number, and what was read to find them."""

    rows: Mapping[int, BitMap64]
    count: int
    pruned: Pruned


@dataclass(frozen=True)
class KeyJoin:
    """A condition of equal columns: ``columns`` are pairs, the target's first."""

    scope: Scope
    join: Join
    columns: tuple[tuple[str, str], ...]

    @classmethod
    def of(
        cls, snapshot: Snapshot, source: pa.Schema, condition: str, aliases: Mapping[Side, str], now: dt.datetime
    ) -> KeyJoin | None:
        """The join of a condition; ``None`` for any other condition."""
        try:
            scope = Scope.of(target_schema(snapshot), source, aliases, now)
            columns = scope.column_pairs(condition)
            join = None if columns is None else scope.join(condition)
        except TrilakeError:
            return None  # names or strings that only Spark can resolve
        if columns is None or join is None:
            return None
        spelled = [{n.lower(): n for n in schema.names} for schema in (scope.schemas["target"], source)]
        pairs = tuple((spelled[0][a.lower()], spelled[1][b.lower()]) for a, b in columns)
        lengths = {f.name for f in snapshot.schema.fields if length_rule(f) is not None}
        types = [(scope.schemas["target"].field(a).type, source.field(b).type) for a, b in pairs]
        if lengths & {a for a, _ in pairs} or not all(_alike(*both) for both in types):
            return None
        return cls(scope, join, pairs)

    def matches(self, store: Store, snapshot: Snapshot, source: pa.Table) -> KeyMatches | None:
        """The rows that match those of ``source``; ``None`` where a row of either table matches several.

        Raises what reading files of the table raises.
        """
        keys = [key_values((a,), source.column(b), False) for a, b in self.columns]
        pruned = prune(snapshot, key_filter(keys, [], self.scope.schemas["target"]), [])
        # Each row of the source is in at most one pair, or there is no result.
        most = source.num_rows
        matcher = Matcher(store, snapshot, self.scope, self.join, source, os.cpu_count() or 1, most)
        seen = np.zeros(source.num_rows, bool)
        rows: dict[int, BitMap64] = {}
        count = 0
        for group in groups(touched_files(snapshot, pruned.numbers)):
            try:
                pairs = matcher.match(group)
            except TooManyPairsError:
                return None
            count += len(pairs)
            seen[pairs.source] = True
            if pairs.repeated.any() or np.count_nonzero(seen) < count:
                return None
            for number in np.unique(pairs.files):
                rows[group[int(number)].number] = BitMap64(pairs.of_file(int(number)).rows.astype(np.uint64))
        return KeyMatches(rows, count, pruned)


def _alike(target: pa.DataType, source: pa.DataType) -> bool:
    """Whether all engines compare values of these types alike."""
    if pa.types.is_integer(target) and pa.types.is_integer(source):
        return True
    kinds = (pa.types.is_string, pa.types.is_boolean, pa.types.is_date, pa.types.is_timestamp, pa.types.is_decimal)
    return target == source and any(is_kind(target) for is_kind in kinds)
