"""Cache of object store clients, by bucket, options and environment.

Creating a client takes some 4 ms, and a new one has to connect again, which takes two or three round trips with TLS.

Only clients with explicit credentials, in options or the environment, are cached.  Other credentials come from files
and servers and may change.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from trilake.storage.options import PREFIXES, StoreConfig, setting

#: Most cached clients; the least recently used one is dropped first.
_KEPT = 32
#: Settings that each contain credentials by themselves.
_STATED = frozenset({"secret_access_key", "skip_signature", "account_key", "sas_token", "service_account_key"})
#: Environment variables that an HTTP client reads, in addition to those of the store.
_OF_ANY_CLIENT = ("_proxy", "ssl_cert_file", "ssl_cert_dir")


class Clients:
    """The clients of one process.

    >>> clients, calls = Clients(), []
    >>> config = StoreConfig({"aws_secret_access_key": "s"})
    >>> for _ in range(2):
    ...     _ = clients.get("s3", "s3://bucket", config, {}, lambda: calls.append("made") or "client")
    >>> calls
    ['made']
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[object, Any] = OrderedDict()

    def get(
        self, scheme: str, url: str, config: StoreConfig, environment: Mapping[str, str], make: Callable[[], Any]
    ) -> Any:
        """The cached client for all of these, or the result of ``make``."""
        heeded = {n: v for n, v in environment.items() if _is_heeded(n.lower(), scheme)}
        if not _STATED & {setting(name) for name in (*config.config, *heeded)}:
            return make()
        key = (url, *map(_frozen, (config.config, config.client, config.retry, heeded)))
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        client = make()  # without the lock: two may be created, and one is kept
        with self._lock:
            self._kept[key] = client
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return client


def _is_heeded(variable: str, scheme: str) -> bool:
    return variable.startswith(PREFIXES[scheme]) or variable.endswith(_OF_ANY_CLIENT)


def _frozen(values: Mapping[str, object]) -> frozenset[tuple[str, object]]:
    return frozenset((name, _frozen(v) if isinstance(v, Mapping) else v) for name, v in values.items())
