"""Processes that change tables until they are killed, and their fork template.

The template has imported the library, so that a victim only costs a fork.  It reads a line of JSON per victim, forks,
and passes on the victim's output::

    {"mix": ..., "folder": ..., "seed": ..., "start": ...}  -->  pid 4711
                                                                 begin 3       operation 3 has begun
                                                                 done 3 17     it has returned; it made version 17
                                                                 begin 4
                                                                 ended -9

Operation ``n`` depends on mix, seed and ``n`` only, so the expected table follows from them.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import random
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import trilake
from tests.simulation.delta.delta_rows import SCHEMA, arrow
from tests.simulation.lance.lance_rows import SCHEMA as LANCE_SCHEMA
from tests.simulation.lance.lance_rows import arrow as lance_arrow
from tests.simulation.model import KEYS, new_rows, source_rows, upserted
from tests.simulation.plan import Op
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.log_cleanup import cleanup_log
from trilake.delta.log.log_compaction import compact_log
from trilake.delta.scan.read import read_task
from trilake.delta.scan.scan import FileTask
from trilake.delta.standard import standard_engine
from trilake.delta.stream.offset import Limit, StreamOffset
from trilake.delta.stream.options import StreamOptions
from trilake.delta.stream.schema import Reading
from trilake.delta.stream.source import DeltaStream
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import ForeignFilesError, VersionNotFoundError
from trilake.storage import Store, open_store

#: Packages whose modules the template imports, and name prefixes to skip.
_PACKAGES = ("trilake.delta", "trilake.lance", "trilake.trevni", "trilake.expr", "trilake.storage")
_NOT = ("trilake.lance.torch",)


@dataclass(frozen=True)
class Mix:
    """Operations of victims on one table with their weights, and the settings of the table.

    ``again`` are idempotent kinds: repeated after a kill, they apply once.
    """

    format: str
    weights: Mapping[str, int]
    properties: Mapping[str, str]
    partitioned: bool = False
    again: tuple[str, ...] = ()


_DELTA = {"append": 4, "once": 2, "delete": 2, "update": 2, "merge": 4, "overwrite": 1, "where": 1, "optimize": 3}
_DELTA |= {"zorder": 2, "checkpoint": 3, "cleanup": 3, "vacuum": 3, "compact": 2}
_RICH = {
    "delta.enableDeletionVectors": "true",
    "delta.enableRowTracking": "true",
    "delta.enableChangeDataFeed": "true",
    "delta.enableInCommitTimestamps": "true",
    "delta.columnMapping.mode": "name",
    "delta.checkpointPolicy": "v2",
    "delta.checkpointInterval": "3",
}
_PLAIN = {
    "delta.checkpointInterval": "4",
    "delta.logRetentionDuration": "interval 1 hours",
    "trilake.logCompactionInterval": "3",
    "trilake.checksums": "commit",
}
_LANCE = {"append": 4, "batch": 2, "delete": 2, "update": 2, "upsert": 4, "overwrite": 1, "optimize": 3, "index": 3}
_STREAM = {"append": 4, "optimize": 1, "checkpoint": 1, "to delta": 3, "to lance": 3, "to trevni": 3}

MIXES: Mapping[str, Mix] = {
    "delta": Mix("delta", _DELTA, _PLAIN, again=("once",)),
    "delta with features": Mix("delta", _DELTA | {"dynamic": 2, "purge": 2}, _RICH, True, ("once",)),
    "lance": Mix("lance", _LANCE | {"cleanup": 3}, {}, again=("batch",)),
    "trevni": Mix("trevni", {"append": 4, "batch": 4, "overwrite": 2, "sweep": 2}, {}, again=("batch",)),
    "streams": Mix("delta", _STREAM, {"delta.checkpointInterval": "3"}),
}


def op_of(mix: str, seed: int, number: int) -> Op:
    """Return the operation of a number."""
    rng = random.Random(f"{mix}/{seed}/{number}")
    weights = MIXES[mix].weights
    kind = rng.choices(list(weights), list(weights.values()))[0]
    return Op(number, kind, (rng.randrange(KEYS), rng.randrange(1 << 30)))


def begin(mix: str, uri: str) -> None:
    """Create the empty table of a mix."""
    what = MIXES[mix]
    schema = SCHEMA if what.format == "delta" else LANCE_SCHEMA
    by = "p" if what.partitioned else None
    trilake.write(
        schema.empty_table(), uri, format=what.format, properties=what.properties or None, partition_by=by, mode="error"
    )


# --- operations ------------------------------------------------------------------------------------------------------


def run(mix: str, folder: str, op: Op) -> int | None:
    """Run an operation on the table ``t`` of a folder; return its version if it is known."""
    uri = f"{folder}/t"
    if mix == "streams" and op.kind.startswith("to "):
        run_stream(Path(folder), op.kind.removeprefix("to "))
        return None
    operations = {"delta": _delta, "lance": _lance, "trevni": _trevni}[MIXES[mix].format]
    return operations(uri, op)


def _delta(uri: str, op: Op) -> int | None:
    note = f"op:{op.number}"
    key = op.args[0]

    def write(rows: Any, **how: Any) -> int | None:
        version: int | None = trilake.write(arrow(rows), uri, user_metadata=note, **how).version
        return version

    def table() -> ArrowDeltaTable:
        return ArrowDeltaTable(open_store(uri), standard_engine(), user_metadata=note)

    match op.kind:
        case "append":
            return write(new_rows(op), mode="append")
        case "once":
            return write(new_rows(op), mode="append", txn=("victim", op.number))
        case "overwrite":
            return write(new_rows(op), mode="overwrite")
        case "dynamic":
            return write(new_rows(op), mode="overwrite", partition_overwrite="dynamic")
        case "where":
            rows = {i: (key, v) for i, (_, v) in new_rows(op).items()}
            return write(rows, mode="overwrite", replace_where=f"k = {key}")
        case "delete":
            return table().delete(f"k = {key}").version
        case "update":
            return table().update({"v": f"'u{op.number}'"}, f"k = {key}").version
        case "merge":
            merge = table().merge(arrow(source_rows(op)), "t.k = s.k", source_alias="s", target_alias="t")
            columns = {n: f"s.{n}" for n in SCHEMA.names}
            return merge.when_matched_update({"v": "s.v"}).when_not_matched_insert(columns).execute().version
        case "optimize":
            return table().optimize().version
        case "zorder":
            return table().optimize(zorder_by=("k", "id")).version
        case "purge":
            return table().purge().version
        case "vacuum":
            try:
                return table().vacuum(0, dry_run=False, enforce_retention=False, lite=op.args[1] % 3 == 0).version
            except VersionNotFoundError:  # the log no longer lists all files that a lite vacuum must delete
                return table().vacuum(0, dry_run=False, enforce_retention=False).version
    log = DeltaLog(open_store(uri), standard_engine())
    match op.kind:
        case "checkpoint":
            write_checkpoint(log, log.snapshot(), SYSTEM_RUNTIME)
        case "cleanup":
            cleanup_log(log, SYSTEM_RUNTIME)
        case "compact":
            versions = [v for v, _ in log.commits()]
            if len(versions) >= 2:
                compact_log(log, versions[0], versions[-1])
        case _:
            raise AssertionError(op)
    return None


def _lance(uri: str, op: Op) -> int | None:
    from trilake.lance.cleanup import cleanup
    from trilake.lance.commands import compaction, indices
    from trilake.lance.commands.delete import delete
    from trilake.lance.commands.fragment_writer import WriteOptions
    from trilake.lance.commands.merge_insert import MergeInsert, merge_insert
    from trilake.lance.commands.update import update
    from trilake.lance.commands.write import write
    from trilake.lance.scan.snapshot import Snapshot

    store, key = open_store(uri), op.args[0]
    match op.kind:
        case "append" | "overwrite":
            rows = lance_arrow(new_rows(op)).to_batches()
            return write(store, LANCE_SCHEMA, rows, op.kind, SYSTEM_RUNTIME, WriteOptions(2, 2)).version
        case "batch":
            lance_batch(store, lance_arrow(new_rows(op)), "victim", op.number)
            return None
        case "cleanup":
            cleanup(store, 0, SYSTEM_RUNTIME, delete_unverified=op.args[1] % 2 == 0)
            return None
    snapshot = Snapshot.open(store, SYSTEM_RUNTIME)
    match op.kind:
        case "delete":
            return delete(snapshot, f"k = {key}")[0].version
        case "update":
            done = update(snapshot, {"v": f"'u{op.number}'"}, f"k = {key}")
            return done.snapshot.version if done.num_rows_updated else None
        case "upsert":
            what = MergeInsert(("id",), update=True, insert=True)
            return merge_insert(snapshot, what, lance_arrow(upserted(op)))[0].version
        case "optimize":
            compaction.compact(snapshot, compaction.CompactionOptions(target_rows_per_fragment=6))
        case "index":
            indices.create_scalar_index(snapshot, "k" if op.args[1] % 3 else "v")
        case _:
            raise AssertionError(op)
    return None


def _trevni(uri: str, op: Op) -> None:
    from trilake.trevni.tables import jobs

    if op.kind == "sweep":
        jobs.finish_stale_jobs(open_store(uri), SYSTEM_RUNTIME.clock_ms() + 1, stale_ms=0)
    elif op.kind == "batch":
        trevni_batch(open_store(uri), lance_arrow(new_rows(op)), "victim", op.number)
    else:
        trilake.write(lance_arrow(new_rows(op)), uri, format="trevni", mode=op.kind)


# --- batches and streams ---------------------------------------------------------------------------------------------


def delta_batch(store: Store, rows: pa.Table, query: str, number: int) -> None:
    """Write one batch of a stream to a Delta table like the Spark sink."""
    from trilake.delta.commands.write.request import WriteRequest
    from trilake.delta.commands.write.write import plan_write
    from trilake.delta.files.write_files import write_files
    from trilake.delta.protocol.schema import from_arrow
    from trilake.delta.stream.sink import commit_batch
    from trilake.table.streams import BatchId

    log = DeltaLog(store, standard_engine())
    plan = plan_write(log, WriteRequest("append", from_arrow(rows.schema)))
    parts = [write_files(store, plan.files, rows.to_batches(), tasks=1)]
    commit_batch(log, plan, BatchId(query, number), parts)


def lance_batch(store: Store, rows: pa.Table, query: str, number: int) -> None:
    """Write one batch of a stream to a Lance dataset."""
    from trilake.lance.commands.fragment_writer import write_fragments
    from trilake.lance.commands.stream_sink import commit_batch
    from trilake.lance.commands.write import plan_write
    from trilake.table.streams import BatchId

    plan = plan_write(store, "append", SYSTEM_RUNTIME)
    target = plan.target(rows.schema)
    fragments = write_fragments(store, rows.to_batches(), target, plan.options, SYSTEM_RUNTIME)
    commit_batch(store, plan, target, BatchId(query, number), fragments)


def trevni_batch(store: Store, rows: pa.Table, query: str, number: int) -> None:
    """Write one batch of a stream to a folder of Trevni files."""
    from trilake.table.streams import BatchId
    from trilake.trevni.tables.stream import commit_batch
    from trilake.trevni.tables.table_write import plan_table_write, write_rows

    plan = plan_table_write(store, rows.schema, mode="append")
    files = write_rows(store, plan, rows.to_batches(), attempt=SYSTEM_RUNTIME.new_attempt())
    commit_batch(store, plan, BatchId(query, number), files)


_SINKS: Mapping[str, Callable[[Store, pa.Table, str, int], None]] = {
    "delta": delta_batch,
    "lance": lance_batch,
    "trevni": trevni_batch,
}


def run_stream(folder: Path, sink: str) -> None:
    """Stream the table ``t`` to the sink named like its format until nothing is left.

    Two files replace Spark's checkpoint: the offsets of a batch are stored before it runs, and its number when it is
    done; an unfinished batch is repeated.
    """
    source = DeltaLog(open_store(folder / "t"), standard_engine())
    head = source.head()
    stream = DeltaStream(source, Reading(head.metadata, head.version), StreamOptions(starting_version=0))
    decided, noted = folder / f"{sink}.decided", folder / f"{sink}.noted"
    while True:
        done = int(noted.read_text()) if noted.exists() else -1
        plan = json.loads(decided.read_text()) if decided.exists() else None
        if plan is None or plan["batch"] == done:
            start = stream.initial() if plan is None else StreamOffset.from_json(plan["end"])
            end = stream.latest(start, Limit(2))
            if end == start:
                return
            plan = {"batch": done + 1, "start": start.to_json(), "end": end.to_json()}
            _keep(decided, json.dumps(plan))
        batch = stream.batch(StreamOffset.from_json(plan["start"]), StreamOffset.from_json(plan["end"]))
        rows = [b for t in batch.tasks if isinstance(t, FileTask) for b in read_task(source.store, t, batch.plan)]
        table = pa.Table.from_batches(rows).select(SCHEMA.names) if rows else SCHEMA.empty_table()
        store = open_store(folder / sink)
        try:
            _SINKS[sink](store, table, f"q-{sink}", plan["batch"])
        except ForeignFilesError:
            # The first batch died hours ago by its file times: follow the hint of the error.
            store.delete([m.key for m in store.list() if not m.key.startswith("_")])
            _SINKS[sink](store, table, f"q-{sink}", plan["batch"])
        _keep(noted, str(plan["batch"]))


def _keep(path: Path, text: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)


# --- processes -------------------------------------------------------------------------------------------------------


def say(*words: object) -> None:
    """Write a line to the killer before the next step."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def victim(given: Mapping[str, Any]) -> None:
    """Run operations for at most a minute."""
    number, until = int(given["start"]), SYSTEM_RUNTIME.clock_ms() + 60_000
    while SYSTEM_RUNTIME.clock_ms() < until:
        op = op_of(given["mix"], given["seed"], number)
        say("begin", number)
        say("done", number, run(given["mix"], given["folder"], op))
        number += 1


def load() -> None:
    """Import all modules and compile kernels for victims, but start no library that does not survive a fork."""
    import duckdb

    from trilake.trevni.tables import row_groups

    del duckdb
    # Whoever began a job that does not end is dead: do not wait for it as for a job of another machine.
    row_groups.PATIENCE_S = 0.5
    for name in _PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if not module.name.startswith(_NOT):
                importlib.import_module(module.name)
    with tempfile.TemporaryDirectory() as folder:
        # Compiling kernels takes seconds, and a killed victim would repeat it.
        _trevni(f"{folder}/t", Op(1, "append", (0, 0)))
        for number in (1, 2):
            _lance(f"{folder}/l", Op(number, "append", (number, 0)))
            trilake.open(f"{folder}/l", format="lance").to_arrow()


def template() -> None:
    """Fork a victim per line and wait for its end."""
    load()
    say("ready")
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                say("pid", os.getpid())
                victim(json.loads(line))
            except BaseException:  # noqa: BLE001 - it must never go on as a second template
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        say("ended", os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    template()
