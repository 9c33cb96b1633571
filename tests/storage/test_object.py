"""Object stores: requests to the server, and the meaning of its answers or their absence."""

from __future__ import annotations

import io
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping

import obstore.store
import pytest

from tests.storage.conftest import s3_client
from trilake.errors import (
    InvalidArgumentError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    UnknownOutcomeError,
)
from trilake.storage import Store, open_store
from trilake.storage.base import ObjectMeta
from trilake.storage.object import ATTEMPTS, PART, ObjectStore

# --- answers ---------------------------------------------------------------------------------------------------------


def answer(status: int, code: str = "") -> bytes:
    body = f"<Error><Code>{code}</Code></Error>".encode() if code else b""
    head = f'HTTP/1.1 {status} Answer\r\nContent-Length: {len(body)}\r\nETag: "x"\r\nConnection: close\r\n\r\n'
    return head.encode() + body


DROP = b""  # the connection is closed without an answer
SILENCE = b"..."  # no answer until the client times out


class Server:
    """A server that gives its answers in turn, repeats the last one, and records the requests."""

    def __init__(self, *answers: bytes) -> None:
        self.requests: list[str] = []
        self.open: list[socket.socket] = []
        self._answers = list(answers)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.waits: list[float] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def store(self, **options: str) -> ObjectStore:
        store = open_store(
            "s3://bucket/t",
            {
                "AWS_ACCESS_KEY_ID": "x",
                "AWS_SECRET_ACCESS_KEY": "x",
                "AWS_ENDPOINT_URL": self.endpoint,
                "allow_http": "true",
                "timeout": "300ms",
                "max_retries": "1",
                "backoff_config.init_backoff": "1ms",
                **options,
            },
        )
        assert isinstance(store, ObjectStore)
        store._sleep = self.waits.append
        return store

    def _serve(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            text = b""
            while b"\r\n\r\n" not in text:
                text += connection.recv(65536)
            head, _, body = text.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", head)
            while length and len(body) < int(length[1]):
                body += connection.recv(65536)
            self.requests.append(head.decode())
            reply = self._answers[min(len(self.requests), len(self._answers)) - 1]
            if reply == SILENCE:
                self.open.append(connection)
                continue
            connection.sendall(reply)
            connection.close()


def test_2_put_if_absent_is_one_conditional_request() -> None:
    server = Server(answer(200))
    server.store(timeout="30s").put_if_absent("k", bytes(PART + 1))
    assert len(server.requests) == 1
    assert server.requests[0].startswith("PUT /bucket/t/k ")
    assert re.search(r"(?i)if-none-match: \*", server.requests[0])


@pytest.mark.parametrize("status", [412, 409])
def test_2_failed_condition_means_the_object_exists(status: int) -> None:
    server = Server(answer(status, "PreconditionFailed"))
    with pytest.raises(ObjectExistsError):
        server.store().put_if_absent("k", b"x")
    assert len(server.requests) == 1


@pytest.mark.parametrize("reply", [DROP, SILENCE, answer(500, "InternalError"), answer(502), answer(503), answer(504)])
def test_6_conditional_put_with_unknown_outcome_is_not_retried(reply: bytes) -> None:
    # The second answer would be "exists", and that object might be the one just written.
    server = Server(reply, answer(412, "PreconditionFailed"))
    with pytest.raises(UnknownOutcomeError, match="may have succeeded"):
        server.store().put_if_absent("k", b"x")
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "rejection",
    [answer(503, "SlowDown"), answer(429), answer(409, "ConditionalRequestConflict"), answer(503, "ServerBusy")],
)
def test_6_definite_rejection_is_retried(rejection: bytes) -> None:
    server = Server(rejection, rejection, answer(200))
    server.store().put_if_absent("k", b"x")
    assert len(server.requests) == 3
    assert 0.05 <= server.waits[0] <= 0.1 <= server.waits[1] <= 0.2

    server = Server(rejection)
    with pytest.raises(StorageError) as caught:
        server.store().put_if_absent("k", b"x")
    assert not isinstance(caught.value, (UnknownOutcomeError, ObjectExistsError))
    assert len(server.requests) == ATTEMPTS


