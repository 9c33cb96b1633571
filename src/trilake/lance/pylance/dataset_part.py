"""``DatasetPart``: the methods of a dataset about one subject, in an object of their own."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, Generic, ParamSpec, TypeVar

from trilake.lance.commands.open_dataset import OpenDataset

D = TypeVar("D", bound=OpenDataset)
P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


class DatasetPart(Generic[D]):
    """Methods of a dataset about one subject; the dataset offers them under the same names, see :func:`of_part`."""

    def __init__(self, dataset: D) -> None:
        self._dataset = dataset


def of_part(part: Callable[[D], S], method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[D, P], R]:
    """Return a method of the dataset that calls the method of its part, with the same signature and docstring."""
    # Python's errors about wrong arguments should name the class that was called.
    method.__qualname__ = f"LanceDataset.{method.__name__}"

    @wraps(method)
    def delegate(dataset: D, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(part(dataset), *args, **kwargs)

    return delegate
