"""Files are at most 1.1 times as large as those of Lance for the same rows."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import lance.file
import numpy as np
import pyarrow as pa
import pytest

from tests.lance.v2.files import differences, read, write
from trilake.lance.file import LanceFileReader

N = 20_000


@cache
def kinds() -> dict[str, pa.Array]:
    """Kinds of data that call for different codecs."""
    rng = np.random.default_rng(0)
    some = rng.random(N) < 0.1
    letters = np.array(list("etaoinshrdlucmf"))
    words = np.array(["".join(rng.choice(letters, k)) for k in rng.integers(3, 9, 2000)])
    ids = rng.integers(0, 1 << 60, N)

    def lists(sizes: int, values: pa.Array) -> pa.Array:
        ends = np.cumsum(rng.integers(0, sizes, N // 10)).astype("i4")
        return pa.ListArray.from_arrays(pa.array(np.append(np.int32(0), ends)), values)

    return {
        "sequence": pa.array(np.arange(N)),
        "random integers": pa.array(ids),
        "small integers": pa.array(rng.integers(0, 100, N)),
        "signed integers": pa.array(rng.integers(-300, 300, N).astype("i2")),
        "integers with nulls": pa.array(rng.integers(0, 10**6, N), mask=some),
        "integers with few nulls": pa.array(rng.integers(0, 10**6, N), mask=rng.random(N) < 0.0005),
        "floats": pa.array(rng.random(N)),
        "few floats": pa.array(np.round(rng.random(N), 1)),
        "times": pa.array(1_700_000_000_000_000 + np.arange(N) * 1000).cast(pa.timestamp("us")),
        "booleans": pa.array(rng.random(N) < 0.5, mask=some),
        "decimals": pa.array(rng.integers(0, 10**9, N)).cast(pa.decimal128(20, 0)),
        "few decimals": pa.array(rng.integers(0, 50, N)).cast(pa.decimal128(20, 0)),
        "long runs": pa.array(np.repeat(ids[:10], N // 10)),
        "short runs": pa.array(np.repeat(ids[: N // 5], 5)),
        "constant": pa.array(np.full(N, 5)),
        "constant with nulls": pa.array(np.full(N, 5), mask=some),
        "few words": pa.array(rng.choice(words[:50], N)),
        "words": pa.array(rng.choice(words, N), mask=some),
        "sentences": pa.array([" ".join(row) for row in rng.choice(words, (N // 4, 8))]),
        "paragraphs": pa.array([" ".join(row) for row in rng.choice(words, (N // 80, 80))]),
        "addresses": pa.array([f"https://example.com/{w}/{i}" for i, w in enumerate(rng.choice(words, N))]),
        "hex": pa.array([f"{i:x}" for i in ids.tolist()]),
        "books": pa.array([" ".join(rng.choice(words, 8000)) for _ in range(5)]),
        "binaries": pa.array([rng.bytes(int(k)) for k in rng.integers(0, 40, N)]),
        "vectors": pa.FixedSizeListArray.from_arrays(pa.array(rng.random(N * 16, dtype="f4")), 16),
        "wide vectors": pa.FixedSizeListArray.from_arrays(pa.array(rng.random(N * 16, dtype="f4")), 128),
        "lists": lists(20, pa.array(rng.integers(0, 1000, 2 * N))),
        "lists of words": lists(20, pa.array(rng.choice(words, 2 * N))),
        "structs": pa.StructArray.from_arrays([pa.array(ids), pa.array(some)], ["a", "b"], mask=pa.array(some)),
        "dictionary": pa.array(rng.choice(words, N)).dictionary_encode(),
        "nulls": pa.nulls(N, pa.int64()),
        "three rows": pa.array([1, 2, 3]),
    }


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("name", kinds())
def test_files_are_not_larger_than_those_of_lance(tmp_path: Path, version: str, name: str) -> None:
    table = pa.table({"a": kinds()[name]})
    path, written = write(tmp_path, table, version)
    assert not list(differences(table, read(path)))
    with lance.file.LanceFileWriter(str(tmp_path / "lance"), table.schema, version=version) as writer:
        writer.write_batch(table)
    expected = (tmp_path / "lance").stat().st_size
    assert written.size == Path(path).stat().st_size
    assert written.size <= 1.1 * expected


M = 200_000


@cache
def dense() -> dict[str, pa.Array]:
    """Items of which a byte of a file stores hundreds."""
    zeros = np.zeros(M, "i8")
    few = np.where(np.arange(M) % 50_000 == 7, 7, zeros)
    runs = np.repeat(np.arange(M // 1000), 1000)
    return {
        "zeros": pa.array(zeros),
        "few integers": pa.array(few),
        "few bytes": pa.array(few.astype("u1")),
        "few floats": pa.array(few.astype("f4")),
        "few nulls": pa.array(zeros.astype("i4"), mask=few > 0),
        "runs": pa.array(runs.astype("i4")),
        "runs of bytes": pa.array((runs % 3).astype("u1")),
        "runs of words": pa.array((runs % 3).astype("U1")),
    }


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("writer", ["trilake", "lance"])
@pytest.mark.parametrize("name", dense())
def test_dense_lists_are_read(
    tmp_path: Path, name: str, writer: str, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a small allowance for values without bytes, these lists stand for 40 million items."""
    for module in ("codecs", "column", "miniblock"):
        monkeypatch.setattr(f"trilake.lance.v2.{module}.MAX_UNBACKED", 1 << 13)
    ends = np.arange(0, M + 1, M // 4, dtype="i4")
    table = pa.table({"a": pa.ListArray.from_arrays(pa.array(ends), dense()[name])})
    if writer == "trilake":
        path = Path(write(tmp_path, table, version)[0])
    else:
        path = tmp_path / "lance"
        with lance.file.LanceFileWriter(str(path), table.schema, version=version) as out:
            out.write_batch(table)
    assert not list(differences(table, LanceFileReader(str(path)).read_all().to_table()))
