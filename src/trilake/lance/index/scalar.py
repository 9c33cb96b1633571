"""``ScalarIndex``: what a filter asks of an index of single values, whichever kind it is."""

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
REMAKE = "build the index again: create_scalar_index(..., replace=True)"


@dataclass(frozen=True)
class Bound:
    """An end of a range of values; ``value`` is a Python value or Arrow scalar that fits the column's type."""

    value: Any
    inclusive: bool = True


class ScalarIndex(ABC):
    """An open index.  May be used by several threads.

    Searches return the sorted ids of rows: all that match, and of kinds that are not exact, others too; ``None`` where
    reading all rows is cheaper.
    """

    #: What it is, as statistics name it.
    kind: ClassVar[str]
    #: Type of the column.
    value_type: pa.DataType
    #: Whether nulls are in it as such.
    has_nulls: bool = True
    #: Where parts of its files are kept; several indices may share one.
    cache: ReadCache
    #: Whether it says of lists which items they have, and nothing else.
    answers_items: ClassVar[bool] = False

    @property
    @abstractmethod
    def num_rows(self) -> int | None:
        """Rows in the index; ``None`` where that is not known without reading it whole."""

    @property
    @abstractmethod
    def num_pages(self) -> int:
        """Parts of the index that a search reads or leaves out."""

    @abstractmethod
    def statistics(self) -> dict[str, Any]:
        """``index_type``, and what else the index says of itself."""

    @abstractmethod
    def range(self, low: Bound | None, high: Bound | None) -> RowIds | None:
        """Rows with values between two bounds, ``None`` for no bound; NaN is greater than all else, null is nowhere.

        Raises ``InvalidArgumentError`` for a bound that does not fit the type.
        """

    @abstractmethod
    def pages_of_range(self, low: Bound | None, high: Bound | None) -> Mask:
        """For each page whether it can hold a value between two bounds; errors as :meth:`range`."""

    @abstractmethod
    def is_in(self, values: Sequence[Any] | pa.Array) -> RowIds | None:
        """Rows with one of these values; null among them finds nothing.  Errors as :meth:`range`."""

    @abstractmethod
    def pages_of(self, values: Sequence[Any] | pa.Array) -> Mask:
        """For each page whether it can hold one of these values; errors as :meth:`range`."""

    @abstractmethod
    def is_null(self) -> RowIds | None:
        """Rows without a value."""

    def equal(self, value: Any) -> RowIds | None:
        """Rows with this value; none for null."""
        return np.empty(0, np.uint64) if value is None else self.range(Bound(value), Bound(value))

    def scalar(self, bound: Bound | None) -> pa.Scalar | None:
        """The value of a bound, as the column has it.  Raises ``InvalidArgumentError``."""
        return None if bound is None else self._array([bound.value])[0]

    def choices(self, values: Sequence[Any] | pa.Array) -> pa.Array:
        """Distinct values in order, as the column has them.  Raises ``InvalidArgumentError``."""
        choices = values if isinstance(values, pa.Array) else self._array(values)
        try:
            choices = choices.cast(self.value_type).drop_null().unique()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
            raise InvalidArgumentError(f"a value does not fit the index's type {self.value_type}: {e}") from e
        if pt.is_floating(choices.type) and pc.any(pc.equal(choices, pa.scalar(0, choices.type))).as_py():
            # Zeros of both signs are equal, but Arrow looks for them bit by bit.
            choices = pa.concat_arrays([choices, pa.array(np.array([0.0, -0.0]), choices.type)]).unique()
        return choices.take(pc.sort_indices(choices))

    def _array(self, values: Sequence[Any]) -> pa.Array:
        plain = [v.as_py() if isinstance(v, pa.Scalar) else v for v in values]
        try:
            return pa.array(plain, self.value_type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError) as e:
            raise InvalidArgumentError(f"a value does not fit the index's type {self.value_type}: {e}") from e


class WholePages(ScalarIndex):
    """An index that knows the rows of a page, and finds all of them where one may match."""

    @property
    def num_rows(self) -> int | None:
        """Not known: rows of pages are not read for it."""
        return None

    @abstractmethod
    def rows_of(self, pages: Mask) -> RowIds | None:
        """The sorted ids of the rows of some pages; ``None`` where they are very many."""

    def range(self, low: Bound | None, high: Bound | None) -> RowIds | None:
        """See :class:`ScalarIndex`."""
        return self.rows_of(self.pages_of_range(low, high))

    def is_in(self, values: Sequence[Any] | pa.Array) -> RowIds | None:
        """See :class:`ScalarIndex`."""
        return self.rows_of(self.pages_of(values))


def between(
    values: pa.Array, low: Bound | None, above: pa.Scalar | None, high: Bound | None, below: pa.Scalar | None
) -> pa.Array:
    """For each value whether it lies between two bounds, whose scalars are ``above`` and ``below``."""
    keep = pc.is_valid(values)
    if low is not None:
        after = (pc.greater_equal if low.inclusive else pc.greater)(values, above)
        keep = pc.and_(keep, pc.or_(after, pc.is_nan(values)) if pt.is_floating(values.type) else after)
    if high is not None:
        keep = pc.and_(keep, (pc.less_equal if high.inclusive else pc.less)(values, below))
    return keep
