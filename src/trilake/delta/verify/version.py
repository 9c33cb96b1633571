"""Checks of a version: features, column mapping, times, files, partition values, row ids, and Iceberg metadata."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator
from functools import partial
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.extras import load
from trilake.delta.commit.row_tracking import ENABLED, high_water_mark, supported
from trilake.delta.iceberg.newest_metadata import VERSION, Newest, metadata_key, metadata_location, newest_metadata
from trilake.delta.log.segment import may_name_sidecars
from trilake.delta.log.snapshot import one_spelling
from trilake.delta.protocol.column_mapping import MAX_COLUMN_ID
from trilake.delta.protocol.features import REGISTRY, has_feature, required
from trilake.delta.protocol.iceberg import is_uniform
from trilake.delta.protocol.partitions import HIVE_NULL, PartitionKeys, hive_directory, parse_values, partition_fields
from trilake.delta.protocol.schema import StructField
from trilake.delta.protocol.schema_edit import nested_fields
from trilake.delta.protocol.table_features.in_commit_timestamp import in_commit_timestamps_from
from trilake.delta.rules.identity import identity_columns
from trilake.delta.scan.statistics import StatisticsReader, record_counts
from trilake.delta.verify.context import DeltaContext
from trilake.errors import CorruptLogError, MissingDependencyError, TrilakeError
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
    lacking = [
        (name, f"the protocol does not have the feature {name}, but {why}")
        for name, why in reasons.items()
        if not has_feature(protocol, name)
    ]
    of_writers, of_readers = set(protocol.writer_features or ()), set(protocol.reader_features or ())
    for name in sorted(of_writers - of_readers):
        row = REGISTRY.get(name)
        if row is not None and row.reader == 3 and protocol.min_reader_version >= 3:
            lacking.append((name, f"the feature {name} is listed for writers, but not for readers"))
    only_readers = sorted(of_readers - of_writers)
    lacking += [(name, f"the feature {name} is listed for readers, but not for writers") for name in only_readers]
    for name, message in lacking:
        yield table.finding(
            "delta.protocol-lacks-feature",
            message,
            f"add the feature to the table's protocol: set the table property delta.feature.{name} to 'supported'",
            details={"feature": name},
        )
    return max(1, len(reasons))


def column_mapping(table: DeltaContext) -> Generator[Finding, None, int]:
    """Mapped columns have unique ids and physical names, and the table property has the highest id."""
    metadata = table.snapshot.metadata
    mode = metadata.column_mapping_mode
    if mode == "none":
        return 0
    wrong = partial(
        table.finding,
        "delta.column-mapping-wrong",
        help="restore an older version, or copy the rows into a new table: columns of files cannot be mapped reliably",
    )
    fields = nested_fields(metadata.schema)
    for f in fields:
        if f.column_id is None or "delta.columnMapping.physicalName" not in f.metadata:
            yield wrong(f"column {f.name!r} has no id or no physical name", column=f.name)
    ids = Counter(f.column_id for f in fields if f.column_id is not None)
    for number in sorted(n for n, count in ids.items() if count > 1):
        column = next(f.name for f in fields if f.column_id == number)
        yield wrong(f"{ids[number]} columns have the id {number}", column=column)
    names = Counter(f.physical_name for f in metadata.schema.fields)
    for name in sorted(n for n, count in names.items() if count > 1):
        yield wrong(f"{names[name]} columns have the physical name {name!r}", column=name)
    string = metadata.configuration.get(MAX_COLUMN_ID, "")
    top = max(ids, default=0)
    if not re.fullmatch("[0-9]{1,18}", string) or int(string) < top:
        yield wrong(f"{MAX_COLUMN_ID} is {string or 'not set'}, but a column has the id {top}")
    return len(fields)


def in_commit_times(table: DeltaContext) -> Generator[Finding, None, int]:
    """With in-commit timestamps, every commit has one, and they increase."""
    metadata = table.snapshot.metadata
    try:
        first = in_commit_timestamps_from(metadata)
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


# --- partition values ------------------------------------------------------------------------------------------------

_VALUES_HELP = "remove the files from the table, and write their rows again with correct values"


def _partition_fields(table: DeltaContext) -> list[StructField]:
    snapshot = table.snapshot
    return partition_fields(snapshot.schema, snapshot.metadata.partition_columns)


def values(table: DeltaContext) -> Generator[Finding, None, int]:
    """Every file has a valid value for every partition column, and for no other column."""
    fields, adds = _partition_fields(table), table.adds
    if not adds.num_rows:
        return 0
    code = "delta.partition-values-wrong"
    maps = adds["partitionValues"]
    counts = pa.array(np.concatenate([np.diff(c.offsets.to_numpy()) for c in maps.chunks]))
    wrong = pc.not_equal(counts, len(fields))
    for f in fields:
        wrong = pc.or_(wrong, pc.is_null(pc.map_lookup(maps, pa.scalar(f.physical_name, pa.string()), "all")))
    names = ", ".join(f.physical_name for f in fields) or "none"
    message = f"the file does not have exactly one value per partition column ({names})"
    yield from table.of_files(wrong, code, message, _VALUES_HELP)
    for f in fields:
        strings = pc.map_lookup(maps, pa.scalar(f.physical_name, pa.string()), "first")
        try:
            parse_values(strings, f)
        except CorruptLogError:
            bad = [t for t in pc.unique(strings).to_pylist() if not _is_value(t, f)]
            hit = pc.is_in(strings, pa.array(bad, pa.string()))
            for path, string in zip(adds["file"].filter(hit).to_pylist(), strings.filter(hit).to_pylist(), strict=True):
                message = f"the partition value {string!r:.100} is not of type {f.type}"
                yield table.finding(code, message, _VALUES_HELP, file=path, column=f.name)
    return adds.num_rows if fields else 0


def _is_value(string: str | None, field: StructField) -> bool:
    try:
        parse_values(pa.chunked_array([[string]], pa.string()), field)
    except CorruptLogError:
        return False
    return True


def paths(table: DeltaContext) -> Generator[Finding, None, int]:
    """A partition value in a folder name equals the value in the log, which readers use; so this is a warning."""
    adds, looked_at = table.adds, 0
    for f in _partition_fields(table):
        name = re.escape(hive_directory({f.physical_name: "x"}).partition("=")[0])
        folder_values = pc.extract_regex(
            adds["file"], pattern=rf"(?:^|/){name}=(?P<v>[^/]*)/[^/]*$|(?:^|/){name}=(?P<w>[^/]*)/"
        )
        strings = pc.coalesce(
            _filled(pc.struct_field(folder_values, "v")),
            _filled(pc.struct_field(folder_values, "w")),
            pa.scalar("", pa.string()),
        )
        in_folder = pc.is_valid(folder_values)
        looked_at += int(pc.sum(in_folder).as_py() or 0)
        if not pc.any(in_folder).as_py():
            continue
        strings_in_log = pc.map_lookup(adds["partitionValues"], pa.scalar(f.physical_name, pa.string()), "first")
        pairs = pa.table({"folder": strings.filter(in_folder), "value": strings_in_log.filter(in_folder)})
        files = adds["file"].filter(in_folder)
        distinct = pairs.group_by(["folder", "value"]).aggregate([]).to_pylist()
        for pair in [p for p in distinct if not _same(p["folder"], p["value"], f)]:
            hit = pc.equal(pairs["folder"], pair["folder"])
            value = pa.scalar(pair["value"], pa.string())
            hit = pc.and_(hit, pc.is_null(pairs["value"]) if pair["value"] is None else pc.equal(pairs["value"], value))
            for path in files.filter(hit).to_pylist():
                yield table.finding(
                    "delta.partition-path-differs",
                    f"the file's folder says {f.name}={pair['folder']:.100}, but the log says {pair['value']!r:.100}",
                    "readers use the value in the log; check the rows to see which value is correct",
                    severity="warning",
                    file=path,
                    column=f.name,
                )
    return looked_at


def _filled(strings: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(pc.equal(strings, ""), pa.scalar(None, pa.string()), strings)


def _same(folder: str, value: str | None, field: StructField) -> bool:
    string = unquote(folder)
    stated, true = None if string == HIVE_NULL else string or None, value or None
    if stated is None or true is None or true in (string, folder):
        return (stated is None) == (true is None)
    try:
        return PartitionKeys.of_actions(({field.physical_name: t} for t in (stated, true)), [field]).count == 1
    except CorruptLogError:
        return False


# --- row tracking and identity columns -------------------------------------------------------------------------------

_REWRITE = "rewrite the file (OPTIMIZE)"
_MARK_HELP = "fix it before writing rows; otherwise ids would be assigned twice"


def row_ids_present(table: DeltaContext) -> Generator[Finding, None, int]:
    """With row tracking, every file has row ids and the version that wrote its rows."""
    snapshot, adds = table.snapshot, table.adds
    if not (supported(snapshot.protocol) and snapshot.properties.is_on(ENABLED)):
        return 0
    lacking = pc.or_(pc.is_null(adds["baseRowId"]), pc.is_null(adds["defaultRowCommitVersion"]))
    yield from table.of_files(lacking, "delta.row-ids-missing", "the file has no row ids", _REWRITE)
    ahead = pc.greater(adds["defaultRowCommitVersion"], table.version)
    yield from table.of_files(ahead, "delta.row-ids-missing", "the file's rows have a future version", _REWRITE)
    return table.file_count


def row_ids_unique(table: DeltaContext) -> Generator[Finding, None, int]:
    """No two files share a row id."""
    adds = table.adds
    with_ids = adds.filter(pc.is_valid(adds["baseRowId"]))
    if not with_ids.num_rows:
        return 0
    order = pc.sort_indices(with_ids, [("baseRowId", "ascending")])
    with_ids = with_ids.take(order)
    first = with_ids["baseRowId"].to_numpy()
    last = first + pc.fill_null(record_counts(with_ids, table.engine.query), 0).to_numpy()
    # The furthest end among all earlier files, since a long range may overlap several short ones.
    reached = np.maximum.accumulate(last)[:-1]
    at = np.flatnonzero(first[1:] < reached) + 1
    for number in at.tolist():
        message = f"the file's row ids from {int(first[number])} on already belong to another file"
        yield table.finding("delta.row-ids-overlap", message, _REWRITE, file=with_ids["file"][number].as_py())
    return int(with_ids.num_rows)


def mark_ahead(table: DeltaContext) -> Generator[Finding, None, int]:
    """No file has row ids beyond their high-water mark."""
    adds, snapshot = table.adds, table.snapshot
    with_ids = adds.filter(pc.is_valid(adds["baseRowId"]))
    if not with_ids.num_rows:
        return 0
    last = pc.add(with_ids["baseRowId"], pc.subtract(pc.fill_null(record_counts(with_ids, table.engine.query), 0), 1))
    top = int(pc.max(last).as_py())
    try:
        mark = high_water_mark(snapshot.state)
    except TrilakeError as e:
        yield table.finding("delta.row-id-mark-behind", e.message, e.help)
        return 1
    if mark < top:
        message = f"the high-water mark of row ids is {mark}, but a row has the id {top}"
        yield table.finding("delta.row-id-mark-behind", message, _MARK_HELP)
    return 1


def identity_marks(table: DeltaContext) -> Generator[Finding, None, int]:
    """No file's statistics show a value beyond the high-water mark of an identity column."""
    snapshot = table.snapshot
    columns = identity_columns(snapshot.schema)
    reader = StatisticsReader(snapshot.adds, snapshot.schema, snapshot.metadata.partition_columns, table.engine.query)
    if columns:
        reader.read((c.name,) for c in columns)
    for column in columns:
        stats = reader.column((column.name,))
        bound = None if stats is None else stats.max if column.step > 0 else stats.min
        reached = None if bound is None else column.reach(bound)
        if reached is None or (column.mark is None and column.explicit):
            continue  # without a mark, nothing was ever generated: all values were given
        yield table.finding(
            "delta.identity-mark-behind",
            f"the high-water mark of identity column {column.name!r} is {column.mark}, but a row has the value"
            f" {reached}",
            "run ALTER TABLE ... ALTER COLUMN ... SYNC IDENTITY before writing rows; otherwise values would be"
            " generated twice",
            severity="warning" if column.explicit else "error",
            column=column.name,
        )
    return len(columns)


