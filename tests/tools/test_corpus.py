"""Every sound table of the corpora passes; damaged ones have the expected findings."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import trilake
from tests.conftest import SOAK
from tests.lance import corpus as lance_corpus
from trilake.errors import TableNotFoundError
from trilake.table.findings import Findings

#: Damaged or incomplete tables of the Delta corpus, and their expected findings.
DAMAGED = {
    # An unsupported protocol: nothing can be checked, and nothing is reported.
    "deltalog-invalid-protocol-version": set[str](),
    "deltalog-state-reconstruction-from-checkpoint-missing-metadata": {
        "delta.version-unreadable",
        "delta.checkpoint-differs",
        "delta.file-missing",
    },
    # The checkpoint has the metadata of another table.
    "k-parquet_row_group_skipping": {"delta.checkpoint-differs"},
    # Logs without their data files.
    "k-with_checkpoint_no_last_checkpoint": {"delta.file-missing"},
    "log-replay-special-characters-b": {"delta.file-missing"},
    "rs-checkpoints": {"delta.file-missing"},
    # The first commit's time is a year after the second one's.
    "rs-cdc_ict_table": {"delta.in-commit-timestamp-wrong"},
    "versions-not-contiguous": {"delta.log-gap", "delta.version-unreadable"},
}
NO_TABLE = "no-delta-log-folder"


def _verified(folder: Path) -> Findings | None:
    try:
        return trilake.verify(str(folder), format="delta")
    except TableNotFoundError:
        return None


def test_every_delta_table(shared: Path) -> None:
    golden = shared / "corpus" / "delta" / "golden"
    everything = sorted(p.name for p in golden.iterdir())
    assert len(everything) >= 90
    # A third of the sound tables in CI, all of them when soaking.
    names = [n for i, n in enumerate(everything) if SOAK or i % 3 == 0 or n in DAMAGED or n == NO_TABLE]
    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(names, pool.map(lambda n: _verified(golden / n / "delta"), names), strict=True))
    assert [n for n, f in found.items() if f is None] == [NO_TABLE]
    wrong = {n: str(f) for n, f in found.items() if f is not None and set(f.codes) != DAMAGED.get(n, set())}
    assert wrong == {}
    unmade = {n for n, f in found.items() if f is not None and f.skipped}
    assert unmade == {"deltalog-invalid-protocol-version", "versions-not-contiguous"} | {
        n for n in unmade if n.startswith("deltalog-state-reconstruction")
    }


def test_every_lance_dataset_and_trevni_file(shared: Path) -> None:
    step = 1 if SOAK else 3
    datasets = [lance_corpus.folder(shared, n) for n in lance_corpus.names(shared)][::step]
    files = sorted((shared / "corpus" / "trevni").rglob("*.trv"))[::step]
    assert datasets
    assert files
    found = [trilake.verify(str(p), format="lance") for p in datasets]
    found += [trilake.verify(str(p), format="trevni") for p in files]
    assert [str(f) for f in found if not f.ok or f.findings] == []
