"""``delta.exceptions``: each name is a separate subclass of the common base; and the client's names."""

from __future__ import annotations

import delta
import delta.connect.exceptions as connect_names
import delta.connect.tables as connect_tables
import delta.exceptions as names
import trilake
from delta import tables


def test_each_conflict_class_catches_only_its_conflict() -> None:
    classes = {n: getattr(names, n) for n in names.__all__}
    base = classes.pop("DeltaConcurrentModificationException")
    assert len(set(classes.values())) == len(classes) == 7
    for name, kind in classes.items():
        assert issubclass(kind, base)
        assert kind is not base
        others = [n for n, other in classes.items() if n != name and issubclass(kind, other)]
        assert others == []


def test_version_is_that_of_delta_spark() -> None:
    """``delta.__version__`` was an AttributeError."""
    from delta.version import __version__

    assert delta.__version__ == __version__
    assert [int(part) for part in __version__.split(".")] >= [4, 0, 0]
    assert __version__ != trilake.__version__


def test_connect_client_names_are_the_same_classes() -> None:
    for client, here in ((connect_tables, tables), (connect_names, names)):
        assert client.__all__ == here.__all__
        assert all(getattr(client, name) is getattr(here, name) for name in here.__all__)
