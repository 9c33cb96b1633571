"""Parse URIs and paths into a store and a path in it.

* A string **without** a scheme is a literal local path.
* A string **with** a scheme is a URI, whose path is percent-decoded once.  Characters that a strict URI does not allow
  (a space, ``#``, ``?``) and ``+`` are literal.

References in a table's log are URIs even without a scheme: :func:`split_absolute` decodes ``/x``, too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from posixpath import normpath
from urllib.parse import quote_from_bytes, unquote_to_bytes

from trilake.common.arguments import described
from trilake.errors import InvalidArgumentError, OtherStoreError, masked
from trilake.storage.options import ALLOW_OTHER_STORES, allowed

#: Scheme -> the one used in :attr:`Store.uri`.
SCHEMES: Mapping[str, str] = {
    "file": "file",
    "memory": "memory",
    **dict.fromkeys(("s3", "s3a", "s3n"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gs"),
    **dict.fromkeys(("az", "azure", "adl"), "az"),
    **dict.fromkeys(("abfs", "abfss"), "abfss"),
}

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):(?=/)")
_SAFE = "/!$&'()*+,;=:@~"  # RFC 3986 pchar, and the slash


@dataclass(frozen=True, slots=True)
class Location:
    """A parsed URI: a value of :data:`SCHEMES`, the bucket or name (empty for files), and the decoded path."""

    scheme: str
    authority: str
    path: str

    @property
    def root(self) -> str:
        """The URI of the whole file system, bucket or container: ``file:///``, ``s3://bucket``."""
        return f"{self.scheme}://{self.authority}" + ("/" if self.scheme == "file" else "")

    @property
    def uri(self) -> str:
        """The canonical URI, percent-encoded, without a trailing slash (except for ``file:///``)."""
        if not self.path:
            return self.root
        return f"{self.scheme}://{self.authority}/{quote_from_bytes(os.fsencode(self.path), _SAFE)}"

    def child(self, key: str) -> Location:
        """The location of a key below this one."""
        return Location(self.scheme, self.authority, f"{self.path}/{key}" if self.path else key)


def is_absolute(reference: str) -> bool:
    """Whether a reference is absolute: it starts with a slash, or with a scheme, a colon and a slash.

    >>> [is_absolute(r) for r in ("s3://b/k", "file:/x", "/x", "month=3/part-0.parquet", "at=12:30/x", "a:b")]
    [True, True, True, False, False, False]
    """
    return reference.startswith("/") or _SCHEME.match(reference) is not None


def location_string(uri_or_path: str | os.PathLike[str]) -> str:
    """A location as a string.  Raises ``InvalidArgumentError`` for another type, such as an open table."""
    string = uri_or_path if isinstance(uri_or_path, str) else getattr(uri_or_path, "__fspath__", lambda: None)()
    if isinstance(string, str):
        return string
    raise InvalidArgumentError(
        f"a location must be a path or a URI, got {described(uri_or_path)}",
        help="for an open table, pass its uri and the storage options",
    )


def parse_location(uri_or_path: str | os.PathLike[str]) -> Location:
    """Parse a URI or local path.  Relative paths start at the working directory, ``~`` is the home folder.

    Raises ``InvalidArgumentError`` for another type, an empty string, an unknown scheme and a ``file`` URI with a host.

    >>> parse_location("s3a://bucket/a%20table/").uri
    's3://bucket/a%20table'
    >>> parse_location("/data/a%20b").uri == parse_location("file:/data/a%2520b").uri
    True
    """
    string = location_string(uri_or_path)
    if not string:
        raise InvalidArgumentError("a location must be a path or a URI, got an empty string")
    match = _SCHEME.match(string)
    if match is None:
        return _file_location(os.path.abspath(os.path.expanduser(_checked_path(string))))
    return _parse_uri(string, match, decoded=False)


def split_absolute(reference: str, *, decoded: bool = False) -> tuple[str, str]:
    """Split an absolute reference in a table's log, ``decoded`` or not, into a store's root URI and a key.

    The root is the whole file system or bucket, so references to many folders share one store.  ``file:/x``,
    ``file:///x`` and ``/x`` are equal, and so are ``s3a:`` and ``s3:``.  Raises ``InvalidArgumentError``.

    >>> {split_absolute(r) for r in ("file:/data/a%20b", "file:///data/a%20b", "/data/a%20b")}
    {('file:///', 'data/a b')}
    """
    match = _SCHEME.match(reference)
    if match is not None:
        location = _parse_uri(reference, match, decoded=decoded)
    elif reference.startswith("/"):
        location = _file_location(reference if decoded else _decode(reference))
    else:
        raise InvalidArgumentError(f"{reference!r} is not an absolute path or URI")
    return location.root, location.path


def check_same_kind(table_uri: str, other_uri: str, options: Mapping[str, str]) -> None:
    """Raise ``OtherStoreError`` if a table refers to another kind of store, unless options allow it."""
    here, there = _kind(table_uri), _kind(other_uri)
    if here != there and not allowed(options, ALLOW_OTHER_STORES):
        message = f"the table is in a {here!r} store, but its log refers to a {there!r} store"
        help = f'to allow it, open the table with the storage option {ALLOW_OTHER_STORES}="true"'
        raise OtherStoreError(message, help=help, file=table_uri, named=other_uri)


def _kind(uri: str) -> str:
    match = _SCHEME.match(uri)
    scheme = "file" if match is None else match[1].lower()
    scheme = SCHEMES.get(scheme, scheme)
    return "az" if scheme == "abfss" else scheme


def _parse_uri(string: str, match: re.Match[str], *, decoded: bool) -> Location:
    scheme = SCHEMES.get(match[1].lower())
    if scheme is None:
        help = f"use one of {', '.join(SCHEMES)}, or a local path (./{match[1]}:/… if that is its name)"
        raise InvalidArgumentError(f"unknown scheme {match[1]!r}", help=help, uri=string)
    if scheme != "file" and masked(string) != string:
        # A secret in a URI would end up in logs and in the commits of clones.
        message = "the URI contains a secret, such as a password, a key or a signature"
        help = "pass it as a storage option (aws_secret_access_key, azure_storage_sas_token, ...) instead"
        raise InvalidArgumentError(message, help=help, uri=string)
    rest = string[match.end() :]
    authority = ""
    if rest.startswith("//"):
        authority, _, rest = rest[2:].partition("/")
    path = rest if decoded else _decode(rest)
    if scheme == "file":
        if authority not in ("", "localhost"):
            help = f"write a local path with three slashes: file:///{authority}/{rest}"
            raise InvalidArgumentError(f"a file URI must not contain a host, got {authority!r}", help=help, uri=string)
        return _file_location("/" + path)
    if not authority:
        what = "name" if scheme == "memory" else "container" if scheme in ("az", "abfss") else "bucket"
        raise InvalidArgumentError(f"the URI has no {what}", help=f"write {scheme}://{what}/path", uri=string)
    return Location(scheme, authority, path.strip("/"))


def _checked_path(path: str) -> str:
    if "\0" in path:
        raise InvalidArgumentError("a path must not contain a NUL character", path=path.replace("\0", "\\0"))
    return path


def _file_location(path: str) -> Location:
    # POSIX allows two leading slashes to be special, but no relevant file system uses it.
    return Location("file", "", normpath(_checked_path(path)).strip("/"))


def _decode(string: str) -> str:
    return os.fsdecode(unquote_to_bytes(os.fsencode(string))) if "%" in string else string
