"""Commands on an object store, with ``--option`` for the store's settings."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import uuid4

import pytest

from tests.cli.running import Ran, run


@pytest.mark.parametrize("format", ["delta", "lance", "trevni"])
def test_commands_on_an_object_store(s3_options: Mapping[str, str], format: str) -> None:
    uri = f"s3://lake/{uuid4().hex}"
    options = [part for k, v in s3_options.items() for part in ("--option", f"{k}={v}")]

    def on_store(command: str, *more: str, input: str | None = None) -> Ran:
        done = run(command, uri, *more, *options, input=input)
        assert done.code == 0, done.err
        return done

    on_store("write", "--from", "csv", "--format", format, input="id,kind\n1,a\n2,b\n")
    on_store("write", "--from", "csv", "--format", format, "--mode", "append", input="id,kind\n3,a\n")
    assert on_store("count", "--json").json["count"] == 3
    assert on_store("info", "--json").json["format"] == format
    assert len(on_store("head", "--json").json) == 3
    assert on_store("verify", "--json").json["ok"]
    total = run("query", f"SELECT max(id) AS s FROM '{uri}'", "--json", *options)
    assert total.json == [{"s": 3}]
    if format != "trevni":
        assert len(on_store("history", "--json").json) == 2
        on_store("optimize")
        on_store("vacuum")
    wrong = run("info", f"{uri}-nosuch", "--json", *options)
    assert wrong.code != 0
    assert "AWS_SECRET" not in wrong.err
