"""Ranges of a mapped file, gathered into one buffer: short and long, of equal and different sizes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from trilake.errors import CorruptFileError
from trilake.lance.file.sources import MappedSource, Pieces, gathered

_DATA = np.random.default_rng(3).integers(0, 256, 300_000, np.uint8).tobytes()


@pytest.mark.parametrize(
    "lengths",
    [
        [8] * 50,
        [4096] * 50,
        [5000] * 50,
        [70_000, 70_000],
        [0, 5, 0, 9000, 20_000],
        [1, 2, 3],
        [0, 0],
        [],
        [9000, 0, 9000],
    ],
)
def test_ranges_are_concatenated(lengths: list[int]) -> None:
    starts = np.random.default_rng(1).integers(0, len(_DATA) - 70_000, len(lengths))
    pieces = Pieces(starts, np.array(lengths, np.int64))
    found = MappedSource("f", pa.py_buffer(_DATA)).run(gathered(pieces))
    assert found.tobytes() == b"".join(_DATA[s : s + n] for s, n in zip(starts.tolist(), lengths, strict=True))


def test_ranges_outside_the_file_are_rejected() -> None:
    source = MappedSource("f", pa.py_buffer(_DATA))
    for starts, lengths in (([0, 299_000], [8000, 8000]), ([-1], [5000]), ([0], [-1])):
        with pytest.raises(CorruptFileError):
            source.fetch_all([Pieces(np.array(starts), np.array(lengths))])
