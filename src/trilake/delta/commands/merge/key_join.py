"""Rows of a MERGE that match by equal columns and nothing else: found by the embedded engine, by keys alone.

For a merge that some other engine carries out.  What that engine thinks of equality is not asked, so only columns count
whose values are equal to every engine alike: whole and exact numbers, strings, days, times and truth values.
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
    """What matches: the rows of the target by position in ``snapshot.adds``, how many they are, and what was looked at
    to know it."""

    rows: Mapping[int, BitMap64]
    count: int
    pruned: Pruned


@dataclass(frozen=True)
class KeyJoin:
    """A condition that asks for equal columns: ``columns`` are pairs of them, the target's first."""

    scope: Scope
    join: Join
    columns: tuple[tuple[str, str], ...]

    @classmethod
    def of(
        cls, snapshot: Snapshot, source: pa.Schema, condition: str, aliases: Mapping[Side, str], now: dt.datetime
    ) -> KeyJoin | None:
        """The join of a condition; ``None`` where it asks for something else."""
        try:
            scope = Scope.of(target_schema(snapshot), source, aliases, now)
            columns = scope.column_pairs(condition)
            join = None if columns is None else scope.join(condition)
        except TrilakeError:
            return None  # names that only Spark resolves, or a string that only it can read
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
        """The rows that match those of ``source``, which has the columns of the condition; ``None`` where a row of
        either table matches several.

        Raises what reading files of the table raises.
        """
        keys = [key_values((a,), source.column(b), False) for a, b in self.columns]
        pruned = prune(snapshot, key_filter(keys, [], self.scope.schemas["target"]), [])
        # Each row of the source is in one pair at most, or there is no result.
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
    """Whether values of these types are equal to one engine where they are to another."""
    if pa.types.is_integer(target) and pa.types.is_integer(source):
        return True
    kinds = (pa.types.is_string, pa.types.is_boolean, pa.types.is_date, pa.types.is_timestamp, pa.types.is_decimal)
    return target == source and any(is_kind(target) for is_kind in kinds)
