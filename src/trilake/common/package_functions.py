"""Keep functions with the name of a subpackage, such as ``trilake.sql``.

An import normally replaces such a function with the subpackage.  Here the function stays, and imports of the subpackage
work as usual:  ``from trilake.sql.duckdb import run``.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


def keep_functions(package: str, **homes: str) -> None:
    """Keep names of a package as functions; ``homes`` names the module of each."""
    functions: dict[str, Any] = {name: _property(package, name, home) for name, home in homes.items()}
    module = sys.modules[package]
    # Pickled by name, like any module, for user functions that refer to the package.
    functions["__reduce__"] = lambda module: (import_module, (module.__name__,))
    module.__class__ = type(module.__class__.__name__, (module.__class__,), functions)


def _property(package: str, name: str, home: str) -> property:
    def get(module: ModuleType) -> Any:
        replaced = vars(module).get(name)
        if replaced is not None:
            return replaced
        function = getattr(import_module(home), name)
        # `import trilake.sql.duckdb as d` looks up the rest of the name here.
        prefix = f"{package}.{name}."
        for key, value in vars(sys.modules.get(f"{package}.{name}", module)).copy().items():
            if isinstance(value, ModuleType) and value.__name__ == prefix + key:
                setattr(function, key, value)
        return function

    def set_(module: ModuleType, value: Any) -> None:
        if not isinstance(value, ModuleType):
            vars(module)[name] = value

    def delete(module: ModuleType) -> None:
        vars(module).pop(name, None)

    return property(get, set_, delete)
