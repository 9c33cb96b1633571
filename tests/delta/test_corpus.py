"""Tables of other writers and hand-made traps: which are read and which are rejected."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.delta.corpus_adapter import arrow

#: Tables too large for the runner's comparison in plain Python, compared as Arrow instead.
_LARGE = "parquet-decimal-dictionaries"


@pytest.fixture(scope="module")
def corpus(shared: Path) -> ModuleType:
    """The corpus' runner, for its rules of comparison."""
    spec = importlib.util.spec_from_file_location("delta_corpus", shared / "corpus/delta/corpus.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _with_times(folder: Path, name: str, tmp_path: Path) -> Path:
    """Copy the table with the commit times that the corpus requires."""
    copy = tmp_path / "delta"
    shutil.copytree(folder / "golden" / name / "delta", copy)
    times = json.loads((folder / "mtimes.json").read_text()).get(name, {})
    for version, seconds in times.items():
        file = copy / "_delta_log" / f"{int(version):020d}.json"
        if file.exists():
            os.utime(file, (seconds, seconds))
    return copy


def _run(corpus: ModuleType, case: dict[str, Any], table: Path) -> str:
    """Return why the case fails, or an empty string."""
    calls = arrow()
    kind, path = case["kind"], str(table)
    try:
        if kind in ("read", "refuse"):
            got = calls["read"](path, case.get("version"))
        elif kind in ("cdf", "refuse_cdf"):
            got = calls["read_cdf"](path, case["start"], case["end"])
        elif kind == "files":
            names = sorted(os.path.basename(f) for f in calls["files"](path))
            wrong = len(names) != case["nfiles"] if "nfiles" in case else names != sorted(case["files"])
            return f"files {names[:5]}" if wrong else ""
        elif kind == "where":
            got = calls["read_where"](path, case["where"])
        else:
            got = calls["read_asof"](path, case["timestamp"])
    except Exception as e:  # noqa: BLE001 - any error is checked: it must name its cause
        if not kind.startswith("refuse"):
            return f"{type(e).__name__}: {e}"
        verdict, detail = corpus.refused(e, case)
        return "" if verdict == "refused" else f"{verdict}: {detail}"
    if kind.startswith("refuse"):
        return f"read {got.num_rows} rows of a table that must be rejected"
    expected = corpus.load_expected(case["expected"])
    if _LARGE in case["id"]:
        return _compare_large(got, expected)
    verdict, detail, notes = corpus.compare(got, expected, case)
    return "" if verdict == "pass" else f"{detail} {notes}"


def _compare_large(got: pa.Table, expected: pa.Table) -> str:
    got = got.select(expected.schema.names).cast(expected.schema)
    order = [(name, "ascending") for name in expected.schema.names]
    a, b = (t.take(pc.sort_indices(t, sort_keys=order)).combine_chunks() for t in (got, expected))
    return "" if a.equals(b) else f"{got.num_rows} rows differ from the {expected.num_rows} expected"


def test_every_corpus_case_passes(shared: Path, corpus: ModuleType, tmp_path: Path) -> None:
    folder = shared / "corpus/delta"
    cases = json.loads((folder / "cases.json").read_text())
    assert len(cases) >= 209
    bad = {}
    for i, case in enumerate(cases):
        table = folder / "golden" / case["table"] / "delta"
        if case["kind"] == "asof":
            table = _with_times(folder, case["table"], tmp_path / str(i))
        if why := _run(corpus, case, table):
            bad[case["id"]] = why
    assert not bad, "\n".join(f"{k}: {v}" for k, v in bad.items())
