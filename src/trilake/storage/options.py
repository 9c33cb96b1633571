"""Options of object stores, named as in deltalake and obstore, in any case.

========== =========================================================================================================
``s3``     ``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``, ``AWS_SESSION_TOKEN``, ``AWS_REGION``,
           ``AWS_ENDPOINT_URL``, ``AWS_SKIP_SIGNATURE``, ``AWS_VIRTUAL_HOSTED_STYLE_REQUEST``, ...
``gs``     ``GOOGLE_SERVICE_ACCOUNT``, ``GOOGLE_SERVICE_ACCOUNT_KEY``, ``GOOGLE_APPLICATION_CREDENTIALS``, ...
``az``     ``AZURE_STORAGE_ACCOUNT_NAME``, ``AZURE_STORAGE_ACCOUNT_KEY``, ``AZURE_STORAGE_SAS_TOKEN``,
           ``AZURE_CLIENT_ID``, ``AZURE_CLIENT_SECRET``, ``AZURE_TENANT_ID``, ...
all        ``allow_http``, ``timeout``, ``connect_timeout``, ``proxy_url``, ``max_retries``, ``retry_timeout``,
           ``backoff_config.init_backoff``, ``backoff_config.max_backoff``, ``backoff_config.base``
========== =========================================================================================================

Hadoop's names (``fs.s3a.access.key``, ``fs.azure.account.key.<account>...``) are also accepted.  The prefix is optional
(``region``, ``endpoint_url``).  Environment variables with the long names are the defaults (``AWS_ENDPOINT_URL``,
``AWS_ALLOW_HTTP``).  Durations are written ``"30s"``, ``"500ms"``, ``"3 minutes"``.

Two options apply to all stores, including local ones, and are ``"false"`` by default.
``allow_foreign_files``: allow a new table in a folder with other files.
``allow_other_stores``: allow references to another kind of store, such as ``file:///x`` in a table on S3.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from trilake.common.option_values import flag
from trilake.errors import InvalidArgumentError, UnknownOptionError

#: Scheme of a store -> prefix of its options.
PREFIXES: Mapping[str, tuple[str, ...]] = {"s3": ("aws_",), "gs": ("google_",), "az": ("azure_",), "abfss": ("azure_",)}
_ANY_PREFIX = tuple({p for prefixes in PREFIXES.values() for p in prefixes})

#: Other libraries' names of obstore options.
ALIASES: Mapping[str, str] = {
    "aws_storage_allow_http": "allow_http",
    "aws_allow_http": "allow_http",
    "azure_storage_allow_http": "allow_http",
    "azure_allow_http": "allow_http",
    "google_storage_allow_http": "allow_http",
    "aws_s3_endpoint": "aws_endpoint",
}

#: Synonyms of a setting, without prefix -> its main name.
_SPELLINGS: Mapping[str, str] = {
    "endpoint_url": "endpoint",
    "token": "session_token",
    "storage_account_name": "account_name",
    "storage_account_key": "account_key",
    "access_key": "account_key",
    "storage_sas_token": "sas_token",
    "storage_sas_key": "sas_token",
    "sas_key": "sas_token",
}

#: Hadoop's option names.  Other options that start with ``fs.`` configure Hadoop's classes and are ignored.
HADOOP: Mapping[str, str] = {
    "fs.s3a.access.key": "aws_access_key_id",
    "fs.s3a.secret.key": "aws_secret_access_key",
    "fs.s3a.session.token": "aws_session_token",
    "fs.s3a.endpoint": "aws_endpoint",
    "fs.s3a.endpoint.region": "aws_region",
    "fs.s3a.assumed.role.arn": "aws_role_arn",
    "fs.gs.auth.service.account.json.keyfile": "google_service_account",
    "google.cloud.auth.service.account.json.keyfile": "google_service_account",
    "fs.azure.account.oauth2.client.id": "azure_client_id",
    "fs.azure.account.oauth2.client.secret": "azure_client_secret",
}
_HADOOP_PREFIX = "fs."
#: Hadoop's names that need a conversion.
_PATH_STYLE, _SSL = "fs.s3a.path.style.access", "fs.s3a.connection.ssl.enabled"
_PROVIDER, _TENANT = "fs.s3a.aws.credentials.provider", "fs.azure.account.oauth2.client.endpoint"
#: ``fs.azure.account.key.<account>.dfs.core.windows.net``, the same for a fixed SAS token, and so on.
_AZURE = re.compile(r"fs\.azure\.(account\.key|sas\.fixed\.token)(?:\.([^.]+)\..*)?")
_AZURE_NAMES = {"account.key": "azure_storage_account_key", "sas.fixed.token": "azure_storage_sas_token"}


def _names(table: str) -> frozenset[str]:
    return frozenset(table.split())


#: Credentials, without prefix.
_CREDENTIALS = _names(
    """
    access_key_id secret_access_key session_token token skip_signature role_arn web_identity_token_file profile
    service_account service_account_path service_account_key application_credentials bearer_token
    storage_account_key account_key access_key client_id client_secret storage_sas_token storage_sas_key sas_token
    sas_key storage_token federated_token_file use_azure_cli
    """
)

#: Ignored options: nothing is renamed in an object store.
_IGNORED = frozenset({"aws_s3_allow_unsafe_rename", "allow_unsafe_rename", "aws_ec2_metadata_disabled"})
#: Options of trilake.
ALLOW_FOREIGN_FILES, ALLOW_OTHER_STORES = "allow_foreign_files", "allow_other_stores"
_PERMISSIONS = frozenset({ALLOW_FOREIGN_FILES, ALLOW_OTHER_STORES})

_RETRY = ("max_retries", "retry_timeout")
_BACKOFF = ("backoff_config.init_backoff", "backoff_config.max_backoff", "backoff_config.base")

#: Options of any store, without prefix.
_BARE = _names(
    """
    access_key_id bucket checksum_algorithm conditional_put container_authorization_token_file
    container_credentials_full_uri container_credentials_relative_uri copy_if_not_exists default_region
    disable_bulk_delete
    disable_tagging endpoint endpoint_url imdsv1_fallback metadata_endpoint region request_payer role_arn
    role_session_name s3_express secret_access_key server_side_encryption session_token skip_signature
    sse_bucket_key_enabled sse_customer_key_base64 sse_kms_key_id sts_endpoint token unsigned_payload
    virtual_hosted_style_request web_identity_token_file
    service_account service_account_path service_account_key base_url bearer_token application_credentials
    account_name account_key client_id client_secret credential_type tenant_id authority_host sas_key sas_token
    use_emulator use_fabric_endpoint encryption_key msi_endpoint object_id msi_resource_id federated_token_file
    use_azure_cli container_name
    """
)

#: Options of the HTTP client.
_CLIENT = _names(
    """
    allow_http allow_invalid_certificates connect_timeout default_content_type http1_only http2_only
    http2_keep_alive_interval http2_keep_alive_timeout http2_keep_alive_while_idle pool_idle_timeout
    pool_max_idle_per_host proxy_url proxy_ca_certificate proxy_excludes randomize_addresses read_timeout
    root_certificate timeout user_agent
    """
)

_SWITCHES = frozenset({"allow_http", "allow_invalid_certificates", "http1_only", "http2_only", "randomize_addresses"})


@dataclass(frozen=True)
class StoreConfig:
    """Options of obstore: for the store, its HTTP client and its retries."""

    config: Mapping[str, str] = field(default_factory=dict, repr=False)
    client: Mapping[str, object] = field(default_factory=dict, repr=False)
    retry: Mapping[str, object] = field(default_factory=dict)


def is_storage_option(name: str) -> bool:
    """Whether an option is for the store rather than the table.

    >>> [is_storage_option(n) for n in ("AWS_REGION", "allow_http", "versionAsOf")]
    [True, True, False]
    """
    key = name.lower()
    return key.startswith((*_ANY_PREFIX, _HADOOP_PREFIX)) or any(
        key in names for names in (_BARE, _CLIENT, _IGNORED, _PERMISSIONS, _RETRY, _BACKOFF)
    )


def allowing_foreign(options: Mapping[str, str] | None, foreign_files: bool) -> dict[str, str]:
    """Add ``allow_foreign_files`` to the options, if ``foreign_files`` is true."""
    return {**(options or {}), **({ALLOW_FOREIGN_FILES: "true"} if foreign_files else {})}


def allowed(options: Mapping[str, str], permission: str) -> bool:
    """Whether a boolean option is true.  Raises ``InvalidArgumentError`` for another value.

    >>> allowed({"Allow_Other_Stores": "true"}, ALLOW_OTHER_STORES), allowed({}, ALLOW_OTHER_STORES)
    (True, False)
    """
    return any(flag(name, str(value)) for name, value in options.items() if name.lower() == permission)


def setting(name: str) -> str:
    """The main name of an option's setting.

    >>> [setting(n) for n in ("AWS_ENDPOINT_URL", "endpoint", "aws_endpoint", "AWS_ALLOW_HTTP")]
    ['endpoint', 'endpoint', 'endpoint', 'allow_http']
    """
    key = _split_prefix(ALIASES.get(name.lower(), name.lower()))[1]
    return _SPELLINGS.get(key, key)


def missing_options(options: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """The options whose settings none of ``names`` sets, in any spelling.

    >>> missing_options({"aws_endpoint": "a", "aws_region": "r"}, ["AWS_ENDPOINT_URL", "azure_region"])
    {'aws_region': 'r'}
    """
    settings = {(_split_prefix(name.lower())[0], setting(name)) for name in names}
    return {
        name: value
        for name, value in options.items()
        if not settings & {(prefix, setting(name)) for prefix in ("", _split_prefix(name.lower())[0])}
    }


def _split_prefix(key: str) -> tuple[str, str]:
    prefix = next((p for p in _ANY_PREFIX if key.startswith(p)), "")
    return prefix, key.removeprefix(prefix)


def is_credential(name: str) -> bool:
    """Whether an option is a credential; credentials of different sources must not be mixed.

    >>> [is_credential(n) for n in ("AWS_SESSION_TOKEN", "account_key", "aws_region")]
    [True, True, False]
    """
    return _split_prefix(name.lower())[1] in _CREDENTIALS


def hadoop_names(scheme: str, authority: str) -> list[str]:
    """Hadoop's option names to look up for a bucket, or for ``container@account.dfs.core.windows.net``."""
    if scheme == "s3":
        names = [n for n in (*HADOOP, _PATH_STYLE, _SSL, _PROVIDER) if n.startswith("fs.s3a.")]
        return names + [n.replace("fs.s3a.", f"fs.s3a.bucket.{authority}.", 1) for n in names]
    if scheme == "gs":
        return [n for n in HADOOP if n.startswith(("fs.gs.", "google."))]
    account = authority.rpartition("@")[2]
    plain = [n for n in (*HADOOP, _TENANT) if n.startswith("fs.azure.")]
    keyed = [*plain, "fs.azure.account.key", "fs.azure.sas.fixed.token"]
    return plain + ([f"{n}.{account}" for n in keyed] if "." in account else [])


