"""Rules for single rows over the versions of a Delta table: ids, generated values, constraints."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import orjson

from tests.simulation.world import Violation

if TYPE_CHECKING:
    from tests.simulation.delta.delta_history import Version

#: The identity column of tables that have one.
NUMBER = "n"
_MARK = "delta.identity.highWaterMark"
_ENABLED = "delta.enableRowTracking"
_ID, _SINCE = (f"delta.rowTracking.materializedRow{n}ColumnName" for n in ("Id", "CommitVersion"))
_CHECK = re.compile(r"k <> (\d)")
#: Values of one file by column, one per row.
Columns = dict[str, list[Any]]


class RowRules:
    """Track rows from version to version."""

    def __init__(self) -> None:
        #: Rows by row id, and rows by identity value.
        self._row_ids: dict[int, int] = {}
        self._numbers: dict[int, int] = {}

    def seen(self, version: int, found: Version, add: dict[str, Any], at: int, id: int, columns: Columns) -> None:
        """Record that a row of a file is visible in a version."""
        number = columns.get(NUMBER)
        if number is not None:
            found.numbers[id] = number[at]
        if tracked(found):
            names = found.metadata["configuration"]
            row_id, since = (columns.get(names.get(n, ""), [None] * (at + 1))[at] for n in (_ID, _SINCE))
            first, written = add.get("baseRowId"), add.get("defaultRowCommitVersion")
            if first is None or written is None:
                raise Violation(f"version {version}: {add['path']} has no row ids, and the table says it has")
            found.row_ids[id] = (first + at if row_id is None else row_id, written if since is None else since)

    def check(self, version: int, found: Version, before: Version | None, old: Version | None) -> None:
        """Raise :class:`Violation` if the ids of a row changed; ``old`` is the version that a restore names."""
        self._check_row_ids(version, found, before, old)
        self._check_numbers(version, found)
        for name, text in found.metadata["configuration"].items():
            match = _CHECK.search(text) if name.startswith("delta.constraints.") else None
            broken = [i for i, (k, _) in found.rows.items() if match is not None and k == int(match[1])]
            if broken:
                raise Violation(f"version {version}: rows {broken} break the constraint {text}")

    def _check_row_ids(self, version: int, found: Version, before: Version | None, old: Version | None) -> None:
        if "rowTracking" not in (found.protocol.get("writerFeatures") or ()):
            self._row_ids.clear()
            return
        owners: dict[int, int] = {}
        for id, (row_id, _) in found.row_ids.items():
            if owners.setdefault(row_id, id) != id:
                raise Violation(f"version {version}: the rows {owners[row_id]} and {id} have one row id, {row_id}")
        base = before if old is None else old
        if base is None or not found.row_ids:
            return
        for id, (row_id, since) in base.row_ids.items():
            if id not in found.row_ids:
                continue
            now = found.row_ids[id]
            if now[0] != row_id:
                raise Violation(f"version {version}: row {id} has the row id {now[0]}, it had {row_id}")
            same = base.rows[id] == found.rows[id]
            if now[1] != (since if same else version):
                raise Violation(
                    f"version {version}: row {id}, {'un' if same else ''}changed, says that it is of version {now[1]},"
                    f" it was of {since}"
                )
        for id, (row_id, _) in found.row_ids.items():
            if old is None and self._row_ids.setdefault(row_id, id) != id:
                raise Violation(f"version {version}: row {id} has the row id {row_id} of {self._row_ids[row_id]}")

    def _check_numbers(self, version: int, found: Version) -> None:
        for id, number in found.numbers.items():
            if number is None or self._numbers.setdefault(number, id) != id:
                raise Violation(
                    f"version {version}: row {id} has the identity {number}, which {self._numbers.get(number or 0)} has"
                )
        fields = {f["name"]: f["metadata"] for f in orjson.loads(found.metadata["schemaString"])["fields"]}
        if NUMBER not in fields:
            self._numbers.clear()  # a restored column continues where it stopped
            return
        mark, sign = fields[NUMBER].get(_MARK), 1 if fields[NUMBER]["delta.identity.step"] > 0 else -1
        furthest = max((n * sign for n in self._numbers if n * sign >= sign), default=None)
        if furthest is not None and (mark is None or mark * sign < furthest):
            raise Violation(f"version {version}: identities go up to {furthest * sign}, its mark says {mark}")


def tracked(version: Version) -> bool:
    """Return whether rows have stable ids."""
    features = version.protocol.get("writerFeatures") or ()
    return "rowTracking" in features and version.metadata["configuration"].get(_ENABLED) == "true"