def test_6_connection_refused_is_not_an_unknown_outcome() -> None:
    server = Server()
    with socket.create_server(("127.0.0.1", 0)) as free:
        server.endpoint = f"http://127.0.0.1:{free.getsockname()[1]}"
    for write in (server.store().put, server.store().put_if_absent):
        with pytest.raises(StorageError, match="refused") as caught:
            write("k", b"x")
        assert not isinstance(caught.value, UnknownOutcomeError)


@pytest.mark.parametrize("reply", [DROP, answer(500, "InternalError")])
def test_6_unconditional_put_is_retried_then_unknown(reply: bytes) -> None:
    server = Server(reply, answer(200))
    server.store().put("k", b"x")
    assert len(server.requests) == 2
    server = Server(reply)
    with pytest.raises(UnknownOutcomeError):
        server.store().put("k", b"x")
    with pytest.raises(StorageError) as caught:
        server.store().read("k")
    assert not isinstance(caught.value, (UnknownOutcomeError, ObjectNotFoundError))


@pytest.mark.parametrize(("status", "code"), [(403, "AccessDenied"), (401, ""), (403, "InvalidAccessKeyId")])
def test_6_missing_permissions_are_reported(status: int, code: str) -> None:
    store = Server(answer(status, code)).store()
    calls: list[Callable[[], object]] = [
        lambda: store.read("k"),
        lambda: store.put("k", b"x"),
        lambda: store.put_if_absent("k", b"x"),
        lambda: store.head("k"),
        lambda: store.delete(["k"]),
        lambda: list(store.list()),
        lambda: store.open_input("k"),
        lambda: store.open_output("k").close(),
    ]
    for call in calls:
        with pytest.raises(StorageError, match="check the credentials") as caught:
            call()
        assert type(caught.value) is StorageError


def test_6_missing_bucket_is_not_a_missing_object(s3_options: Mapping[str, str]) -> None:
    store = open_store("s3://no-such-bucket/x", s3_options)
    for call in (lambda: store.read("k"), lambda: store.put("k", b""), lambda: list(store.list())):
        with pytest.raises(StorageError, match="bucket does not exist") as caught:
            call()
        assert not isinstance(caught.value, ObjectNotFoundError)


def test_plain_http_requires_allow_http(s3_options: Mapping[str, str]) -> None:
    with pytest.raises(StorageError, match="allow_http"):
        open_store("s3://lake/x", {**s3_options, "allow_http": "false"}).read("k")


def test_unsupported_key_is_rejected(s3_options: Mapping[str, str]) -> None:
    with pytest.raises(InvalidArgumentError, match="does not support this key"):
        open_store("s3://lake/x", s3_options).put("a\nb", b"")


