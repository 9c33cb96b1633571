"""Command line maintenance of Trevni files, see :class:`trilake.table.upkeep.Upkeep`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow.compute as pc

from trilake.table.table import Table
from trilake.table.upkeep import Upkeep, common_facts
from trilake.trevni.tables.table import TrevniTable


class TrevniUpkeep(Upkeep):
    """Maintenance of Trevni files, which have no versions."""

    def facts(self, table: Table) -> dict[str, Any]:
        files = table.files()
        rows = int(pc.sum(files["num_records"]).as_py() or 0)
        return {**common_facts(table, None, rows, files), "partition_columns": _partitions(table)}

    def columns(self, table: Table) -> Iterator[dict[str, Any]]:
        partitions = _partitions(table)
        for column in super().columns(table):
            yield {**column, "role": "partition" if column["name"] in partitions else None}


def _partitions(table: Table) -> list[str]:
    assert isinstance(table, TrevniTable)
    return table.partition_names


UPKEEP = TrevniUpkeep()
