"""Facts about a table as JSON values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from trilake.cli.tables import upkeep_of
from trilake.cli.values import python_values
from trilake.table.table import Table


def table_facts(table: Table) -> dict[str, Any]:
    """Facts about a table, first those of every format; ``rows`` is ``None`` where the metadata has no count."""
    return {name: _plain(value) for name, value in upkeep_of(table).facts(table).items()}


def _plain(value: Any) -> Any:
    return python_values(pa.array([value], value.type))[0] if isinstance(value, pa.Scalar) else value
