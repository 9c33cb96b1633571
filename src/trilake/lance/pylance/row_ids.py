"""``RowIdSequence``: the stable row ids of a fragment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trilake.errors import InvalidArgumentError
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.versions import row_ids
from trilake.lance.versions.fragment_metadata import RowIdMeta

_SHOWN = 10


@dataclass(frozen=True, eq=False, repr=False)
class RowIdSequence:
    """Row ids, one for each physical row of a fragment, in order.

    Parameters
    ----------
    row_ids: distinct non-negative integers, as an array or an iterable.

    Raises ``InvalidArgumentError`` and ``WrongTypeError``.

    >>> RowIdSequence([7, 12, 3])
    RowIdSequence([7, 12, 3])
    >>> RowIdSequence.from_inline_metadata(RowIdSequence(range(3)).to_inline_metadata()).to_pyarrow().to_pylist()
    [0, 1, 2]
    """

    row_ids: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "row_ids", _numbers(self.row_ids))

    @property
    def _ids(self) -> npt.NDArray[np.uint64]:
        ids: npt.NDArray[np.uint64] = self.row_ids
        return ids

    @classmethod
    def from_inline_metadata(cls, metadata: RowIdMeta) -> RowIdSequence:
        """Read the row ids from fragment metadata.  Raises ``InvalidArgumentError`` if they are in a file."""
        if not isinstance(metadata.placed, bytes):
            raise InvalidArgumentError(f"the row ids are not inline: {metadata!r}", help="read them with a scan")
        count = row_ids.count_ids(metadata.placed, file="")
        return cls(pa.array(row_ids.parse_ids(metadata.placed, count, file="")))

    def to_inline_metadata(self) -> RowIdMeta:
        """Convert to fragment metadata."""
        return RowIdMeta(row_ids.serialise_ids(self._ids))

    def to_pyarrow(self) -> pa.UInt64Array:
        """Convert to an Arrow array."""
        return pa.array(self._ids, pa.uint64())

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids.tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowIdSequence) and np.array_equal(self._ids, other._ids)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        first = ", ".join(map(str, self._ids[:_SHOWN].tolist()))
        more = len(self) > _SHOWN
        return f"RowIdSequence([{first}{', ...' if more else ''}]{f', len={len(self)}' if more else ''})"


def _numbers(values: Any) -> npt.NDArray[np.uint64]:
    if not isinstance(values, Iterable):
        raise WrongTypeError(f"row ids must be an iterable of integers, got {values!r} ({type(values).__name__})")
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if isinstance(array, range) and len(array) and min(array) < 0:
        raise InvalidArgumentError(f"row ids must be non-negative, got {min(array)}")
    if not isinstance(array, pa.Array):
        items = list(array)
        try:
            array = pa.array(items, pa.uint64()) if items else pa.array([], pa.uint64())
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as e:
            raise WrongTypeError(f"row ids must be an iterable of integers that fit uint64: {e}") from e
    if array.null_count:
        raise InvalidArgumentError("row ids must not be null", help="leave the nulls out")
    if len(array) and not pa.types.is_integer(array.type):
        raise WrongTypeError(f"row ids must be an array of integers, got {array.type}")
    try:
        ids: npt.NDArray[np.uint64] = array.cast(pa.uint64()).to_numpy()
    except pa.ArrowInvalid as e:
        raise InvalidArgumentError(f"row ids must fit uint64: {e}") from e
    if len(np.unique(ids)) < len(ids):
        raise InvalidArgumentError("Row ids must be unique", help="pass each row id once")
    return ids
