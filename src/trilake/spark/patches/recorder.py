"""Replaces methods of Spark's classes: guarded, and reversible.

1. A method is replaced by one that first asks *deciders* whether the call is ours.  A decider only looks: it returns
   the action to take, or ``None``.  Where none takes the call, Spark's own method gets the arguments as they came.
2. Whatever goes wrong while a decider looks, except for an error of this library, is a surprise: Spark's own method is
   called, and the log ``trilake.spark`` says so once for each method.  An action that has begun is never followed by
   Spark's own method, since it may have written something.
3. While a decider looks and while an action runs, this thread's calls of replaced methods go to Spark.
4. :func:`undo` takes deciders away again; a method without any is Spark's own, unless someone else has replaced it
   since: then ours stays below and passes everything on.

What a chain such as ``df.write.format("delta").mode("append")`` asks for is kept in a :class:`Record` on the Python
side, so that no private field of the JVM's objects is read.  A chain that began before its class was watched has none.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from trilake.errors import TrilakeError
from trilake.spark.session.bypass import bypass, is_bypassed

_log = logging.getLogger("trilake.spark")

Action = Callable[[], Any]
#: ``decide(own, self, *args, **kwargs)``: ``own`` is Spark's method, bound to ``self``.
Decide = Callable[..., Action | None]
#: ``note(record, *args, **kwargs)``: called after Spark's own method has taken the call.
Note = Callable[..., None]

_RECORD = "_trilake_record"


@dataclass
class Record:
    """What a chain of calls has asked for.

    ``made_of`` has the arguments of the constructor.  Options are strings, as Spark makes them; a schema is as it was
    given.  What a class does not know stays as it is here.
    """

    made_of: tuple[Any, ...] = ()
    format: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    schema: Any = None
    mode: str | None = None
    partition_by: tuple[Any, ...] | None = None
    bucket_by: tuple[Any, ...] | None = None
    sort_by: tuple[Any, ...] | None = None
    cluster_by: tuple[Any, ...] | None = None
    query_name: str | None = None
    trigger: dict[str, Any] | None = None


def record_of(chain: Any) -> Record | None:
    """What a reader or writer was asked for; ``None`` where that is not known entirely."""
    record = getattr(chain, "__dict__", {}).get(_RECORD)
    return record if isinstance(record, Record) else None


@dataclass
class _Replaced:
    """One replaced method: Spark's own, and who looks at its calls, the newest last."""

    cls: type | ModuleType
    name: str
    own: Callable[..., Any]
    #: Whether the class itself defined it, not one that it inherits from.
    defined: bool
    deciders: list[tuple[str, Decide]] = field(default_factory=list)
    notes: list[tuple[str, Note]] = field(default_factory=list)
    installed: Any = None


_replaced: dict[tuple[type | ModuleType, str], _Replaced] = {}
_lock = threading.RLock()
_said: set[str] = set()


def patch(cls: type | ModuleType, name: str, decide: Decide, *, owner: str = "front") -> None:
    """Let ``decide`` look at each call of a method before Spark does.

    Parameters
    ----------
    cls, name: the method.  A class that has none of this name, as other releases of Spark may, is left alone.  Of a
        module, it is a function with at least one argument, which takes the place of ``self``.
    decide: called as ``decide(own, self, *args, **kwargs)``.  It returns a function without parameters, whose result
        becomes that of the call, or ``None`` for a call that is not ours.  It changes nothing.
    owner: under which name :func:`undo` finds it.  The same function is taken once.

    >>> class Reader:
    ...     def load(self, path):
    ...         return f"Spark reads {path}"
    >>> patch(
    ...     Reader, "load", lambda own, self, path: (lambda: "ours") if path == "t" else None, owner="doc"
    ... )
    >>> Reader().load("t"), Reader().load("x")
    ('ours', 'Spark reads x')
    >>> undo("doc")
    >>> Reader().load("t")
    'Spark reads t'
    """
    with _lock:
        replaced = _replace(cls, name)
        if replaced is not None and (owner, decide) not in replaced.deciders:
            replaced.deciders.append((owner, decide))


