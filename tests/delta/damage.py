"""Damage one file of a table many times and read the table each time, in a separate process.

``python -m tests.delta.damage SEED KIND:COUNT...`` prints as JSON how often each outcome occurred, and the problems:
an error that is not trilake's, or different rows although the damage cannot have changed their meaning.  The process
has a memory limit and dies if something aborts; the caller checks for both.
"""

from __future__ import annotations

import json
import resource
import struct
import sys
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random
from unittest import mock

import pyarrow as pa
from pyroaring import BitMap64

from tests.delta.tables import add, fixed_runtime, inline_vector, lines, metadata, parquet, protocol
from tests.mutations import mutated, mutated_json, mutated_parquet
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.checksum import differences, of_snapshot, read_checksum, write_checksum
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.log_compaction import compact_log
from trilake.delta.log.segment import LAST_CHECKPOINT, SIDECARS, checkpoint_key, checksum_key, commit_key, compacted_key
from trilake.delta.protocol import actions
from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.deletion_vectors import store_vectors
from trilake.delta.protocol.schema import from_arrow
from trilake.delta.scan import statistics
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import TrilakeError
from trilake.storage.memory import MemoryStore

#: Memory limit of the process in bytes.
MEMORY = 4 << 30
#: Time limit of one read in seconds.
TIME = 10.0

Files = dict[str, bytes]
Mutate = Callable[[bytes, Random], bytes]


def _files(store: MemoryStore) -> Files:
    return {o.key: bytes(store.read(o.key)) for o in store.list("")}


#: Further uses of a damaged table, one per damage in turn.
_USES: tuple[Callable[[ArrowDeltaTable], object], ...] = (
    lambda table: table.to_arrow(filter="a > 700"),
    lambda table: table.count() + 0,
    lambda table: DeltaLog(table.log.store, standard_engine()).head(),
    lambda table: DeltaLog(table.log.store, standard_engine()).tombstones(table.snapshot),
    lambda table: DeltaLog(table.log.store, standard_engine()).update(table.snapshot),
    lambda table: (found := read_checksum(table.log.store, table.version)) and differences(found, table.snapshot),
    lambda table: table.history(),
    lambda table: table.files(),
)


@dataclass(frozen=True)
class Whole:
    """The intact table: files with vectors, schema, protocol and rows."""

    adds: pa.Table
    metadata: Metadata
    protocol: Protocol
    rows: pa.Table

    def matches(self, table: ArrowDeltaTable) -> bool:
        """Whether a table has the same state, and so the same rows if its data files are intact."""
        result = table.snapshot
        same = (result.metadata, result.protocol) == (self.metadata, self.protocol)
        return same and result.adds.sort_by("path").equals(self.adds)


def _intact(files: Files) -> Whole:
    table, rows = _opened(files), _rows(files, 0)
    snapshot = table.snapshot
    return Whole(snapshot.adds.sort_by("path"), snapshot.metadata, snapshot.protocol, rows)


def _opened(files: Files) -> ArrowDeltaTable:
    store = MemoryStore()
    for key, data in files.items():
        store.put(key, data)
    return ArrowDeltaTable(store, standard_engine())


