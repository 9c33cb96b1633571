"""``RowIdSequence``: the stable row ids of a fragment, for commits that programs put together."""

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
    """Row ids, one for each physical row of a fragment, in their order.

    Parameters
    ----------
    row_ids: whole numbers of 0 or more, each of them once: an array, or any iterable.

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
        """The row ids that the metadata of a fragment has.  Raises ``InvalidArgumentError`` for those in a file."""
        if not isinstance(metadata.placed, bytes):
            raise InvalidArgumentError(f"the row ids are not in the metadata: {metadata!r}", help="read them by a scan")
        count = row_ids.count_ids(metadata.placed, file="")
        return cls(pa.array(row_ids.parse_ids(metadata.placed, count, file="")))

    def to_inline_metadata(self) -> RowIdMeta:
        """The row ids as the metadata of a fragment has them."""
        return RowIdMeta(row_ids.serialise_ids(self._ids))

    def to_pyarrow(self) -> pa.UInt64Array:
        """The row ids as an array."""
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


def _numbers(given: Any) -> npt.NDArray[np.uint64]:
    if not isinstance(given, Iterable):
        raise WrongTypeError(f"row ids must be an iterable of integers, got {given!r} ({type(given).__name__})")
    array = given.combine_chunks() if isinstance(given, pa.ChunkedArray) else given
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
        raise InvalidArgumentError("Row ids must be unique", help="name each row once")
    return ids
