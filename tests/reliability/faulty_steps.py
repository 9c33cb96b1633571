"""Each step of a table's life, once per failing call of the operating system.

The error must be a typed one; the rows are those before or after the step, and if the
error says that nothing changed, those before; nothing stays open; and a retry of the step gives the result of
a run without the error.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trilake
from tests.reliability.os_faults import OsFaults
from tests.simulation.test_crash_states import Rows, delta_steps, lance_steps, rows, sorted_rows
from trilake.errors import PostCommitHookError, TableNotFoundError, TrilakeError, UnknownOutcomeError
from trilake.storage import durable

Step = Callable[[], Any]

_TREVNI = {"codec": "deflate", "rowGroupSize": "1k"}


def trevni_steps(uri: str) -> list[Step]:
    def write(mode: str, *ids: int) -> Step:
        return lambda: trilake.write(rows(*ids), uri, mode=mode, format="trevni", properties=_TREVNI)

    return [write("error", 1, 2, 3), write("append", 4, 5), write("overwrite", 6), write("append", 7)]


STEPS: dict[str, Callable[[str], list[Step]]] = {"delta": delta_steps, "lance": lance_steps, "trevni": trevni_steps}


#: Steps already done in a template: steps of one folder are tested in order.
_DONE: dict[Path, int] = {}


@dataclass
class Outcome:
    """Results of all calls of some steps."""

    faults: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def _rows_at(uri: str) -> Rows | None:
    try:
        return sorted_rows(trilake.open(uri))
    except TableNotFoundError:
        return None


def handles() -> int:
    """Return the number of files and pipes that this process has open."""
    return len(os.listdir("/proc/self/fd"))


def try_calls(
    root: Path, kind: str, number: int, code: int, *, lasts: bool = False, every: int = 1, first: int = 1
) -> Outcome:
    """Raise ``code`` at each ``every``-th call of one step of a format, starting at ``first``."""
    outcome = Outcome()
    make = STEPS[kind]
    template, place = root / "template", root / "table"
    for step in make(str(template))[_DONE.get(template, 0) : number]:
        step()
    _DONE[template] = number
    before = _rows_at(str(template))
    uri = str(place)

    def fresh() -> Step:
        shutil.rmtree(place, ignore_errors=True)
        if template.exists():
            shutil.copytree(template, place)
        durable._DURABLE.clear()
        return make(uri)[number]

    fresh()()
    after = _rows_at(uri)
    open_before = handles()
    for nth in _numbers(first, every):
        act = fresh()
        faults = OsFaults(code, nth, lasts)
        where = f"{kind} step {number}, {errno.errorcode[code]} {'from' if lasts else 'at'} call {nth}"
        error: TrilakeError | None = None
        try:
            with faults.happening():
                act()
        except TrilakeError as e:
            error = e
        except Exception as e:  # noqa: BLE001 - any other error is wrong
            outcome.wrong.append(f"{where} ({faults.calls[nth - 1 :][:1]}): {type(e).__name__}: {e}")
            continue
        if not faults.hits:
            break
        outcome.faults += 1
        outcome.errors[type(error).__name__ if error else "none"] += 1
        where = f"{where} ({faults.calls[nth - 1]}): {error or 'no error'}"
        try:
            result = _rows_at(uri)
            if error is None and result != after:
                outcome.wrong.append(f"{where}: rows {result} for {after}")
            elif result not in (before, after):
                outcome.wrong.append(f"{where}: rows {result}, neither {before} nor {after}")
            elif result != before and not isinstance(error, UnknownOutcomeError | PostCommitHookError | None):
                outcome.wrong.append(f"{where}: it happened, and the error says that it did not")
            if error is not None and (result == before or before == after):
                make(uri)[number]()
                if (again := _rows_at(uri)) != after:
                    outcome.wrong.append(f"{where}: done again, rows {again} for {after}")
        except TrilakeError as e:
            outcome.wrong.append(f"{where}: afterwards {e}")
    error = None
    if (left := handles() - open_before) > 0:
        outcome.wrong.append(f"{kind} step {number}, {errno.errorcode[code]}: {left} files were left open")
    return outcome


def _numbers(first: int, every: int) -> Iterator[int]:
    number = first
    while True:
        yield number
        number += every
