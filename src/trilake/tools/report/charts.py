"""Draw the charts of a report: altair builds the specification, vl-convert renders it to SVG, without a network.

Colours are CSS variables of the page, so one drawing serves light and dark mode.  The page draws the legends.  Strings
from a table are only ever values of a chart's data, never field names or expressions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from trilake.common.extras import load
from trilake.common.text import format_count, format_share, format_size, format_time, plain, plural
from trilake.tools.report.measures import POINTS, Clustering, HeatMap, SizeClass, Timeline, distinct_labels

#: Widths of a full-width chart and of a half-width one, in pixels.
WIDE, HALF = 940, 430
#: Heat map colours, palest first.
HEAT = tuple(f"var(--heat-{i})" for i in range(1, 7))
#: Colours of bars and series.
SERIES = tuple(f"var(--series-{i})" for i in range(1, 7))

alt: Any = load("altair", "Reports")
_convert: Any = load("vl_convert", "Reports")

_CONFIG: dict[str, Any] = {
    "font": "sans-serif",
    "background": None,
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--muted)",
        "titleColor": "var(--muted)",
        "titleFontWeight": "normal",
        # Shown at 12 pixels: the page's font may be wider than the one that the renderer measures.
        "titleFontSize": 14.5,
        "titlePadding": 8,
        "labelFontSize": 14.5,
        "labelLimit": 170,
        "labelPadding": 6,
        "gridColor": "var(--line)",
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
        "ticks": False,
    },
    "axisY": {"domain": False},
    "bar": {"cornerRadiusEnd": 2},
}


def _draw(chart: Any, title: str, description: str, key: str) -> str:
    spec = chart.to_dict(validate=False)
    # No URL is allowed: a chart that loads data would fail.
    svg = _convert.vegalite_to_svg(spec, config=_CONFIG, allowed_base_urls=[])
    return sanitised(svg, title, description, key)


def _chart(rows: Sequence[dict[str, Any]], width: int | Any, height: int | Any) -> Any:
    return alt.Chart(alt.Data(values=list(rows)), width=width, height=height)


def _color(field: str, values: Sequence[Any], colours: Sequence[str]) -> Any:
    return alt.Color(field, scale=alt.Scale(domain=list(values), range=list(colours)), legend=None)


def versions(line: Timeline) -> str:
    """Stacked bars: commits over time, by operation."""
    rows: list[dict[str, Any]] = [
        {**row, "tooltip": f"{format_time(row['start'])}: {row['commits']:,} × {row['operation']}"}
        for row in line.table.to_pylist()
    ]
    below: dict[int, int] = {}
    for row in sorted(rows, key=lambda r: line.operations.index(r["operation"])):
        row["bottom"] = below.get(row["start"], 0)
        row["top"] = below[row["start"]] = row["bottom"] + row["commits"]
    first, last = (ms - ms % line.length_ms for ms in (line.first_ms, line.last_ms))
    room = max(4 * line.length_ms - (last - first) // 8, 0) + line.length_ms
    seconds = line.length_ms // 1000
    domain = [first - room, last + line.length_ms + room]
    chart = (
        _chart(rows, WIDE - 70, 190)
        .mark_rect(cornerRadius=1, stroke="var(--panel)", strokeWidth=1)
        .encode(
            x=alt.X(
                "start:T",
                scale=alt.Scale(type="utc", domain=domain, nice=False),
                axis=alt.Axis(
                    title=None,
                    grid=False,
                    labelOverlap="greedy",
                    labelFlush=False,
                    tickCount=7,
                    format="%H:%M:%S" if seconds < 60 else "%d %b %H:%M" if seconds < 6 * 3600 else "%d %b %Y",
                ),
            ),
            x2="end",
            y=alt.Y("bottom:Q", title="versions", axis=alt.Axis(values=whole_ticks(max(below.values())), format=",d")),
            y2="top",
            color=_color("operation:N", list(line.operations), SERIES),
            description="tooltip:N",
        )
    )
    total = sum(row["commits"] for row in rows)
    caption = f"{total:,} versions from {format_time(line.first_ms)} to {format_time(line.last_ms)} UTC."
    return _draw(chart, "Versions over time, by operation", caption, "versions")


def sizes(classes: Sequence[SizeClass]) -> str:
    """A bar per size class."""
    most = max(classes, key=lambda c: c.files)
    rows = [
        {
            "label": c.label,
            "files": c.files,
            "small": "small" if c.small else "large",
            "tooltip": f"{c.label}: {c.files:,} files, {format_size(c.size)}",
        }
        for c in classes
    ]
    chart = (
        _chart(rows, alt.Step(max(28, min(56, (HALF - 60) // len(rows)))), 210)
        .mark_bar()
        .encode(
            x=alt.X("label:N", sort=None, title=None, axis=alt.Axis(labelAngle=-40, grid=False)),
            y=alt.Y("files:Q", title="files", axis=alt.Axis(values=whole_ticks(most.files), format="~s")),
            color=_color("small:N", ["large", "small"], SERIES[:2]),
            description="tooltip:N",
        )
    )
    caption = f"{sum(c.files for c in classes):,} files; most of them, {most.files:,}, are {most.label}."
    return _draw(chart, "Files by size", caption, "sizes")


def bars(key: str, title: str, unit: str, rows: Sequence[tuple[str, float, str]], series: int = 0) -> str:
    """Horizontal bars with their amounts."""
    labels = distinct_labels([label for label, _, _ in rows])
    data = [
        {"label": name, "value": value, "amount": amount, "tooltip": f"{name}: {amount}"}
        for name, (_, value, amount) in zip(labels, rows, strict=True)
    ]
    base = _chart(data, HALF - 170, alt.Step(24)).encode(
        y=alt.Y("label:N", sort=None, title=None, axis=alt.Axis(labelLimit=150)),
        x=alt.X("value:Q", title=unit, axis=None),
        description="tooltip:N",
    )
    bar = base.mark_bar(color=SERIES[series], height=14)
    note = base.mark_text(align="left", dx=6, fontSize=14.5, color="var(--muted)").encode(text="amount:N")
    most = max(rows, key=lambda r: r[1])
    caption = f"{len(rows)} bars; the longest is {plain(most[0], 40)} with {most[2]}."
    return _draw(alt.layer(bar, note), title, caption, key)


def disk(parts: Sequence[tuple[str, int]]) -> str:
    """One stacked bar: the bytes in the table's folder, live and removed."""
    rows = [
        {"part": part, "size": size, "order": i, "tooltip": f"{part}: {format_size(size)}"}
        for i, (part, size) in enumerate(parts)
    ]
    chart = (
        _chart(rows, HALF - 20, 46)
        .mark_bar(cornerRadiusEnd=0)
        .encode(
            x=alt.X("size:Q", stack="zero", axis=None),
            order="order:Q",
            color=_color("part:N", [p for p, _ in parts], (SERIES[0], SERIES[2], SERIES[1])),
            description="tooltip:N",
        )
    )
    caption = "; ".join(f"{part}: {format_size(size)}" for part, size in parts) + "."
    return _draw(chart, "Bytes in the table’s folder", caption, "disk")


