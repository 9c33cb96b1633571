"""The maps in the documentation equal the import contracts."""

from __future__ import annotations

import re
from typing import Any

from tests.house.test_house import PROJECT, ROOT

MAP = (ROOT / "docs" / "internals" / "index.md").read_text()
CONTRACTS = {c["containers"][0]: c for c in PROJECT["tool"]["importlinter"]["contracts"] if c["type"] == "layers"}


def levels(drawn: str) -> list[set[str]]:
    """The layers of ``a <- { b | c } <- d``, leftmost first."""
    return [set(re.findall(r"\w+", level)) for level in drawn.split("<-")]


def declared(contract: dict[str, Any]) -> list[set[str]]:
    return [set(re.findall(r"\w+", layer)) for layer in reversed(contract["layers"])]


def test_layer_map_equals_its_contract() -> None:
    drawn = MAP.split("## The layers", 1)[1].split("```")[1]
    assert levels(drawn) == declared(CONTRACTS["trilake"])


def test_every_layer_has_a_row_in_the_table() -> None:
    named = {name for row in re.findall(r"^\| (`[^|]+) \|", MAP, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    rooms = set().union(*declared(CONTRACTS["trilake"])) - {"__main__"}
    assert rooms - named == set()


def test_inner_layer_maps_equal_their_contracts() -> None:
    drawn = MAP.split("### Layers inside the layers", 1)[1].split("```")[1]
    rows = dict(re.findall(r"^([\w.]+) {2,}(.+)$", drawn, re.MULTILINE))
    maps = {f"trilake.{room}": levels(row) for room, row in rows.items()}
    assert maps == {room: declared(CONTRACTS[room]) for room in maps}
    missing = {c for c in CONTRACTS if c not in maps} - {"trilake", "trilake.spark.delta", "trilake.tools.report"}
    assert missing == set()
