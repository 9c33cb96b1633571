"""Arguments of public calls, compared with what their signatures say before anything is done with them.

A name that is no text, or a list in place of a mapping, would otherwise end deep inside as an ``AttributeError``, or be
written into a log that no engine can read any more.  What a value means, its own place checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import CO_VARARGS
from types import FunctionType
from typing import Any, ParamSpec, TypeVar

import numpy as np

from trilake.errors import InvalidArgumentError

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)


def _text(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return value
    raise InvalidArgumentError(f"{name} is {_shown(value)}", help="it is a text")


def flag(name: str, value: Any) -> bool:
    """A truth value that is one: every text is true, ``"false"`` too.  Raises ``InvalidArgumentError``."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise InvalidArgumentError(f"{name} is {_shown(value)}", help="it is True or False")


def count(
    name: str, value: Any, *, least: int = 0, other_type: type[InvalidArgumentError] = InvalidArgumentError
) -> int:
    """A whole number of ``least`` or more.  Raises ``InvalidArgumentError``, and ``other_type`` for what is none."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise other_type(f"{name} is {_shown(value)}", help=f"it must be a number of {least} or more")
    if value < least:
        raise InvalidArgumentError(f"{name} is {value!r}", help=f"it must be a number of {least} or more")
    return int(value)


def _texts(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return value
    if isinstance(value, Iterable) and not isinstance(value, bytes):
        texts = tuple(value)
        wrong = [t for t in texts if not isinstance(t, str)]
        if not wrong:
            return texts
        raise InvalidArgumentError(f"{name} has {_shown(wrong[0])} in it", help="it is a list of texts")
    raise InvalidArgumentError(f"{name} is {_shown(value)}", help="it is a list of texts")


def _mapping(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        wrong = [k for k in value if not isinstance(k, str)]
        if not wrong:
            return value
        raise InvalidArgumentError(f"{name} has {_shown(wrong[0])} for a key", help="its keys are texts")
    raise InvalidArgumentError(f"{name} is {_shown(value)}", help="it is a mapping, such as a dict")


def _shown(value: object) -> str:
    plain = value is None or isinstance(value, str | bytes | int | float)
    return f"{value!r:.80}" if plain else f"a {type(value).__name__}"


#: What an annotation asks for, by its text; other annotations are left to the code that knows what they mean.
_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "str": _text,
    "bool": flag,
    "Sequence[str]": _texts,
    "str | Sequence[str]": _texts,
    "Mapping[str, str]": _mapping,
    "Mapping[str, object]": _mapping,
    "Mapping[str, Any]": _mapping,
    "Mapping[str, bytes | str]": _mapping,
}


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which refuses texts, flags, lists of texts and mappings that are none.

    >>> @checked
    ... def scan(columns: Sequence[str] | None = None) -> object:
    ...     return columns
    >>> scan(["a"]), scan()
    (('a',), None)
    >>> scan([1])
    Traceback (most recent call last):
    trilake.errors.InvalidArgumentError: [INVALID_ARGUMENT] columns has 1 in it. Help: it is a list of texts
    """
    assert isinstance(function, FunctionType)
    unchecked: Callable[..., R] = function
    checks: dict[str, tuple[Callable[[str, Any], Any], bool]] = {}
    for name, annotation in function.__annotations__.items():
        kind = str(annotation).removesuffix(" | None")
        if name != "return" and kind in _CHECKS:
            checks[name] = _CHECKS[kind], kind != annotation
    if not checks:
        return function
    code = function.__code__
    in_order = code.co_varnames[: code.co_argcount]
    # What ``*names`` takes stands behind the parameters that go by name only.
    many = code.co_varnames[code.co_argcount + code.co_kwonlyargcount] if code.co_flags & CO_VARARGS else ""

    def value_of(name: str, value: Any) -> Any:
        if name not in checks:
            return value
        check, optional = checks[name]
        return value if value is None and optional else check(name, value)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        named = [value_of(n, a) for n, a in zip(in_order, args, strict=False)]
        rest = [value_of(many, a) for a in args[len(named) :]]
        return unchecked(*named, *rest, **{n: value_of(n, a) for n, a in kwargs.items()})

    return call


def checked_methods(cls: C) -> C:
    """The class, whose public methods are :func:`checked`."""
    for name, member in list(vars(cls).items()):
        if isinstance(member, FunctionType) and not name.startswith("_"):
            setattr(cls, name, checked(member))
    return cls
