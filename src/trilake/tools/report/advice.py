"""Advice about a table, with commands and estimates; a function of the facts.

Advice is only given where the estimate says that it is worthwhile; its commands, in Python and for a shell, can be run
unchanged.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import pyarrow.compute as pc

from trilake.common.text import format_count, format_share, format_size, plain, plural
from trilake.table.report_facts import Facts
from trilake.table.report_page import Advice
from trilake.tools.report.clustering import Clustering
from trilake.tools.report.sizes import as_sizes

#: Least savings of a compaction: files, and a share of all files.
_FILES, _SHARE = 2, 0.1
#: Shares of deleted rows, and of files that a lookup reads, above which there is advice.
_DELETED, _TOUCHED = 0.05, 0.5
#: Number of files above which row order matters.
_MANY = 8
#: Number of versions worth cleaning up.
_VERSIONS = 50


def advise(facts: Facts, clustering: Sequence[Clustering] = ()) -> list[Advice]:
    """All advice about a table, the most important first."""
    candidates = [_compact(facts), _deleted(facts), _vacuum(facts), _versions(facts), _order(facts, clustering)]
    advice = [a for a in candidates if a is not None]
    return sorted(advice, key=lambda a: a.weight != "do")


def _python(facts: Facts, what: str, column: str = "") -> str:
    return facts.commands[what].format(uri=facts.uri, column=column)


def _shell(command: str, facts: Facts, *options: str) -> str:
    return shlex.join(["trilake", command, facts.uri, *options])


def _compact(facts: Facts) -> Advice | None:
    plan, total = facts.compaction, facts.files.num_rows
    if plan is None or "compact" not in facts.commands:
        return None
    saved = plan.files - plan.into
    if saved < _FILES or saved < _SHARE * total:
        return None
    unit = facts.unit
    estimate = (
        f"{plural(plan.files, unit)} smaller than {plan.limit} ({format_size(plan.size)}) would become about"
        f" {plural(plan.into, unit)}: a reader of the whole table opens {format_share(saved / max(total, 1))} fewer."
        f" It reads and writes {format_size(plan.size)} once."
    )
    if facts.clustering:
        estimate += f" Rows are clustered by {', '.join(plain(c, 40) for c in facts.clustering)} on the way."
    return Advice(f"Put small {unit}s together", estimate, _python(facts, "compact"), _shell("optimize", facts))


def _deleted(facts: Facts) -> Advice | None:
    """Rows deleted by vectors are still read, and their bytes still stored."""
    if "purge" not in facts.commands:
        return None
    files = facts.files.filter(pc.greater(facts.files["deleted"], 0))
    deleted, rows = pc.sum(files["deleted"]).as_py() or 0, pc.sum(files["rows"]).as_py() or 0
    if not deleted or deleted < _DELETED * max(rows, 1):
        return None
    size = int(as_sizes(files).sum())
    waste = size * min(1.0, deleted / max(rows, deleted))
    estimate = (
        f"Deletion vectors take {plural(deleted, 'row')} out of {plural(files.num_rows, 'file')}"
        f" ({format_share(deleted / max(rows, deleted))} of their rows)."
        f" Purging writes {format_size(size - waste)} once;"
        f" readers then skip about {format_size(waste)}, and a vacuum can free it."
    )
    shell = _shell("optimize", facts, "--purge")
    return Advice("Write files again without their deleted rows", estimate, _python(facts, "purge"), shell)


def _vacuum(facts: Facts) -> Advice | None:
    gone = facts.tombstones
    if gone is None or not gone.expired_files or "vacuum" not in facts.commands:
        return None
    estimate = (
        f"{plural(gone.expired_files, 'file')} ({format_size(gone.expired_size)}) were removed from the table more than"
        f" {gone.retention} ago. Those that are still in the folder can be deleted; versions that need them can then no"
        " longer be read. vacuum(dry_run=True), or the command without --delete, lists them first."
    )
    title, command = "Delete files that no version within the retention needs", _python(facts, "vacuum")
    return Advice(title, estimate, command, _shell("vacuum", facts, "--delete"))


def _versions(facts: Facts) -> Advice | None:
    if "clean" not in facts.commands or facts.commits is None or facts.commits.total < _VERSIONS:
        return None
    estimate = (
        f"{facts.commits.total:,} versions are kept, with all files that only old ones need. The clean-up deletes those"
        " older than two weeks; they can then no longer be read."
    )
    command = _python(facts, "clean")
    return Advice("Clean up old versions", estimate, command, _shell("vacuum", facts, "--delete"), "consider")


def _order(facts: Facts, clustering: Sequence[Clustering]) -> Advice | None:
    """The column by which ordering would help a lookup most."""
    if "order" not in facts.commands or facts.clustering or facts.bounds is None:
        return None
    scattered = [
        c
        for c in clustering
        if c.files >= _MANY
        and c.share >= _TOUCHED
        and c.mean >= _MANY
        and c.distinct >= min(c.files, facts.bounds.sampled)
    ]
    if not scattered:
        return None
    # Of several, the first of the table: writers put keys first.
    worst = scattered[0]
    size = format_size(int(as_sizes(facts.files).sum()))
    estimate = (
        f"A lookup of one value of {plain(worst.name, 60)} touches {format_count(round(worst.mean, 1))} of"
        f" {plural(worst.files, 'file')} today ({format_share(worst.share)}); with rows in its order it touches one or"
        f" two of each partition. It reads and writes {size} once, and is worth it where queries look for few values"
        " of this column."
    )
    command = _python(facts, "order", worst.reference)
    shell = _shell("optimize", facts, "--zorder-by", worst.reference)
    return Advice("Order rows by a column that queries look for", estimate, command, shell, "consider")
