"""Grants that publish a value: what all clients read of their contender while it stands."""

from __future__ import annotations

from functools import partial
from typing import Final

from coordlock.kernel.engine import Engine
from coordlock.kernel.publisher import Publisher
from coordlock.kernel.ticket import Ticket
from coordlock.locks.base_grant import BaseGrant
from coordlock.runtime.driver import Steps

__all__ = ["MAX_VALUE", "PublishingGrant", "check_value"]

#: The longest value, in bytes.
MAX_VALUE: Final = 65_536


def check_value(value: object, what: str = "value") -> bytes:
    """``value``, which all services can publish.

    Raises TypeError for what is not bytes, and ValueError for more than 65,536 of them.
    """
    if not isinstance(value, bytes):
        hint = ": encode it" if isinstance(value, str) else ""
        raise TypeError(f"{what} must be bytes, not {type(value).__name__}{hint}")
    if len(value) > MAX_VALUE:
        raise ValueError(
            f"{what} has {len(value)} bytes, and the limit is {MAX_VALUE}: keep larger data "
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

    def _publish(self, value: bytes) -> Steps[None]:
        """Publish ``value`` after what was to be published before. Raises as `Term.publish`."""
        self.check()
        publish = partial(self._publisher.publish, lambda: value)
        yield from self._guarded(self._engine.send(publish, "the publication"))
        self.check()
