"""Convert records to columns and back, for Avro, Protocol Buffers and Thrift.

A schema becomes a tree of shapes over the columns of a :class:`Sheet` (spec, "Type Mappings": "a depth-first recursive
walk can assign a separate column for each primitive value").  The tree traverses a record to write it, appending to the
columns, and takes values from them in the same order to read it.  This is the only module of the package that loops
over rows, as records are Python objects.
"""

from __future__ import annotations

import copy
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from trilake.errors import CorruptFileError, InvalidArgumentError, SchemaMismatchError
from trilake.trevni.blocks.layout import ARRAY, NAME, PARENT, TYPE, ColumnDescriptor, ValueType
from trilake.trevni.file.column_file import ColumnValues
from trilake.trevni.file.file import TrevniFile
from trilake.trevni.file.writer import TrevniWriter

#: Records to convert to columns at a time.
_RECORDS = 4096


class Stream:
    """One column of a sheet: the values to write, or an iterator of the values to read."""

    def __init__(self, number: int, name: str, type: ValueType, array: bool, parent: int | None) -> None:
        self.number, self.name, self.type, self.array, self.parent = number, name, type, array, parent
        self.lengths: list[int] = []
        self.values: list[Any] = []
        self.next_length: Callable[[], int] = iter(()).__next__
        self.next_value: Callable[[], Any] = iter(()).__next__

    def drain(self) -> ColumnValues:
        """Return the collected lengths and values, and remove them from the stream."""
        try:
            values = pa.array(self.values, self.type.arrow)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as e:
            raise SchemaMismatchError(f"a value is not of type {self.type.value}: {e}", column=self.name) from e
        if values.null_count and self.type is not ValueType.NULL:
            raise SchemaMismatchError("a required value is missing", column=self.name)
        lengths = np.array(self.lengths, np.int32) if self.array else None
        self.values, self.lengths = [], []
        return ColumnValues(self.name, self.type.value, lengths, values)


