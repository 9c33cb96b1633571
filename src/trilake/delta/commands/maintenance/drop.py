"""The files that dropping a Delta table deletes: data files by the rules of VACUUM without retention, then the log."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.commands.maintenance.vacuum import accounted_for
from trilake.delta.commands.maintenance.vacuum_files import (
    ICEBERG_METADATA,
    garbage,
    nested_tables,
    partition_names,
    references,
)
from trilake.delta.commands.maintenance.vacuum_listing import list_unfinished, listed_with_log, own_files
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import LOG, LogSegment, commit_key
from trilake.delta.protocol.features import check_writable
from trilake.delta.protocol.iceberg import is_uniform
from trilake.storage.ownership import Territory, check_own
from trilake.table.dropping import TableFiles

_ALL_TIMES = 1 << 62
#: Files of the log, which vacuum ignores, and symlink manifests.
_LOG_FILE = (
    rf"^{LOG}/(?:\d{{20}}\..+|_last_checkpoint|_last_vacuum_info|_sidecars/[^/]+\.parquet"
    r"|_(?:staged_)?commits/[^/]+\.json|\.\d{20}\.json\.[^/]+\.tmp)$"
)
_COMMIT = rf"^{LOG}/\d{{20}}\.json$"
_MANIFEST = r"^_symlink_format_manifest/(?:[^/]+=[^/]*/)*manifest$"
_NONE = r"^$"
#: Hadoop's checksum file of a local file.
_CHECKSUM_OF = r"(^|/)\.([^/]+)\.crc$"


def table_files(log: DeltaLog) -> TableFiles:
    """List the files of a table.

    Raises ``UnsupportedProtocolError`` if trilake cannot write it, and ``StorageError`` for a log behind a link.
    """
    store = log.store
    # List before reading the newest version: that version then names every listed file that was committed.
    listing = listed_with_log(store.list())
    segment = log.segment()
    snapshot = log.snapshot(segment.version)
    check_writable(snapshot.protocol, snapshot.metadata, uri=snapshot.uri, version=snapshot.version)
    metadata = ICEBERG_METADATA if is_uniform(snapshot.metadata.configuration) else _NONE
    names = partition_names(snapshot.schema, snapshot.metadata.partition_columns)
    territory = Territory(store, frozenset(nested_tables(listing["path"])))
    log_files = listing.filter(pc.match_substring_regex(listing["path"], _LOG_FILE))
    check_own(store, log_files["path"].to_pylist(), what="drop")
    data = garbage(listing, _ALL_TIMES, references(), names)
    data, _ = accounted_for(log, snapshot, own_files(store, data, territory, _ALL_TIMES, links=False))
    manifests = listing.filter(pc.match_substring_regex(listing["path"], f"{_MANIFEST}|{metadata}"))
    manifests = own_files(store, manifests, territory, _ALL_TIMES, links=False)
    files = pa.concat_tables([data, manifests, list_unfinished(store, "", _ALL_TIMES, names)])
    files = pa.concat_tables([_checksums(listing, files, log_files), files, _ordered(log_files, segment)])
    foreign = listing.filter(pc.invert(pc.is_in(listing["path"], files["path"])))
    return TableFiles(store, files.select(["path", "size"]), foreign.select(["path", "size"]))


def _checksums(listing: pa.Table, *files: pa.Table) -> pa.Table:
    checksums = listing.filter(pc.match_substring_regex(listing["path"], _CHECKSUM_OF))
    of = pc.replace_substring_regex(checksums["path"], _CHECKSUM_OF, r"\1\2")
    paths = pa.chunked_array([chunk for one in files for chunk in one["path"].chunks], pa.string())
    return checksums.filter(pc.is_in(of, paths))


def _ordered(log_files: pa.Table, segment: LogSegment) -> pa.Table:
    """The files of the log, in an order that keeps a version readable until the last file is deleted.

    If the log starts with version 0, its commits go last, the newest first.  Otherwise the last ones are the commits
    after the checkpoint, then the checkpoint, and finally its sidecars, without which nothing can read it.
    """
    paths = log_files["path"]
    sidecars = pc.starts_with(paths, f"{LOG}/_sidecars/")
    if pc.any(pc.equal(paths, commit_key(0))).as_py():
        commits = pc.match_substring_regex(paths, _COMMIT)
        place = pc.if_else(commits, 2, sidecars.cast(pa.int64()))
    else:
        commits = pc.is_in(paths, pa.array([file.key for _, _, file in segment.commits], pa.string()))
        checkpoint = pc.is_in(paths, pa.array([file.key for file in segment.checkpoint_files], pa.string()))
        place = pc.if_else(sidecars, 3, pc.if_else(checkpoint, 2, commits.cast(pa.int64())))
    ordered = log_files.append_column("place", place)
    return ordered.sort_by([("place", "ascending"), ("path", "descending")]).drop_columns(["place"])
