"""Repair steps for Lance datasets: restore the copy of the newest manifest, drop broken indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trilake.common.runtime import Runtime
from trilake.lance.verify.indices import DROP
from trilake.lance.verify.manifests import COPY_LATEST
from trilake.lance.versions import operations as op
from trilake.lance.versions.transaction import begin, commit, load
from trilake.lance.versions.versions import LATEST, list_versions
from trilake.storage.base import Store
from trilake.storage.ownership import check_own
from trilake.table.findings import Finding, PlannedStep, RepairStep


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


def plan_lance(store: Store, runtime: Runtime, code: str, findings: Sequence[Finding]) -> list[PlannedStep]:
    """Plan the repair steps of one kind."""
    return STEPS[code](store, runtime, findings)
