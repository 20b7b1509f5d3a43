"""One client at work: its backend, its sessions, its tickets, and what it asks the service."""

from __future__ import annotations

import itertools
import math
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import suppress
from copy import copy
from functools import partial
from typing import Any, Final, TypeVar

from coordlock.backend import Backend
from coordlock.errors import BackendUnavailable, ClientClosed, SessionLost
from coordlock.kernel.removal import removal
from coordlock.kernel.retry import retried
from coordlock.kernel.session import Session, Sessions
from coordlock.kernel.ticket import Ticket
from coordlock.kernel.tickets import Tickets
from coordlock.model.claim import AnyClaim, Convertible
from coordlock.model.contender import Announcement, Entry, Owner
from coordlock.model.queue_entry import QueueEntry, queue_entries
from coordlock.runtime.caller import Caller
from coordlock.runtime.clock import SystemTimers, Timers, within
from coordlock.runtime.deadline import ENDING, Cancellation, Deadline, DeadlineReached, checked
from coordlock.runtime.driver import Call, Steps, bounded
from coordlock.runtime.log import Log
from coordlock.runtime.process import PROCESS, host_name
from coordlock.runtime.promise import Promise
from coordlock.runtime.worker import Worker
from coordlock.settings import Settings

__all__ = ["Engine", "engines", "entries_of"]

log = Log("coordlock")

T = TypeVar("T")

_NOTHING: Final = Announcement(b"")
#: Seconds after which callbacks are tried again for which no thread could be started.
_CALLBACK_PAUSE_S: Final = 1.0
#: How many of the latest calls of `Engine.share_while_used` keep what they were given.
_RECENT_CALLS: Final = 256
#: The engines of this process and, in the child of a fork, those of its parents.
_numbers: Final = itertools.count(1)
_engines: Final[weakref.WeakValueDictionary[int, Engine]] = weakref.WeakValueDictionary()


