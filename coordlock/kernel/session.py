"""The client's liveness in the service: its sessions, their deadlines, heartbeats and ends."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal, Protocol

from coordlock.backend import Backend
from coordlock.errors import BackendUnavailable, ClientClosed, CoordlockError, SessionLost
from coordlock.kernel.retry import retried
from coordlock.runtime.clock import Timer, Timers, sleep, soon, within
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise
from coordlock.runtime.recorder import RECORDER
from coordlock.settings import Settings

__all__ = ["Session", "Sessions"]

log = Log("coordlock")

#: Heartbeats are sent this often per time-to-live, so that one may be lost without harm.
_BEATS_PER_TTL: Final = 3
#: And this often after one has failed.
_RETRIES_PER_TTL: Final = 10
#: A connection that breaks is often back within this time: until then, that is no outage.
_RECONNECT_S: Final = 1.0


class _Tickets(Protocol):
    """What depends on sessions."""

    @property
    def client(self) -> int:
        """The number of the client, for events."""

    def lose_session(self, session: Session, error: CoordlockError) -> None:
        """``session`` has ended with ``error``. Called once, in the timers' thread."""

    def loss_grace(self, session: Session) -> float:
        """Seconds that pass before ``session``, which has ended, is replaced.

        Opening another one makes the service forget it, with all that was held in it, and its
        holders must have learned of the loss by then.
        """

    def sweep_soon(self) -> None:
        """The service answers again."""


