"""The end of one client, and of one that was dropped before it was closed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from coordlock.backend import Backend
from coordlock.errors import ClientClosed
from coordlock.kernel.sessions import Sessions
from coordlock.kernel.tickets import Tickets
from coordlock.runtime.clock import Timers, soon
from coordlock.runtime.deadline import Deadline, DeadlineReached
from coordlock.runtime.driver import Steps
from coordlock.runtime.promise import Promise, settled

__all__ = ["Closing"]


@dataclass(eq=False, repr=False)
class Closing:
    """Withdraws what is left, and ends the session and the connection.

    A shared session goes on without this client, and so would its contenders. So what is not
    withdrawn when `steps` ends leaves in the background, and the last one to leave closes the rest.
    """

    _backend: Backend
    _sessions: Sessions
    _tickets: Tickets
    _timers: Timers
    _callbacks: Timers
    #: Kept when the client was closed; None until that begins.
    closed: Promise[None] | None = None
    #: Whether `steps` has ended: then the last ticket that is forgotten closes the rest.
    _in_background: bool = False
    #: What to call once nothing is held or waited for.
    _unused: Callable[[], object] | None = None

    def steps(self, deadline: Deadline | None) -> Steps[None]:
        """Close, and wait for the service until ``deadline``. Idempotent.

        Needs no timers, because the interpreter starts no threads at its exit.
        """
        yield deadline
        mine: Promise[None] = Promise()
        try:
            with self._tickets.lock:
                closed = self.closed = self.closed or mine
            with suppress(DeadlineReached):
                if closed is not mine:
                    yield closed
                    return
                for withdrawal in self._withdraw_all():
                    yield settled(withdrawal)
                if not self._must_stay():
                    yield settled(self._disconnect())
        finally:
            # A second caller does it, too: a signal may have kept the first one from it.
            self._finish()

    def _finish(self) -> None:
        """No caller waits any more. Idempotent."""
        try:
            # Before the tickets are looked at: the last one may be forgotten meanwhile.
            self._in_background = True
            self._withdraw_all()  # those that have come meanwhile, or all, after a signal
            if not self._must_stay():
                self._leave()
        finally:
            if self.closed is not None:
                self.closed.resolve(None)  # before the callbacks end: one may wait for this
            self._callbacks.close()

    def _withdraw_all(self) -> list[Promise[bool]]:
        """End all tickets here; of a shared session, withdraw them one by one."""
        self._sessions.refuse()
        tickets = list(self._tickets)
        for ticket in tickets:
            ticket.lose(ClientClosed())
        staying = [ticket for ticket in tickets if ticket.session.shared]
        answers = [ticket.withdraw() for ticket in staying]
        for ticket in staying:
            ticket.sweep()  # where a signal handler has struck an earlier call
        return answers

    def _must_stay(self) -> bool:
        """Whether this client still has, or may have, contenders in a shared session."""
        return any(ticket.session.shared for ticket in self._tickets)

    def _leave(self) -> None:
        self._disconnect()
        self._timers.close()

    def _disconnect(self) -> Promise[None]:
        self._sessions.end()
        return self._backend.close()

    def forgotten(self) -> None:
        """A ticket has no contender left."""
        if self._in_background and not self._tickets:
            self._leave()
        self._tell_when_unused()

    def call_when_unused(self, action: Callable[[], object]) -> None:
        """Call ``action``, once, in the timers' thread when nothing is held or waited for."""
        self._unused = action
        self._tell_when_unused()

    def _tell_when_unused(self) -> None:
        if self._unused is not None and all(ticket.is_leaving for ticket in self._tickets):
            action, self._unused = self._unused, None
            soon(self._timers, action)
