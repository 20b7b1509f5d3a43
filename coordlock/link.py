"""One client's link to its service: the backend, the session of the moment, the live tickets."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from coordlock.backend import Backend
from coordlock.claim import Claim
from coordlock.clock import SystemTimers, Timers, within
from coordlock.contender import Contender, Entry, Owner, Snapshot, are_same
from coordlock.driver import DeadlineReached, Steps, run_in_background
from coordlock.errors import BackendUnavailable, ClientClosed, CoordlockError, ForkedClient
from coordlock.ids import Ids
from coordlock.promise import Promise, settled
from coordlock.recovery import Recovery
from coordlock.retry import removal, retried
from coordlock.session import Session
from coordlock.settings import Settings
from coordlock.ticket import Ticket

__all__ = ["Link"]

log = logging.getLogger("coordlock")

T = TypeVar("T")


class Link:
    """What the locks and grants of one client share. Belongs to the process that made it."""

    def __init__(self, backend: Backend, settings: Settings, timers: Timers | None = None) -> None:
        self.backend: Final = backend
        self.settings: Final = settings
        self.timers: Final = timers or SystemTimers("coordlock-timers")
        self.clock: Final = self.timers.clock
        #: Runs the user's callbacks, so that no thread of ours ever does.
        self.callbacks: Final = SystemTimers("coordlock-callbacks")
        self.recovery: Final = Recovery(self.timers)
        self._pid: Final = os.getpid()
        self._ids: Final = Ids()
        self._host: Final = socket.gethostname()
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._starting: Session | None = None
        self._opening: Promise[Session] | None = None
        self._tickets: dict[str, Ticket] = {}
        self._closing: Promise[None] | None = None
        self._trouble: BackendUnavailable | None = None

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closing is not None

    @property
    def inherited(self) -> bool:
        """Whether this is the child of a fork, and the link its parent's."""
        return os.getpid() != self._pid

    def check(self) -> None:
        """Raise `ForkedClient` or `ClientClosed` where the link can no longer be used."""
        if self.inherited:
            raise ForkedClient(self._pid)
        if self.closed:
            raise ClientClosed

    def session(self) -> Steps[Session]:
        """The live session; opens one where there is none, once for all who ask meanwhile."""
        self.check()
        # `ended` looks at the clock and may end the session, so it is not asked under the lock.
        while (session := self._session) is None or session.ended is not None:
            with self._lock:
                if self._session is not session:
                    continue
                starts = self._opening is None
                opening = self._opening = self._opening or Promise()
            if starts:
                run_in_background(self._open(opening))
            yield settled(opening)
            if (error := opening.exception()) is not None:
                raise copy(error)  # others raise it too, and it collects tracebacks
        return session

    def ticket(self, session: Session, queue: str, claim: Claim) -> Ticket:
        """A new ticket for ``queue`` in ``session``; nothing is sent yet."""
        owner = Owner(self._host, self._pid, self.settings.label, time.time())
        entry = Entry(queue, next(self._ids), claim, owner)
        ticket = Ticket(self.backend, self.timers, session, entry, self.recovery, self._forget)
        with self._lock:
            self._tickets[entry.id] = ticket
        if self.closed:
            ticket.lose(ClientClosed())
        return ticket

    def own(self, contender: Contender) -> Ticket | None:
        """The ticket of ``contender``, if it is one of this client's own and not gone for good."""
        return self._tickets.get(contender.id)

    def deduplicated(self, snapshot: Snapshot) -> Snapshot:
        """``snapshot`` with the client's own contenders, which it keeps anyway, not with copies."""
        return replace(snapshot, contenders=tuple(map(self._known, snapshot.contenders)))

    def _known(self, contender: Contender) -> Contender:
        ticket = self.own(contender)
        kept = None if ticket is None else ticket.contender
        return kept if kept is not None and are_same(kept, contender) else contender

    def ask(self, request: Callable[[], Future[T]]) -> Steps[T]:
        """The answer to an idempotent request, repeated within the caller's deadline."""
        return (yield from self._answered(retried(request, self.timers)))

    def remove(self, request: Callable[[], Future[bool]]) -> Steps[bool]:
        """The answer to a request that removes something, likewise."""
        return (yield from self._answered(removal(request, self.timers)))

    def _answered(self, steps: Steps[T]) -> Steps[T]:
        self.check()
        try:
            return (yield from steps)
        except DeadlineReached as late:
            raise self.silent(late) from late.__cause__

    def silent(self, late: DeadlineReached) -> BackendUnavailable:
        """The error for a service that did not answer before ``late``."""
        last = late.__cause__ or self._trouble
        reason = last.reason if isinstance(last, BackendUnavailable) else "no answer in time"
        return BackendUnavailable(str(self.settings), reason)

    def call_back(self, action: Callable[[], object]) -> None:
        """Call the user's ``action`` soon, in the thread for callbacks."""
        with suppress(ClientClosed):
            self.callbacks.call_at(self.clock.now(), action)

    def deadline(self, seconds: float | None) -> float | None:
        """The moment ``seconds`` from now; None stays None."""
        return None if seconds is None else self.clock.now() + seconds

    def close(self) -> Steps[None]:
        """Withdraw what is left, end the session and the connection. Idempotent.

        At the driver's deadline it stops waiting for the service. Needs no timers, because the
        interpreter starts no threads at its exit.
        """
        if self.inherited:
            return
        with self._lock:
            first = self._closing is None
            closing = self._closing = self._closing or Promise()
        if not first:
            with suppress(DeadlineReached):
                yield closing
            return
        try:
            with suppress(DeadlineReached):
                yield from self._withdraw_all()
                yield settled(self._disconnect())
        finally:
            self._disconnect()
            self.timers.close()
            self.callbacks.close()
            closing.resolve(None)

    def _withdraw_all(self) -> Steps[None]:
        with self._lock:
            tickets, opening, session = list(self._tickets.values()), self._opening, self._session
        if opening is not None:
            opening.fail(ClientClosed())
        for ticket in tickets:
            ticket.lose(ClientClosed())
        if session is not None and session.shared:
            # The session goes on without us: its contenders must go one by one.
            for withdrawal in [ticket.withdraw() for ticket in tickets]:
                yield settled(withdrawal)

    def _disconnect(self) -> Future[None]:
        for session in (self._session, self._starting):
            if session is not None:
                session.end(ClientClosed())
        return self.backend.close()

    def _open(self, opening: Promise[Session]) -> Steps[None]:
        try:
            session = yield from retried(
                lambda: run_in_background(self._start_session()),
                self.timers,
                on_failure=self._note,
            )
        except BaseException as error:
            with self._lock:
                self._opening = None
            opening.fail(error)
        else:
            with self._lock:
                self._opening = self._starting = None
                self._session = session
                self._trouble = None
            log.info("%s: session %s is open", self.settings, session.id)
            self.recovery.noticed()
            opening.resolve(session)

    def _note(self, error: BackendUnavailable) -> None:
        if self._trouble is None:
            log.warning("%s: %s", self.settings, error)
        self._trouble = error

    def _start_session(self) -> Steps[Session]:
        if self.closed:
            raise ClientClosed
        self._starting = session = Session(
            self.backend, self.timers, self._session_ended, self.recovery.noticed
        )
        opened = run_in_background(session.open())
        # Another attempt dials anew, so none goes on for ever, whatever it waits for.
        seconds = self.settings.connect_timeout + self.settings.request_timeout
        yield within(self.timers, opened, seconds)
        if not opened.done():
            late = BackendUnavailable(self.backend.scheme, f"no session was open in {seconds:g} s")
            session.end(late)
            raise late
        return opened.result()

    def _forget(self, ticket: Ticket) -> None:
        with self._lock:
            self._tickets.pop(ticket.entry.id, None)

    def _session_ended(self, session: Session, error: CoordlockError) -> None:
        with self._lock:
            tickets = [ticket for ticket in self._tickets.values() if ticket.session is session]
        if not isinstance(error, ClientClosed):
            log.warning("%s: %s; %d contender(s) lost", self.settings, error, len(tickets))
        for ticket in tickets:
            ticket.lose(copy(error))  # each waiter's traceback goes on its own
        if not isinstance(error, ClientClosed):
            # The service may keep the session for longer, and what is lost never comes back: others
            # need not wait for its release. In the timers' thread, because anybody's may be here.
            with suppress(ClientClosed):
                self.timers.call_at(self.clock.now(), partial(_withdraw, tickets))


def _withdraw(tickets: Iterable[Ticket]) -> None:
    for ticket in tickets:
        if ticket.contender is not None:
            ticket.withdraw()  # else it is being sent, and its sender withdraws it
