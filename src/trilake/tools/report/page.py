"""The page: the sections of a report in one HTML document, without scripts, addresses or anything from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import unquote

import pyarrow.compute as pc
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from trilake.common.text import count_text, plain, share_text, short_count, size_text, time_text
from trilake.common.version import __version__
from trilake.table.report_facts import Facts
from trilake.table.report_page import Advice
from trilake.tools.report.advice import advise
from trilake.tools.report.charts import Charts
from trilake.tools.report.clustering import Clustering, measure
from trilake.tools.report.sections import sections_of
from trilake.tools.report.sizes import as_sizes
from trilake.tools.report.views import Tile


def _resource(name: str) -> str:
    return files("trilake.tools.report").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    # Everything that is not markup of trilake is escaped: names, values and paths of a table are never markup.
    return Environment(
        loader=FunctionLoader(_resource),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def page_of(facts: Facts, charts: Charts) -> tuple[str, list[Advice]]:
    """The document, and the advice in it."""
    clustering = _clustering(facts)
    advice = advise(facts, clustering)
    sections = sections_of(facts, clustering, charts)
    style = _resource("report.css")
    text = (
        _environment()
        .get_template("report.html")
        .render(
            format=facts.format.title(),
            name=plain(unquote(facts.uri.rstrip("/").rpartition("/")[2]) or facts.uri, 80),
            uri=plain(facts.uri, 400),
            description=plain(facts.description, 400) if facts.description else None,
            time=time_text(facts.now_ms),
            version=__version__,
            tiles=_tiles(facts),
            advice=[_shown(a) for a in advice],
            findings=facts.findings,
            verify_command=f"trilake.verify({facts.uri!r})",
            sections=sections,
            markup=Markup,
            style=Markup(style),
            style_hash=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        )
    )
    return text, advice


def _shown(advice: Advice) -> dict[str, Any]:
    return {
        "title": advice.title,
        "estimate": advice.estimate,
        "command": advice.command,
        "shell": advice.shell,
        "weight": advice.weight,
    }


def _clustering(facts: Facts) -> list[Clustering]:
    if facts.bounds is None:
        return []
    return [measure(c, facts.bounds.files, facts.bounds.sampled) for c in facts.bounds.columns]


def _tiles(facts: Facts) -> list[Tile]:
    files = facts.files
    rows, deleted = files["rows"], pc.sum(files["deleted"]).as_py() or 0
    stated = int(pc.sum(rows).as_py() or 0)
    unknown = rows.null_count
    tiles = [] if facts.version is None else [Tile("Version", count_text(facts.version))]
    more = f"in {unknown:,} files not stated" if unknown else ""
    if deleted:
        more = f"{share_text(deleted / max(stated, deleted))} more deleted"
    live = max(0, stated - deleted)
    tiles.append(
        Tile("Rows", ("≥ " if unknown else "") + short_count(live), more or (f"{live:,}" if live >= 10**8 else ""))
    )
    sizes = as_sizes(files)
    mean = f"{size_text(float(sizes.mean()))} on the average" if len(sizes) else ""
    tiles += [Tile("Files", count_text(len(sizes)), mean), Tile("Size", size_text(int(sizes.sum())))]
    tiles.append(Tile("Columns", count_text(len(facts.schema))))
    if facts.partitions:
        tiles.append(Tile("Partitioned by", ", ".join(plain(p.name, 24) for p in facts.partitions)))
    if facts.clustering:
        tiles.append(Tile("Clustered by", ", ".join(plain(c, 24) for c in facts.clustering)))
    return tiles
