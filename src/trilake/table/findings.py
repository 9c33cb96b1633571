"""``Findings`` and ``Repairs``: the results of ``verify`` and ``repair``, for all formats.

Each format has a list of :class:`Check`; :func:`run_checks` runs them all.  Unreadable files are findings, too.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from trilake.common.display import table_of
from trilake.common.text import plural
from trilake.errors import InvalidArgumentError, TrilakeError, masked

#: Depth of ``verify``: only the metadata; also each file, without rows; also rows.
Depth: TypeAlias = Literal["log", "files", "rows"]
#: ``error``: the format's rules are broken.  ``warning``: no data is at risk, but readers are misled or slow.
Severity: TypeAlias = Literal["error", "warning"]
#: Result of a check; ``skipped`` if it could not run, see ``reason``.
Outcome: TypeAlias = Literal["passed", "failed", "skipped"]

DEPTHS: tuple[Depth, ...] = ("log", "files", "rows")
#: Most findings that one check lists; the total is in :attr:`CheckRun.found`.
MAX_LISTED = 100
#: Most characters of a cell in a notebook.
_CELL = 2000


def as_depth(depth: str) -> Depth:
    """Check a depth from a caller.  Raises ``InvalidArgumentError``.

    >>> as_depth("files")
    'files'
    """
    if depth not in DEPTHS:
        raise InvalidArgumentError(f"unknown depth {depth!r:.80}", help=f"use one of {', '.join(DEPTHS)}")
    return depth


def spread(count: int, most: int | None) -> list[int]:
    """Choose at most ``most`` of ``count`` files, evenly spread; all of them for ``None``.

    >>> spread(10, 4), spread(2, None)
    ([0, 3, 6, 9], [0, 1])
    """
    if most is None or most >= count:
        return list(range(count))
    chosen: list[int] = np.unique(np.linspace(0, count - 1, most).round().astype(np.int64)).tolist()
    return chosen


@dataclass(frozen=True)
class Finding:
    """A broken rule of the format.

    Parameters
    ----------
    code: stable name of the rule, such as ``"delta.checkpoint-differs"``.
    severity: ``"error"`` or ``"warning"``.
    message: what is broken, one sentence.
    help: what to do about it.
    file, version, column: where.
    repair: the code of the ``repair`` step that fixes it, if there is one.
    details: more facts, as plain values.

    >>> finding = Finding("delta.log-gap", "version 3 is missing", version=3)
    >>> str(finding)
    'error delta.log-gap: version 3 is missing (version: 3)'
    >>> finding.to_dict()["version"]
    3
    """

    code: str
    message: str
    help: str | None = None
    severity: Severity = "error"
    file: str | None = None
    version: int | None = None
    column: str | None = None
    repair: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The finding as plain values, with all keys."""
        return {**vars(self), "details": dict(self.details)}

    def __str__(self) -> str:
        places = {"file": self.file, "version": self.version, "column": self.column}
        where = ", ".join(f"{k}: {v}" for k, v in places.items() if v is not None)
        line = f"{self.severity} {self.code}: {self.message}" + (f" ({where})" if where else "")
        return line + (f". Help: {self.help}" if self.help else "")


@dataclass(frozen=True)
class CheckRun:
    """The result of one check; ``found`` counts all findings, listed or not.

    ``examined`` counts the files, columns, blocks or versions that were checked.
    """

    code: str
    promise: str
    outcome: Outcome
    examined: int = 0
    found: int = 0
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


_NAMES = ("code", "severity", "message", "help", "file", "version", "column", "repair")
_FINDINGS = pa.schema([(name, pa.int64() if name == "version" else pa.string()) for name in _NAMES])


