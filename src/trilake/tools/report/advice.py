"""Advice from the facts of a table: only steps that an estimate shows to be worthwhile, with commands ready to run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import pyarrow.compute as pc

from trilake.common.text import format_count, format_share, format_size, plain, plural
from trilake.table.report_facts import Facts
from trilake.table.report_page import Advice
from trilake.tools.report.measures import Clustering, as_sizes

#: Advise a compaction if it saves this many files, and this share of all files.
_FILES, _SHARE = 2, 0.1
#: Advise above these shares of deleted rows, and of files that a lookup reads.
_DELETED, _TOUCHED = 0.05, 0.5
#: Row order matters above this number of files.
_MANY = 8
#: Advise a clean-up from this number of versions.
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
        f" {plural(plan.into, unit)}: a full scan opens {format_share(saved / max(total, 1))} fewer."
        f" Compaction reads and writes {format_size(plan.size)} once."
    )
    if facts.clustering:
        estimate += f" It also clusters rows by {', '.join(plain(c, 40) for c in facts.clustering)}."
    return Advice(f"Compact small {unit}s", estimate, _python(facts, "compact"), _shell("optimize", facts))


def _deleted(facts: Facts) -> Advice | None:
    if "purge" not in facts.commands:
        return None
    files = facts.files.filter(pc.greater(facts.files["deleted"], 0))
    deleted, rows = pc.sum(files["deleted"]).as_py() or 0, pc.sum(files["rows"]).as_py() or 0
    if not deleted or deleted < _DELETED * max(rows, 1):
        return None
    size = int(as_sizes(files).sum())
    waste = size * min(1.0, deleted / max(rows, deleted))
    estimate = (
        f"Deletion vectors hide {plural(deleted, 'row')} in {plural(files.num_rows, 'file')}"
        f" ({format_share(deleted / max(rows, deleted))} of their rows)."
        f" Purging writes {format_size(size - waste)} once;"
        f" readers then skip about {format_size(waste)}, which a vacuum can free."
    )
    shell = _shell("optimize", facts, "--purge")
    return Advice("Rewrite files without their deleted rows", estimate, _python(facts, "purge"), shell)


def _vacuum(facts: Facts) -> Advice | None:
    tombstones = facts.tombstones
    if tombstones is None or not tombstones.expired_files or "vacuum" not in facts.commands:
        return None
    estimate = (
        f"The table removed {plural(tombstones.expired_files, 'file')} ({format_size(tombstones.expired_size)}) more"
        f" than {tombstones.retention} ago. Vacuum deletes those still in the folder; versions that need them can then"
        " no longer be read. vacuum(dry_run=True), or the command without --delete, lists them first."
    )
    title, command = "Delete files older than the retention", _python(facts, "vacuum")
    return Advice(title, estimate, command, _shell("vacuum", facts, "--delete"))


def _versions(facts: Facts) -> Advice | None:
    if "clean" not in facts.commands or facts.commits is None or facts.commits.total < _VERSIONS:
        return None
    estimate = (
        f"The table has {facts.commits.total:,} versions, and files that only old versions need. The cleanup"
        " deletes versions older than two weeks."
    )
    command = _python(facts, "clean")
    return Advice("Clean up old versions", estimate, command, _shell("vacuum", facts, "--delete"), "consider")


def _order(facts: Facts, clustering: Sequence[Clustering]) -> Advice | None:
    if "order" not in facts.commands or facts.clustering or facts.bounds is None:
        return None
    sampled = facts.bounds.sampled
    many = (c for c in clustering if min(c.files, c.mean) >= _MANY)
    scattered = (c for c in many if c.share >= _TOUCHED and c.distinct >= min(c.files, sampled))
    if (column := next(scattered, None)) is None:  # the first: writers put keys first
        return None
    size = format_size(int(as_sizes(facts.files).sum()))
    estimate = (
        f"A lookup of one value of {plain(column.name, 60)} reads {format_count(round(column.mean, 1))} of"
        f" {plural(column.files, 'file')} today ({format_share(column.share)}); with rows ordered by it, one or two per"
        f" partition. Ordering reads and writes {size} once, and pays off if queries look for few values of this"
        " column."
    )
    command = _python(facts, "order", column.reference)
    shell = _shell("optimize", facts, "--zorder-by", column.reference)
    return Advice("Order rows by a column that queries filter by", estimate, command, shell, "consider")
