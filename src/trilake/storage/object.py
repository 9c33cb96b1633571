"""``ObjectStore``: S3, Google Cloud Storage and Azure through obstore.

How the guarantees of :mod:`trilake.storage.base` are kept:

* Object stores only show whole objects; large ones are uploaded in parts and completed when the writer closes.
* ``put_if_absent`` is one conditional request (such as ``If-None-Match: *``).  The client must not retry it: a first
  attempt may have succeeded although its reply was an error, and the retry would report "exists" for its own object.
  So only attempts that certainly wrote nothing are retried (no connection, 429, "slow down", a conflicting request);
  any other failure whose outcome is unknown raises ``UnknownOutcomeError``.
* obstore retries other requests with exponential backoff.
"""

from __future__ import annotations

import os
import queue
import random
import re
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from threading import Thread
from typing import IO, Any, TypeVar

import obstore
import pyarrow as pa
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)

from trilake.common.lru_cache import LruCache
from trilake.errors import (
    InvalidArgumentError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    TrilakeError,
    UnknownOptionError,
    UnknownOutcomeError,
    masked,
)
from trilake.storage.base import AtomicWriter, ObjectMeta, Store, WriteGroup, check_key, check_prefix, check_range
from trilake.storage.landing import HeldWriter, LandingGroup
from trilake.storage.options import (
    ALIASES,
    PREFIXES,
    StoreConfig,
    from_hadoop,
    is_credential,
    missing_options,
    profile_options,
    setting,
    store_config,
)
from trilake.storage.reader import MIN_WINDOW, ObjectFile, WindowReader, coalesce
from trilake.storage.uri import Location, parse_location

T = TypeVar("T")

#: Most concurrent requests of :meth:`Store.read_many`, deletes, and uploads of a group.
PARALLEL = 32
#: Most bytes of files that are uploaded at once, if they are more than :attr:`ObjectStore.writes_at_once`.
_UPLOADED = 64 << 20
#: Ranges at most this many bytes apart are fetched in one request.
GAP = 1 << 20
#: Gaps must not multiply the requested bytes by more than this factor.
_WASTE = 2
#: Adjacent ranges are fetched in requests of at most this many bytes, since one connection is slower than several.
_MOST = 8 << 20
#: Attempts of a conditional put that the store clearly rejects.
ATTEMPTS = 6

_EMPTY = pa.py_buffer(b"")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_CLIENT_ERRORS = (BaseError, OSError, ValueError)
_FAR = 1 << 62  # more than any object; larger numbers overflow the client's integers

_STATUS = re.compile(r"status code: (\d{3})")
_NEVER_SENT = re.compile(r"kind: Connect\b|BadScheme|URL scheme is not allowed")
_REJECTED = re.compile(r"<Code>(?:SlowDown|ServerBusy|ConditionalRequestConflict|RequestTimeTooSkewed)</Code>")
_CAUSE = re.compile(r'(?<=message: ")[^"]+(?=")|(?<=error: ")[^"]+(?=")|TimedOut|IncompleteMessage')
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|specified bucket does not exist")


#: Most cached clients; the least recently used is dropped.
_MAX_CLIENTS = 32
#: Settings that contain complete credentials.
_CREDENTIALS = frozenset({"secret_access_key", "skip_signature", "account_key", "sas_token", "service_account_key"})
#: Environment variables of HTTP clients.
_OF_ANY_CLIENT = ("_proxy", "ssl_cert_file", "ssl_cert_dir")


class Clients:
    """A cache of obstore's clients by bucket, options and environment.

    Creating one takes 4 ms and two or three round trips.  Only clients with explicit credentials, in options or the
    environment, are cached: credentials from files and servers may change.

    >>> clients, calls = Clients(), []
    >>> config = StoreConfig({"aws_secret_access_key": "s"})
    >>> for _ in range(2):
    ...     _ = clients.get("s3", "s3://bucket", config, {}, lambda: calls.append("created") or "client")
    >>> calls
    ['created']
    """

    def __init__(self) -> None:
        self._clients = LruCache(_MAX_CLIENTS, _MAX_CLIENTS)

    def get(
        self, scheme: str, url: str, config: StoreConfig, environment: Mapping[str, str], make: Callable[[], Any]
    ) -> Any:
        """The cached client for these arguments, or a new one from ``make``."""
        lowered = {n: n.lower() for n in environment}
        variables = {
            n: environment[n]
            for n, low in lowered.items()
            if low.startswith(PREFIXES[scheme]) or low.endswith(_OF_ANY_CLIENT)
        }
        if not _CREDENTIALS & {setting(name) for name in (*config.config, *variables)}:
            return make()
        key = (url, *map(_frozen, (config.config, config.client, config.retry, variables)))
        client = self._clients.get(key)
        if client is None:
            client = make()  # two threads may create one, and one is kept
            self._clients.put(key, client, 1)
        return client


