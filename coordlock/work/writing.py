"""A write that is repeated until it is known what came of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

from coordlock.backend import Backend, Operation
from coordlock.errors import BackendUnavailable, VersionMismatch
from coordlock.model.contender import Contender
from coordlock.runtime.clock import Timers, sleep
from coordlock.runtime.deadline import DeadlineReached
from coordlock.runtime.driver import Steps
from coordlock.runtime.log import Log

__all__ = ["Outcome", "written"]

log = Log("coordlock")

#: Seconds between two attempts.
_PAUSE: Final = 0.1


class Outcome(Enum):
    """What came of a write."""

    MADE = "made"
    REFUSED = "refused"  #: something that it expects is not so
    UNCLEAR = "unclear"  #: the same, but an attempt without answer may be what has changed it


def written(
    service: Backend,
    timers: Timers,
    operations: Sequence[Operation],
    guards: Sequence[Contender] = (),
    sent: Callable[[], object] = lambda: None,
) -> Steps[Outcome]:
    """Make a write that can be made only once, because it changes what it expects.

    It is repeated while the service is unavailable; so an attempt that arrives late does what the
    others would have done, or nothing. It ends with the caller's deadline, whose `DeadlineReached`
    then has the last failure as its cause: the write may have been made, or may be yet. Raises what
    `Backend.write` fails with otherwise: then no attempt that comes late is made either, unless one
    was made before. ``sent`` is called when an attempt is on its way.
    """
    last: BackendUnavailable | None = None
    try:
        while True:
            try:
                answer = service.write(operations, guards)
                sent()
                yield answer
                return Outcome.MADE
            except VersionMismatch:
                return Outcome.REFUSED if last is None else Outcome.UNCLEAR
            except BackendUnavailable as error:
                last = error
                log.debug("another attempt follows: %s", error)
            yield sleep(timers, _PAUSE)
    except DeadlineReached as late:
        raise late from last
