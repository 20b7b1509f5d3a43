"""All that a client observes: it reads a place anew when the service reports a change there."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, Final, Protocol

from coordlock.backend.data import Listing
from coordlock.backend.observation import Observation, View
from coordlock.errors import BackendError, BackendUnavailable, ClientClosed, CoordlockError
from coordlock.runtime.clock import Clock
from coordlock.runtime.driver import Steps, run_in_background
from coordlock.runtime.log import Log
from coordlock.runtime.promise import Promise, call_each, resolved

__all__ = ["Observers", "Reporter"]

log = Log("coordlock")

Read = Callable[[], Promise[Any]]


class Reporter(Protocol):
    """A service's part: it reports to `Observers` which places have changed."""

    def report(self, place: Any) -> bool:
        """Report changes of ``place``. False if `Observers.live` says from when on.

        The lock is held, as for `unreport`.
        """

    def unreport(self, place: Any) -> None:
        """The last observer of ``place`` has left."""

    def pause(self) -> Promise[None]:
        """A promise that is kept when a reading is to be repeated that got no answer."""


class _Observed:
    """One place, and its observers."""

    def __init__(self, read: Read, since: float) -> None:
        self.read = read
        #: What is known. Of what is stale, no state is kept.
        self.view: View[Any] = View(None, since)
        #: The observations that go on. A new one learns nothing that is stale.
        self.observers: Final[list[Observation[Any]]] = []
        #: Whether the service reports its changes.
        self.is_live = False
        #: The reading that goes on, and whether another is to follow.
        self.reading: object | None = None
        self.is_wanted = False
        #: Incremented by each doubt: what was asked before one is not shown after it.
        self.doubts = 0
        #: When the reading was sent that is shown.
        self.read_at = since

    def doubt(self, since: float) -> None:
        """What came after ``since`` may be missed."""
        self.doubts += 1
        if self.view.stale_since is None:  # else what is stale since earlier stays so
            self.view = View(None, since)

    def break_off(self) -> None:
        """Ignore the reading that goes on."""
        self.reading, self.is_wanted = None, False

    def show(self) -> None:
        """Show all observers what is known. Without any lock, from any thread.

        Again if it has changed meanwhile: what another thread showed may have come between.
        """
        shown: View[Any] | None = None
        while shown is not self.view:
            shown = self.view
            call_each(self.observers.copy(), partial(_show, shown))

    def end(self, error: CoordlockError, since: float) -> None:
        """End all observations because of ``error``. Until ``since``, all was shown."""
        if self.view.stale_since is not None:
            since = self.view.stale_since
        call_each(self.observers.copy(), lambda observation: observation.end(error, since))


def _show(view: View[Any], observation: Observation[Any]) -> None:
    if view.stale_since is not None:
        observation.doubt(view.stale_since)
    elif view.state is not None:
        observation.show(view.state)


def _nothing() -> Promise[Any]:
    return resolved(Listing({}, 0))


