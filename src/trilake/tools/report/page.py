"""Build the page: one self-contained HTML document, without scripts or URLs."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from urllib.parse import unquote

import numpy as np
import pyarrow.compute as pc
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from trilake.common.text import format_count, format_share, format_size, format_time, plain, plural, short_count
from trilake.common.version import __version__
from trilake.table.report_facts import Facts
from trilake.table.report_page import Advice
from trilake.tools.report import charts
from trilake.tools.report.advice import advise
from trilake.tools.report.measures import (
    Clustering,
    as_sizes,
    deleted_classes,
    heat_map,
    largest_files,
    measure,
    size_classes,
    summary,
    timeline,
    top_columns,
)


@dataclass(frozen=True)
class Grid:
    """A table of strings: the first column holds row headers, ``numbers`` are right-aligned columns."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: frozenset[int] = frozenset()
    #: Columns in a code font: names, paths, types.
    code: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Figure:
    """A chart, its legend (CSS class and label), and its data as a table."""

    key: str
    title: str
    svg: str
    data: Grid
    legend: tuple[tuple[str, str], ...] = ()
    note: str | None = None
    wide: bool = True


@dataclass(frozen=True)
class Section:
    """A part of the page under one heading."""

    key: str
    heading: str
    lead: str
    figures: tuple[Figure, ...] = ()
    grids: tuple[Grid, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tile:
    """A number at the top of the page, with its label."""

    label: str
    value: str
    more: str = ""


def grid(
    caption: str,
    head: Sequence[str],
    rows: Iterable[Sequence[object]],
    numbers: Iterable[int] = (),
    code: Iterable[int] = (),
) -> Grid:
    """A grid of any values; ``None`` becomes an empty cell."""
    cells = tuple(tuple("" if v is None else str(v) for v in row) for row in rows)
    return Grid(caption, tuple(head), cells, frozenset(numbers), frozenset(code))


def _resource(name: str) -> str:
    return files("trilake.tools.report").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    # Names, values and paths of a table are always escaped.
    return Environment(
        loader=FunctionLoader(_resource),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def page_of(facts: Facts) -> tuple[str, list[Advice]]:
    """The document, and the advice in it."""
    bounds = facts.bounds
    clustering = [] if bounds is None else [measure(c, bounds.files, bounds.sampled) for c in bounds.columns]
    advice = advise(facts, clustering)
    sections = sections_of(facts, clustering)
    style = _resource("report.css")
    body = (
        _environment()
        .get_template("report.html")
        .render(
            format=facts.format.title(),
            name=plain(unquote(facts.uri.rstrip("/").rpartition("/")[2]) or facts.uri, 80),
            uri=plain(facts.uri, 400),
            description=plain(facts.description, 400) if facts.description else None,
            time=format_time(facts.now_ms),
            version=__version__,
            tiles=_tiles(facts),
            advice=advice,
            findings=facts.findings,
            verify_command=f"trilake.verify({facts.uri!r})",
            sections=sections,
            markup=Markup,
            style=Markup(style),
            style_hash=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        )
    )
    return body, advice


def _tiles(facts: Facts) -> list[Tile]:
    files = facts.files
    rows, deleted = files["rows"], pc.sum(files["deleted"]).as_py() or 0
    known_rows = int(pc.sum(rows).as_py() or 0)
    unknown = rows.null_count
    tiles = [] if facts.version is None else [Tile("Version", format_count(facts.version))]
    more = f"unknown in {unknown:,} files" if unknown else ""
    if deleted:
        more = f"{format_share(deleted / max(known_rows, deleted))} more deleted"
    live = max(0, known_rows - deleted)
    tiles.append(
        Tile("Rows", ("≥ " if unknown else "") + short_count(live), more or (f"{live:,}" if live >= 10**8 else ""))
    )
    sizes = as_sizes(files)
    mean = f"{format_size(float(sizes.mean()))} on average" if len(sizes) else ""
    tiles += [Tile("Files", format_count(len(sizes)), mean), Tile("Size", format_size(int(sizes.sum())))]
    tiles.append(Tile("Columns", format_count(len(facts.schema))))
    if facts.partitions:
        tiles.append(Tile("Partitioned by", ", ".join(plain(p.name, 24) for p in facts.partitions)))
    if facts.clustering:
        tiles.append(Tile("Clustered by", ", ".join(plain(c, 24) for c in facts.clustering)))
    return tiles


#: Row limits of the page's tables.
_COMMITS, _APPLICATIONS, _SCHEMA, _COLUMNS = 60, 100, 100, 200
_TIME = "%Y-%m-%d %H:%M:%S"
#: Bar limit of a chart.
_BARS = 16


def sections_of(facts: Facts, clustering: Sequence[Clustering]) -> list[Section]:
    """All sections with content."""
    sections = (
        _versions(facts),
        _files(facts),
        _partitions(facts),
        _columns(facts, clustering),
        _schema(facts),
        _streams(facts),
        _settings(facts),
    )
    return [section for section in sections if section is not None]


def _versions(facts: Facts) -> Section | None:
    if facts.commits is None:
        return None
    line, table = timeline(facts.commits), facts.commits.table
    if line is None:
        return Section("versions", "Versions", "The log has no commits.")
    rows = line.table.to_pylist()
    data = grid(
        "Versions by time and operation",
        ("from (UTC)", "operation", "versions"),
        [(format_time(r["start"]), r["operation"], format_count(r["commits"])) for r in rows],
        numbers=(2,),
    )
    legend = tuple((f"series-{i + 1}", name) for i, name in enumerate(line.operations))
    chart = Figure("versions", "Versions over time, by operation", charts.versions(line), data, legend)
    newest = table.slice(0, _COMMITS).to_pylist()
    listing = grid(
        f"The newest {plural(len(newest), 'version')}",
        ("version", "time (UTC)", "operation", "metrics", "by"),
        [(r["version"], f"{r['timestamp']:{_TIME}}", r["operation"], r["metrics"], r["by"]) for r in newest],
        numbers=(0,),
    )
    lead = f"{plural(facts.commits.total, 'version')} in the history, the newest from {format_time(line.last_ms)} UTC."
    notes = (f"{plural(facts.commits.unread, 'older version')} were not read.",) if facts.commits.unread else ()
    return Section("versions", "Versions", lead, (chart,), (listing,), (*notes, *facts.notes))


def _files(facts: Facts) -> Section:
    if not facts.files.num_rows:
        return Section("files", "Files", "The table has no data files: it has no rows.", tuple(_disk(facts)))
    sizes = as_sizes(facts.files)
    numbers = summary(sizes)
    lead = f"{plural(len(sizes), 'file')}, {format_size(int(sizes.sum()))}: smallest {numbers['smallest']},"
    lead += f" median {numbers['median']}, largest {numbers['largest']}."
    if facts.compaction is not None and facts.compaction.files:
        lead += f" Compaction would rewrite {facts.compaction.files:,} of them."
    figures = (_sizes(facts), *_disk(facts), *_vectors(facts))
    largest = grid(
        "The largest files",
        ("file", "size", "rows", *(("deleted rows",) if facts.has_vectors else ())),
        [
            (
                plain(r["path"], 90),
                format_size(r["size"]),
                _count(r["rows"]),
                *((_count(r["deleted"]),) if facts.has_vectors else ()),
            )
            for r in largest_files(facts.files).to_pylist()
        ],
        numbers=(1, 2, 3),
        code=(0,),
    )
    return Section("files", "Files", lead, figures, (largest,))


def _sizes(facts: Facts) -> Figure:
    compacts = facts.compaction is not None and facts.compaction.files > 1
    classes = size_classes(as_sizes(facts.files), SMALL_BELOW if compacts else None)
    data = grid(
        "Files and bytes by size",
        ("size of a file", "files", "bytes"),
        [(c.label, format_count(c.files), format_size(c.size)) for c in classes],
        numbers=(1, 2),
    )
    legend = [("series-2", "small: below 16 MiB")] if any(c.small for c in classes) else []
    legend += [("series-1", "larger")] if legend and not all(c.small for c in classes) else []
    return Figure("sizes", "Files by size", charts.sizes(classes), data, tuple(legend), wide=False)


#: Opening a smaller file costs as much as reading it.
SMALL_BELOW = 16 * 1024 * 1024


def _disk(facts: Facts) -> list[Figure]:
    tombstones = facts.tombstones
    if tombstones is None:
        return []
    live = int(as_sizes(facts.files).sum())
    retained = tombstones.size - tombstones.expired_size
    parts = [
        ("live", live, facts.files.num_rows),
        ("removed, within the retention", retained, tombstones.files - tombstones.expired_files),
        ("removed before the retention", tombstones.expired_size, tombstones.expired_files),
    ]
    if not live and not tombstones.files:
        return []
    data = grid(
        f"Live and removed files; the retention is {tombstones.retention}",
        ("state", "files", "bytes"),
        [(name, format_count(files), format_size(size)) for name, size, files in parts],
        numbers=(1, 2),
    )
    colours = ("series-1", "series-3", "series-2")
    legend = [
        (c, f"{name}: {format_size(size)}") for c, (name, size, files) in zip(colours, parts, strict=True) if files
    ]
    notes = []
    if tombstones.unsized:
        notes.append(f"The log does not record the size of {plural(tombstones.unsized, 'removed file')}.")
    if tombstones.files:
        notes.append("Files that a later vacuum deleted may still count as removed.")
    drawing = charts.disk([(name, size) for name, size, _ in parts])
    return [Figure("disk", "Live and removed bytes", drawing, data, tuple(legend), " ".join(notes) or None, wide=False)]


def _vectors(facts: Facts) -> list[Figure]:
    if not facts.has_vectors or not (pc.sum(facts.files["deleted"]).as_py() or 0):
        return []
    classes = deleted_classes(facts.files)
    deleted = sum(rows for _, _, rows in classes)
    rows = pc.sum(facts.files["rows"]).as_py() or 0
    share = format_share(deleted / max(rows, deleted, 1))
    data = grid(
        f"Files with deleted rows: {format_count(deleted)} of {format_count(rows)} rows ({share})",
        ("deleted share of a file’s rows", "files", "deleted rows"),
        [(label, format_count(files), format_count(rows)) for label, files, rows in classes],
        numbers=(1, 2),
    )
    bars = [(label, float(files), plural(files, "file")) for label, files, _ in classes]
    title = "Files by share of deleted rows"
    return [Figure("vectors", title, charts.bars("vectors", title, "files", bars, 3), data, wide=False)]


def _partitions(facts: Facts) -> Section | None:
    map_ = heat_map(facts.partitions, facts.files)
    if map_ is None:
        return None
    cells = np.argwhere(map_.files > 0)
    data = grid(
        "Files and bytes by partition",
        (map_.y_name, map_.x_name, "files", "bytes"),
        [
            (map_.y[i], map_.x[j], format_count(int(map_.files[i, j])), format_size(int(map_.sizes[i, j])))
            for i, j in cells.tolist()
        ],
        numbers=(2, 3),
    )
    two = len(facts.partitions) > 1
    most = map_.most(map_.sizes if two else map_.files)
    top = format_size(most) if two else plural(most, "file")
    legend = (("heat-1", "least"), ("heat-6", f"most: {top}" + (" or more" if map_.y_left or map_.x_left else "")))
    names = ", ".join(plain(p.name, 40) for p in facts.partitions)
    lead = f"{plural(map_.partitions, 'partition')} by {names}."
    if len(facts.partitions) > 2:
        lead += " The map shows the first two columns."
    title = f"Bytes by {map_.y_name} and {map_.x_name}" if two else f"Files by {map_.y_name} and their size"
    notes = [
        f"{plural(n, 'value')} of {name} with the fewest bytes are combined into one."
        for n, name in ((map_.y_left, map_.y_name), (map_.x_left, map_.x_name))
        if n
    ]
    figure = Figure("partitions", title, charts.partitions(map_), data, legend)
    return Section("partitions", "Partitions", lead, (figure,), notes=tuple(notes))


def _columns(facts: Facts, clustering: Sequence[Clustering]) -> Section:
    figures, notes = list[Figure](), list[str]()
    if clustering and facts.bounds is not None:
        unit = facts.bounds.unit
        data = grid(
            f"{unit.capitalize()}s that a lookup of one value reads, of {plural(facts.bounds.files, unit)}",
            ("column", "mean", "share", "worst", f"{unit}s that overlap a {unit}"),
            [
                (plain(c.name, 60), _about(c.mean), format_share(c.share), _about(c.worst), _about(c.overlap))
                for c in clustering
            ],
            numbers=(1, 2, 3, 4),
            code=(0,),
        )
        legend = (
            ("heat-1", "up to 1 %"), ("heat-2", "5 %"), ("heat-3", "20 %"), ("heat-4", "50 %"), ("heat-5", "80 %"),
            ("heat-6", "above 80 %"),
        )  # fmt: skip
        title = f"Share of the {unit}s that a lookup of one value reads"
        figures.append(Figure("clustering", title, charts.clustering(clustering), data, legend))
        if facts.bounds.sampled < facts.bounds.files:
            whole = plural(facts.bounds.files, unit)
            notes.append(f"Estimated from the bounds of {facts.bounds.sampled:,} of {whole}.")
        if facts.bounds.left_out:
            notes.append(f"The bounds of {plural(facts.bounds.left_out, 'more column')} were not read.")
    share: dict[str, float] = {}
    storage = facts.storage
    if storage is not None and storage.unreadable:
        notes.append(f"{plural(storage.unreadable, storage.unit)} could not be read to estimate the columns' bytes.")
    total = sum(storage.columns.values()) if storage is not None else 0
    if storage is not None and total:
        share = {name: size / total for name, size in storage.columns.items()}
        total_size = int(as_sizes(facts.files).sum())
        top = top_columns(dict(storage.columns), _BARS)
        data = grid(
            "Bytes by column",
            ("column", "share", "bytes, about"),
            [(plain(n, 60), format_share(s / total), format_size(total_size * s / total)) for n, s in top],
            numbers=(1, 2),
            code=(0,),
        )
        bars = [(plain(n, 40), s / total, format_share(s / total)) for n, s in top]
        drawing = charts.bars("storage", "Storage by column", "share of bytes", bars)
        note = f"Estimated from {storage.sampled:,} of {plural(storage.files, storage.unit)}."
        exact = storage.sampled == storage.files
        figures.append(Figure("storage", "Storage by column", drawing, data, (), None if exact else note, wide=False))
    lookups = {c.name: c for c in clustering}
    ends = {c.name: c for c in facts.bounds.columns} if facts.bounds is not None else {}
    by = {p.name for p in facts.partitions}
    head = ["column", "type", "role"]
    head += (["min", "max", "lookup reads"] if ends else []) + (["bytes"] if share else [])
    rows = []
    for field in list(facts.schema)[:_COLUMNS]:
        role = "partition" if field.name in by else "clustering" if field.name in facts.clustering else ""
        row = [plain(field.name, 60), plain(field.type, 60), role]
        if ends:
            bound, lookup = ends.get(field.name), lookups.get(field.name)
            row += ["", "", ""] if bound is None else [plain(bound.least, 40), plain(bound.greatest, 40), ""]
            row[-1] = "" if lookup is None else format_share(lookup.share)
        rows.append([*row, format_share(share[field.name]) if field.name in share else ""] if share else row)
    listing = grid("Columns", head, rows, numbers=(5, 6) if ends else (3,), code=(0, 1, 3, 4) if ends else (0, 1))
    lead = f"{plural(len(facts.schema), 'column')}."
    if clustering:
        lead += " Each strip runs from a column's smallest value to its largest; the colour shows how many files a"
        lead += " query for one value there reads."
    if len(facts.schema) > _COLUMNS:
        notes.append(f"{plural(len(facts.schema) - _COLUMNS, 'more column')} not listed.")
    return Section("columns", "Columns", lead, tuple(figures), (listing,), tuple(notes))


def _about(number: float) -> str:
    return format_count(round(number, 1) if number < 10 else round(number))


def _count(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _schema(facts: Facts) -> Section | None:
    if facts.schema_changes is None:
        return None
    if not facts.schema_changes:
        return Section("schema", "Schema over time", "None of the versions read changed the columns.")
    newest = facts.schema_changes[::-1]
    listing = grid(
        "Versions that changed columns, newest first",
        ("version", "time (UTC)", "changes"),
        [(c.version, c.time, "; ".join(c.changes)) for c in newest[:_SCHEMA]],
        numbers=(0,),
    )
    hidden_rows = len(newest) - _SCHEMA
    notes = (f"{plural(hidden_rows, 'older change')} not listed.",) if hidden_rows > 0 else ()
    lead = f"{plural(len(newest), 'version')} changed the columns."
    return Section("schema", "Schema over time", lead, grids=(listing,), notes=notes)


def _streams(facts: Facts) -> Section | None:
    transactions = facts.transactions
    if transactions is None:
        return None
    if not transactions.num_rows:
        return Section("streams", "Streams", "No stream or other application has recorded its progress.")
    listing = grid(
        "Progress of each application, newest first",
        ("application", "its version", "updated (UTC)"),
        [
            (plain(r["application"], 90), _count(r["version"]), r["updated"] and f"{r['updated']:{_TIME}}")
            for r in transactions.slice(0, _APPLICATIONS).to_pylist()
        ],
        numbers=(1,),
        code=(0,),
    )
    hidden_rows = transactions.num_rows - _APPLICATIONS
    notes = (f"{plural(hidden_rows, 'more application')} not listed.",) if hidden_rows > 0 else ()
    lead = f"{plural(transactions.num_rows, 'application')} recorded progress, so that a repeated write has no effect."
    return Section("streams", "Streams", lead, grids=(listing,), notes=notes)


def _settings(facts: Facts) -> Section | None:
    rows = [(plain(k, 80), plain(v, 120)) for k, v in facts.properties.items()]
    lists = {"table features": facts.features, "clustering columns": facts.clustering, "indices": facts.indices}
    pairs = [("protocol", facts.protocol), *((n, ", ".join(plain(v, 60) for v in vs)) for n, vs in lists.items())]
    first = [(name, value) for name, value in pairs if value]
    if not rows and not first:
        return None
    grids = [grid("Protocol and layout", ("name", "value"), first)] if first else []
    grids += [grid("Table properties", ("property", "value"), rows[:_SCHEMA], code=(0, 1))] if rows else []
    return Section("settings", "Properties", "Protocol, features and table properties.", grids=tuple(grids))
