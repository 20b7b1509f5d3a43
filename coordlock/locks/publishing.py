"""What a ticket's contender publishes: one request after the other, each to its end.

A request goes on until it is answered, whoever waits for it: until then nobody knows what stands in
the queue. So what is to be published next is decided when the one before has been answered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from coordlock.errors import ClientClosed
from coordlock.kernel.engine import Engine
from coordlock.kernel.retry import retried
from coordlock.kernel.ticket import Ticket
from coordlock.locks.base_grant import BaseGrant
from coordlock.model.claim import Convertible
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.promise import Promise, failed, resolved, settled

__all__ = ["Publisher", "PublishingGrant", "check_value"]

#: The longest value of a grant, in bytes.
_MAX_VALUE: Final = 65_536


class Publisher:
    """Publishes for the only contender of ``ticket``. Raises `Unsupported` where it can't."""

    def __init__(self, engine: Engine, ticket: Ticket) -> None:
        self._engine: Final = engine
        self._ticket: Final = ticket
        engine.backend.require("publishing")
        #: The last request to publish something: kept when all before have been answered.
        self.last: Promise[None] = resolved(None)
        #: The last one that has begun.
        self._begun: Promise[None] = self.last

    def publish(self, make: Callable[[], bytes]) -> Promise[None]:
        """Publish what ``make`` gives when all that was to be published before has been.

        The promise is kept when the service has answered, or the contender is leaving. It fails
        when the contender is lost, the client is closed, or the service refuses the value.
        """
        answer: Promise[None] = Promise()
        begin = partial(self._begin, make, answer)
        try:  # in the timers' thread, where Ctrl-C cannot strike
            self._engine.timers.call_at(self._engine.clock.now(), begin)
        except ClientClosed as error:
            answer.fail(error)
        self.last = answer
        return answer

    def _begin(self, make: Callable[[], bytes], answer: Promise[None]) -> None:
        before, self._begun = self._begun, answer
        publishing = run_in_background(self._publish(make, settled(before)))
        publishing.add_done_callback(answer.follow)

    def _publish(self, make: Callable[[], bytes], before: Promise[None]) -> Steps[None]:
        yield before
        ticket = self._ticket
        [me] = ticket.contenders
        # Decided once: a second attempt that asked for something else would be refused for ever.
        value = make()
        if value == me.value or ticket.is_leaving:
            return

        def publish() -> Promise[None]:
            if self._engine.closed:
                return failed(ClientClosed())
            if ticket.is_leaving:  # it takes what it has published along
                return resolved(None)
            ticket.check()
            return self._engine.backend.publish(me, value, me.version)

        yield from retried(publish, self._engine.timers)
        is_convertible = isinstance(me.claim, Convertible)
        claim = Convertible.decode(value) if is_convertible else me.claim
        ticket.contenders = (replace(me, claim=claim, value=value, version=me.version + 1),)


def check_value(value: object, what: str = "value") -> bytes:
    """``value``, which all services can publish.

    Raises TypeError for what is not bytes, and ValueError for more than 65,536 of them.
    """
    if not isinstance(value, bytes):
        hint = ": encode it" if isinstance(value, str) else ""
        raise TypeError(f"{what} must be bytes, not {type(value).__name__}{hint}")
    if len(value) > _MAX_VALUE:
        raise ValueError(
            f"{what} has {len(value)} bytes, and the limit is {_MAX_VALUE}: keep larger data "
            "elsewhere, and publish its address"
        )
    return value


class PublishingGrant(BaseGrant):
    """What grants with a published value share, sync and async."""

    def __init__(self, engine: Engine, ticket: Ticket) -> None:
        super().__init__(engine, ticket)
        self._publisher = Publisher(engine, ticket)

    @property
    def value(self) -> bytes:
        """What is published, as far as the service has acknowledged it."""
        return self._ticket.contenders[0].value or b""

    @value.setter
    def value(self, value: bytes) -> None:
        raise AttributeError(f"the value of {self!r} cannot be assigned: call publish()")

    def _check_value(self, value: bytes) -> None:
        check_value(value)

    def _publish(self, value: bytes) -> Steps[None]:
        """Publish ``value``, up to 65,536 bytes, in place of the one before; the grant goes on.

        Raises `LockLost` once it has ended, and `BackendUnavailable` when no answer came within the
        client's ``request_timeout``: then, as when Ctrl-C or a cancellation ends the call, the
        value is published once the service is back, if the grant still lasts.
        """
        self._check_value(value)
        self.check()
        publish = partial(self._publisher.publish, lambda: value)
        yield from self._guarded(self._engine.send(publish, "the publication"))
        self.check()