@dataclass(frozen=True)
class Findings:
    """The result of ``verify``: the findings, and each check.

    Iterates over the findings; ``bool(findings)`` is true if there are any, ``ok`` if there is no error and every check
    could run.

    >>> import trilake
    >>> _ = trilake.write({"n": [1, 2]}, "memory://doc-findings")
    >>> found = trilake.verify("memory://doc-findings")
    >>> found.ok, list(found), found.to_arrow().num_rows
    (True, [], 0)
    >>> found.to_dict()["ok"], found.to_json()[:1]
    (True, '{')
    """

    uri: str
    format: str
    version: int | None
    depth: Depth
    findings: tuple[Finding, ...] = ()
    checks: tuple[CheckRun, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there is no error and no skipped check; warnings are allowed."""
        return not self.errors and not self.skipped

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.severity == "error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.severity == "warning")

    @property
    def skipped(self) -> tuple[CheckRun, ...]:
        """The checks that could not run."""
        return tuple(c for c in self.checks if c.outcome == "skipped")

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of the findings, each once, in order."""
        return tuple(dict.fromkeys(f.code for f in self.findings))

    def __iter__(self) -> Any:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "uri": masked(self.uri),
            "format": self.format,
            "version": self.version,
            "depth": self.depth,
            "ok": self.ok,
            "findings": [f.to_dict() for f in self.findings],
            "checks": [c.to_dict() for c in self.checks],
        }

    def to_json(self) -> str:
        """Everything as one JSON object."""
        return json.dumps(self.to_dict(), default=str, ensure_ascii=False)

    def to_arrow(self) -> pa.Table:
        """One row per finding."""
        return pa.Table.from_pylist([f.to_dict() for f in self.findings], schema=_FINDINGS)

    def _head(self) -> str:
        at = "" if self.version is None else f" version {self.version}"
        state = "no errors"
        if not self.ok or self.findings:
            state = f"{plural(len(self.errors), 'error')}, {plural(len(self.warnings), 'warning')}"
            state += f", {plural(len(self.skipped), 'check')} skipped"
        return f"{self.format} table {masked(self.uri)}{at}: {state} ({len(self.checks)} checks, depth {self.depth})"

    def _not_made(self) -> list[str]:
        by_reason: dict[str | None, list[str]] = {}
        for check in self.skipped:
            by_reason.setdefault(check.reason, []).append(check.code)
        return [f"{plural(len(c), 'check')} skipped: {reason} ({', '.join(c)})" for reason, c in by_reason.items()]

    def __str__(self) -> str:
        unlisted = [f"{c.code}: {c.found:,} in total" for c in self.checks if c.found > MAX_LISTED]
        return "\n".join([self._head(), *map(str, self.findings), *unlisted, *self._not_made()])

    def _repr_html_(self) -> str:
        names = ("severity", "code", "problem", "where", "what to do")
        rows = [(f.severity, f.code, f.message, f.file or f.column, f.help) for f in self.findings[:MAX_LISTED]]
        table = table_of(names, rows, limit=_CELL)
        not_made = "".join(f"<p>{html.escape(line)}</p>" for line in self._not_made())
        return f"<div><b>{html.escape(self._head())}</b>{table if self.findings else ''}{not_made}</div>"


class NotCheckedError(TrilakeError):
    """A check cannot run, because something that it needs is broken; that is another finding."""

    code = "NOT_CHECKED"


_C = TypeVar("_C")


@dataclass(frozen=True)
class Check(Generic[_C]):
    """One rule of a format, and the function that checks it.

    ``run`` takes the format's context, yields findings, and may return the number of items that it checked.  It raises
    :class:`NotCheckedError` if it cannot run.
    """

    code: str
    promise: str
    depth: Depth
    run: Callable[[_C], Iterable[Finding]]


def run_checks(
    checks: Sequence[Check[_C]], context: _C, depth: Depth, limit: int = MAX_LISTED
) -> tuple[tuple[Finding, ...], tuple[CheckRun, ...]]:
    """Run all checks up to a depth; list at most ``limit`` findings of each."""
    findings: list[Finding] = []
    runs: list[CheckRun] = []
    for check in checks:
        if DEPTHS.index(check.depth) > DEPTHS.index(depth):
            continue
        check_findings, run = _run(check, context, limit)
        findings += check_findings
        runs.append(run)
    return tuple(findings), tuple(runs)


def _run(check: Check[_C], context: _C, limit: int) -> tuple[list[Finding], CheckRun]:
    findings: list[Finding] = []
    count = examined = 0
    reason: str | None = None
    stream = iter(check.run(context))
    try:
        while True:
            finding = next(stream)
            count += 1
            if len(findings) < limit:
                findings.append(finding)
    except StopIteration as end:
        examined = end.value if isinstance(end.value, int) else 0
    except NotCheckedError as e:
        reason = e.message
    except Exception as e:  # noqa: BLE001 - a table that is damaged in a new way is a finding, never a traceback
        count += 1
        findings.append(unreadable(check.code, e))
    outcome: Outcome = "failed" if count else "skipped" if reason is not None else "passed"
    return findings, CheckRun(check.code, check.promise, outcome, max(examined, count), count, reason)


def unreadable(code: str, error: Exception, **where: Any) -> Finding:
    """The finding that a file needed for a check is unreadable."""
    if isinstance(error, TrilakeError):
        context = error.context | where
        file, version, column = (context.get(k) for k in ("file", "version", "column"))
        return Finding(
            code,
            error.message,
            error.help,
            file=None if file is None else str(file),
            version=version if isinstance(version, int) else None,
            column=None if column is None else str(column),
            details={"error": error.code},
        )
    kind, is_damage = type(error).__name__, isinstance(error, OSError | ValueError)  # as libraries raise for damage
    message = masked((f"it cannot be read: {error}" if is_damage else f"it cannot be checked: {kind}: {error}")[:500])
    return Finding(code, message, "restore the damaged files from a backup", details={"error": kind}, **where)