class Engine:
    """What the locks and grants of one client share. Belongs to the process that made it."""

    def __init__(
        self,
        backend: Backend,
        settings: Settings,
        timers: Timers | None = None,
        given: object = None,
        aside: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        """``given`` is the client of another library that the backend uses, if it does.

        ``aside`` makes a call soon, without keeping the caller; by default in a thread.
        """
        #: Tells the clients of this process apart.
        self.number: Final = next(_numbers)
        self._pid: Final = PROCESS.id
        self._given: Final = given
        self.backend: Final = backend
        self.settings: Final = settings
        self.timers: Final = timers or SystemTimers()
        self.clock: Final = self.timers.clock
        #: Runs the user's callbacks, so that no thread of ours ever does.
        self.callbacks: Final = Worker("coordlock-callbacks", is_slow=True)
        #: Makes calls that take long, in no thread that heartbeats need.
        self.aside: Final = aside or Worker("coordlock-aside").run
        self.tickets: Final = Tickets(settings, self.timers, settings.ttl, self.number)
        #: For what is short and shared; reentrant, as `Tickets.lock` is.
        self.lock: Final = self.tickets.lock
        self.sessions: Final = Sessions(backend, settings, self.timers, self.tickets)
        #: Kept when the client was closed; None until that begins.
        self.closing: Promise[None] | None = None
        #: The queues whose last tries were refused, the latest last.
        self.refusals: Final[dict[str, None]] = {}
        #: What recipes keep for as long as this client lives.
        self._shared: dict[Hashable, Any] = {}
        #: What `share_while_used` has made and somebody uses, and what was used last.
        self._used: weakref.WeakValueDictionary[Hashable, Any] = weakref.WeakValueDictionary()
        self._used_lately: deque[Any] = deque(maxlen=_RECENT_CALLS)
        _engines[id(self)] = self

    # What it is

    @property
    def closed(self) -> bool:
        """Whether the client was closed, or is being closed."""
        return self.closing is not None

    @property
    def is_at_work(self) -> bool:
        """Whether there is something to close: in this process, and not yet."""
        return bool(self.sessions.known) and not (self.closed or self.inherited)

    @property
    def inherited(self) -> bool:
        """Whether this is the child of a fork, and the engine its parent's."""
        return PROCESS.id != self._pid

    @property
    def data_root(self) -> str:
        """The path below which coordlock keeps its own data, without a slash at its end."""
        return self.settings.root.rstrip("/") if self.backend.shares_keys else ""

    def is_of(self, other: Engine) -> bool:
        """Whether both speak to the same service below the same root, as far as settings tell."""
        one, two = self.settings, other.settings
        if (one.scheme, one.root) != (two.scheme, two.root) or self._given is not other._given:
            return False
        return one.hosts == two.hosts or not set(one.hosts).isdisjoint(two.hosts)

    def check(self) -> None:
        """Raise `ClientClosed` if the engine can no longer be used."""
        if PROCESS.id != self._pid:
            raise ClientClosed(
                f"this client belongs to the parent process {self._pid}: connect in the child, or "
                "use coordlock.Client(), which connects in each process anew"
            )
        if self.closing is not None:
            raise ClientClosed

    # What it has

    def share(self, key: Hashable, make: Callable[[], T]) -> T:
        """What all callers with ``key`` share: what ``make`` makes for the first of them."""
        with self.lock:
            if key not in self._shared:
                self._shared[key] = make()
            shared: T = self._shared[key]
            return shared

    def share_while_used(self, key: Hashable, make: Callable[[], T]) -> T:
        """As `share`, but forgotten some time after the last caller has dropped it.

        For keys that contain names, of which there may be any number.
        """
        with self.lock:
            shared: T | None = self._used.get(key)
            if shared is None:
                shared = self._used[key] = make()
            self._used_lately.append(shared)
            return shared

    def first_session(self) -> Steps[None]:
        """Open a session where none was open so far. Raises what `session` raises."""
        if self.sessions.latest is None:
            yield from self.session()
        else:
            self.check()
            if self.settings.fail_fast:
                self._refuse_in_outage()

    def session(self) -> Steps[Session]:
        """The live session; opens one where there is none, once for all callers.

        Raises `BackendUnavailable` if none was open so far within the ``connect_timeout``; and at
        once with ``fail_fast`` during an outage that the client has noticed.
        """
        self.check()
        if self.settings.fail_fast:
            self._refuse_in_outage()
        if (latest := self.sessions.latest) is not None and latest.ended is None:
            return latest
        if latest is None:
            first = self.sessions.opening()
            yield within(self.timers, first, self.settings.connect_timeout)
            if not first.done():
                raise self.doubted(self.silent(DeadlineReached()))
            if (error := first.exception()) is not None:
                raise copy(error)
        return (yield from self.sessions.live())

    def _refuse_in_outage(self) -> None:
        if (outage := self.sessions.outage) is None:
            return
        since, doubt = outage
        away = self.clock.now() - since
        raise BackendUnavailable(
            self.backend.scheme,
            f"no answer for {away:.3g} s: {doubt} ({self.settings}). With fail_fast, requests are "
            "refused until the service answers the client's heartbeats: try again later",
            away=away,
        )

    def ticket(
        self,
        session: Session,
        claims: Mapping[str, AnyClaim],
        label: str | None = None,
        announcement: Announcement | None = None,
        call: Call | None = None,
    ) -> Ticket:
        """A new ticket in ``session`` for the queues in ``claims``; nothing is sent yet.

        ``label`` describes its owner in place of the client's. The ticket is withdrawn where
        ``call`` is given up.
        """
        label = self.settings.label if label is None else label
        entries = entries_of(claims, label, announcement)
        ticket = Ticket(session, entries, self.backend, self.timers, self.tickets, call=call)
        self.tickets.add(ticket)
        if self.closing is not None:
            ticket.lose(ClientClosed())
        return ticket

    def held_by(self, caller: Caller, queue: str | None = None) -> list[Ticket]:
        """What ``caller`` was granted by this service, through any client, and holds.

        Of ``queue``, if that is given.
        """
        found: list[Ticket] = []
        for engine in engines():
            if (held := engine.tickets.held(queue, caller)) and engine.is_of(self):
                found += held
        return found

    # What it asks the service

    def ask(self, request: Callable[[], Promise[T]]) -> Steps[T]:
        """The answer to an idempotent request, repeated for up to the ``request_timeout``.

        Raises `BackendUnavailable` after that.
        """
        return (yield from self.bounded(self.repeated(request)))

    def remove(self, request: Callable[[], Promise[bool]]) -> Steps[bool]:
        """As `ask`, for a request that removes something; whether it was there."""
        return (yield from self.bounded(removal(request, self.timers)))

    def queue(self, name: str) -> Steps[tuple[QueueEntry, ...]]:
        """The queue of ``name`` in order, with all owners and tokens, by a linearizable read."""
        snapshot = yield from self.ask(lambda: self.backend.snapshot(name, owners=True))
        return queue_entries(snapshot, time.time())

    def send(self, request: Callable[[], Promise[T]], what: str) -> Steps[T]:
        """The answer to a write that is sent once, and is called ``what`` in errors.

        Raises `BackendUnavailable` when no answer came within the ``request_timeout``: the write
        may have been made, or may be yet.
        """
        return (yield from self.bounded(_once(request), what))

    def bounded(self, steps: Steps[T], what: str | None = None) -> Steps[T]:
        """The result of ``steps``, which ask the service for up to the ``request_timeout``.

        Raises `BackendUnavailable` after that. With ``what``, the words for a write, it says that
        the write may have been made, or may be yet.
        """
        yield from self.first_session()
        try:
            return (yield from bounded(steps, self.deadline(self.settings.request_timeout)))
        except DeadlineReached as late:
            silent = self.doubted(self.silent(late))
            if what is None:
                raise silent from late.__cause__
        except BackendUnavailable as error:
            silent = error
            if what is None:
                raise
        reason = f"{silent.reason}; {what} may have been made, or may be yet"
        raise BackendUnavailable(silent.service, reason, away=silent.away)

    def repeated(self, request: Callable[[], Promise[T]]) -> Steps[T]:
        """The answer to an idempotent request, repeated until one comes.

        Where the session has ended, this opens the next one: ZooKeeper answers only in a session,
        and a client that only looks would never open another.
        """
        try:
            return (yield from retried(request, self.timers))
        except SessionLost:
            yield from self.sessions.live()
            return (yield from retried(request, self.timers))

    def silent(self, late: DeadlineReached) -> BackendUnavailable:
        """The error for a service that did not answer before ``late``."""
        last = late.__cause__ or self.sessions.trouble
        reason, away = "no answer in time", None
        if (outage := self.sessions.outage) is not None:
            away, reason = self.clock.now() - outage[0], outage[1]
        if isinstance(last, BackendUnavailable):
            reason = last.reason
        return BackendUnavailable(self.backend.scheme, f"{reason} ({self.settings})", away=away)

    def doubted(self, silent: BackendUnavailable) -> BackendUnavailable:
        """``silent``, the error of a request that waited long: ``fail_fast`` refuses the next."""
        if self.settings.fail_fast:
            self.sessions.doubt("a request was not answered in time")
        return silent

    def call_back(self, action: Callable[[], object]) -> None:
        """Call the user's ``action`` soon, in the thread for callbacks; the log shows errors."""

        def call() -> None:
            try:
                action()
            except (Exception, SystemExit):  # which would only end the thread
                log.exception("a callback failed")

        self._run_callbacks(call)

    def _run_callbacks(self, call: Callable[[], object]) -> None:
        self.callbacks.run(call)
        if self.callbacks.is_stuck:  # no thread can be started for them, and this must not wait
            again = partial(self._run_callbacks, lambda: None)
            with suppress(ClientClosed):  # whose close makes them
                self.timers.call_at(self.clock.now() + _CALLBACK_PAUSE_S, again)

    def deadline(self, seconds: float | None) -> Deadline | None:
        """The moment ``seconds`` from now; None stays None, which is never."""
        return Deadline.after(seconds, self.clock)

    def until(
        self, seconds: float | None, cancellation: Cancellation | None = None
    ) -> Deadline | None:
        """When a wait ends: ``seconds`` from now, when cancelled, or when the process is to end.

        Raises TypeError for what is neither a `Cancellation` nor None.
        """
        ends: tuple[Cancellation, ...] = ()
        if cancellation is not None:
            checked(cancellation)
            ends = (cancellation,)
        if ENDING.waits is not None:
            ends += (ENDING.waits,)
        if seconds is None:
            return Deadline(self.clock, math.inf, ends) if ends else None
        return Deadline(self.clock, self.clock.now() + seconds, ends)


def engines() -> Iterator[Engine]:
    """The engines of this process that were not dropped, without those of its parents.

    A thread of a parent may hold a lock for ever.
    """
    for reference in _engines.valuerefs():
        engine = reference()
        if engine is not None and not engine.inherited:
            yield engine


def entries_of(
    claims: Mapping[str, AnyClaim], label: str, announcement: Announcement | None
) -> tuple[Entry, ...]:
    """New entries for the queues in ``claims``, each with an id that no other one ever has."""
    value, raw, identity = announcement or _NOTHING
    # Without a host, the owner is not stored.
    owner = Owner("", 0) if raw else Owner(host_name(), PROCESS.id, label, time.time())
    entries = []
    for queue, claim in claims.items():
        id = identity + os.urandom(16).hex()[len(identity) :]
        if isinstance(claim, Convertible):
            entries.append(Entry(queue, id, claim, owner, claim.encode()))
        else:
            entries.append(Entry(queue, id, claim, owner, value, announcement is not None))
    return tuple(entries)


def _once(request: Callable[[], Promise[T]]) -> Steps[T]:
    answer: T = yield request()
    return answer
