"""Table features whose tables are not read here."""

from __future__ import annotations

from trilake.delta.protocol.feature import Feature

#: Commits of such a table live in a catalogue first: the file system alone may miss the newest ones.
CATALOG_MANAGED = Feature(
    "catalogManaged",
    3,
    7,
    reads=False,
    writes=False,
    needs=("inCommitTimestamp", "vacuumProtocolCheck"),
    removal=None,
)
