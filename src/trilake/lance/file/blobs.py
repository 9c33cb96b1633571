"""Blobs: scans return descriptions, which locate the bytes."""

from __future__ import annotations

import pyarrow as pa

#: Location of a blob in its data file.
DESCRIPTION = pa.struct([pa.field("position", pa.uint64()), pa.field("size", pa.uint64())])
#: Location of a blob that may be in another file.
DESCRIPTION_V2 = pa.struct(
    [
        pa.field("kind", pa.uint8(), nullable=False),
        pa.field("position", pa.uint64(), nullable=False),
        pa.field("size", pa.uint64(), nullable=False),
        pa.field("blob_id", pa.uint32(), nullable=False),
        pa.field("blob_uri", pa.string(), nullable=False),
    ]
)
#: Kinds: in the data file, in a shared side file, in a side file of its own, or at a URI.
INLINE, PACKED, DEDICATED, EXTERNAL = range(4)


def side_file(data_file: str, blob_id: int) -> str:
    """The path of a blob's side file, in a folder named after its data file; the name is the id in bits, lowest first.

    >>> side_file("x.lance", 1)
    'x/10000000000000000000000000000000.blob'
    """
    name = "".join("1" if blob_id >> bit & 1 else "0" for bit in range(32))
    return f"{data_file.removesuffix('.lance')}/{name}.blob"
