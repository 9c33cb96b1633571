"""Errors of Lance's own API, which are also of the built-in classes that its users know to catch."""

from __future__ import annotations

from trilake.errors import (
    ConflictError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
    VersionNotFoundError,
)


class DatasetNotFoundError(TableNotFoundError, ValueError):
    """The location holds no Lance dataset."""


class DatasetVersionNotFoundError(VersionNotFoundError, ValueError):
    """The dataset has no such version or tag, or none as old as asked for."""


class DatasetExistsError(TableExistsError, OSError):
    """A dataset to be created is there already."""


class RowsDoNotFitError(SchemaMismatchError, OSError):
    """The rows to be written do not have the dataset's columns."""


class CommitConflictError(ConflictError, OSError):
    """Another commit and this one exclude each other; nothing was committed."""
