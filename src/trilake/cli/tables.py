"""Open the table that a command's arguments name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from trilake.errors import InvalidArgumentError
from trilake.table.registry import format_named

if TYPE_CHECKING:
    from trilake.table.table import Table
    from trilake.table.upkeep import Upkeep

_VERSION = re.compile(r"(?s)(.+)@v(\d+)")


def key_values(strings: Sequence[str] | None, option: str) -> dict[str, str]:
    """Parse ``KEY=VALUE`` strings of an option.  Raises ``InvalidArgumentError``.

    >>> key_values(["region=eu-west-1", "a=b=c"], "--option")
    {'region': 'eu-west-1', 'a': 'b=c'}
    """
    pairs: dict[str, str] = {}
    for string in strings or ():
        key, equals, value = string.partition("=")
        if not equals or not key:
            # Without the value, which may be a secret.
            raise InvalidArgumentError(f"{option} {key!r:.80} has no value", help=f"write {option} KEY=VALUE")
        if pairs.get(key, value) != value:
            raise InvalidArgumentError(f"{option} {key!r:.80} has two values", help="pass it once")
        pairs[key] = value
    return pairs


def opened(
    uri: str,
    format: str | None = None,
    version: int | None = None,
    timestamp: str | None = None,
    options: Sequence[str] | None = None,
) -> Table:
    """Open a table with options as strings."""
    return opened_with(uri, key_values(options, "--option"), version, timestamp, format)


def opened_with(
    uri: str,
    options: Mapping[str, str],
    version: int | None = None,
    timestamp: str | None = None,
    format: str | None = None,
) -> Table:
    """:func:`opened`, with parsed options."""
    from trilake import api

    table: Table = api.open(uri, format=format, version=version, timestamp=timestamp, storage_options=options)
    return table


def split_version(place: str) -> tuple[str, int | None]:
    """Split a path and its version ``@v3``; an existing path has none.

    >>> split_version("/no/such/table@v3"), split_version("s3://b/t")
    (('/no/such/table', 3), ('s3://b/t', None))
    """
    match = _VERSION.fullmatch(place)
    if match is None or os.path.exists(place):
        return place, None
    return match[1], int(match[2])


def upkeep_of(table: Table) -> Upkeep:
    """The commands of the table's format."""
    return format_named(table.format).upkeep()
