"""Errors of Lance's own API, which are also of the built-in classes that its users know to catch."""

from __future__ import annotations

from typing import Any

from trilake.errors import (
    ConflictError,
    FilterError,
    InvalidArgumentError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
    VersionNotFoundError,
)


class DatasetNotFoundError(TableNotFoundError, ValueError, OSError):
    """The location holds no Lance dataset."""


class DatasetVersionNotFoundError(VersionNotFoundError, ValueError, OSError):
    """The dataset has no such version or tag, or none as old as asked for."""


class DatasetExistsError(TableExistsError, OSError):
    """A dataset to be created is there already."""


class RowsDoNotFitError(SchemaMismatchError, ValueError, OSError):
    """The rows to be written do not have the dataset's columns."""


class CommitConflictError(ConflictError, OSError):
    """Another commit and this one exclude each other; nothing was committed.

    A commit lock of the user's raises it, without arguments, to say that another writer was first.
    """

    def __init__(self, message: str = "CommitConflictError: another writer was first", **context: Any) -> None:
        super().__init__(message, **context)


class TaggedVersionError(InvalidArgumentError, OSError):
    """A version that a clean-up is to remove is tagged."""


class UnknownRowError(InvalidArgumentError, OSError):
    """A row is asked for that is not there, by its place or its row id."""


class ReadVersionMissingError(InvalidArgumentError, OSError):
    """An operation does not say which version it was made for."""


class UnknownColumnError(InvalidArgumentError, KeyError, OSError):
    """A column is named that the dataset does not have."""


class ColumnExistsError(InvalidArgumentError, OSError):
    """A column that is to be added is there already."""


class UnknownIndexError(InvalidArgumentError, KeyError):
    """An index is named that the dataset does not have."""


class IndexExistsError(InvalidArgumentError, OSError):
    """An index of this name is there and must not be replaced."""


class UnsupportedIndexError(InvalidArgumentError, NotImplementedError):
    """An index of this kind cannot be made."""


class TooFewVectorsError(InvalidArgumentError, OSError):
    """An index is to have more partitions than there are vectors."""


class NotTrainedError(InvalidArgumentError, RuntimeError):
    """A model is asked before it has learned anything."""


class WrongTypeError(InvalidArgumentError, TypeError):
    """An argument, or a column, is of a type that does not do."""


class NothingToWriteError(InvalidArgumentError, OSError):
    """There are no rows, or no columns, where a fragment is to be made."""


class DeletePredicateError(FilterError, OSError):
    """The condition of a delete cannot be parsed, or names columns that the dataset does not have."""
