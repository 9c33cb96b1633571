"""The cache of object store clients."""

from __future__ import annotations

from itertools import count

import pytest

from trilake.storage.object import Clients
from trilake.storage.options import StoreConfig

_STATED = StoreConfig({"aws_access_key_id": "k", "aws_secret_access_key": "s"}, {"timeout": "1s"}, {"max_retries": 2})


@pytest.fixture
def get():
    clients, numbers = Clients(), count()

    def get(config: StoreConfig = _STATED, *, scheme: str = "s3", bucket: str = "b", **environment: str) -> int:
        return int(clients.get(scheme, f"{scheme}://{bucket}", config, environment, lambda: next(numbers)))

    return get


def test_same_bucket_options_and_environment_share_a_client(get) -> None:
    assert [get(), get(), get(HOME="/elsewhere"), get(AWS_REGION="r"), get(AWS_REGION="r")] == [0, 0, 0, 1, 1]


def test_any_difference_creates_a_new_client(get) -> None:
    retry = StoreConfig(_STATED.config, _STATED.client, {"max_retries": 2, "backoff": {"base": 2}})
    others = [
        get(StoreConfig({**_STATED.config, "aws_secret_access_key": "t"}, _STATED.client, _STATED.retry)),
        get(StoreConfig(_STATED.config, {"timeout": "2s"}, _STATED.retry)),
        get(retry),
        get(bucket="c"),
        get(HTTPS_PROXY="http://proxy"),
        get(AWS_SESSION_TOKEN="t"),
    ]
    assert others == list(range(6))
    assert get(retry) == 2


def test_clients_with_external_credentials_are_not_cached(get) -> None:
    """A token file, profile process or metadata server may change: a cached client would use the old credentials."""
    for config in ({}, {"aws_web_identity_token_file": "f"}, {"google_service_account": "file.json"}):
        assert get(StoreConfig(config)) != get(StoreConfig(config))
    environment = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
    assert get(StoreConfig(), **environment) == get(StoreConfig(), **environment)
    azure = StoreConfig({"azure_storage_sas_key": "s"})
    assert get(azure, scheme="az") == get(azure, scheme="az")


def test_client_cache_is_bounded(get) -> None:
    first = get()
    for bucket in range(100):
        get(bucket=str(bucket))
    assert get() != first
