"""The client's liveness in the service: its deadline, its heartbeats and its end."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from coordlock.backend import Backend
from coordlock.errors import BackendUnavailable, ClientClosed, CoordlockError, SessionLost
from coordlock.kernel.retry import retried
from coordlock.runtime.clock import Timer, Timers, soon
from coordlock.runtime.driver import Steps
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise, failed

__all__ = ["Session"]

log = Log("coordlock")

#: Heartbeats are sent this often per time-to-live, so that one may be lost without harm.
_BEATS_PER_TTL: Final = 3
#: And this often after one has failed.
_RETRIES_PER_TTL: Final = 10
#: Probes are sent so far apart at least: many contenders may be removed at once.
_PROBE_GAP_S: Final = 0.1


@dataclass(eq=False, repr=False)
class Session:
    """One session, from its opening until it is lost or closed. Backends tell it what they see.

    ``on_end`` is called once at its end, in the timers' thread.

    The deadline is the moment at which the last ACKNOWLEDGED heartbeat was SENT, plus the
    time-to-live that the service granted with it. The service starts to count later than that, so
    the session ends here first, whatever happened to the network or to this process. A session that
    has ended never lives again: an acknowledgement that arrives later changes nothing.

    Gray and Cheriton, "Leases: an efficient fault-tolerant mechanism for distributed file cache
    consistency", 1989.
    """

    _backend: Backend
    _timers: Timers
    _on_end: Callable[[Session, CoordlockError], None]
    _on_recovery: Callable[[], object] = lambda: None
    id: str = ""
    shared: bool = False
    #: The service itself said that the session is gone, and its contenders with it. It then ends
    #: here, too; but most sessions that end here, such as at their deadline, may not be gone there.
    gone: bool = False
    #: The time-to-live in seconds that the service granted last; infinite where it has none.
    ttl: float = math.inf
    #: What the backend says with the session: see `SessionInfo`.
    beat_gap: float = 0.0
    #: Why the session is in doubt, or None: disconnected, or heartbeats are late.
    suspicion: str | None = None
    #: Since when it has been free of doubt, by the timers' clock.
    good_since: float = math.inf
    _sent: float = -math.inf
    _deadline: float = math.inf
    _end: CoordlockError | None = None
    _has_told: bool = False
    #: The probe that is yet to be sent, and when the one before was.
    _probe: Promise[float] | None = None
    _probed: float = -math.inf
    _next_beat: Timer | None = None
    _expiry_timer: Timer | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def open(self) -> Steps[Session]:
        """Open it in the service, and have a first heartbeat acknowledged.

        The deadline counts from when that was sent.
        """
        info = yield self._backend.open(self)
        self.id, self.shared, self.ttl = info.id, info.shared, info.ttl
        self.beat_gap = info.beat_gap
        try:
            yield from retried(self.beat, self._timers)
        except SessionLost as error:
            raise BackendUnavailable(error.service, f"a new session: {error.reason}") from error
        if (ended := self.ended) is not None:
            raise BackendUnavailable(self._backend.scheme, f"a new session: {ended}")
        return self

    @property
    def ended(self) -> CoordlockError | None:
        """Why the session ended, or None while it lives. Looks at the clock, not only at timers."""
        if self._end is None and self._timers.clock.now() >= self._deadline:
            self.end(self._too_late())
        return self._end

    @property
    def answered(self) -> float:
        """When the last heartbeat that the service acknowledged was sent, by the timers' clock."""
        return self._sent

    @property
    def deadline(self) -> float:
        """When it ends unless another heartbeat is acknowledged, by the timers' clock."""
        return self._deadline

    @property
    def remaining(self) -> float:
        """Seconds until the deadline: infinite where sessions have none, 0 after the end."""
        if self.ended is not None:
            return 0.0
        return max(0.0, self._deadline - self._timers.clock.now())

    def suspect(self, reason: str) -> None:
        """The connection is gone: in doubt until a heartbeat is acknowledged."""
        with self._lock:
            if self.suspicion is not None or self._end is not None:
                return
            self.suspicion = reason
        log.warning("the %s session %s is in doubt: %s", self._backend.scheme, self.id, reason)

    def recovered(self) -> None:
        """The connection is back: a heartbeat settles the doubt."""
        if self._end is None:
            self.beat()
        else:
            self._on_recovery()

    def lost(self, reason: str) -> None:
        """The service says that the session is gone."""
        self.gone = True
        self.end(SessionLost(self._backend.scheme, reason))

    def gone_with(self, error: SessionLost) -> None:
        """The service has answered a request with ``error``: the session is gone."""
        if self.ended is None:
            self.lost(error.reason)

    def beat(self) -> Promise[float]:
        """Send a heartbeat now. When the promise is kept, the deadline has moved."""
        answer: Promise[float] = Promise()
        sent = self._timers.clock.now()
        self._backend.heartbeat().add_done_callback(partial(self._beaten, sent, answer))
        return answer

    def probe(self) -> Promise[float]:
        """The answer to a heartbeat that is sent after this call, one for all that ask for it.

        It tells whether the session is gone, where the service has removed a contender.
        """
        with self._lock:
            if self._probe is not None:
                return self._probe
            probe: Promise[float] = Promise()
            when = max(self._timers.clock.now(), self._probed + _PROBE_GAP_S)
            try:
                self._timers.call_at(when, partial(self._send_probe, probe))
                self._probe = probe
                return probe
            except ClientClosed as error:
                return failed(error)
            except RuntimeError:  # no thread can be started
                return self.beat()

    def _send_probe(self, probe: Promise[float]) -> None:
        with self._lock:
            self._probe, self._probed = None, self._timers.clock.now()
        self.beat().add_done_callback(probe.follow)

    def end(self, error: CoordlockError) -> None:
        """The session is over, because of ``error``. Only the first call counts."""
        if self._end is None:
            # In this order, so that Ctrl-C between the two leaves nothing half done.
            soon(self._timers, partial(self._finish_end, error))
            self._set_end(error)

    def _set_end(self, error: CoordlockError) -> CoordlockError:
        """Note why the session ended, unless that is known; why it ended."""
        with self._lock:
            self._end = self._end or error
            return self._end

    def _finish_end(self, error: CoordlockError) -> None:
        """Stop the timers, and tell the engine once. In the timers' thread."""
        with self._lock:
            error = self._set_end(error)
            has_told, self._has_told = self._has_told, True
            timers = self._next_beat, self._expiry_timer
            self._next_beat = self._expiry_timer = None
        for timer in timers:
            if timer is not None:
                timer.cancel()
        if not has_told:
            self._on_end(self, error)

    def _too_late(self) -> SessionLost:
        seconds = f"{round(self.ttl, 2):g}"
        return SessionLost(self._backend.scheme, f"no heartbeat was acknowledged for {seconds} s")

    def _beaten(self, sent: float, answer: Promise[float], future: Promise[float]) -> None:
        error = future.exception()
        if error is None:
            doubted = self.suspicion is not None
            self._renew(sent, future.result())
            answer.resolve(future.result())
            if doubted:
                if self.suspicion is None:
                    # As visible as the doubt was.
                    log.warning("the %s session %s is good again", self._backend.scheme, self.id)
                self._on_recovery()
            return
        if isinstance(error, SessionLost):
            self.lost(error.reason)
        else:
            self.suspect(str(error))
            with self._lock:
                self._schedule(self._timers.clock.now() + self.ttl / _RETRIES_PER_TTL)
        answer.fail(error)

    def _renew(self, sent: float, ttl: float) -> None:
        with self._lock:
            too_late = self._timers.clock.now() >= self._deadline
            if self._end is not None or too_late or sent < self._sent:
                return
            if self.suspicion is not None or self.good_since == math.inf:
                self.suspicion, self.good_since = None, sent
            self._sent, self.ttl, self._deadline = sent, ttl, sent + ttl
            self._schedule(sent + self._until_next_beat())
            if ttl < math.inf:
                self._expire_at(self._deadline)

    def _until_next_beat(self) -> float:
        # A gap of more than half the lease would let one lost heartbeat end the session.
        gap = self.beat_gap if self.beat_gap <= self.ttl / 2 else 0.0
        return max(gap, self.ttl / _BEATS_PER_TTL)

    def _expire_at(self, deadline: float) -> None:
        """Have `_at_deadline` called at ``deadline``. An earlier timer stays: it sets the next."""
        if (timer := self._expiry_timer) is not None:
            if timer.when <= deadline:
                return
            timer.cancel()
        self._expiry_timer = self._timers.call_at(deadline, self._at_deadline)

    def _schedule(self, when: float) -> None:
        if self._next_beat is not None:
            self._next_beat.cancel()
        if self._end is None and when < math.inf:
            self._next_beat = self._timers.call_at(when, self._beat_on_time)

    def _beat_on_time(self) -> None:
        now = self._timers.clock.now()
        if now - self._sent > 1.5 * self._until_next_beat():  # the last has no answer
            self.suspect("heartbeats are not acknowledged")
        with self._lock:
            # The next one is due whether this one is answered or not.
            self._schedule(now + self._until_next_beat())
        if self.ended is None:
            self.beat()

    def _at_deadline(self) -> None:
        """End the session, unless a heartbeat has moved the deadline since the timer was set."""
        if self.ended is None:  # which ends it
            with self._lock:
                self._expiry_timer = None
                if self._end is None:
                    self._expire_at(self._deadline)
