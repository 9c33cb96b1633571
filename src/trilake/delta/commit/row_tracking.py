"""Row tracking: every file has a range of row ids, and the version that wrote its rows.

Table feature ``rowTracking``.  The metadata domain ``delta.rowTracking`` has the largest id assigned so far.  Ids are
assigned during the commit, so concurrent writers never share one and need not conflict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from trilake.delta.log.snapshot import State
from trilake.delta.protocol.actions import Protocol, required_value
from trilake.delta.protocol.property_values import is_on
from trilake.delta.protocol.table_features import row_tracking as feature
from trilake.errors import CorruptLogError, WriteFailedError

FEATURE = "rowTracking"
DOMAIN = "delta.rowTracking"
ENABLED, SUSPENDED = feature.KEY, feature.SUSPENDED
#: Properties that name the columns in files for the ids and versions of moved rows.
ID_COLUMN, VERSION_COLUMN = feature.ID_COLUMN, feature.VERSION_COLUMN
#: A tag of ``commitInfo``: whether all rows that were copied or updated kept their ids.
PRESERVED = "delta.rowTracking.preserved"
#: All row tracking properties.
KEYS = (ENABLED, ID_COLUMN, VERSION_COLUMN)
_MARK = "rowIdHighWaterMark"


def supported(protocol: Protocol) -> bool:
    """Whether files of the table may have row ids."""
    return FEATURE in (protocol.writer_features or ())


def assigns(protocol: Protocol, configuration: Mapping[str, str]) -> bool:
    """Whether writers of the table must assign row ids: they do unless that is suspended."""
    suspended = is_on(configuration, SUSPENDED) and not is_on(configuration, ENABLED)
    return supported(protocol) and not suspended


def high_water_mark(state: State) -> int:
    """The largest row id assigned so far, or -1.  Raises ``CorruptLogError``."""
    domain = state.domains.get(DOMAIN)
    if domain is None:
        return -1
    try:
        return required_value(orjson.loads(domain["configuration"]), _MARK, int)
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise CorruptLogError(
            f"the metadata domain {DOMAIN} has no {_MARK}",
            help="row ids cannot be assigned without it; restore the log from a backup",
        ) from e


def assign(
    actions: Sequence[Mapping[str, Any]], state: State, version: int, *, assigned: int = -1
) -> list[Mapping[str, Any]]:
    """``actions`` with row ids for the files that lack them, and the updated domain.

    A file that keeps its rows, for example with a new deletion vector, keeps its ids.  ``assigned`` is the largest
    assigned id, in case the state's domain lacks it.
    """
    start = high_water_mark(state)
    mark = max(start, assigned)
    out: list[Mapping[str, Any]] = []
    for action in actions:
        add = action.get("add")
        if add is None or (add.get("baseRowId") is not None and add.get("defaultRowCommitVersion") is not None):
            out.append(action)
            continue
        new_add = dict(add)
        if new_add.get("baseRowId") is None:
            new_add["baseRowId"] = mark + 1
            mark += _records(add)
        if new_add.get("defaultRowCommitVersion") is None:
            new_add["defaultRowCommitVersion"] = version
        out.append({"add": new_add})
    if mark != start:
        configuration = orjson.dumps({_MARK: mark}).decode()
        out.append({"domainMetadata": {"domain": DOMAIN, "configuration": configuration, "removed": False}})
    return out


def _records(add: Mapping[str, Any]) -> int:
    try:
        return int(orjson.loads(add["stats"])["numRecords"])
    except (KeyError, TypeError, ValueError) as e:
        raise WriteFailedError(
            "a file without numRecords cannot be added to a table with row tracking",
            help="add numRecords to the statistics of its add action",
            file=str(add.get("path")),
            condition="DELTA_ROW_ID_ASSIGNMENT_WITHOUT_STATS",
        ) from e
