"""Run a seed or a plan, and shrink a failing plan."""

from __future__ import annotations

import functools
import gc
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import pyarrow as pa

from tests.simulation.plan import Plan, make_plan
from tests.simulation.remembered import forget, remembered
from tests.simulation.world import Violation, World


@dataclass(frozen=True)
class Result:
    """Result of a run: ``failure`` is ``None`` if all promises hold."""

    plan: Plan
    failure: str | None
    events: tuple[tuple[int, int, str, str], ...]
    versions: int
    cause: BaseException | None = None


class _OneThread:
    """A thread pool without threads: work runs at once in the submitting thread."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> _OneThread:
        return self

    def __exit__(self, *_: Any) -> None: ...

    def submit(self, function: Callable[..., Any], *args: Any, **more: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function(*args, **more))
        except Exception as e:  # noqa: BLE001 - a pool passes it on as well
            future.set_exception(e)
        return future

    def map(self, function: Callable[..., Any], *given: Any) -> Iterator[Any]:
        return iter([function(*args) for args in zip(*given, strict=False)])

    def shutdown(self, *_: Any, **__: Any) -> None: ...


def _computed(self: Any, instance: Any, owner: Any = None) -> Any:
    """``cached_property.__get__`` without the lock, which Python 3.11 shares among all instances of a class.

    An actor paused at a store call inside of one would block all others forever.
    """
    if instance is None:
        return self
    if self.attrname not in instance.__dict__:
        instance.__dict__[self.attrname] = self.func(instance)
    return instance.__dict__[self.attrname]


def _one(*_: object) -> int:
    """Replace the CPU count; a mock would keep the arguments of each call."""
    return 1


@contextmanager
def one_thread() -> Iterator[None]:
    """Run the library without threads, so that the scheduler controls every call."""
    import trilake.delta.commands.optimize.bins as bins
    import trilake.delta.commands.optimize.rewrite as rewrite
    import trilake.delta.commands.rows.row_changes as row_changes
    import trilake.delta.scan.read as read
    import trilake.lance.scan.scan as scan
    import trilake.lance.v1.data_file_writer as data_file_writer
    from trilake.delta.commands.rows import removal

    cpus, io = pa.cpu_count(), pa.io_thread_count()
    patches: list[Any] = [
        mock.patch.object(os, "cpu_count", _one),
        mock.patch.object(functools.cached_property, "__get__", _computed),
        mock.patch.object(read, "_workers", _one),
        mock.patch.object(scan, "THREADS", 1),
        *(
            mock.patch.object(module, "ThreadPoolExecutor", _OneThread)
            for module in (bins, rewrite, row_changes, removal, data_file_writer, scan)
        ),
    ]
    for patch in patches:
        patch.start()
    pa.set_cpu_count(1)
    try:
        with remembered():
            yield
    finally:
        pa.set_cpu_count(cpus)
        pa.set_io_thread_count(io)
        for patch in reversed(patches):
            patch.stop()


def run_plan(plan: Plan) -> Result:
    """Run a plan; call it within :func:`one_thread`."""
    forget()
    if plan.format == "delta":
        from tests.simulation.delta.delta_history import DeltaHistory
        from tests.simulation.delta.delta_ops import DeltaOps, begin
        from trilake.delta.log.log import DeltaLog

        large = mock.patch("trilake.delta.log.segment.LARGE_BYTES", 0) if "large" in plan.options else nullcontext()
        world = World(plan, DeltaHistory, DeltaOps())
        with large, mock.patch.object(DeltaLog, "_past_damage", _no_damage(world, DeltaLog._past_damage)):
            return _result(plan, world, begin)
    if plan.format == "new":
        from tests.simulation.new_tables import NewHistory, execute

        return _result(plan, World(plan, NewHistory, execute), lambda world: None)
    else:
        from tests.simulation.lance.lance_history import LanceHistory
        from tests.simulation.lance.lance_ops import LanceOps
        from tests.simulation.lance.lance_ops import begin as begin_lance

        world = World(plan, LanceHistory, LanceOps())
        return _result(plan, world, begin_lance)


def _no_damage(world: World, past_damage: Callable[..., Any]) -> Callable[..., Any]:
    """Fail if a log read skips a damaged checkpoint although the plan damages none."""

    def past(log: Any, segment: Any, read: Callable[..., Any]) -> Any:
        calls = []

        def noted(of: Any) -> Any:
            calls.append(of)
            return read(of)

        found = past_damage(log, segment, noted)
        if len(calls) > 1:
            world.history.skipped_checkpoint(segment)
        return found

    return past


def _result(plan: Plan, world: World, begin: Callable[[World], None]) -> Result:
    try:
        begin(world)
    except Violation as e:
        return Result(plan, f"as the table was made: {e}", (), 0, e)
    failure = world.run()
    return Result(plan, failure, tuple(world.events), world.history.newest, world.cause)


def run_seed(seed: int, format: str | None = None) -> Result:
    """Run the plan of a seed."""
    return run_plan(make_plan(seed, format))


def run_many(args: tuple[int, int, str | None, float | None, bool]) -> tuple[int, int, list[tuple[int, str]]]:
    """Run seeds until one fails or the time is up; return the number of seeds and versions, and the failure."""
    first, last, format, until, all_ = args
    ran = versions = 0
    failed: list[tuple[int, str]] = []
    with one_thread(), _rare_collections():
        for seed in range(first, last):
            if until is not None and time.monotonic() > until:
                break
            result = run_seed(seed, format)
            ran += 1
            versions += result.versions
            if result.failure is not None:
                failed.append((seed, result.failure))
                if not all_:
                    break
    return ran, versions, failed


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Collect garbage less often and skip module objects: a run creates few cycles."""
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def _kind(failure: str | None) -> str:
    """Return the kind of a failure, without digits and names that depend on the schedule."""
    return "" if failure is None else "".join(c for c in failure if not c.isdigit())[:40]


def smaller(plan: Plan) -> Iterator[Plan]:
    """Yield plans with one part removed."""
    for i in range(len(plan.actors)):
        if len(plan.actors) > 1 and not (i == len(plan.actors) - 1 and "stream" in plan.options):
            faults = tuple(replace(f, actor=f.actor - (f.actor > i)) for f in plan.faults if f.actor != i)
            yield replace(plan, actors=plan.actors[:i] + plan.actors[i + 1 :], faults=faults)
    for i in range(len(plan.faults)):
        yield replace(plan, faults=plan.faults[:i] + plan.faults[i + 1 :])
    for i, ops in enumerate(plan.actors):
        for j in range(len(ops)):
            if len(ops) > 1:
                actors = list(plan.actors)
                actors[i] = ops[:j] + ops[j + 1 :]
                yield replace(plan, actors=tuple(actors))
    for name in plan.options:
        if name != "stream":
            yield replace(plan, options={k: v for k, v in plan.options.items() if k != name})
    if plan.page < 1000:
        yield replace(plan, page=1000)


def shrink(plan: Plan, failure: str, tries: int = 12) -> Result:
    """Return a minimal plan that fails in the same way.

    A smaller plan has another schedule for the same seed, so ``tries`` schedules are tried for each.
    """
    kind = _kind(failure)
    best = run_plan(plan)
    changed = True
    while changed:
        changed = False
        for candidate in smaller(best.plan):
            for turn in range(tries):
                result = run_plan(replace(candidate, seed=best.plan.seed if turn == 0 else plan.seed * 1000 + turn))
                if result.failure is not None and _kind(result.failure) == kind:
                    best, changed = result, True
                    break
            if changed:
                break
    return best
