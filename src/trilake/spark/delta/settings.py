"""delta-spark's session settings, and how trilake handles them.

Each setting is supported, safe to ignore (because it does not change what is stored), or rejected: if a session has a
setting that trilake cannot follow, a write fails before anything is stored.  An option of the write overrides the
session.  Two settings name a transaction, which each change commits once: :func:`session_transaction`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, get_args

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.engine import CommitHook
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.protocol.type_widening import WideningMode
from trilake.delta.rules.constraints import RowSession
from trilake.errors import InvalidArgumentError
from trilake.spark.session.compat import all_settings, is_connect
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.internals import SPARK_ERRORS, java_session, lines_unrecorded
from trilake.spark.session.settings import is_ansi, is_utc, session_choice, session_flag
from trilake.storage.base import Store

if TYPE_CHECKING:
    from trilake.delta.commit.transaction import CommitEvent


_log = logging.getLogger("trilake.spark")

PREFIX = "spark.databricks.delta."
#: Which rows an overwrite removes: all rows, or those in the written partitions.
OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"
#: The default for the maximum number of rows per file; 0 for no limit.
MAX_RECORDS = "spark.sql.files.maxRecordsPerFile"
#: Whether that setting applies to Delta tables.
DYNAMIC = PREFIX + "dynamicPartitionOverwrite.enabled"
#: Whether every write and merge adds columns that the table lacks.
AUTO_MERGE = PREFIX + "schema.autoMerge.enabled"
#: Whether UPDATE and MERGE cast by the session's ANSI mode instead of its store assignment policy.
CAST_AS_SESSION = PREFIX + "updateAndMergeCastingFollowsAnsiEnabledFlag"
#: Whether INSERT by position keeps null structs of another type, instead of storing structs of nulls.
KEEP_NULL_STRUCTS = PREFIX + "insert.preserveNullSourceStructs"
#: Whether columns without a default that an INSERT leaves out become null, instead of failing.
NULLS_FOR_MISSING = "spark.sql.defaultColumn.useNullsForMissingDefaultValues"
#: Whether a change feed or a stream may start or end after the newest commit.
FEED_BEYOND = PREFIX + "changeDataFeed.timestampOutOfRange.enabled"
#: Whether a conversion takes only the files that a streaming sink committed.
CONVERT_BY_MANIFEST = PREFIX + "convert.useMetadataLog"
#: Whether the new rows of replaceWhere must match its predicate.
REPLACED_CHECKED = PREFIX + "replaceWhere.constraintCheck.enabled"
#: Whether the predicate of replaceWhere may name columns other than partition columns.
REPLACED_BY_DATA = PREFIX + "replaceWhere.dataColumns.enabled"
#: Which types schema evolution widens.
WIDENING = PREFIX + "typeWidening.allowAutomaticWidening"
#: A string to store in every commit.
USER_METADATA = PREFIX + "commitInfo.userMetadata"
#: Set by trilake, never read: the version of the session's last commit, to any table.
LAST_VERSION = PREFIX + "lastCommitVersionInSession"
#: Prefix of properties of new tables; the rest is the name of the property without ``delta.``.
DEFAULTS = PREFIX + "properties.defaults."

Effect = Literal["honoured", "harmless", "rejected"]


@dataclass(frozen=True)
class Setting:
    """How a setting is handled, or all settings below a name that ends with a dot; ``unless`` is the only allowed value
    of a rejected setting, in lower case."""

    name: str
    effect: Effect
    meaning: str
    unless: str | None = None


def _rows(effect: Effect, *names: tuple[str, str]) -> tuple[Setting, ...]:
    return tuple(Setting(PREFIX + name, effect, meaning) for name, meaning in names)


def _harmless(meaning: str, *names: str) -> tuple[Setting, ...]:
    return _rows("harmless", *((name, meaning) for name in names))


#: All listed settings; the longest matching name applies.
SETTINGS: tuple[Setting, ...] = (
    Setting(OVERWRITE_MODE, "honoured", "which rows an overwrite of a partitioned table removes"),
    Setting(MAX_RECORDS, "honoured", "maximum rows per data file of a write"),
    Setting(NULLS_FOR_MISSING, "honoured", "false: INSERT rejects missing columns that have no default"),
    *_rows(
        "honoured",
        ("dynamicPartitionOverwrite.enabled", "false: overwrites are never dynamic"),
        ("schema.autoMerge.enabled", "writes and merges add the columns that a table lacks"),
        ("updateAndMergeCastingFollowsAnsiEnabledFlag", "UPDATE and MERGE cast according to the session's ANSI mode"),
        ("insert.preserveNullSourceStructs", "INSERT by position keeps null structs of another type"),
        (
            "changeDataFeed.timestampOutOfRange.enabled",
            "a change feed or a stream may start or end after the newest commit",
        ),
        (
            "typeWidening.allowAutomaticWidening",
            "same_family_type: schema evolution widens no type to another kind of number; never: it widens none",
        ),
        ("commitInfo.userMetadata", "a string that is stored in every commit"),
        ("convert.useMetadataLog", "false: a conversion also takes files that a streaming sink did not commit"),
        ("lastCommitVersionInSession", "set to the new version after each commit of the session"),
        ("properties.defaults.", "properties of new tables"),
        ("write.txnAppId", "an application ID: INSERT, DELETE, UPDATE and MERGE run once for each of its versions"),
        ("write.txnVersion", "the version of that application"),
        ("write.txnVersion.autoReset.enabled", "the session unsets the version after a change"),
        ("replaceWhere.constraintCheck.enabled", "false: also write rows that do not match replaceWhere"),
        ("replaceWhere.dataColumns.enabled", "false: replaceWhere accepts only partition columns"),
        ("retentionDurationCheck.enabled", "allows VACUUM with a retention shorter than the table's"),
        ("vacuum.logging.enabled", "VACUUM records its start and end as commits"),
        ("vacuum.lite.enabled", "VACUUM uses only the log"),
        ("optimize.", "sizes and checks of OPTIMIZE"),
        ("optimizeWrite.", "shuffle rows by partition before they are written"),
        ("autoCompact.", "compact files after a commit"),
    ),
    *_harmless("a check of delta-spark's SQL", "alterLocation.", "alterTable."),
    *_harmless("unknown properties are always rejected", "allowArbitraryProperties.enabled"),
    *_harmless("how delta-spark finds tables", "catalog."),
    *_harmless("checks of delta-spark, and the columns of a feed with column mapping", "changeDataFeed."),
    *_harmless("a DataFrame whose columns are missing always raises", "checkLatestSchemaOnRead"),
    *_harmless("parts of checkpoints", "checkpoint.", "checkpointV2."),
    *_harmless("how fast clones copy", "clone."),
    *_harmless("checks of delta-spark", "columnMapping.", "typeWidening.", "variant."),
    *_harmless("commits always have this information", "commitInfo.enabled"),
    *_harmless("locks of delta-spark's threads", "commitLock.enabled"),
    *_harmless("commits are always validated", "commitValidation.enabled"),
    *_harmless("DROP CONSTRAINT of a missing constraint", "constraints."),
    *_harmless("how delta-spark lists the files of a conversion", "convert."),
    *_harmless("how the rows to delete are found", "delete."),
    *_harmless("how deletion vectors are read and packed", "deletionVectors."),
    *_harmless("how delta-spark reaches its store", "fileSystem.", "logStore."),
    *_harmless("a command of Databricks", "fsck."),
    *_harmless("how filters become partition filters", "generatedColumn."),
    *_harmless("metrics of commits are always written", "history."),
    *_harmless("identity columns always work", "identityColumn.enabled"),
    *_harmless("how fast conversions run", "import."),
    *_harmless("names that delta-spark once allowed", "legacy."),
    *_harmless("storage options are always taken from the write", "loadFileSystemConfigsFromDataFrameOptions"),
    *_harmless("how many times a commit is tried", "maxCommitAttempts"),
    *_harmless("how delta-spark keeps its state", "maxSnapshotLineageLength", "snapshotCache.", "snapshotPartitions"),
    *_harmless("how merges run", "merge."),
    *_harmless("a switch of Databricks", "preview.enabled"),
    *_harmless("trilake never stores such metadata", "schema.removeSparkInternalMetadata"),
    *_harmless("a query always reads one version of a table", "snapshotIsolation.enabled"),
    *_harmless("trilake's reads are never stale", "stalenessLimit"),
    *_harmless("checks of delta-spark's state", "state."),
    *_harmless("the state is always validated", "stateReconstructionValidation.enabled"),
    *_harmless("collection of statistics and data skipping", "stats."),
    *_harmless("cases in which a stream would not stop; trilake stops", "streaming."),
    *_harmless("checks of delta-spark's SQL", "tempViews."),
    *_harmless("how delta-spark resolves timestamps", "timeTravel."),
    *_harmless("how the rows to update are found", "update."),
    *_harmless("how fast VACUUM runs", "vacuum."),
    *_harmless("checksums of versions follow the property trilake.checksums", "writeChecksumFile.enabled"),
    Setting(
        PREFIX + "write.utcTimestampPartitionValues",
        "rejected",
        "false: writes partition values of timestamps in the session's time zone",
        unless="true",
    ),
    Setting(
        PREFIX + "schema.typeCheck.enabled",
        "rejected",
        "false: allows types that Delta does not support",
        unless="true",
    ),
    Setting(
        PREFIX + "convert.partitionValues.ignoreCastFailure",
        "rejected",
        "invalid partition values become null",
        unless="false",
    ),
    Setting(
        PREFIX + "generatedColumn.allowNullable",
        "rejected",
        "false: changes the checks of generated columns",
        unless="true",
    ),
)

_BY_NAME = {s.name.lower(): s for s in SETTINGS}
#: Names about which this process has warned; each gets one warning.
_warned: set[str] = set()


def setting_of(name: str) -> Setting | None:
    """How a setting is handled, by its full name; ``None`` for a setting that is not listed."""
    lowered = name.lower()
    while lowered:
        setting = _BY_NAME.get(lowered)
        if setting is not None:
            return setting
        head, dot, _ = lowered.rstrip(".").rpartition(".")
        lowered = head + dot
    return None


def delta_settings(spark: SparkSession) -> dict[str, str]:
    """All settings of the session below ``spark.databricks.delta``, in one call to the JVM or server.  Keys have the
    case in which they were set."""
    if is_connect(spark):
        return _below_prefix(all_settings(spark))
    try:
        value = str(java_session(spark).conf().getAll().toString())
    except Py4JError:
        return _below_prefix(all_settings(spark))
    names = set(re.findall(rf"(?:\(|, )({re.escape(PREFIX)}[^\s,()]+) -> ", value))
    return {name: str(spark.conf.get(name)) for name in names}


def _below_prefix(settings: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in settings.items() if k.startswith(PREFIX)}


def check_settings(settings: Mapping[str, str]) -> None:
    """Reject settings that would change what is stored.  Raises ``InvalidArgumentError``.  Logs a warning, once, for
    each name that is not listed."""
    for name, value in sorted(settings.items()):
        setting = setting_of(name)
        if setting is None:
            if name not in _warned:
                _warned.add(name)
                _log.warning("unknown setting %s has no effect", name)
        elif setting.effect == "rejected" and value.lower() != setting.unless:
            raise InvalidArgumentError(
                f"the session's {name} is {value!r} ({setting.meaning}), which trilake does not support",
                help="unset it" if setting.unless is None else f"unset it, or set it to {setting.unless}",
                setting=name,
            )


def session_log(spark: SparkSession, store: Store) -> DeltaLog:
    """A log for commits of this session: they get its user metadata and set :data:`LAST_VERSION`."""
    settings = delta_settings(spark)
    check_settings(settings)
    engine = spark_engine()
    # This hook comes first: later ones may commit, and then set a later version.
    hooks: tuple[CommitHook, ...] = (_SetLastVersion(spark), *engine.commit_hooks(store.uri))
    return DeltaLog(store, replace(engine, hooks=hooks), user_metadata=settings.get(USER_METADATA))


@dataclass(frozen=True)
class _SetLastVersion:
    """Sets a session's :data:`LAST_VERSION` after a commit; does nothing once it has been pickled."""

    spark: SparkSession | None

    def __reduce__(self) -> tuple[type[_SetLastVersion], tuple[None]]:
        return type(self), (None,)

    def __call__(self, event: CommitEvent) -> None:
        if self.spark is None:
            return
        try:
            self.spark.conf.set(LAST_VERSION, str(event.version))
        except SPARK_ERRORS as e:
            _log.warning(
                "version %d of %s is committed, but the session setting was not updated: %s",
                event.version,
                event.log.store.uri,
                e,
            )


