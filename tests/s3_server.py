"""An object store for tests: a server that speaks the protocol of S3, in this process, on the loopback interface.

``python -m tests.s3_server --delay 0.03`` runs one as a process, which prints its options as a line of JSON
and ends when its input is closed.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote


@dataclass(frozen=True)
class Request:
    """One request that a client sent.

    ``kind`` is GET, HEAD, PUT, DELETE, POST or LIST; ``key`` is below the bucket, for LIST the prefix; ``condition`` is
    the range of a GET, the key that a LIST begins after, and ``if absent`` for a PUT that must not replace anything;
    ``size`` counts the bytes of the object that were sent either way.
    """

    kind: str
    key: str
    condition: str
    status: int
    size: int


@dataclass(frozen=True)
class S3Server:
    """A running server: the options of its bucket ``lake``, and every request so far."""

    options: Mapping[str, str]
    requests: list[Request] = field(default_factory=list)


def _recording(
    app: Callable[..., Iterable[bytes]], requests: list[Request], delay: float
) -> Callable[..., Iterable[bytes]]:
    """The server's application, which records requests and response sizes, and answers after ``delay`` seconds."""

    def call(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], unquote(environ["PATH_INFO"]).removeprefix("/lake").lstrip("/")
        query = parse_qs(environ.get("QUERY_STRING", ""))
        sent = int(environ.get("CONTENT_LENGTH") or 0)

        def respond(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            length = next((int(v) for k, v in headers if k.lower() == "content-length"), 0)
            if "list-type" in query:
                request = Request("LIST", query.get("prefix", [""])[0], query.get("start-after", [""])[0], 0, 0)
            elif method == "GET":
                request = Request("GET", path, environ.get("HTTP_RANGE", ""), 0, length)
            else:
                condition = "if absent" if environ.get("HTTP_IF_NONE_MATCH") == "*" else ""
                request = Request(method, path, condition, 0, sent)
            good = status[:1] in "23"
            requests.append(
                Request(request.kind, request.key, request.condition, int(status[:3]), request.size if good else 0)
            )
            return start_response(status, headers, *rest)

        time.sleep(delay)  # each request has a thread, so concurrent requests wait concurrently
        return app(environ, respond)

    return call


def _put_one_at_a_time() -> None:
    """Make conditional puts of the server atomic, as in S3: moto 5.2 checks whether a key exists and then
    writes it, so two threads may both succeed."""
    from moto.s3.responses import S3Response

    put, lock = S3Response.put_object, threading.RLock()

    def one_at_a_time(self: S3Response) -> Any:
        with lock:
            return put(self)

    S3Response.put_object = one_at_a_time  # type: ignore[method-assign]


@contextmanager
def s3_server(delay: float = 0.0) -> Iterator[S3Server]:
    """Run the server, with its bucket ``lake``; each request takes ``delay`` additional seconds."""
    import boto3  # late: importing takes a second, and most test runs need no S3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    _put_one_at_a_time()
    server.start()
    requests: list[Request] = []
    assert server._server is not None
    server._server.app = _recording(server._server.app, requests, delay)
    host, port = server.get_host_and_port()
    options = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "allow_http": "true",
        "max_retries": "2",
        "retry_timeout": "10s",
    }
    client = boto3.client(
        "s3",
        endpoint_url=options["AWS_ENDPOINT_URL"],
        aws_access_key_id="test",
        aws_secret_access_key="test",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket="lake")
    requests.clear()
    yield S3Server(options, requests)
    server.stop()


def main() -> None:
    """Run a server until its input is closed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds that each request takes more")
    with s3_server(parser.parse_args().delay) as server:
        print(json.dumps(dict(server.options)), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
