"""``delta.exceptions``: each name is a class of its own below the one that stands for all."""

from __future__ import annotations

import delta
import delta.exceptions as names
import trilake


def test_a_conflict_is_caught_by_its_own_name_and_by_no_other() -> None:
    classes = {n: getattr(names, n) for n in names.__all__}
    base = classes.pop("DeltaConcurrentModificationException")
    assert len(set(classes.values())) == len(classes) == 7
    for name, kind in classes.items():
        assert issubclass(kind, base)
        assert kind is not base
        others = [n for n, other in classes.items() if n != name and issubclass(kind, other)]
        assert others == []


def test_the_version_is_that_of_delta_spark() -> None:
    """``delta.__version__`` was an AttributeError."""
    from delta.version import __version__

    assert delta.__version__ == __version__
    assert [int(part) for part in __version__.split(".")] >= [4, 0, 0]
    assert __version__ != trilake.__version__
