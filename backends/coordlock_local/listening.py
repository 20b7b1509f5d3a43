"""A session's thread: it looks where other processes say that something has changed."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import Final

from coordlock.errors import BackendError
from coordlock.runtime.log import Log
from coordlock.runtime.process import THREAD
from coordlock.runtime.shared_file import Descriptor, close_kept
from coordlock_local.errors import Busy
from coordlock_local.pipes import open_end
from coordlock_local.session import LocalSession

__all__ = ["Listener"]

log = Log("coordlock.local")

#: How often the thread looks at everything, in seconds, in case a message was lost.
_INTERVAL_S: Final = 5.0
#: A process's pipe ends an instant before the system drops its lock. So everything is looked at
#: again after this time, then after twice as long, and so on up to the interval.
_DEATH_RECHECK_S: Final = 0.001
#: So many pipes stay open that nothing needs: the next blocker is often one of the same.
_MAX_IDLE_ENDS: Final = 16
_START_RETRY_S: Final = 0.02
_LONGEST_JOIN_S: Final = 1.0


class Listener(ABC):
    """The thread of ``session``.

    Other processes write into the session's pipe what has changed; a session whose process ends
    takes its pipe along. The thread also looks now and then, so no lost message loses a change.

    Attributes:
        lock: its holder calls `start`, `wake` after it has changed which sessions matter, and reads
            `ends`. Reentrant.
        closed: set when the thread is to end.
    """

    def __init__(self, session: LocalSession, name: str) -> None:
        self.lock: Final = threading.RLock()
        self._session: Final = session
        self._name: Final = name
        #: The pipes of other sessions, open to see their ends; None for one that has ended.
        self.ends: Final[dict[str, Descriptor | None]] = {}
        self.closed: Final = threading.Event()
        self._thread: threading.Thread | None = None
        #: When everything is looked at next, and how long after that again.
        self._due, self._pause = 0.0, _INTERVAL_S

    def sessions(self) -> Iterable[str]:
        """The other sessions whose ends matter. The lock is held."""
        return ()

    @abstractmethod
    def look(self, names: set[str] | None) -> None:
        """Look at what has one of ``names``, of a thing or of a session that has ended; or all."""

    def start(self) -> None:
        """Start the thread, and the session if it is not. Idempotent.

        Raises RuntimeError where no thread can be started.
        """
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            thread.start()
            self._thread = thread

    def wake(self) -> None:
        """Have the thread look."""
        if self._session.pipe is not None:  # else the thread begins with a look
            self._session.pipe.wake()

    def close(self) -> None:
        """Look no more, and end the thread."""
        self.closed.set()
        thread = self._thread
        if thread in (None, threading.current_thread()):
            return
        self.wake()
        # It may wait for the lock, and a signal handler that closes the client for the thread.
        thread.join(_LONGEST_JOIN_S)

    def _run(self) -> None:
        THREAD.must_not_wait = True
        try:
            while not self.closed.is_set():
                if self._session.pipe is None:
                    try:
                        self._session.start()
                    except (Busy, OSError, BackendError) as error:
                        log.debug("cannot start a session: %s", error)
                        self.closed.wait(_START_RETRY_S)
                elif (names := self._names()) is not None:
                    self.look(names)
                else:
                    self.look(None)
                    self._pause = min(2 * self._pause, _INTERVAL_S)
                    self._due = time.monotonic() + self._pause
        finally:
            for end in self.ends.values():
                if end is not None:
                    close_kept(end)

    def _names(self) -> set[str] | None:
        """Wait for what has changed, and which sessions have ended; None for everything."""
        if time.monotonic() >= self._due:
            return None
        with self.lock:
            self._open_ends(dict.fromkeys(self.sessions()))
            ends = {end.number: one for one, end in self.ends.items() if end is not None}
        assert self._session.pipe is not None
        try:
            names, numbers = self._session.pipe.read(self._due - time.monotonic(), ends.keys())
        except OSError:  # the program has closed the pipe, and so the session's file
            self.closed.wait(_INTERVAL_S)
            return None
        ended = {ends[number] for number in numbers}
        for session in ended:
            self._end(session)
        return None if names is None else names | ended

    def _open_ends(self, needed: Collection[str]) -> None:
        if len(self.ends) > _MAX_IDLE_ENDS:
            for session in self.ends.keys() - needed:
                self._end(session)
                del self.ends[session]
        for session in needed:
            if session not in self.ends:
                self.ends[session] = open_end(self._session.directory, session)
                if self.ends[session] is None:
                    self._look_soon()

    def _end(self, session: str) -> None:
        end, self.ends[session] = self.ends[session], None
        if end is not None:
            close_kept(end)
            self._look_soon()

    def _look_soon(self) -> None:
        self._pause = _DEATH_RECHECK_S
        self._due = time.monotonic() + self._pause
