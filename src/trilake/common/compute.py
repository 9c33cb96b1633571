"""``pyarrow.compute``, imported at its first use: its import takes a fifth of the time to open a small table."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["pc"]


class _AtFirstUse(ModuleType):
    """A module that becomes a copy of the module of its name when an attribute is missing."""

    def __getattr__(self, name: str) -> Any:
        module = import_module(self.__name__)
        self.__dict__.update(vars(module))
        return getattr(module, name)


if TYPE_CHECKING:
    import pyarrow.compute as pc
else:
    pc = _AtFirstUse("pyarrow.compute")
