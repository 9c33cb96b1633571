"""Errors of trilake; all derive from :class:`TrilakeError`.

An error says what is wrong, where, and what to do about it.  ``code`` is stable, so programs may branch on it; messages
may change.  The parameters (``file``, ``version``, ``column`` and others) are part of the message and also in
:attr:`TrilakeError.context`.  Secrets in URIs, such as passwords and signatures, are masked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

_SECRET = re.compile(
    # user:password@, in any URI
    r"(?<=://)[^/@\s'\"]*:[^/@\s'\"]*(?=@)"
    # parameters of signed URIs, and of connection strings
    r"|(?<=[?&;])((?:sig|signature|x-(?:amz|goog)-(?:signature|credential|security-token)|awsaccesskeyid|googleaccessid"
    r"|accountkey|sharedaccesssignature|sharedaccesskey|password|passwd|pwd|secret|token|access_token|access_key"
    r"|secret_key|api_key|apikey)=)[^&;\s'\")]+",
    re.IGNORECASE,
)


def masked(string: str) -> str:
    """Mask the secrets in the URIs of a string: users with passwords, signatures, keys and tokens.

    >>> masked("s3://key:secret@bucket/t"), masked("https://a.blob/t?sv=1&sig=abc%3D&se=2")
    ('s3://***@bucket/t', 'https://a.blob/t?sv=1&sig=***&se=2')
    """
    # Nearly every string has neither.
    return _SECRET.sub(lambda m: f"{m[1] or ''}***", string) if "@" in string or "=" in string else string


def _masked_value(value: Any) -> Any:
    return masked(value) if isinstance(value, str) else value


class TrilakeError(Exception):
    """Base class of all errors of trilake.

    Parameters
    ----------
    message: what is wrong, one sentence without a final full stop.
    help: what the reader can do about it.
    context: where it is wrong; ``file``, ``version`` and ``column`` are shown after the message, as is any other key.

    Example
    -------
    >>> print(CorruptLogError("commit holds no actions", file="_delta_log/00000000000000000003.json", version=3))
    [CORRUPT_LOG] commit holds no actions (file: _delta_log/00000000000000000003.json, version: 3). Help: restore ...
    """

    code: ClassVar[str] = "TRILAKE"
    default_help: ClassVar[str | None] = None
    #: The condition that Spark or delta-spark has for every error of the class that states none in its context.
    default_condition: ClassVar[str | None] = None

    def __init__(self, message: str, *, help: str | None = None, **context: Any) -> None:
        self.message = masked(message)
        self.help = _masked_value(help) if help is not None else self.default_help
        self.context = {k: _masked_value(v) for k, v in context.items() if v is not None}
        super().__init__(self.message)

    @property
    def condition(self) -> str | None:
        """The error condition of Spark or delta-spark, for programs that check it."""
        stated: str | None = self.context.get("condition", self.default_condition)
        return stated

    def __str__(self) -> str:
        where = ", ".join(f"{k.replace('_', ' ')}: {v}" for k, v in self.context.items())
        message = f"[{self.code}] {self.message}"
        if where:
            message += f" ({where})"
        if self.help:
            message += f". Help: {self.help}"
        return message

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross process borders on their way from a Spark task to the driver.
        return _rebuild, (type(self), self.message, self.help, self.context)


def _rebuild(cls: type[TrilakeError], message: str, help: str | None, context: dict[str, Any]) -> TrilakeError:
    return cls(message, help=help, **context)


@contextmanager
def stating(conditions: Mapping[str | None, str]) -> Iterator[None]:
    """Replace the conditions of errors raised in the block; ``conditions`` maps old ones to new ones.

    The key ``None`` is for errors without a condition.

    >>> with stating({None: "DELTA_ILLEGAL_OPTION"}):
    ...     raise InvalidArgumentError("option a is 'b'")
    Traceback (most recent call last):
        ...
    trilake.errors.InvalidArgumentError: [INVALID_ARGUMENT] option a is 'b' (condition: DELTA_ILLEGAL_OPTION)
    """
    try:
        yield
    except TrilakeError as e:
        stated = conditions.get(e.condition)
        if stated is not None:
            e.context["condition"] = stated
        raise


# --- arguments -------------------------------------------------------------------------------------------------------


class InvalidArgumentError(TrilakeError, ValueError):
    """An argument has an invalid value."""

    code = "INVALID_ARGUMENT"


class IllegalArgumentError(InvalidArgumentError):
    """An argument that delta-spark rejects with Java's ``IllegalArgumentException``, without a condition."""


