from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import obstore
import pytest

from trilake.errors import InvalidArgumentError, OtherStoreError, UnknownOptionError
from trilake.storage import open_sibling, open_store
from trilake.storage.options import from_hadoop, is_storage_option, store_config

SKIP = {"s3": {"AWS_SKIP_SIGNATURE": "true"}, "az": {"azure_skip_signature": "true", "account_name": "a"}}


def test_options_are_split_by_consumer_ignoring_case() -> None:
    result = store_config(
        "s3",
        {
            "AWS_ACCESS_KEY_ID": "Key",
            "aws_region": "eu-west-1",
            "Endpoint_Url": "http://x",
            "AWS_STORAGE_ALLOW_HTTP": "TRUE",
            "timeout": "30s",
            "max_retries": "3",
            "retry_timeout": "2 minutes",
            "backoff_config.init_backoff": "50ms",
            "backoff_config.base": "3",
            "AWS_S3_ALLOW_UNSAFE_RENAME": "true",
            "AZURE_STORAGE_ACCOUNT_NAME": "another cloud",
        },
    )
    assert result.config == {"aws_access_key_id": "Key", "aws_region": "eu-west-1", "endpoint_url": "http://x"}
    assert result.client == {"allow_http": True, "timeout": "30s"}
    assert result.retry == {
        "max_retries": 3,
        "retry_timeout": timedelta(minutes=2),
        "backoff": {"init_backoff": timedelta(milliseconds=50), "base": 3},
    }


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT", "endpoint", "endpoint_url", "aws_s3_endpoint"])
def test_any_option_alias_overrides_the_hadoop_setting(name: str) -> None:
    result = from_hadoop({"fs.s3a.endpoint": "https://theirs", name: "https://ours"})
    assert result == {name: "https://ours"}


def test_every_documented_client_option_is_known() -> None:
    """The names are in obstore's type stubs; a new version may add more."""
    stubs = Path(obstore.__file__).parent / "_store"
    missing = []
    for file, owner in (
        ("_aws", "S3Config"),
        ("_gcs", "GCSConfig"),
        ("_azure", "AzureConfig"),
        ("_client", "ClientConfig"),
    ):
        body = (stubs / f"{file}.pyi").read_text().split(f"class {owner}(")[1].split("\nclass ")[0]
        names = re.findall(r"^    ([a-z0-9_]+):", body, re.MULTILINE)
        assert len(names) > 5
        missing += [n for n in names if not is_storage_option(n)]
    # Headers are not strings, and Fabric's internal addresses come from its environment.
    assert [n for n in missing if not n.startswith("fabric_") and n != "default_headers"] == []


def test_table_options_are_not_storage_options() -> None:
    for name in ("versionAsOf", "mergeSchema", "path", "region2", "timestampasof"):
        assert not is_storage_option(name)


@pytest.mark.parametrize("name", ["awz_region", "regoin", "AWS_REGOIN"])
def test_misspelled_option_is_rejected(name: str) -> None:
    with pytest.raises(UnknownOptionError, match=name.lower()):
        open_store("s3://b/x", {name.lower(): "1"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timeout", "soon"),
        ("retry_timeout", "soon"),
        ("retry_timeout", "3 lightyears"),
        ("max_retries", "-1"),
        ("allow_http", "yes"),
        ("AWS_S3_LOCKING_PROVIDER", "dynamodb"),
    ],
)
def test_invalid_option_value_is_rejected(name: str, value: str) -> None:
    with pytest.raises(InvalidArgumentError):
        open_store("s3://b/x", {name: value, **SKIP["s3"]})


def test_azure_requires_an_account_from_options_or_uri(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(InvalidArgumentError, match="Account"):
        open_store("az://container/x")
    assert open_store("az://container/x", SKIP["az"]).uri == "az://container/x"
    assert open_store("abfss://container@account.dfs.core.windows.net/x").uri.startswith("abfss://container@account")


def test_local_and_memory_stores_pass_on_options() -> None:
    options = {"AWS_REGION": "x", "anything": "else"}
    for uri in ("/tmp/x", "memory://options"):
        assert open_store(uri, options).options == options
    allowing = {"AWS_SKIP_SIGNATURE": "true", "allow_other_stores": "true"}
    assert open_sibling(open_store("/tmp/x", allowing), "s3://b/x").uri == "s3://b/x"


@pytest.mark.parametrize(
    ("table", "named"),
    [("memory://t", "file:///etc"), ("s3://b/t", "file:///"), ("/tmp/x", "s3://b"), ("s3://b/t", "memory://x")],
)
def test_log_cannot_reference_another_kind_of_store(table: str, named: str) -> None:
    options = {"AWS_SKIP_SIGNATURE": "true", "AWS_REGION": "x"}
    with pytest.raises(OtherStoreError, match="allow_other_stores"):
        open_sibling(open_store(table, options), named)
    for no in ("false", "False"):
        with pytest.raises(OtherStoreError):
            open_sibling(open_store(table, {**options, "allow_other_stores": no}), named)
    assert (
        open_sibling(open_store(table, {**options, "ALLOW_OTHER_STORES": "true"}), named).uri
        == open_store(named, options).uri
    )


def test_log_can_reference_the_same_kind_of_store() -> None:
    options = {"AWS_SKIP_SIGNATURE": "true", "AWS_REGION": "x"}
    assert open_sibling(open_store("/tmp/x"), "file:///data").uri == "file:///data"
    assert open_sibling(open_store("s3://b/t", options), "s3a://other/t").uri == "s3://other/t"


def test_allow_other_stores_must_be_a_boolean() -> None:
    with pytest.raises(InvalidArgumentError, match="must be true or false"):
        open_sibling(open_store("memory://t", {"allow_other_stores": "perhaps"}), "file:///")
    assert is_storage_option("allow_foreign_files")


def test_local_stores_do_not_load_obstore() -> None:
    import subprocess
    import sys

    script = "import sys, trilake.storage as s; s.open_store('/tmp'); print('obstore' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_hadoop_option_names_are_accepted() -> None:
    s3 = {
        "fs.s3a.access.key": "k",
        "fs.s3a.secret.key": "s",
        "fs.s3a.endpoint": "http://x",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
    }
    result = store_config("s3", s3)
    assert result.config == {
        "aws_access_key_id": "k",
        "aws_secret_access_key": "s",
        "aws_endpoint": "http://x",
        "aws_virtual_hosted_style_request": "false",
    }
    assert result.client == {"allow_http": True}
    azure = {"fs.azure.account.key.lake.dfs.core.windows.net": "a2V5"}
    assert store_config("abfss", azure).config == {
        "azure_storage_account_key": "a2V5",
        "azure_storage_account_name": "lake",
    }
    assert is_storage_option("fs.fake.impl")
    # trilake's option names take precedence.
    assert store_config("s3", {"AWS_ACCESS_KEY_ID": "own", **s3}).config["aws_access_key_id"] == "own"
