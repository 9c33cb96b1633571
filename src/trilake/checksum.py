"""The public name of :mod:`trilake.table.checksum`: checksums of rows."""

from trilake.table.checksum import Checksum, checksum, row_hashes

__all__ = ["Checksum", "checksum", "row_hashes"]
