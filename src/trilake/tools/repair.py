"""``repair``: safe repairs of a table; a dry run by default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike

from trilake.common.arguments import checked
from trilake.errors import InvalidArgumentError, TrilakeError, masked
from trilake.storage import open_store
from trilake.table.findings import Findings, Repairs, RepairStep, run_steps
from trilake.table.registry import find_format
from trilake.tools.verify import verify

#: Steps need all findings.
_ALL = 1 << 62


@checked
def repair(
    uri: str | PathLike[str],
    *,
    dry_run: bool = True,
    only: Sequence[str] | None = None,
    accept_loss: bool = False,
    depth: str = "files",
    format: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Repairs:
    """Repair what :func:`trilake.verify` finds, where that is safe; by default, only list the steps.

    Parameters
    ----------
    uri: location of the table.
    dry_run: only list the steps, and change nothing.
    only: the codes of the steps to do; all by default.
    accept_loss: also do steps that lose rows: remove missing or damaged files from the table, and drop a newest
        version whose commit is torn.
    depth: depth of the verification, see :func:`trilake.verify`.
    format, storage_options: see :func:`trilake.verify`.

    Raises the errors of :func:`trilake.verify`, and ``InvalidArgumentError`` for an unknown step.

    >>> import pyarrow as pa, trilake
    >>> _ = trilake.write(pa.table({"n": [1, 2]}), "memory://doc-repair", mode="overwrite")
    >>> trilake.repair("memory://doc-repair").steps
    ()
    """
    store = open_store(uri, dict(storage_options or {}))
    table = find_format(store, format)
    all_steps = table.repair_steps()
    unknown = sorted(set(only or ()) - set(all_steps))
    if unknown:
        raise InvalidArgumentError(
            f"{table.name} tables have no repair step {', '.join(unknown)}",
            help=f"the steps are {', '.join(all_steps) or 'none'}",
            file=store.uri,
        )

    def findings() -> Findings:
        return verify(uri, depth=depth, limit=_ALL, format=table.name, storage_options=storage_options)

    verified = findings()
    selected = [code for code in all_steps if only is None or code in only]
    arguments = frozenset({"accept_loss"} if accept_loss else ())
    steps: list[RepairStep] = []
    for code in selected:
        matches = [f for f in verified.findings if f.repair == code]
        if matches:
            try:
                # Planned after earlier steps are done: later commits depend on a repaired log.
                steps += run_steps(table.plan_repair(store, code, matches), dry_run=dry_run, allowed=arguments)
            except (TrilakeError, OSError) as e:
                codes = tuple(dict.fromkeys(f.code for f in matches))
                steps.append(RepairStep(code, "cannot be planned yet", codes, error=masked(str(e))))
    if dry_run:
        repaired = {(code, step.code) for step in steps if step.error is None for code in step.findings}
        remaining = tuple(f for f in verified.findings if (f.code, f.repair) not in repaired)
    else:
        remaining = findings().findings if any(step.done for step in steps) else verified.findings
    return Repairs(verified.uri, verified.format, verified.version, dry_run, tuple(steps), remaining)