class UnknownOptionError(InvalidArgumentError):
    """The name of an option is unknown, most often because of a typing error."""

    code = "UNKNOWN_OPTION"


class FilterError(InvalidArgumentError):
    """A filter that cannot be parsed, or that names columns the table does not have."""

    code = "INVALID_FILTER"


class ExpressionError(InvalidArgumentError):
    """A SQL expression that is wrong for every engine, or that fails on the values of a row."""

    code = "INVALID_EXPRESSION"


class UnsupportedExpressionError(ExpressionError):
    """A SQL expression that only Spark can evaluate: the embedded engine has no exact counterpart."""

    code = "UNSUPPORTED_EXPRESSION"
    default_help = "use Spark, which evaluates the expression itself, or rewrite the expression"


# --- optional libraries ----------------------------------------------------------------------------------------------


class MissingDependencyError(TrilakeError, ImportError):
    """A package that this call needs is not installed; the help says what to install.

    >>> print(MissingDependencyError.of("protobuf", "lance", "Lance datasets"))
    [MISSING_DEPENDENCY] Lance datasets need protobuf, which is not installed. Help: pip install "trilake[lance]"
    """

    code = "MISSING_DEPENDENCY"

    @classmethod
    def of(cls, package: str, extra: str, what: str) -> MissingDependencyError:
        """The error for ``what``, in the plural, that needs a package of one of trilake's extras."""
        return cls(f"{what} need {package}, which is not installed", help=f'pip install "trilake[{extra}]"')


class UnsupportedSparkError(TrilakeError):
    """The release of Spark, or the session, does not support the operation."""

    code = "UNSUPPORTED_SPARK"


# --- storage ---------------------------------------------------------------------------------------------------------


class StorageError(TrilakeError):
    """The store failed, and nothing has changed."""

    code = "STORAGE"


class ObjectNotFoundError(StorageError, FileNotFoundError):
    """No object has this key."""

    code = "OBJECT_NOT_FOUND"


class ObjectExistsError(StorageError, FileExistsError):
    """``put_if_absent`` lost: an object with this key exists already."""

    code = "OBJECT_EXISTS"


class OtherStoreError(StorageError):
    """A table's log names a file on another kind of store, and no option allows that."""

    code = "OTHER_STORE"


class ClockError(TrilakeError):
    """This machine's clock and the store's differ too much to tell what is old enough to be deleted."""

    code = "CLOCK"


class UnknownOutcomeError(StorageError):
    """The reply to a write was lost: the write may have succeeded.  Delete nothing because of it."""

    code = "UNKNOWN_OUTCOME"
    default_help = "check the table's history before trying again: the write may have succeeded"


# --- tables ----------------------------------------------------------------------------------------------------------


class TableNotFoundError(TrilakeError):
    """There is no table of the requested format at the location."""

    code = "TABLE_NOT_FOUND"


class TableExistsError(TrilakeError):
    """A table already exists, and the mode of the write does not allow that."""

    code = "TABLE_EXISTS"
    default_help = 'pass mode="append" or mode="overwrite" to write into it, or mode="ignore" to keep it'


class ForeignFilesError(TableExistsError):
    """The folder of a new table has other files, whose rows readers of the table would not see."""

    code = "FOREIGN_FILES"
    default_help = "write to another folder, or convert the files with convert_to_delta"


class VersionNotFoundError(TrilakeError):
    """The requested version or timestamp is not in the table's readable history."""

    code = "VERSION_NOT_FOUND"


class UnsupportedProtocolError(TrilakeError):
    """The table needs a protocol version or table feature that trilake does not support."""

    code = "UNSUPPORTED_PROTOCOL"


class FeatureInUseError(TrilakeError):
    """A table feature cannot be dropped yet: the table, or its history, still needs it; the help says what is left."""

    code = "FEATURE_IN_USE"


class CorruptLogError(TrilakeError):
    """The table's log is damaged: a commit, checkpoint or manifest is invalid."""

    code = "CORRUPT_LOG"
    default_help = "restore the log from a backup, or read an older version"


class LogGapError(CorruptLogError):
    """The versions in the log are not contiguous, so no state can be computed from them."""

    code = "LOG_GAP"
    default_condition = "DELTA_VERSIONS_NOT_CONTIGUOUS"


