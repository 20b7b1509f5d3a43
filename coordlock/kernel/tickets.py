"""The live tickets of one client, and what follows when they are lost.

After a loss, the holders are told first; then the contenders are withdrawn, because the service may
keep them for longer than this client counts on them, and other clients would wait for them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from functools import partial
from typing import Final, TypeVar

from coordlock.errors import ClientClosed, CoordlockError, LockLost
from coordlock.kernel.session import Session
from coordlock.kernel.ticket import HoldLimit, Ticket
from coordlock.model.contender import Contender, Entry
from coordlock.runtime.caller import Caller
from coordlock.runtime.clock import Timers
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise

__all__ = ["Tickets"]

log = Log("coordlock")

K = TypeVar("K")

#: Seconds from a loss to the withdrawal of what was held. The holder may wait for a processor, and
#: should hear of the loss before the next one is granted.
_NOTICE: Final = 0.2
#: How many lost locks a line of the log names.
_NAMED: Final = 5


class Tickets:
    """The live tickets: each from before its entries are sent until it has no contender left."""

    def __init__(self, service: object, timers: Timers) -> None:
        """The log shows ``service`` as the place where a loss happened."""
        self._service: Final = service
        self._timers: Final = timers
        # Reentrant: a signal handler, or a finalizer in a collection of garbage, may release a lock
        # between any two steps of this thread.
        self.lock: Final = threading.RLock()
        self._by_id: Final[dict[str, Ticket]] = {}
        #: The grants of each queue, and those of each caller, in that order.
        self._granted: Final[dict[str, dict[Ticket, None]]] = {}
        self._callers: Final[dict[Caller, dict[Ticket, None]]] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Ticket]:
        # Over a copy: a collection of garbage meanwhile may forget some.
        with self.lock:
            return iter(dict.fromkeys(self._by_id.values()))

    def add(self, ticket: Ticket) -> None:
        """``ticket`` is about to be sent."""
        with self.lock:
            for entry in ticket.entries:
                self._by_id[entry.id] = ticket

    def note_grant(self, ticket: Ticket, caller: Caller | None) -> None:
        """``ticket`` is granted to ``caller``. Of several contenders, all go when one is lost."""
        ticket.caller = caller
        if len(ticket.entries) > 1:
            ticket.end.add_done_callback(partial(self._fall_together, ticket))
        with self.lock:
            for entry in ticket.entries:
                if self._by_id.get(entry.id) is ticket:  # else the client has been closed
                    self._granted.setdefault(entry.queue, {})[ticket] = None
                    if caller is not None:
                        self._callers.setdefault(caller, {})[ticket] = None

    def forget(self, entries: Iterable[Entry]) -> None:
        """No contender of ``entries`` is left. Idempotent."""
        with self.lock:
            for entry in entries:
                if (ticket := self._by_id.get(entry.id)) is not None:
                    _drop(self._granted, entry.queue, ticket)
                    if ticket.caller is not None:
                        _drop(self._callers, ticket.caller, ticket)
                    # Last: where a signal handler raises before this, the next call does it all.
                    self._by_id.pop(entry.id, None)

    def own(self, contender: Contender) -> Ticket | None:
        """The ticket of ``contender``, if it is one of this client's own and not gone for good."""
        return self._by_id.get(contender.id)

    def held(self, queue: str) -> list[Ticket]:
        """The grants of ``queue`` that are neither lost nor released, the oldest first.

        Looks at the clock.
        """
        with self.lock:
            granted = list(self._granted.get(queue, ()))
        return [one for one in granted if one.lost is None and not one.is_leaving]

    def has_granted(self, caller: Caller) -> bool:
        """Whether ``caller`` was granted something that is not gone. Needs no lock."""
        return caller in self._callers

    def held_by(self, caller: Caller) -> list[Ticket]:
        """What ``caller`` was granted and holds.

        Without what is lost or being withdrawn: that leaves its queue whatever the caller does.
        """
        with self.lock:
            granted = self._callers.get(caller, ())
            return [one for one in granted if not one.is_leaving and not one.end.done()]

    # What follows a loss

    def lose_session(self, session: Session, error: CoordlockError) -> None:
        """``session`` has ended with ``error``, and so have its tickets."""
        if not session.id:
            return  # it was never open: the next attempt at opening one logs why
        lost = [ticket for ticket in self if ticket.session is session]
        for ticket in lost:
            ticket.lose(copy(error))  # each waiter's traceback goes on its own
        if isinstance(error, ClientClosed):
            return
        log.warning("%s: %s; %s", self._service, error, _what_is_lost(lost))
        self._withdraw_after(self.notice_period(session), lost)

    def notice_period(self, session: Session) -> float:
        """Seconds for which the holders in ``session`` are given notice of its end.

        0 if the service itself has ended it, and if nothing in it is held but being withdrawn.
        """
        is_held = not session.gone and any(
            one.session is session and one.granted_at is not None and not one.is_leaving
            for one in self
        )
        return _NOTICE if is_held else 0.0

    def limit(self, ticket: Ticket, seconds: float) -> None:
        """Let ``ticket``, which was granted, be lost ``seconds`` from now."""
        limit = ticket.limit = HoldLimit(self._timers, seconds, partial(self._expire, ticket))
        ticket.end.add_done_callback(lambda _: limit.cancel())

    def _expire(self, ticket: Ticket, seconds: float) -> None:
        if ticket.is_leaving or ticket.end.done() or not ticket.contenders:
            return
        reason = f"it was held for {seconds:g} s, the limit set by max_hold or extend()"
        token = ticket.contenders[0].token or 0
        lost = LockLost(ticket.name, token, reason, kind=ticket.kind)
        ticket.lose(lost)
        log.warning("%s: %s", self._service, lost)
        self._withdraw_after(_NOTICE, [ticket])

    def _fall_together(self, ticket: Ticket, end: Promise[CoordlockError | None]) -> None:
        if end.result() is not None:
            self._withdraw_after(_NOTICE, [ticket])

    def _withdraw_after(self, seconds: float, lost: Sequence[Ticket]) -> None:
        """Withdraw the ``lost`` tickets, whose holders have ``seconds`` to hear of the loss."""
        try:
            self._timers.call_at(self._timers.clock.now() + seconds, partial(_withdraw, lost))
        except ClientClosed:
            return
        except RuntimeError:  # no thread can be started
            _withdraw(lost)


def _what_is_lost(lost: Sequence[Ticket]) -> str:
    """For the log: "lost: lock 'a', lock 'b'", up to `_NAMED` of them."""
    if not lost:
        return "nothing was held or waited for"
    names = [f"{ticket.kind} {ticket.name!r}" for ticket in lost[:_NAMED]]
    more = f" and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
    return f"lost: {', '.join(names)}{more}"


def _withdraw(tickets: Iterable[Ticket]) -> None:
    for ticket in tickets:
        if ticket.contenders:
            ticket.withdraw()  # else it is being sent, and its sender withdraws it


def _drop(groups: dict[K, dict[Ticket, None]], key: K, ticket: Ticket) -> None:
    """Take ``ticket`` out of the group of ``key``, and forget a group that is empty."""
    if (group := groups.get(key)) is not None:
        group.pop(ticket, None)
        if not group:
            del groups[key]
