"""``Transaction``: reads and changes as one commit, for engines built on this library."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike

from trilake.common.runtime import Runtime
from trilake.delta.commands.write.optimistic import OptimisticTransaction
from trilake.delta.log.log import DeltaLog
from trilake.delta.standard import standard_engine
from trilake.storage import open_store
from trilake.storage.base import Store


class Transaction(OptimisticTransaction):
    """An optimistic transaction on the newest version of a table (or on ``version``), with the standard engine.

    Parameters
    ----------
    uri: location of the table, or an open store from :func:`trilake.storage.open_store`.
    version: the base version; the newest by default.
    isolation: ``"Serializable"``, ``"WriteSerializable"`` or ``"SnapshotIsolation"``; the table's own level by default.
    storage_options: credentials, region and endpoint of an object store.
    runtime: clock, ids and waiting; this machine's by default.

    Raises ``TableNotFoundError``, ``VersionNotFoundError`` or ``UnsupportedProtocolError``.

    >>> import pyarrow as pa, trilake
    >>> _ = trilake.write(pa.table({"n": [1, 2, 3]}), "memory://doc-transaction", mode="overwrite")
    >>> tx = Transaction("memory://doc-transaction")
    >>> old = tx.read("n < 3")
    >>> tx.remove(old)
    >>> tx.write(pa.table({"n": [3, 4]}))
    >>> tx.commit("REWRITE")
    1
    >>> sorted(trilake.open("memory://doc-transaction").to_arrow()["n"].to_pylist())
    [3, 4]

    Existing files, an application's transaction version, a domain's configuration, and table properties:

    >>> from dataclasses import replace
    >>> tx = Transaction("memory://doc-transaction")
    >>> tx.read_transaction("nightly") is None
    True
    >>> tx.set_transaction("nightly", 7)
    >>> tx.set_domain("app.notes", "checked")
    >>> tx.set_metadata(replace(tx.snapshot.metadata, configuration={"owner": "sales"}))
    >>> tx.set_protocol(tx.snapshot.protocol)
    >>> file = tx.snapshot.adds.to_pylist()[0]
    >>> tx.add({**file, "dataChange": False})
    >>> tx.commit("NOTE")
    2
    >>> trilake.open("memory://doc-transaction").transaction_version("nightly")
    7
    """

    def __init__(
        self,
        uri: str | PathLike[str] | Store,
        *,
        version: int | None = None,
        isolation: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        store = uri if isinstance(uri, Store) else open_store(uri, dict(storage_options or {}))
        super().__init__(DeltaLog(store, standard_engine(runtime=runtime)), version=version, isolation=isolation)
