"""Pages must lie inside of the file; checked one by one or all at once, with the same result."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from trilake.errors import CorruptFileError
from trilake.lance.file.schema import Field
from trilake.lance.v1 import decode
from trilake.lance.v1.decode import Decoder
from trilake.lance.v1.pages import PageTable

_SIZE = 1000
_NUMBERS = (0, 1, 7, 8, 100, 124, 125, 126, 500, 999, 1000, 1001, 8000, 8001, 2**40, 2**63 - 1, -1, -(2**63))


def _found(cells: np.ndarray[Any, Any], kind: str, few: int) -> tuple[str, dict[int, int]]:
    source: Any = SimpleNamespace(size=_SIZE, file="f")
    decoder = Decoder(source, PageTable(0, cells), {})
    with mock.patch.object(decode, "_FEW_BATCHES", few):
        try:
            decoder.check(Field("c", 0, -1, kind))
        except CorruptFileError as e:
            return str(e), {}
    return "", decoder._claimed


def test_few_and_many_pages_are_checked_alike() -> None:
    rng, good = random.Random(7), 0
    for _ in range(4000):
        kind = rng.choice(("int64", "bool", "string", "int8", "list"))
        numbers = _NUMBERS if rng.random() < 0.5 else _NUMBERS[:5]
        batches = rng.randint(0, 3)
        cells = np.array([rng.choice(numbers) for _ in range(2 * batches)], np.int64).reshape(1, batches, 2)
        few, many = (_found(cells, kind, n) for n in (100, -1))
        assert few == many, (kind, cells.tolist())
        good += not few[0]
    assert 400 < good < 3600
