"""Errors of the Lance API; each is also an instance of the built-in error that pylance raises."""

from __future__ import annotations

from typing import Any

from trilake.errors import (
    ConflictError,
    FilterError,
    InvalidArgumentError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
    UnsupportedProtocolError,
    VersionNotFoundError,
)


class DatasetNotFoundError(TableNotFoundError, ValueError, OSError):
    """There is no Lance dataset at the location."""


class DatasetVersionNotFoundError(VersionNotFoundError, ValueError, OSError):
    """The dataset has no such version or tag, or no version as old as the timestamp."""


class DatasetExistsError(TableExistsError, OSError):
    """The dataset to create exists already."""


class RowsDoNotFitError(SchemaMismatchError, ValueError, OSError):
    """The rows to write do not have the dataset's columns."""


class CommitConflictError(ConflictError, OSError):
    """The commit conflicts with another one; nothing was committed.

    A user's commit lock raises it, without arguments, if another writer was first.
    """

    def __init__(self, message: str = "CommitConflictError: another writer was first", **context: Any) -> None:
        super().__init__(message, **context)


class UnsupportedTypeError(UnsupportedProtocolError, OSError):
    """Lance cannot store the type of a column."""


class OptionError(InvalidArgumentError, OSError):
    """An option has an invalid value."""


class OutsideBasesError(InvalidArgumentError, OSError):
    """A blob is at a URI outside the registered bases."""


class TaggedVersionError(InvalidArgumentError, OSError):
    """A cleanup would remove a tagged version."""


class UnknownRowError(InvalidArgumentError, OSError):
    """A row index or row id does not exist."""


class ReadVersionMissingError(InvalidArgumentError, OSError):
    """An operation has no read version."""


class UnknownColumnError(InvalidArgumentError, KeyError, OSError):
    """The dataset has no column of this name."""


class ColumnExistsError(InvalidArgumentError, OSError):
    """A column of this name exists already."""


class UnknownIndexError(InvalidArgumentError, KeyError, RuntimeError):
    """The dataset has no index of this name: a ``KeyError`` of statistics, a ``RuntimeError`` of ``drop_index``."""


class IndexExistsError(InvalidArgumentError, OSError):
    """An index of this name exists and must not be replaced."""


class UnsupportedIndexError(InvalidArgumentError, NotImplementedError):
    """An index of this kind cannot be built."""


class TooFewVectorsError(InvalidArgumentError, OSError):
    """An index has more partitions than there are vectors."""


class NotTrainedError(InvalidArgumentError, RuntimeError):
    """A model is used before it is trained."""


class WrongTypeError(InvalidArgumentError, TypeError):
    """An argument or column is of the wrong type."""


class NothingToWriteError(InvalidArgumentError, OSError):
    """A fragment needs at least one row and one column."""


class DeletePredicateError(FilterError, OSError):
    """The predicate of a delete cannot be parsed, or names a column that the dataset does not have."""
