"""The session of one client: opened when it is needed, shared by all, replaced when lost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from functools import partial

from coordlock.backend import Backend
from coordlock.errors import BackendUnavailable, ClientClosed, CoordlockError
from coordlock.kernel.retry import retried
from coordlock.kernel.session import Session
from coordlock.kernel.sweep import Sweep
from coordlock.runtime.clock import Timers, sleep, soon, within
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise
from coordlock.settings import Settings

__all__ = ["Sessions"]

log = Log("coordlock")


@dataclass(eq=False, repr=False)
class Sessions:
    """At most one live session at a time.

    The timers' thread opens it, and callers wait: Ctrl-C does not strike that thread, and a caller
    that gives up does not end the opening for the others.

    ``on_end`` is called with each session that ends. ``notice_period`` tells the seconds that pass
    before an ended session is replaced. Opening another one makes the service forget it, with all
    that was held in it, and its holders must have heard of the loss by then.
    """

    _backend: Backend
    _settings: Settings
    _timers: Timers
    _sweep: Sweep
    _on_end: Callable[[Session, CoordlockError], None]
    _notice_period: Callable[[Session], float]
    #: The latest session that was opened; it may have ended since.
    latest: Session | None = None
    #: The one that is being opened.
    _starting: Session | None = None
    _is_opening: bool = False
    #: A promise for each caller that waits for the session that is being opened.
    _waiting: list[Promise[None]] = field(default_factory=list)
    #: Why the last attempt at opening a session failed; None after one that succeeded.
    trouble: BackendUnavailable | None = None
    _trouble_since: float = 0.0
    _is_refused: bool = False
    _has_ended: bool = False

    @property
    def was_open(self) -> bool:
        """Whether one was opened so far."""
        return self.latest is not None

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
            doubt = latest.suspicion
            return None if doubt is None else (latest.answered, doubt)
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
            session.suspect(reason)
            session.probe()
        elif self._is_opening:
            self._note_trouble(BackendUnavailable(self._backend.scheme, reason))

    def live(self) -> Steps[Session]:
        """The live session; opens one where there is none, once for all callers."""
        while (session := self.latest) is None or session.ended is not None:
            opened: Promise[None] = Promise()
            try:
                self._timers.call_at(self._timers.clock.now(), partial(self._ask, opened))
            except RuntimeError:  # no thread can be started
                self._ask(opened)
            try:
                yield opened
            finally:
                if opened.resolve(None):  # a caller that gave up
                    with suppress(ValueError):
                        self._waiting.remove(opened)
        return session

    def refuse(self) -> None:
        """Let no caller wait any longer for a session to be opened: `ClientClosed`."""
        self._is_refused = True
        self._answer(ClientClosed())

    def end(self) -> None:
        """End the sessions here, and open no other. The service is not asked."""
        self._has_ended = True
        for session in self.known:
            session.end(ClientClosed())

    def _ask(self, opened: Promise[None]) -> None:
        if opened.done():
            return
        self._waiting.append(opened)
        if self._is_refused:
            self._answer(ClientClosed())
        elif self.latest is not None and self.latest.ended is None:
            self._answer(None)
        elif not self._is_opening:
            self._is_opening = True
            run_in_background(self._open(), go_on=partial(soon, self._timers))

    def _answer(self, error: Exception | None) -> None:
        while True:
            try:
                opened = self._waiting.pop(0)  # first come, first served
            except IndexError:
                return  # all have been answered, some perhaps by a thread that closes the client
            if error is None:
                opened.resolve(None)
            else:
                opened.fail(copy(error))  # each collects tracebacks

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
        self.latest = session
        self.trouble = None
        say("%s: session %s is open", self._settings, session.id)
        self._sweep.soon()
        self._answer(None)

    def _note_trouble(self, error: BackendUnavailable) -> None:
        if self.trouble is None:
            self._trouble_since = self._timers.clock.now()
            log.warning("%s: %s", self._settings, error)
        self.trouble = error

    def _start(self) -> Steps[Session]:
        if self.latest is not None and (seconds := self._notice_period(self.latest)) > 0:
            yield sleep(self._timers, seconds)
        if self._has_ended:
            raise ClientClosed
        self._starting = session = Session(
            self._backend,
            self._timers,
            self._on_end,
            self._sweep.soon,
        )
        opened = run_in_background(session.open())
        # Another attempt dials anew, so none goes on for ever, whatever it waits for.
        seconds = self._settings.connect_timeout + self._settings.request_timeout
        yield within(self._timers, opened, seconds)
        if not opened.done():
            late = BackendUnavailable(self._backend.scheme, f"no session was open in {seconds:g} s")
            session.end(late)
            raise late
        return opened.result()
