"""Stable row ids and row versions: sequences with a number for each physical row.

A sequence is a message of segments: ranges, ranges with holes, and arrays.  In memory it is a numpy array.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from trilake.errors import CorruptLogError, ObjectNotFoundError
from trilake.lance.file import framing
from trilake.lance.proto import rows_pb2 as pb
from trilake.lance.versions.manifest import ExternalFile, RowSequence
from trilake.storage.base import Store

Ids = npt.NDArray[np.uint64]

#: Ids are written one by one if they form more runs than 1/``_FEW`` of their number.
_FEW = 8


def read(store: Store, sequence: RowSequence, file: str) -> bytes | None:
    """Read the bytes of a sequence, in the manifest or in a file; ``None`` if absent.  Raises ``CorruptLogError``."""
    if not isinstance(sequence, ExternalFile):
        return sequence
    try:
        data = store.read_range(sequence.path, sequence.offset, sequence.size).to_pybytes()
    except ObjectNotFoundError as e:
        raise CorruptLogError(f"the file of row ids {sequence.path} is missing", file=file) from e
    if len(data) != sequence.size:
        raise CorruptLogError(f"{sequence.path} ends before the row ids in it", file=file)
    return bytes(data)


def parse_ids(data: bytes, rows: int, *, file: str) -> Ids:
    """Parse the row ids of a fragment with ``rows`` physical rows.  Raises ``CorruptLogError``."""
    message = framing.parse(data, pb.RowIdSequence, file=file, damaged=CorruptLogError)
    ids = np.concatenate([np.empty(0, np.uint64), *(_values(s, rows, file) for s in message.segments)])
    if len(ids) != rows:
        raise CorruptLogError(f"expected {rows} row ids of a fragment, got {len(ids)}", file=file)
    return ids


def count_ids(data: bytes) -> int:
    """Count the row ids in a message of fragment metadata.  Raises ``CorruptLogError``."""
    message = framing.parse(data, pb.RowIdSequence, file="", damaged=CorruptLogError)
    return sum(_length(segment, "") for segment in message.segments)


def serialise_ids(ids: Ids) -> bytes:
    """Serialize row ids: as ranges if these are few, else one by one."""
    message = pb.RowIdSequence()
    edges = np.flatnonzero(np.diff(ids.astype(np.int64)) != 1) + 1
    if len(ids) and (len(edges) + 1) * _FEW <= len(ids) + _FEW:
        starts, ends = ids[np.concatenate(([0], edges))], ids[np.concatenate((edges - 1, [len(ids) - 1]))]
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            message.segments.add().range.CopyFrom(pb.U64Segment.Range(start=start, end=end + 1))
    elif len(ids):
        segment = message.segments.add()
        increasing = bool((np.diff(ids.astype(np.int64)) > 0).all())
        _encode(segment.sorted_array if increasing else segment.array, ids)
    return bytes(message.SerializeToString(deterministic=True))


def parse_versions(data: bytes, rows: int, *, file: str) -> Ids:
    """Parse the version of each of ``rows`` physical rows.  Raises ``CorruptLogError``."""
    message = framing.parse(data, pb.RowVersions, file=file, damaged=CorruptLogError)
    lengths = np.array([_length(run.span, file) for run in message.runs], np.int64)
    if (lengths < 0).any() or (lengths > rows).any() or int(lengths.sum()) != rows:
        raise CorruptLogError(f"expected {rows} row versions for a fragment, got {int(lengths.sum())}", file=file)
    versions: Ids = np.repeat(np.array([run.version for run in message.runs], np.uint64), lengths)
    return versions


def serialise_versions(versions: Ids) -> bytes:
    """Serialize the versions of rows as runs."""
    message = pb.RowVersions()
    if len(versions):
        starts = np.concatenate(([0], np.flatnonzero(np.diff(versions)) + 1))
        ends = [*starts[1:].tolist(), len(versions)]
        for start, end, version in zip(starts.tolist(), ends, versions[starts].tolist(), strict=True):
            run = message.runs.add(version=version)
            run.span.range.start, run.span.range.end = start, end
            run.span.range.SetInParent()
    return bytes(message.SerializeToString(deterministic=True))


def _values(segment: pb.U64Segment, most: int, file: str) -> Ids:
    """Decode the values of a segment; a range may have at most ``most``."""
    match segment.WhichOneof("segment"):
        case "range":
            return _range(segment.range.start, segment.range.end, most, file)
        case "range_with_holes":
            r = segment.range_with_holes
            holes = _decode(r.holes, file)
            values = _range(r.start, r.end, most + len(holes), file)
            return values[~np.isin(values, holes)]
        case "range_with_bitmap":
            b = segment.range_with_bitmap
            bits = np.unpackbits(np.frombuffer(b.bitmap, np.uint8), bitorder="little")
            if b.end < b.start or b.end - b.start > len(bits):
                raise CorruptLogError("a bitmap of row ids is shorter than their range", file=file)
            return np.uint64(b.start) + np.flatnonzero(bits[: b.end - b.start]).astype(np.uint64)
        case "sorted_array":
            return _decode(segment.sorted_array, file)
        case "array":
            return _decode(segment.array, file)
    raise CorruptLogError("a segment of row ids has an unknown kind", file=file)


def _length(segment: pb.U64Segment, file: str) -> int:
    match segment.WhichOneof("segment"):
        case "range":
            return int(segment.range.end - segment.range.start)
        case "range_with_holes":
            r = segment.range_with_holes
            return int(r.end - r.start) - len(_decode(r.holes, file))
    return len(_values(segment, 0, file))


def _range(start: int, end: int, most: int, file: str) -> Ids:
    if end < start or end - start > most:
        raise CorruptLogError(f"a range of row ids is from {start} to {end}, for {most} rows", file=file)
    return np.arange(start, end, dtype=np.uint64)


#: Integer type of each kind of array.
_TYPES: dict[str, str] = {"u16": "<u2", "u32": "<u4", "u64": "<u8"}


def _decode(array: pb.EncodedU64Array, file: str) -> Ids:
    kind = array.WhichOneof("array")
    if kind is None:
        raise CorruptLogError("an array of row ids has an unknown kind", file=file)
    offsets: Any = getattr(array, kind)
    data, base = (offsets.values, 0) if kind == "u64" else (offsets.offsets, offsets.base)
    dtype = np.dtype(_TYPES[kind])
    if len(data) % dtype.itemsize:
        raise CorruptLogError(f"an array of row ids has {len(data)} bytes", file=file)
    return np.frombuffer(data, dtype).astype(np.uint64) + np.uint64(base)


def _encode(array: pb.EncodedU64Array, ids: Ids) -> None:
    base = int(ids.min())
    span = int(ids.max()) - base
    for kind, bits in (("u16", 16), ("u32", 32)):
        if span < 1 << bits:
            offsets = getattr(array, kind)
            offsets.base = base
            offsets.offsets = (ids - np.uint64(base)).astype(_TYPES[kind]).tobytes()
            return
    array.u64.values = ids.astype("<u8").tobytes()