# --- Iceberg metadata, if the table's properties enable it -----------------------------------------------------------

_SYNC = "update it with trilake.sync_iceberg; trilake's log messages say why a commit did not update it"
_REBUILD = "rewrite it from the log (trilake.sync_iceberg with rebuild=True)"


def iceberg_current(table: DeltaContext) -> Generator[Finding, None, int]:
    """The newest Iceberg metadata belongs to this table, and to its version or a later one."""
    metadata = table.snapshot.metadata
    if not is_uniform(metadata.configuration):
        return 0
    newest = newest_metadata(table.store)
    message, help = "", _SYNC
    if not newest.number:
        message = "the table has no Iceberg metadata, although its properties enable it"
    elif not newest.content:
        message, help = "the newest Iceberg metadata is not a JSON object", _REBUILD
    elif not newest.is_of(metadata.id, metadata_location(table.store)):
        message = f"the newest Iceberg metadata belongs to another table, or to {newest.content.get('location')}"
    elif newest.version < table.version:
        converted = f"of version {newest.version}" if newest.version >= 0 else "from no version of the table"
        message = f"the newest Iceberg metadata is {converted}, but the table has version {table.version}"
    if message:
        file = metadata_key(newest.number) if newest.number else None
        yield table.finding("delta.iceberg-behind", message, severity="warning", help=help, file=file)
    return 1


