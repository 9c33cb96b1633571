"""Stores of every kind, and the S3 server that some of them use."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path

import boto3
import pytest

from tests.fault_store import FaultStore
from trilake.storage import Store, open_store

_numbers = itertools.count()


def s3_client(options: Mapping[str, str]):
    """A boto3 client of the same server."""
    return boto3.client(
        "s3",
        endpoint_url=options["AWS_ENDPOINT_URL"],
        aws_access_key_id=options["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=options["AWS_SECRET_ACCESS_KEY"],
        region_name=options["AWS_REGION"],
    )


@pytest.fixture(params=["local", "memory", "faulty", "s3"])
def new_store(request: pytest.FixtureRequest, tmp_path) -> Callable[[], Store]:
    """A factory of empty stores of one kind, with a space, ``%``, ``#``, ``?`` and ``+`` in their root names."""
    kind = request.param
    options = request.getfixturevalue("s3_options") if kind == "s3" else {}

    def make() -> Store:
        name = f"a b%20c#d?e+f-{next(_numbers)}"
        if kind == "memory":
            return open_store(f"memory://test-{next(_numbers)}")
        if kind == "s3":
            return open_store(f"s3a://lake/{name}", options)
        store = open_store(tmp_path / name)
        return FaultStore(store) if kind == "faulty" else store

    return make


@pytest.fixture
def store(new_store: Callable[[], Store]) -> Store:
    return new_store()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The root of the local store; it does not exist yet."""
    return tmp_path / "t"


@pytest.fixture
def local_store(root: Path) -> Store:
    return open_store(root)