def from_hadoop(options: Mapping[str, str], *, bucket: str = "") -> dict[str, str]:
    """Translate options with Hadoop's names; drop ignored ones.

    Settings of a ``bucket`` (``fs.s3a.bucket.<bucket>.access.key``) override general ones.

    >>> from_hadoop({"fs.s3a.access.key": "k", "fs.s3a.impl": "x", "AWS_REGION": "r"})
    {'aws_access_key_id': 'k', 'AWS_REGION': 'r'}
    >>> from_hadoop({"fs.s3a.endpoint": "minio:9000", "fs.s3a.connection.ssl.enabled": "false"})
    {'aws_endpoint': 'http://minio:9000', 'allow_http': 'true'}
    """
    native = {name: value for name, value in options.items() if not _is_hadoop(name.lower())}
    hadoop = {name.lower(): str(value) for name, value in options.items() if _is_hadoop(name.lower())}
    bucket_prefix = f"fs.s3a.bucket.{bucket.lower()}."
    own = {n.removeprefix(bucket_prefix): v for n, v in hadoop.items() if bucket and n.startswith(bucket_prefix)}
    hadoop |= {f"fs.s3a.{n}": v for n, v in own.items()}
    translated: dict[str, str] = {}
    for key, value in hadoop.items():
        azure = _AZURE.fullmatch(key)
        plain = re.sub(r"^(fs\.azure\.account\.oauth2\.client\.(?:id|secret|endpoint))\..*", r"\1", key)
        if key in HADOOP:
            translated[HADOOP[key]] = value
        elif plain in HADOOP:
            translated[HADOOP[plain]] = value
        elif plain == _TENANT:
            translated["azure_tenant_id"] = value.partition("://")[2].split("/")[1] if value.count("/") > 2 else value
        elif key == _PATH_STYLE:
            translated["aws_virtual_hosted_style_request"] = _opposite(value)
        elif key == _SSL:
            translated["allow_http"] = _opposite(value)
        elif key == _PROVIDER and "Anonymous" in value:
            translated["aws_skip_signature"] = "true"
        elif azure is not None:
            translated[_AZURE_NAMES[azure[1]]] = value
            if azure[2] is not None:
                translated["azure_storage_account_name"] = azure[2]
    endpoint = translated.get("aws_endpoint", "")
    if endpoint and "://" not in endpoint:
        translated["aws_endpoint"] = f"{'http' if translated.get('allow_http') == 'true' else 'https'}://{endpoint}"
    elif endpoint.startswith("http://"):
        translated["allow_http"] = "true"
    if not endpoint:
        translated.pop("aws_endpoint", None)
    return {**missing_options(translated, native), **native}


