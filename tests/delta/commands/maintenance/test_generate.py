"""Symlink manifests: generated on request, updated after commits if enabled, with failures reported."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.delta.tables import add, log_of, metadata, write
from tests.fault_store import Fault, FaultStore
from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.commands.maintenance.clone import clone
from trilake.delta.commands.maintenance.restore import restore
from trilake.delta.commands.maintenance.vacuum import vacuum
from trilake.delta.commit import symlink_manifest
from trilake.delta.commit.symlink_manifest import ENABLED, FOLDER, check_mode, format_path, generate_manifests
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import commit_key
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.protocol.schema import from_arrow
from trilake.delta.standard import standard_engine
from trilake.errors import InvalidArgumentError, PostCommitHookError
from trilake.storage import open_store
from trilake.storage.base import Store
from trilake.storage.memory import MemoryStore


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64()), "p": pa.array([v % 3 or None for v in values], pa.int64())})


def manifests(store: Store) -> dict[str, list[str]]:
    result = {o.key: bytes(store.read(o.key)).decode() for o in store.list(FOLDER)}
    assert all(text == "" or text.endswith("\n") for text in result.values())
    return {k.removeprefix(f"{FOLDER}/"): sorted(text.splitlines()) for k, text in result.items()}


def expected(log: DeltaLog) -> dict[str, list[str]]:
    """The expected manifests of a table partitioned by ``p`` whose paths need no decoding."""
    out: dict[str, list[str]] = {}
    for row in log.snapshot().adds.to_pylist():
        value = dict(row["partitionValues"])["p"]
        folder = f"p={'__HIVE_DEFAULT_PARTITION__' if value is None else value}"
        out.setdefault(f"{folder}/manifest", []).append(f"{log.store.uri}/{row['path']}")
    return {k: sorted(v) for k, v in out.items()}


def test_unpartitioned_table_has_one_manifest() -> None:
    log = DeltaLog(MemoryStore(), standard_engine())
    write(log, numbers(1, 2))
    write(log, numbers(3))
    done = generate_manifests(log)
    assert (done.written, done.deleted) == (("",), ())
    assert manifests(log.store) == {
        "manifest": sorted(f"{log.store.uri}/{p}" for p in log.snapshot().adds["path"].to_pylist())
    }
    write(log, numbers(), "overwrite")
    generate_manifests(log)
    assert manifests(log.store) == {"manifest": []}, "an empty table has an empty manifest"


def test_manifests_follow_existing_partitions() -> None:
    log = DeltaLog(MemoryStore(), standard_engine())
    write(log, numbers(1, 2, 3), partition_by=("p",))
    write(log, numbers(4))
    done = generate_manifests(log)
    assert done.written == ("p=1", "p=2", "p=__HIVE_DEFAULT_PARTITION__")
    assert manifests(log.store) == expected(log)
    write(log, numbers(), "overwrite", replace_where="p = 1")
    log.store.put(f"{FOLDER}/manifest", b"of a time without partitions\n")
    log.store.put(f"{FOLDER}/notes.txt", b"not ours")
    assert generate_manifests(log).deleted == ("", "p=1")
    log.store.delete([f"{FOLDER}/notes.txt"])
    assert manifests(log.store) == expected(log)


def test_paths_are_absolute_and_not_encoded(tmp_path: Path) -> None:
    place = tmp_path / "a table ü"
    log = DeltaLog(open_store(str(place)), standard_engine())
    table = pa.table({"n": [1, 2], "p": ["x y/%", "é"]})
    write(log, table, partition_by=("p",))
    generate_manifests(log)
    result = manifests(log.store)
    assert sorted(result) == ["p=x y%2F%25/manifest", "p=é/manifest"]
    for (line,) in result.values():
        assert line.startswith(f"file:{place}/p=")
        assert pq.read_metadata(line.removeprefix("file:")).num_rows == 1
    shallow = DeltaLog(open_store(str(tmp_path / "clone")), standard_engine())
    clone(log.snapshot(), log, shallow, shallow=True)
    generate_manifests(shallow)
    for lines in manifests(shallow.store).values():
        assert all(place.name in line for line in lines)
    assert format_path("memory://x") == "memory://x"


def test_deletion_vectors_and_column_mapping_are_rejected() -> None:
    log = DeltaLog(MemoryStore(), standard_engine())
    write(log, numbers(1, 2, 4), properties={"delta.enableDeletionVectors": "true"})
    generate_manifests(log)
    write(log, numbers(), "overwrite", replace_where="n = 1")
    with pytest.raises(InvalidArgumentError, match="deletion vectors"):
        generate_manifests(log)
    mapped = DeltaLog(MemoryStore(), standard_engine())
    write(mapped, numbers(1), properties={"delta.columnMapping.mode": "name"})
    with pytest.raises(InvalidArgumentError, match="column mapping"):
        generate_manifests(mapped)
    with pytest.raises(InvalidArgumentError, match="line break"):
        generate_manifests(log_of([add("a%0Ab")]))


@pytest.mark.parametrize("mode", ["", "symlink", None, 3])
def test_unknown_generate_mode_is_rejected(mode: object) -> None:
    check_mode("Symlink_Format_MANIFEST")
    with pytest.raises(InvalidArgumentError, match="supported"):
        check_mode(mode)


# --- after commits ---------------------------------------------------------------------------------------------------


def test_manifests_follow_every_commit() -> None:
    log = DeltaLog(MemoryStore(), standard_engine())
    write(log, numbers(1, 2, 3), partition_by=("p",), properties={ENABLED: "true"})
    assert manifests(log.store) == expected(log), "with the first commit already"
    written: list[str] = []
    watched = DeltaLog(
        FaultStore(log.store, before=lambda op, key: written.append(key) if op == "put" else None), standard_engine()
    )
    write(watched, numbers(4))
    assert manifests(log.store) == expected(log)
    assert written == [f"{FOLDER}/p=1/manifest"], "only the partition that changed"
    write(log, numbers(), "overwrite", replace_where="p = 2")
    assert manifests(log.store) == expected(log)
    assert "p=2/manifest" not in manifests(log.store)
    restore(log, version=0)
    assert manifests(log.store) == expected(log)
    write(log, numbers(8), "overwrite")
    assert manifests(log.store) == expected(log)
    vacuum(log)
    assert manifests(log.store) == expected(log)
    write(log, numbers(1), "overwrite", schema_mode="overwrite", partition_by=())
    assert list(manifests(log.store)) == ["manifest"]


def test_enabling_the_property_writes_all_manifests() -> None:
    log = DeltaLog(MemoryStore(), standard_engine())
    write(log, numbers(1, 2), partition_by=("p",))
    assert manifests(log.store) == {}
    Alter(log).set_properties({ENABLED: "true"})
    assert manifests(log.store) == expected(log)
    Alter(log).set_properties({ENABLED: "false"})
    write(log, numbers(5))
    assert manifests(log.store) != expected(log)


def test_removal_from_an_unknown_partition_updates_all() -> None:
    schema = from_arrow(numbers().schema).json()
    store = MemoryStore()
    log = log_of(
        [metadata(schema, ["p"], **{ENABLED.replace(".", "__"): "true"}), add("f", partitionValues={"p": "7"})],
        store=store,
    )
    write(log, numbers(1))
    assert manifests(store) == expected(log)


@pytest.mark.parametrize("fault", [Fault("put", f"{FOLDER}/*"), Fault("list", FOLDER)])
def test_failed_manifest_reports_the_successful_commit(fault: Fault) -> None:
    log = DeltaLog(MemoryStore(), standard_engine())
    write(log, numbers(1), partition_by=("p",), properties={ENABLED: "true"})
    with pytest.raises(PostCommitHookError, match="version 1 succeeded") as caught:
        write(DeltaLog(FaultStore(log.store, [fault]), standard_engine()), numbers(2))
    assert caught.value.context["version"] == 1
    assert log.snapshot().adds.num_rows == 2
    write(log, numbers(5))
    assert manifests(log.store) == expected(log)


def test_deletion_vectors_fail_the_hook_not_the_commit() -> None:
    log = DeltaLog(MemoryStore(), standard_engine())
    write(log, numbers(1, 4), partition_by=("p",), properties={"delta.enableDeletionVectors": "true"})
    first = log.store.read(commit_key(0)).to_pybytes()  # as if by another writer: trilake rejects the two together
    log.store.delete([commit_key(0)])
    log.store.put(commit_key(0), first.replace(b'"configuration":{', f'"configuration":{{"{ENABLED}":"true",'.encode()))
    with pytest.raises(PostCommitHookError, match="deletion vectors"):
        write(log, numbers(), "overwrite", replace_where="n = 1")
    assert log.head().version == 1


@pytest.mark.parametrize("first", ["deletes its partition", "adds to its partition", "is generated"])
def test_concurrent_commit_keeps_its_manifests(monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    """The slower of two hooks read the log before the other commit, and writes or deletes last."""
    log = DeltaLog(MemoryStore(), standard_engine())
    write(log, numbers(1, 2), partition_by=("p",), properties={ENABLED: "true"})
    original, others = symlink_manifest._manifests, [7, 4]

    def late(snapshot: Snapshot) -> dict[str, pa.Array]:
        result = original(snapshot)
        if others:
            write(log, numbers(others.pop()))  # its hook finishes before this one continues
        return result

    monkeypatch.setattr(symlink_manifest, "_manifests", late)
    if first == "deletes its partition":
        write(log, numbers(), "overwrite", replace_where="p = 1")
    elif first == "adds to its partition":
        write(log, numbers(10))
    else:
        generate_manifests(log)
    assert manifests(log.store) == expected(log)
