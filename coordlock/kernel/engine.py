"""One client at work: its backend, its sessions, its live tickets."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from coordlock.backend import Backend
from coordlock.errors import (
    BackendUnavailable,
    ClientClosed,
    CoordlockError,
    ForkedClient,
    LockLost,
    SessionLost,
)
from coordlock.kernel.entry_ids import EntryIds
from coordlock.kernel.listeners import Events
from coordlock.kernel.recovery import Recovery
from coordlock.kernel.refusals import Refusals
from coordlock.kernel.removal import removal
from coordlock.kernel.retry import retried
from coordlock.kernel.session import Session
from coordlock.kernel.sessions import Sessions
from coordlock.kernel.ticket import Stage, Ticket
from coordlock.model.claim import AnyClaim, Convertible
from coordlock.model.contender import Contender, Entry, Owner, Snapshot
from coordlock.model.names import is_internal
from coordlock.runtime.caller import Caller
from coordlock.runtime.clock import SystemTimers, Timers, soon, within
from coordlock.runtime.deadline import Deadline, DeadlineReached
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.lazily import Lazily
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise, settled
from coordlock.settings import Settings

if TYPE_CHECKING:
    from coordlock.kernel import events
    from coordlock.kernel.announcement import Announcement
else:
    events = Lazily("coordlock.kernel.events")

__all__ = ["Engine"]

log = Log("coordlock")

T = TypeVar("T")

#: Seconds from a loss at the deadline to the withdrawal of what was held: so that its holder, which
#: may wait for a processor, hears of the loss before the next one is granted.
_NOTICE: Final = 0.2
#: How many of the last calls keep what they shared.
_LATELY: Final = 256
#: Those of this process and, in the child of a fork, of its parents.
_engines: Final[weakref.WeakValueDictionary[int, Engine]] = weakref.WeakValueDictionary()
#: The owner of a contender whose value stands alone.
_NOBODY: Final = Owner("", 0)


class Engine:
    """What the locks and grants of one client share. Belongs to the process that made it."""

    def __init__(
        self,
        backend: Backend,
        settings: Settings,
        timers: Timers | None = None,
        given: object = None,
    ) -> None:
        """``given`` is the client of another library that the backend uses, if it does."""
        self._given: Final = given
        self.backend: Final = backend
        self.settings: Final = settings
        self.timers: Final = timers or SystemTimers("coordlock-timers")
        self.clock: Final = self.timers.clock
        #: Runs the user's callbacks, so that no thread of ours ever does.
        self.callbacks: Final = SystemTimers("coordlock-callbacks")
        self.events: Final = Events(self.callbacks)
        self.recovery: Final = Recovery(self.timers)
        self.refusals: Final = Refusals(self.clock)
        self._pid: Final = os.getpid()
        self._ids: Final = EntryIds()
        self._host: Final = os.uname().nodename
        # Reentrant, like the others': a signal handler, or a finalizer in a collection of garbage,
        # may release a lock between any two steps of this thread.
        self.lock: Final = threading.RLock()
        #: What recipes keep for as long as this client lives.
        self._shared: dict[Hashable, Any] = {}
        #: What they share for as long as somebody uses it, and what was used last.
        self._used: weakref.WeakValueDictionary[Hashable, Any] = weakref.WeakValueDictionary()
        self._used_lately: deque[Any] = deque(maxlen=_LATELY)
        self._tickets: dict[str, Ticket] = {}
        self._granted: dict[str, list[Ticket]] = {}
        #: What each caller was granted, in that order.
        self._actors: dict[Caller, dict[Ticket, None]] = {}
        self._closing: Promise[None] | None = None
        #: What to call once nothing is held or waited for.
        self._unused: Callable[[], object] | None = None
        #: Whether no caller waits for `close` any more.
        self._leaving = False
        self.sessions: Final = Sessions(
            backend,
            settings,
            self.timers,
            self.recovery,
            self.events,
            self._session_ended,
            self._notice,
        )
        _engines[id(self)] = self

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closing is not None

    @property
    def was_open(self) -> bool:
        """Whether there is a session, or was one."""
        return self.sessions.was_open

    @property
    def is_at_work(self) -> bool:
        """Whether there is something to close: in this process, and not yet."""
        return bool(self.sessions.known) and not (self.closed or self.inherited)

    @property
    def inherited(self) -> bool:
        """Whether this is the child of a fork, and the engine its parent's."""
        return os.getpid() != self._pid

    @property
    def data_root(self) -> str:
        """Below which keys of data are coordlock's own, without a slash at its end."""
        return self.settings.root.rstrip("/") if self.backend.shares_keys else ""

    def share(self, key: Hashable, make: Callable[[], T]) -> T:
        """What all callers with ``key`` share: what ``make`` makes for the first of them."""
        with self.lock:
            if key not in self._shared:
                self._shared[key] = make()
            shared: T = self._shared[key]
            return shared

    def share_while_used(self, key: Hashable, make: Callable[[], T]) -> T:
        """The same, forgotten some time after the last of them has dropped it: for names."""
        with self.lock:
            shared: T | None = self._used.get(key)
            if shared is None:
                shared = self._used[key] = make()
            self._used_lately.append(shared)
            return shared

    def is_of(self, other: Engine) -> bool:
        """Whether both speak to the same service below the same root, as far as settings tell."""
        one, two = self.settings, other.settings
        if (one.scheme, one.root) != (two.scheme, two.root) or self._given is not other._given:
            return False
        return one.hosts == two.hosts or not set(one.hosts).isdisjoint(two.hosts)

    def check(self) -> None:
        """Raise `ForkedClient` or `ClientClosed` where the engine can no longer be used."""
        if self.inherited:
            raise ForkedClient(self._pid)
        if self.closed:
            raise ClientClosed

    def session(self) -> Steps[Session]:
        """The live session; opens one where there is none, once for all callers.

        Raises `BackendUnavailable` if none was open so far within the ``connect_timeout``.
        """
        self.check()
        if not self.was_open:
            first = run_in_background(self.sessions.live())
            yield within(self.timers, first, self.settings.connect_timeout)
            if not first.done():
                raise self.silent(DeadlineReached())
            return first.result()
        return (yield from self.sessions.live())

    def ticket(
        self,
        session: Session,
        claims: Mapping[str, AnyClaim],
        label: str | None = None,
        announcement: Announcement | None = None,
    ) -> Ticket:
        """A new ticket in ``session`` for the queues in ``claims``; nothing is sent yet.

        ``label`` describes its owner in place of the client's.
        """
        label = self.settings.label if label is None else label
        owner = Owner(self._host, self._pid, label, time.time())
        if announcement is not None and announcement.stands_alone:
            owner = _NOBODY
        identity = "" if announcement is None else announcement.identity
        entries = tuple(
            [
                Entry(
                    queue,
                    identity + next(self._ids)[len(identity) :],
                    claim,
                    owner,
                    _value(claim, announcement),
                )
                for queue, claim in claims.items()
            ]
        )
        ticket = Ticket(self.backend, self.timers, session, entries, self.recovery, self._forget)
        with self.lock:
            for entry in entries:
                self._tickets[entry.id] = ticket
        if self.closed:
            ticket.lose(ClientClosed())
        if self.events.heard and not is_internal(entries[0].queue):
            ticket.end.add_done_callback(partial(self._tell_end, ticket))
        return ticket

    def own(self, contender: Contender) -> Ticket | None:
        """The ticket of ``contender``, if it is one of this client's own and not gone for good."""
        return self._tickets.get(contender.id)

    def grant(self, ticket: Ticket, snapshots: Sequence[Snapshot], caller: Caller | None) -> None:
        """Grant ``ticket`` to ``caller``, and note that until it is gone: see `Ticket.grant`."""
        with self.lock:
            for entry in ticket.entries:
                if entry.id in self._tickets:  # else the client has been closed
                    self._granted.setdefault(entry.queue, []).append(ticket)
                    if caller is not None:
                        ticket.caller = caller
                        self._actors.setdefault(caller, {})[ticket] = None
        if len(ticket.entries) > 1:
            ticket.end.add_done_callback(partial(self._fall_together, ticket))
        ticket.grant(snapshots, caller)

    def _fall_together(self, ticket: Ticket, end: Promise[CoordlockError | None]) -> None:
        """One of the contenders of ``ticket`` is lost, or all: let the others go."""
        if end.result() is not None:
            self._withdraw_soon(ticket)

    def limit(self, ticket: Ticket, seconds: float) -> None:
        """Let ``ticket``, which was granted, be held for ``seconds`` from now."""
        from coordlock.kernel.hold_limit import HoldLimit

        limit = HoldLimit(self.timers, seconds, partial(self._expire, ticket))
        ticket.limit = limit
        ticket.end.add_done_callback(lambda _: limit.cancel())

    def _expire(self, ticket: Ticket, seconds: float) -> None:
        """``ticket`` was held for the ``seconds`` that it might be."""
        if ticket.is_leaving or ticket.end.done() or not ticket.contenders:
            return
        reason = f"it was held for {seconds:g} s, which max_hold or extend() had allowed"
        lost = LockLost(ticket.name, ticket.contenders[0].token or 0, reason)
        ticket.lose(lost)
        log.warning("%s: %s", self.settings, lost)
        self._withdraw_soon(ticket)

    def _withdraw_soon(self, ticket: Ticket) -> None:
        """Withdraw ``ticket``, which is lost, once its holder has had time to hear of it."""
        with suppress(ClientClosed):
            self.timers.call_at(self.clock.now() + _NOTICE, ticket.withdraw)

    def held(self, queue: str) -> list[Ticket]:
        """This client's own grants of ``queue``, the oldest first."""
        with self.lock:
            granted = self._granted.get(queue, ())
            return [one for one in granted if not one.end.done()]

    def holds_any(self, caller: Caller) -> bool:
        """Whether ``caller`` was granted something that is not released."""
        return bool(self.held_by(caller))

    def held_by(self, caller: Caller) -> list[Ticket]:
        """What ``caller`` was granted by this service, through any client, and holds.

        What is lost or being removed goes whatever the caller waits for, also where it comes late.
        """
        found: list[Ticket] = []
        for reference in _engines.valuerefs():
            engine = reference()
            if engine is None or not engine._actors.get(caller):
                continue
            if engine.is_of(self) and not engine.inherited:
                with engine.lock:
                    found += engine._actors.get(caller, ())
        return [one for one in found if not one.is_leaving and not one.end.done()]

    def deduplicated(self, snapshot: Snapshot) -> Snapshot:
        """``snapshot`` with the client's own contenders, which it keeps anyway, not with copies."""
        if len(snapshot.contenders) == 1:
            return snapshot  # the one that asks, whose copy is kept
        return replace(snapshot, contenders=tuple(map(self._known, snapshot.contenders)))

    def _known(self, contender: Contender) -> Contender:
        if isinstance(contender.claim, Convertible):
            return contender  # as it is in the queue: its client may be further, or not so far
        ticket = self.own(contender)
        return contender if ticket is None else ticket.own(contender) or contender

    def ask(self, request: Callable[[], Promise[T]]) -> Steps[T]:
        """The answer to an idempotent request, repeated for up to the ``request_timeout``.

        Raises `BackendUnavailable` after that.
        """
        return (yield from self._answered(self.repeated(request)))

    def repeated(self, request: Callable[[], Promise[T]]) -> Steps[T]:
        """The answer to an idempotent request, repeated until one comes.

        ZooKeeper is asked in the client's session. Where that has ended, the next one is opened, or
        a client that only looks would never be answered again.
        """
        try:
            return (yield from retried(request, self.timers))
        except SessionLost:
            yield from self.sessions.live()
            return (yield from retried(request, self.timers))

    def remove(self, request: Callable[[], Promise[bool]]) -> Steps[bool]:
        """The answer to a request that removes something, likewise."""
        return (yield from self._answered(removal(request, self.timers)))

    def bounded(self, steps: Steps[T]) -> Steps[T]:
        """The result of ``steps``, which ask the service; likewise."""
        return (yield from self._answered(steps))

    def send(self, request: Callable[[], Promise[T]], what: str) -> Steps[T]:
        """The answer to a request that is sent once; ``what`` it asks for, in words.

        Raises `BackendUnavailable` when none came within the ``request_timeout``: it may have been
        made, or may be yet.
        """
        self.check()
        if not self.was_open:
            yield from self.session()
        yield self.deadline(self.settings.request_timeout)
        try:
            answer: T = yield request()
            return answer
        except DeadlineReached as late:
            silent = self.silent(late)
        except BackendUnavailable as error:
            silent = error
        reason = f"{silent.reason}; {what} may have been made, or may be yet"
        raise BackendUnavailable(silent.service, reason)

    def _answered(self, steps: Steps[T]) -> Steps[T]:
        self.check()
        if not self.was_open:
            yield from self.session()
        yield self.deadline(self.settings.request_timeout)
        try:
            return (yield from steps)
        except DeadlineReached as late:
            raise self.silent(late) from late.__cause__

    def silent(self, late: DeadlineReached) -> BackendUnavailable:
        """The error for a service that did not answer before ``late``."""
        last = late.__cause__ or self.sessions.trouble
        reason = last.reason if isinstance(last, BackendUnavailable) else "no answer in time"
        return BackendUnavailable(str(self.settings), reason)

    def call_back(self, action: Callable[[], object]) -> None:
        """Call the user's ``action`` soon, in the thread for callbacks."""
        soon(self.callbacks, action)

    def deadline(self, seconds: float | None) -> Deadline | None:
        """The moment ``seconds`` from now; None stays None, which is never."""
        return Deadline.after(seconds, self.clock)

    def close(self, patience: float | None = None) -> Steps[None]:
        """Withdraw what is left, end the session and the connection. Idempotent.

        After ``patience`` seconds, by default the ``request_timeout``, it stops waiting for the
        service. Needs no timers, because the interpreter starts no threads at its exit.

        A shared session goes on without us, and so would its contenders. So what it still has when
        no caller waits any more is withdrawn in the background, and the rest closed after that.
        """
        if self.inherited:
            return
        yield self.deadline(self.settings.request_timeout if patience is None else patience)
        mine: Promise[None] = Promise()
        try:
            with self.lock:
                closing = self._closing = self._closing or mine
            with suppress(DeadlineReached):
                if closing is not mine:
                    yield closing
                    return
                for withdrawal in self._withdraw_all():
                    yield settled(withdrawal)
                if not self._must_stay():
                    yield settled(self._disconnect())
        finally:
            # A second caller does it, too: Ctrl-C may have kept the first one from it.
            self._finish()

    def _finish(self) -> None:
        """No caller waits for `close` any more. Idempotent."""
        try:
            # Before the tickets are looked at, for the last one looks at this: see `_forget`.
            self._leaving = True
            self._withdraw_all()  # what Ctrl-C kept from it, or has come meanwhile
            if not self._must_stay():
                self._leave()
        finally:
            if self._closing is not None:
                self._closing.resolve(None)  # first, because a callback may wait for it
            self.callbacks.close()

    def _withdraw_all(self) -> list[Promise[bool]]:
        """End all tickets here; of a shared session, withdraw them one by one."""
        self.sessions.refuse()
        tickets = self._everybody()
        for ticket in tickets:
            ticket.lose(ClientClosed())
        return [ticket.withdraw() for ticket in tickets if ticket.session.shared]

    def _must_stay(self) -> bool:
        """Whether a shared session has, or may have, contenders that are left to this client."""
        return any(ticket.session.shared for ticket in self._everybody())

    def _everybody(self) -> list[Ticket]:
        # A copy: a collection of garbage meanwhile may forget some.
        with self.lock:
            return list(dict.fromkeys(self._tickets.values()))

    def _leave(self) -> None:
        self._disconnect()
        self.timers.close()

    def _disconnect(self) -> Promise[None]:
        self.sessions.end()
        return self.backend.close()

    def _forget(self, ticket: Ticket) -> None:
        with self.lock:
            for entry in ticket.entries:
                self._tickets.pop(entry.id, None)
                if ticket in (granted := self._granted.get(entry.queue, [])):
                    granted.remove(ticket)
                    if not granted:
                        del self._granted[entry.queue]
            if ticket.caller is not None and (held := self._actors.get(ticket.caller)):
                held.pop(ticket, None)
                if not held:
                    del self._actors[ticket.caller]
        if self._leaving and not self._tickets:
            self._leave()
        self._tell_when_unused()

    def call_when_unused(self, action: Callable[[], object]) -> None:
        """Call ``action``, once, in the timers' thread when nothing is held or waited for."""
        self._unused = action
        self._tell_when_unused()

    def _tell_when_unused(self) -> None:
        if self._unused is not None and all(one.is_leaving for one in self._everybody()):
            action, self._unused = self._unused, None
            soon(self.timers, action)

    def _tell_end(self, ticket: Ticket, end: Promise[CoordlockError | None]) -> None:
        now, lost, was_granted = self.clock.now(), end.result(), ticket.granted is not None
        for entry in ticket.entries:
            what = now, entry.id, entry.queue, entry.claim
            left = events.Left(*what, was_granted) if lost is None else None
            self.events.tell(left or events.Lost(*what, str(lost)))

    def _session_ended(self, session: Session, error: CoordlockError) -> None:
        if not session.id:
            return  # it was never opened, which the opening tells
        if self.events.heard:
            self.events.tell(events.SessionEnded(self.clock.now(), session.id, str(error)))
        tickets = [ticket for ticket in self._everybody() if ticket.session is session]
        for ticket in tickets:
            ticket.lose(copy(error))  # each waiter's traceback goes on its own
        if not isinstance(error, ClientClosed):
            log.warning("%s: %s; %d contender(s) lost", self.settings, error, len(tickets))
            # The service may keep the session for longer, and what is lost never comes back: others
            # need not wait for its release. A moment later, where something is held.
            when = self.clock.now() + self._notice(session)
            try:
                self.timers.call_at(when, partial(_withdraw, tickets))
            except ClientClosed:
                return
            except RuntimeError:  # no thread can be started
                _withdraw(tickets)

    def _notice(self, session: Session) -> float:
        """Seconds for the holders in ``session`` to hear of its end.

        None are needed where the service itself has ended it, nor for what is being withdrawn.
        """
        is_held = not session.gone and any(
            ticket.session is session and ticket.stage is Stage.GRANTED
            for ticket in self._everybody()
        )
        return _NOTICE if is_held else 0.0


def _value(claim: AnyClaim, announcement: Announcement | None) -> bytes:
    """What a contender with ``claim`` publishes from the beginning."""
    if isinstance(claim, Convertible):
        return claim.encode()
    return b"" if announcement is None else announcement.value


def _withdraw(tickets: Iterable[Ticket]) -> None:
    for ticket in tickets:
        if ticket.contenders:
            ticket.withdraw()  # else it is being sent, and its sender withdraws it