class MissingMetadataError(CorruptLogError):
    """The log has no metaData or no protocol action up to the requested version."""

    code = "MISSING_METADATA"
    default_condition = "DELTA_STATE_RECOVER_ERROR"


class MissingFileError(TrilakeError):
    """A file that the table's log names does not exist; without it, rows would be missing."""

    code = "MISSING_FILE"
    default_condition = "FAILED_READ_FILE.FILE_NOT_EXIST"
    default_help = "the file was removed by vacuum or by hand; read a newer version, or restore the file"


class CorruptFileError(TrilakeError):
    """A data file is damaged, or its format is not the table's."""

    code = "CORRUPT_FILE"
    default_help = "restore the file from a backup"


class UnsupportedFileError(TrilakeError):
    """A data file uses something that its reader does not support; it is not known to be damaged."""

    code = "UNSUPPORTED_FILE"


class DeletionVectorError(CorruptFileError):
    """A deletion vector is damaged: magic, size, CRC or cardinality is not what its descriptor says."""

    code = "DELETION_VECTOR"


class SchemaMismatchError(TrilakeError):
    """The rows do not have the table's schema."""

    code = "SCHEMA_MISMATCH"


class ChecksumMismatchError(TrilakeError):
    """Written rows differ when they are read back; nothing of the write is visible."""

    code = "CHECKSUM_MISMATCH"


class ConstraintViolatedError(SchemaMismatchError):
    """A row violates a rule of the table: NOT NULL, CHECK, an invariant, a length or a generated column's expression.

    The message names the rule and shows the values of the first row that breaks it.
    """

    code = "CONSTRAINT_VIOLATED"


class IdentityOverflowError(TrilakeError):
    """An identity column has no values left: the next one would not fit into 64 bits."""

    code = "IDENTITY_OVERFLOW"


# --- commits ---------------------------------------------------------------------------------------------------------


class ConflictError(TrilakeError):
    """Another writer's commit and this transaction cannot both happen; nothing was committed."""

    code = "CONFLICT"


class ConcurrentWriteError(ConflictError):
    """Other writers kept committing first."""

    code = "CONCURRENT_WRITE"
    default_condition = "DELTA_CONCURRENT_WRITE"


class ConcurrentAppendError(ConflictError):
    """A concurrent commit added files where this transaction read."""

    code = "CONCURRENT_APPEND"
    default_condition = "DELTA_CONCURRENT_APPEND"


class ConcurrentDeleteReadError(ConflictError):
    """A concurrent commit removed files that this transaction read."""

    code = "CONCURRENT_DELETE_READ"
    default_condition = "DELTA_CONCURRENT_DELETE_READ"


class ConcurrentDeleteDeleteError(ConflictError):
    """A concurrent commit removed files that this transaction also removes."""

    code = "CONCURRENT_DELETE_DELETE"
    default_condition = "DELTA_CONCURRENT_DELETE_DELETE"


class MetadataChangedError(ConflictError):
    """A concurrent commit changed the table's metadata."""

    code = "METADATA_CHANGED"
    default_condition = "DELTA_METADATA_CHANGED"


class ProtocolChangedError(ConflictError):
    """A concurrent commit changed the table's protocol."""

    code = "PROTOCOL_CHANGED"
    default_condition = "DELTA_PROTOCOL_CHANGED"


class ConcurrentTransactionError(ConflictError):
    """A concurrent commit advanced an application id that this transaction depends on."""

    code = "CONCURRENT_TRANSACTION"
    default_condition = "DELTA_CONCURRENT_TRANSACTION"


class WriteFailedError(TrilakeError):
    """A write failed before its commit: the table is unchanged, and the message lists files that were left behind."""

    code = "WRITE_FAILED"


class AmbiguousMergeError(TrilakeError):
    """Several source rows of a MERGE would change the same row of the table; the message shows them."""

    code = "AMBIGUOUS_MERGE"
    default_condition = "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"


class PostCommitHookError(TrilakeError):
    """A commit succeeded, but a step after it failed: do not repeat the commit."""

    code = "POST_COMMIT_HOOK"
    default_condition = "DELTA_POST_COMMIT_HOOK_FAILED"


class ChangeFeedError(TrilakeError):
    """The change data feed was not recorded for the requested versions, or cannot be read as one stream."""

    code = "CHANGE_FEED"
