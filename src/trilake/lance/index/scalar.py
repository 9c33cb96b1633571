"""``ScalarIndex``: the interface of scalar indices for filters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from trilake.errors import InvalidArgumentError
from trilake.lance.index.files import ReadCache

RowIds = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]
REMAKE = "rebuild the index: create_scalar_index(..., replace=True)"


@dataclass(frozen=True)
class Bound:
    """An end of a range; ``value`` is a Python value or Arrow scalar of the column's type."""

    value: Any
    inclusive: bool = True


class ScalarIndex(ABC):
    """An open scalar index.  Thread-safe.

    Searches return sorted row ids: exactly the matches, or for inexact kinds a superset; ``None`` if a full scan is
    cheaper.
    """

    #: Name of the kind in statistics.
    kind: ClassVar[str]
    #: Type of the column.
    value_type: pa.DataType
    #: Whether the index stores nulls.
    has_nulls: bool = True
    #: Cache of file parts; may be shared by several indices.
    cache: ReadCache
    #: Whether the index supports only searches for list items.
    answers_items: ClassVar[bool] = False
    #: Whether searches can return exactly the matching rows.
    is_exact: ClassVar[bool] = True

    @property
    @abstractmethod
    def num_rows(self) -> int | None:
        """Number of indexed rows; ``None`` if unknown without reading the index."""

    @property
    @abstractmethod
    def num_pages(self) -> int:
        """Number of parts that a search can skip."""

    @abstractmethod
    def statistics(self) -> dict[str, Any]:
        """Return ``index_type`` and statistics of the index."""

    def read(self) -> pa.Table | None:
        """Read all ``values`` with their ``row_ids``; ``None`` if the index does not have them."""
        return None

    @abstractmethod
    def range(self, low: Bound | None, high: Bound | None) -> RowIds | None:
        """Find rows with values between two bounds, ``None`` for no bound; NaN is greater than all other values.

        Raises ``InvalidArgumentError`` for a bound of another type.
        """

    @abstractmethod
    def pages_of_range(self, low: Bound | None, high: Bound | None) -> Mask:
        """Return for each page whether it may have values between two bounds."""

    @abstractmethod
    def is_in(self, values: Sequence[Any] | pa.Array) -> RowIds | None:
        """Find rows with one of these values; nulls are ignored."""

    @abstractmethod
    def pages_of(self, values: Sequence[Any] | pa.Array) -> Mask:
        """Return for each page whether it may have one of these values."""

    @abstractmethod
    def is_null(self) -> RowIds | None:
        """Find nulls."""

    def equal(self, value: Any) -> RowIds | None:
        """Find rows with this value; none for null."""
        return np.empty(0, np.uint64) if value is None else self.range(Bound(value), Bound(value))

    def scalar(self, bound: Bound | None) -> pa.Scalar | None:
        """Cast a bound to the column type.  Raises ``InvalidArgumentError``."""
        return None if bound is None else self._array([bound.value])[0]

    def choices(self, values: Sequence[Any] | pa.Array) -> pa.Array:
        """Return distinct values in order, cast to the column type.  Raises ``InvalidArgumentError``."""
        choices = values if isinstance(values, pa.Array) else self._array(values)
        try:
            choices = choices.cast(self.value_type).drop_null().unique()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
            raise InvalidArgumentError(f"cannot cast a value to {self.value_type}: {e}") from e
        if pt.is_floating(choices.type) and pc.any(pc.equal(choices, pa.scalar(0, choices.type))).as_py():
            # Arrow compares floats bitwise, so 0.0 and -0.0 would differ.
            choices = pa.concat_arrays([choices, pa.array(np.array([0.0, -0.0]), choices.type)]).unique()
        return choices.take(pc.sort_indices(choices))

    def _array(self, values: Sequence[Any]) -> pa.Array:
        plain = [v.as_py() if isinstance(v, pa.Scalar) else v for v in values]
        try:
            return pa.array(plain, self.value_type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError) as e:
            raise InvalidArgumentError(f"cannot cast a value to {self.value_type}: {e}") from e


class WholePages(ScalarIndex):
    """A scalar index whose searches return all rows of the pages that may match."""

    @property
    def num_rows(self) -> int | None:
        """``None``: counting rows would read all pages."""
        return None

    @abstractmethod
    def rows_of(self, pages: Mask) -> RowIds | None:
        """Return the sorted row ids of some pages; ``None`` if there are too many."""

    def range(self, low: Bound | None, high: Bound | None) -> RowIds | None:
        return self.rows_of(self.pages_of_range(low, high))

    def is_in(self, values: Sequence[Any] | pa.Array) -> RowIds | None:
        return self.rows_of(self.pages_of(values))


def mask_of(values: pa.Array, *, null: bool = False) -> Mask:
    """Convert booleans to numpy; ``null`` is the value for nulls."""
    mask: Mask = pc.fill_null(values, null).to_numpy(zero_copy_only=False)
    return mask


def plain_values(values: pa.Array | pa.ChunkedArray) -> Any:
    """Decode dictionary values.  Raises ``InvalidArgumentError`` for types without an order."""
    values = values.cast(values.type.value_type) if pt.is_dictionary(values.type) else values
    if pt.is_nested(values.type) or pt.is_null(values.type):
        raise InvalidArgumentError(
            f"values of type {values.type} have no order", help="index a column of scalar values"
        )
    return values


def between(
    values: pa.Array, low: Bound | None, above: pa.Scalar | None, high: Bound | None, below: pa.Scalar | None
) -> pa.Array:
    """Return for each value whether it is between two bounds, whose scalars are ``above`` and ``below``."""
    keep = pc.is_valid(values)
    if low is not None:
        after = (pc.greater_equal if low.inclusive else pc.greater)(values, above)
        keep = pc.and_(keep, pc.or_(after, pc.is_nan(values)) if pt.is_floating(values.type) else after)
    if high is not None:
        keep = pc.and_(keep, (pc.less_equal if high.inclusive else pc.less)(values, below))
    return keep