def default_properties(spark: SparkSession) -> dict[str, str]:
    """The session's default properties of new tables."""
    settings = delta_settings(spark)
    return {"delta." + name.removeprefix(DEFAULTS): v for name, v in settings.items() if name.startswith(DEFAULTS)}


def with_session(spark: SparkSession, request: WriteRequest, *, decided: Collection[str] = ()) -> WriteRequest:
    """A write with the defaults of its session, except for the options that the write ``decided``:
    ``partitionOverwriteMode``, ``mergeSchema``.  Raises ``InvalidArgumentError`` for an invalid value."""
    new: dict[str, Any] = {}
    defaults = default_properties(spark)
    if defaults:
        new["default_properties"] = defaults
    if request.mode == "overwrite" and "partitionOverwriteMode" not in decided:
        new["prefer_dynamic"] = overwrites_dynamically(spark)
    if request.schema_mode is None and "mergeSchema" not in decided and session_flag(spark, AUTO_MERGE, False):
        new["schema_mode"] = "merge"
    if new.get("schema_mode", request.schema_mode) == "merge":
        new["widening"] = session_widening(spark)
    if request.max_records_per_file is None:
        most = int(spark.conf.get(MAX_RECORDS, "0") or 0)
        if most > 0:
            new["max_records_per_file"] = most
    if request.replace_where is not None:
        new["replace_where_checked"] = session_flag(spark, REPLACED_CHECKED, True)
        new["replace_where_data"] = session_flag(spark, REPLACED_BY_DATA, True)
    return replace(request, **new) if new else request


