"""What is followed: told of changes, the client reads the whole state anew, one read at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from coordlock.backend import Observation, Source
from coordlock.errors import AuthenticationFailed, BackendUnavailable, ClientClosed, CoordlockError
from coordlock.runtime.clock import Timers
from coordlock.runtime.promise import Promise
from coordlock_redis.subscription import Subscription

__all__ = ["Followings"]

#: Seconds before another read after one that got no answer.
_PAUSE: Final = 0.2


class _Following:
    """One place, and all who observe it."""

    def __init__(self, read: Callable[[], Promise[Any]], since: float) -> None:
        self.read: Final = read
        self.source: Final[Source[Any]] = Source(since)
        self.is_subscribed = self.is_wanted = self.is_reading = False
        #: Counts the gaps: what was asked before one says nothing of the time after it.
        self.gaps = 0


class Followings:
    """All that a client follows. Safe for threads.

    Args:
        prefix: of the channels' names.
    """

    def __init__(self, subscription: Subscription, prefix: bytes, timers: Timers) -> None:
        self._subscription: Final = subscription
        self._prefix: Final = prefix
        self._timers: Final = timers
        self._lock: Final = threading.RLock()
        self._followed: dict[bytes, _Following] = {}
        self._is_closed = False

    def observe(
        self, channel: str, read: Callable[[], Promise[Any]], news: Callable[[], None]
    ) -> Observation[Any]:
        """Observe what ``read`` reads; ``channel`` tells its changes."""
        name = self._prefix + channel.encode("utf-8", "surrogatepass")
        now = self._timers.clock.now()
        observation: Observation[Any] = Observation(news, lambda: self._leave(name, one), now)
        one = observation
        with self._lock:
            if self._is_closed:
                observation.end(BackendUnavailable("redis", "the client is closed"), now)
                return observation
            following = self._followed.get(name)
            if following is None:
                following = self._followed[name] = _Following(read, now)
            else:
                # It sees nothing that is older than its own beginning.
                following.gaps += 1
                following.source.doubt(now)
            following.source.observers.append(observation)
        self._subscription.subscribe(name)
        self._look(name)
        return observation

    def close(self) -> None:
        """End all observations."""
        with self._lock:
            self._is_closed = True
            ended = list(self._followed.values())
            self._followed.clear()
        self._end(ended, BackendUnavailable("redis", "the client is closed"))

    def _end(self, ended: list[_Following], error: CoordlockError) -> None:
        for following in ended:
            following.source.end(error, self._timers.clock.now())

    def _leave(self, name: bytes, observation: Observation[Any]) -> None:
        with self._lock:
            following = self._followed.get(name)
            if following is not None and following.source.leave(observation):
                del self._followed[name]
        if not self._is_closed:
            self._subscription.unsubscribe(name)

    # What the subscription reports

    @property
    def exist(self) -> bool:
        """Whether anything is followed."""
        return bool(self._followed)

    def on_message(self, channel: bytes) -> None:
        """Something has changed there."""
        if channel in self._followed:
            self._look(channel)

    def on_subscribed(self, channel: bytes) -> None:
        """What changes from now on is told."""
        with self._lock:
            if (following := self._followed.get(channel)) is None:
                return
            following.is_subscribed = True
        self._look(channel)

    def on_live(self) -> None:
        """There was a gap, and all channels are heard again."""
        for name in list(self._followed):
            self.on_subscribed(name)

    def on_silence(self, since: float) -> None:
        """All until ``since`` was told, and nothing after it is."""
        with self._lock:
            followed = list(self._followed.values())
            for following in followed:
                following.is_subscribed = False
                following.gaps += 1
                following.source.doubt(since)
        for following in followed:
            following.source.tell()

    def reread(self, since: float) -> None:
        """Read all anew: after ``since`` it may have changed, and no message says so."""
        with self._lock:
            followed = list(self._followed.items())
            for _, following in followed:
                following.gaps += 1
                following.source.doubt(since)
        for name, following in followed:
            following.source.tell()
            self._look(name)

    # Reading

    def _look(self, name: bytes) -> None:
        """See to it that the state is read at a moment after this one."""
        with self._lock:
            following = self._followed.get(name)
            if following is None or not following.is_subscribed:
                return
            following.is_wanted = True
            if following.is_reading:
                return
            following.is_reading, following.is_wanted = True, False
            gaps = following.gaps
        following.read().add_done_callback(lambda done: self._take(name, following, gaps, done))

    def _take(self, name: bytes, following: _Following, gaps: int, done: Promise[Any]) -> None:
        error = done.exception()
        with self._lock:
            following.is_reading = False
            is_current = gaps == following.gaps
            if error is None and is_current:
                following.source.show(done.result())
            wants_more = following.is_wanted or (error is None and not is_current)
        if error is None:
            if is_current:
                following.source.tell()
            if wants_more:
                self._look(name)
        elif isinstance(error, AuthenticationFailed):
            with self._lock:
                self._followed.pop(name, None)
            self._end([following], error)
        elif not self._is_closed:
            with suppress(ClientClosed):
                when = self._timers.clock.now() + self._timers.jitter(_PAUSE)
                self._timers.call_at(when, lambda: self._look(name))
