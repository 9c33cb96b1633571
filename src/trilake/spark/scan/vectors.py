"""Deletion vectors in Spark: bitmaps as arrays in which an expression looks up each row.

Row *r* of a file is deleted if bit *r* mod 64 of word *r* / 64 is set.  In a classic session, the plan carries up to 1
MiB of words as a constant; otherwise, a broadcast join adds them to the rows.  Sparse vectors would have long runs of
empty words, so large ones are split into pages of 4,096 rows; empty pages are omitted, and a page table locates the
others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from trilake.spark.scan.manifest import NativeScanError
from trilake.spark.session.compat import arrow_frame, is_connect
from trilake.spark.session.internals import MISSING_NAME, number_at, say_once

#: Deleted rows of one file: a bitmap, or ascending row indexes.
Vector = BitMap64 | npt.NDArray[np.integer[Any]]

#: Columns for the words and the page table of all files.
_WORDS, _PAGES = "__trilake_words", "__trilake_pages"
#: The column of the word with a row's bit.
_WORD = "__trilake_word"
_PAGE = 12  # log2 of the rows of a page
_DENSE_WORDS = 8 << 20  # 64 MiB
#: The limit on deleted rows: each takes 8 bytes while the words are built.
_MOST_ROWS = 64 << 20
_MOST_WORDS = 64 << 20  # 512 MiB
#: Up to this size (1 MiB), the plan carries the words; Spark hashes and compares them during planning.
_CARRIED_WORDS = 1 << 17
#: Up to this size, the share of zeros does not matter.
_LITTLE_WORDS = 1 << 12


@dataclass(frozen=True)
class Words:
    """The vectors of many files, as a list of 64-bit words per file.  With ``pages``, word *w* of page *p* is at
    ``pages[p] * 64 + w``, and a negative entry is an empty page."""

    words: pa.ListArray
    pages: pa.ListArray | None

    @property
    def count(self) -> int:
        return len(self.words.flatten())

    @property
    def size(self) -> int:
        return int(self.words.nbytes + (self.pages.nbytes if self.pages is not None else 0))


def pack(vectors: Sequence[Vector]) -> Words:
    """Pack vectors into words.

    Raises ``NativeScanError`` if they would take too much memory on the executors.

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
    """The rows of ``df`` that are in no vector or, with ``select``, in a vector; may add columns.  ``slot`` is SQL for
    the number of a file's vector (or the one after the last), ``number`` for a row's position in its file."""
    # If this Spark does not have the row index, it is null and deleted rows would come back: raise instead.
    numbered = f"({number} IS NOT NULL OR raise_error('this Spark does not number the rows of files') IS NULL)"
    condition = f"{numbered} AND {'' if select else 'NOT '}"
    if (carried := _carried(spark, packed, slot, number)) is not None:
        return df.withColumn(_WORD, carried).where(condition + _is_set(_WORD, number))
    arrays = {"__slot": pa.array(range(len(packed.words)), pa.int32()), _WORDS: packed.words}
    if packed.pages is not None:
        arrays[_PAGES] = packed.pages
    marked = _deleted(_WORDS, _PAGES if packed.pages is not None else None, "__trilake_number")
    # A semi or anti join keeps Spark's size estimate of the scan.  It needs extra columns, because Spark 3.5 allows no
    # file metadata in a join condition.
    of_row = {"__trilake_slot": F.expr(slot), "__trilake_number": F.expr(number)}
    matches = F.expr(f"__trilake_slot = __slot AND {marked}")
    how = "left_semi" if select else "left_anti"
    fields = [pa.field(name, array.type, nullable=False) for name, array in arrays.items()]
    vectors = arrow_frame(spark, pa.table(list(arrays.values()), schema=pa.schema(fields)))
    joined = df.where(numbered).withColumns(of_row).join(F.broadcast(vectors), matches, how)
    return joined.drop(*of_row)


def _deleted(words: str, pages: str | None, number: str) -> str:
    """SQL that is true if a row's bit is set; missing words count as unset."""
    if pages is None:
        at = f"shiftright({number}, 6)"
    else:
        page = f"get({pages}, CAST(shiftright({number}, {_PAGE}) AS INT))"
        inside = f"(shiftright({number}, 6) & {(1 << (_PAGE - 6)) - 1})"
        at = f"shiftleft(CAST({page} AS BIGINT), {_PAGE - 6}) + {inside}"
    return _is_set(f"get({words}, CAST({at} AS INT))", number)


def _carried(spark: SparkSession, packed: Words, slot: str, number: str) -> Column | None:
    """A row's word, from a plan that carries all words; ``None`` if there are too many, or this Spark does not support
    it."""
    if packed.pages is not None or is_connect(spark):
        return None
    lengths = np.diff(packed.words.offsets.to_numpy())
    # Each file, with or without a vector, has a power of two of words, of which the last is zero.  The index of a word
    # is then composed of bits, which cannot overflow.
    bits = int(lengths.max(initial=0)).bit_length()
    files = len(lengths) + 1
    if files << bits > min(_CARRIED_WORDS, 8 * packed.count + _LITTLE_WORDS):
        return None
    words = np.zeros((files, 1 << bits), np.int64)
    words[:-1][np.arange(1 << bits) < lengths[:, None]] = packed.words.flatten().to_numpy()
    inside = f"CAST(least(shiftright({number}, 6), {(1 << bits) - 1}L) AS INT)"
    try:
        # least() keeps the index in range, whatever the file's time is.
        of_file = f"shiftleft(least({slot}, {files - 1}), {bits})"
        return number_at(spark, words.reshape(-1), F.expr(f"{of_file} | {inside}"))
    except MISSING_NAME as e:
        say_once("deletion vectors come through a join", e)
        return None


def _is_set(word: str, number: str) -> str:
    # Never null: Spark would drop a row without a number before the check for it raises.
    return f"(coalesce(shiftrightunsigned({word}, CAST({number} & 63 AS INT)) & 1, 0) != 0)"


def _rows(vector: Vector) -> npt.NDArray[np.int64]:
    rows = vector.to_array() if isinstance(vector, BitMap64) else vector
    # Row numbers from 2**63 on become negative and are rejected as too large.
    return np.asarray(rows, dtype=np.uint64).view(np.int64)


def _bits(rows: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.int64]:
    words = np.zeros(length, np.uint64)
    np.bitwise_or.at(words, rows >> 6, np.uint64(1) << (rows & 63).astype(np.uint64))
    return words.view(np.int64)


def _paged(rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    pages = rows >> _PAGE
    used = np.unique(pages)
    table = np.full(int(used[-1]) + 1 if len(used) else 0, -1, np.int32)
    table[used] = np.arange(len(used))
    packed = (table[pages].astype(np.int64) << _PAGE) + (rows & ((1 << _PAGE) - 1))
    return _bits(packed, len(used) << (_PAGE - 6)), table


def _lists(arrays: Sequence[npt.NDArray[Any]], type_: pa.DataType) -> pa.ListArray:
    """One list per array.  Neither lists nor items are nullable, which saves a check per row."""
    offsets = np.cumsum([0, *(len(a) for a in arrays)])
    flat = np.concatenate(arrays) if arrays else np.zeros(0, np.int64)
    item = pa.list_(pa.field("item", type_, nullable=False))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(flat, type_), type=item)


def _too_large() -> NativeScanError:
    return NativeScanError("the deletion vectors are too large to be sent to every executor")
