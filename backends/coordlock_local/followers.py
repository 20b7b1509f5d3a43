"""Following data: one thread per client, asleep until the operating system tells of a change."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from coordlock.backend import Listing, Observation
from coordlock.errors import BackendUnavailable, CoordlockError
from coordlock.log import Log
from coordlock.runtime.clock import SYSTEM_CLOCK
from coordlock_local.data import DataFile
from coordlock_local.directory import Directory
from coordlock_local.errors import SERVICE, Busy, translated
from coordlock_local.watcher import notices

__all__ = ["Followers"]

log = Log("coordlock.local")

#: Seconds until another attempt, where data could not be read.
_PAUSE: Final = 0.02


class Followers:
    """The observations of one client's data. The thread starts with the first."""

    def __init__(self, directory: Directory, data: DataFile) -> None:
        self._directory = directory
        self._data = data
        self._lock = threading.Lock()
        self._followed: dict[int, tuple[str, Observation[Listing]]] = {}
        self._notices = notices()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def follow(self, where: str, news: Callable[[], None]) -> Observation[Listing]:
        """See `Data.follow`."""
        with self._lock:
            number = len(self._followed)
            while number in self._followed:
                number += 1
            observation: Observation[Listing] = Observation(
                news, lambda: self._forget(number), SYSTEM_CLOCK.now()
            )
            closed = self._is_closed
            if not closed:
                self._followed[number] = where, observation
                if self._thread is None:
                    thread = threading.Thread(
                        target=self._run, name="coordlock-local-data", daemon=True
                    )
                    thread.start()
                    self._thread = thread
        if closed:
            observation.end(BackendUnavailable(SERVICE, "the client was closed"), 0.0)
        else:
            self._notices.wake()
        return observation

    def close(self) -> None:
        """End all observations and the thread."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            thread, left = self._thread, list(self._followed.values())
        for _, observation in left:
            observation.end(
                BackendUnavailable(SERVICE, "the client was closed"), SYSTEM_CLOCK.now()
            )
        self._notices.wake()
        if thread is None:
            self._notices.close()
        elif thread is not threading.current_thread():
            thread.join()

    def forget(self) -> None:
        """In a forked child: its threads are gone, and one of them may have held the lock."""
        self._lock = threading.Lock()
        self._is_closed = True
        self._followed = {}
        self._notices.forget()

    def _forget(self, number: int) -> None:
        # Not under the lock, which the caller may hold; dictionaries are safe for threads.
        self._followed.pop(number, None)

    def _run(self) -> None:
        is_told = False
        while not self._is_closed:
            if not is_told:
                is_told = self._listen()
            # After it listens, so that nothing falls between.
            has_all = self._look()
            pause = self._notices.interval if is_told else _PAUSE
            self._notices.wait(pause if has_all else _PAUSE)
        self._notices.close()

    def _listen(self) -> bool:
        path = self._directory.changes
        try:
            with open(path, "ab"):
                self._notices.add(path)
        except OSError as error:
            log.debug("cannot watch %s: %s", path, error)
            return False
        return True

    def _look(self) -> bool:
        """Show what has changed; whether all could be read."""
        has_all = True
        for where, observation in list(self._followed.values()):
            try:
                found = self._data.read(where)
            except (Busy, OSError, CoordlockError) as error:
                has_all = False
                if not isinstance(error, Busy):
                    reason = translated(error) if isinstance(error, OSError) else error
                    log.debug("cannot read the data at %s: %s", where, reason)
                    observation.doubt(SYSTEM_CLOCK.now())
                continue
            view = observation.view
            if view.state != found or view.stale_since is not None:
                observation.show(found)
        return has_all
