"""AWS profiles, and the precedence of credential sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from trilake.errors import InvalidArgumentError
from trilake.storage.object import _static_keys, _with_profile
from trilake.storage.options import from_hadoop, hadoop_names, is_credential, profile_options


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = d\naws_secret_access_key = ds\n"
        "[work]\naws_access_key_id = w\naws_secret_access_key = ws\naws_session_token = wt\n"
    )
    (tmp_path / ".aws" / "config").write_text(
        "[default]\nregion = eu-west-1\n[profile work]\nregion = eu-central-1\nendpoint_url = http://minio:9000\n"
        "[profile sso]\nsso_session = corp\nregion = us-east-1\n"
    )
    return tmp_path


def test_profile_keys_and_settings_are_read(home: Path) -> None:
    assert profile_options(None, {}, credentials=False, home=home) == {
        "aws_access_key_id": "d",
        "aws_secret_access_key": "ds",
        "aws_region": "eu-west-1",
    }
    result = profile_options(None, {"AWS_PROFILE": "work"}, credentials=False, home=home)
    assert result["aws_session_token"] == "wt"
    assert result["aws_endpoint"] == "http://minio:9000"


def test_precedence_is_options_then_environment_then_profile(home: Path) -> None:
    environment = {"AWS_ACCESS_KEY_ID": "e", "AWS_REGION": "r"}
    assert profile_options(None, environment, credentials=False, home=home) == {}
    assert profile_options(None, {}, credentials=True, home=home) == {"aws_region": "eu-west-1"}
    # A profile requested by option takes precedence over the environment.
    assert profile_options("work", environment, credentials=False, home=home)["aws_access_key_id"] == "w"


def test_profile_without_keys_is_rejected(home: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="sso_session"):
        profile_options("sso", {}, credentials=False, home=home)
    with pytest.raises(InvalidArgumentError, match="AWS profile 'none' does not exist"):
        profile_options("none", {}, credentials=False, home=home)
    assert profile_options(None, {}, credentials=False, home=home / "missing") == {}


def test_options_override_a_profile(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(home))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    given = {"aws_profile": "work", "region": "mars", "endpoint_url": "http://other"}
    result = _with_profile(given)
    assert result["aws_access_key_id"] == "w"
    assert "aws_region" not in result
    assert "aws_endpoint" not in result
    assert "aws_profile" not in result
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    assert _with_profile(keys) == {**keys, "aws_region": "eu-west-1"}


def test_static_keys_ignore_the_environment_session_token(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    assert _static_keys(keys) is None
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of someone else")
    provider = _static_keys(keys)
    assert provider is not None
    assert provider()["token"] is None
    assert _static_keys({**keys, "aws_session_token": "mine"}) is None


def test_hadoop_per_bucket_settings_take_precedence() -> None:
    given = {
        "fs.s3a.access.key": "all",
        "fs.s3a.bucket.lake.access.key": "lake's",
        "fs.s3a.bucket.other.access.key": "other's",
        "fs.s3a.endpoint": "minio:9000",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider",
    }
    assert from_hadoop(given, bucket="lake") == {
        "aws_access_key_id": "lake's",
        "aws_endpoint": "http://minio:9000",
        "allow_http": "true",
        "aws_virtual_hosted_style_request": "false",
        "aws_skip_signature": "true",
    }
    assert "fs.s3a.bucket.lake.access.key" in hadoop_names("s3", "lake")


def test_hadoop_settings_for_azure_and_google() -> None:
    account = "acc.dfs.core.windows.net"
    names = hadoop_names("abfss", f"c@{account}")
    assert f"fs.azure.account.key.{account}" in names
    oauth = {
        f"fs.azure.account.oauth2.client.id.{account}": "i",
        f"fs.azure.account.oauth2.client.secret.{account}": "s",
        f"fs.azure.account.oauth2.client.endpoint.{account}": "https://login.microsoftonline.com/tenant/oauth2/token",
    }
    assert set(oauth) <= set(names)
    assert from_hadoop(oauth) == {"azure_client_id": "i", "azure_client_secret": "s", "azure_tenant_id": "tenant"}
    key = {"fs.gs.auth.service.account.json.keyfile": "/k.json"}
    assert set(key) <= set(hadoop_names("gs", "b"))
    assert from_hadoop(key) == {"google_service_account": "/k.json"}
    assert all(is_credential(n) for n in ("azure_client_secret", "google_service_account", "AWS_SESSION_TOKEN"))
    assert not is_credential("azure_storage_account_name")


def test_user_without_home_has_no_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run under a user id without a name; opening an S3 store raised RuntimeError."""

    def no_user(_: int) -> None:
        raise KeyError

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", no_user)
    assert profile_options(None, {}, credentials=False) == {}
    with pytest.raises(InvalidArgumentError, match="AWS profile 'work' does not exist"):
        profile_options("work", {}, credentials=False)