def _is_hadoop(key: str) -> bool:
    return key.startswith(_HADOOP_PREFIX) or key in HADOOP


def _opposite(value: object) -> str:
    return "false" if str(value).lower() == "true" else "true"


def store_config(scheme: str, options: Mapping[str, str], bucket: str = "") -> StoreConfig:
    """Sort ``options`` for a store of ``scheme``; those of other providers are ignored.

    Raises ``UnknownOptionError``, and ``InvalidArgumentError`` for an invalid value or a locking provider.
    """
    config: dict[str, str] = {}
    client: dict[str, object] = {}
    retry: dict[str, object] = {}
    backoff: dict[str, object] = {}
    for name, value in from_hadoop(options, bucket=bucket).items():
        key = name.lower()
        key = ALIASES.get(key, key)
        # Callers may pass booleans and numbers.
        string = str(value)
        string = string.lower() if string in ("True", "False") else string
        if key == "aws_s3_locking_provider":
            raise InvalidArgumentError(
                "an external locking provider is not supported: trilake commits by conditional writes, so it and a"
                " writer that uses locks could commit the same version",
                help="leave the option out, and use conditional writes in all writers of the table",
                option=name,
            )
        if not is_storage_option(key):
            raise UnknownOptionError(
                f"unknown storage option {name!r}", help="see trilake.storage.options for the names", option=name
            )
        if key in _PERMISSIONS:
            flag(name, string)
            continue
        if key in _IGNORED or (key.startswith(_ANY_PREFIX) and not key.startswith(PREFIXES[scheme])):
            continue
        if key == "max_retries":
            retry[key] = _integer(name, string)
        elif key == "retry_timeout":
            retry[key] = _duration(name, string)
        elif key == "backoff_config.base":
            backoff["base"] = _integer(name, string)
        elif key in _BACKOFF:
            backoff[key.removeprefix("backoff_config.")] = _duration(name, string)
        elif key in _CLIENT:
            client[key] = flag(name, string) if key in _SWITCHES else string
        else:
            config[key] = string
    if backoff:
        retry["backoff"] = backoff
    return StoreConfig(config, client, retry)


