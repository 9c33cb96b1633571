"""Patch methods of Spark's classes safely and reversibly.

1. A patched method first asks *deciders* whether the call is for trilake.  A decider has no side effects: it returns an
   action, or ``None``.  If all return ``None``, Spark's original method runs with the same arguments.
2. If a decider fails with anything but a trilake error, Spark's original method runs, and the logger ``trilake.spark``
   emits one warning per method.  Once an action has started, the original method never runs, because the action may
   have written something.
3. While deciders and actions run, this thread calls Spark's original methods.
4. :func:`undo` removes deciders.  A method without deciders is restored, unless another library has patched it since:
   in that case the patch stays and only calls the original.

The calls of a chain such as ``df.write.format("delta").mode("append")`` are recorded in a :class:`Record` on the Python
side, so no private field of a JVM object is read.  A chain that began before its class was patched has no record.
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
#: ``decide(original, self, *args, **kwargs)``: ``original`` is Spark's method, bound to ``self``.
Decide = Callable[..., Action | None]
#: ``note(record, *args, **kwargs)``: called after Spark's original method has succeeded.
Note = Callable[..., None]

_RECORD = "_trilake_record"


@dataclass
class Record:
    """The calls of a chain; options are strings, converted as Spark does, and a schema is as the user passed it."""

    constructor_args: tuple[Any, ...] = ()
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
    """The record of a reader or writer; ``None`` if it is incomplete."""
    record = getattr(chain, "__dict__", {}).get(_RECORD)
    return record if isinstance(record, Record) else None


@dataclass
class _Replaced:
    """A patched method: Spark's original, and its deciders, the latest one last."""

    cls: type | ModuleType
    name: str
    original: Callable[..., Any]
    #: Whether the class itself defines the method, instead of a base class.
    defined: bool
    deciders: list[tuple[str, Decide]] = field(default_factory=list)
    notes: list[tuple[str, Note]] = field(default_factory=list)
    installed: Any = None


_replaced: dict[tuple[type | ModuleType, str], _Replaced] = {}
_lock = threading.RLock()
_said: set[str] = set()


def patch(cls: type | ModuleType, name: str, decide: Decide, *, owner: str = "register") -> None:
    """Let ``decide`` see each call of a method before Spark does.

    Parameters
    ----------
    cls, name: the method.  A class that lacks it, as in other releases of Spark, stays unchanged.  In a module, a
        function with at least one argument, which takes the place of ``self``.
    decide: called as ``decide(original, self, *args, **kwargs)``.  It returns a function without parameters that
        produces the result of the call, or ``None`` to leave the call to Spark.  It has no side effects.
    owner: the name for :func:`undo`.  A function is added only once per owner.

    >>> class Reader:
    ...     def load(self, path):
    ...         return f"Spark reads {path}"
    >>> patch(
    ...     Reader, "load", lambda original, self, path: (lambda: "trilake") if path == "t" else None, owner="doc"
    ... )
    >>> Reader().load("t"), Reader().load("x")
    ('trilake', 'Spark reads x')
    >>> undo("doc")
    >>> Reader().load("t")
    'Spark reads t'
    """
    with _lock:
        replaced = _replace(cls, name)
        if replaced is not None and (owner, decide) not in replaced.deciders:
            replaced.deciders.append((owner, decide))


def watch(cls: type, name: str, note: Note, *, owner: str = "register") -> None:
    """Let ``note(record, *args, **kwargs)`` record each call of a method after Spark has accepted it.  For ``__init__``
    the record is new; the other parameters are those of :func:`patch`."""
    with _lock:
        replaced = _replace(cls, name)
        if replaced is not None and (owner, note) not in replaced.notes:
            replaced.notes.append((owner, note))


def undo(owner: str) -> None:
    """Remove all patches of this owner."""
    with _lock:
        for key, replaced in list(_replaced.items()):
            replaced.deciders = [d for d in replaced.deciders if d[0] != owner]
            replaced.notes = [n for n in replaced.notes if n[0] != owner]
            if replaced.deciders or replaced.notes:
                continue
            if vars(replaced.cls).get(replaced.name) is not replaced.installed:
                continue  # another library has patched it again, and calls this patch
            if replaced.defined:
                setattr(replaced.cls, replaced.name, replaced.original)
            else:
                delattr(replaced.cls, replaced.name)
            del _replaced[key]


def patched(owner: str) -> list[tuple[type | ModuleType, str]]:
    """The methods patched by this owner."""
    with _lock:
        return [(r.cls, r.name) for r in _replaced.values() if any(o == owner for o, _ in (*r.deciders, *r.notes))]


def _replace(cls: type | ModuleType, name: str) -> _Replaced | None:
    existing = _replaced.get((cls, name))
    if existing is not None:
        return existing
    original = getattr(cls, name, None)
    if not callable(original):
        _log.debug("this Spark release has no %s.%s", cls.__name__, name)
        return None
    replaced = _Replaced(cls, name, original, name in vars(cls))

    @functools.wraps(original)
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
    out = replaced.original(self, *args, **kwargs)
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
            return decide(functools.partial(replaced.original, self), self, *args, **kwargs)
    except TrilakeError:
        raise
    except Exception as e:  # noqa: BLE001 - on any surprise run Spark's original method
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
    except Exception as e:  # noqa: BLE001 - as above: drop the record, leave the chain to Spark
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
    _log.warning("%s differs in this Spark release, so trilake does not replace it: %r", name, error)
