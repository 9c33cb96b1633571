"""Unsupported table features, and what to do with a table that has one."""

from __future__ import annotations

from trilake.delta.protocol.feature_definition import Feature


def _catalog_managed(name: str) -> Feature:
    """A catalog holds the newest commits of such a table; the file system may lack them."""
    return Feature(
        name,
        3,
        7,
        reads=False,
        writes=False,
        needs=("inCommitTimestamp", "vacuumProtocolCheck"),
        removal=None,
        help="a catalog manages the table's commits: use an engine that is connected to that catalog, or use that"
        " engine to copy the rows into a table without the feature",
    )


def _redirect(name: str, reader: int | None) -> Feature:
    """The table has moved; the property with the feature's name says where."""
    return Feature(
        name,
        reader,
        7,
        reads=reader is None,
        writes=False,
        removal=None,
        help=f"its files have moved: open the table that its property delta.{name} names",
    )


CATALOG_MANAGED, CATALOG_OWNED = _catalog_managed("catalogManaged"), _catalog_managed("catalogOwned-preview")
REDIRECT, REDIRECT_WRITES = _redirect("redirectReaderWriter-preview", 3), _redirect("redirectWriterOnly-preview", None)
