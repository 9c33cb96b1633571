"""Datasets with many versions: manifests are read together, and equal fragments are parsed once."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest

import trilake
from trilake import lance
from trilake.lance import LanceDataset
from trilake.lance.versions import manifest, transaction
from trilake.lance.versions.versions import Listing, list_versions

VERSIONS = 12


@pytest.fixture
def dataset(tmp_path: Path) -> LanceDataset:
    """A version for each of twelve appends."""
    for i in range(VERSIONS):
        dataset = lance.write_dataset(pa.table({"a": [i]}), tmp_path / "t", mode="append" if i else "create")
    return dataset


def test_equal_fragments_are_parsed_once(dataset: LanceDataset) -> None:
    with mock.patch.object(manifest, "parse_fragment", side_effect=manifest.parse_fragment) as parsed:
        rows = [version["metadata"]["total_rows"] for version in dataset.versions()]
    assert parsed.call_count == VERSIONS
    assert rows == [str(i + 1) for i in range(VERSIONS)]


def test_deleted_manifests_are_left_out(dataset: LanceDataset) -> None:
    store = dataset.snapshot.store
    listing = list_versions(store)
    store.delete([listing.key(5)])
    read = list(transaction.read_manifests(store, listing, listing.versions))
    assert [None if one is None else one.version for one in read] == [1, 2, 3, 4, None, *range(6, VERSIONS + 1)]
    assert [one["version"] for one in dataset.versions()] == [1, 2, 3, 4, *range(6, VERSIONS + 1)]


def test_history_reads_manifests_together(dataset: LanceDataset) -> None:
    table = trilake.open(dataset.uri)
    with mock.patch.object(transaction, "read_manifest", side_effect=AssertionError):
        history = table.history()
    assert history["version"].to_pylist() == list(range(VERSIONS, 0, -1))
    assert history["operation"].to_pylist() == ["Append"] * (VERSIONS - 1) + ["Overwrite"]


def test_clean_up_builds_each_key_a_few_times(dataset: LanceDataset) -> None:
    """It compared each manifest with the keys of all old versions, in quadratic time."""
    with mock.patch.object(Listing, "key", autospec=True, side_effect=Listing.key) as keys:
        stats = dataset.cleanup_old_versions(older_than=timedelta(0))
    assert stats.old_versions == VERSIONS - 1
    assert keys.call_count < 8 * VERSIONS
