"""Syntax trees of files, for the tests that read the code."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path


@cache
def parsed(path: Path) -> ast.Module:
    return parsed_text(path.read_text())


def parsed_text(text: str) -> ast.Module:
    """Parse source code.

    Garbage collection is off: CPython 3.11 counts the depth of a tree in a state that all parsers share,
    and the end of an object that logs a traceback parses lines ("AST constructor recursion depth mismatch").
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(text)
    finally:
        if collecting:
            gc.enable()