def _frozen(values: Mapping[str, object]) -> frozenset[tuple[str, object]]:
    return frozenset((name, _frozen(v) if isinstance(v, Mapping) else v) for name, v in values.items())


_CLIENTS = Clients()


class _Process:
    """Detects forks: obstore's threads do not exist in a forked child, which would wait forever."""

    used = False
    forked = False

    @classmethod
    def after_fork(cls) -> None:
        cls.forked = cls.used

    @classmethod
    def check(cls, file: str) -> None:
        if cls.forked:
            message = "object stores cannot be used in a forked process whose parent has used them"
            help = 'start processes by "spawn" or "forkserver", or use object stores in the children only'
            raise StorageError(message, help=help, file=file)
        cls.used = True


os.register_at_fork(after_in_child=_Process.after_fork)


def open_object_store(location: Location, options: Mapping[str, str]) -> ObjectStore:
    """Open the store of a location; see :func:`trilake.storage.open_store`."""
    scheme, authority, uri = location.scheme, location.authority, location.uri
    if scheme == "s3":
        options = _with_profile(options)
    options = _with_environment(scheme, options)
    config = store_config(scheme, options, authority)
    provider = _static_keys(config.config) if scheme == "s3" else None
    url = f"{scheme}://{authority}"

    def make(retry: Mapping[str, object]) -> Any:
        try:
            # Names are checked already; obstore checks values.
            return obstore.store.from_url(
                url,
                config=dict(config.config),  # type: ignore[call-overload]  # obstore types the keys of each service
                client_options=dict(config.client),
                retry_config=dict(retry) or None,
                **({} if provider is None else {"credential_provider": provider}),
            )
        except UnknownConfigurationKeyError as e:
            raise UnknownOptionError(_first_line(e), help="see trilake.storage.options", store=uri) from e
        except (BaseError, ValueError) as e:
            raise InvalidArgumentError(f"the store cannot be opened: {_first_line(e)}", store=uri) from e

    def client(retry: Mapping[str, object]) -> Any:
        return _CLIENTS.get(scheme, url, replace(config, retry=retry), os.environ, lambda: make(retry))

    # S3 directory buckets and Azure's hierarchical namespace sort by folder, not by key.
    express = config.config.get("aws_s3_express", config.config.get("s3_express", "false"))
    ordered = scheme == "gs" or (scheme == "s3" and express == "false")

    def once() -> Any:
        return client({**config.retry, "max_retries": 0})

    return ObjectStore(client(config.retry), once, location.path, uri, options, ordered=ordered)


def _with_profile(options: Mapping[str, str]) -> dict[str, str]:
    by_lower_name = {name.lower(): str(value) for name, value in options.items()}
    profile_name = by_lower_name.get("aws_profile")
    profile = profile_options(
        profile_name, os.environ, credentials=any(is_credential(n) for n in by_lower_name if n != "aws_profile")
    )
    from_profile = missing_options(profile, from_hadoop(by_lower_name))
    plain = {name: value for name, value in options.items() if name.lower() != "aws_profile"}
    if from_profile.get("aws_endpoint", "").startswith("http://"):
        from_profile["allow_http"] = "true"
    return {**from_profile, **plain}


def _with_environment(scheme: str, options: Mapping[str, str]) -> Mapping[str, str]:
    """Allow HTTP if the environment does: obstore only reads the variables of the store."""
    if any(setting(name) == "allow_http" for name in from_hadoop(options)):
        return options
    names = (n.upper() for n, means in ALIASES.items() if means == "allow_http" and n.startswith(PREFIXES[scheme]))
    allow_http = next((os.environ[n] for n in names if n in os.environ), None)
    return options if allow_http is None else {**options, "allow_http": allow_http}


def _static_keys(config: Mapping[str, str]) -> Callable[[], Any] | None:
    """Drop a session token of the environment that belongs to other keys."""
    plain = {name.removeprefix("aws_"): value for name, value in config.items()}
    key, secret = plain.get("access_key_id"), plain.get("secret_access_key")
    if key is None or secret is None or "session_token" in plain or "token" in plain:
        return None
    if not os.environ.get("AWS_SESSION_TOKEN"):
        return None
    return lambda: {"access_key_id": key, "secret_access_key": secret, "token": None, "expires_at": None}


