"""Open the table that a command's arguments name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from trilake.errors import InvalidArgumentError
from trilake.table.registry import row_named

if TYPE_CHECKING:
    from trilake.table.table import Table
    from trilake.table.upkeep import Upkeep

_VERSION = re.compile(r"(?s)(.+)@v(\d+)")


def key_values(texts: Sequence[str] | None, option: str) -> dict[str, str]:
    """Strings ``KEY=VALUE`` of an option as a mapping.  Raises ``InvalidArgumentError``.

    >>> key_values(["region=eu-west-1", "a=b=c"], "--option")
    {'region': 'eu-west-1', 'a': 'b=c'}
    """
    pairs: dict[str, str] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            # Not the value: it may be a secret.
            raise InvalidArgumentError(f"{option} {key!r:.80} has no value", help=f"write {option} KEY=VALUE")
        if pairs.get(key, value) != value:
            raise InvalidArgumentError(f"{option} {key!r:.80} is given twice, with two values", help="give it once")
        pairs[key] = value
    return pairs


def opened(
    uri: str,
    format: str | None = None,
    version: int | None = None,
    timestamp: str | None = None,
    options: Sequence[str] | None = None,
) -> Table:
    """A table as :func:`trilake.open` opens it.  Raises what that raises."""
    format_name = None if format is None else str(format)
    return opened_with(uri, key_values(options, "--option"), version, timestamp, format_name)


def opened_with(
    uri: str,
    options: Mapping[str, str],
    version: int | None = None,
    timestamp: str | None = None,
    format: str | None = None,
) -> Table:
    """As :func:`opened`, with options that are a mapping already."""
    from trilake import api

    table: Table = api.open(uri, format=format, version=version, timestamp=timestamp, storage_options=options)
    return table


def split_version(place: str) -> tuple[str, int | None]:
    """A path, and the version that ``@v3`` behind it asks for; a path that is there is taken as it is.

    >>> split_version("/no/such/table@v3"), split_version("s3://b/t")
    (('/no/such/table', 3), ('s3://b/t', None))
    """
    match = _VERSION.fullmatch(place)
    if match is None or os.path.exists(place):
        return place, None
    return match[1], int(match[2])


def upkeep_of(table: Table) -> Upkeep:
    """What the commands ask of the table's format."""
    return row_named(table.format).load().upkeep()
