"""Run the checks of Lance datasets, and plan their repair: copy the newest manifest, drop broken indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trilake.common.runtime import Runtime
from trilake.errors import CorruptLogError
from trilake.lance.verify import files, indices, manifests, pages
from trilake.lance.verify.context import LanceContext
from trilake.lance.verify.indices import DROP
from trilake.lance.verify.manifests import COPY_LATEST
from trilake.lance.versions import operations as op
from trilake.lance.versions.transaction import begin, commit, load
from trilake.lance.versions.versions import LATEST, list_versions
from trilake.storage.base import Store
from trilake.storage.ownership import check_own
from trilake.table.findings import (
    MAX_LISTED,
    Check,
    CheckRun,
    Depth,
    Finding,
    Findings,
    PlannedStep,
    RepairStep,
    run_checks,
    unreadable,
)

CHECKS: tuple[Check[LanceContext], ...] = (
    Check("lance.manifest-unreadable", "every manifest can be read", "log", manifests.readable),
    Check("lance.latest-differs", "_latest.manifest is a copy of the newest manifest", "log", manifests.latest),
    Check("lance.tag-wrong", "every tag refers to an existing version", "log", manifests.tags),
    Check("lance.fields-wrong", "field ids are unique", "log", manifests.fields),
    Check("lance.fragments-wrong", "no data file is listed twice", "log", manifests.fragments),
    Check("lance.index-entry-wrong", "indices cover existing fields and fragments", "log", indices.entries),
    Check("lance.file-missing", "every data file exists", "files", files.present),
    Check("lance.file-size", "file sizes match the manifest", "files", files.sized),
    Check("lance.file-unreadable", "every data file can be opened", "files", files.readable),
    Check("lance.fragment-rows", "row counts of data files match their fragment", "files", files.rows),
    Check("lance.deletion-file-unreadable", "every deletion file can be read", "files", files.deletions_readable),
    Check(
        "lance.deletion-file-count",
        "row counts of deletion files match the manifest",
        "files",
        files.deletions_counted,
    ),
    Check(
        "lance.deletion-file-position",
        "deletion files only list rows of their fragment",
        "files",
        files.deletions_inside,
    ),
    Check("lance.index-missing", "the files of every index exist", "files", indices.present),
    Check("lance.page-unreadable", "every page can be decoded", "rows", pages.readable),
    Check("lance.statistics-differ", "the statistics of every batch are correct", "rows", pages.statistics),
    Check("lance.index-unreadable", "every index can be read completely", "rows", indices.readable),
    Check("lance.index-differs", "indices match the rows", "rows", indices.agree_with_rows),
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


# --- repair ----------------------------------------------------------------------------------------------------------


def copy_latest(store: Store, runtime: Runtime, findings: Sequence[Finding]) -> list[PlannedStep]:
    """Copy the newest manifest for old readers."""

    def apply() -> None:
        check_own(store, [LATEST], what="repair")
        listing = list_versions(store)
        load(store, listing.latest, listing)  # raises if the manifest is unreadable
        store.put(LATEST, store.read(listing.key(listing.latest)))

    message = f"copy the newest manifest to {LATEST}"
    return [PlannedStep(RepairStep(COPY_LATEST, message, ("lance.latest-differs",), (LATEST,)), apply)]


def drop_indices(store: Store, runtime: Runtime, findings: Sequence[Finding]) -> list[PlannedStep]:
    """Drop broken indices in a new version; no rows are lost."""
    names = tuple(dict.fromkeys(str(f.details["index"]) for f in findings))
    files = tuple(dict.fromkeys(f.file for f in findings if f.file is not None))

    def apply() -> int:
        manifest = load(store)
        removed = tuple(i for i in manifest.indices if f"_indices/{i.uuid}" in files)
        return commit(store, begin(manifest.version, op.CreateIndex((), removed), runtime), runtime).version

    message = f"drop the indices {', '.join(names)}; no rows are lost"
    codes = tuple(dict.fromkeys(f.code for f in findings))
    return [PlannedStep(RepairStep(DROP, message, codes, files), apply)]


#: Repair steps by code.
STEPS: dict[str, Callable[[Store, Runtime, Sequence[Finding]], list[PlannedStep]]] = {
    COPY_LATEST: copy_latest,
    DROP: drop_indices,
}
