"""``delta.exceptions``: each name is a class of its own below the one that stands for all."""

from __future__ import annotations

import delta.exceptions as names


def test_a_conflict_is_caught_by_its_own_name_and_by_no_other() -> None:
    classes = {n: getattr(names, n) for n in names.__all__}
    base = classes.pop("DeltaConcurrentModificationException")
    assert len(set(classes.values())) == len(classes) == 7
    for name, kind in classes.items():
        assert issubclass(kind, base)
        assert kind is not base
        others = [n for n, other in classes.items() if n != name and issubclass(kind, other)]
        assert others == []
