"""Write the summary and the chart for the documentation from ``docs/internals/benchmarks.json``.

The file has the newest result of each benchmark with its day, commit and versions.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert as vlc

from bench.harness import ROOT, Report

KEPT = ROOT / "docs" / "internals" / "benchmarks.json"
PAGE = ROOT / "docs" / "internals" / "benchmarks.md"
CHART = ROOT / "docs" / "internals" / "benchmarks.svg"
_BEGIN, _END = "<!-- begin results -->", "<!-- end results -->"
#: Contenders in addition to the baseline, for comparison.
_OTHERS = ("deltalake", "pyarrow", "pylance")


@dataclass(frozen=True)
class Row:
    """One contender of one benchmark: its ratio to the baseline, and where it was measured."""

    benchmark: str
    title: str
    contender: str
    baseline: str
    median: float
    low: float
    high: float
    seconds: float
    rounds: int
    target: float | None
    day: str
    commit: str
    versions: str

    @property
    def met(self) -> bool:
        """Whether the target is met, if there is one."""
        return self.target is None or round(self.median, 2) <= self.target


def rows_of(reports: Iterable[Report], day: str, commit: str, versions: str) -> list[Row]:
    """The contenders of reports except for the baselines, which are 1 by definition."""
    return [
        Row(
            report.name,
            report.title,
            r.contender,
            report.baseline,
            round(r.ratio.median, 3),
            round(r.ratio.low, 3),
            round(r.ratio.high, 3),
            round(statistics.median(r.seconds), 5),
            len(r.seconds),
            r.target,
            day,
            commit,
            versions,
        )
        for report in reports
        for r in report.results
        if r.contender != report.baseline
    ]


def load(path: Path = KEPT) -> list[Row]:
    """The stored rows."""
    return [Row(**row) for row in json.loads(path.read_text())] if path.exists() else []


def keep(new: Sequence[Row], path: Path = KEPT) -> list[Row]:
    """All rows, with older rows of the benchmarks in ``new`` replaced."""
    measured = {row.benchmark for row in new}
    rows = sorted(
        [*(r for r in load(path) if r.benchmark not in measured), *new], key=lambda r: (r.benchmark, r.contender)
    )
    path.write_text(json.dumps([asdict(r) for r in rows], indent=1) + "\n")
    return rows


def markdown(rows: Sequence[Row]) -> str:
    """The summary of the documentation: a line per group of benchmarks, the missed targets, and the runs."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for r in rows:
        if r.contender not in _OTHERS:
            groups.setdefault((r.benchmark.partition(".")[0], r.baseline), []).append(r)
    lines = [
        "| benchmarks | ratio to | results | median | lowest to highest | targets met |",
        "|---|---|---|---|---|---|",
    ]
    for (name, baseline), group in groups.items():
        ratios = [r.median for r in group]
        middle, low, high = (f"{x:.2f}" for x in (statistics.median(ratios), min(ratios), max(ratios)))
        limits = [r.met for r in group if r.target is not None]
        targets = f"{sum(limits)} of {len(limits)}" if limits else ""
        lines.append(f"| `{name}` | {baseline} | {len(group)} | {middle} | {low} to {high} | {targets} |")
    with_target = [r for r in rows if r.target is not None]
    lines += ["", f"{sum(r.met for r in with_target)} of {len(with_target)} targets are met."]
    if missed := [r for r in with_target if not r.met]:
        lines += ["", "| missed | contender | ratio, quartiles | target |", "|---|---|---|---|"]
        lines += [
            f"| `{r.benchmark}` | {r.contender} | {r.median:.2f}, {r.low:.2f}-{r.high:.2f} | {r.target:.2f} |"
            for r in missed
        ]
    lines += ["", "The runs:", ""]
    versions = sorted({r.versions for r in rows})
    days = {v: sorted({(r.day, r.commit) for r in rows if r.versions == v}) for v in versions}
    lines += [f"* {', '.join(f'{day} (`{commit}`)' for day, commit in days[v])}: {v}." for v in versions]
    return "\n".join(lines)


def chart(rows: Sequence[Row]) -> str:
    """Each ratio that has a target as a point between its quartiles, its target as a tick: SVG."""
    data: list[Mapping[str, Any]] = [
        {
            "job": f"{r.benchmark}: {r.contender}",
            "ratio": r.median,
            "low": r.low,
            "high": r.high,
            "target": r.target,
            "result": "met" if r.met else "missed",
        }
        for r in sorted(rows, key=lambda r: (r.median / r.target if r.target else 0, r.benchmark))
        if r.target is not None
    ]
    base = alt.Chart(alt.InlineData(values=list(data))).encode(
        y=alt.Y("job:N", sort=None, title=None, axis=alt.Axis(labelLimit=360)),
        color=alt.Color(
            "result:N",
            scale=alt.Scale(domain=["met", "missed"], range=["#2a78a8", "#c0392b"]),
            legend=alt.Legend(title="target (tick)", orient="top"),
        ),
    )
    axis = alt.X("ratio:Q", scale=alt.Scale(type="log"), title="time as a ratio to the baseline; less is faster")
    points = base.mark_point(filled=True, size=45).encode(x=axis)
    ranges = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title=""), x2="high:Q")
    ticks = base.mark_tick(thickness=2, size=11, color="#777777").encode(
        x=alt.X("target:Q", title=""), color=alt.value("#777777")
    )
    drawn = alt.layer(ranges, ticks, points).properties(width=520, height=alt.Step(14), background="white")
    return str(vlc.vegalite_to_svg(drawn.to_json()))


def write(rows: Sequence[Row], page: Path = PAGE, drawing: Path = CHART) -> None:
    """Write the summary and the chart into the documentation."""
    text = page.read_text()
    pattern = re.compile(re.escape(_BEGIN) + ".*?" + re.escape(_END), re.DOTALL)
    page.write_text(pattern.sub(lambda _: f"{_BEGIN}\n\n{markdown(rows)}\n\n{_END}", text))
    drawing.write_text(chart(rows))