class Observers:
    """All that a client observes. Safe for threads; observers are called without the lock.

    A place is read once its changes are reported, and after each change that is not applied to what
    is shown, in the thread that reports it. There is one reading at a time: all changes that come
    meanwhile need one more.

    Args:
        lock: a reentrant lock.
        known_at: until when all changes of a place are certainly in what was read; for a service
            whose readings may show the past. Elsewhere it is when the reading was sent.
    """

    def __init__(
        self,
        reporter: Reporter,
        clock: Clock,
        lock: AbstractContextManager[Any],
        known_at: Callable[[Any], float] | None = None,
    ) -> None:
        self._reporter: Final = reporter
        self._clock: Final = clock
        self._lock: Final = lock
        self._known_at: Final = known_at
        self._observed: dict[Hashable, _Observed] = {}
        #: Why nothing is observed any more.
        self._closed: CoordlockError | None = None

    def observe(
        self, place: Hashable, read: Read | None, news: Callable[[], None]
    ) -> Observation[Any]:
        """Observe ``place``, which ``read`` reads: see `Observation`.

        None for an observer that needs the news alone. While all observers do, nothing is read.
        """
        now = self._clock.now()
        observation: Observation[Any] = Observation(
            news, lambda: self._leave(place, observation), now
        )
        with self._lock:
            if (closed := self._closed) is None:
                observed = self._observed.get(place)
                if observed is None:
                    observed = self._observed[place] = _Observed(read or _nothing, now)
                    try:
                        observed.is_live = self._reporter.report(place)
                    except BaseException:  # no thread can be started, or Ctrl-C
                        del self._observed[place]
                        raise
                else:
                    observed.read = read or observed.read
                    # It sees nothing that is older than its own beginning.
                    self._doubt(place, observed, now)
                observed.observers.append(observation)
        if closed is not None:
            observation.end(closed, now)
        else:
            self.changed(place)
        return observation

    def close(self, error: CoordlockError) -> None:
        """End all observations, and those to come, because of ``error``."""
        with self._lock:
            self._closed = error
        self.end(error)

    def _leave(self, place: Hashable, observation: Observation[Any]) -> None:
        with self._lock:
            observed = self._observed.get(place)
            if observed is not None and observation in observed.observers:
                observed.observers.remove(observation)
                if not observed.observers:
                    self._forget(place)

    def _forget(self, place: Hashable) -> _Observed:
        observed = self._observed.pop(place)
        observed.break_off()
        self._reporter.unreport(place)
        return observed

    # What the service reports

    def places(self) -> list[Any]:
        """All that is observed."""
        with self._lock:
            return list(self._observed)

    def state(self, place: Hashable) -> Any:
        """What is shown of ``place``; None before the first reading."""
        observed = self._observed.get(place)
        return None if observed is None else observed.view.state

    def live(self, place: Hashable) -> None:
        """Changes of ``place`` are reported from now on."""
        with self._lock:
            if (observed := self._observed.get(place)) is not None:
                observed.is_live = True
        self.changed(place)

    def changed(self, place: Hashable) -> None:
        """See to it that ``place`` is read at a moment after this one."""
        with self._lock:
            observed = self._observed.get(place)
            if observed is None or not observed.is_live:
                return
            observed.is_wanted = True
            if observed.reading is not None:
                return
            observed.reading = me = object()
        run_in_background(self._read(place, observed, me))

    def apply(self, place: Hashable, change: Callable[[Any], Any]) -> None:
        """Show what ``change`` makes of the state that is shown of ``place``; else read it.

        That is, while nothing fresh is shown, or a reading goes on. ``change`` returns the same
        state if that shows the change already.
        """
        with self._lock:
            observed = self._observed.get(place)
            if observed is None:
                return
            known, state = observed.view.state, None
            if known is not None and observed.reading is None:
                state = change(known)
                observed.view = View(state, None)
        if state is None:
            self.changed(place)
        elif state is not known:
            observed.show()

    def gap(self, since: float = 0.0, *, is_over: bool = False) -> None:
        """Changes after ``since`` may be missed: until `live`, or until now if it ``is_over``."""
        doubtful: list[_Observed] = []
        with self._lock:
            for place, observed in self._observed.items():
                observed.is_live &= is_over
                self._doubt(place, observed, since)
                observed.break_off()
                doubtful.append(observed)
        for observed in doubtful:
            observed.show()
        for place in self.places():
            self.changed(place)

    def end(self, error: CoordlockError, *places: Hashable) -> None:
        """End the observations of ``places``, or all. What is observed later begins anew."""
        with self._lock:
            ended = [
                self._forget(place)
                for place in places or tuple(self._observed)
                if place in self._observed
            ]
        for observed in ended:
            observed.end(error, self._clock.now())

    def _doubt(self, place: Hashable, observed: _Observed, since: float) -> None:
        """What came after ``since`` may be missed, or was reported, and is not read yet."""
        if self._known_at is not None:
            observed.doubt(self._known_at(place))
        else:
            observed.doubt(observed.read_at if observed.reading else max(since, observed.read_at))

    def _read(self, place: Hashable, observed: _Observed, me: object) -> Steps[None]:
        try:
            while True:
                with self._lock:
                    if observed.reading is not me:
                        return
                    if not observed.is_wanted:
                        observed.reading = None
                        return
                    observed.is_wanted = False
                    doubts, asked_at = observed.doubts, self._clock.now()
                try:
                    state = yield observed.read()
                except BackendUnavailable:
                    with self._lock:
                        if observed.reading is not me:
                            return
                        observed.is_wanted = True
                        self._doubt(place, observed, asked_at)
                    observed.show()
                    yield self._reporter.pause()
                else:
                    with self._lock:
                        if observed.reading is not me:
                            return
                        if is_current := doubts == observed.doubts:
                            observed.read_at = asked_at
                            observed.view = View(state, None)
                        else:
                            observed.is_wanted = True
                    if is_current:
                        observed.show()
        except BaseException as error:
            if not self._handle(place, observed, me, error):
                raise

    def _handle(
        self, place: Hashable, observed: _Observed, me: object, error: BaseException
    ) -> bool:
        """Handle the ``error`` that has ended a reading; False if it is to be raised, too."""
        with self._lock:
            is_over = observed.reading is not me
            if not is_over:
                observed.break_off()
        if not isinstance(error, Exception):
            if not (is_over or isinstance(error, GeneratorExit)):
                # Ctrl-C, where a caller reads. After the close, nothing is read again.
                with suppress(ClientClosed):
                    self._reporter.pause().add_done_callback(lambda _: self.changed(place))
            return False
        if is_over or isinstance(error, ClientClosed):
            return True
        if not isinstance(error, CoordlockError):
            # Else what is shown would pass for the newest, and no observer would learn why.
            log.error("a reading failed, and ends its observations", exc_info=error)
            error = BackendError("observation", f"{type(error).__name__}: {error}")
        self.end(error, place)
        return True
