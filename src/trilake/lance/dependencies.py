"""Optional libraries, imported on first use, under the names that pylance exports."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class _LazyModule(ModuleType):
    """Placeholder for a module that is imported on first use or missing."""

    def __init__(self, module_name: str, *, module_available: bool) -> None:
        super().__init__(module_name)
        self._available = module_available

    def __getattr__(self, name: str) -> Any:
        if self._available:
            return getattr(import_module(self.__name__), name)
        if name.startswith("__") and name != "__version__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        raise ModuleNotFoundError(f"{name} requires {self.__name__!r} module to be installed", name=self.__name__)


def _lazy(name: str) -> tuple[ModuleType, bool]:
    loaded = sys.modules.get(name)
    if loaded is not None:
        return loaded, True
    try:
        available = find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):  # ValueError if sys.modules blocks it
        available = False
    return _LazyModule(name, module_available=available), available


numpy, _NUMPY_AVAILABLE = _lazy("numpy")
pandas, _PANDAS_AVAILABLE = _lazy("pandas")
polars, _POLARS_AVAILABLE = _lazy("polars")
torch, _TORCH_AVAILABLE = _lazy("torch")
datasets, _HUGGING_FACE_AVAILABLE = _lazy("datasets")
_, _PYDANTIC_AVAILABLE = _lazy("pydantic")
