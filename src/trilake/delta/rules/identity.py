"""Identity columns: generated values that are unique among all rows.

Protocol: *Identity Columns*.  The k-th value of a column is ``start + k * step``; ``highWaterMark`` is the furthest
value so far, and new values lie beyond it.  The tasks of a write cannot coordinate, so each takes blocks of indexes
that no other task takes: values are unique, with gaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.schema import StructField, StructType
from trilake.delta.protocol.schema_edit import without_keys
from trilake.errors import CorruptLogError, IdentityOverflowError, InvalidArgumentError

START = "delta.identity.start"
STEP = "delta.identity.step"
HIGH_WATER_MARK = "delta.identity.highWaterMark"
ALLOW_EXPLICIT_INSERT = "delta.identity.allowExplicitInsert"

_LEAST, _GREATEST = -(1 << 63), (1 << 63) - 1
#: Indexes per block, if the column has room for enough blocks.
_BLOCK = 1 << 16
#: The number of blocks that must fit: for about 4,000 tasks, or for one task with 4,000 blocks.
_BLOCKS = 1 << 23


@dataclass(frozen=True)
class IdentityColumn:
    """An identity column; ``mark`` is its high-water mark, ``None`` before the first value.

    >>> column = IdentityColumn("id", start=1, step=10, mark=21)
    >>> column.first_index, column.value(column.first_index)
    (3, 31)
    """

    name: str
    start: int
    step: int
    mark: int | None = None
    explicit: bool = False

    @property
    def first_index(self) -> int:
        """The index of the first value beyond the mark, even if the mark is not a value of the column."""
        if self.mark is None:
            return 0
        # For a negative step all signs are inverted.
        sign = 1 if self.step > 0 else -1
        return max(0, (self.mark - self.start) * sign // abs(self.step) + 1)

    @property
    def room(self) -> int:
        """How many values remain beyond the mark."""
        end = _GREATEST if self.step > 0 else _LEAST
        return max(0, (end - self.start) // self.step + 1 - self.first_index)

    def value(self, index: int) -> int:
        """The value at an index.  Raises ``IdentityOverflowError`` if it exceeds 64 bits."""
        value = self.start + index * self.step
        if not _LEAST <= value <= _GREATEST:
            raise IdentityOverflowError(
                f"identity column {self.name!r} has no values left: the next one would be {value}",
                help="write fewer rows, or copy the table into one whose identity starts lower or has a smaller step",
                column=self.name,
            )
        return value

    def further(self, a: int | None, b: int | None) -> int | None:
        """The value that is further in the direction of the step; ``None`` counts as nearest."""
        if a is None or b is None:
            return b if a is None else a
        return max(a, b) if self.step > 0 else min(a, b)

    def reach(self, values: pa.Array | pa.ChunkedArray) -> int | None:
        """The furthest of ``values`` that are beyond the mark and not before ``start``; ``None`` if there are none."""
        furthest = (pc.max if self.step > 0 else pc.min)(values).as_py()
        if furthest is None or self.further(furthest, self.start) != furthest:
            return None
        return None if self.mark is not None and self.further(furthest, self.mark) == self.mark else int(furthest)

    def shift(self, mark: int | None) -> int:
        """What to add to values that were generated beyond this column's mark if the mark is now ``mark``.

        >>> IdentityColumn("id", start=1, step=2).shift(9)
        10
        """
        return (replace(self, mark=self.further(self.mark, mark)).first_index - self.first_index) * self.step


def identity_columns(schema: StructType) -> tuple[IdentityColumn, ...]:
    """The identity columns of a table.

    Raises ``CorruptLogError`` if the metadata of one is incomplete or invalid.
    """
    return tuple(_identity(f) for f in schema.fields if START in f.metadata or STEP in f.metadata)


def _identity(f: StructField) -> IdentityColumn:
    if str(f.type) != "long":
        raise CorruptLogError(f"identity column {f.name!r} is of type {f.type}, not long", column=f.name)
    start, step, mark = (_long(f, key) for key in (START, STEP, HIGH_WATER_MARK))
    if start is None or not step:
        raise CorruptLogError(f"identity column {f.name!r} has start {start} and step {step}", column=f.name)
    explicit = str(f.metadata.get(ALLOW_EXPLICIT_INSERT, "false")).lower() == "true"
    return IdentityColumn(f.name, start, step, mark, explicit)


def _long(f: StructField, key: str) -> int | None:
    value: Any = f.metadata.get(key)
    if value is None:
        return None
    try:
        number = int(value)
    except (TypeError, ValueError) as e:
        raise CorruptLogError(f"{key} of column {f.name!r} is not a number: {str(value)[:80]!r}", column=f.name) from e
    if not _LEAST <= number <= _GREATEST:
        raise CorruptLogError(f"{key} of column {f.name!r} does not fit into 64 bits: {number}", column=f.name)
    return number


def identity_metadata(start: int = 1, step: int = 1, *, explicit: bool = False) -> dict[str, Any]:
    """Field metadata that makes a new ``long`` column an identity column.  Raises ``InvalidArgumentError``.

    >>> identity_metadata(step=-1)["delta.identity.step"]
    -1
    """
    if step == 0:
        raise InvalidArgumentError(
            "the step of an identity column cannot be 0", condition="DELTA_IDENTITY_COLUMNS_ILLEGAL_STEP"
        )
    if not _LEAST <= start <= _GREATEST or not _LEAST <= step <= _GREATEST:
        raise InvalidArgumentError("start and step of an identity column must fit into 64 bits")
    return {START: start, STEP: step, ALLOW_EXPLICIT_INSERT: explicit}


class Allocator:
    """Allocates the values of one column for the rows of one task.

    ``column`` has the mark that the write is based on.  ``task`` is the number of this task among ``tasks``, which is
    ``None`` if unknown.  A single task gets values without gaps.
    """

    def __init__(self, column: IdentityColumn, task: int = 0, tasks: int | None = None) -> None:
        if task < 0 or (tasks is not None and task >= tasks):
            raise InvalidArgumentError(f"task {task} is not one of {tasks} tasks")
        self.column, self.task, self.tasks = column, task, tasks
        self.mark: int | None = None
        self._first = column.first_index
        # The largest power of two of which enough blocks fit.
        self._size = min(_BLOCK, 1 << max(0, (column.room // _BLOCKS).bit_length() - 1))
        self._next = 0

    def take(self, count: int) -> pa.Array:
        """The next ``count`` values as ``int64``.  Raises ``IdentityOverflowError``."""
        parts = []
        while count:
            index, remaining = self._position()
            length = min(count, remaining)
            first, last = self.column.value(index), self.column.value(index + length - 1)
            # The product may overflow and the sum then overflow back; both ends have been checked.
            parts.append(np.arange(length, dtype=np.int64) * np.int64(self.column.step) + np.int64(first))
            self.mark = self.column.further(self.mark, last)
            self._next += length
            count -= length
        return pa.array(np.concatenate(parts) if parts else np.empty(0, np.int64))

    def _position(self) -> tuple[int, int]:
        """The index of this task's next row, and the number of consecutive indexes from there on."""
        if self.tasks == 1:
            return self._first + self._next, _GREATEST
        block, within = divmod(self._next, self._size)
        # The number of this block among the blocks of all tasks: a bijection.
        if self.tasks is not None:
            number = block * self.tasks + self.task
        else:
            diagonal = self.task + block
            number = diagonal * (diagonal + 1) // 2 + block  # Cantor's pairing function
        return self._first + number * self._size + within, self._size - within


