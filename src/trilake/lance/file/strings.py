"""Check that strings to write are UTF-8."""

from __future__ import annotations

import pyarrow as pa

from trilake.common.utf8 import strings_are_utf8
from trilake.lance.file.errors import RowsDoNotFitError


def check_strings(array: pa.Array, column: str) -> None:
    """Raise ``RowsDoNotFitError`` for a string that is not UTF-8, also in dictionaries and structs."""
    if not strings_are_utf8(array):
        raise RowsDoNotFitError("a string is not UTF-8", help="write such values as binary", column=column)
