"""``_last_checkpoint`` and its checksum."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trilake.delta.log.last_checkpoint import canonical_form, checksum, make_hint, read_hint

EXAMPLE = (
    '{"k0":"\'v 0\'", "checksum": "adsaskfljadfkjadfkj", "k1":{"k2": 2, "k3": ["v3", [1, 2], {"k4": "v4", "k5":'
    ' ["v5", "v6", "v7"]}]}}'
)
CANONICAL = (
    '"k0"="%27v%200%27","k1"+"k2"=2,"k1"+"k3"+0="v3","k1"+"k3"+1+0=1,"k1"+"k3"+1+1=2,"k1"+"k3"+2+"k4"="v4",'
    '"k1"+"k3"+2+"k5"+0="v5","k1"+"k3"+2+"k5"+1="v6","k1"+"k3"+2+"k5"+2="v7"'
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def test_checksum_example_of_the_specification() -> None:
    parsed = json.loads(EXAMPLE)
    assert canonical_form(parsed) == CANONICAL
    assert checksum(parsed) == "6a92d155a59bf2eecbd4b4ec7fd1f875"
    assert hashlib.md5(CANONICAL.encode()).hexdigest() == "6a92d155a59bf2eecbd4b4ec7fd1f875"


def test_canonical_form_examples_of_the_specification() -> None:
    assert canonical_form({"a": 10, "b": {"y": None, "x": "https://delta.io"}}) == (
        '"a"=10,"b"+"x"="https%3A%2F%2Fdelta.io","b"+"y"=null'
    )
    assert canonical_form([None, "hi ho", 2.71]) == '0=null,1="hi%20ho",2=2.71'
    assert canonical_form({"k1": "v1", "checksum": "<anything>", "k3": 23}) == '"k1"="v1","k3"=23'
    assert canonical_form({"a": {"checksum": True}}) == '"a"+"checksum"=true'


def test_only_reserved_octets_are_encoded_in_upper_case() -> None:
    assert canonical_form({"~-._aZ9": "ä>+/"}) == '"~-._aZ9"="%C3%A4%3E%2B%2F"'


def test_long_arrays_are_sorted_by_path_bytes() -> None:
    paths = [p.split("=")[0] for p in canonical_form({"a": list(range(12))}).split(",")]
    assert paths == sorted(paths, key=str.encode)


@given(st.dictionaries(st.text(max_size=4), JSON, max_size=4))
def test_checksum_does_not_depend_on_order(value: dict[str, Any]) -> None:
    turned = dict(reversed(value.items()))
    assert checksum(value) == checksum(turned)
    assert checksum({**value, "checksum": "x"}) == checksum({k: v for k, v in value.items() if k != "checksum"})
    assert canonical_form(value).isascii()


@given(st.integers(0, 2**62), st.integers(0, 2**40), st.none() | st.integers(1, 99))
def test_hint_round_trips(version: int, size: int, parts: int | None) -> None:
    data = make_hint(version, size=size, size_in_bytes=size, num_add_files=size, parts=parts)
    hint = read_hint(data)
    assert hint is not None
    assert (hint.version, hint.num_add_files, hint.size_in_bytes) == (version, size, size)
    parsed = json.loads(data)
    assert parsed["checksum"] == checksum(parsed)
    assert parsed.get("parts") == parts
    damaged = json.dumps({**parsed, "size": size + 1}).encode()
    assert read_hint(damaged) is None
    del parsed["checksum"]
    hint = read_hint(json.dumps(parsed).encode())
    assert hint is not None
    assert hint.version == version
