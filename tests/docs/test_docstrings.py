"""References in docstrings and page lists resolve."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

SOURCES = sorted((ROOT / "src" / "trilake").rglob("*.py"))
#: A reference to a module of the package, or to what is in one.
REFERENCE = re.compile(r":(?:func|class|data|meth|mod|attr):`[~!]?(trilake(?:\.\w+)*)`")


@lru_cache
def names_in(path: Path) -> frozenset[str]:
    """All names a module binds, at any depth."""
    result: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.FunctionDef() | ast.ClassDef():
                result.add(node.name)
            case ast.alias():
                result.add(node.asname or node.name)
            case ast.Name(ctx=ast.Store()):
                result.add(node.id)
    return frozenset(result)


def resolves(reference: str) -> bool:
    """Whether a module or a name in one exists; methods may be inherited and are not checked.

    Nothing is imported, as some extras may be missing.
    """
    place = ROOT / "src"
    parts = reference.split(".")
    while parts and (place / parts[0]).is_dir():
        place /= parts.pop(0)
    if parts and (place / f"{parts[0]}.py").exists():
        place /= f"{parts.pop(0)}.py"
    return not parts or parts[0] in names_in(place / "__init__.py" if place.is_dir() else place)


def test_missing_names_are_detected() -> None:
    assert resolves("trilake.storage.base.Store.read")
    assert resolves("trilake.open")
    assert not resolves("trilake.storage.base.Stores")
    assert not resolves("trilake.storage.nothing")


@pytest.mark.parametrize("path", [p for p in SOURCES if REFERENCE.search(p.read_text())], ids=lambda p: p.stem)
def test_references_in_docstrings_resolve(path: Path) -> None:
    assert [r for r in REFERENCE.findall(path.read_text()) if not resolves(r)] == []


def test_every_howto_is_listed() -> None:
    folder = ROOT / "docs" / "howto"
    listed = set(re.findall(r"\((\S+\.md)\)", (folder / "index.md").read_text()))
    assert listed == {p.name for p in folder.glob("*.md")} - {"index.md"}
