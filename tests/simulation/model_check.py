"""Exhaustive checks of two protocols as small models: the commit, and vacuum against readers and writers.

A model is a state and its possible steps.  Every reachable state is visited once (breadth first), so a property that
holds here holds for every interleaving of the steps.  The models follow :mod:`trilake.delta.commit.transaction`
and :mod:`trilake.delta.commands.maintenance.vacuum` step by step; ``test_model_check.py`` checks the real code
over every interleaving of a smaller case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

#: A step: its name, and the state after it.
Step = tuple[str, Any]


@dataclass(frozen=True)
class Checked:
    """Result of an exhaustive check; ``trace`` leads to the first broken state."""

    states: int
    broken: str | None = None
    trace: tuple[str, ...] = ()


def explore(
    start: Any,
    steps: Callable[[Any], Iterator[Step]],
    broken: Callable[[Any], str | None],
    same: Callable[[Any], Any] = lambda state: state,
) -> Checked:
    """Visit every state reachable from ``start``; ``same`` maps states that differ in names only to one state."""
    before: dict[Any, tuple[Any, str] | None] = {start: None}
    waiting = [start]
    for state in waiting:  # grows during the iteration
        wrong = broken(state)
        if wrong is not None:
            trace = []
            at = state
            while (came := before[at]) is not None:
                at, name = came
                trace.append(name)
            return Checked(len(before), wrong, tuple(reversed(trace)))
        for name, following in steps(state):
            following = same(following)
            if following not in before:
                before[following] = (state, name)
                waiting.append(following)
    return Checked(len(before))


# --- the commit ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Writer:
    """A writer at some step of a transaction.

    ``pc``: ``idle``, ``put`` (about to try a version), ``look`` (the key exists, or the reply was lost: whose commit is
    it?), ``check`` (past the winners), ``over``.  ``base`` is the version read, ``ground`` the one before the version
    that is tried.  ``replies`` has the reply to the caller of each ended transaction.
    """

    pc: str = "idle"
    transaction: int = 0
    base: int = -1
    ground: int = -1
    lost: bool = False
    replies: tuple[str, ...] = ()


@dataclass(frozen=True)
class Log:
    """The log as (writer, transaction) by version, the writers, requests under way, and remaining faults."""

    log: tuple[tuple[int, int, int], ...]  # writer, transaction, base
    writers: tuple[Writer, ...]
    late: tuple[tuple[int, int, int, int], ...] = ()  # version, writer, transaction, base
    crashes: int = 1
    losses: int = 1
    delays: int = 1


@dataclass(frozen=True)
class CommitRules:
    """Rules of the protocol; each ``False`` plants a fault that the check must find."""

    put_if_absent: bool = True
    asks_whose_commit: bool = True
    absent_is_unknown: bool = True
    checks_winners: bool = True
    checks_all_winners: bool = True
    exists_may_be_mine: bool = True


def commit_steps(transactions: tuple[str, ...], rules: CommitRules) -> Callable[[Log], Iterator[Step]]:
    """The steps of writers whose ``transactions`` are ``append`` (blind) or ``change`` (reads the whole table)."""

    def steps(state: Log) -> Iterator[Step]:
        for i, w in enumerate(state.writers):
            if w.pc != "over" and state.crashes and w.pc != "idle":
                ended = _ended(w, "crash", len(transactions))
                yield f"{i} crashes", _with(replace(state, crashes=state.crashes - 1), i, ended)
            match w.pc:
                case "idle":
                    newest = len(state.log) - 1
                    yield f"{i} reads {newest}", _with(state, i, replace(w, pc="put", base=newest, ground=newest))
                case "put":
                    yield from _put(state, i, w, rules, len(transactions))
                case "look":
                    yield from _look(state, i, w, rules, len(transactions))
                case "check":
                    yield from _check(state, i, w, rules, transactions)
        for request in state.late:
            rest = tuple(r for r in state.late if r != request)
            version, writer, transaction, base = request
            log = state.log
            if version == len(log):
                log = (*log, (writer, transaction, base))
            yield f"the request of {writer} for {version} lands", replace(state, log=log, late=rest)

    return steps


def _with(state: Log, i: int, writer: Writer) -> Log:
    return replace(state, writers=(*state.writers[:i], writer, *state.writers[i + 1 :]))


def _ended(w: Writer, reply: str, count: int) -> Writer:
    pc = "idle" if w.transaction + 1 < count else "over"
    return Writer(pc, w.transaction + 1, replies=(*w.replies, reply))


def _put(state: Log, i: int, w: Writer, rules: CommitRules, count: int) -> Iterator[Step]:
    version, mine = w.ground + 1, (i, w.transaction, w.base)
    free = version == len(state.log)
    if free or not rules.put_if_absent:
        log = (*state.log[:version], mine, *state.log[version + 1 :])
        done = _ended(w, "ok", count)
        yield f"{i} puts {version}", _with(replace(state, log=log), i, done)
        if state.losses:
            lost = replace(w, pc="look", lost=True)
            yield (
                f"{i} puts {version}, the reply is lost",
                _with(replace(state, log=log, losses=state.losses - 1), i, lost),
            )
            # The client repeats the request, and finds the result of the first one.
            again = replace(w, pc="look", lost=False)
            yield f"{i} puts {version} twice", _with(replace(state, log=log, losses=state.losses - 1), i, again)
        if state.crashes:
            dead = _ended(w, "crash", count)
            yield f"{i} puts {version} and dies", _with(replace(state, log=log, crashes=state.crashes - 1), i, dead)
    else:
        yield f"{i} finds {version} taken", _with(state, i, replace(w, pc="look", lost=False))
    if state.losses and state.delays:
        late = replace(state, late=(*state.late, (version, *mine)), losses=state.losses - 1, delays=state.delays - 1)
        yield f"{i}'s request for {version} is delayed", _with(late, i, replace(w, pc="look", lost=True))


def _look(state: Log, i: int, w: Writer, rules: CommitRules, count: int) -> Iterator[Step]:
    version = w.ground + 1
    if version >= len(state.log):
        if rules.absent_is_unknown:
            yield f"{i} does not find {version}", _with(state, i, _ended(w, "unknown", count))
        else:
            yield f"{i} says that {version} failed", _with(state, i, _ended(w, "conflict", count))
        return
    mine = state.log[version][:2] == (i, w.transaction)
    asks = rules.asks_whose_commit if w.lost else rules.exists_may_be_mine
    if mine and asks:
        yield f"{i} finds its own commit as {version}", _with(state, i, _ended(w, "ok", count))
    else:
        yield f"{i} lost {version}", _with(state, i, replace(w, pc="check"))


def _check(state: Log, i: int, w: Writer, rules: CommitRules, transactions: tuple[str, ...]) -> Iterator[Step]:
    winners = state.log[w.ground + 1 :] if rules.checks_all_winners else state.log[w.ground + 1 : w.ground + 2]
    reads = transactions[w.transaction] == "change"
    # The whole table is read: every winner conflicts, except blind appends under WriteSerializable.
    conflict = rules.checks_winners and reads and any(transactions[t] == "change" for _, t, _ in winners)
    if conflict:
        yield f"{i} is in conflict", _with(state, i, _ended(w, "conflict", len(transactions)))
    else:
        newest = len(state.log) - 1
        yield f"{i} goes past {newest}", _with(state, i, replace(w, pc="put", ground=newest))


def commit_broken(transactions: tuple[str, ...]) -> Callable[[Log], str | None]:
    """Return a check that describes what is wrong with a state of the commit."""

    def broken(state: Log) -> str | None:
        made = [(w, t) for w, t, _ in state.log]
        if len(set(made)) < len(made):
            return "a transaction is in the log twice"
        for i, w in enumerate(state.writers):
            for t, reply in enumerate(w.replies):
                if reply == "ok" and (i, t) not in made:
                    return f"writer {i} was told that transaction {t} is committed, and it is in no version"
                under_way = any(r[1:3] == (i, t) for r in state.late)
                if reply == "conflict" and ((i, t) in made or (under_way and _may_land(state, i, t))):
                    return f"writer {i} was told of a conflict, and transaction {t} is committed"
        for version, (_, t, base) in enumerate(state.log):
            if transactions[t] == "change":
                between = state.log[base + 1 : version]
                if any(transactions[other] == "change" for _, other, _ in between):
                    return f"version {version} did not see a change that came before it"
        return None

    return broken


def _may_land(state: Log, i: int, t: int) -> bool:
    return any(r[1:3] == (i, t) and r[0] == len(state.log) for r in state.late)


def _renamed(state: Log) -> Log:
    """Return the state with its writers in a canonical order: they are interchangeable."""

    def known(i: int) -> tuple[Any, ...]:
        w = state.writers[i]
        at = tuple((v, t, b) for v, (by, t, b) in enumerate(state.log) if by == i)
        late = tuple((r[0], r[2]) for r in state.late if r[1] == i)
        return (w.pc, w.transaction, w.base, w.ground, w.lost, w.replies, at, late)

    order = sorted(range(len(state.writers)), key=known)
    if order == list(range(len(order))):
        return state
    name = {old: new for new, old in enumerate(order)}
    return replace(
        state,
        log=tuple((name[w], t, b) for w, t, b in state.log),
        writers=tuple(state.writers[i] for i in order),
        late=tuple((v, name[w], t, b) for v, w, t, b in state.late),
    )


def check_commit(
    writers: int = 3,
    transactions: tuple[str, ...] = ("append", "change"),
    rules: CommitRules | None = None,
    **faults: Any,
) -> Checked:
    """Check every interleaving of writers that each commit the ``transactions`` in turn."""
    start = replace(Log((), (Writer(),) * writers), **faults)
    return explore(start, commit_steps(transactions, rules or CommitRules()), commit_broken(transactions), _renamed)


# --- vacuum ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lake:
    """Files by number with the time they were written, the versions as sets of files with the time of their commit.

    ``reader`` is the version that is being read, the start time, and the files left to read;
    ``writer`` the file that is written and not yet committed, with the version read; ``vacuum`` is where a vacuum is:
    its cut-off time and what it has listed, then what it will delete.
    """

    now: int = 0
    files: tuple[tuple[int, int], ...] = ((0, 0),)
    versions: tuple[tuple[frozenset[int], int], ...] = ((frozenset({0}), 0),)
    reader: tuple[int, int, frozenset[int]] | None = None
    writer: tuple[int, int, int] | None = None
    vacuum: tuple[str, int, frozenset[int], int] | None = None
    commits: int = 2
    vacuums: int = 2
    reads: int = 1
    wrong: str | None = None


@dataclass(frozen=True)
class VacuumRules:
    """Rules of a vacuum; each ``False`` plants a fault."""

    spares_young_files: bool = True
    spares_recent_tombstones: bool = True
    clock_agrees: bool = True


#: Units of time for which removed files are kept; a write or a read takes less.
RETENTION = 2
_LAST = 6


def vacuum_steps(rules: VacuumRules) -> Callable[[Lake], Iterator[Step]]:
    """The steps of one writer, one reader and vacuums, while time passes."""

    def steps(s: Lake) -> Iterator[Step]:
        # Time passes if no write or read becomes older than the retention.
        begun = [t for t in (s.writer[1] if s.writer else None, s.reader[1] if s.reader else None) if t is not None]
        busy = s.vacuum is not None
        if s.now < _LAST and not busy and all(s.now + 1 - t < RETENTION for t in begun):
            yield "time passes", replace(s, now=s.now + 1)
        newest = len(s.versions) - 1
        if s.writer is None and s.commits:
            file = len(s.files)
            yield (
                f"file {file} is written",
                replace(s, files=(*s.files, (file, s.now)), writer=(file, s.now, newest), commits=s.commits - 1),
            )
        if s.writer is not None:
            file, _, read = s.writer
            there = {f for f, _ in s.files}
            if read == newest:
                wrong = None if file in there else f"version {newest + 1} names file {file}, which vacuum has deleted"
                version = (frozenset({file}), s.now)
                yield (
                    f"file {file} replaces all",
                    replace(s, versions=(*s.versions, version), writer=None, wrong=s.wrong or wrong),
                )
            yield "the writer dies", replace(s, writer=None)
        if s.reader is None and s.reads:
            yield (
                f"version {newest} is opened",
                replace(s, reader=(newest, s.now, s.versions[newest][0]), reads=s.reads - 1),
            )
        if s.reader is not None:
            opened, began, left = s.reader
            for file in left:
                wrong = None if file in {f for f, _ in s.files} else f"a reader of version {opened} lost file {file}"
                rest = left - {file}
                reader = (opened, began, rest) if rest else None
                yield f"file {file} is read", replace(s, reader=reader, wrong=s.wrong or wrong)
        yield from _vacuum(s, rules)

    return steps


def _vacuum(s: Lake, rules: VacuumRules) -> Iterator[Step]:
    if s.vacuum is None:
        if s.vacuums:
            cutoff = s.now - RETENTION + (0 if rules.clock_agrees else RETENTION)
            yield "vacuum begins", replace(s, vacuum=("list", cutoff, frozenset(), -1), vacuums=s.vacuums - 1)
        return
    step, cutoff, files, seen = s.vacuum
    if step == "list":
        listed = frozenset(f for f, t in s.files if t < cutoff or not rules.spares_young_files)
        yield "vacuum lists", replace(s, vacuum=("read", cutoff, listed, seen))
    elif step == "read":
        yield "vacuum reads the newest version", replace(s, vacuum=("choose", cutoff, files, len(s.versions) - 1))
    elif step == "choose":
        needed = set(s.versions[seen][0])
        for (kept, _), (_, until) in zip(s.versions[:seen], s.versions[1 : seen + 1], strict=True):
            if until >= cutoff and rules.spares_recent_tombstones:
                needed |= kept
        yield "vacuum chooses", replace(s, vacuum=("delete", cutoff, files - needed, seen))
    else:
        left = tuple(f for f in s.files if f[0] not in files)
        gone = files & s.versions[-1][0]
        wrong = f"file {min(gone)} of the newest version was deleted" if gone else None
        yield "vacuum deletes", replace(s, files=left, vacuum=None, wrong=s.wrong or wrong)


def check_vacuum(rules: VacuumRules | None = None) -> Checked:
    """Check every interleaving of vacuums with a reader and a writer that take less than the retention."""
    return explore(Lake(), vacuum_steps(rules or VacuumRules()), lambda s: s.wrong)
