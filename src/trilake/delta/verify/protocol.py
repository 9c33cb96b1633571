"""Checks of protocol and metadata: listed features, column mapping, commit times, duplicate files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator

import pyarrow.compute as pc

from trilake.delta.log.commit_times import in_commit_timestamps_from
from trilake.delta.log.segment import may_name_sidecars
from trilake.delta.log.snapshot import one_spelling
from trilake.delta.protocol.column_mapping import MAX_COLUMN_ID
from trilake.delta.protocol.features import REGISTRY, has_feature, required
from trilake.delta.protocol.schema import StructField
from trilake.delta.protocol.schema_edit import nested_fields
from trilake.delta.verify.context import DeltaContext
from trilake.errors import TrilakeError
from trilake.table.findings import Finding, NotCheckedError


def lists_features(table: DeltaContext) -> Generator[Finding, None, int]:
    """The protocol has every feature that the table uses, and lists reader features for readers."""
    snapshot = table.snapshot
    protocol, state = snapshot.protocol, snapshot.state
    reasons = dict.fromkeys(required(snapshot.metadata), "its metadata requires it")
    if state.adds["deletionVector"].null_count < state.adds.num_rows:
        reasons["deletionVectors"] = "files have deletion vectors"
    if state.adds["baseRowId"].null_count < state.adds.num_rows:
        reasons["rowTracking"] = "files have row ids"
    if any(not d.get("removed") for d in state.domains.values()):
        reasons["domainMetadata"] = "it has metadata domains"
    newest = snapshot.segment.checkpoint_files
    if newest and may_name_sidecars(newest[0].key) and len(newest[0].key.split(".")) > 3:
        reasons["v2Checkpoint"] = "its newest checkpoint is a v2 checkpoint"
    for name, why in reasons.items():
        if not has_feature(protocol, name):
            yield _lacking(table, f"the protocol does not have the feature {name}, but {why}", name)
    feature_names = set(protocol.writer_features or ())
    for name in sorted(feature_names):
        row = REGISTRY.get(name)
        of_readers = row is not None and row.reader == 3 and protocol.min_reader_version >= 3
        if of_readers and name not in set(protocol.reader_features or ()):
            yield _lacking(table, f"the feature {name} is listed for writers, but not for readers", name)
    for name in sorted(set(protocol.reader_features or ()) - feature_names):
        yield _lacking(table, f"the feature {name} is listed for readers, but not for writers", name)
    return max(1, len(reasons))


def _lacking(table: DeltaContext, message: str, name: str) -> Finding:
    return table.finding(
        "delta.protocol-lacks-feature",
        message,
        f"add the feature to the table's protocol: set the table property delta.feature.{name} to 'supported'",
        details={"feature": name},
    )


def column_mapping(table: DeltaContext) -> Generator[Finding, None, int]:
    """Mapped columns have unique ids and physical names, and the table property has the highest id."""
    metadata = table.snapshot.metadata
    mode = metadata.column_mapping_mode
    if mode == "none":
        return 0
    fields = nested_fields(metadata.schema)
    for f in fields:
        if f.column_id is None or "delta.columnMapping.physicalName" not in f.metadata:
            yield _mapping(table, f"column {f.name!r} has no id or no physical name", f.name)
    ids = Counter(f.column_id for f in fields if f.column_id is not None)
    for number in sorted(n for n, count in ids.items() if count > 1):
        yield _mapping(table, f"{ids[number]} columns have the id {number}", _first(fields, number))
    names = Counter(f.physical_name for f in metadata.schema.fields)
    for name in sorted(n for n, count in names.items() if count > 1):
        yield _mapping(table, f"{names[name]} columns have the physical name {name!r}", name)
    string = metadata.configuration.get(MAX_COLUMN_ID, "")
    top = max(ids, default=0)
    if not re.fullmatch("[0-9]{1,18}", string) or int(string) < top:
        yield _mapping(table, f"{MAX_COLUMN_ID} is {string or 'not set'}, but a column has the id {top}", None)
    return len(fields)


def _first(fields: list[StructField], number: int) -> str | None:
    return next((f.name for f in fields if f.column_id == number), None)


def _mapping(table: DeltaContext, message: str, column: str | None) -> Finding:
    return table.finding(
        "delta.column-mapping-wrong",
        message,
        "restore an older version, or copy the rows into a new table: columns of files cannot be mapped reliably",
        column=column,
    )


def in_commit_times(table: DeltaContext) -> Generator[Finding, None, int]:
    """With in-commit timestamps, every commit has one, and they increase."""
    try:
        first = in_commit_timestamps_from(table.snapshot.metadata)
    except NotCheckedError:
        raise
    except TrilakeError as e:
        yield table.finding("delta.in-commit-timestamp-wrong", e.message, e.help)
        return 1
    if first is None:
        return 0
    infos = {v: i for v, i in table.batch.of("commitInfo") if v >= first}
    before: int | None = None
    versions = [v for v in sorted(table.listing.commits) if v >= first and v not in table.bad_commits]
    for version in versions:
        time = infos.get(version, {}).get("inCommitTimestamp")
        wrong = None
        if not isinstance(time, int):
            wrong = "the commit has no inCommitTimestamp"
        elif before is not None and time <= before:
            wrong = f"the commit's inCommitTimestamp {time} is not after {before}, that of the commit before it"
        if wrong is not None:
            yield Finding(
                "delta.in-commit-timestamp-wrong",
                wrong,
                "open the table by version, not by time; restore the commit from a backup",
                file=table.listing.commits[version].key,
                version=version,
            )
        before = time if isinstance(time, int) else before
    return len(versions)


def once(table: DeltaContext) -> Generator[Finding, None, int]:
    """Every data file is in the version only once."""
    files = one_spelling(table.adds, table.store.uri)
    counts = pc.value_counts(files)
    twice = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    for path in twice:
        yield table.finding(
            "delta.file-twice",
            "the version lists a data file more than once, so its rows would be duplicated",
            "restore the log from a backup, or an older version of the table",
            file=path.as_py(),
        )
    return len(files)
