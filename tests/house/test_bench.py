"""The benchmark harness: order of runs, ratios, answers, memory, output."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import __main__ as command
from bench import flames, harness, picture, report
from bench.harness import Benchmark, BenchmarkError, Contender, Memory, Spread
from trilake.errors import InvalidArgumentError

pytestmark = pytest.mark.long


class Clock:
    """A clock that contenders advance."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def work(self, *seconds: float) -> Callable[[], None]:
        """A job that takes the given seconds, one number per run."""
        remaining = iter(seconds)

        def run() -> None:
            self.now += next(remaining)

        return run


@pytest.fixture(autouse=True)
def _no_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collect no garbage between runs: that would traverse all tests."""
    monkeypatch.setattr(harness, "collect_garbage", lambda: None)


def test_rounds_are_interleaved_and_rotated() -> None:
    order: list[str] = []
    contenders = [Contender(n, lambda n=n: order.append(n)) for n in "abc"]
    harness.run("x", Benchmark("x", "", contenders, "a", rounds=3, warmups=1))
    assert "".join(order) == "cab" + "abc" + "bca" + "cab"


def test_ratios_are_taken_round_by_round() -> None:
    clock = Clock()
    # The machine keeps getting slower; "double" takes twice the time of the baseline in every round.
    contenders = [Contender("base", clock.work(9, 1, 2, 4)), Contender("double", clock.work(99, 2, 4, 8))]
    benchmark = Benchmark("x", "", contenders, "base", rounds=3, targets={"double": 1.9})
    base, double = harness.run("x", benchmark, clock=clock).results
    assert list(base.seconds) == [1, 2, 4]
    assert double.ratio == Spread(2, 2, 2)
    assert (base.good, double.good) == (True, False)


def test_preparation_is_not_timed() -> None:
    clock = Clock()
    contender = Contender("a", clock.work(1), prepare=clock.work(100))
    (result,) = harness.run("x", Benchmark("x", "", [contender], "a", warmups=0, rounds=1), clock=clock).results
    assert list(result.seconds) == [1]


def test_setup_comes_first_and_once() -> None:
    order: list[str] = []
    contender = Contender("a", lambda: order.append("run"), prepare=lambda: order.append("prepare"))
    benchmark = Benchmark("x", "", [contender], "a", setup=lambda: order.append("setup"), warmups=0, rounds=2)
    harness.run("x", benchmark)
    assert order == ["setup", *["prepare", "run"] * 2]


def test_different_answers_are_rejected() -> None:
    contenders = [Contender("a", lambda: 1), Contender("silent", lambda: None), Contender("b", lambda: 2)]
    with pytest.raises(BenchmarkError, match=r"(b answers 2|a answers 1).*benchmark: m\.x"):
        harness.run("m.x", Benchmark("x", "", contenders, "a", rounds=1))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda c: Benchmark("x", "", [c], "missing"),
        lambda c: Benchmark("x", "", [c], "a", targets={"missing": 1}),
        lambda c: Benchmark("x", "", [c, c], "a"),
        lambda c: Benchmark("x", "", [c], "a", rounds=0),
        lambda c: Benchmark("x.y", "", [c], "a"),
    ],
)
def test_invalid_benchmark_is_rejected(wrong: Callable[[Contender], Benchmark]) -> None:
    with pytest.raises(InvalidArgumentError):
        wrong(Contender("a", lambda: None))


@given(st.lists(st.floats(0.001, 1000), min_size=1, max_size=30))
def test_spread_is_ordered_and_within_the_numbers(numbers: list[float]) -> None:
    spread = Spread.of(numbers)
    bounds = [min(numbers), spread.low, spread.median, spread.high, max(numbers)]
    assert all(a <= b * (1 + 1e-12) for a, b in itertools.pairwise(bounds))


# --- memory ----------------------------------------------------------------------------------------------------------


def test_memory_is_the_peak_of_a_run() -> None:
    """In a separate process, as the command measures it: a process that ran other tests may release memory."""
    size = 96 << 20
    script = f"""
from bench import harness
from bench.harness import Benchmark, Contender
contenders = [Contender("none", lambda: None), Contender("peak", lambda: len(b"x" * {size}))]
print(*(harness.memory_here(Benchmark("x", "", contenders, "none"), c.name).growth for c in contenders))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    none, peak = map(int, done.stdout.split())
    assert none < size // 4
    assert size * 0.95 < peak < size * 1.5


