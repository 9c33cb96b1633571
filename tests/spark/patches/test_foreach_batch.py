"""Empty or conflicting arguments of ``trilake.foreach_batch``."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import trilake
from trilake.errors import InvalidArgumentError

_T, _ON = "memory://foreach", "t.id = s.id"


@pytest.mark.parametrize(
    ("words", "make"),
    [
        ("merge_schema must be True or False", lambda f: f.append(_T, merge_schema="false")),
        ("update_all must be True or False", lambda f: f.merge(_T, _ON, update_all="false")),
        ("merge_schema cannot be used together", lambda f: f.overwrite(_T, merge_schema=True, overwrite_schema=True)),
        (
            "replace_where cannot be used together",
            lambda f: f.overwrite(_T, replace_where="a = 1", overwrite_schema=True),
        ),
        (
            "replace_where cannot be used together",
            lambda f: f.overwrite(_T, replace_where="a = 1", dynamic_partitions=True),
        ),
        (
            "overwrite_schema cannot be used together",
            lambda f: f.overwrite(_T, dynamic_partitions=True, overwrite_schema=True),
        ),
        ("update cannot be used together", lambda f: f.merge(_T, _ON, update_all=True, update={"a": "s.a"})),
        ("update must not be empty", lambda f: f.merge(_T, _ON, update={}, insert_all=True)),
        ("insert must not be empty", lambda f: f.merge(_T, _ON, insert={}, update_all=True)),
        ("has no clauses", lambda f: f.merge(_T, _ON)),
    ],
)
def test_empty_or_conflicting_arguments_are_rejected(words: str, make: Callable[[object], object]) -> None:
    """Strings were truthy, an empty mapping was ignored, and one of two schema modes was dropped."""
    with pytest.raises(InvalidArgumentError, match=words):
        make(trilake.foreach_batch)
