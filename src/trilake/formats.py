"""The formats that a table may have, and how each is found and opened: a row each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from trilake.common.timestamps import TimestampLike
from trilake.delta.log.log import DeltaLog
from trilake.delta.table import ArrowDeltaTable
from trilake.engine import standard_engine
from trilake.errors import InvalidArgumentError, MissingDependencyError, TableNotFoundError
from trilake.storage.base import Store
from trilake.storage.uri import parse_location
from trilake.table.table import Table


@dataclass(frozen=True)
class Format:
    """What the library must know of a format to open tables of it."""

    name: str
    #: Whether the store's root holds such a table.
    detect: Callable[[Store], bool]
    #: Opens it at a version or timestamp.
    open: Callable[[Store, int | None, TimestampLike | None], Table]
    #: Whether opening raises ``TableNotFoundError`` where there is none, at the cost of looking for one.
    tells_by_opening: bool = True


def _open_delta(store: Store, version: int | None, timestamp: TimestampLike | None) -> Table:
    return ArrowDeltaTable(store, standard_engine(), version=version, timestamp=timestamp)


def _is_trevni(store: Store) -> bool:
    """Whether the location is named like a Trevni file, or has such files among the first below it."""
    if parse_location(store.uri).path.endswith(_TREVNI):
        return True
    return any(meta.key.endswith(_TREVNI) for meta in islice(store.list(), _LOOK_AT))


def _open_trevni(store: Store, version: int | None, timestamp: TimestampLike | None) -> Table:
    from trilake.trevni.tables.table import TrevniTable  # late: a Delta table is opened without it

    if version is not None or timestamp is not None:
        raise InvalidArgumentError(
            "Trevni files have no versions", help="leave version and timestamp out", file=store.uri
        )
    return TrevniTable(store.uri, options=store.options)


def _is_lance(store: Store) -> bool:
    from trilake.lance.versions.versions import exists  # late: its messages take time to load

    return exists(store)


def _open_lance(store: Store, version: int | None, timestamp: TimestampLike | None) -> Table:
    from trilake.lance.table import LanceTable  # late, as above

    return LanceTable(store, version=version, timestamp=timestamp, runtime=standard_engine().runtime)


#: How Trevni files are called, and how many files are looked at for one: a folder may hold millions of others.
_TREVNI = ".trv"
_LOOK_AT = 10_000

FORMATS: dict[str, Format] = {
    "delta": Format("delta", lambda store: DeltaLog(store, standard_engine()).exists(), _open_delta),
    "lance": Format("lance", _is_lance, _open_lance),
    "trevni": Format("trevni", _is_trevni, _open_trevni, tells_by_opening=False),
}


def format_named(name: str) -> Format:
    """The row of that name.  Raises ``InvalidArgumentError``."""
    row = FORMATS.get(name.lower())
    if row is None:
        raise InvalidArgumentError(f"format {name!r} is unknown", help=f"formats are {', '.join(sorted(FORMATS))}")
    return row


def open_table(
    store: Store, format: str | None, version: int | None = None, timestamp: TimestampLike | None = None
) -> Table:
    """The table at the store's root, of the format named or found there.

    What is there is found out by opening it: to look first would be to list the same folder twice.  Raises
    ``TableNotFoundError`` where there is none, and what opening raises.
    """
    if format is not None:
        return format_named(format).open(store, version, timestamp)
    for known in FORMATS.values():
        if known.tells_by_opening:
            try:
                return known.open(store, version, timestamp)
            except TableNotFoundError:
                continue
            except MissingDependencyError:  # which matters for tables of this format only
                if known.detect(store):
                    raise
        elif known.detect(store):
            return known.open(store, version, timestamp)
    raise _nothing_at(store)


def find_format(store: Store, format: str | None) -> Format:
    """The format named, or that of what lies in a store.  Raises ``TableNotFoundError`` where there is no table."""
    if format is not None:
        return format_named(format)
    for known in FORMATS.values():
        if known.detect(store):
            return known
    raise _nothing_at(store)


def _nothing_at(store: Store) -> TableNotFoundError:
    return TableNotFoundError(
        f"no table of a known format (not a {' table, not a '.join(n.title() for n in FORMATS)} table)",
        help="check the path, or name the format",
        file=store.uri,
    )