@dataclass(eq=False, repr=False)
class Session:
    """One session, from its opening until it is lost or closed. Backends report what they see.

    The deadline is the moment at which the last ACKNOWLEDGED heartbeat was SENT, plus the
    time-to-live that the service granted with it. The service starts to count later than that, so
    the session ends here first, whatever happened to the network or to this process. A session that
    has ended never lives again: an acknowledgement that arrives later changes nothing.

    Gray and Cheriton, "Leases: an efficient fault-tolerant mechanism for distributed file cache
    consistency", 1989.
    """

    _backend: Backend
    _timers: Timers
    _tickets: _Tickets
    id: str = ""
    shared: bool = False
    #: Called once if it is lost, in the timers' thread.
    on_lost: Callable[[], object] | None = None
    #: The service itself said that the session is gone, and its contenders with it. It then ends
    #: here, too; but most sessions that end here, such as at their deadline, may not be gone there.
    gone: bool = False
    #: The time-to-live in seconds that the service granted last; infinite where it has none.
    ttl: float = math.inf
    #: What the backend says with the session: see `SessionInfo`.
    beat_gap: float = 0.0
    #: Why the session is in doubt, or None: disconnected, or heartbeats are late.
    suspicion: str | None = None
    #: Since when, by the timers' clock; from the beginning where a request got no answer.
    _suspected: float = -math.inf
    #: Since when it has been free of doubt, by the timers' clock.
    good_since: float = math.inf
    #: How many grants were lost with it so far.
    losses: int = 0
    #: When the last heartbeat that the service acknowledged was sent, by the timers' clock.
    answered: float = -math.inf
    #: When it ends unless another heartbeat is acknowledged, by the timers' clock.
    deadline: float = math.inf
    _end: CoordlockError | None = None
    _is_reported: bool = False
    #: The probe that is yet to be sent.
    _probe: Promise[float] | None = None
    _next_beat: Timer | None = None
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
        if self._end is None and self._timers.clock.now() >= self.deadline:
            self.end(self._too_late())
        return self._end

    @property
    def remaining(self) -> float:
        """Seconds until the deadline: infinite where sessions have none, 0 after the end."""
        if self.ended is not None:
            return 0.0
        return max(0.0, self.deadline - self._timers.clock.now())

    @property
    def is_away(self) -> bool:
        """Whether it has been in doubt for longer than a connection takes to come back."""
        if self.suspicion is None:
            return False
        return self._timers.clock.now() - self._suspected >= _RECONNECT_S

    def suspect(self, reason: str, *, unanswered: bool = False) -> None:
        """In doubt until a heartbeat is acknowledged: the connection is gone.

        Or it is there, but a request was ``unanswered`` for long.
        """
        with self._lock:
            if unanswered:
                self._suspected = -math.inf
            if self.suspicion is not None or self._end is not None:
                return
            if not unanswered:
                self._suspected = self._timers.clock.now()  # before others see the doubt
            self.suspicion = reason
        self._record("in doubt", reason)
        log.warning("the %s session %s is in doubt: %s", self._backend.scheme, self.id, reason)

    def recovered(self) -> None:
        """The connection is back: a heartbeat settles the doubt."""
        if self._end is None:
            self.beat()
        else:
            self._tickets.sweep_soon()

    def lost(self, reason: str) -> None:
        """The service has reported that the session is gone."""
        self.gone = True
        self.end(SessionLost(self._backend.scheme, reason))

    def gone_with(self, error: SessionLost) -> None:
        """A request ended with ``error``: the session is gone, unless it had ended here before.

        Then the error may be that end, or a later session's, and the service may still have this.
        """
        if self.ended is None:
            self.lost(error.reason)

    def beat(self) -> Promise[float]:
        """Send a heartbeat now. When the promise is kept, the deadline has moved."""
        answer: Promise[float] = Promise()
        sent = self._timers.clock.now()
        self._backend.heartbeat().add_done_callback(partial(self._beaten, sent, answer))
        return answer

    def probe(self) -> Promise[float]:
        """The answer to a heartbeat that is sent after this call, one for all that ask until then.

        It shows whether the session is gone, where the service has removed a contender.
        """
        with self._lock:
            if (probe := self._probe) is None or probe.done():
                probe = Promise()
                # First: a signal handler that raises in between leaves no probe that is never sent.
                soon(self._timers, partial(self._send_probe, probe))
                self._probe = probe
            return probe

    def _send_probe(self, probe: Promise[float]) -> None:
        with self._lock:
            self._probe = None
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
        """Beat no more, and report the end once. In the timers' thread."""
        with self._lock:
            error = self._set_end(error)
            is_reported, self._is_reported = self._is_reported, True
            if self._next_beat is not None:
                self._next_beat.cancel()
        if not is_reported:
            if self.id:
                is_lost = isinstance(error, SessionLost)
                self._record("lost" if is_lost else "closed", str(error) if is_lost else "")
            self._tickets.lose_session(self, error)
            if self.on_lost is not None and isinstance(error, SessionLost):
                self.on_lost()

    def _too_late(self) -> SessionLost:
        seconds = f"{round(self.ttl, 2):g}"
        return SessionLost(self._backend.scheme, f"no heartbeat was acknowledged for {seconds} s")

    def _beaten(self, sent: float, answer: Promise[float], future: Promise[float]) -> None:
        error = future.exception()
        if RECORDER.listeners:
            from coordlock.model.events import HeartbeatAnswered  # only listeners need it

            took, kind = (
                self._timers.clock.now() - sent,
                "" if error is None else type(error).__name__,
            )
            scheme = self._backend.scheme
            RECORDER.record(HeartbeatAnswered(self._tickets.client, scheme, took, kind))
        if error is None:
            doubted, answered = self.suspicion is not None, self.answered
            self._renew(sent, future.result())
            answer.resolve(future.result())
            if doubted:
                if self.suspicion is None and answered > -math.inf:
                    # As visible as the doubt was. `Sessions` reports the first heartbeat.
                    away = sent - answered
                    self._record("connected", away=away)
                    text = "the %s session %s is good again, back after %.0f s"
                    log.warning(text, self._backend.scheme, self.id, away)
                self._tickets.sweep_soon()
            return
        if isinstance(error, SessionLost):
            self.lost(error.reason)
        else:
            self.suspect(str(error))
            with self._lock:
                self._schedule(self._timers.clock.now() + self.ttl / _RETRIES_PER_TTL)
        answer.fail(error)

    def _record(
        self,
        state: Literal["connected", "in doubt", "lost", "closed"],
        why: str = "",
        away: float = 0.0,
    ) -> None:
        if RECORDER.listeners:
            from coordlock.model.events import SessionChanged  # only listeners need it

            scheme = self._backend.scheme
            RECORDER.record(SessionChanged(self._tickets.client, scheme, state, why, away))

    def _renew(self, sent: float, ttl: float) -> None:
        with self._lock:
            too_late = self._timers.clock.now() >= self.deadline
            if self._end is not None or too_late or sent < self.answered:
                return
            if self.suspicion is not None or self.good_since == math.inf:
                self.suspicion, self.good_since = None, sent
            self.answered, self.ttl, self.deadline = sent, ttl, sent + ttl
            self._schedule(sent + self._until_next_beat())

    def _until_next_beat(self) -> float:
        # A gap of more than half the lease would let one lost heartbeat end the session.
        gap = self.beat_gap if self.beat_gap <= self.ttl / 2 else 0.0
        return max(gap, self.ttl / _BEATS_PER_TTL)

    def _schedule(self, when: float) -> None:
        """Have `_beat_on_time` called at ``when``, or at the deadline, which ends the session."""
        if self._next_beat is not None:
            self._next_beat.cancel()
        when = min(when, self.deadline)
        if self._end is None and when < math.inf:
            self._next_beat = self._timers.call_at(when, self._beat_on_time)

    def _beat_on_time(self) -> None:
        if self.ended is not None:
            return
        now = self._timers.clock.now()
        if now - self.answered > 1.5 * self._until_next_beat():  # the last has no answer
            self.suspect("heartbeats are not acknowledged")
        with self._lock:
            # The next one is due whether this one is answered or not.
            self._schedule(now + self._until_next_beat())
        self.beat()