class Sheet:
    """The columns of a schema, in the order of the walk, and the shape over them; with ``file``, those of the file."""

    shape: Shape

    def __init__(self, file: TrevniFile | None = None) -> None:
        self.streams: list[Stream] = []
        self.file = file
        columns = () if file is None else file.header.columns
        self._by_name = {c.name: c.number for c in columns if c.name is not None}
        #: Column number of each stream in the file.
        self._numbers: list[int] = []

    def add(self, name: str, type_: ValueType, parent: Stream | None = None, *, array: bool = False) -> Stream:
        """Append a column.  Raises ``SchemaMismatchError`` if the file has no such column."""
        stream = Stream(len(self.streams), name, type_, array, None if parent is None else parent.number)
        if self.file is not None:
            self._numbers.append(self._bind(stream, self.file))
        self.streams.append(stream)
        return stream

    def _bind(self, stream: Stream, file: TrevniFile) -> int:
        number = self._by_name.get(stream.name)
        if number is None:
            raise SchemaMismatchError(
                f"column {stream.name!r} of the schema not found in the file", file=file.uri, column=stream.name
            )
        column = file.header.columns[number]
        if column.parent != (None if stream.parent is None else self._numbers[stream.parent]):
            raise SchemaMismatchError(
                "the column has different parents in the file and the schema", file=file.uri, column=stream.name
            )
        if column.array != stream.array or not _readable(column.type, stream.type):
            kind = f"{'array of ' if column.array else ''}{column.type.value}"
            raise SchemaMismatchError(
                f"the column is {kind}, but the schema has {'array of ' if stream.array else ''}{stream.type.value}",
                file=file.uri,
                column=stream.name,
            )
        return number

    def descriptors(self) -> list[ColumnDescriptor]:
        """Return the columns in the form of :class:`TrevniWriter`."""
        descriptors = []
        for s in self.streams:
            metadata = {NAME: s.name.encode(), TYPE: s.type.value.encode()}
            if s.array:
                metadata[ARRAY] = b""
            if s.parent is not None:
                metadata[PARENT] = self.streams[s.parent].name.encode()
            descriptors.append(ColumnDescriptor(s.number, s.name, s.type, s.array, s.parent, metadata=metadata))
        return descriptors

    def write(self, records: Iterable[Any], path: str | os.PathLike[str] | Any, **options: Any) -> int:
        """Write records to a file with the options of :class:`TrevniWriter`, and return their number."""
        with TrevniWriter(path, None, columns=self.descriptors(), **options) as writer:
            numbered = enumerate(records)
            while part := list(islice(numbered, _RECORDS)):
                for number, record in part:
                    self._write(number, record)
                writer.write_columns(len(part), [stream.drain() for stream in self.streams])
        return writer.rows

    def _write(self, number: int, record: Any) -> None:
        try:
            self.shape.write(record)
        except (KeyError, AttributeError, TypeError, ValueError) as e:
            if isinstance(e, SchemaMismatchError | InvalidArgumentError):
                raise
            raise SchemaMismatchError(f"record {number} does not match the schema: {e!r}") from e

    def read(self) -> Iterator[Any]:
        """Yield the records of the file."""
        file = self.file
        assert file is not None
        raw = sum(int(file.blocks(number).raw_sizes.sum()) for number in self._numbers)
        step = max(1, min(1 << 14, file.row_count * (1 << 23) // max(raw, 1)))
        for start in range(0, file.row_count, step):
            stop = min(start + step, file.row_count)
            cuts = file.cut(self._numbers, start, stop)
            for stream, number in zip(self.streams, self._numbers, strict=True):
                cut = cuts[number]
                if cut.lengths is not None:
                    stream.next_length = iter(cut.lengths.tolist()).__next__
                if stream.type is ValueType.NULL:
                    stream.next_value = lambda: None
                else:
                    stream.next_value = iter(_widened(cut.values, stream, file).to_pylist()).__next__
            for _ in range(start, stop):
                try:
                    yield self.shape.read()
                except StopIteration:  # would end the generator without an error
                    raise CorruptFileError(
                        "the columns have fewer values than their lengths require", file=file.uri
                    ) from None


class Shape(ABC):
    """A part of a schema over its columns."""

    @abstractmethod
    def write(self, value: Any) -> None:
        """Append a value to the columns."""

    @abstractmethod
    def read(self) -> Any:
        """Take the next value from the columns."""


class Simple(Shape):
    """A value in one column; ``encode`` and ``decode`` convert it to and from the column type."""

    def __init__(
        self, stream: Stream, encode: Callable[[Any], Any] | None = None, decode: Callable[[Any], Any] | None = None
    ) -> None:
        self._stream, self._encode, self._decode = stream, encode, decode

    def write(self, value: Any) -> None:
        self._stream.values.append(value if self._encode is None else self._encode(value))

    def read(self) -> Any:
        value = self._stream.next_value()
        return value if self._decode is None else self._decode(value)


class Mapped(Shape):
    """Another shape, whose values are converted on the way to it and back."""

    def __init__(
        self, inner: Shape, encode: Callable[[Any], Any] | None = None, decode: Callable[[Any], Any] | None = None
    ) -> None:
        self._inner, self._encode, self._decode = inner, encode, decode

    def write(self, value: Any) -> None:
        self._inner.write(value if self._encode is None else self._encode(value))

    def read(self) -> Any:
        value = self._inner.read()
        return value if self._decode is None else self._decode(value)


class Record(Shape):
    """Named fields; ``get`` returns a field of a record, ``make`` creates a record from a dictionary."""

    def __init__(
        self, fields: Sequence[tuple[str, Shape]], get: Callable[[Any, str], Any], make: Callable[[dict[str, Any]], Any]
    ) -> None:
        self._fields, self._get, self._make = fields, get, make

    def write(self, value: Any) -> None:
        for name, shape in self._fields:
            shape.write(self._get(value, name))

    def read(self) -> Any:
        return self._make({name: shape.read() for name, shape in self._fields})


class Repeated(Shape):
    """A sequence; ``make`` creates it from a list."""

    def __init__(self, stream: Stream, inner: Shape, make: Callable[[list[Any]], Any] | None = None) -> None:
        self._stream, self._inner, self._make = stream, inner, make

    def write(self, value: Any) -> None:
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise SchemaMismatchError(
                f"expected a sequence of values, got {type(value).__name__}", column=self._stream.name
            )
        items = list(value)
        self._stream.lengths.append(len(items))
        for item in items:
            self._inner.write(item)
        if self._stream.type is ValueType.NULL and not _writes_into(self._inner, self._stream):
            self._stream.values.extend([None] * len(items))

    def read(self) -> Any:
        items = [self._inner.read() for _ in range(self._stream.next_length())]
        return items if self._make is None else self._make(items)


class Pairs(Shape):
    """A map: a null array column with keys and values as children."""

    def __init__(self, stream: Stream, key: Shape, value: Shape) -> None:
        self._stream, self._key, self._value = stream, key, value

    def write(self, value: Any) -> None:
        if not isinstance(value, Mapping):
            raise SchemaMismatchError(f"expected a map, got {type(value).__name__}", column=self._stream.name)
        self._stream.lengths.append(len(value))
        self._stream.values.extend([None] * len(value))
        for key, item in value.items():
            self._key.write(key)
            self._value.write(item)

    def read(self) -> Any:
        return {self._key.read(): self._value.read() for _ in range(self._stream.next_length())}


class Branch:
    """A branch of a choice; ``tag`` is its name, ``accepts`` tests whether a value matches it."""

    def __init__(self, stream: Stream, inner: Shape, tag: str, accepts: Callable[[Any], bool]) -> None:
        self.stream, self.inner, self.tag, self.accepts = stream, inner, tag, accepts
        self.counts = stream.type is ValueType.NULL and not _writes_into(inner, stream)


class Choice(Shape):
    """One of several branches, or none: each branch is an array column with lengths 0 and 1.

    ``where`` is a name for errors; ``nothing`` allows ``None``; ``foreign`` are columns of branches only in the file.
    """

    def __init__(
        self, branches: Sequence[Branch], where: str, *, nothing: bool, foreign: Sequence[Stream] = ()
    ) -> None:
        self._branches, self._where, self._nothing = branches, where, nothing
        self._foreign = foreign

    def _branch_of(self, value: Any) -> tuple[Branch | None, Any]:
        if value is None and self._nothing:
            return None, None
        if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
            for branch in self._branches:
                if value[0] in (branch.tag, branch.tag.rpartition(".")[2]):
                    return branch, value[1]
        for branch in self._branches:
            if branch.accepts(value):
                return branch, value
        allowed = ", ".join([*(b.tag for b in self._branches), *(["null"] if self._nothing else [])])
        raise SchemaMismatchError(f"expected one of {allowed}, got {value!r:.60}", column=self._where)

    def write(self, value: Any) -> None:
        chosen, value = self._branch_of(value)
        for branch in self._branches:
            if branch is not chosen:
                branch.stream.lengths.append(0)
                continue
            branch.stream.lengths.append(1)
            if branch.counts:
                branch.stream.values.append(None)
            branch.inner.write(value)

    def read(self) -> Any:
        value: Any = None
        count = 0
        for branch in self._branches:
            if length := branch.stream.next_length():
                count += length
                value = branch.inner.read()
        for stream in self._foreign:
            if stream.next_length():
                raise SchemaMismatchError(
                    "a value belongs to a branch that the requested union lacks", column=stream.name
                )
        if count > 1 or (count == 0 and not self._nothing):
            raise CorruptFileError(f"expected a value of one branch, got {count}", column=self._where)
        return value


class Default(Shape):
    """A field that the file lacks."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def write(self, value: Any) -> None:
        raise InvalidArgumentError("the field is not in the file")

    def read(self) -> Any:
        return copy.deepcopy(self._value)


def _writes_into(inner: Shape, stream: Stream) -> bool:
    return isinstance(inner, Simple) and inner._stream is stream


def _widened(values: pa.Array, stream: Stream, file: TrevniFile) -> pa.Array:
    if values.type == stream.type.arrow:
        return values
    try:
        # A long that a double cannot represent becomes the nearest double.
        return values.cast(stream.type.arrow, safe=stream.type is ValueType.STRING)
    except pa.ArrowInvalid as e:
        raise SchemaMismatchError(
            f"the bytes are not a UTF-8 string: {e}", help="read the column as bytes", file=file.uri, column=stream.name
        ) from e


def _readable(stored: ValueType, target: ValueType) -> bool:
    numbers = [ValueType.INT, ValueType.LONG, ValueType.FLOAT, ValueType.DOUBLE]
    if stored is target or {stored, target} == {ValueType.STRING, ValueType.BYTES}:
        return True
    return stored in numbers and target in numbers and numbers.index(stored) < numbers.index(target)
