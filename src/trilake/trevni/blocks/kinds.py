"""Constants of the kernels: kinds of values, and status codes of decoders."""

from __future__ import annotations

#: Status codes of decoders, and their messages.
OK, TRUNCATED, OVERLONG, TOO_BIG, NEGATIVE, RUN = 0, 1, 2, 3, 4, 5
STATUS = {
    TRUNCATED: "the block ends inside a value",
    OVERLONG: "an integer does not end within its 5 or 10 bytes",
    TOO_BIG: "an integer has more bits than its type",
    NEGATIVE: "a value has a negative length",
    RUN: "a run of lengths is longer than the rest of the block",
}

KIND_NULL, KIND_BOOLEAN, KIND_VARINT, KIND_FIXED, KIND_BYTES = 0, 1, 2, 3, 4

#: Maximum run length: a run is written as an int of about -2 times its length.
MAX_RUN = 1 << 29
