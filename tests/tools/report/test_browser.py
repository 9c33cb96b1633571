"""A report in a browser: it loads and runs nothing, and strings of a table are never markup."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

import trilake
from tests.tools.report import tables
from tests.tools.report.browser import dom, first_pixel

#: All elements and attributes that a report has.
ELEMENTS = {"html", "head", "meta", "title", "style", "body", "a", "header", "p", "h1", "h2", "h3", "code", "bdi"}
ELEMENTS |= {"dl", "div", "dt", "dd", "strong", "span", "nav", "ul", "ol", "li", "main", "section", "pre", "figure"}
ELEMENTS |= {"figcaption", "details", "summary", "table", "caption", "thead", "tbody", "tr", "th", "td", "footer", "br"}
ELEMENTS |= {"svg", "g", "path", "line", "text", "tspan", "desc", "rect"}
ATTRIBUTES = {"lang", "charset", "http-equiv", "content", "name", "class", "href", "id", "role", "tabindex", "scope"}
ATTRIBUTES |= {"aria-label", "aria-labelledby", "aria-hidden", "width", "height", "viewbox", "d", "x", "y", "x1", "y1"}
ATTRIBUTES |= {"x2", "y2", "dx", "dy", "transform", "fill", "stroke", "stroke-width", "stroke-miterlimit", "opacity"}
ATTRIBUTES |= {"text-anchor", "stroke-dasharray"}

MADE: dict[str, Callable[[Path], str]] = {
    "demo": tables.demo,
    "empty": tables.empty,
    "many": lambda place: tables.many_files(place, 10_000),
    "hostile": tables.hostile,
}


@pytest.mark.parametrize("name", MADE)
def test_page_contains_only_its_own_markup(name: str, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    made = trilake.report(MADE[name](tmp_path / "table"), page)
    seen = dom(page, tmp_path / "profile")
    assert seen.names() <= ELEMENTS
    assert {a for _, attributes in seen.elements for a in attributes} <= ATTRIBUTES
    # Links point to unique ids in the page; nothing refers to a URL.
    ids = [a["id"] for _, a in seen.elements if "id" in a]
    assert len(ids) == len(set(ids))
    assert {a["href"] for a in seen.of("a")} <= {f"#{i}" for i in ids}
    assert not re.search(r"url\(|@import", made.html.split("</style>")[0])
    # The browser blocked nothing, including the style: the policy allows exactly the page's content.
    assert seen.console == ()
    policy = next(a["content"] for a in seen.of("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert len(made.html) < 3_000_000
    _check_accessible(seen.elements)


def _check_accessible(elements: tuple[tuple[str, dict[str, str | None]], ...]) -> None:
    """Landmarks, one first heading and no skipped level, table captions, names of drawings and regions."""
    names = [name for name, _ in elements]
    assert {names.count(n) for n in ("main", "header", "footer", "h1", "nav")} == {1}
    levels = [int(n[1]) for n in names if re.fullmatch("h[1-6]", n)]
    assert all(b <= a + 1 for a, b in pairwise(levels))
    assert names.count("caption") == names.count("table")
    ids = {a["id"] for _, a in elements if "id" in a}
    for name, attributes in elements:
        for other in (attributes.get("aria-labelledby") or "").split():
            assert other in ids
        if name == "svg":
            assert attributes["role"] == "img"
            assert attributes["aria-labelledby"]
        if attributes.get("role") == "region":
            assert attributes["aria-label"]
            assert attributes["tabindex"] == "0"
        if name == "th":
            assert attributes["scope"] in ("col", "row")
    # Each chart has its data.
    assert names.count("details") == names.count("svg") == names.count("figure")


def test_hostile_names_are_shown_as_text(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    made = trilake.report(tables.hostile(tmp_path), page)
    seen = dom(page, tmp_path / "profile")
    assert seen.title.startswith("<img src=x onerror=alert(2)> – report")
    for text in tables.HOSTILE[:-1]:
        assert text in seen.text
    # Bidirectional overrides and invisible characters are escaped.
    assert "a\\u202eb\\u2066c\\x07" in seen.text
    assert not set("\u202e\u2066\u0007") & set(made.html)


def test_page_follows_the_colour_scheme(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    trilake.report(tables.empty(tmp_path / "table"), page)
    assert first_pixel(page, tmp_path / "light") == "f5f6f8"
    assert first_pixel(page, tmp_path / "dark", dark=True) == "10141c"
