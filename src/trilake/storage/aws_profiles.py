"""AWS profiles: credentials in ``~/.aws/credentials``, settings in ``~/.aws/config``.

The profile is the option ``aws_profile``, the environment's ``AWS_PROFILE``, or ``default``.  Its keys apply where
neither options nor the environment have credentials; its region and endpoint where these are not given.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from pathlib import Path

from trilake.errors import InvalidArgumentError

#: Environment variables with credentials.
_ENVIRONMENT = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_SKIP_SIGNATURE",
)
_KEYS = {
    "aws_access_key_id": "aws_access_key_id",
    "aws_secret_access_key": "aws_secret_access_key",
    "aws_session_token": "aws_session_token",
}
_SETTINGS = {"region": "aws_region", "endpoint_url": "aws_endpoint"}
#: Profile settings that only the AWS tools can resolve.
_ELSEWHERE = ("sso_session", "sso_start_url", "credential_process", "role_arn")


def profile_options(
    profile: str | None, environment: Mapping[str, str], *, credentials: bool, home: Path | None = None
) -> dict[str, str]:
    """The options of a store in a profile.

    Parameters
    ----------
    profile: its name; ``None`` for that of the environment, or ``default``.
    environment: the process's variables.
    credentials: whether options have credentials already.
    home: the folder of the user.

    Raises ``InvalidArgumentError`` for a named profile that does not exist, or that has no keys of its own.
    """
    name = profile or environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE")
    settings = _read(name or "default", environment, home or Path(os.path.expanduser("~")))
    if settings is None:
        if name is None:
            return {}
        raise InvalidArgumentError(
            f"there is no AWS profile {name!r}",
            help="name one of ~/.aws/credentials or ~/.aws/config, or give access_key_id and secret_access_key",
        )
    out = {ours: settings[theirs] for theirs, ours in _SETTINGS.items() if theirs in settings}
    if environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION"):
        out.pop("aws_region", None)
    if environment.get("AWS_ENDPOINT_URL") or environment.get("AWS_ENDPOINT"):
        out.pop("aws_endpoint", None)
    if credentials or (profile is None and any(environment.get(v) for v in _ENVIRONMENT)):
        return out
    keys = {ours: settings[theirs] for theirs, ours in _KEYS.items() if theirs in settings}
    if not keys and name is not None and any(word in settings for word in _ELSEWHERE):
        setting = next(word for word in _ELSEWHERE if word in settings)
        raise InvalidArgumentError(
            f"the AWS profile {name!r} gets its keys by {setting}, which is not done here",
            help=f"run `aws configure export-credentials --profile {name} --format env` and set what it prints",
        )
    return {**out, **keys}


def _read(name: str, environment: Mapping[str, str], home: Path) -> dict[str, str] | None:
    """All settings of a profile in both files; ``None`` where neither has it."""
    in_config = name if name == "default" else f"profile {name}"
    files = (
        (environment.get("AWS_CONFIG_FILE") or home / ".aws" / "config", in_config),
        (environment.get("AWS_SHARED_CREDENTIALS_FILE") or home / ".aws" / "credentials", name),
    )
    out: dict[str, str] | None = None
    for path, section in files:
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError) as e:
            raise InvalidArgumentError(f"the file of AWS profiles cannot be read: {e}", file=str(path)) from e
        if parser.has_section(section):
            out = {**(out or {}), **{k: v.strip() for k, v in parser.items(section)}}
    return out
