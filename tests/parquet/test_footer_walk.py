"""A batch walk of footers gives the same result as single walks, also for damaged ones."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tests.delta.tables import parquet
from tests.mutations import footer_start, mutated
from trilake.parquet.files import DAMAGE, Leaf, checked_bytes, end_of_schema, leaves_of, open_parquet
from trilake.parquet.footer_walk import ABSENT, FEWEST, walk_alike


def _footer(data: bytes) -> bytes:
    return data[footer_start(data) : -8]


def _table(random: Random, rows: int) -> pa.Table:
    def some(make: Any) -> list[Any]:
        nulls = random.choice((0.0, 0.3, 1.0))
        return [None if random.random() < nulls else make() for _ in range(rows)]

    return pa.table(
        {
            "i": pa.array(some(lambda: random.randrange(-5, 2**31)), pa.int32()),
            "l": pa.array(some(lambda: [random.randrange(9)] * random.randrange(3)), pa.list_(pa.int64())),
            "t": pa.array(some(lambda: "x" * random.randrange(300)), pa.string()),
            "b": pa.array(some(lambda: random.random() < 0.5), pa.bool_()),
            "d": pa.array(some(lambda: random.randrange(99)), pa.int64()).cast(pa.decimal128(25, 2)),
            "n": pa.array(
                some(lambda: {"x": 0.5, "y": b"abcde"}), pa.struct([("x", pa.float64()), ("y", pa.binary(5))])
            ),
        }
    )


_OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"row_group_size": 7},
    {"use_dictionary": ["t"], "compression": "none"},
    {"write_page_index": True, "data_page_version": "2.0"},
    {"write_statistics": ["i", "d"]},
)


def _files(random: Random, count: int) -> list[bytes]:
    return [parquet(_table(random, random.randrange(1, 30)), **random.choice(_OPTIONS)) for _ in range(count)]


def _arrow(footer: bytes) -> Any:
    return open_parquet(pa.BufferReader(footer + len(footer).to_bytes(4, "little") + b"PAR1")).metadata


def _rests(files: list[bytes], start: int, leaves: list[Leaf]) -> list[bytes]:
    walked = walk_alike([_footer(data) for data in files], [len(data) for data in files], start, leaves)
    return [rest if sound else b"" for rest, sound in zip(walked.rests, walked.sound.tolist(), strict=True)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("damaged", [False, True])
def test_batch_footer_walk_matches_single_walks(damaged: bool, seed: int) -> None:
    """Every accepted footer passes the single checks with the same numbers; valid ones with common layouts are
    accepted."""
    random = Random(seed)
    files = _files(random, 150)
    footers = [_footer(data) for data in files]
    start = end_of_schema(footers[0])
    assert start is not None
    assert all(f.startswith(footers[0][:start]) for f in footers)
    leaves = leaves_of(_arrow(footers[0]).schema)
    whole = set(_rests(files, start, leaves))
    if damaged:
        footers = [f[:start] + mutated(f[start:], random) if random.random() < 0.5 else f for f in footers]
    walked = walk_alike(footers, [len(data) for data in files], start, leaves)
    assert walked.sound.sum() > (30 if damaged else 80)
    for n, footer in enumerate(footers):
        if not walked.sound[n]:
            continue
        assert footer.endswith(walked.rests[n])
        try:
            metadata = _arrow(footer)
            groups = checked_bytes(footer, len(files[n]), metadata)
        except (*DAMAGE, OSError):
            # What follows the row groups is not walked: the caller reads it.
            assert walked.rests[n] not in whole
            continue
        assert (walked.rows[n], walked.group_counts[n]) == (metadata.num_rows, len(groups))
        for g, chunks in enumerate(groups):
            assert walked.groups[g].rows[n] == metadata.row_group(g).num_rows
            for chunk, ours in zip(chunks, walked.groups[g].columns, strict=True):
                nulls = ABSENT if chunk.null_count is None else chunk.null_count
                assert ours.null_counts[n] == nulls


def test_footer_with_huge_counts_is_rejected_early() -> None:
    """Counts and lengths beyond the size of the footer reject it at once."""
    footers = [_footer(data) for data in _files(Random(1), 1) * (2 * FEWEST)]
    start = end_of_schema(footers[0])
    assert start is not None
    rows = footers[0].index(b"\x19", start)  # the list of row groups
    huge = footers[0][: rows + 1] + b"\xfc\xff\xff\xff\xff\x7f" + footers[0][rows + 2 :]
    walked = walk_alike([huge] * (2 * FEWEST), [1 << 20] * (2 * FEWEST), start, leaves_of(_arrow(footers[0]).schema))
    assert not walked.sound.any()
    assert not walked.groups


def test_invalid_schemas_are_not_walked_in_a_batch() -> None:
    footer = _footer(_files(Random(1), 1)[0])
    assert end_of_schema(footer) is not None
    assert end_of_schema(b"\x19" + footer[1:]) is None
    assert end_of_schema(footer[:10]) is None
    assert end_of_schema(b"") is None
