"""Every public function, class and method documents its parameters and has a runnable example.

Public names are those of the reference pages and of the package's ``__all__``.  Properties need no example.  An
example of a class covers the methods that it calls, and an example of a method covers its overrides.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import trilake

ROOT = Path(__file__).resolve().parent.parent.parent
#: ``name: what it is``, or ``one, other: what they are``, at the beginning of a line.
LISTED = re.compile(r"^\s*((?:\w+)(?:, \w+)*): ", re.MULTILINE)
#: A name in the middle of a sentence.
NAMED = re.compile(r"``(\w+)(?:=[^`]*)?``")
#: A sentence that leaves parameters to another docstring.
ELSEWHERE = re.compile(r"arameters(?: and errors)? are those of\s+:(?:func|meth|class):`[~.]?([\w.]+)`")


def named(path: str) -> Any:
    """The object of a dotted name."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        try:
            thing: Any = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            thing = getattr(thing, part)
        return thing
    raise LookupError(path)


def public() -> Iterator[tuple[str, Any]]:
    """Everything in the reference, and everything the package lists."""
    pages = sorted((ROOT / "docs" / "reference").glob("*.md"))
    paths = [path for page in pages for path in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)]
    paths += [f"trilake.{name}" for name in trilake.__all__ if name != "__version__"]
    for path in paths:
        thing = named(path)
        if not inspect.ismodule(thing):
            yield path, thing
        elif path != "trilake.sql":  # which is a function, too
            yield from (
                (f"{path}.{n}", f) for n, f in vars(thing).items() if is_own(f, thing) and not n.startswith("_")
            )


def is_own(thing: Any, module: Any) -> bool:
    return (inspect.isfunction(thing) or inspect.isclass(thing)) and thing.__module__ == module.__name__


def methods(cls: type) -> Iterator[str]:
    """The public methods that trilake defines."""
    for name in dir(cls):
        owner = next(c for c in cls.__mro__ if name in vars(c))
        callable_ = inspect.isfunction(getattr(cls, name)) or inspect.ismethod(getattr(cls, name))
        if not name.startswith("_") and owner.__module__.startswith("trilake") and callable_:
            yield name


def docstrings(name: str, cls: type) -> list[str]:
    """The docstring of a method, followed by those of the methods it overrides."""
    result = [inspect.getdoc(getattr(c, name)) for c in cls.__mro__ if name in vars(c)]
    return [text for text in result if text]


def described(strings: list[str], owner: Any) -> set[str]:
    """The parameters that docstrings describe, directly or by reference."""
    names: set[str] = set()
    for text in strings:
        names.update(n for group in LISTED.findall(text) for n in group.split(", "))
        names.update(NAMED.findall(text))
        for reference in ELSEWHERE.findall(text):
            if inspect.isclass(owner) and hasattr(owner, reference):
                names |= described(docstrings(reference, owner), owner)
            else:
                other = referred(reference, owner)
                names |= described([inspect.getdoc(other) or ""], other)
    return names


def referred(reference: str, owner: Any) -> Any:
    """The object a docstring refers to: by a name in its module or the package, or by a full path."""
    namespace = vars(import_module(owner.__module__))
    return namespace[reference] if reference in namespace else named(f"trilake.{reference.removeprefix('trilake.')}")


def parameters(function: Any) -> list[str]:
    return [n for n in inspect.signature(function).parameters if n not in ("self", "cls") and not n.startswith("_")]


@cache
def lacking() -> list[tuple[str, str]]:
    """What is missing, by public name."""
    lacks: list[tuple[str, str]] = []
    for path, thing in public():
        text = inspect.getdoc(thing) or ""
        example = ">>>" in text
        if not example:
            lacks.append((path, "an example"))
        if not inspect.isclass(thing):
            if missing := [n for n in parameters(thing) if n not in described([text], thing)]:
                lacks.append((path, f"what is {', '.join(missing)}"))
            continue
        for name in methods(thing):
            strings = docstrings(name, thing)
            if not any(">>>" in t for t in strings) and f".{name}(" not in text:
                lacks.append((f"{path}.{name}", "an example"))
            if missing := [n for n in parameters(getattr(thing, name)) if n not in described(strings, thing)]:
                lacks.append((f"{path}.{name}", f"what is {', '.join(missing)}"))
    return lacks


def test_missing_descriptions_are_detected() -> None:
    class Bare:
        """Without an example."""

        def give(self, how: str, much: int) -> None:
            """Give ``how``."""

    assert list(methods(Bare)) == []  # no class of trilake
    assert described(docstrings("give", Bare), Bare) == {"how"}
    assert parameters(Bare.give) == ["how", "much"]
    assert {"uri", "version"} <= described(["Parameters are those of :func:`open`."], Bare)


@pytest.mark.parametrize("lack", ["an example", "what is"])
def test_public_docstrings_are_complete(lack: str) -> None:
    assert [(path, what) for path, what in lacking() if what.startswith(lack)] == []
