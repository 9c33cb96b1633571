"""The files of a large table, piece by piece: they are never all in memory.

Those of the checkpoint come in pieces of some 100,000, less what later commits touched, then those of the commits.  A
hash of 8 bytes stays of each, which tells at the end whether a file was there twice; where one may have been, only the
whole list decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np
import pyarrow as pa

from trilake.delta.log.checkpoint import checkpoint_pieces
from trilake.delta.log.checkpoint_selection import Selection
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.replay import any_twice, hashes, one_spelling
from trilake.delta.log.snapshot import PendingSnapshot


class MaybeTwiceError(Exception):
    """A file may be in the version twice; only the whole list tells."""


def live_files(log: DeltaLog, pending: PendingSnapshot, selection: Selection | None = None) -> Iterator[pa.Table]:
    """The ``add`` actions of a version; of its checkpoint, those of the ``selection`` at least.

    Raises ``MaybeTwiceError`` after the last piece, where a file may be among them twice, and else what reading a
    checkpoint raises.
    """
    older = map(pending.touched.left_of, checkpoint_pieces(log.store, pending.segment, selection=selection))
    seen = np.empty(0, np.uint64)
    for piece in chain(older, [pending.newer.adds]):
        yield piece
        known, new = len(seen), hashes(one_spelling(piece, pending.uri), log.engine.query)
        seen.resize(known + len(new), refcheck=False)  # where it is: a copy of them would double what stays of a file
        seen[known:] = new
    if any_twice(seen):
        raise MaybeTwiceError
