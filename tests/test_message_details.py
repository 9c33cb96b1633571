"""Details that users see: filter errors, sizes, and names in tab completion."""

from __future__ import annotations

import pytest

import trilake
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import FilterError, TrilakeError

URI = "memory://small-words"


@pytest.fixture
def table() -> ArrowDeltaTable:
    """A table of 28 kB."""
    trilake.write({"n": list(range(5_000)), "l": [["x"]] * 5_000}, URI, mode="overwrite")
    opened = trilake.open(URI)
    assert isinstance(opened, ArrowDeltaTable)
    return opened


@pytest.mark.parametrize("filter", ["n >", "(((", "n ==> 3", "n between 1", "n > 1 AND", "NOT", "abs(", "n in (", "-"])
def test_filter_error_hides_parser_classes(table: ArrowDeltaTable, filter: str) -> None:
    for read in (table.to_pandas, table.to_arrow):
        with pytest.raises(FilterError) as rejected:
            read(filter=filter)
        assert "sqlglot" not in str(rejected.value)
        assert "<class" not in str(rejected.value)


def test_rejected_expression_names_its_column(table: ArrowDeltaTable) -> None:
    with pytest.raises(TrilakeError, match=r"ARRAY\(\).*column: l") as rejected:
        table.update({"l": "ARRAY()"})
    assert rejected.value.context["column"] == "l"


def test_small_sizes_are_not_shown_as_zero(table: ArrowDeltaTable) -> None:
    trilake.write({"n": [1]}, URI, mode="append")
    shown = repr(trilake.open(URI).optimize())  # type: ignore[attr-defined]
    assert " kB -> " in shown
    assert "0.0 MB" not in shown


def test_builders_list_only_their_methods(table: ArrowDeltaTable) -> None:
    merge = table.merge({"n": [1]}, "target.n = source.n")
    assert "when_matched_delete" in dir(merge)
    for builder in (merge, merge.when_matched_delete(), trilake.alter(URI)):
        assert all(callable(getattr(builder, name)) for name in dir(builder))
        assert not {"log", "source", "request", "cached", "runtime", "run"} & set(dir(builder))
        assert not any(name.startswith("_") for name in dir(builder))