def _rows(files: Files, number: int, whole: Whole | None = None) -> pa.Table:
    """Return the rows of a table; skip the read if ``whole`` is given and the table has the same state."""
    table = _opened(files)
    if number % 2:  # also before the rows are read: the damage may show there first
        _USES[number // 2 % len(_USES)](table)
    rows = whole.rows if whole is not None and whole.matches(table) else table.to_arrow()
    if not number % 2:
        _USES[number // 2 % len(_USES)](table)
    # Damage may rename the column in the schema.
    return rows.sort_by([("a", "ascending")]) if "a" in rows.column_names else rows


def _plain(conf: dict[str, str] | None = None, *, v2: bool = False) -> MemoryStore:
    """Three files, one with a vector in a file, one with an inline vector, in two commits."""
    store = MemoryStore()
    tables = [pa.table({"a": range(k * 400, k * 400 + 400), "s": [f"s{i % 7}" for i in range(400)]}) for k in range(3)]
    for k, t in enumerate(tables):
        store.put(f"f{k}", parquet(t, row_group_size=100, write_page_checksum=True))
    vectors: list[dict[str, object] | None] = [
        store_vectors(store, [BitMap64([1, 2, *range(100, 200)])], lambda: "0" * 8 + "-0000-4000-8000-" + "0" * 12)[0],
        inline_vector(*range(5, 50)),
        None,
    ]
    features = ["deletionVectors", *(["v2Checkpoint"] if v2 else [])]
    meta = metadata(from_arrow(tables[0].schema).json())
    meta["metaData"]["configuration"] = dict(conf or {})
    first = [protocol(3, 7, readerFeatures=features, writerFeatures=features), meta]
    adds = []
    for k in range(3):
        stats = {
            "numRecords": 400,
            "minValues": {"a": 400 * k, "s": "s0"},
            "maxValues": {"a": 400 * k + 399, "s": "s6"},
            "nullCount": {"a": 0, "s": 0},
        }
        vector = {"deletionVector": vectors[k]} if vectors[k] else {}
        adds.append(add(f"f{k}", size=len(bytes(store.read(f"f{k}"))), stats=json.dumps(stats), **vector))
    store.put(commit_key(0), lines([*first, *adds[:2]]))
    store.put(commit_key(1), lines([adds[2], {"txn": {"appId": "x", "version": 1}}]))
    return store


def _with_checkpoint(**conf: str) -> MemoryStore:
    v2 = conf.get("delta.checkpointPolicy") == "v2"
    store = _plain(conf, v2=v2)
    log = DeltaLog(store, standard_engine())
    write_checkpoint(log, log.snapshot(), fixed_runtime())
    return store


def _without_hint_checksum() -> MemoryStore:
    """A v2 checkpoint whose hint has no checksum, as some writers leave it."""
    store = _with_checkpoint(**_V2)
    hint = json.loads(bytes(store.read(LAST_CHECKPOINT)))
    del hint["checksum"]
    store.put(LAST_CHECKPOINT, json.dumps(hint).encode())
    return store


def _with_checksum() -> MemoryStore:
    store = _plain()
    log = DeltaLog(store, standard_engine())
    write_checksum(store, 1, of_snapshot(log.snapshot(), {}))
    return store


def _compacted() -> MemoryStore:
    store = _plain()
    compact_log(DeltaLog(store, standard_engine()), 0, 1)
    return store


def _mutated_vector_file(data: bytes, random: Random) -> bytes:
    """Damage with a recomputed checksum."""
    if random.random() < 0.3:
        return mutated(data, random)
    bitmap = mutated(data[5:-4], random)
    return data[:1] + struct.pack(">i", len(bitmap)) + bitmap + struct.pack(">I", zlib.crc32(bitmap))


def _mutated_between(mark: bytes, end: bytes) -> Mutate:
    """Damage between two markers."""

    def mutate(data: bytes, random: Random) -> bytes:
        start = data.index(mark) + len(mark)
        stop = data.index(end, start)
        return data[:start] + mutated(data[start:stop], random) + data[stop:]

    return mutate


@dataclass(frozen=True)
class Kind:
    """One damaged file, and the ``decoder`` that reads it.

    ``exact``: every answer must be right, if there is one.  ``as_large``: read the log with the code path for thousands
    of lines.
    """

    decoder: str
    make: Callable[[], MemoryStore]
    key: Callable[[Files], str]
    mutate: Mutate = mutated
    exact: bool = False
    as_large: bool = False


def _at(key: str) -> Callable[[Files], str]:
    return lambda _: key


def _find_key(*words: str) -> Callable[[Files], str]:
    return lambda files: next(k for k in files if all(w in k for w in words))


_V2 = {"delta.checkpointPolicy": "v2"}
_V2_JSON = {**_V2, "trilake.checkpoint.topLevelFormat": "json"}
KINDS: dict[str, Kind] = {
    "commit": Kind("commit", _plain, _at(commit_key(0))),
    "checkpoint": Kind("checkpoint", _with_checkpoint, _at(checkpoint_key(1)), mutated_parquet, exact=True),
    "v2-json": Kind("checkpoint of JSON", lambda: _with_checkpoint(**_V2_JSON), _find_key("checkpoint.", "-", ".json")),
    "v2-parquet": Kind(
        "checkpoint",
        lambda: _with_checkpoint(**_V2),
        _find_key("01.checkpoint.", ".parquet"),
        mutated_parquet,
        exact=True,
    ),
    "sidecar": Kind("checkpoint", lambda: _with_checkpoint(**_V2), _find_key(SIDECARS), mutated_parquet, exact=True),
    "last-checkpoint": Kind("hint", _with_checkpoint, _at(LAST_CHECKPOINT), exact=True),
    "checksum": Kind("checksum", _with_checksum, _at(checksum_key(1)), exact=True),
    "compacted": Kind("compaction", _compacted, _at(compacted_key(0, 1))),
    "vector-file": Kind("vector", _plain, _find_key("deletion_vector"), _mutated_vector_file),
    "inline-vector": Kind("vector", _plain, _at(commit_key(0)), _mutated_between(b'"i", "pathOrInlineDv": "', b'"')),
    "vector-descriptor": Kind("vector", _plain, _at(commit_key(0)), _mutated_between(b'"deletionVector": {', b"}")),
    "statistics": Kind("statistics", _plain, _at(commit_key(0)), _mutated_between(b'"stats": "{', b'}"')),
    "commit-values": Kind("commit", _plain, _at(commit_key(0)), mutated_json),
    "many-values": Kind("commit", _plain, _at(commit_key(0)), mutated_json, as_large=True),
    "many-statistics": Kind(
        "statistics", _plain, _at(commit_key(0)), _mutated_between(b'"stats": "{', b'}"'), as_large=True
    ),
    "v2-json-values": Kind(
        "checkpoint of JSON", lambda: _with_checkpoint(**_V2_JSON), _find_key("checkpoint.", "-", ".json"), mutated_json
    ),
    "last-checkpoint-values": Kind("hint", _without_hint_checksum, _at(LAST_CHECKPOINT), mutated_json, exact=True),
    "checksum-values": Kind("checksum", _with_checksum, _at(checksum_key(1)), mutated_json, exact=True),
    "compacted-values": Kind("compaction", _compacted, _at(compacted_key(0, 1)), mutated_json),
    "data": Kind("data file", _plain, _at("f0"), mutated_parquet, exact=True),
}


def share(name: str, count: int) -> int:
    """Return the share of ``count`` damages of one decoder per kind.

    >>> share("statistics", 5000)
    2500
    """
    return -(-count // sum(kind.decoder == KINDS[name].decoder for kind in KINDS.values()))


def run(name: str, seed: int, count: int) -> tuple[Counter[str], list[str]]:
    """Return the outcomes of ``count`` damages, and the problems."""
    with ExitStack() as patches:
        for module, limit in ((actions, "_FEW_LINES"), (statistics, "_FEW")) if KINDS[name].as_large else ():
            patches.enter_context(mock.patch.object(module, limit, 0))
        return _run(name, KINDS[name], seed, count)


def _run(name: str, kind: Kind, seed: int, count: int) -> tuple[Counter[str], list[str]]:
    files = _files(kind.make())
    key = kind.key(files)
    whole = _intact(files)
    # Log damage that keeps the state cannot change the rows.
    known = whole if key.startswith("_delta_log/") else None
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []
    for number in range(seed, seed + count):
        print(name, number, file=sys.stderr, flush=True)  # the last attempt, in case the process dies
        damaged = {**files, key: kind.mutate(files[key], Random(number))}
        started = time.monotonic()
        try:
            answer = _rows(damaged, number, known)
        except TrilakeError as e:
            outcomes[type(e).__name__] += 1
            str(e).encode()
        except Exception as e:  # noqa: BLE001 - any other error is a problem
            at = traceback.extract_tb(e.__traceback__)[-1]
            wrong.append(f"{name} {number}: {type(e).__name__}: {str(e)[:120]} at {at.filename}:{at.lineno}")
        else:
            same = answer.equals(whole.rows)
            outcomes["the same rows" if same else "other rows"] += 1
            if kind.exact and not same:
                wrong.append(f"{name} {number}: {answer.num_rows} rows for {whole.rows.num_rows}, or others")
        if time.monotonic() - started > TIME:
            wrong.append(f"{name} {number}: {time.monotonic() - started:.0f} seconds")
    return outcomes, wrong


def main(arguments: list[str]) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    seed = int(arguments[0])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report: dict[str, object] = {}
    problems: list[str] = []
    for text in arguments[1:]:
        name, _, count = text.partition(":")
        outcomes, wrong = run(name, seed, int(count))
        report[name] = dict(outcomes)
        problems += wrong
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    print(json.dumps({"outcomes": report, "problems": problems, "grown_mb": grown}, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