_UNITS = {"ms": 0.001, "s": 1.0, "sec": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0, "h": 3600.0}


def _duration(option: str, value: str) -> timedelta:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", value.lower())
    unit = None if match is None else _UNITS.get(match[2], _UNITS.get(match[2].removesuffix("s")))
    if match is None or unit is None:
        raise InvalidArgumentError(f"expected a duration, such as '30s' or '500ms', got {value!r}", option=option)
    return timedelta(seconds=float(match[1]) * unit)


def _integer(option: str, value: str) -> int:
    if not re.fullmatch(r"\d{1,9}", value):
        raise InvalidArgumentError(f"expected an integer, got {value!r}", option=option)
    return int(value)


# --- AWS profiles: credentials in ~/.aws/credentials, settings in ~/.aws/config ---------------------------------------
# The profile is the option `aws_profile`, the environment's `AWS_PROFILE`, or `default`.  Its keys are used if neither
# options nor the environment have credentials; its region and endpoint if these are not set.

#: Environment variables with credentials.
_ENVIRONMENT = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_SKIP_SIGNATURE",
)
_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
_SETTINGS = {"region": "aws_region", "endpoint_url": "aws_endpoint"}
#: Profile settings that need the AWS tools.
_ELSEWHERE = ("sso_session", "sso_start_url", "credential_process", "role_arn")


