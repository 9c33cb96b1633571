"""``Explanation``: which files a filter keeps, which it skips, and why."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from trilake.common.compute import pc
from trilake.common.display import table_of, text_of

#: Most files shown in a notebook.
_SHOWN = 20


@dataclass(frozen=True)
class Explanation:
    """The result of :meth:`trilake.table.table.Table.explain`: which files a filter keeps, which it skips, and why.

    ``files`` has one row per file: ``path`` (string), ``kept`` (bool) and ``reason`` (string).  ``notes`` describes how
    the table would be read.

    >>> import trilake
    >>> for n in range(3):
    ...     _ = trilake.write({"n": [n]}, "memory://doc-explanation", mode="append")
    >>> explanation = trilake.open("memory://doc-explanation").explain("n > 1")
    >>> len(explanation.kept), len(explanation.skipped), explanation.notes
    (1, 2, ('read as Arrow in this process',))
    """

    filter: str | None
    files: pa.Table
    notes: tuple[str, ...] = ()

    @property
    def kept(self) -> list[str]:
        """Paths of the files that must be read."""
        return self._paths(True)

    @property
    def skipped(self) -> list[str]:
        """Paths of the files that cannot have a matching row."""
        return self._paths(False)

    def _paths(self, needed: bool) -> list[str]:
        mask = self.files["kept"] if needed else pc.invert(self.files["kept"])
        paths: list[str] = self.files.filter(mask)["path"].to_pylist()
        return paths

    def _repr_html_(self) -> str:
        first = self.files.slice(0, _SHOWN).to_pylist()
        rows = [("keep" if r["kept"] else "skip", r["path"], r["reason"]) for r in first]
        total, num_kept = self.files.num_rows, pc.sum(self.files["kept"]).as_py() or 0
        notes = "".join(f"<p>{text_of(n)}</p>" for n in self.notes)
        return (
            f"<div><b>filter</b> <code>{text_of(self.filter or 'none')}</code> &middot; {num_kept:,} of {total:,} files"
            f"{table_of(('', 'file', 'reason'), rows, total - _SHOWN)}{notes}</div>"
        )

    def __str__(self) -> str:
        total = self.files.num_rows
        num_kept = pc.sum(self.files["kept"]).as_py() or 0
        lines = [f"filter: {self.filter or 'none'}", f"files:  {num_kept} of {total} kept, {total - num_kept} skipped"]
        reasons = self.files.group_by(["kept", "reason"]).aggregate([("path", "count"), ("path", "min")])
        for row in reasons.sort_by([("kept", "descending"), ("path_count", "descending")]).to_pylist():
            mark = "keep" if row["kept"] else "skip"
            lines.append(f"  {mark} {row['path_count']:>6} x {row['reason']}  e.g. {row['path_min']}")
        return "\n".join([*lines, *(f"note:   {n}" for n in self.notes)])
