"""Who changes a folder, and what it held after each change: what observers may have seen."""

from __future__ import annotations

import random
import threading
from bisect import bisect_right
from typing import Self

from coordlock_zookeeper import ZookeeperBackend

from coordlock.backend import Delete, Listing, Put, View
from coordlock.runtime.clock import SYSTEM_CLOCK
from tests.integration.zookeeper.conftest import BOUND

State = dict[str, bytes]


class Writer:
    """Changes some of the keys of a folder, again and again, each time in one transaction.

    ``steady``: without a pause, and it deletes none.
    """

    def __init__(
        self,
        backend: ZookeeperBackend,
        folder: str,
        chance: random.Random,
        *,
        names: str = "abcdefgh",
        steady: bool = False,
    ) -> None:
        self._backend, self._folder, self._chance = backend, folder, chance
        self._names, self._steady = names, steady
        #: By their revisions: when each was acknowledged, and what it did; None deletes.
        self.writes: dict[int, tuple[float, dict[str, bytes | None]]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def _write(self) -> None:
        chance = self._chance
        pauses = [0.0] if self._steady else [0, 0, 0.001, 0.01, 0.05]
        while not self._ended.wait(chance.choice(pauses)):
            changes: dict[str, bytes | None] = {}
            for name in chance.sample(self._names, chance.randint(1, 3)):
                value = chance.randbytes(8) + b"x" * chance.choice([0, 10, 10_000])
                deletes = not self._steady and chance.random() < 1 / 3
                changes[self._folder + name] = None if deletes else value
            operations = [
                Delete(key) if value is None else Put(key, value) for key, value in changes.items()
            ]
            revision = self._backend.write(operations).result(BOUND).revision
            self.writes[revision] = SYSTEM_CLOCK.now(), changes

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


class History:
    """The states that a folder had, by the revisions of all that was written."""

    def __init__(self, *writers: Writer) -> None:
        writes = {rev: done for one in writers for rev, done in one.writes.items()}
        self.revisions = sorted(writes)
        self._states: list[State] = [{}]
        for revision in self.revisions:
            state: State = dict(self._states[-1])
            for key, value in writes[revision][1].items():
                state.pop(key, None)
                if value is not None:
                    state[key] = value
            self._states.append(state)
        self._acknowledged = {revision: writes[revision][0] for revision in self.revisions}

    def at(self, revision: int) -> State:
        return self._states[bisect_right(self.revisions, revision)]

    def known_at(self, moment: float) -> int:
        """The newest revision that was acknowledged before ``moment``."""
        known = (rev for rev, when in self._acknowledged.items() if when < moment)
        return max(known, default=0)


def check(views: list[View[Listing]], history: History) -> None:
    """Whether the views, in the order in which they were seen, are what is promised."""
    last = 0
    for view in views:
        if view.state is None:
            continue
        revision = view.state.revision
        assert revision >= last, "an older state after a newer"
        last = revision
        shown = {key: one.data for key, one in view.state.values.items()}
        assert shown == history.at(revision), "no state that was"
        if view.stale_since is not None:
            missed = history.at(history.known_at(view.stale_since))
            assert revision >= history.known_at(view.stale_since) or shown == missed
