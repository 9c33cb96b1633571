"""Checkpoints of large Delta tables."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

import deltalake

from bench.harness import Benchmark, Contender
from bench.tables.delta import million, scratch
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.log import DeltaLog
from trilake.delta.standard import standard_engine
from trilake.storage import open_store


def _copy(name: str) -> Callable[[], None]:
    def prepare() -> None:
        target = scratch(name)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(million(), target)

    return prepare


def _theirs() -> None:
    deltalake.DeltaTable(str(scratch("checkpoint-theirs"))).create_checkpoint()


def _ours() -> None:
    log = DeltaLog(open_store(str(scratch("checkpoint-ours"))), standard_engine())
    write_checkpoint(log, log.opened(), SYSTEM_RUNTIME)


def benchmarks() -> Iterator[Benchmark]:
    yield Benchmark(
        "write",
        "open a log with 1,000,000 files (a checkpoint and 100 commits) and write its checkpoint",
        [
            Contender("deltalake", _theirs, _copy("checkpoint-theirs")),
            Contender("trilake", _ours, _copy("checkpoint-ours")),
        ],
        baseline="deltalake",
        targets={"trilake": 1.0},
        memory_targets={"trilake": 2.0},
        setup=million,
        rounds=5,
        memory=True,
    )
