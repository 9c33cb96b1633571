"""Clients of object stores that are kept: the next store of the same bucket, options and environment has the same.

A client takes some 4 ms to be made, and it holds the connections: a new one has to greet the server again, which is
two or three round trips with TLS.  Tables are often opened by their path, one call after the other.

Only a client whose credentials are stated, among its options or in the environment, is kept.  Others come from files
and servers, where they may be exchanged, and whoever opens a store again may expect the new ones.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from trilake.storage.options import PREFIXES, StoreConfig, setting

#: Clients kept at most, of which the one that was asked for longest ago goes first.
_KEPT = 32
#: Settings of which one says who asks, by itself, in its value.
_STATED = frozenset({"secret_access_key", "skip_signature", "account_key", "sas_token", "service_account_key"})
#: Variables of the environment, beside those of the store, that an HTTP client heeds.
_OF_ANY_CLIENT = ("_proxy", "ssl_cert_file", "ssl_cert_dir")


class Clients:
    """The clients of one process.

    >>> clients, made = Clients(), []
    >>> config = StoreConfig({"aws_secret_access_key": "s"})
    >>> for _ in range(2):
    ...     _ = clients.get("s3", "s3://bucket", config, {}, lambda: made.append("made") or "client")
    >>> made
    ['made']
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[object, Any] = OrderedDict()

    def get(
        self, scheme: str, url: str, config: StoreConfig, environment: Mapping[str, str], make: Callable[[], Any]
    ) -> Any:
        """The client that is kept for all of these, else what ``make`` returns."""
        heeded = {n: v for n, v in environment.items() if _is_heeded(n.lower(), scheme)}
        if not _STATED & {setting(name) for name in (*config.config, *heeded)}:
            return make()
        key = (url, *map(_frozen, (config.config, config.client, config.retry, heeded)))
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        client = make()  # without the lock: two may be made, and one is kept
        with self._lock:
            self._kept[key] = client
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return client


def _is_heeded(variable: str, scheme: str) -> bool:
    return variable.startswith(PREFIXES[scheme]) or variable.endswith(_OF_ANY_CLIENT)


def _frozen(values: Mapping[str, object]) -> frozenset[tuple[str, object]]:
    return frozenset((name, _frozen(v) if isinstance(v, Mapping) else v) for name, v in values.items())
