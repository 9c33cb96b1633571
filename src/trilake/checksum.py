"""Checksums of rows, as users import them; :mod:`trilake.table.checksum` says what is hashed."""

from trilake.table.checksum import Checksum, checksum, row_hashes

__all__ = ["Checksum", "checksum", "row_hashes"]
