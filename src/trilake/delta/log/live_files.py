"""The files of a large table, piece by piece, so that memory never holds all of them.

First come the checkpoint's files in pieces of about 100,000, without those that later commits touched, then the files
of these commits.  Memory holds an 8-byte hash per file, to detect a file that is listed twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np
import pyarrow as pa

from trilake.delta.log.checkpoint import checkpoint_pieces
from trilake.delta.log.checkpoint_selection import Selection
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import PendingSnapshot, any_twice, hashes, one_spelling


class MaybeTwiceError(Exception):
    """A file may be in the version twice; only a read of all files at once can tell."""


def live_files(log: DeltaLog, pending: PendingSnapshot, selection: Selection | None = None) -> Iterator[pa.Table]:
    """Yield the ``add`` actions of a version; those of its checkpoint only if ``selection`` may match.

    Raises ``MaybeTwiceError`` after the last piece if a file may be listed twice.
    """
    read = checkpoint_pieces(log.store, pending.segment, log.engine.query, selection=selection)
    older = map(pending.newer_files.without_newer, read)
    path_hashes = np.empty(0, np.uint64)
    for piece in chain(older, [pending.newer.adds]):
        yield piece
        size, new = len(path_hashes), hashes(one_spelling(piece, pending.uri), log.engine.query)
        path_hashes.resize(size + len(new), refcheck=False)  # in place: a copy would double the memory per file
        path_hashes[size:] = new
    if any_twice(path_hashes):
        raise MaybeTwiceError
