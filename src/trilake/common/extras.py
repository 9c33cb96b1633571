"""Optional libraries: imported on demand, with a typed error if they are missing."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from trilake.errors import MissingDependencyError

#: Package to import -> its name for ``pip``, and the extra of trilake that installs it (or ``None``).
_PACKAGES: dict[str, tuple[str, str | None]] = {
    "altair": ("altair", "report"),
    "fastavro": ("fastavro", "trevni"),
    "google": ("protobuf", "lance"),
    "jinja2": ("jinja2", "report"),
    "lance_namespace": ("lance-namespace", None),
    "numba": ("numba", "lance"),
    "pandas": ("pandas", "spark"),
    "polars": ("polars", None),
    "py4j": ("pyspark", "spark"),
    "pyiceberg": ("pyiceberg", "iceberg"),
    "pyspark": ("pyspark", "spark"),
    "torch": ("torch", "torch"),
    "typer": ("typer", "cli"),
    "vl_convert": ("vl-convert-python", "report"),
}


def missing(module: str, what: str, extra: str | None = None) -> MissingDependencyError:
    """The error for a library that is not installed: what needs it, and how to install it.

    Parameters
    ----------
    module: the module that could not be imported.
    what: what needs it, in the plural.
    extra: the extra that installs it, where that depends on ``what``.

    Example
    -------
    >>> missing("pyspark.sql", "Spark sessions").help, missing("polars", "frames of polars").help
    ('pip install "trilake[spark]"', 'pip install polars')
    >>> print(missing("google.protobuf", "Lance datasets"))
    [MISSING_DEPENDENCY] Lance datasets need protobuf, which is not installed. Help: pip install "trilake[lance]"
    """
    root = module.partition(".")[0]
    package, usual = _PACKAGES.get(root, (root, None))
    extra = extra or usual
    if extra:
        return MissingDependencyError.of(package, extra, what)
    return MissingDependencyError(f"{what} need {package}, which is not installed", help=f"pip install {package}")


def load(module: str, what: str) -> Any:
    """Import a module that may need an optional library, or raise :func:`missing` for that library."""
    try:
        return import_module(module)
    except MissingDependencyError:
        raise
    except ImportError as e:
        name = e.name or module
        if name.startswith("trilake."):
            raise  # a fault of trilake, not a missing library
        raise missing(name, what) from None


def need(package: str, what: str) -> None:
    """Check that a package is installed, without importing it, or raise :func:`missing`."""
    try:
        if find_spec(package) is not None:
            return
    except (ImportError, ValueError):  # an import hook rejected it, or sys.modules holds something else
        pass
    raise missing(package, what)
