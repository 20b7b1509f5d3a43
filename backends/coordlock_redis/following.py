"""What is followed: messages tell of changes, and hold what small ones have written.

Otherwise the client reads the whole state anew, one read at a time.
"""

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
_REREAD_DELAY_S: Final = 0.2

#: The state after a change, from that before and the message; None if that is to be read.
Changed = Callable[[Any, bytes], Any]


class _Following:
    """One place, and all who observe it."""

    def __init__(self, read: Callable[[], Promise[Any]], changed: Changed, since: float) -> None:
        self.read: Final = read
        self.changed: Final = changed
        self.source: Final[Source[Any]] = Source(since)
        self.is_subscribed = self.is_reading = False
        #: Counts the gaps: what was asked before one says nothing of the time after it.
        self.gaps = 0
        #: The revision of the last change that is to be read.
        self.newest = 0

    def doubt(self, since: float) -> None:
        """From ``since`` on it may have changed, and no message says so."""
        self.gaps += 1
        self.newest = 0
        self.source.doubt(since)

    def change(self, message: bytes) -> bool:
        """Take the message of a change; False if the state is to be read."""
        revision, known = int(message.partition(b" ")[0]), self.source.view.state
        if known is not None and revision <= known.revision:
            return True  # a read has shown it
        state = None
        # What a message holds follows on a state in which no earlier change is missing.
        if known is not None and not self.is_reading and self.newest <= known.revision:
            state = self.changed(known, message)
        if state is None:
            self.newest = revision
            return False
        self.source.show(state)
        return True


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
        self,
        channel: str,
        read: Callable[[], Promise[Any]],
        news: Callable[[], None],
        changed: Changed = lambda known, message: None,
    ) -> Observation[Any]:
        """Observe what ``read`` reads; ``channel`` tells its changes. See `Changed`."""
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
                following = self._followed[name] = _Following(read, changed, now)
            else:
                following.doubt(now)  # it sees nothing that is older than its own beginning
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

    def on_message(self, channel: bytes, message: bytes) -> None:
        """Something has changed there."""
        with self._lock:
            if (following := self._followed.get(channel)) is None:
                return
            before = following.source.view
            is_known = following.change(message)
        if not is_known:
            self._look(channel)
        elif following.source.view is not before:
            following.source.tell()

    def on_subscribed(self, channel: bytes) -> None:
        """What changes from now on is told."""
        with self._lock:
            if (following := self._followed.get(channel)) is None:
                return
            following.is_subscribed = True
            following.doubt(self._timers.clock.now())
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
                following.doubt(since)
        for following in followed:
            following.source.tell()

    def reread(self, since: float) -> None:
        """Read all anew: after ``since`` it may have changed, and no message says so."""
        with self._lock:
            followed = list(self._followed.items())
            for _, following in followed:
                following.doubt(since)
        for name, following in followed:
            following.source.tell()
            self._look(name)

    # Reading

    def _look(self, name: bytes) -> None:
        """Read the state, unless that is under way: its answer tells whether it came too early."""
        with self._lock:
            following = self._followed.get(name)
            if following is None or not following.is_subscribed or following.is_reading:
                return
            following.is_reading = True
            asked = following.gaps, following.newest
        following.read().add_done_callback(lambda done: self._take(name, following, asked, done))

    def _take(
        self, name: bytes, following: _Following, asked: tuple[int, int], done: Promise[Any]
    ) -> None:
        error = done.exception()
        with self._lock:
            following.is_reading = False
            is_late = asked[0] != following.gaps
            if error is None and not is_late:
                following.source.show(done.result())
                is_late = asked[1] != following.newest > done.result().revision
        if error is None:
            following.source.tell()
            if is_late:
                self._look(name)
        elif isinstance(error, AuthenticationFailed):
            with self._lock:
                self._followed.pop(name, None)
            self._end([following], error)
        elif not self._is_closed:
            with suppress(ClientClosed):
                when = self._timers.clock.now() + self._timers.jitter(_REREAD_DELAY_S)
                self._timers.call_at(when, lambda: self._look(name))
