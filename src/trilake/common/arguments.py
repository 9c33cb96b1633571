"""Check arguments of public calls against their type hints.

Otherwise a wrong type would fail deep inside with an ``AttributeError``, or be written into a log that no engine can
read. What a value means is checked where it is used, but for columns, which all formats select alike.
"""

from __future__ import annotations

import builtins
import collections.abc
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache, wraps
from inspect import CO_VARARGS, CO_VARKEYWORDS, unwrap
from types import FunctionType, NoneType, UnionType
from typing import Any, ParamSpec, TypeVar, Union, get_args, get_origin

import numpy as np

from trilake.common.text import columns_help
from trilake.errors import InvalidArgumentError, MissingDependencyError

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)
_Check = Callable[[str, Any], Any]

#: Other names of a row condition, in other libraries and in other calls of trilake.
_CONDITIONS = ("filter", "where", "on", "predicate", "condition")


def _string(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return value
    raise InvalidArgumentError(f"{name} must be a string, got {described(value)}")


def flag(name: str, value: Any) -> bool:
    """Require a boolean, since a string such as ``"false"`` is true.  Raises ``InvalidArgumentError``."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise InvalidArgumentError(f"{name} must be True or False, got {described(value)}")


def count(
    name: str, value: Any, *, least: int = 0, other_type: type[InvalidArgumentError] = InvalidArgumentError
) -> int:
    """Check for an integer of at least ``least``.  Raises ``InvalidArgumentError``; ``other_type`` for another type."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise other_type(f"{name} must be an integer >= {least}, got {described(value)}")
    if value < least:
        raise InvalidArgumentError(f"{name} must be an integer >= {least}, got {value!r}")
    return int(value)


def as_version(version: object) -> int | None:
    """Check the version from a caller; ``None`` is the newest.

    Raises ``InvalidArgumentError`` for anything but an integer, such as a string, a fraction or a boolean.

    >>> as_version(3), as_version(None)
    (3, None)
    """
    if version is None:
        return None
    if isinstance(version, int | np.integer) and not isinstance(version, bool | np.bool_):
        return int(version)
    raise InvalidArgumentError(
        f"version must be an integer, got {version!r:.80}", help='pass a time as timestamp, such as "2024-01-02"'
    )


def column_names(columns: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Convert a name or names to a tuple; ``None`` stays ``None``."""
    if columns is None:
        return None
    return (columns,) if isinstance(columns, str) else tuple(columns)


def _strings(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return value
    if not isinstance(value, Iterable) or isinstance(value, bytes):
        raise InvalidArgumentError(f"{name} must be a list of strings, got {described(value)}")
    strings = tuple(value)
    for wrong in (s for s in strings if not isinstance(s, str)):
        raise InvalidArgumentError(f"{name} must be a list of strings, but contains {described(wrong)}")
    return strings


def _mapping(name: str, value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise InvalidArgumentError(f"{name} must be a mapping, such as a dict, got {described(value)}")
    for wrong in (k for k in value if not isinstance(k, str)):
        raise InvalidArgumentError(f"{name} must have strings as keys, got {described(wrong)}")
    return value


def resolve_columns(names: Sequence[str], columns: Sequence[str] | None, uri: str) -> list[str]:
    """The ``columns`` in the spelling of ``names``, or all names.  Raises ``InvalidArgumentError`` for an unknown one.

    >>> resolve_columns(["Id", "s", "S"], ["id", "s"], "/lake/t")
    ['Id', 's']
    """
    if columns is None:
        return list(names)
    spelled = {name.lower(): name for name in names} | {name: name for name in names}
    unknown = [c for c in columns if c not in spelled and c.lower() not in spelled]
    if unknown:
        raise InvalidArgumentError(
            f"the table has no column {', '.join(map(repr, unknown))}",
            help=columns_help(unknown[0], names),
            file=uri,
            condition="UNRESOLVED_COLUMN.WITH_SUGGESTION",
        )
    return [spelled.get(c) or spelled[c.lower()] for c in columns]


def described(value: object) -> str:
    """Format a value for "got ..." in an error: a plain value's repr, or the type of any other.

    >>> described("x"), described({}), described([])
    ("'x'", 'a dict', 'a list')
    """
    plain = value is None or isinstance(value, str | bytes | int | float)
    return f"{value!r:.80}" if plain else f"a {type(value).__name__}"


def _check_of(hint: Any) -> _Check | None:
    """The check for a type hint; ``None`` if the function itself checks the value."""
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    kinds = [m for m in members if m is not NoneType]
    check: _Check
    if kinds == [str]:
        check = _string
    elif kinds == [bool]:
        check = flag
    elif _STRINGS in kinds and all(k in (str, _STRINGS) for k in kinds):
        check = _strings
    elif len(kinds) == 1 and get_origin(kinds[0]) is collections.abc.Mapping and get_args(kinds[0])[0] is str:
        check = _mapping
    else:
        return None
    return check if len(kinds) == len(members) else lambda name, value: None if value is None else check(name, value)


_STRINGS = collections.abc.Sequence[str]


def _checks(function: FunctionType) -> dict[str, _Check]:
    unknown: dict[str, Any] = {}  # names that only a type checker imports
    checks: dict[str, _Check] = {}
    for name, annotation in function.__annotations__.items():
        if name == "return":
            continue
        hint = annotation
        while isinstance(hint, str):
            try:
                hint = eval(hint, function.__globals__, unknown)
            except NameError as e:
                unknown[str(e.name)] = getattr(builtins, str(e.name), Any)
            except (TypeError, AttributeError):  # only meaningful to type checkers
                hint = Any
        if (check := _check_of(hint)) is not None:
            checks[name] = check
    return checks


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function to check its strings, flags, lists of strings and mappings by their type hints.

    Also shortens the traceback for a missing library, and suggests the right name for an unknown argument.

    >>> from collections.abc import Sequence
    >>> @checked
    ... def scan(columns: Sequence[str] | None = None, *, filter: str | None = None) -> object:
    ...     return columns
    >>> scan(["a"]), scan()
    (('a',), None)
    >>> scan([1])
    Traceback (most recent call last):
    trilake.errors.InvalidArgumentError: [INVALID_ARGUMENT] columns must be a list of strings, but contains 1
    >>> scan(where="n > 1")
    Traceback (most recent call last):
    TypeError: scan() has no argument 'where': use 'filter'
    """
    assert isinstance(function, FunctionType)
    unchecked: Callable[..., R] = function
    checks = cache(lambda: _checks(function))  # on the first call: importing must not evaluate type hints
    code = function.__code__
    in_order = code.co_varnames[: code.co_argcount]
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    # ``*names`` takes arguments after the parameters that are keyword-only.
    many = code.co_varnames[len(names)] if code.co_flags & CO_VARARGS else ""
    open_ended = bool(code.co_flags & CO_VARKEYWORDS)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        parameter_checks = checks()

        def value_of(name: str, value: Any) -> Any:
            return parameter_checks[name](name, value) if name in parameter_checks else value

        by_name = [value_of(n, a) for n, a in zip(in_order, args, strict=False)]
        rest = [value_of(many, a) for a in args[len(by_name) :]]
        _check_names(function, names, [n for n in kwargs if not open_ended or n in _CONDITIONS])
        try:
            return unchecked(*by_name, *rest, **{n: value_of(n, a) for n, a in kwargs.items()})
        except MissingDependencyError as e:
            raise e.with_traceback(None) from None  # a short traceback

    return call


def _check_names(function: FunctionType, names: tuple[str, ...], keywords: Iterable[str]) -> None:
    for name in keywords:
        if name in names:
            continue
        same = [n for n in names if n in _CONDITIONS] if name in _CONDITIONS else get_close_matches(name, names, n=1)
        others = f"arguments are {', '.join(n for n in names if n != 'self')}"
        what = f"use {same[0]!r}" if same else others
        raise TypeError(f"{function.__name__}() has no argument {name!r}: {what}")


def also_called(**aliases: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function to accept its arguments under other libraries' names, too.

    >>> @also_called(predicate="where")
    ... def delete(where: str | None = None) -> object:
    ...     return where
    >>> delete(predicate="n > 1")
    'n > 1'
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        call: Callable[..., R] = function

        @wraps(function)
        def renamed(*args: P.args, **kwargs: P.kwargs) -> R:
            for alias in aliases.keys() & kwargs.keys():
                if aliases[alias] in kwargs:
                    raise TypeError(f"{alias} and {aliases[alias]} are the same argument: leave one of them out")
                kwargs[aliases[alias]] = kwargs.pop(alias)
            return call(*args, **kwargs)

        vars(renamed)["aliases"] = aliases
        return renamed

    return decorate


def checked_methods(cls: C) -> C:
    """Apply :func:`checked` to the public methods of a class."""
    for name, member in list(vars(cls).items()):
        if isinstance(member, FunctionType) and not name.startswith("_"):
            aliases = getattr(member, "aliases", None)
            setattr(cls, name, checked(member) if aliases is None else also_called(**aliases)(checked(unwrap(member))))
    return cls
