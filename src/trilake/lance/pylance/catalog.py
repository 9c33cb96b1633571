"""Locate datasets by their names in a catalog: a client of the package ``lance_namespace``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from trilake.common.extras import load
from trilake.errors import InvalidArgumentError, UnsupportedProtocolError

#: Times of temporary credentials, which are not options of a store.
_TIMES = frozenset({"expires_at_millis", "refresh_offset_millis"})


def located(
    uri: Any,
    storage_options: Mapping[str, str] | None,
    later: dict[str, Any],
    *,
    create: bool = False,
) -> tuple[Any, Mapping[str, str] | None]:
    """Return the URI and storage options of a dataset, which may be given by its name in a catalog.

    Removes ``namespace_client`` and ``table_id`` from ``later``; ``create`` declares a new table in the catalog.  The
    catalog's storage options override ``storage_options``.

    Raises ``InvalidArgumentError`` unless there is either a URI or a name, or if the catalog has no location, and
    ``UnsupportedProtocolError`` for a table whose versions the catalog manages.
    """
    client, table_id = later.pop("namespace_client", None), later.pop("table_id", None)
    named = client is not None and table_id is not None
    if (client is None) != (table_id is None) or named == (uri is not None):
        raise InvalidArgumentError(
            "pass either uri, or both namespace_client and table_id", help="the other arguments must be None"
        )
    if not named:
        return uri, storage_options
    requests = load("lance_namespace", "datasets of a catalog")
    if create:
        found = client.declare_table(requests.DeclareTableRequest(id=list(table_id)))
    else:
        found = client.describe_table(requests.DescribeTableRequest(id=list(table_id)))
    name = ".".join(table_id)
    if not found.location:
        raise InvalidArgumentError(f"the catalog has no location for table {name!r}")
    if getattr(found, "managed_versioning", None) is True:
        raise UnsupportedProtocolError(
            f"the catalog manages the versions of table {name!r}, which is not supported",
            help="open the dataset with pylance",
            file=os.fspath(found.location),
        )
    options = {**(storage_options or {}), **(found.storage_options or {})}
    return found.location, {key: value for key, value in options.items() if key not in _TIMES} or None
