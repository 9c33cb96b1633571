"""The checks of Lance datasets, and the function that runs them."""

from __future__ import annotations

from trilake.common.runtime import Runtime
from trilake.errors import CorruptLogError
from trilake.lance.verify import files, indices, manifests, pages
from trilake.lance.verify.context import LanceContext
from trilake.storage.base import Store
from trilake.table.findings import MAX_LISTED, Check, CheckRun, Depth, Findings, run_checks, unreadable

CHECKS: tuple[Check[LanceContext], ...] = (
    Check("lance.manifest-unreadable", "every manifest can be read", "log", manifests.readable),
    Check("lance.latest-differs", "_latest.manifest is a copy of the newest manifest", "log", manifests.latest),
    Check("lance.tag-wrong", "tags name versions that are there", "log", manifests.tags),
    Check("lance.fields-wrong", "fields have ids of their own", "log", manifests.fields),
    Check("lance.fragments-wrong", "no data file is named twice", "log", manifests.fragments),
    Check("lance.index-entry-wrong", "indices are of fields and fragments that there are", "log", indices.entries),
    Check("lance.file-missing", "every data file is there", "files", files.present),
    Check("lance.file-size", "every data file has the size that the manifest states", "files", files.sized),
    Check("lance.file-unreadable", "every data file can be opened", "files", files.readable),
    Check("lance.fragment-rows", "data files have the rows of their fragment", "files", files.rows),
    Check("lance.deletion-file-unreadable", "every deletion file can be read", "files", files.deletions_readable),
    Check("lance.deletion-file-count", "it has as many rows as the manifest says", "files", files.deletions_counted),
    Check("lance.deletion-file-position", "it has rows that the fragment has", "files", files.deletions_inside),
    Check("lance.index-missing", "the files of every index are there", "files", indices.present),
    Check("lance.page-unreadable", "every page can be decoded", "rows", pages.readable),
    Check("lance.statistics-differ", "the statistics of every batch are true", "rows", pages.statistics),
    Check("lance.index-unreadable", "every index can be read whole", "rows", indices.readable),
    Check("lance.index-differs", "indices say what the rows say", "rows", indices.agree_with_rows),
)


def verify_lance(
    store: Store, runtime: Runtime, version: int | None, depth: Depth, sample: int | None, limit: int = MAX_LISTED
) -> Findings:
    """Run all checks of a dataset up to a depth; see :func:`trilake.verify`.

    Raises ``TableNotFoundError`` or ``VersionNotFoundError``.
    """
    context = LanceContext(store, runtime, version, depth, sample)
    try:
        at = context.version
    except CorruptLogError as e:  # the newest version is unknown
        code = "lance.manifest-unreadable"
        run = CheckRun(code, CHECKS[0].promise, "failed", 1, 1)
        return Findings(store.uri, "lance", version, depth, (unreadable(code, e),), (run,))
    findings, runs = run_checks(CHECKS, context, depth, limit)
    return Findings(store.uri, "lance", at, depth, findings, runs)