class ObjectStore(Store):
    """The folder ``path`` of a bucket or container.

    ``client`` is obstore's store; ``once`` creates one that does not retry, for conditional puts.  Listings are sorted
    in memory unless the service lists keys ``ordered`` by bytes.  ``sleep`` waits some seconds between attempts.
    """

    writes_at_once = 8

    def __init__(
        self,
        client: Any,
        once: Callable[[], Any],
        path: str,
        uri: str,
        options: Mapping[str, str],
        *,
        ordered: bool = False,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._once = cache(once)
        self._root = f"{path}/" if path else ""
        self._scheme = uri.partition(":")[0]
        self._ordered = ordered
        self._sleep = sleep
        self.uri = uri
        self.options = dict(options)

    # --- reading ---

    def __reduce__(self) -> tuple[Any, ...]:
        return open_object_store, (parse_location(self.uri), dict(self.options))

    def read(self, key: str) -> pa.Buffer:
        return self._ask(lambda path: pa.py_buffer(self._client.get(path).bytes()), "read the object", key)

    def read_range(self, key: str, start: int, length: int) -> pa.Buffer:
        check_range(key, start, length)
        # Stores reject empty ranges and ranges after the end.
        if length == 0 or start >= _FAR:
            self.head(key)
            return _EMPTY
        try:
            end = min(start + length, _FAR)
            return self._ask(
                lambda path: pa.py_buffer(self._client.get_range(path, start=start, end=end)), "read the object", key
            )
        except StorageError as e:
            if e.context.get("status") != 416:
                raise
            return _EMPTY

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        for start, length in ranges:
            check_range(key, start, length)
        merged = _requests(ranges)
        parts = self.at_once([partial(self.read_range, key, start, length) for start, length in merged])
        starts = [start for start, _ in merged]
        result = []
        for start, length in ranges:
            i = bisect_right(starts, start) - 1
            skip = min(start - starts[i], parts[i].size)
            result.append(parts[i].slice(skip, min(length, parts[i].size - skip)))
        return result

    def read_many(self, keys: Sequence[str]) -> list[pa.Buffer]:
        return self.at_once([partial(self.read, key) for key in keys])

    def at_once(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        if len(calls) < 2:
            return [call() for call in calls]
        with ThreadPoolExecutor(min(PARALLEL, len(calls)), "trilake-requests") as pool:
            return list(pool.map(lambda call: call(), calls))

    def head(self, key: str) -> ObjectMeta:
        meta = self._ask(self._client.head, "get the object's metadata", key)
        return ObjectMeta(key, meta["size"], _milliseconds(meta["last_modified"]))

    def read_sized(self, key: str, length: int, *, end: bool = False) -> tuple[int, pa.Buffer]:
        check_range(key, 0, length)
        # Not every store supports suffix ranges.
        if length and (not end or self._scheme in ("s3", "gs")):
            range_: dict[str, int] | tuple[int, int] = {"suffix": length} if end else (0, min(length, _FAR))
            try:
                response = self._ask(
                    lambda path: self._client.get(path, options={"range": range_}), "read the object", key
                )
                return response.meta["size"], pa.py_buffer(response.bytes())
            except ObjectNotFoundError:
                raise
            except (StorageError, BaseError):
                pass  # the object is empty, or the store lacks suffix ranges: get the size instead
        return super().read_sized(key, length, end=end)

    def open_input(self, key: str) -> pa.NativeFile:
        size, tail = self.read_sized(key, MIN_WINDOW, end=True)

        def fetch(ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
            parts = self.read_ranges(key, ranges)
            for (start, length), data in zip(ranges, parts, strict=True):
                if data.size != length:
                    raise StorageError(
                        "the object became shorter after it was opened", file=self._shown(key), size=start + data.size
                    )
            return parts

        return ObjectFile(WindowReader(fetch, size, tail), mode="r")

    def list(self, prefix: str = "", start_after: str | None = None) -> Iterator[ObjectMeta]:
        folder = self._root + check_prefix(prefix)
        metas = self._list(folder, None if start_after is None else self._root + start_after)
        if self._ordered:
            return self._in_order(metas)
        return iter(sorted(metas, key=lambda meta: meta.key.encode()))

    def _list(self, folder: str, after: str | None) -> Iterator[ObjectMeta]:
        root_length = len(self._root)
        chunks = iter(self._client.list(folder or None, offset=after, chunk_size=1000))
        while (chunk := self._try(lambda: next(chunks, None), "list the folder", folder[root_length:])) is not None:
            for meta in chunk:
                path = meta["path"]
                # The client strips the slash of folder markers, and this is the folder itself.
                if path.startswith(folder) and (after is None or path > after):
                    yield ObjectMeta(path[root_length:], meta["size"], _milliseconds(meta["last_modified"]))

    def _in_order(self, metas: Iterable[ObjectMeta]) -> Iterator[ObjectMeta]:
        last = ""
        for meta in metas:
            # Code points sort like UTF-8 bytes.
            if meta.key <= last:
                if meta.size == 0:  # a folder marker, sorted by the slash that the client strips
                    continue
                message = "the store lists keys out of order"
                help = 'set the option aws_s3_express="true" if this is a directory bucket'
                raise StorageError(message, help=help, file=self._shown(meta.key), after=last)
            last = meta.key
            yield meta

    # --- writing ---

    def put(self, key: str, data: bytes | pa.Buffer) -> None:
        self._upload(key, _view(data))

    def put_if_absent(self, key: str, data: bytes | pa.Buffer) -> None:
        path = self._root + check_key(key)
        for attempt in range(ATTEMPTS):
            _Process.check(self._shown(key))
            try:
                # As one part, since only single requests are conditional.
                self._once().put(path, _view(data), mode="create", use_multipart=False)
                return
            except _CLIENT_ERRORS as e:
                if attempt == ATTEMPTS - 1 or not _may_pass(e):
                    raise self._error(e, "write the object", key, write=True) from _cause(e)
            self._sleep(random.uniform(0.5, 1.0) * 0.1 * 2**attempt)

    def open_output(self, key: str) -> IO[bytes]:
        return self._writer(key).as_io()

    def _writer(self, key: str) -> UploadWriter:
        return UploadWriter(check_key(key), partial(self._upload, key))

    def _upload(self, key: str, data: Any, **options: Any) -> None:
        self._ask(lambda path: self._client.put(path, data, **options), "write the object", key, write=True)

    def write_group(self) -> WriteGroup:
        return _UploadGroup(self, self._writer)

    def delete(self, keys: Iterable[str]) -> None:
        names = list(keys)
        paths = [self._root + check_key(key) for key in names]
        if not paths:
            return
        try:
            self._try(lambda: self._client.delete(paths), "delete the object", names[0])
        except ObjectNotFoundError:
            # Some stores report missing objects, and may skip others then.
            self.at_once([partial(self._delete_one, name) for name in names])

    def _delete_one(self, key: str) -> None:
        with suppress(ObjectNotFoundError):
            self._ask(self._client.delete, "delete the object", key)

    # --- errors ---

    def _shown(self, key: str) -> str:
        return f"{self.uri}/{key}"

    def _ask(self, call: Callable[[str], T], action: str, key: str, *, write: bool = False) -> T:
        path = self._root + check_key(key)
        return self._try(lambda: call(path), action, key, write=write)

    def _try(self, call: Callable[[], T], action: str, key: str, *, write: bool = False) -> T:
        _Process.check(self._shown(key))
        try:
            return call()
        except _CLIENT_ERRORS as e:
            raise self._error(e, action, key, write=write) from _cause(e)

    def _error(self, error: Exception, action: str, key: str, *, write: bool) -> TrilakeError:
        file, message, reply = self._shown(key), str(error), _first_line(error)
        match = _STATUS.search(message)
        status = int(match[1]) if match else None
        if _NO_BUCKET.search(message):
            return StorageError(f"cannot {action}: its bucket does not exist", file=file)
        if isinstance(error, AlreadyExistsError) and not _may_pass(error):
            return ObjectExistsError("the object already exists", file=file)
        if isinstance(error, FileNotFoundError):
            return ObjectNotFoundError("no such object", file=file)
        if isinstance(error, (PermissionDeniedError, UnauthenticatedError)) or status in (401, 403):
            return StorageError(
                f"cannot {action}: {reply}",
                help="check the credentials, their permissions on this bucket, and the region",
                file=file,
                status=status,
            )
        if isinstance(error, ValueError):
            return InvalidArgumentError(f"the store does not support this key: {reply}", file=file)
        certain = _may_pass(error) or isinstance(error, NotSupportedError) or (status is not None and status < 500)
        if write and not certain:
            return UnknownOutcomeError(f"the store did not confirm the write: {reply}", file=file, status=status)
        help = 'pass the option allow_http="true" to use an endpoint without TLS' if "BadScheme" in message else None
        return StorageError(f"cannot {action}: {reply}", help=help, file=file, status=status)


def _requests(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges to request: few, without much unneeded data."""
    needed_bytes = sum(length for _, length in coalesce(ranges, 0))
    for gap in (GAP, GAP >> 3, GAP >> 6):
        merged = coalesce(ranges, gap, _MOST)
        if sum(length for _, length in merged) <= _WASTE * needed_bytes + GAP:
            return merged
    return coalesce(ranges, 0, _MOST)


def _may_pass(error: Exception) -> bool:
    """Whether the store clearly rejected or never received a request, for a transient reason."""
    message = str(error)
    return "status code: 429" in message or any(reason.search(message) for reason in (_REJECTED, _NEVER_SENT))


def _cause(error: Exception) -> Exception | None:
    return error if masked(str(error)) == str(error) else None


def _view(data: bytes | pa.Buffer) -> memoryview:
    # The client would read Arrow's signed bytes as a sequence of numbers.
    return memoryview(data).cast("B")


def _milliseconds(time: datetime) -> int:
    return (time - _EPOCH) // _MILLISECOND


def _first_line(error: Exception) -> str:
    """The client's message and reason, without debug output."""
    reply, _, debug = str(error).partition("\n\nDebug source")
    reply = reply.strip()
    cause = _CAUSE.search(debug)
    return (reply if len(reply) <= 600 else reply[:600] + "…") + (f" ({cause[0]})" if cause else "")


class _UploadGroup(LandingGroup):
    """Uploads the last file together with the caller's final requests."""

    def __init__(self, store: Store, start: Callable[[str], UploadWriter]) -> None:
        super().__init__(store, files=1, threads=PARALLEL)
        self._start = start

    def open_output(self, key: str) -> IO[bytes]:
        return HeldWriter(key, self._start(key), self).as_io()

    def _is_full(self) -> bool:
        size = sum(file.tell() for _, files in self._running for file in files)
        many = len(self._running) >= ObjectStore.writes_at_once
        return super()._is_full() or (many and size > _UPLOADED)


# --- UploadWriter: the writer behind ObjectStore.open_output ----------------------------------------------------------
# Content that fits into one part is one request at close.  A thread with a short queue uploads more in parts while it
# is written; closing completes the upload, and discarding makes the thread's source fail, so that obstore aborts.

#: Bytes per part; S3 allows 10,000 parts, so 80 GiB.
PART = 8 << 20
_QUEUED, _PARALLEL = 2, 4


class _Discarded(Exception):
    """Raised in the upload to abort it."""


class UploadWriter(AtomicWriter):
    """Upload with ``send(data, **how)``, which is obstore's ``put`` with typed errors."""

    def __init__(self, key: str, send: Callable[..., None]) -> None:
        self._send = send
        self._part = bytearray()
        self._upload: _Upload | None = None
        super().__init__(key)

    def _append(self, data: memoryview) -> None:
        while len(data):
            if len(self._part) == PART:
                self._pass_on()
            room = PART - len(self._part)
            self._part += data[:room]
            data = data[room:]

    def _pass_on(self) -> None:
        if self._upload is None:
            self._upload = _Upload(self.name, self._send)
        self._upload.pass_on(bytes(self._part))
        self._part = bytearray()

    def _publish(self) -> None:
        if self._upload is None:
            self._send(bytes(self._part), use_multipart=False)
            return
        self._pass_on()
        self._upload.pass_on(None)
        self._upload.outcome.result()

    def _discard(self) -> None:
        self._part = bytearray()
        if self._upload is not None:
            with suppress(_Discarded, StorageError):
                self._upload.pass_on(_Discarded())
                self._upload.outcome.result()


class _Upload:
    """The thread, without a reference to the writer: an abandoned writer is collected and discarded."""

    def __init__(self, key: str, send: Callable[..., None]) -> None:
        self.outcome: Future[None] = Future()
        self._parts: queue.Queue[bytes | _Discarded | None] = queue.Queue(_QUEUED)
        self._send = send
        # A daemon, so that the interpreter can exit with an open writer.
        Thread(target=self._run, name=f"trilake-upload {key}", daemon=True).start()

    def pass_on(self, part: bytes | _Discarded | None) -> None:
        """Queue the next part, ``None`` for the end, or the error to abort with."""
        while True:
            try:
                return self._parts.put(part, timeout=0.1)
            except queue.Full:
                if self.outcome.done():  # the upload failed before its source ended
                    return self.outcome.result()

    def _run(self) -> None:
        try:
            self._send(self._source(), use_multipart=True, chunk_size=PART, max_concurrency=_PARALLEL)
        except BaseException as e:  # noqa: BLE001 - raised where the result is awaited
            self.outcome.set_exception(e)
        else:
            self.outcome.set_result(None)

    def _source(self) -> Iterator[bytes]:
        while (part := self._parts.get()) is not None:
            if isinstance(part, _Discarded):
                raise part
            yield part