def updated_schema(schema: StructType, marks: Sequence[Mapping[str, int]]) -> StructType:
    """The schema with high-water marks advanced to the furthest of ``marks``, one mapping per task.

    Returns the same object if nothing changes.
    """
    moved: dict[str, int] = {}
    for column in identity_columns(schema):
        mark = reduce(column.further, (values.get(column.name) for values in marks), column.mark)
        if mark is not None and mark != column.mark:
            moved[column.name] = mark
    if not moved:
        return schema
    return StructType(
        tuple(
            replace(f, metadata={**f.metadata, HIGH_WATER_MARK: moved[f.name]}) if f.name in moved else f
            for f in schema.fields
        )
    )


def shifts(before: StructType, now: StructType, columns: Iterable[str]) -> dict[str, int]:
    """By how much to shift generated values, by column, after another commit advanced the marks from ``before`` to
    ``now``.

    ``columns`` are the columns whose values were all generated; columns without a shift are left out.
    """
    previous = {c.name: c for c in identity_columns(before)}
    marks = {c.name: c.mark for c in identity_columns(now)}
    distances = {name: previous[name].shift(marks.get(name)) for name in columns}
    return {name: by for name, by in distances.items() if by}


def shift_identity(table: pa.Table, columns: Mapping[str, int]) -> pa.Table:
    """Shift generated values by the result of :func:`shifts`.

    ``columns`` are the table's columns (by physical name if the rows come from a file).  Raises
    ``IdentityOverflowError`` if a value exceeds 64 bits.
    """
    for name, by in columns.items():
        at = table.schema.get_field_index(name)
        try:
            moved = pc.add_checked(table.column(at), pa.scalar(by, pa.int64()))
        except pa.ArrowInvalid as e:
            raise IdentityOverflowError(
                f"identity column {name!r} has no values left after a concurrent write", column=name
            ) from e
        table = table.set_column(at, table.schema.field(at), moved)
    return table


def only_marks_moved(old: Metadata, new: Metadata) -> bool:
    """Whether two versions of a table's metadata differ only in the high-water marks of identity columns.

    Every write that generates values advances the marks, which does not change the schema.
    """

    def bare(metadata: Metadata) -> Metadata:
        schema = without_keys(metadata.schema, (HIGH_WATER_MARK,))
        return replace(metadata, schema_string=schema.json(), created_time=None)

    return bare(old) == bare(new)