def test_environment_replaces_missing_options(s3_options: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3_options.items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    open_store("s3://lake/environment", {"allow_http": "true"}).put("k", b"x")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    assert open_store("s3://lake/environment").read("k").to_pybytes() == b"x"
    assert open_store("s3://lake/environment", {"aws_endpoint": s3_options["AWS_ENDPOINT_URL"]}).read("k")
    assert open_store("s3://lake", s3_options).read("environment/k").to_pybytes() == b"x"


# --- requests --------------------------------------------------------------------------------------------------------


class CountingClient:
    """obstore's client, with a log of the methods called."""

    def __init__(self, client: object) -> None:
        self._client = client
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> object:
        method = getattr(self._client, name)

        def call(*args: object, **how: object) -> object:
            self.calls.append(name)
            return method(*args, **how)

        return call


@pytest.fixture
def counted(s3_options: Mapping[str, str]) -> tuple[Store, list[str]]:
    store = open_store("s3://lake/counted", s3_options)
    assert isinstance(store, ObjectStore)
    counting = CountingClient(store._client)
    store._client = counting
    return store, counting.calls


def test_only_nearby_ranges_are_merged_into_one_request(counted: tuple[Store, list[str]]) -> None:
    store, calls = counted
    store.put("k", bytes(4 << 20))
    calls.clear()
    store.read_ranges("k", [(0, 10), (900_000, 10), (500_000, 10)])
    assert calls == ["get_range"]
    calls.clear()
    store.read_ranges("k", [(0, 10), (3 << 20, 10)])
    assert calls == ["get_range"] * 2


def test_opening_and_reading_the_footer_is_one_request(counted: tuple[Store, list[str]]) -> None:
    store, calls = counted
    store.put("k", bytes(1 << 20))
    calls.clear()
    with store.open_input("k") as file:
        file.seek(-8, io.SEEK_END)
        assert file.read(8) == bytes(8)
    assert calls == ["get"]


def test_only_large_files_use_multipart_uploads(s3_options: Mapping[str, str]) -> None:
    store = open_store("s3://lake/parts", s3_options)
    with store.open_output("small") as file:
        file.write(bytes(PART))
    with store.open_output("large") as file:
        file.write(bytes(PART - 1))
        file.write(b"xy")
    client = s3_client(s3_options)
    etags = {k: client.head_object(Bucket="lake", Key=f"parts/{k}")["ETag"] for k in ("small", "large")}
    assert "-" not in etags["small"]
    assert etags["large"].endswith('-2"')
    assert store.read("large").to_pybytes() == bytes(PART - 1) + b"xy"


def test_discarded_upload_is_aborted(s3_options: Mapping[str, str]) -> None:
    store = open_store("s3://lake/aborted", s3_options)
    file = store.open_output("k")
    file.write(bytes(2 * PART + 1))
    del file  # never closed
    uploads = s3_client(s3_options).list_multipart_uploads(Bucket="lake").get("Uploads", [])
    assert [u["Key"] for u in uploads if u["Key"].startswith("aborted/")] == []
    assert list(store.list()) == []


def test_failed_upload_part_fails_the_writer() -> None:
    store = Server(answer(403, "AccessDenied")).store()
    file = store.open_output("k")

    def write() -> None:
        for _ in range(100):
            file.write(bytes(PART))

    with pytest.raises(StorageError, match="check the credentials"):
        write()
    file.close()  # discards


# --- listings --------------------------------------------------------------------------------------------------------


def test_folder_markers_are_not_listed(s3_options: Mapping[str, str]) -> None:
    client = s3_client(s3_options)
    for key in ("markers/a/", "markers/a/k", "markers/a-b"):
        client.put_object(Bucket="lake", Key=key, Body=b"")
    store = open_store("s3://lake/markers", s3_options)
    assert [m.key for m in store.list("a")] == ["a/k"]
    assert [m.key for m in store.list()] == ["a-b", "a/k"]


def test_long_listings_are_paginated(s3_options: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "4")
    client = s3_client(s3_options)
    for i in range(15):
        client.put_object(Bucket="lake", Key=f"pages/{i:05}", Body=b"")
    store = open_store("s3://lake/pages", s3_options)
    expected = [f"{i:05}" for i in range(15)]
    assert [m.key for m in store.list()] == expected
    assert [m.key for m in store.list(start_after="00003")] == expected[4:]
    store.delete(expected)
    assert list(store.list()) == []


class ShufflingClient:
    """A client that lists out of order."""

    def list(self, *args: object, **how: object) -> Iterator[list[dict[str, object]]]:
        from datetime import UTC, datetime

        time = datetime(2026, 1, 1, 0, 0, 0, 123_999, tzinfo=UTC)
        yield [{"path": f"r/{k}", "size": 1, "last_modified": time} for k in ("b", "ü", "a")]


def test_5_unordered_listings_are_sorted_or_rejected() -> None:
    client = ShufflingClient()
    result = list(ObjectStore(client, lambda: client, "r", "az://c/r", {}).list())
    assert result == [ObjectMeta(k, 1, 1_767_225_600_123) for k in ("a", "b", "ü")]
    with pytest.raises(StorageError, match="out of order"):
        list(ObjectStore(client, lambda: client, "r", "s3://c/r", {}, ordered=True).list())


# --- other clients ---------------------------------------------------------------------------------------------------


def test_delete_ignores_missing_objects_reported_by_the_client(tmp_path) -> None:
    client = obstore.store.LocalStore(tmp_path)
    store = ObjectStore(client, lambda: client, "r", "az://c/r", {})
    for key in ("a", "b", "c"):
        store.put(key, b"1")
    store.delete(["a", "nothing", "c"])
    assert [m.key for m in store.list()] == ["b"]


def test_forked_child_raises_instead_of_hanging(s3_options: Mapping[str, str]) -> None:
    store = open_store("s3://lake/fork", s3_options)
    store.put("k", b"x")
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            store.read("k")
            message = "read"
        except StorageError as e:
            message = e.message
        os.write(write_end, message.encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as file:
        assert "forked process" in file.read()
    assert os.waitpid(child, 0)[1] == 0
    assert store.read("k").to_pybytes() == b"x"
