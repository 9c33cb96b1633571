"""Deletion vectors inside Spark's plan: bitmaps as arrays that an expression looks into.

Row *r* of a file is deleted where bit *r* mod 64 of word *r* / 64 is set.  The words of all files are one value of the
plan.  A vector far apart bits would make long runs of empty words, so beyond some size the words are cut into pages of
4,096 rows, empty pages are left out, and a page table says where the others are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from trilake.spark.scan.manifest import NativeScanError
from trilake.spark.session.compat import HAS_SCALARS, arrow_frame, is_connect
from trilake.spark.session.internals import number_at, say_once

#: Deleted rows of one file: a bitmap, or ascending row indexes.
Vector = BitMap64 | npt.NDArray[np.integer[Any]]

#: Parquet's generated column of row numbers, as a column of the read schema.  Spark refuses it beside
#: ``_metadata.row_index``, which is the same.
ROW_INDEX = "_tmp_metadata_row_index"
#: Columns for the words and the page table of all files.
_WORDS, _PAGES = "__trilake_words", "__trilake_pages"
#: The column of the one word that a row looks into.
_WORD = "__trilake_word"
_PAGE = 12  # log2 of the rows of a page
_DENSE_WORDS = 8 << 20  # 64 MiB
#: Deleted rows in all: each takes 8 bytes while the words are made, though a bitmap of runs is smaller.
_MOST_ROWS = 64 << 20
_MOST_WORDS = 64 << 20  # 512 MiB
#: Up to here the words go with each task; above, they are broadcast, which costs a query 50 ms.
_SMALL_WORDS = 1 << 20
#: Up to here the plan itself carries the words: a megabyte, that Spark hashes and compares as it plans.
_CARRIED_WORDS = 1 << 17
#: Up to here no one minds how many of them are zeros.
_LITTLE_WORDS = 1 << 12


@dataclass(frozen=True)
class Words:
    """The vectors of many files as arrays.

    ``words`` has one list a file: 64-bit words.  With ``pages``, also one list a file, word *w* of row page *p* is at
    ``pages[p] * 64 + w``, and a negative page is empty.
    """

    words: pa.ListArray
    pages: pa.ListArray | None

    @property
    def count(self) -> int:
        """Number of words in all."""
        return len(self.words.flatten())

    @property
    def size(self) -> int:
        """Bytes of words and pages in all."""
        return int(self.words.nbytes + (self.pages.nbytes if self.pages is not None else 0))


def pack(vectors: Sequence[Vector]) -> Words:
    """Vectors as words.

    Raises ``NativeScanError`` where they would take more memory than every executor should give.

    >>> packed = pack([BitMap64([0, 64, 66])])
    >>> packed.words.to_pylist(), packed.pages
    ([[1, 5]], None)
    """
    if sum(len(v) for v in vectors) > _MOST_ROWS:
        raise _too_large()
    rows = [_rows(v) for v in vectors]
    if any(r[-1] >> 50 for r in rows if len(r)):
        raise _too_large()
    lengths = [int(r[-1] >> 6) + 1 if len(r) else 0 for r in rows]
    if sum(lengths) <= _DENSE_WORDS:
        return Words(_lists([_bits(r, n) for r, n in zip(rows, lengths, strict=True)], pa.int64()), None)
    if sum(n >> (_PAGE - 6) for n in lengths) > _MOST_WORDS:
        raise _too_large()
    paged = [_paged(r) for r in rows]
    if sum(len(words) for words, _ in paged) > _MOST_WORDS:
        raise _too_large()
    return Words(_lists([w for w, _ in paged], pa.int64()), _lists([p for _, p in paged], pa.int32()))


def alive(
    spark: SparkSession, df: DataFrame, packed: Words, slot: str, *, number: str, select: bool = False
) -> DataFrame:
    """The rows of ``df`` that are in no vector, and maybe more columns; with ``select``, those that are in one.

    Parameters
    ----------
    df: a scan.
    packed: the vectors.
    slot: an SQL, which of them belongs to a row's file; the number behind the last for a file without one.
    number: an SQL, the number of a row in its file.
    """
    # A Spark that does not know the column would find it in no file, and every deleted row would be back.
    numbered = f"({number} IS NOT NULL OR raise_error('this Spark does not number the rows of files') IS NULL)"
    if (carried := _carried(spark, packed, slot, number)) is not None:
        marked = _is_set(_WORD, number)
        return df.withColumn(_WORD, carried).where(f"{numbered} AND {marked if select else f'NOT {marked}'}")
    if packed.count <= _SMALL_WORDS and HAS_SCALARS:
        # One row, one scalar subquery for all: Spark evaluates it once.
        level = _level(packed)
        if level is not None:
            df = df.withColumn(_WORDS, _frame(spark, {_WORDS: _one(level)}).scalar())
            marked = _deleted_of_level(slot, len(level) // len(packed.words), number)
            return df.where(f"{numbered} AND {marked if select else f'NOT {marked}'}")
        arrays = {_WORDS: packed.words, _PAGES: packed.pages}
        scalars = {n: _frame(spark, {n: _one(a)}).scalar() for n, a in arrays.items() if a is not None}
        for name, scalar in scalars.items():
            df = df.withColumn(name, scalar)
        marked = _deleted(f"get({_WORDS}, {slot})", f"get({_PAGES}, {slot})" if _PAGES in scalars else None, number)
        return df.where(f"{numbered} AND {marked if select else f'NOT {marked}'}")
    arrays = {"__slot": pa.array(range(len(packed.words)), pa.int32()), _WORDS: packed.words}
    if packed.pages is not None:
        arrays[_PAGES] = packed.pages
    marked = _deleted(_WORDS, _PAGES if packed.pages is not None else None, "__trilake_number")
    # A semi or anti join, so that Spark's estimate of the size stays that of the scan.
    # Columns of their own, because Spark 3.5 takes no metadata of files in the condition of a join.
    of_row = {"__trilake_slot": F.expr(slot), "__trilake_number": F.expr(number)}
    matches = F.expr(f"__trilake_slot = __slot AND {marked}")
    how = "left_semi" if select else "left_anti"
    joined = df.where(numbered).withColumns(of_row).join(F.broadcast(_frame(spark, arrays)), matches, how)
    return joined.drop(*of_row)


def _deleted(words: str, pages: str | None, number: str) -> str:
    """Whether the bit of a row is set; what is not there is not set."""
    if pages is None:
        at = f"shiftright({number}, 6)"
    else:
        page = f"get({pages}, CAST(shiftright({number}, {_PAGE}) AS INT))"
        inside = f"(shiftright({number}, 6) & {(1 << (_PAGE - 6)) - 1})"
        at = f"shiftleft(CAST({page} AS BIGINT), {_PAGE - 6}) + {inside}"
    return _is_set(f"get({words}, CAST({at} AS INT))", number)


def _level(packed: Words) -> pa.Array | None:
    """The words of all files in one array, where each has as many: those of its vector and zeros, one at least.

    A list in a list is an object of its own for every row that looks into it, which takes as long as all else.
    ``None`` where files are so unlike that this would be mostly zeros.
    """
    if packed.pages is not None or not len(packed.words):
        return None
    lengths = np.diff(packed.words.offsets.to_numpy())
    each = int(lengths.max()) + 1
    if len(lengths) * each > min(_SMALL_WORDS, 4 * packed.count + _LITTLE_WORDS):
        return None
    return pa.array(_in_rows(packed, len(lengths), each))


def _in_rows(packed: Words, files: int, each: int) -> npt.NDArray[np.int64]:
    """The words of all vectors, so many of each, with zeros at its end; and zeros for the files behind the vectors."""
    lengths = np.diff(packed.words.offsets.to_numpy())
    words = np.zeros((files, each), np.int64)
    words[: len(lengths)][np.arange(each) < lengths[:, None]] = packed.words.flatten().to_numpy()
    return words.reshape(-1)


def _carried(spark: SparkSession, packed: Words, slot: str, number: str) -> Column | None:
    """The word of a row, as a column of a plan that carries all words; ``None`` where Spark cannot be told, or they are
    too many.

    The subquery that would bring them takes as long as a scan of half a million rows.
    """
    if packed.pages is not None or is_connect(spark):
        return None
    lengths = np.diff(packed.words.offsets.to_numpy())
    # Each file has a power of two of words, one of zeros at its end at least, and so have files without a vector: the
    # place of a word is put together from bits, and nothing is multiplied or can be too large.
    bits = int(lengths.max(initial=0)).bit_length()
    files = len(lengths) + 1
    if files << bits > min(_CARRIED_WORDS, 8 * packed.count + _LITTLE_WORDS):
        return None
    inside = f"CAST(least(shiftright({number}, 6), {(1 << bits) - 1}L) AS INT)"
    try:
        # No place is outside of the words, whatever the time of a file says.
        of_file = f"shiftleft(least({slot}, {files - 1}), {bits})"
        return number_at(spark, _in_rows(packed, files, 1 << bits), F.expr(f"{of_file} | {inside}"))
    except Exception as e:  # noqa: BLE001 - py4j's errors, and what a renamed class of Spark gives
        say_once("deletion vectors come through a subquery", e)
        return None


def _deleted_of_level(slot: str, each: int, number: str) -> str:
    """Whether the bit of a row is set in words of :func:`_level`; rows behind a vector have the zeros at its end, and
    files without one a place behind all words.
    """
    at = f"CAST({slot} * {each}L + least(shiftright({number}, 6), {each - 1}L) AS INT)"
    return _is_set(f"get({_WORDS}, {at})", number)


def _is_set(word: str, number: str) -> str:
    # Were it null for a row without a number, Spark would leave the row out before it looks whether there is one.
    return f"(coalesce(shiftrightunsigned({word}, CAST({number} & 63 AS INT)) & 1, 0) != 0)"


def _rows(vector: Vector) -> npt.NDArray[np.int64]:
    rows = vector.to_array() if isinstance(vector, BitMap64) else vector
    # A row number beyond what is signed comes out negative, and is as far from any file as others that are refused.
    return np.asarray(rows, dtype=np.uint64).view(np.int64)


def _bits(rows: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.int64]:
    words = np.zeros(length, np.uint64)
    np.bitwise_or.at(words, rows >> 6, np.uint64(1) << (rows & 63).astype(np.uint64))
    return words.view(np.int64)


def _paged(rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """The words of the pages that hold bits, and the page table."""
    pages = rows >> _PAGE
    used = np.unique(pages)
    table = np.full(int(used[-1]) + 1 if len(used) else 0, -1, np.int32)
    table[used] = np.arange(len(used))
    packed = (table[pages].astype(np.int64) << _PAGE) + (rows & ((1 << _PAGE) - 1))
    return _bits(packed, len(used) << (_PAGE - 6)), table


def _lists(arrays: Sequence[npt.NDArray[Any]], type_: pa.DataType) -> pa.ListArray:
    """A list an array.  Neither lists nor items are nullable, which saves a check a row."""
    offsets = np.cumsum([0, *(len(a) for a in arrays)])
    flat = np.concatenate(arrays) if arrays else np.zeros(0, np.int64)
    item = pa.list_(pa.field("item", type_, nullable=False))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(flat, type_), type=item)


def _one(lists: pa.Array) -> pa.ListArray:
    """All lists, or numbers, as a single value."""
    type_ = pa.list_(pa.field("item", lists.type, nullable=False))
    return pa.ListArray.from_arrays(pa.array([0, len(lists)], pa.int32()), lists, type=type_)


def _frame(spark: SparkSession, arrays: Mapping[str, pa.Array]) -> DataFrame:
    fields = [pa.field(name, array.type, nullable=False) for name, array in arrays.items()]
    return arrow_frame(spark, pa.table(list(arrays.values()), schema=pa.schema(fields)))


def _too_large() -> NativeScanError:
    return NativeScanError("the deletion vectors are too large to be sent to every executor")