def test_memory_ratio_compares_growth() -> None:
    contenders = [Contender("a", lambda: None), Contender("b", lambda: None)]
    benchmark = Benchmark("x", "", contenders, "a", rounds=1, memory=True, memory_targets={"b": 2})
    measured = {"a": Memory(100, 110), "b": Memory(500, 525)}
    results = harness.run("m.x", benchmark, measure_memory=lambda _, contender: measured[contender]).results
    assert [(r.memory_ratio, r.good) for r in results] == [(1.0, True), (2.5, False)]


def test_dead_child_process_is_an_error() -> None:
    with pytest.raises(BenchmarkError, match=r"exit code 2 \(benchmark: nowhere\.nothing, contender: a\)"):
        harness.memory_in_child("nowhere.nothing", "a")


# --- names, data, output ---------------------------------------------------------------------------------------------


def some() -> dict[str, Benchmark]:
    contenders = [Contender("base", lambda: 1), Contender("other", lambda: 1)]
    return {
        **harness.by_name("delta", [Benchmark(n, f"about {n}", contenders, "base", rounds=1) for n in ("one", "two")]),
        **harness.by_name("lance", [Benchmark("one", "about lance", contenders, "base", rounds=1)]),
    }


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        ([], ["delta.one", "delta.two", "lance.one"]),
        (["delta"], ["delta.one", "delta.two"]),
        (["lance.one", "delta.two"], ["delta.two", "lance.one"]),
        (["*.one"], ["delta.one", "lance.one"]),
    ],
)
def test_select_benchmarks_by_name(names: list[str], chosen: list[str]) -> None:
    assert list(harness.select(some(), names)) == chosen


def test_unknown_benchmark_name_is_rejected() -> None:
    with pytest.raises(InvalidArgumentError, match=r"'delt'.*delta\.one, delta\.two, lance\.one"):
        harness.select(some(), ["delta", "delt"])


def test_duplicate_benchmark_name_is_rejected() -> None:
    with pytest.raises(InvalidArgumentError, match="same name"):
        harness.by_name("m", [Benchmark("x", "", [Contender("a", lambda: None)], "a")] * 2)