def iceberg_same(table: DeltaContext) -> Generator[Finding, None, int]:
    """The Iceberg snapshot of the version has the version's files, with the same numbers of rows."""
    metadata, location = table.snapshot.metadata, metadata_location(table.store)
    if not is_uniform(metadata.configuration):
        return 0
    newest = newest_metadata(table.store)
    path = _manifest_list(newest, table.version)
    if path is None or not newest.is_of(metadata.id, location):
        raise NotCheckedError(f"there is no Iceberg snapshot of version {table.version} in {table.store.uri}")
    try:
        manifests = load("trilake.delta.iceberg.manifests", "Iceberg manifests")
        data_files = load("trilake.delta.iceberg.data_files", "Iceberg manifests")
    except MissingDependencyError as e:
        raise NotCheckedError(e.message) from e
    differs = partial(table.finding, "delta.iceberg-differs", help=_REBUILD)
    try:
        there = dict(manifests.live_files(table.store, location, path))
    except (TrilakeError, manifests.DamagedFileError) as e:
        yield differs(f"the manifests of the version's Iceberg snapshot cannot be read: {e}", file=path)
        return 1
    paths = (data_files.absolute_path(p, location) for p in table.adds["path"].to_pylist())
    for file, rows in zip(paths, record_counts(table.adds, table.engine.query).to_pylist(), strict=True):
        iceberg_file = there.pop(file, None)
        if iceberg_file is None:
            yield differs("the Iceberg snapshot lacks the file", file=file)
        elif iceberg_file != rows:
            message = f"the Iceberg snapshot says that the file has {iceberg_file} rows, but the log says {rows}"
            yield differs(message, file=file)
    for file in there:
        yield differs("the Iceberg snapshot has a file that is not in the version", file=file)
    return table.file_count


def _manifest_list(newest: Newest, version: int) -> str | None:
    snapshots = newest.content.get("snapshots")
    for snapshot in reversed(snapshots if isinstance(snapshots, list) else []):
        if isinstance(snapshot, dict) and (snapshot.get("summary") or {}).get(VERSION) == str(version):
            return str(snapshot.get("manifest-list"))
    return None
