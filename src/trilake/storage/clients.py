"""Cache of object store clients, by bucket, options and environment.

Creating a client takes about 4 ms, and connecting takes two or three round trips with TLS.  Only clients with explicit
credentials, in options or the environment, are cached: credentials from files and servers may change.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from trilake.storage.options import PREFIXES, StoreConfig, setting

#: Most cached clients; the least recently used is dropped.
_MAX_CLIENTS = 32
#: Settings that contain complete credentials.
_CREDENTIALS = frozenset({"secret_access_key", "skip_signature", "account_key", "sas_token", "service_account_key"})
#: Environment variables of HTTP clients.
_OF_ANY_CLIENT = ("_proxy", "ssl_cert_file", "ssl_cert_dir")


class Clients:
    """The cached clients of this process.

    >>> clients, calls = Clients(), []
    >>> config = StoreConfig({"aws_secret_access_key": "s"})
    >>> for _ in range(2):
    ...     _ = clients.get("s3", "s3://bucket", config, {}, lambda: calls.append("made") or "client")
    >>> calls
    ['made']
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clients: OrderedDict[object, Any] = OrderedDict()

    def get(
        self, scheme: str, url: str, config: StoreConfig, environment: Mapping[str, str], make: Callable[[], Any]
    ) -> Any:
        """The cached client for these arguments, or a new one from ``make``."""
        variables = {n: v for n, v in environment.items() if _is_relevant(n.lower(), scheme)}
        if not _CREDENTIALS & {setting(name) for name in (*config.config, *variables)}:
            return make()
        key = (url, *map(_frozen, (config.config, config.client, config.retry, variables)))
        with self._lock:
            if key in self._clients:
                self._clients.move_to_end(key)
                return self._clients[key]
        client = make()  # without the lock: two threads may create one, and one is kept
        with self._lock:
            self._clients[key] = client
            if len(self._clients) > _MAX_CLIENTS:
                self._clients.popitem(last=False)
        return client


def _is_relevant(variable: str, scheme: str) -> bool:
    return variable.startswith(PREFIXES[scheme]) or variable.endswith(_OF_ANY_CLIENT)


def _frozen(values: Mapping[str, object]) -> frozenset[tuple[str, object]]:
    return frozenset((name, _frozen(v) if isinstance(v, Mapping) else v) for name, v in values.items())
