"""Notebook display: values are never markup, and displaying runs no job and reads no file."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import trilake
from trilake.common import display
from trilake.common.display import arrow_of, card, table_of
from trilake.storage.local import LocalStore

HOSTILE = "<script>alert(1)</script>\u202e"


def test_values_are_never_markup() -> None:
    shown = card(HOSTILE, [(HOSTILE, HOSTILE), ("list", (HOSTILE,)), ("map", {HOSTILE: HOSTILE})])
    shown += table_of([HOSTILE], [[HOSTILE]]) + arrow_of(pa.table({HOSTILE: [HOSTILE]}))
    assert "<script" not in shown
    assert "\u202e" not in shown
    assert shown.count("&lt;script&gt;") == 10


def test_large_tables_are_cut() -> None:
    wide = pa.table({f"c{i}": range(1000) for i in range(100)})
    shown = arrow_of(wide)
    assert len(shown) < 30_000
    assert "and 980 more rows" in shown
    assert "1,000 rows, 100 columns, 70 not shown" in shown


def test_tables_with_any_type_and_duplicate_names_are_shown() -> None:
    columns = [pa.array([{"a": [1, None]}]), pa.array([b"\x00"]), pa.array([dt.date(2026, 1, 1)]), pa.nulls(1)]
    shown = arrow_of(pa.Table.from_arrays(columns, ["x", "x", "y", "z"]))
    assert "{&#x27;a&#x27;: [1, None]}" in shown
    assert "2026-01-01" in shown
    assert "0 rows, 0 columns" in arrow_of(pa.table({}))


def test_command_results_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = str(tmp_path / "t")
    rows = pa.table({"n": range(100), HOSTILE[:8].strip("<"): ["x"] * 100})
    results: list[Any] = [trilake.write(rows, uri)]
    results += [trilake.write(rows, uri, mode="append"), trilake.open(uri).delete("n < 5")]
    results += [trilake.open(uri).optimize(), trilake.open(uri).vacuum(dry_run=True, retention_hours=200)]
    results += [trilake.open(uri).restore(0), trilake.open(uri).clone(str(tmp_path / "clone"))]
    results += [trilake.open(uri).generate(), trilake.convert(uri, str(tmp_path / "lance"), format="lance")]
    results += [trilake.open(uri), trilake.open(uri).explain("n > 3")]
    # Only existing results are shown: nothing is read.
    monkeypatch.setattr(LocalStore, "read", _fail)
    monkeypatch.setattr(LocalStore, "list", _fail)
    shown = [r._repr_html_() for r in results]
    assert all("<table>" in s for s in shown)
    assert '<b>Write</b><table><tbody><tr><th scope="row">version</th><td>0</td>' in shown[0]
    assert '<th scope="row">deleted rows</th><td>10</td>' in shown[2]
    assert "Optimize" in shown[3]
    assert "what would be deleted" in shown[4]
    assert '<th scope="row">read back and compared</th><td>yes</td>' in shown[8]


def _fail(*_: object, **__: object) -> None:
    raise AssertionError("a display reads")


class _Formatter(dict[str, Any]):
    """IPython's formatter registration by class name."""

    def for_type_by_name(self, module: str, name: str, function: Any) -> None:
        self[f"{module}.{name}"] = function


class _Shell:
    def __init__(self) -> None:
        self.html = _Formatter()
        self.display_formatter = self
        self.formatters = {"text/html": self.html}


def test_extension_shows_histories_and_is_unloaded() -> None:
    shell = _Shell()
    trilake.load_ipython_extension(shell)  # type: ignore[attr-defined]
    kind = type(pa.table({}))
    shown = shell.html[f"{kind.__module__}.{kind.__name__}"](pa.table({"version": [3]}))
    assert "<td>3</td>" in shown
    trilake.unload_ipython_extension(shell)  # type: ignore[attr-defined]
    assert not shell.html
    display.unload_ipython_extension(shell)  # unloading twice is not an error
