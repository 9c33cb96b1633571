"""Secrets in URIs never appear in errors, their causes, representations or logs."""

from __future__ import annotations

import pickle
import traceback

import pytest

import trilake
from trilake.errors import InvalidArgumentError, StorageError, TrilakeError
from trilake.storage import open_store
from trilake.storage.object import ObjectStore
from trilake.trevni.tables.dataset import Split

SECRET = "s3cr3t%2Bvalue"
URIS = [
    f"s3://key:{SECRET}@bucket/t",
    f"s3://bucket/t?X-Amz-Credential=me&X-Amz-Signature={SECRET}",
    f"az://container/t?sv=2022&sig={SECRET}&se=1",
    f"memory://user:{SECRET}@name/t",
]


@pytest.mark.parametrize("uri", [*URIS, f"https://user:{SECRET}@host/t", f"https://host/t?token={SECRET}"])
def test_uri_with_secret_is_rejected_and_masked(uri: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        trilake.open(uri)
    error = caught.value
    assert SECRET not in "".join(traceback.format_exception(error, limit=0))
    for text in (str(error), repr(error), str(error.context), str(pickle.loads(pickle.dumps(error)))):
        assert SECRET not in text
        assert "s3cr3t" not in text


def test_errors_mask_secrets_in_all_fields() -> None:
    error = TrilakeError(f"no reply from {URIS[1]}", help=f"look at {URIS[0]}", file=URIS[2], named=7)
    assert SECRET not in f"{error} {error!r} {error.args} {error.message} {error.help} {error.context}"
    assert "sv=2022&sig=***&se=1" in str(error)
    assert error.context["named"] == 7


def test_client_error_with_secret_is_not_in_the_traceback() -> None:
    class Client:
        def head(self, path: str) -> None:
            raise OSError(f"error sending request for url (https://a.blob/t?sig={SECRET})")

    store = ObjectStore(Client(), Client, "t", "az://c/t", {"azure_storage_sas_token": SECRET})
    with pytest.raises(StorageError) as caught:
        store.head("k")
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert SECRET not in repr(store)


def test_options_are_not_in_the_repr() -> None:
    assert SECRET not in repr(Split("s3://b/t", "k", options={"aws_secret_access_key": SECRET}))


@pytest.mark.parametrize(
    "path", ["month=3/sig=4/x", "/a@b:c/d", "abfss://c@account.dfs.core.windows.net/t", "12:30 a@b"]
)
def test_harmless_paths_are_not_masked(path: str) -> None:
    assert path in str(TrilakeError("x", file=path))


def test_local_path_may_look_like_a_secret(tmp_path) -> None:
    store = open_store(tmp_path / "a?token=1")
    store.put("k", b"x")
    assert store.head("k").size == 1
