"""Requests that were lost with a leader, found without waiting for their time to be up.

A member hands requests over to its leader. A leader that dies takes along the requests that had not
reached a majority. They will never be answered, though the member and the connection are well. etcd
itself gives up after five seconds and two elections.

Every answer shows the term of the newest entry of the log that its member has applied. Entries that
outlive a leader come before the first entry of the next leader. So once a member shows a newer
term, the unanswered requests of older terms were lost, except those that are being answered at that
very moment, or that a member without a leader has kept back. They fail as at the end of their time,
and the caller knows whether it can ask again. A client may see a new term late, and so take a
request of that term for an older one. So it never gives up a request that it has just sent.

This sends nothing while requests are answered. When one is not, the client asks the member for its
term, which it knows without its leader. The longer that lasts, the less often the client asks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Final, Protocol

from coordlock.runtime.clock import SYSTEM_CLOCK

__all__ = ["LostRequests"]

#: Seconds between looks. The second look that finds a request unanswered asks the member.
_PATIENCE: Final = 0.2
#: The next question comes after this share of the time for which there has been no answer.
_SHARE: Final = 0.15
#: Seconds left to the answers that are on their way when a newer term is seen.
_GRACE: Final = 0.05


class Asked(Hashable, Protocol):
    """A request under way."""

    def give_up(self) -> None:
        """Fail as lost. Must not block."""


@dataclass(slots=True)
class _Sending:
    """When a request was sent, and in which term, or 0 where the term was not known yet."""

    moment: float
    term: int
    #: Whether a look has found it unanswered.
    is_known: bool = False


class LostRequests:
    """Finds those of one connection, in a thread that starts with the first request.

    Args:
        ask: asks the member in use for its term, and may block for that; 0 when there is no answer.
    """

    def __init__(self, ask: Callable[[], int]) -> None:
        self._ask = ask
        #: The newest term that any answer has shown.
        self._term = 0
        self._asked: dict[Asked, _Sending] = {}  # in order
        self._nudges: SimpleQueue[None] = SimpleQueue()
        self._idle = True
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def expect(self, request: Asked) -> None:
        """``request`` is being sent."""
        self._asked[request] = _Sending(SYSTEM_CLOCK.now(), self._term)
        if self._idle:
            self._idle = False
            self._nudge()

    def answered(self, request: Asked) -> bool:
        """``request`` has ended, somehow; False if it was given up before."""
        return self._asked.pop(request, None) is not None

    def saw(self, term: int) -> None:
        """An answer shows ``term``."""
        self._term = max(self._term, term)

    def close(self) -> None:
        """Look no more, and let the thread end."""
        self._closed = True
        self._nudges.put(None)

    def join(self, timeout: float) -> None:
        """Wait for the thread's end, up to ``timeout`` seconds."""
        if self._thread is not None:
            self._thread.join(timeout)

    def _nudge(self) -> None:
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(
                    target=self._serve, name="coordlock-etcd-lost", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:  # the interpreter ends, or there are too many: next time then
                    self._idle = True
                    return
                self._thread = thread
        self._nudges.put(None)

    def _serve(self) -> None:
        while not self._closed:
            self._nudges.get()
            pause = _PATIENCE
            while self._asked and not self._closed:
                self._wait(pause)
                pause = self._look()
            self._idle = True
            if self._asked:  # by a request that found this thread busy just now
                self._nudges.put(None)

    def _look(self) -> float:
        """Give up lost requests; in how many seconds to look again."""
        oldest = next(iter(self._asked.copy().values()), None)
        if oldest is None:
            return _PATIENCE
        if not oldest.is_known:  # a process that stood still has yet to read the answer
            oldest.is_known = True
            return _PATIENCE
        # A request sent a moment ago may be on its way to the new leader already.
        latest = SYSTEM_CLOCK.now() - _PATIENCE
        self.saw(self._ask())
        lost = []
        for request, sending in self._asked.copy().items():  # in one step: others send meanwhile
            sending.term = sending.term or self._term
            if sending.term < self._term and sending.moment <= latest:
                lost.append((request, sending))
        if lost:
            self._wait(_GRACE)
        for request, sending in lost:
            # Else etcd refused it meanwhile, and it has been sent again.
            if self._asked.get(request) is sending and self.answered(request):
                request.give_up()
        return max(_PATIENCE, _SHARE * (SYSTEM_CLOCK.now() - oldest.moment))

    def _wait(self, seconds: float) -> None:
        until = SYSTEM_CLOCK.now() + seconds
        while not self._closed and (left := until - SYSTEM_CLOCK.now()) > 0:
            with suppress(Empty):
                self._nudges.get(timeout=left)
