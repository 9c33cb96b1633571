"""A checksum of rows that is independent of row order, batches, file format and engine.

It consists of the number of rows and two sums of 64-bit row hashes, modulo 2^64; the second sum is over hashes that are
mixed once more.  So checksums of parts add up.  It detects accidents, not attacks.

Values are hashed, not their Arrow representation, so a value has the same hash in every type:

==========================  ===========================================================================================
null                        the same for all types
integers, decimals          the value; a decimal with a scale: unscaled value and scale
floats                      as double; all NaN are equal, and -0.0 equals 0.0
booleans
strings, binaries           their bytes; a string never equals a binary
dates                       days
times, durations            nanoseconds
timestamps                  seconds and nanoseconds; one with a zone never equals one without
lists, vectors              their elements in order
structs                     their fields by name, in any order
maps                        their entries in any order
dictionaries, run-ends      their values
extension types             their storage
unions                      the name of the branch and its value
==========================  ===========================================================================================

Columns are matched by name, in any order.
"""

from trilake.table.checksum.rows import Checksum, checksum, row_hashes

__all__ = ["Checksum", "checksum", "row_hashes"]
