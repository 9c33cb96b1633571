"""An overwrite with another schema suggests ``overwriteSchema``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import trilake
from trilake.errors import SchemaMismatchError


@pytest.mark.parametrize(
    ("rows", "more", "offered"),
    [
        ({"id": ["x"], "p": ["a"]}, {}, True),
        ({"id": [1], "p": ["a"], "z": [1]}, {}, True),
        ({"id": [1], "p": ["a"]}, {"partition_by": "id"}, True),
        ({"id": ["x"], "p": ["a"]}, {"replace_where": "p = 'a'"}, False),
        ({"id": ["x"], "p": ["a"]}, {"partition_overwrite": "dynamic"}, False),
        ({"id": ["x"], "p": ["a"]}, {"mode": "append"}, False),
    ],
)
def test_overwrite_with_another_schema_suggests_the_option(
    tmp_path: Path, rows: dict[str, Any], more: dict[str, Any], offered: bool
) -> None:
    trilake.write({"id": [1], "p": ["a"]}, tmp_path, partition_by="p")
    with pytest.raises(SchemaMismatchError) as result:
        trilake.write(rows, tmp_path, **{"mode": "overwrite", **more})
    assert ('option("overwriteSchema", "true")' in str(result.value.help)) is offered
    assert result.value.condition in ("DELTA_METADATA_MISMATCH", "DELTA_FAILED_TO_MERGE_FIELDS")
