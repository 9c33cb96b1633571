from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import trilake
from trilake.errors import InvalidArgumentError
from trilake.storage import open_store
from trilake.storage.uri import Location, is_absolute, parse_location, split_absolute

ODD = "a b%20c#d?e+f&g=h;ü'{x}*~"


@pytest.mark.parametrize(
    "text", ["/data/t", "/data/t/", "//data//t", "/data/./x/../t", "file:/data/t", "file:///data/t/"]
)
def test_spellings_of_a_local_path_are_normalized(text: str) -> None:
    assert parse_location(text).uri == "file:///data/t"


def test_paths_are_literal_and_uris_are_decoded_once(tmp_path: Path) -> None:
    by_path = open_store(tmp_path / ODD)
    by_path.put("k", b"x")
    assert (tmp_path / ODD / "k").read_bytes() == b"x"
    assert by_path.uri.startswith("file:///")
    assert "%2520" in by_path.uri
    for uri in (by_path.uri, by_path.uri.replace("file:///", "file:/"), f"file://localhost{by_path.uri[7:]}"):
        assert open_store(uri).uri == by_path.uri
        assert open_store(uri).read("k").to_pybytes() == b"x"
    # Lenient: characters that a strict URI must escape are literal, except the percent sign.
    assert parse_location("file:///" + ODD.replace("%", "%25")).path == ODD


def test_relative_and_home_paths_are_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert open_store("t/x").local_path("k") == str(tmp_path / "t/x/k")
    assert open_store(".").local_path("k") == str(tmp_path / "k")
    assert open_store("~/t").local_path("k") == str(tmp_path / "home/t/k")
    assert open_store(Path("a:b")).local_path("k") == str(tmp_path / "a:b/k")
    assert open_store("file:///~/t").local_path("k") == "/~/t/k"


def test_file_system_root_is_a_valid_store(tmp_path: Path) -> None:
    store = open_store("/")
    assert store.uri == open_store("file:///").uri == "file:///"
    assert store.local_path("a/b") == "/a/b"
    open_store(tmp_path).put("k", b"x")
    assert [m.key for m in store.list(str(tmp_path).strip("/"))] == [f"{tmp_path}/k".strip("/")]


@pytest.mark.parametrize(
    ("text", "uri", "root", "path"),
    [
        ("s3://b/a%20b/c/", "s3://b/a%20b/c", "s3://b", "a b/c"),
        ("s3a://b/a b", "s3://b/a%20b", "s3://b", "a b"),
        ("S3N://b", "s3://b", "s3://b", ""),
        ("gs://b/x+y", "gs://b/x+y", "gs://b", "x+y"),
        ("az://c/x", "az://c/x", "az://c", "x"),
        ("abfss://c@acc.dfs.core.windows.net/x", *["abfss://c@acc.dfs.core.windows.net" + e for e in ("/x", "")], "x"),
        ("memory://m/x/", "memory://m/x", "memory://m", "x"),
    ],
)
def test_object_store_uris_are_normalized(text: str, uri: str, root: str, path: str) -> None:
    location = parse_location(text)
    assert (location.uri, location.root, location.path) == (uri, root, path)
    assert parse_location(uri) == location
    assert split_absolute(text) == (root, path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("hdfs://host/x", "unknown scheme 'hdfs'"),
        ("dbfs:/x", "unknown scheme 'dbfs'"),
        ("file://data/t", "three slashes: file:///data/t"),
        ("s3://", "has no bucket"),
        ("s3:/b/x", "has no bucket"),
        ("az:///x", "has no container"),
        ("memory://", "has no name"),
        ("/a\0b", "NUL"),
        ("~nobody\0/a", "NUL"),
        ("file:///a%00b", "NUL"),
    ],
)
def test_invalid_location_is_rejected(text: str, says: str) -> None:
    with pytest.raises(InvalidArgumentError, match=says):
        open_store(text)


@pytest.mark.parametrize("given", [None, 5, b"/data/t", object()])
def test_non_string_location_is_rejected(given: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"must be a path or a URI, got (None|5|b'|a object)"):
        parse_location(given)


def test_open_table_is_rejected_as_location(tmp_path: Path) -> None:
    trilake.write({"a": [1]}, tmp_path)
    table: Any = trilake.open(tmp_path)
    for call in (trilake.open, trilake.alter, trilake.repair, lambda t: trilake.write({"a": [2]}, t, mode="append")):
        with pytest.raises(InvalidArgumentError, match="pass its uri"):
            call(table)
    trilake.write({"a": [2]}, table.uri, mode="append")


def test_split_absolute_decodes_plain_paths_from_logs() -> None:
    one = ("file:///", "some/pa th/a%20b")
    assert split_absolute("/some/pa%20th/a%2520b") == one
    assert split_absolute("file:/some/pa%20th/a%2520b") == one
    assert split_absolute("file:///some/pa%20th/a%2520b") == one
    assert split_absolute("/some/pa th/a%20b", decoded=True) == one
    assert split_absolute("file:/some/pa th/a%20b", decoded=True) == one
    assert split_absolute("s3a://b/p=a%2520b/x", decoded=True) == ("s3://b", "p=a%2520b/x")
    with pytest.raises(InvalidArgumentError, match="not an absolute"):
        split_absolute("part-0.parquet")


def test_relative_references_are_not_absolute() -> None:
    for reference in ("x", "p=1/x", "a:b/c", "t=12:00/x", "", "..", "C:x"):
        assert not is_absolute(reference)


@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0/"), min_size=1).filter(
        lambda s: s.strip(".")
    )
)
def test_every_name_round_trips_through_its_uri(name: str) -> None:
    for scheme, authority in (("file", ""), ("s3", "b")):
        location = Location(scheme, authority, f"x/{name}/y")
        assert parse_location(location.uri) == location
        assert split_absolute(location.uri) == (location.root, location.path)
        assert location.uri.isascii()


def test_non_utf8_names_round_trip_through_their_uri() -> None:
    location = parse_location("/x/" + os.fsdecode(b"\xff"))
    assert location.uri == "file:///x/%FF"
    assert parse_location(location.uri) == location
