"""A report states facts of a table, and its advice has the estimated effect."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pytest

import trilake
from tests.tools.report import tables
from trilake.errors import InvalidArgumentError
from trilake.table.registry import format_named
from trilake.table.report_facts import Facts
from trilake.table.report_page import Advice, Report
from trilake.table.table import Table
from trilake.tools.report import run as run_module
from trilake.tools.report.measures import POINTS, measure


def facts_of(table: Table) -> Facts:
    return format_named(table.format).report_facts(table)


def advice_of(made: Report, title: str) -> Advice:
    return next(a for a in made.advice if title in a.title)


def run(advice: Advice) -> object:
    """Run the Python command; the shell command exists and names the same table."""
    words = shlex.split(advice.shell)
    assert words[:2] in (["trilake", "optimize"], ["trilake", "vacuum"])
    assert repr(words[2]) in advice.command
    return eval(advice.command, {"trilake": trilake})


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tables.demo(tmp_path_factory.mktemp("demo") / "t")


def test_facts_are_those_of_the_table(demo: str) -> None:
    table = trilake.open(demo)
    facts = facts_of(table)
    files = table.files()
    assert facts.files["path"].to_pylist() == files["path"].to_pylist()
    assert facts.files["size"].to_pylist() == files["size"].to_pylist()
    rows = sum(facts.files["rows"].to_pylist()) - sum(facts.files["deleted"].to_pylist())
    assert rows == table.count()
    assert facts.commits is not None
    history = table.history()
    assert facts.commits.table["version"].to_pylist() == history["version"].to_pylist()
    assert facts.commits.table["operation"].to_pylist() == history["operation"].to_pylist()
    assert facts.commits.table["timestamp"].to_pylist() == history["timestamp"].to_pylist()
    assert facts.tombstones is not None
    removed = {unquote(p) for p in table.log.tombstones(table.snapshot)["path"].to_pylist()}
    assert facts.tombstones.files == len(removed - set(files["path"].to_pylist())) > 0
    assert facts.transactions is not None
    assert facts.transactions.to_pylist()[0]["application"] == "orders-stream"
    assert facts.schema_changes is not None
    assert facts.schema_changes[0].version == 0
    assert facts.schema_changes[-1].changes == ("added channel: string",)


def test_lookups_touch_the_files_that_explain_keeps(demo: str) -> None:
    table = trilake.open(demo)
    facts = facts_of(table)
    assert facts.bounds is not None
    bounds = next(c for c in facts.bounds.columns if c.name == "id")
    found = measure(bounds, facts.bounds.files, facts.bounds.sampled)
    adds = table.explain().files.num_rows
    assert found.files == adds
    # The lookup values, passed to explain.
    ends = [_ends(s, "id") for s in table.files()["stats"].to_pylist()]
    values = sorted({v for pair in ends for v in pair})
    middle = sorted((values.index(low) + values.index(high) + 2) // 2 - 1 for low, high in ends)
    chosen = [values[middle[round(i)]] for i in np.linspace(0, len(middle) - 1, POINTS)]
    assert [round(d) for d in found.profile[::8]] == [len(table.explain(f"id = {v}").kept) for v in chosen[::8]]


def _ends(stats: str, column: str) -> tuple[int, int]:
    found = json.loads(stats)
    return found["minValues"][column], found["maxValues"][column]


def test_advice_to_compact_estimates_the_file_count(tmp_path: Path) -> None:
    uri = tables.demo(tmp_path / "t")
    facts = facts_of(trilake.open(uri))
    assert facts.compaction is not None
    advice = advice_of(trilake.report(uri), "small files")
    assert f"{facts.compaction.files} files" in advice.estimate
    done = run(advice)
    assert isinstance(done, trilake.OptimizeResult)
    assert (done.files_removed, done.files_added) == (facts.compaction.files, facts.compaction.into)
    assert not [a for a in trilake.report(uri).advice if "small files" in a.title]


def test_advice_to_purge_and_vacuum_has_its_stated_effect(tmp_path: Path) -> None:
    uri = tables.demo(tmp_path / "t")
    purge = advice_of(trilake.report(uri), "without their deleted rows")
    rows = trilake.open(uri).count()
    with_vectors = sum(n > 0 for n in facts_of(trilake.open(uri)).files["deleted"].to_pylist())
    done = run(purge)
    assert isinstance(done, trilake.OptimizeResult)
    assert done.files_removed == with_vectors
    table = trilake.open(uri)
    assert table.count() == rows
    made = trilake.report(uri)
    assert not [a for a in made.advice if "deleted rows" in a.title]
    gone = facts_of(table).tombstones
    assert gone is not None
    freed = run(advice_of(made, "Delete files"))
    assert freed.files.num_rows >= gone.expired_files  # type: ignore[attr-defined]
    assert trilake.open(uri).count() == rows


def test_advice_to_sort_makes_lookups_touch_few_files(tmp_path: Path) -> None:
    uri, rng = str(tmp_path / "t"), np.random.default_rng(1)
    for _ in range(10):
        rows = pa.table({"a.b": rng.permutation(100_000)[:2000], "kind": ["x", "y"] * 1000})
        mapped = {"delta.columnMapping.mode": "name", "delta.targetFileSize": "3000"}
        trilake.write(rows, uri, mode="append", properties=mapped)
    advice = advice_of(trilake.report(uri), "Order rows")
    assert advice.command == f"trilake.open({trilake.open(uri).uri!r}).optimize(zorder_by='`a.b`')"
    assert re.search("A lookup of one value of a.b reads (9|10) of 10 files", advice.estimate)
    run(advice)
    table = trilake.open(uri)
    after = table.explain("`a.b` = 50000")
    assert len(after.kept) <= 2 < len(after.files)


def test_commit_counts_use_correct_plurals(tmp_path: Path) -> None:
    for rows in ([1], [1, 2]):
        trilake.write({"id": rows}, tmp_path, mode="append")
    page = trilake.report(tmp_path).html
    assert "1 row written, 1 file<" in page
    assert "2 rows written, 1 file<" in page


def test_healthy_table_gets_no_advice(tmp_path: Path) -> None:
    trilake.write(pa.table({"n": range(10)}), str(tmp_path / "t"))
    made = trilake.report(tmp_path / "t")
    assert made.advice == ()
    assert "No advice" in made.html


@pytest.mark.parametrize("format", ["lance", "trevni"])
def test_reports_of_other_formats_omit_missing_sections(format: str, tmp_path: Path) -> None:
    uri = getattr(tables, format)(tmp_path / "t")
    table = trilake.open(uri, format=format)
    made = table.report()
    assert f"{format.title()} table" in made.html
    assert f"<bdi>{table.count()}</bdi>" in made.html
    assert "Storage by column" in made.html
    assert ('id="streams"' in made.html, 'id="schema"' in made.html) == (False, False)
    assert ('id="versions"' in made.html) == (format == "lance")
    assert ('id="partitions"' in made.html) == (format == "trevni")
    if format == "lance":
        advice = advice_of(made, "small fragments")
        run(advice)
        assert len(trilake.open(uri, format="lance").files()) == 1


def test_verify_findings_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = str(tmp_path / "t")
    for n in range(3):
        trilake.write(pa.table({"n": [n]}), uri, mode="append")
    assert "of the metadata passed" in trilake.report(uri).html
    commit = tmp_path / "t" / "_delta_log" / f"{2:020d}.json"
    commit.write_text(commit.read_text().replace('"stats":"{', '"stats":"'))
    found = trilake.verify(uri, depth="log")
    assert found.codes == ("delta.statistics-malformed",)
    shown = trilake.report(uri).html
    assert found.codes[0] in shown
    assert "of the metadata found problems" in shown
    monkeypatch.setattr(run_module, "_VERIFIED", 2)
    assert "The table was not verified for this page" in trilake.report(uri).html
    assert found.codes[0] in trilake.open(uri).report(verify=True).html
    assert found.codes[0] not in trilake.report(uri, verify=False).html


def test_report_is_saved_to_the_given_path(demo: str, tmp_path: Path) -> None:
    made = trilake.open(demo).report(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == made.html
    with pytest.raises(InvalidArgumentError, match="cannot be written"):
        made.save(tmp_path / "missing" / "report.html")
    # In a notebook the page is in a sandboxed frame, which runs no script.
    shown = made._repr_html_()
    assert shown.startswith("<iframe sandbox ")
    assert "<h1>" not in shown


def test_report_of_an_old_version(demo: str) -> None:
    made = trilake.report(demo, version=0)
    assert "Schema over time" in made.html
    assert "channel" not in made.html


def test_damaged_commits_are_reported_and_the_rest_is_shown(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    for n in range(12):
        trilake.write(pa.table({"n": [n]}), uri, mode="append")
    (tmp_path / "t" / "_delta_log" / f"{3:020d}.json").write_text("no json\n")
    made = trilake.report(uri)  # the checkpoint replaces it
    assert "1 commit could not be read" in made.html
    assert "12 versions" in made.html


def test_large_commit_is_summarized_from_its_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trilake.delta import report as delta_history

    monkeypatch.setattr(delta_history, "_WHOLE", 10)
    uri = str(tmp_path / "t")
    trilake.write(pa.table({"n": [1]}), uri)
    trilake.write(pa.table({"n": [1]}), uri, mode="append")
    commits = facts_of(trilake.open(uri)).commits
    assert commits is not None
    assert commits.table["operation"].to_pylist() == trilake.open(uri).history()["operation"].to_pylist()


def test_only_charts_need_chart_libraries(tmp_path: Path) -> None:
    trilake.write(pa.table({"n": [1]}), str(tmp_path / "t"))
    script = f"""
import sys
import time
import trilake
table = trilake.open({str(tmp_path / "t")!r})
table.files()
assert trilake.report and not {{"altair", "vl_convert", "jinja2"}} & set(sys.modules)
for name in ("vl_convert", "jinja2"):
    sys.modules[name] = None
    try:
        table.report()
    except trilake.TrilakeError as e:
        assert 'pip install "trilake[report]"' in str(e), e
    else:
        raise SystemExit("a report without its libraries")
    del sys.modules[name]
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.soak
def test_report_of_100_000_files_is_fast(tmp_path: Path) -> None:
    uri = tables.many_files(tmp_path / "t", 100_000)
    trilake.report(uri)  # imports everything
    begin = time.perf_counter()
    trilake.open(uri).files()
    listed = time.perf_counter() - begin
    made = trilake.report(uri)
    assert time.perf_counter() - begin - listed <= 1.5 * listed + 2
    assert len(made.html) < 3_000_000