def test_data_is_built_once_and_atomically(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRILAKE_BENCH_DATA", str(tmp_path))

    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise RuntimeError

    with pytest.raises(RuntimeError):
        harness.data("rows-10", fail)
    assert list(tmp_path.iterdir()) == []
    folder = harness.data("rows-10", lambda f: (f / "whole").touch())
    assert harness.data("rows-10", fail) == folder == tmp_path / "rows-10"
    assert [p.name for p in folder.iterdir()] == ["whole"]


def test_command_prints_tables_and_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(harness, "discover", lambda names: harness.select(some(), names))
    assert command.main(["delta", "--rounds", "2", "--json", str(tmp_path / "out.json")]) == 0
    output = capsys.readouterr().out
    assert "delta.one: about one" in output
    assert "java: Java" in output
    document = json.loads((tmp_path / "out.json").read_text())
    assert [b["name"] for b in document["benchmarks"]] == ["delta.one", "delta.two"]
    assert [len(c["seconds"]) for c in document["benchmarks"][0]["contenders"]] == [2, 2]
    assert document["packages"]["pyarrow"]

    assert command.main(["lance", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["benchmarks"][0]["name"] == "lance.one"


def test_command_measures_memory_and_lists_benchmarks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(harness, "discover", lambda names: harness.select(some(), names))
    assert command.main(["--memory-of", "other", "delta.one"]) == 0
    measured = Memory(**json.loads(capsys.readouterr().out))
    assert measured.peak >= measured.before > 0
    assert command.main(["--list"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "delta.one: about one"
    assert command.main(["nothing"]) == 2
    assert "no benchmark is called 'nothing'" in capsys.readouterr().err


def test_missed_targets_fail_with_check(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    contenders = [Contender("base", lambda: None), Contender("other", lambda: None)]
    slow = harness.by_name("m", [Benchmark("x", "", contenders, "base", targets={"other": 0.0}, rounds=1)])
    monkeypatch.setattr(harness, "discover", lambda names: slow)
    assert command.main([]) == 0
    assert command.main(["--check"]) == 1
    assert "targets missed: m.x: other" in capsys.readouterr().out


def test_discover_finds_all_benchmarks() -> None:
    for name, benchmark in harness.discover().items():
        assert name.endswith(f".{benchmark.name}")
        assert benchmark.title


def test_discover_builds_no_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRILAKE_BENCH_DATA", str(tmp_path))
    assert harness.discover([])
    assert list(tmp_path.iterdir()) == []


def test_report_heading_names_the_environment() -> None:
    heading = report.heading()
    for word in "python: 3.", "java: ", "cores: ", "commit: ", "pyarrow ":
        assert word in heading


def measured(name: str, *ratios: float, target: float | None) -> harness.Report:
    """The report of a benchmark whose contender took the given multiples of its baseline."""
    clock = Clock()
    contenders = [Contender("base", clock.work(*[1] * len(ratios))), Contender("ours", clock.work(*ratios))]
    targets = {} if target is None else {"ours": target}
    benchmark = Benchmark(name, "a job", contenders, "base", rounds=len(ratios), warmups=0, targets=targets)
    return harness.run(name, benchmark, clock=clock)


def test_newest_result_of_each_benchmark_is_shown(tmp_path: Path) -> None:
    kept, page, drawing = tmp_path / "kept.json", tmp_path / "page.md", tmp_path / "chart.svg"
    page.write_text("above\n<!-- begin results -->\nold\n<!-- end results -->\nbelow\n")
    first = [measured("a", 2.0, 2.0, target=1.0), measured("b", 0.5, 0.5, target=1.0), measured("c", 3.0, target=None)]
    picture.keep(picture.rows_of(first, "2026-01-01", "abc", "v 1"), kept)
    again = [measured("a", 0.9, 0.9, target=1.0)]
    picture.write(picture.keep(picture.rows_of(again, "2026-01-02", "def", "v 2"), kept), page, drawing)
    text = page.read_text()
    assert text.startswith("above\n")
    assert text.endswith("below\n")
    assert "old" not in text
    assert "| `a` | base | 1 | 0.90 | 0.90 to 0.90 | 1 of 1 |" in text
    assert "| `b` | base | 1 | 0.50 | 0.50 to 0.50 | 1 of 1 |" in text
    assert "| `c` | base | 1 | 3.00 | 3.00 to 3.00 |  |" in text
    assert "2 of 2 targets are met" in text
    assert "* 2026-01-02 (`def`): v 2." in text
    svg = drawing.read_text()
    assert svg.startswith("<svg")
    assert "a: ours" in svg
    assert "c: ours" not in svg


def test_missed_target_is_marked(tmp_path: Path) -> None:
    rows = picture.rows_of([measured("a", 1.2, target=1.1)], "2026-01-01", "abc", "v")
    assert "| `a` | ours | 1.20, 1.20-1.20 | 1.10 |" in picture.markdown(rows)
    assert "#c0392b" in picture.chart(rows)


def test_documented_table_and_chart_match_stored_results() -> None:
    assert picture.markdown(picture.load()) in picture.PAGE.read_text()
    assert picture.CHART.read_text() == picture.chart(picture.load())


def test_run_again_repeats_and_runs_at_least_once() -> None:
    done: list[str] = []
    contender = Contender("ours", lambda: done.append("run"), lambda: done.append("prepare"))
    benchmark = Benchmark("x", "", [contender], "ours", setup=lambda: done.append("setup"))
    assert flames.run_again(benchmark, "ours", 0.0) == 1
    assert done == ["setup", "prepare", "run"]
    assert flames.run_again(benchmark, "ours", 0.05) > 1
    with pytest.raises(InvalidArgumentError, match="no contender is called 'theirs'"):
        flames.run_again(benchmark, "theirs")


def test_hot_paths_are_benchmarks_with_a_trilake_contender() -> None:
    chosen = harness.discover(list(flames.HOT))
    assert set(chosen) == set(flames.HOT)
    assert all(any(c.name.startswith("trilake") for c in b.contenders) for b in chosen.values())


def test_flame_graph_is_drawn_for_each_trilake_contender(tmp_path: Path) -> None:
    """With a fake py-spy: not every system lets a program inspect another."""
    spy = tmp_path / "py-spy"
    spy.write_text('#!/bin/sh\nout=$6\nshift 7\n"$@" && echo "<svg/>" > "$out"\n')
    spy.chmod(0o755)
    (drawn,) = flames.record(harness.discover(["opening.process"]), tmp_path / "graphs", spy)
    assert drawn.name == "opening.process-trilake.svg"
    assert drawn.read_text() == "<svg/>\n"
    spy.write_text("#!/bin/sh\necho not allowed >&2\nexit 1\n")
    with pytest.raises(BenchmarkError, match="not allowed"):
        flames.record(harness.discover(["opening.process"]), tmp_path, spy)
