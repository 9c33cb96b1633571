"""Constant pages: all values null, or all values that are not null the same."""

from __future__ import annotations

from typing import Any

import numpy as np

from trilake.lance.proto import encodings21_pb2 as pb
from trilake.lance.v2.encode_blocks import level_blocks
from trilake.lance.v2.encode_miniblock import Page
from trilake.lance.v2.write_levels import Leaf

#: The largest value that is part of the layout message.
MAX_INLINE = 32


def constant(leaf: Leaf, value: tuple[Any, ...] | None, *, compress: bool) -> Page:
    """Lay out a constant page.

    Parameters
    ----------
    leaf: the levels.
    value: the buffers of the value: its bytes, or offsets and bytes; ``None``: all values are null.
    compress: whether levels may be compressed where all values are null, from 2.2 on.
    """
    layout = pb.ConstantLayout(layers=leaf.layers)  # type: ignore[arg-type]
    buffers: list[Any] = []
    if value is not None:
        if len(value) == 1 and len(value[0]) <= MAX_INLINE:
            layout.inline_value = bytes(value[0])
        else:
            head = np.array([len(value), *map(len, value)], np.uint32)
            buffers.append(head.tobytes() + b"".join(value))
    simple = leaf.repetition is None and (leaf.definition is None or (value is None and len(leaf.layers) == 1))
    if not simple:
        for levels, encoding, count in (
            (leaf.repetition, layout.rep_compression, "num_rep_values"),
            (leaf.definition, layout.def_compression, "num_def_values"),
        ):
            if levels is None:
                buffers.append(b"")
            elif compress and value is None and len(levels):
                compressed, stream = level_blocks(levels, np.array([0, len(levels)]), runs=True)
                encoding.CopyFrom(compressed)
                setattr(layout, count, len(levels))
                buffers.append(stream.data)
            else:
                buffers.append(levels)
    return Page(pb.PageLayout(constant_layout=layout), tuple(buffers), leaf.rows, leaf.length)
