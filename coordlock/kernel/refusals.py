"""Which locks have refused a try lately: the next try looks before it takes a position.

A try that enqueues in order to look stands in the way of the next one until it has withdrawn. So
pollers that do nothing else refuse each other a lock that nobody holds.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Final

from coordlock.backend import Capabilities
from coordlock.model.claim import AnyClaim, Permit
from coordlock.runtime.clock import Clock

__all__ = ["Refusals"]

#: For how many seconds a refusal is remembered: programs that poll less often do not collide.
_REMEMBERED_S: Final = 30.0
#: How many queues are remembered at most.
_REMEMBERED_QUEUES: Final = 1024


class Refusals:
    """The queues of one client whose tries were refused, the latest last."""

    def __init__(self, clock: Clock, capabilities: Capabilities) -> None:
        self._clock: Final = clock
        self._one_step: Final = capabilities.one_step
        # Reentrant, because a signal handler may try a lock.
        self._lock: Final = threading.RLock()
        self._times: Final[dict[str, float]] = {}

    def note(self, queues: Iterable[str]) -> None:
        """A try was refused for what is in ``queues``, or is likely to be."""
        now = self._clock.now()
        with self._lock:
            for queue in queues:
                self._times.pop(queue, None)
                self._times[queue] = now
            for queue in list(self._times)[:-_REMEMBERED_QUEUES]:
                del self._times[queue]

    def are_recent(self, queues: Iterable[str]) -> bool:
        """Whether a try was refused lately for what is in any of ``queues``."""
        if not self._times:
            return False
        since = self._clock.now() - _REMEMBERED_S
        return any(self._times.get(queue, since) > since for queue in queues)

    def looks_first(self, claims: Mapping[str, AnyClaim]) -> bool:
        """Whether a try takes no position where it would be refused.

        Where that costs a request more, it does so only if such a try was refused lately.
        """
        if self._one_step == "all":
            return True
        if self._one_step == "mode" and len(claims) == 1:
            [claim] = claims.values()
            if not isinstance(claim, Permit):
                return True
        return self.are_recent(claims)
