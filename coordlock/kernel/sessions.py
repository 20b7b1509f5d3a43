"""The session of one client: opened when it is needed, shared by all, replaced when lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from copy import copy
from typing import Final

from coordlock.backend import Backend
from coordlock.errors import BackendUnavailable, ClientClosed, CoordlockError
from coordlock.kernel.recovery import Recovery
from coordlock.kernel.retry import retried
from coordlock.kernel.session import Session
from coordlock.log import Log
from coordlock.runtime.clock import Timers, sleep, within
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.promise import Promise, settled
from coordlock.settings import Settings

__all__ = ["Sessions"]

log = Log("coordlock")


class Sessions:
    """At most one live session at a time.

    ``on_end`` is told of each session that ends. ``notice`` says for how many seconds a session
    must not be replaced: opening makes the service forget the session before, with all that was
    held in it, and its holders must have heard of the loss by then.
    """

    def __init__(
        self,
        backend: Backend,
        settings: Settings,
        timers: Timers,
        recovery: Recovery,
        on_end: Callable[[Session, CoordlockError], None],
        notice: Callable[[Session], float],
    ) -> None:
        self._backend: Final = backend
        self._settings: Final = settings
        self._timers: Final = timers
        self._recovery: Final = recovery
        self._on_end: Final = on_end
        self._notice: Final = notice
        # Reentrant, like the others': a signal handler, or a finalizer in a collection of garbage,
        # may release a lock between any two steps of this thread.
        self._lock = threading.RLock()
        #: The latest session that was opened; it may have ended since.
        self._latest: Session | None = None
        #: The one that is being opened.
        self._starting: Session | None = None
        #: Kept when the opening that is under way is over.
        self._opening: Promise[None] | None = None
        self._trouble: BackendUnavailable | None = None
        self._ended = False

    @property
    def trouble(self) -> BackendUnavailable | None:
        """Why the service could not be reached since a session was last opened, if so."""
        return self._trouble

    @property
    def known(self) -> tuple[Session, ...]:
        """The session that is being opened, and the latest one that was."""
        # In this order, because one becomes the other.
        found = self._starting, self._latest
        return tuple(session for session in found if session is not None)

    def live(self) -> Steps[Session]:
        """The live session; opens one where there is none, once for all who ask meanwhile."""
        # `ended` looks at the clock and may end the session, so it is not asked under the lock.
        while (session := self._latest) is None or session.ended is not None:
            starts, opening = False, None
            try:
                with self._lock:
                    if self._latest is not session:
                        continue
                    starts = self._opening is None
                    opening = self._opening = self._opening or Promise()
                if starts:
                    run_in_background(self._open(opening))
            except BaseException:  # Ctrl-C; others may wait for it
                if starts:
                    self._interrupted(opening)
                raise
            yield settled(opening)
            if (error := opening.exception()) is not None:
                raise copy(error)  # others raise it too, and it collects tracebacks
        return session

    def refuse(self) -> None:
        """Let nobody wait any longer for a session to be opened: `ClientClosed`."""
        with self._lock:
            opening = self._opening
        if opening is not None:
            opening.fail(ClientClosed())

    def end(self) -> None:
        """End the sessions here, and open no other. The service is not asked."""
        self._ended = True
        for session in self.known:
            session.end(ClientClosed())

    def _interrupted(self, opening: Promise[None] | None) -> None:
        with self._lock:
            if self._opening is opening:
                self._opening = None
        if opening is not None:
            opening.resolve(None)  # its waiters look again, and one of them opens a session

    def _open(self, opening: Promise[None]) -> Steps[None]:
        try:
            session = yield from retried(
                lambda: run_in_background(self._start(opening)),
                self._timers,
                on_failure=self._note,
            )
        except Exception as error:
            with self._lock:
                if self._opening is opening:
                    self._opening = None
            opening.fail(error)
        except BaseException:  # Ctrl-C is for the thread that runs this, and not for all waiters
            self._interrupted(opening)
            raise
        else:
            with self._lock:
                wanted = self._opening is opening
                # A recovery is as visible as its trouble.
                say = log.warning if self._trouble or self._latest else log.info
                if wanted:
                    self._opening = self._starting = None
                    self._latest = session
                    self._trouble = None
            if not wanted:  # Ctrl-C came, and another opening may be under way
                session.end(ClientClosed())
                return
            say("%s: session %s is open", self._settings, session.id)
            self._recovery.noticed()
            opening.resolve(None)

    def _note(self, error: BackendUnavailable) -> None:
        if self._trouble is None:
            log.warning("%s: %s", self._settings, error)
        self._trouble = error

    def _start(self, opening: Promise[None]) -> Steps[Session]:
        if self._latest is not None and (seconds := self._notice(self._latest)) > 0:
            yield sleep(self._timers, seconds)
        if self._opening is not opening or self._ended:
            raise ClientClosed  # Ctrl-C came, and another opening may be under way
        self._starting = session = Session(
            self._backend, self._timers, self._on_end, self._recovery.noticed
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
