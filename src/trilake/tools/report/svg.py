"""Sanitise SVG for a page: keep only allowed elements and attributes, with a title and a description.

The SVG is parsed and rewritten from an allow-list: whatever a table's names contain, no script, address, style or other
element gets through.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

_NAMESPACE = "{http://www.w3.org/2000/svg}"
_ELEMENTS = {"svg", "g", "path", "rect", "line", "text", "tspan", "circle"}
_ATTRIBUTES = {
    "d", "x", "y", "x1", "y1", "x2", "y2", "dx", "dy", "cx", "cy", "r", "rx", "ry", "width", "height", "transform",
    "fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-miterlimit", "opacity", "fill-opacity",
    "text-anchor", "font-weight",
}  # fmt: skip
_SPARE = {("opacity", "1"), ("stroke-width", "0"), ("font-weight", "normal")}
_LONG = re.compile(r"(\d+\.\d\d)\d+")


def cleaned(drawn: str, title: str, description: str, key: str) -> str:
    """A drawing as an element of a page.

    Parameters
    ----------
    drawn: SVG of a renderer.
    title, description: what it shows, for those who do not see it.
    key: part of the ids of both, unlike that of any other drawing of the page.

    >>> text = '<svg xmlns="http://www.w3.org/2000/svg" width="2" height="1"><script/><rect onload="x"/></svg>'
    >>> done = cleaned(text, "A < B", "", "k")
    >>> "<rect />" in done, "A &lt; B" in done, "script" in done
    (True, True, False)
    """
    source = ElementTree.fromstring(drawn)
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
    """An element with what is allowed of it; a mark's description becomes the tip that a pointer shows."""
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
