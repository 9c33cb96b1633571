"""Streams of all formats: their errors, and the identity of a batch that is written exactly once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import orjson

from trilake.errors import ObjectNotFoundError, TrilakeError, VersionNotFoundError
from trilake.storage.base import Store

#: The folder of the claims of formats whose commits cannot store a batch.
CLAIMS = "_streams"
#: Number of claims to keep; Spark repeats only the last batch.
_KEPT = 200


class StreamError(TrilakeError):
    """A stream cannot continue, or cannot start where requested."""

    code = "STREAM"


class StreamDataLossError(StreamError, VersionNotFoundError):
    """Versions or files that the stream has not read yet were deleted."""

    code = "STREAM_DATA_LOSS"
    default_help = (
        "rows were missed: start with a new checkpoint, or set failOnDataLoss=false to continue with the versions that"
        " are left; keep old versions longer than the stream needs to read them"
    )


@dataclass(frozen=True)
class BatchId:
    """A batch of a query; all runs on one checkpoint have the same ``query_id``."""

    query_id: str
    batch: int

    @property
    def claims(self) -> str:
        """What the keys of the batch's claims start with."""
        return f"{CLAIMS}/{self.query_id}/{self.batch:020d}"


def query_id(checkpoint: Store) -> str:
    """Read the stable id of the query from its checkpoint.

    Raises ``StreamError`` if the folder holds no checkpoint: without an id a repeated batch could not be detected.
    """
    try:
        metadata = orjson.loads(bytes(checkpoint.read("metadata")))
        return str(metadata["id"])
    except (ObjectNotFoundError, orjson.JSONDecodeError, KeyError, TypeError) as e:
        raise StreamError(
            "the checkpoint has no query id, so a retried batch cannot be recognized",
            help="set the option checkpointLocation to the folder of the query's checkpoint",
            file=f"{checkpoint.uri}/metadata",
        ) from e


def delete_old_claims(store: Store, batch: BatchId, key: Callable[[BatchId, int], str]) -> None:
    """Delete the claims of a batch that Spark no longer repeats; ``key`` names the claim of an attempt."""
    if batch.batch >= _KEPT:
        old = replace(batch, batch=batch.batch - _KEPT)
        store.delete([key(old, attempt) for attempt in range(4)])