@dataclass(eq=False, repr=False)
class Sessions:
    """At most one live session at a time.

    The timers' thread opens it, and callers wait: Ctrl-C does not strike that thread, and a caller
    that gives up does not end the opening for the others.
    """

    _backend: Backend
    _settings: Settings
    _timers: Timers
    _tickets: _Tickets
    #: The latest session that was opened; it may have ended since.
    latest: Session | None = None
    #: The one that is being opened.
    _starting: Session | None = None
    _is_opening: bool = False
    #: What callers wait for: the outcome of the opening that is under way, or of the next one.
    _opened: Promise[None] = field(default_factory=Promise)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    #: Why the last attempt at opening a session failed; None after one that succeeded.
    trouble: BackendUnavailable | None = None
    _trouble_since: float = 0.0
    #: Whether no caller is to get one any more, and later: whether none is opened any more. Between
    #: the two, a new session removes what was withdrawn while there was none.
    _is_refused: bool = False
    _has_ended: bool = False

    @property
    def known(self) -> tuple[Session, ...]:
        """The session that is being opened, and the latest one that was."""
        # In this order, because one becomes the other.
        found = self._starting, self.latest
        return tuple(session for session in found if session is not None)

    @property
    def outage(self) -> tuple[float, str] | None:
        """Since when the service is known to be away, by the timers' clock, and what shows it.

        None where no heartbeat and no attempt at opening a session is bound to find its return.
        """
        latest = self.latest
        if latest is not None and latest.ended is None:
            return (latest.answered, latest.suspicion or "") if latest.is_away else None
        if not self._is_opening:
            return None
        if latest is not None and not latest.gone:
            since, doubt = latest.answered, str(latest.ended)
            return since, doubt if self.trouble is None else self.trouble.reason
        return None if self.trouble is None else (self._trouble_since, self.trouble.reason)

    def doubt(self, reason: str) -> None:
        """A request got no answer: the service is away until a heartbeat is answered."""
        session = self.latest
        if session is not None and session.ended is None:
            session.suspect(reason, unanswered=True)
            session.probe()
        elif self._is_opening:
            self._note_trouble(BackendUnavailable(self._backend.scheme, reason))

    def live(self) -> Steps[Session]:
        """The live session; opens one where there is none, once for all callers."""
        while (session := self.latest) is None or session.ended is not None:
            try:
                yield self.opening()
            except CoordlockError as error:
                raise copy(error) from None  # each caller's collects a traceback
        return session

    def opening(self) -> Promise[None]:
        """Open a session where there is none; the promise is kept when one is open."""
        opened = self._opened
        self._timers.call_at(self._timers.clock.now(), self._begin)
        return opened

    def refuse(self) -> None:
        """Let no caller wait any longer for a session to be opened: `ClientClosed`."""
        self._is_refused = True
        self._answer(ClientClosed())

    def end(self) -> None:
        """End the sessions here, and open no other. The service is not asked."""
        self._has_ended = True
        for session in self.known:
            session.end(ClientClosed())

    def _begin(self) -> None:
        """Open a session, unless there is one, or one is being opened."""
        if self._is_refused:
            self._answer(ClientClosed())
        elif self.latest is not None and self.latest.ended is None:
            self._answer(None)
        elif not self._is_opening:
            self._is_opening = True
            run_in_background(self._open(), go_on=partial(soon, self._timers))

    def _answer(self, error: Exception | None) -> None:
        opened = self._opened
        # First: a signal handler may strike a thread that closes the client after any line.
        if error is None:
            opened.resolve(None)
        else:
            opened.fail(error)
        with self._lock:
            if self._opened is opened:  # else another thread has answered, and callers wait anew
                self._opened = Promise()

    def _open(self) -> Steps[None]:
        try:
            session = yield from retried(
                lambda: run_in_background(self._start()),
                self._timers,
                on_failure=self._note_trouble,
            )
        except Exception as error:
            self._is_opening, self.trouble = False, None
            self._answer(error)
            return
        # A recovery is as visible as its trouble.
        say = log.warning if self.trouble or self.latest else log.info
        self._is_opening, self._starting = False, None
        former, self.latest = self.latest, session
        away = 0.0 if former is None else session.answered - former.answered
        session._record("connected", away=away)
        self.trouble = None
        back = f", back after {away:.0f} s" if away else ""
        say("%s: session %s is open%s", self._settings, session.id, back)
        self._tickets.sweep_soon()
        self._answer(None)

    def _note_trouble(self, error: BackendUnavailable) -> None:
        if self.trouble is None:
            self._trouble_since = self._timers.clock.now()
            log.warning("%s: %s", self._settings, error)
        self.trouble = error

    def _start(self) -> Steps[Session]:
        if self.latest is not None and (seconds := self._tickets.loss_grace(self.latest)) > 0:
            yield sleep(self._timers, seconds)
        if self._has_ended:
            raise ClientClosed
        self._starting = session = Session(self._backend, self._timers, self._tickets)
        if self._settings.fail_fast:
            # No refused request opens the next one.
            session.on_lost = lambda: run_in_background(self.live())
        opened = run_in_background(session.open())
        # Another attempt dials anew, so none goes on for ever, whatever it waits for.
        seconds = self._settings.connect_timeout + self._settings.request_timeout
        yield within(self._timers, opened, seconds)
        if not opened.done():
            late = BackendUnavailable(self._backend.scheme, f"no session was open in {seconds:g} s")
            session.end(late)
            raise late
        return opened.result()
