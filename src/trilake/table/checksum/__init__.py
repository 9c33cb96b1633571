"""A checksum of rows that does not depend on their order, on batches, or on the format and engine they come from.

Each row has a hash of 64 bits; the checksum of rows is the number of them, the sum of their hashes, and the sum of the
hashes mixed once more, both modulo 2^64.  So the checksums of parts add up to that of the whole, and 128 bits tell
different rows apart.  It finds accidents; it is not a signature.

What is hashed are values, not how Arrow holds them, so that a value is the same in every type that can hold it:

==========================  ===========================================================================================
null                        one and the same, of whatever type
integers, decimals          by their value; a decimal with digits behind the point, by unscaled value and scale
floats                      as double; all NaN are one, and -0.0 is 0.0
booleans
strings, binaries             their bytes; a string is never a binary
dates                       days
times, durations            in nanoseconds
timestamps                  seconds and nanoseconds; an instant (with a zone) is never a local time, whatever the zone
lists, vectors              their elements in order
structs                     their fields by name, in any order
maps                        their entries in any order
dictionaries, run-ends      their values
extension types             their storage
unions                      the name of the branch and its value
==========================  ===========================================================================================

Columns count by name, in any order.
"""

from trilake.table.checksum.rows import Checksum, checksum, row_hashes

__all__ = ["Checksum", "checksum", "row_hashes"]
