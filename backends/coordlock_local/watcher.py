"""Watching contenders, on behalf of those that wait for them to leave."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from coordlock.backend import Departure
from coordlock.backend.watch_table import Watched, WatchTable
from coordlock.model.contender import Contender
from coordlock.runtime.log import Log
from coordlock_local import values
from coordlock_local.listening import Listener
from coordlock_local.pipes import subscribe, unsubscribe
from coordlock_local.session import LocalSession, is_alive
from coordlock_local.slots import Slot, standing, stands

__all__ = ["Watcher"]

log = Log("coordlock.local")


class _Watched(Watched):
    """A contender that is watched, under its key."""

    __slots__ = ("contender", "slot")

    def __init__(self, contender: Contender) -> None:
        super().__init__(contender.key)
        self.contender = contender
        self.slot = Slot.of(contender)


class Watcher(Listener):
    """Watches contenders of a directory on behalf of a session.

    Who leaves writes into the pipes of those that wait for it (`leave`); where the rule does not
    name this session, it subscribes. Then this looks into the queue and at the session's lock: they
    alone decide.
    """

    def __init__(self, session: LocalSession, on_look: Callable[[], object]) -> None:
        """``on_look`` is called before each look."""
        super().__init__(session, "coordlock-local")
        self._on_look = on_look
        self._directory: Final = session.directory
        self._table: WatchTable[_Watched] = WatchTable(self.lock, self._unwatch)
        #: The queues of which all changes are reported.
        self._subscribed: set[str] = set()

    def watch(
        self,
        contender: Contender,
        on_departure: Callable[[Departure], None],
        waiters: Sequence[Contender] = (),
        changes: bool = False,
    ) -> Callable[[], None]:
        """Call ``on_departure`` once when ``contender`` has left, perhaps at once; what cancels it.

        In order if ``waiters`` are in their queues afterwards: tokens never come back. With
        ``changes``, it is also called when the version of the contender's value is another.

        Raises RuntimeError where no thread can be started.
        """
        with self.lock:
            if self.closed.is_set():
                return lambda: None
            self.start()
            version = contender.version if changes else 0
            watched, watch = self._table.add(_Watched(contender), on_departure, waiters, version)
            session = contender.session
            is_own = session == self._session.id
            if changes or not (is_own or waiters):  # else who leaves writes to this session
                self._subscribe(watched.slot.queue)
            if not is_own and session not in self.ends:
                self.wake()
        # After it listens, so that nothing falls between.
        self._look_at([watched])
        return watch

    def own_left(self, key: str) -> None:
        """Report that the session's own contender ``key`` has left."""
        if (watched := self._table.watched.get(key)) is not None:
            self._report(watched)

    def close(self) -> None:
        """Call nothing any more, and end the thread."""
        with self.lock:
            self.closed.set()
            for queue in tuple(self._subscribed):
                self._unsubscribe(queue)
            self._table.clear()
        super().close()

    def end(self) -> None:
        """Close this, and end the session."""
        try:
            self.close()  # first: the thread reads the session's pipe
        finally:
            self._session.end()

    # With the lock held

    def _subscribe(self, queue: str) -> None:
        if queue not in self._subscribed:
            self._subscribed.add(queue)
            with suppress(OSError):  # no space: it looks now and then
                subscribe(self._directory, queue, self._session.id)

    def _unsubscribe(self, queue: str) -> None:
        self._subscribed.discard(queue)
        unsubscribe(self._directory, queue, self._session.id)

    def _unwatch(self, watched: _Watched) -> None:
        queue, others = watched.slot.queue, self._table.watched.values()
        if queue in self._subscribed and all(other.slot.queue != queue for other in others):
            self._unsubscribe(queue)

    # For the listener

    def sessions(self) -> Iterable[str]:
        sessions = {watched.contender.session for watched in self._table.watched.values()}
        return sessions - {self._session.id}

    def look(self, names: set[str] | None) -> None:
        if self.closed.is_set():
            return
        self._on_look()
        with self.lock:
            watched = list(self._table.watched.values())
        if names is not None:
            watched = [
                one
                for one in watched
                if not names.isdisjoint((one.slot.queue, one.contender.session))
            ]
        self._look_at(watched)

    def _look_at(self, watched: Collection[_Watched]) -> None:
        """Look at ``watched``, and report what has left or changed."""
        by_path: dict[str, list[_Watched]] = {}
        for one in watched:
            by_path.setdefault(one.slot.path, []).append(one)
        lives: dict[str, bool] = {}
        for path, beside in by_path.items():
            try:
                tokens = standing(self._directory, path)
                present = set(tokens)
                for one in beside:
                    token, session = one.slot.token, one.contender.session
                    if session not in lives:
                        lives[session] = is_alive(self._directory, session)
                    if not (lives[session] and token in present):
                        self._report(one, is_first=not tokens or tokens[0] >= token)
                    elif any(watch.version for watch in one.watches):
                        _, version = values.read(self._directory, one.contender)
                        self._table.report_value(one, version)
            except OSError as error:
                log.debug("cannot look at %s: %s", path, error)

    def _report(self, watched: _Watched, *, is_first: bool = False) -> None:
        self._table.report(watched, partial(self._proof, is_first))

    def _proof(self, is_first: bool, waiters: Sequence[Contender]) -> Departure:
        """What a departure proves to ``waiters``, which are there or not now.

        Whether it ``is_first``: none stood before the departed one when this looked.
        """
        try:
            are_there = self._session.is_alive() and all(
                stands(self._directory, Slot.of(waiter)) for waiter in waiters
            )
        except OSError:
            are_there = False
        if not are_there:
            return Departure.UNORDERED
        return Departure.FIRST if is_first else Departure.IN_ORDER