def profile_options(
    profile: str | None, environment: Mapping[str, str], *, credentials: bool, home: Path | None = None
) -> dict[str, str]:
    """The store options in an AWS profile, by default the environment's, or ``default``.

    ``credentials`` indicates whether options have credentials.  Raises ``InvalidArgumentError`` for a named profile
    that does not exist or has no keys.
    """
    name = profile or environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE")
    settings = _read(name or "default", environment, home or Path(os.path.expanduser("~")))
    if settings is None:
        if name is None:
            return {}
        raise InvalidArgumentError(
            f"AWS profile {name!r} does not exist",
            help="name a profile in ~/.aws/credentials or ~/.aws/config, or pass access_key_id and secret_access_key",
        )
    out = {option: settings[key] for key, option in _SETTINGS.items() if key in settings}
    if environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION"):
        out.pop("aws_region", None)
    if environment.get("AWS_ENDPOINT_URL") or environment.get("AWS_ENDPOINT"):
        out.pop("aws_endpoint", None)
    if credentials or (profile is None and any(environment.get(v) for v in _ENVIRONMENT)):
        return out
    keys = {name: settings[name] for name in _KEYS if name in settings}
    if not keys and name is not None and any(word in settings for word in _ELSEWHERE):
        setting = next(word for word in _ELSEWHERE if word in settings)
        raise InvalidArgumentError(
            f"AWS profile {name!r} gets its keys from {setting}, which is not supported",
            help=f"run `aws configure export-credentials --profile {name} --format env` and set the"
            " environment variables that it prints",
        )
    return {**out, **keys}


def _read(name: str, environment: Mapping[str, str], home: Path) -> dict[str, str] | None:
    """All settings of a profile in both files; ``None`` if neither has it."""
    import configparser

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
            raise InvalidArgumentError(f"the AWS profiles cannot be read: {e}", file=str(path)) from e
        if parser.has_section(section):
            out = {**(out or {}), **{k: v.strip() for k, v in parser.items(section)}}
    return out
