"""Arguments of public calls, compared with the types of their signatures before anything is done with them.

A name that is not a string, or a list in place of a mapping, would otherwise end deep inside as an ``AttributeError``,
or be written into a log that no engine can read any more.  What a value means, its own place checks.
"""

from __future__ import annotations

import builtins
import collections.abc
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import cache, wraps
from inspect import CO_VARARGS, CO_VARKEYWORDS, unwrap
from types import FunctionType, NoneType, UnionType
from typing import Any, ParamSpec, TypeVar, Union, get_args, get_origin

import numpy as np

from trilake.errors import InvalidArgumentError, MissingDependencyError

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)
_Check = Callable[[str, Any], Any]

#: What other libraries, and other calls of this one, call a condition on rows.
_CONDITIONS = ("filter", "where", "on", "predicate", "condition")


def _text(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return value
    raise InvalidArgumentError(f"{name} must be a string, got {_shown(value)}")


def flag(name: str, value: Any) -> bool:
    """A truth value that is one: every string is true, ``"false"`` too.  Raises ``InvalidArgumentError``."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise InvalidArgumentError(f"{name} must be True or False, got {_shown(value)}")


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
        raise InvalidArgumentError(f"{name} must be a list of strings, and has {_shown(wrong[0])} in it")
    raise InvalidArgumentError(f"{name} must be a list of strings, got {_shown(value)}")


def _mapping(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        wrong = [k for k in value if not isinstance(k, str)]
        if not wrong:
            return value
        raise InvalidArgumentError(f"{name} must have strings as keys, and has {_shown(wrong[0])}")
    raise InvalidArgumentError(f"{name} must be a mapping, such as a dict, got {_shown(value)}")


def _shown(value: object) -> str:
    plain = value is None or isinstance(value, str | bytes | int | float)
    return f"{value!r:.80}" if plain else f"a {type(value).__name__}"


# --- types -----------------------------------------------------------------------------------------------------------


def _check_of(hint: Any) -> _Check | None:
    """What looks at a value of a type, ``None`` where the code knows best what the value means."""
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    kinds = [m for m in members if m is not NoneType]
    check: _Check | None = None
    if kinds == [str]:
        check = _text
    elif kinds == [bool]:
        check = flag
    elif _STRINGS in kinds and all(k in (str, _STRINGS) for k in kinds):
        check = _texts
    elif len(kinds) == 1 and get_origin(kinds[0]) is collections.abc.Mapping and get_args(kinds[0])[0] is str:
        check = _mapping
    if check is None or len(kinds) == len(members):
        return check
    some = check
    return lambda name, value: None if value is None else some(name, value)


_STRINGS = collections.abc.Sequence[str]


def _checks(function: FunctionType) -> dict[str, _Check]:
    """The checks of a function's parameters, by name."""
    unknown: dict[str, Any] = {}  # names that only a type checker imports
    found: dict[str, _Check] = {}
    for name, annotation in function.__annotations__.items():
        if name == "return":
            continue
        hint = annotation
        while isinstance(hint, str):
            try:
                hint = eval(hint, function.__globals__, unknown)
            except NameError as e:
                unknown[str(e.name)] = getattr(builtins, str(e.name), Any)
            except (TypeError, AttributeError):  # what a type checker alone understands
                hint = Any
        check = _check_of(hint)
        if check is not None:
            found[name] = check
    return found


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which refuses strings, flags, lists of strings and mappings that are none, by the types it states.

    A library that is missing is said in one frame, and an argument that has another name here is named.

    >>> from collections.abc import Sequence
    >>> @checked
    ... def scan(columns: Sequence[str] | None = None, *, filter: str | None = None) -> object:
    ...     return columns
    >>> scan(["a"]), scan()
    (('a',), None)
    >>> scan([1])
    Traceback (most recent call last):
    trilake.errors.InvalidArgumentError: [INVALID_ARGUMENT] columns must be a list of strings, and has 1 in it
    >>> scan(where="n > 1")
    Traceback (most recent call last):
    TypeError: scan() has no argument 'where': it is called 'filter' here
    """
    assert isinstance(function, FunctionType)
    unchecked: Callable[..., R] = function
    checks = cache(lambda: _checks(function))  # when it is called first: an import evaluates no types
    code = function.__code__
    in_order = code.co_varnames[: code.co_argcount]
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    # What ``*names`` takes stands behind the parameters that go by name only.
    many = code.co_varnames[len(names)] if code.co_flags & CO_VARARGS else ""
    open_ended = bool(code.co_flags & CO_VARKEYWORDS)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        known = checks()

        def value_of(name: str, value: Any) -> Any:
            return known[name](name, value) if name in known else value

        named = [value_of(n, a) for n, a in zip(in_order, args, strict=False)]
        rest = [value_of(many, a) for a in args[len(named) :]]
        _check_names(function, names, [n for n in kwargs if not open_ended or n in _CONDITIONS])
        try:
            return unchecked(*named, *rest, **{n: value_of(n, a) for n, a in kwargs.items()})
        except MissingDependencyError as e:
            raise e.with_traceback(None) from None  # where it was needed is of no help

    return call


def _check_names(function: FunctionType, names: tuple[str, ...], given: Iterable[str]) -> None:
    """Raise ``TypeError``, with the name that is meant, for an argument that the function does not have."""
    for name in given:
        if name in names:
            continue
        meant = [n for n in names if n in _CONDITIONS] if name in _CONDITIONS else get_close_matches(name, names, n=1)
        what = (
            f"it is called {meant[0]!r} here"
            if meant
            else f"arguments are {', '.join(n for n in names if n != 'self')}"
        )
        raise TypeError(f"{function.__name__}() has no argument {name!r}: {what}")


def also_called(**aliases: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """The function, whose arguments may go by the names that another library has for them.

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

        renamed.aliases = aliases  # type: ignore[attr-defined]
        return renamed

    return decorate


def checked_methods(cls: C) -> C:
    """The class, whose public methods are :func:`checked`; ``dir`` of its objects shows what users may call."""
    for name, member in list(vars(cls).items()):
        if isinstance(member, FunctionType) and not name.startswith("_"):
            aliases = getattr(member, "aliases", None)
            setattr(cls, name, checked(member) if aliases is None else also_called(**aliases)(checked(unwrap(member))))
    cls.__dir__ = _shown_names  # type: ignore[assignment]
    return cls


def _shown_names(thing: object) -> list[str]:
    """Methods and properties, and where the thing is; not what it is made of."""
    fields = getattr(thing, "__dataclass_fields__", ())
    shown = {n for n in dir(type(thing)) if n not in fields and not n.startswith("_")}
    return sorted(shown | {"uri"} & vars(thing).keys())