def watch(cls: type, name: str, note: Note, *, owner: str = "front") -> None:
    """Let ``note(record, *args, **kwargs)`` write down what a call of a method asks for, after Spark took it.

    For ``__init__`` the record is new; see :func:`patch` for the parameters.
    """
    with _lock:
        replaced = _replace(cls, name)
        if replaced is not None and (owner, note) not in replaced.notes:
            replaced.notes.append((owner, note))


def undo(owner: str) -> None:
    """Take away all that was installed under a name."""
    with _lock:
        for key, replaced in list(_replaced.items()):
            replaced.deciders = [d for d in replaced.deciders if d[0] != owner]
            replaced.notes = [n for n in replaced.notes if n[0] != owner]
            if replaced.deciders or replaced.notes:
                continue
            if vars(replaced.cls).get(replaced.name) is not replaced.installed:
                continue  # replaced again by someone else, who calls ours
            if replaced.defined:
                setattr(replaced.cls, replaced.name, replaced.own)
            else:
                delattr(replaced.cls, replaced.name)
            del _replaced[key]


def patched(owner: str) -> list[tuple[type | ModuleType, str]]:
    """The methods that are replaced under a name."""
    with _lock:
        return [(r.cls, r.name) for r in _replaced.values() if any(o == owner for o, _ in (*r.deciders, *r.notes))]


def _replace(cls: type | ModuleType, name: str) -> _Replaced | None:
    known = _replaced.get((cls, name))
    if known is not None:
        return known
    own = getattr(cls, name, None)
    if not callable(own):
        _log.debug("%s.%s is not there in this release of Spark", cls.__name__, name)
        return None
    replaced = _Replaced(cls, name, own, name in vars(cls))

    @functools.wraps(own)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _call(replaced, self, args, kwargs)

    replaced.installed = call
    setattr(cls, name, call)
    _replaced[cls, name] = replaced
    return replaced


def _call(replaced: _Replaced, self: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if not is_bypassed():
        for _, decide in reversed(list(replaced.deciders)):
            act = _decided(replaced, decide, self, args, kwargs)
            if act is not None:
                with bypass():
                    return act()
    out = replaced.own(self, *args, **kwargs)
    if replaced.notes and replaced.name == "__init__" and hasattr(self, "__dict__"):
        self.__dict__[_RECORD] = Record()
    for _, note in list(replaced.notes):
        _noted(replaced, note, self, args, kwargs)
    return out


def _decided(
    replaced: _Replaced, decide: Decide, self: Any, args: Sequence[Any], kwargs: dict[str, Any]
) -> Action | None:
    try:
        with bypass():
            return decide(functools.partial(replaced.own, self), self, *args, **kwargs)
    except TrilakeError:
        raise
    except Exception as e:  # noqa: BLE001 - whatever Spark may have changed, its own method is right for the call
        _surprise(replaced, e)
        return None


def _noted(replaced: _Replaced, note: Note, self: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    record = record_of(self)
    if record is None:
        return
    try:
        note(record, *args, **kwargs)
    except TrilakeError:
        raise
    except Exception as e:  # noqa: BLE001 - as above; what is not known entirely is left to Spark
        self.__dict__.pop(_RECORD, None)
        _surprise(replaced, e)


def _surprise(replaced: _Replaced, error: Exception) -> None:
    cls = replaced.cls
    owner = cls.__name__ if isinstance(cls, ModuleType) else f"{cls.__module__}.{cls.__qualname__}"
    name = f"{owner}.{replaced.name}"
    with _lock:
        if name in _said:
            return
        _said.add(name)
    _log.warning("%s is not as expected, and calls of it are left to Spark: %r", name, error)