@dataclass(frozen=True)
class RepairStep:
    """One step of ``repair``, done or planned.

    Parameters
    ----------
    code: stable name of the step, such as ``"delta.rewrite-checkpoint"``.
    message: what it does.
    findings: the codes of the findings that it fixes.
    files: the files that it rewrites, deletes, or removes from the table.
    rows_lost: the number of rows that it loses; ``None`` if unknown.
    needs: a required argument of ``repair``, such as ``"accept_loss"``.
    done: whether it was done.
    version: the committed version.
    error: why it failed.
    """

    code: str
    message: str
    findings: tuple[str, ...]
    files: tuple[str, ...] = ()
    rows_lost: int | None = 0
    needs: str | None = None
    done: bool = False
    version: int | None = None
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "findings": list(self.findings), "files": list(self.files)}


@dataclass(frozen=True)
class Repairs:
    """The result of ``repair``.  ``left`` are the remaining findings; in a dry run, those that no step repairs.

    >>> import trilake
    >>> _ = trilake.write({"n": [1, 2]}, "memory://doc-repairs")
    >>> repairs = trilake.repair("memory://doc-repairs")
    >>> repairs.steps, repairs.rows_lost, repairs.to_dict()["dry_run"], repairs.to_json()[:1]
    ((), 0, True, '{')
    """

    uri: str
    format: str
    version: int | None
    dry_run: bool
    steps: tuple[RepairStep, ...] = ()
    left: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no findings remain, and in a dry run no step is planned."""
        return not self.left and (not self.dry_run or not self.steps) and all(s.error is None for s in self.steps)

    @property
    def rows_lost(self) -> int | None:
        """The number of rows that the steps lost, or would lose in a dry run; ``None`` if unknown."""
        lost = [s.rows_lost for s in self.steps if s.done or self.dry_run]
        return None if any(n is None for n in lost) else sum(n or 0 for n in lost)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "uri": masked(self.uri),
            "format": self.format,
            "version": self.version,
            "dry_run": self.dry_run,
            "ok": self.ok,
            "rows_lost": self.rows_lost,
            "steps": [s.to_dict() for s in self.steps],
            "left": [f.to_dict() for f in self.left],
        }

    def to_json(self) -> str:
        """Everything as one JSON object."""
        return json.dumps(self.to_dict(), default=str, ensure_ascii=False)

    def _state(self, step: RepairStep) -> str:
        if step.error is not None:
            return "failed"
        if step.done:
            return "done"
        return f"needs {step.needs}" if step.needs else "planned"

    def __str__(self) -> str:
        steps, left = plural(len(self.steps), "step"), plural(len(self.left), "finding")
        done = sum(s.done for s in self.steps)
        what = (
            f"{steps} planned, {left} without a step" if self.dry_run else f"{done} of {steps} done, {left} remaining"
        )
        lines = [f"{self.format} table {masked(self.uri)}: {what}"]
        for step in self.steps:
            rows = "unknown" if step.rows_lost is None else plural(step.rows_lost, "row")
            lost = "" if step.rows_lost == 0 else f", {rows} lost"
            lines.append(f"{self._state(step)} {step.code}: {step.message} ({plural(len(step.files), 'file')}{lost})")
            lines += [f"  error: {step.error}"] * (step.error is not None)
        lines += [f"remaining: {f}" for f in self.left]
        if self.dry_run and self.steps:
            lines.append("nothing was changed: pass dry_run=False to run the steps")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = [
            (self._state(s), s.code, s.message, len(s.files), "unknown" if s.rows_lost is None else s.rows_lost)
            for s in self.steps
        ]
        remaining = "".join(f"<p>remaining: {html.escape(str(f))}</p>" for f in self.left)
        head = ("", "step", "what it does", "files", "rows lost")
        return f"<div>{table_of(head, rows, limit=_CELL)}{remaining}</div>"


@dataclass(frozen=True)
class PlannedStep:
    """A step of ``repair`` and its action: ``apply`` returns the version that it commits, if any."""

    step: RepairStep
    apply: Callable[[], int | None]


def run_steps(planned: Sequence[PlannedStep], *, dry_run: bool, allowed: frozenset[str]) -> tuple[RepairStep, ...]:
    """Run the steps that need only ``allowed``, unless it is a dry run.

    A failed step records its error, and the next steps run.
    """
    out = []
    for one in planned:
        step = replace(one.step, needs=None) if one.step.needs in allowed else one.step
        if not dry_run and step.needs is None:
            try:
                step = replace(step, version=one.apply(), done=True)
            except (TrilakeError, OSError) as e:
                step = replace(step, error=masked(str(e)))
        out.append(step)
    return tuple(out)
