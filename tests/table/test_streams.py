"""The identity of a batch of a stream."""

from __future__ import annotations

import orjson
import pytest

from trilake.storage.memory import MemoryStore
from trilake.table.streams import StreamError, query_id


def test_query_id_comes_from_the_checkpoint() -> None:
    store = MemoryStore()
    with pytest.raises(StreamError, match="no query id"):
        query_id(store)
    store.put("metadata", orjson.dumps({"id": "5e14070a"}))
    assert query_id(store) == "5e14070a"
    store.put("metadata", b"{")
    with pytest.raises(StreamError):
        query_id(store)
