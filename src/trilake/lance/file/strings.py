"""Strings that a file must not hold, as no reader would take them."""

from __future__ import annotations

import pyarrow as pa

from trilake.common.utf8 import strings_are_utf8
from trilake.lance.file.errors import RowsDoNotFitError


def check_strings(array: pa.Array, column: str) -> None:
    """Raise ``RowsDoNotFitError`` where a string of an array is not UTF-8, in dictionaries and structs, too."""
    if not strings_are_utf8(array):
        raise RowsDoNotFitError("a string is not UTF-8", help="write such values as binary", column=column)
