"""Memberships of a group: one stay, or a presence that joins again after each loss."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Self

from coordlock.errors import BackendUnavailable, ClientClosed, CoordlockError, Evicted, SessionLost
from coordlock.kernel.engine import Engine
from coordlock.kernel.ticket import Ticket
from coordlock.locks.grant import AsyncGrant, Grant
from coordlock.locks.publishing import Publisher, PublishingGrant, check_value
from coordlock.runtime.clock import sleep, within
from coordlock.runtime.driver import Steps, awaiting, blocking, run_in_background
from coordlock.runtime.guards import Resident
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise, settled

__all__ = ["AsyncMembership", "AsyncPresence", "Membership", "Presence"]

log = Log("coordlock")

#: Seconds between two attempts to join again.
_PAUSE: Final = 1.0
#: The longest, after errors that pass only once somebody has mended something.
_LONGEST_PAUSE: Final = 60.0


class _BaseMembership(PublishingGrant):
    """What sync and async memberships share."""

    _kind = "membership of group"


class Membership(_BaseMembership, Grant):
    """A membership of a group. A context manager that leaves it, as `release` does.

    It ends like every grant: with the session, by an eviction, or by its release.
    """

    publish = blocking(PublishingGrant._publish)


class AsyncMembership(_BaseMembership, AsyncGrant):
    """A membership of a group. An async context manager that leaves it, as `release` does.

    It ends like every grant: with the session, by an eviction, or by its release.
    """

    publish = awaiting(PublishingGrant._publish)


class BasePresence(Resident):
    """What sync and async presences share."""

    _instead = "join with a client there"

    def __init__(
        self, engine: Engine, name: str, join: Callable[[bytes], Steps[Ticket]], value: bytes
    ) -> None:
        self.name: Final = name
        self._engine: Final = engine
        self._join: Final = join
        self._lock: Final = threading.RLock()
        self._value = value
        self._ticket: Ticket | None = None
        self._publisher: Publisher | None = None
        #: Whether a request waits, which publishes what is the newest value then.
        self._is_asked = False
        self._is_leaving = False
        self._over: Promise[None] = Promise()

    @property
    def value(self) -> bytes:
        """The value that is published, or will be once it is a member again."""
        return self._value

    @property
    def is_member(self) -> bool:
        """Whether it is a member now, as far as this process knows; False in a forked child."""
        ticket = self._ticket
        if ticket is None or self._engine.inherited:
            return False
        return ticket.lost is None and not ticket.is_leaving

    def _begin(self) -> Steps[None]:
        """Join for the first time, and go on in the background."""
        ticket = yield from self._join(self._value)
        try:
            self._take(ticket)
            self._over = run_in_background(self._staying())
        except BaseException:
            self._is_leaving = True  # Ctrl-C: the caller never gets the presence
            ticket.withdraw()
            raise

    def _take(self, ticket: Ticket) -> None:
        with self._lock:
            self._ticket = ticket
            self._publisher, self._is_asked = Publisher(self._engine, ticket), False
            is_leaving = self._is_leaving
        if is_leaving:
            ticket.withdraw()
        else:
            self._publish()  # it may have been set while it joined

    def _publish(self) -> None:
        """Have the newest value published, by one request however often it was set."""
        if self._publisher is None or self._is_asked:
            return
        self._is_asked = True
        try:
            self._publisher.publish(self._newest).add_done_callback(self._published)
        except BaseException:
            self._is_asked = False  # Ctrl-C: the request may not have been made
            raise

    def _newest(self) -> bytes:
        self._is_asked = False  # before the look, so that what is set after that is asked for
        return self._value

    def _published(self, answer: Promise[None]) -> None:
        if (error := answer.exception()) is None:
            return
        self._is_asked = False
        if self.is_member and not self._engine.closed:
            log.warning("group %r: its value could not be published: %s", self.name, error)

    def _staying(self) -> Steps[None]:
        while True:
            assert self._ticket is not None
            yield settled(self._ticket.end)
            self._ticket.withdraw()
            pause = _PAUSE
            while not self._is_leaving:
                try:
                    self._take((yield from self._join(self._value)))
                    break
                except ClientClosed:
                    return
                except CoordlockError as error:
                    log.warning(
                        "group %r: could not join again, will retry in %.0f s: %s",
                        *(self.name, pause, error),
                    )
                    yield sleep(self._engine.timers, pause)
                    if not isinstance(error, BackendUnavailable | SessionLost | Evicted):
                        pause = min(2 * pause, _LONGEST_PAUSE)
            if self._is_leaving:
                return

    def publish(self, value: bytes) -> None:
        """Publish ``value``, up to 65,536 bytes, in the background, or once it is a member again.

        It does not wait for the service. Of several values in quick succession it publishes the
        last. Raises ValueError after leaving the group, and `ClientClosed`.
        """
        check_value(value)
        self._engine.check()
        if self._is_leaving:
            raise ValueError(f"the group {self.name!r} was left: join it again")
        self._value = value
        self._publish()

    def _leave(self) -> Steps[None]:
        """Leave the group for good; idempotent.

        Waits for the service for up to the client's ``request_timeout``; the removal goes on in the
        background until it is certain.
        """
        with self._lock:
            self._is_leaving = True
            ticket = self._ticket
        if ticket is not None and not self._engine.inherited:
            timeout = self._engine.settings.request_timeout
            yield within(self._engine.timers, ticket.withdraw(), timeout)

    def __repr__(self) -> str:
        state = "a member" if self.is_member else "no member now"
        return f"<{type(self).__name__} in {self.name!r}: {state}>"


class Presence(BasePresence):
    """A membership that joins again after each loss. A context manager that leaves it."""

    leave = blocking(BasePresence._leave)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.leave()


class AsyncPresence(BasePresence):
    """A membership that joins again after each loss. An async context manager that leaves it."""

    leave = awaiting(BasePresence._leave)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.leave()
