"""Tables named by path: ``delta.`/path```, also with a version after the path."""

from __future__ import annotations

from trilake.table.registry import format_of_provider


def named_path(parts: tuple[str, ...]) -> tuple[str, str] | None:
    """Format and path of a table named by path; ``None`` for a name in the catalog.

    >>> named_path(("DELTA", "/lake/t")), named_path(("delta", "t"))
    (('delta', '/lake/t'), None)
    """
    format = None if len(parts) != 2 else format_of_provider(parts[0])
    if format is None:
        return None
    path = parts[1]
    if "/" not in path and not (len(path) > 2 and path[1] == ":"):
        return None  # a table in a database named like a format
    return format, path


def bare_path(parts: tuple[str, ...]) -> tuple[str, str] | None:
    """Format and path of a name that may be a folder in the working directory.

    >>> bare_path(("delta", "t")), bare_path(("delta", "/lake/t")), bare_path(("main", "t"))
    (('delta', './t'), None, None)
    """
    format = None if len(parts) != 2 else format_of_provider(parts[0])
    return None if format is None or named_path(parts) is not None else (format, as_path(parts[1]))


def as_path(path: str) -> str:
    """Add ``./`` to a path without a slash, which would be a name in the catalog.

    >>> as_path("t"), as_path("lake/t"), as_path("s3://lake/t")
    ('./t', 'lake/t', 's3://lake/t')
    """
    return path if "/" in path else f"./{path}"


def parquet_path(parts: tuple[str, ...]) -> str | None:
    """The path of Parquet files named by path; ``None`` for any other name.

    >>> parquet_path(("parquet", "/lake/files")), parquet_path(("parquet", "t"))
    ('/lake/files', None)
    """
    return parts[1] if len(parts) == 2 and parts[0].lower() == "parquet" and "/" in parts[1] else None
