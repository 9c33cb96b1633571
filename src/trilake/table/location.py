"""Explain why a location is not a table: it is below a Delta table, or has Parquet files to convert."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from urllib.parse import unquote

import pyarrow as pa

from trilake.common.text import quote_name, string_literal
from trilake.errors import ForeignFilesError, TableNotFoundError, TrilakeError
from trilake.storage.base import Store
from trilake.storage.opening import open_sibling
from trilake.storage.options import ALLOW_FOREIGN_FILES, allowed
from trilake.table.folders import NULL
from trilake.table.registry import DEFAULT, format_named

#: Most parent folders, and most files of a folder, to check.
_LEVELS, _FILES = 16, 100
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Below:
    """A location below a Delta table, with the folders in between."""

    table: Store
    folders: Sequence[str]

    @property
    def filter(self) -> str | None:
        """The filter for the rows of the folder; ``None`` if it is not a partition folder."""
        pairs = [f.partition("=") for f in self.folders]
        if not all(name and equals for name, equals, _ in pairs):
            return None
        try:
            schema = format_named(DEFAULT).open(self.table, None, None).schema
        except (TrilakeError, OSError):
            return None
        types = {name.lower(): schema.field(name).type for name in schema.names}
        terms = [(unquote(name), unquote(value)) for name, _, value in pairs]
        if any(name.lower() not in types for name, _ in terms):
            return None
        return " AND ".join(_term(name, value, types[name.lower()]) for name, value in terms)


def _term(name: str, value: str, type_: pa.DataType) -> str:
    column = name if name.isidentifier() else quote_name(name)
    if value in ("", NULL):
        return f"{column} IS NULL"
    number = not (pa.types.is_string(type_) or pa.types.is_binary(type_)) and _NUMBER.fullmatch(value)
    return f"{column} = {value if number else string_literal(value)}"


def below_table(store: Store, *, thorough: bool = True) -> Below | None:
    """The Delta table above a store's root, if any.

    Hidden folders, such as a table's ``_checkpoints``, do not count.  Object stores are only checked if
    ``thorough``, or if the last folder looks like a partition.
    """
    scheme, _, path = store.uri.partition("://")
    parts = path.rstrip("/").split("/")
    if not thorough and scheme not in ("file", "memory") and "=" not in parts[-1]:
        return None
    for depth in range(1, min(_LEVELS, len(parts) - 1) + 1):
        folders = parts[len(parts) - depth :]
        if scheme == "file":  # URIs of stores are encoded
            folders = [unquote(folder) for folder in folders]
        if folders[0].startswith(("_", ".")):
            continue
        with suppress(TrilakeError, OSError):  # a folder above need not be readable
            above = open_sibling(store, f"{scheme}://{'/'.join(parts[:-depth])}")
            log = above.local_path("_delta_log")
            if (log is None or os.path.isdir(log)) and format_named(DEFAULT).detect(above):
                return Below(above, folders)
    return None


def check_not_below(store: Store) -> None:
    """Raise ``ForeignFilesError`` for a new table in a partition folder, unless foreign files are allowed.

    Other folders below a Delta table may have tables.
    """
    if allowed(store.options, ALLOW_FOREIGN_FILES):
        return
    below = below_table(store, thorough=False)
    if below is None or "=" not in below.folders[0]:
        return
    filter = below.filter
    rows = "write the rows" if filter is None else f"write the rows, with {filter},"
    uri = below.table.uri
    raise ForeignFilesError(
        f"cannot create a table inside the Delta table {uri}, whose readers would not see its rows",
        help=f"{rows} to {uri}, or write to another location; allow_foreign_files=True (option {ALLOW_FOREIGN_FILES})"
        " creates a separate table here",
        file=store.uri,
    )


def explained(error: TableNotFoundError, store: Store, *, thorough: bool = True) -> TableNotFoundError:
    """The error for a location without a table, with an explanation of what is there, if known."""
    with suppress(TrilakeError, OSError):
        if (explanation := _explanation(store, thorough)) is not None:
            message, help = explanation
            return type(error)(message, help=help, **error.context)
    return error


def _explanation(store: Store, thorough: bool) -> tuple[str, str] | None:
    local = store.local_path("x")
    root = None if local is None else os.path.dirname(local)
    below = below_table(store, thorough=thorough)
    if below is not None:
        filter = below.filter
        message = f"expected a table, got a location inside the Delta table {below.table.uri}"
        if filter is None:
            return message, f"open {below.table.uri}"
        return message, f"open {below.table.uri} and filter by {filter}"
    if root is not None and os.path.isfile(root):
        with open(root, "rb") as file:
            if file.read(4) != b"PAR1":
                return None
        convert = f"trilake.convert_to_delta({os.path.dirname(root)!r})"
        help = f"convert its folder with {convert}, or read it with a Parquet reader"
        return "expected a table, got a Parquet file", help
    if not thorough and root is None:
        return None
    keys = [meta.key for meta in islice(store.list(), _FILES)]
    if any(key.endswith(".parquet") and not key.startswith(("_", ".")) for key in keys):
        help = f"convert it with trilake.convert_to_delta({root or store.uri!r}), or CONVERT TO DELTA on Spark"
        return "expected a table, got a folder of Parquet files", help
    return None
