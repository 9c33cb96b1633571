"""Add actions of existing files: a batch equals the single actions."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import trilake
from tests.delta.tables import new_uri
from trilake.delta.commit.transaction import add_action, add_actions
from trilake.delta.table import ArrowDeltaTable

_VALUES: dict[str, Any] = {
    "stats": '{"numRecords":1}',
    "tags": [("a", "b"), ("c", None)],
    "baseRowId": 7,
    "deletionVector": {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1},
}


def _adds() -> pa.Table:
    uri = new_uri()
    for n in range(3):
        trilake.write(pa.table({"p": [f"p{n}", None], "v": [n, n]}), uri, mode="append", partition_by=["p"])
    table = trilake.open(uri)
    assert isinstance(table, ArrowDeltaTable)
    return table.log.snapshot().adds


def _with(adds: pa.Table, name: str, values: list[Any]) -> pa.Table:
    place = adds.schema.get_field_index(name)
    return adds.set_column(
        place, adds.schema.field(name), pa.chunked_array([pa.array(values, adds.schema.types[place])])
    )


@pytest.mark.parametrize("some", [(), ("stats",), ("tags", "deletionVector"), tuple(_VALUES)])
@pytest.mark.parametrize("every", [True, False])
def test_batch_of_add_actions_matches_single_ones(some: tuple[str, ...], every: bool) -> None:
    adds = _adds()
    for name in some:
        adds = _with(adds, name, [_VALUES[name] if every or n % 2 else None for n in range(adds.num_rows)])
    expected = [add_action(row, dataChange=True, size=3) for row in adds.to_pylist()]
    assert add_actions(adds, dataChange=True, size=3) == expected
    assert add_actions(adds.slice(0, 0), dataChange=True) == []
