"""Check whether histories of transactions that read and append to lists have a serial order.

Transactions are nodes, and an edge says that one must come before another: it wrote what the other read (wr), it
appended to a list before the other (ww), or it read a list without what the other appended (rw).  Without a cycle
there is a serial order; with one there is none (Adya; the list-append histories of Elle).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Transaction:
    """A committed transaction: lists read and values appended, by key."""

    id: int
    reads: Mapping[int, tuple[int, ...]]
    appends: Mapping[int, int]


def dependencies(history: Iterable[Transaction], lists: Mapping[int, tuple[int, ...]]) -> dict[int, dict[int, str]]:
    """Return the edges between transactions, with their kinds; ``lists`` are the final lists.

    Raises ``ValueError`` for a read that is not a prefix of the final list: values were lost or read out of order.
    """
    done = list(history)
    writer = {(k, v): t.id for t in done for k, v in t.appends.items()}
    edges: dict[int, dict[int, str]] = {t.id: {} for t in done}
    for key, values in lists.items():
        for before, after in pairwise(values):
            _edge(edges, writer.get((key, before)), writer.get((key, after)), "ww")
    for t in done:
        for key, seen in t.reads.items():
            final = lists.get(key, ())
            if final[: len(seen)] != seen:
                raise ValueError(f"transaction {t.id} read {seen} of list {key}, which became {final}")
            if seen:
                _edge(edges, writer.get((key, seen[-1])), t.id, "wr")
            if len(final) > len(seen):
                _edge(edges, t.id, writer.get((key, final[len(seen)])), "rw")
    return edges


def _edge(edges: dict[int, dict[int, str]], before: int | None, after: int | None, kind: str) -> None:
    if before is not None and after is not None and before != after:
        edges[before].setdefault(after, kind)


def find_cycle(edges: Mapping[int, Mapping[int, str]]) -> list[int] | None:
    """Return a cycle of transactions, or ``None``; removes transactions without predecessors until none is left."""
    left = {t: set(after) for t, after in edges.items()}
    while True:
        pointed = set().union(*left.values()) if left else set()
        free = [t for t in left if t not in pointed]
        if not free:
            break
        for t in free:
            del left[t]
    if not left:
        return None
    path = [next(iter(left))]
    before = {after: t for t, afters in left.items() for after in afters if after in left}
    while (came := before[path[-1]]) not in path:
        path.append(came)
    return [*path[path.index(came) :], came][::-1]
