"""Functions that are attributes of a package under the name of a subpackage: ``trilake.sql`` is one.

An import sets a subpackage as an attribute of its package, in the place of the function.  Here the function stays, and
the subpackage is imported as ever: ``from trilake.sql.duckdb import run``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any


def keep_functions(package: str, **homes: str) -> None:
    """Let names of a package be functions, found in the modules ``homes``, though subpackages have these names."""
    found: dict[str, Any] = {
        name: property(_getter(package, name, home), *_changers(name)) for name, home in homes.items()
    }
    module = sys.modules[package]
    # Functions of users that name the package travel to other processes: it is pickled by its name, as any module.
    found["__reduce__"] = lambda module: (import_module, (module.__name__,))
    module.__class__ = type(module.__class__.__name__, (module.__class__,), found)


def _getter(package: str, name: str, home: str) -> Callable[[ModuleType], Any]:
    def get(module: ModuleType) -> Any:
        replaced = vars(module).get(name)
        if replaced is not None:
            return replaced
        function = getattr(import_module(home), name)
        # `import trilake.sql.duckdb as d` looks for the rest of the name here.
        prefix = f"{package}.{name}."
        for key, value in vars(sys.modules.get(f"{package}.{name}", module)).copy().items():
            if isinstance(value, ModuleType) and value.__name__ == prefix + key:
                setattr(function, key, value)
        return function

    return get


def _changers(name: str) -> tuple[Callable[[ModuleType, Any], None], Callable[[ModuleType], None]]:
    def set_(module: ModuleType, value: Any) -> None:
        if not isinstance(value, ModuleType):
            vars(module)[name] = value

    def delete(module: ModuleType) -> None:
        vars(module).pop(name, None)

    return set_, delete