def partitions(map_: HeatMap) -> str:
    """A heat map: bytes by two partition columns, or files by one and their size."""
    two = map_.x_name != "file size"
    values = map_.sizes if two else map_.files
    most = map_.most(values)
    rows = [
        {
            "y": map_.y[i],
            "x": map_.x[j],
            "step": step_of(int(values[i, j]), most),
            "tooltip": f"{map_.y[i]}, {map_.x[j]}: {plural(int(map_.files[i, j]), 'file')},"
            f" {format_size(int(map_.sizes[i, j]))}",
        }
        for i in range(len(map_.y))
        for j in range(len(map_.x))
        if map_.files[i, j]
    ]
    cell = max(16, min(40, (WIDE - 200) // max(len(map_.x), 1)))
    chart = (
        _chart(rows, alt.Step(cell), alt.Step(20))
        .mark_rect(cornerRadius=2, stroke="var(--panel)", strokeWidth=2)
        .encode(
            y=alt.Y("y:N", sort=list(map_.y), title=None, scale=alt.Scale(domain=list(map_.y))),
            x=alt.X(
                "x:N",
                sort=list(map_.x),
                title=map_.x_name,
                scale=alt.Scale(domain=list(map_.x)),
                axis=alt.Axis(labelAngle=-50 if len(map_.x) > 8 or not two else 0, orient="top", domain=False),
            ),
            color=_color("step:O", list(range(len(HEAT))), HEAT),
            description="tooltip:N",
        )
    )
    i, j = divmod(int(values.argmax()), values.shape[1])
    what = format_size(int(values[i, j])) if two else f"{int(values[i, j]):,} files"
    caption = f"{map_.partitions:,} partitions. The largest is {map_.y[i]}, {map_.x[j]} with {what}."
    return _draw(chart, f"Partitions by {map_.y_name} and {map_.x_name}", caption, "partitions")


def clustering(columns: Sequence[Clustering]) -> str:
    """One strip per column: the share of files that a lookup reads, from the smallest value to the largest."""
    names = distinct_labels([plain(c.name, 40) for c in columns])
    rows = [
        {
            "column": name,
            "from": i * 100 / POINTS,
            "to": end * 100 / POINTS,
            "step": step,
            "tooltip": f"{name}, values from {i * 100 // POINTS} % to {end * 100 // POINTS} %:"
            f" {format_count(float(round(depth, 1)))} of {c.files:,}",
        }
        for name, c in zip(names, columns, strict=True)
        for i, end, step, depth in runs(c)
    ]
    chart = (
        _chart(rows, WIDE - 200, alt.Step(24))
        .mark_rect(height=18)
        .encode(
            y=alt.Y("column:N", sort=names, title=None),
            x=alt.X(
                "from:Q",
                title="middle of each file’s bounds, smallest first, in % of the files",
                axis=alt.Axis(grid=False, domain=False, tickCount=5),
                scale=alt.Scale(domain=[0, 100], nice=False),
            ),
            x2="to",
            color=_color("step:O", list(range(len(HEAT))), HEAT),
            description="tooltip:N",
        )
    )
    best = min(columns, key=lambda c: c.share)
    worst = max(columns, key=lambda c: c.share)
    caption = (
        f"A lookup by {plain(best.name, 40)} reads {format_share(best.share)} of the files on average,"
        f" one by {plain(worst.name, 40)} {format_share(worst.share)}."
    )
    return _draw(chart, "Files that a lookup of one value reads, by column", caption, "clustering")


def whole_ticks(most: int) -> list[int]:
    """At most six round axis values from 0 to about ``most``.

    >>> whole_ticks(1), whole_ticks(6), whole_ticks(2600)
    ([0, 1], [0, 2, 4, 6], [0, 1000, 2000])
    """
    step = next(n * 10**k for k in range(19) for n in (1, 2, 5) if most <= 4 * n * 10**k)
    return list(range(0, most + 1, step))


def runs(column: Clustering) -> list[tuple[int, int, int, float]]:
    """The strip of a column as runs of one colour: start, end, colour, files that a lookup in the middle reads."""
    steps = [heat_step(depth / column.files if column.files > 1 else 0) for depth in column.profile]
    starts = [i for i, step in enumerate(steps) if i == 0 or step != steps[i - 1]]
    ends = [*starts[1:], len(steps)]
    return [(a, b, steps[a], column.profile[(a + b) // 2]) for a, b in zip(starts, ends, strict=True)]


def heat_step(share: float) -> int:
    """The colour of a share of files, with bounds at 1 %, 5 %, 20 %, 50 % and 80 %.

    >>> [heat_step(s) for s in (0.001, 0.02, 0.1, 0.4, 0.6, 1.0)]
    [0, 1, 2, 3, 4, 5]
    """
    return sum(share > bound for bound in (0.01, 0.05, 0.2, 0.5, 0.8))


def step_of(value: int, most: int) -> int:
    """The colour of a value, in equal steps up to ``most``.

    >>> step_of(1, 600), step_of(600, 600)
    (0, 5)
    """
    return min(len(HEAT) - 1, value * len(HEAT) // max(most, 1))


# --- Sanitise SVG ----------------------------------------------------------------------------------------------------
# The SVG is parsed and rewritten from an allow-list: whatever a table's names contain, no script, URL, style or other
# element gets through.

_NAMESPACE = "{http://www.w3.org/2000/svg}"
_ELEMENTS = {"svg", "g", "path", "rect", "line", "text", "tspan", "circle"}
_ATTRIBUTES = {
    "d", "x", "y", "x1", "y1", "x2", "y2", "dx", "dy", "cx", "cy", "r", "rx", "ry", "width", "height", "transform",
    "fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-miterlimit", "opacity", "fill-opacity",
    "text-anchor", "font-weight",
}  # fmt: skip
_SPARE = {("opacity", "1"), ("stroke-width", "0"), ("font-weight", "normal")}
_LONG = re.compile(r"(\d+\.\d\d)\d+")


def sanitised(svg: str, title: str, description: str, key: str) -> str:
    """Keep only allowed elements and attributes; add a title and a description for screen readers.

    Parameters
    ----------
    svg: the renderer's output.
    title, description: what the chart shows.
    key: unique within the page, part of the ids of both.

    >>> svg = '<svg xmlns="http://www.w3.org/2000/svg" width="2" height="1"><script/><rect onload="x"/></svg>'
    >>> clean = sanitised(svg, "A < B", "", "k")
    >>> "<rect />" in clean, "A &lt; B" in clean, "script" in clean
    (True, True, False)
    """
    source = ElementTree.fromstring(svg)
    top = _copy(source)
    width, height = source.get("width", "0"), source.get("height", "0")
    root = ElementTree.Element("svg", {"width": width, "height": height, "viewBox": f"0 0 {width} {height}"})
    root.set("role", "img")
    root.set("aria-labelledby", f"chart-{key}-title chart-{key}-text")
    ElementTree.SubElement(root, "title", {"id": f"chart-{key}-title"}).text = title
    ElementTree.SubElement(root, "desc", {"id": f"chart-{key}-text"}).text = description
    root.extend(top)
    return ElementTree.tostring(root, encoding="unicode")


def _copy(node: ElementTree.Element) -> ElementTree.Element:
    """Copy the allowed parts of an element; a mark's description becomes its tooltip."""
    name = str(node.tag).removeprefix(_NAMESPACE)
    attributes = {k: _LONG.sub(r"\1", v) for k, v in node.attrib.items() if k in _ATTRIBUTES and (k, v) not in _SPARE}
    out = ElementTree.Element(name, {k: v for k, v in attributes.items() if "url" not in v.lower()})
    if name in ("text", "tspan"):
        out.text = node.text
    if node.get("role") == "graphics-symbol" and node.get("aria-roledescription") != "axis" and node.get("aria-label"):
        ElementTree.SubElement(out, "title").text = node.get("aria-label")
    for child in node:
        part = str(child.tag).removeprefix(_NAMESPACE)
        if part in _ELEMENTS and child.get("display") != "none" and (part != "path" or child.get("d")):
            copied = _copy(child)
            if part != "g" or len(copied):
                out.append(copied)
    return out