def session_widening(spark: SparkSession) -> WideningMode:
    """Which types schema evolution widens in the session."""
    return cast(WideningMode, session_choice(spark, WIDENING, get_args(WideningMode)))


def overwrites_dynamically(spark: SparkSession) -> bool:
    """Whether an overwrite, by default, replaces only the partitions of its rows."""
    mode = session_choice(spark, OVERWRITE_MODE, ("static", "dynamic"))
    return mode == "dynamic" and session_flag(spark, DYNAMIC, True)


def row_session(spark: SparkSession) -> RowSession:
    """The session of rows, for the table's rules."""
    return RowSession(zoned=not is_utc(spark), lenient=not is_ansi(spark))


R = TypeVar("R")
Transaction = tuple[str, int]

APP_ID = PREFIX + "write.txnAppId"
VERSION = PREFIX + "write.txnVersion"
#: Whether the version is unset after a change.
AUTO_RESET = VERSION + ".autoReset.enabled"


def session_transaction(spark: SparkSession) -> Transaction | None:
    """The application and version of the session's next change, if any.  Raises ``InvalidArgumentError`` if only one of
    the two is set, or the version is not a whole number."""
    app_id, version = spark.conf.get(APP_ID, None), spark.conf.get(VERSION, None)
    if app_id is None and version is None:
        return None
    if app_id is None or version is None:
        raise InvalidArgumentError(
            f"{VERSION if app_id is None else APP_ID} is set without {APP_ID if app_id is None else VERSION}",
            help="set both, or unset both",
            condition="DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS",
        )
    try:
        number = int(version)
    except ValueError:
        number = -1
    if not app_id or not 0 <= number < 1 << 63:
        wrong, value, expected = (
            (VERSION, version, "an integer >= 0") if app_id else (APP_ID, app_id, "a non-empty string")
        )
        raise InvalidArgumentError(
            f"{wrong} must be {expected}, got {value!r}", setting=wrong, condition="DELTA_ILLEGAL_OPTION"
        )
    return app_id, number


def once(spark: SparkSession, snapshot: Snapshot, skipped: R, change: Callable[[Transaction | None], R]) -> R:
    """Run a change for the session's transaction; return ``skipped`` if the table already has that transaction."""
    transaction = session_transaction(spark)
    done = transaction is not None and snapshot.has_transaction(*transaction)
    with lines_unrecorded():
        result = skipped if done else change(transaction)
    settle(spark, transaction)
    return result


def settle(spark: SparkSession, transaction: Transaction | None) -> None:
    """Unset the session's version after a change, if a setting requests that."""
    if transaction is not None and session_flag(spark, AUTO_RESET, False):
        spark.conf.unset(VERSION)
